//! The simulator of Upsweep: the whole engine, unchanged, in one thread and in virtual time, on
//! hostile devices, compared with an oracle; and under load, on devices with a modelled speed. Each
//! seed gives one history of each kind.
//!
//! | module | content |
//! |---|---|
//! | [`random`] | the generator; sub-seeds by purpose |
//! | [`plan`] | the meaning of a seed: devices, settings, kind of trouble |
//! | [`drives`] | rotating drives as devices |
//! | [`workload`] | random updates |
//! | [`semantics`], [`modifiers`] | the semantics of modifiers; those of the application |
//! | [`oracle`] | the model: state after any prefix of the records that may survive |
//! | [`bank`] | hostile devices behind a fuse |
//! | [`world`] | the event loop: time, completions, jobs, views |
//! | [`classes`] | the rule that requests match their classes |
//! | [`resting`] | the rule that nothing rests while a caller waits |
//! | [`callers`] | concurrent callers: threads with many records, and parked changes |
//! | [`loading`] | bulk loads, in steps |
//! | [`steps`] | the steps of a history |
//! | [`pressure`] | bursts and floods of records, power cuts at a bad time |
//! | [`extents`] | owners of tables that keep content of their own in reserved extents |
//! | [`performers`] | callers that do I/O themselves: reads for their views, writes of the log |
//! | [`reading`] | reads through views, compared with the oracle |
//! | [`reopen`] | power cuts, also during recovery; shutdown and open |
//! | [`audits`] | what always holds; whether the store would survive a power cut now |
//! | [`checker`] | what holds after every recovery and at the end |
//! | [`load`] | histories of another kind: how the engine keeps up with its callers |
//! | [`history`] | one whole history, and its verdict |

pub mod audits;
pub mod bank;
pub mod callers;
pub mod checker;
pub mod classes;
pub mod drives;
pub mod extents;
pub mod history;
pub mod load;
pub mod loading;
pub mod modifiers;
pub mod oracle;
pub mod performers;
pub mod plan;
pub mod pressure;
pub mod random;
pub mod reading;
pub mod reopen;
pub mod resting;
pub mod semantics;
pub mod settings;
pub mod steps;
pub mod workload;
pub mod world;
