//! What a server serves: devices behind exports.
//!
//! The server calls these from several threads at a time, and each call may block. Ranges and flags
//! are checked before: they lie within the export, fit its blocks unless it takes unaligned ones,
//! and are allowed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Closing;
use crate::export::{Context, Export};
use crate::fault::{Fault, Refusal};
use crate::request::Command;
use crate::session::Extent;

/// A block device, open for one connection.
///
/// Calls of one or several connections come in any order and at the same time. Where ranges
/// overlap, each byte has what one of the calls wrote.
pub trait Device: Send + Sync {
    /// How long to wait until this request is performed, because of a limit to what is performed in
    /// a time; by default not at all. The requests of a connection wait in their order, without a
    /// thread of the workers, and until the server stops at most. This is called once for each of
    /// them and must not block.
    fn delay(&self, command: &Command) -> Duration {
        let _ = command;
        Duration::ZERO
    }

    /// A request that was told how long to wait will not be performed, because its client is gone:
    /// for limits; by default nothing. It must not block.
    fn cancel(&self, command: &Command) {
        let _ = command;
    }

    /// Reads from this offset until the buffer is full. If the fault names an offset in the range,
    /// the client also gets what the buffer has before it.
    ///
    /// # Errors
    ///
    /// The [`Fault`] that the client gets, as with all other calls.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault>;

    /// As [`Device::read`], for several reads that wait at the same time; the results are in the
    /// same order. By default one after another.
    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        reads.iter_mut().map(|(offset, buffer)| self.read(*offset, buffer)).collect()
    }

    /// Writes all of this, `durable` to stable media.
    ///
    /// # Errors
    ///
    /// The fault for the client. Some of the range may be written.
    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Fault>;

    /// Begins a write that need not be durable, if the device has memory of its own for the
    /// payload; by default it has none, and gets [`Device::write`] of what the server has received.
    /// This must not block. If the payload does not come, what has begun is dropped.
    fn begin_write(&self, offset: u64, length: u32) -> Option<Box<dyn IncomingWrite>> {
        let _ = (offset, length);
        None
    }

    /// Brings to stable media the effect of every call that returned before this one began, and of
    /// all writes that were accepted before.
    ///
    /// # Errors
    ///
    /// The fault for the client. Nothing is known then about what is on stable media.
    fn flush(&self) -> Result<(), Fault>;

    /// Makes a range zeros.
    ///
    /// # Errors
    ///
    /// The fault for the client; [`NotSupported`](crate::ErrorCode::NotSupported), without any
    /// effect, if it should be fast and cannot.
    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), Fault>;

    /// Forgets the content of a range, as far as it likes.
    ///
    /// # Errors
    ///
    /// The fault for the client.
    fn trim(&self, offset: u64, length: u64, durable: bool) -> Result<(), Fault>;

    /// Prepares to read a range soon; by default nothing.
    ///
    /// # Errors
    ///
    /// The fault for the client.
    fn cache(&self, offset: u64, length: u64) -> Result<(), Fault> {
        let _ = (offset, length);
        Ok(())
    }

    /// Tells what a context of the export says about the range, from its beginning on. More than
    /// this many extents are in vain, once neighbours of the same status are joined; there may be
    /// less than the range, but not nothing.
    ///
    /// # Errors
    ///
    /// The fault for the client.
    fn status(
        &self,
        context: &Context,
        offset: u64,
        length: u64,
        extents_max: u32,
    ) -> Result<Vec<Extent>, Fault>;
}

/// A write whose payload goes from the client into memory of the device, and whose reply the client
/// may have before it is over.
pub trait IncomingWrite: Send {
    /// The memory for the payload, as long as that. What it has before does not matter.
    fn payload(&mut self) -> &mut [u8];

    /// Writes the payload, which has come. Once all calls that begin from then on see it, and
    /// [`Device::flush`] waits for it, this may call `accepted`: then the client gets its reply;
    /// otherwise at the end. It keeps a thread of the workers, so these limit how many writes are
    /// on their way; the device limits the bytes of those that it has accepted, which do not count
    /// as in flight.
    ///
    /// # Errors
    ///
    /// As with [`Device::write`]. After `accepted` the client does not get the fault, so the next
    /// flush has to fail.
    fn perform(self: Box<Self>, accepted: &mut dyn FnMut()) -> Result<(), Fault>;
}

/// How to write zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// To stable media.
    pub durable: bool,
    /// With space that stays reserved for the range.
    pub no_hole: bool,
    /// Only if this is faster than to write zeros as data.
    pub fast: bool,
}

/// The devices that a server has. A call may block; only its own connection waits for it.
pub trait Exports: Send + Sync {
    /// Name and description of each export that this client may know of.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the client gets, as with all other calls.
    fn list(&self, peer: &Peer) -> Result<Vec<(String, String)>, Refusal>;

    /// Describes an export to a client that may open it later. The empty name is the default.
    ///
    /// # Errors
    ///
    /// The refusal for the client.
    fn describe(&self, name: &str, peer: &Peer) -> Result<Export, Refusal>;

    /// Opens an export for a client. The device is dropped when the connection is closed and all of
    /// its requests are done, or at once if the client does not get the export after all.
    ///
    /// # Errors
    ///
    /// The refusal for the client.
    fn open(&self, name: &str, peer: &Peer) -> Result<(Export, Arc<dyn Device>), Refusal>;

    /// A connection is closed: for logs. By default nothing. The thread of the connection calls it
    /// before it drops the device.
    fn closed(&self, peer: &Peer, closing: &Closing) {
        let _ = (peer, closing);
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: Address,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The DNS names in its certificate, if the server asks for one. An authority that the server
    /// trusts has signed them.
    pub names: Vec<String>,
}

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// On the network.
    Tcp(SocketAddr),
    /// On this machine.
    Unix {
        /// The user that its process ran as when it connected, where the system tells.
        user: Option<u32>,
    },
}
