//! The protocol from both sides: a client by the letter of the specification against a session
//! whose owner has an export in memory.

mod client;
mod handshake;
mod model;
mod negative;
mod owner;
mod property;
mod transmission;
