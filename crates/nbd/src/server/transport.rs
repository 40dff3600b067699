//! The bytes of a connection, plain or through TLS.
//!
//! Nothing blocks: what cannot go on now is `WouldBlock`. What TLS holds back to send is bounded by
//! rustls, 64 KiB.

use std::io::{self, IoSlice, Read, Write};

use rustls::ServerConnection;

use super::listener::Socket;

/// A connection to a client.
pub(super) struct Transport {
    pub(super) socket: Socket,
    tls: Option<Box<ServerConnection>>,
}

impl Transport {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// From here on all bytes go through TLS.
    pub(super) fn begin_tls(&mut self, connection: ServerConnection) {
        self.tls = Some(Box::new(connection));
    }

    pub(super) fn tls(&self) -> Option<&ServerConnection> {
        self.tls.as_deref()
    }

    /// Goes on with the handshake of TLS, and returns whether it is over.
    ///
    /// # Errors
    ///
    /// `InvalidData` if TLS failed; the client is told why as far as that is possible.
    pub(super) fn shake_hands(&mut self) -> io::Result<bool> {
        let Self { socket, tls: Some(tls) } = self else { return Ok(false) };
        while tls.is_handshaking() {
            if tls.wants_write() {
                tls.write_tls(socket)?;
            } else {
                receive_tls(tls, socket)?;
            }
        }
        Ok(true)
    }

    /// Reads what is there; 0 bytes are the end. With TLS, an end that the client has not announced
    /// is `UnexpectedEof`.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { socket, tls: Some(tls) } = self else { return self.socket.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            receive_tls(tls, socket)?;
        }
    }

    /// Takes the beginning of this to be sent.
    pub(super) fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write_vectored(buffers) };
        let taken = tls.writer().write_vectored(buffers)?;
        match self.flush() {
            // The buffer is full, and nothing of it can be sent now.
            Err(error) if taken == 0 => Err(error),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what TLS holds back.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Self { socket, tls: Some(tls) } = self else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(socket)?;
        }
        Ok(())
    }

    /// Whether TLS holds something back.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Announces the end to the client, as far as there is room now.
    pub(super) fn end_output(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush()?;
        self.socket.end_output()
    }
}

fn receive_tls(tls: &mut ServerConnection, socket: &mut Socket) -> io::Result<()> {
    let is_end = tls.read_tls(socket)? == 0;
    if let Err(error) = tls.process_new_packets() {
        // An alert says why. If there is no room for it, the client sees the end.
        let _ = tls.write_tls(socket);
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    if is_end && tls.is_handshaking() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
