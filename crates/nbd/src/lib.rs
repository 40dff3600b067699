//! A server of block devices over NBD: the protocol as a state machine without I/O, and a thin
//! server around it.
//!
//! [`server`] has sockets, threads and TLS. A program that exports block devices implements its
//! traits and needs little else of this crate.
//!
//! A [`Session`] is one connection of a client that uses a block device over the network. It takes
//! the bytes of the client and gives the bytes for it; it asks its owner for exports and hands it
//! requests as [`Event`]s, and the owner replies to them in any order. It has no socket, thread,
//! clock or device, so the server around it is thin, and tests need none of these either.
//!
//! It speaks fixed newstyle with TLS, structured replies, contexts of metadata and, if that is
//! switched on, extended headers. It follows the [specification](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md).
//!
//! | module | content |
//! |---|---|
//! | `format` | every number and byte layout of the protocol |
//! | `config` | limits and settings |
//! | `export` | what is exported, and contexts |
//! | `request` | requests, and which of them are refused |
//! | `fault` | errors |
//! | `output` | bytes that wait to be sent |
//! | `session` | the state machine |
//! | [`server`] | sockets, threads, TLS, limits |
//!
//! **Bounds.** A session holds at most one option of [`OPTION_BYTES_MAX`] or one header of what it
//! has received; payloads of writes go past it into buffers of the owner. Requests in flight and
//! what they may take have bounds in [`Config`]: at a bound the session takes no further input
//! ([`Wants::Nothing`]), and the client waits. The server bounds connections and times.
//!
//! ```
//! use upsweep_nbd::{Command, Config, Event, Export, Piece, Session, Wants};
//!
//! /// What a server does, with the bytes of a client that sends all of them at once.
//! fn serve(mut input: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//!     let mut session: Session = Session::new(Config::default())?;
//!     let mut disk = vec![0; 1 << 20];
//!     let mut sent = Vec::new();
//!     let mut payload = Vec::new();
//!     loop {
//!         while let Some(event) = session.event() {
//!             match event {
//!                 Event::List => session.answer_list(Ok(&[("disk", "")]))?,
//!                 Event::Lookup { .. } => {
//!                     session.answer_lookup(Ok(Export::new("disk", 1 << 20)))?;
//!                 }
//!                 Event::Request(request) => match request.command {
//!                     Command::Read { offset, length } => {
//!                         let range = offset as usize..offset as usize + length as usize;
//!                         let data = Piece::Data(disk[range].to_vec());
//!                         session.reply_read(request.id, vec![data])?;
//!                     }
//!                     Command::Write { offset, length, .. } => {
//!                         payload.push((request.id, offset as usize, length as usize));
//!                     }
//!                     _ => session.reply_done(request.id)?,
//!                 },
//!             }
//!         }
//!         let slices: Vec<&[u8]> = session.output().collect();
//!         let count = slices.iter().map(|slice| slice.len()).sum::<usize>();
//!         slices.iter().for_each(|slice| sent.extend_from_slice(slice));
//!         session.consume(count as u64);
//!         match session.wants() {
//!             Wants::Bytes if input.is_empty() => return Ok(sent),
//!             Wants::Bytes => input = &input[session.receive(input)..],
//!             Wants::Payload { bytes, .. } => {
//!                 let (id, offset, length) = payload.pop().ok_or("no write")?;
//!                 disk[offset..offset + length].copy_from_slice(&input[..length]);
//!                 input = &input[length..];
//!                 session.payload_received(bytes);
//!                 session.reply_done(id)?;
//!             }
//!             Wants::Nothing | Wants::Tls => {}
//!             Wants::End => return Ok(sent),
//!         }
//!     }
//! }
//!
//! // Fixed newstyle without zeros; `ABORT`.
//! let client = b"\0\0\0\x03IHAVEOPT\0\0\0\x02\0\0\0\0";
//! let sent = serve(client)?;
//! assert!(sent.starts_with(b"NBDMAGICIHAVEOPT\0\x03"));
//! assert_eq!(sent.len(), 18 + 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod export;
mod fault;
mod format;
mod output;
mod request;
pub mod server;
mod session;

pub use config::{Config, InvalidConfig, TlsMode};
pub use export::{Context, Export, InvalidExport};
pub use fault::{End, ErrorCode, Fault, Misuse, Refusal, Violation};
pub use request::{Command, Request, RequestId};
pub use session::{
    Event, Extent, OPTION_BYTES_MAX, Piece, Purpose, SELECTED_CONTEXTS_MAX, Session, Wants,
};
