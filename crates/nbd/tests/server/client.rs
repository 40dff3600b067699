//! A client over a socket. It asks in the forms of [`wire`](crate::wire) and reads simple replies.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::PATIENCE;
use crate::wire::{self, Asked, Form};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;

pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_SET_META_CONTEXT: u32 = 10;

pub const ACK: u32 = 1;

/// A connection of any kind.
pub trait Stream: Read + Write + Send {
    /// Says that nothing more will be sent.
    fn end_output(&self);
}

impl Stream for UnixStream {
    fn end_output(&self) {
        self.shutdown(Shutdown::Write).expect("a connection");
    }
}

impl Stream for TcpStream {
    fn end_output(&self) {
        self.shutdown(Shutdown::Write).expect("a connection");
    }
}

impl Stream for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn end_output(&self) {
        self.sock.end_output();
    }
}

/// A simple reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

pub struct Client {
    pub stream: Box<dyn Stream>,
    /// What is not answered, by cookie: the bytes that success brings.
    asked: BTreeMap<u64, usize>,
    next: u64,
}

impl Client {
    pub fn on(stream: Box<dyn Stream>) -> Self {
        Self { stream, asked: BTreeMap::new(), next: 1 }
    }

    /// Connects and has the greeting behind it.
    pub fn unix(path: &Path) -> Self {
        let mut client = Self::on(Box::new(unix(path)));
        client.greet().expect("a greeting");
        client
    }

    pub fn tcp(address: SocketAddr) -> Self {
        let mut client = Self::on(Box::new(tcp(address)));
        client.greet().expect("a greeting");
        client
    }

    /// Exchanges greetings, unless the server hangs up.
    pub fn greet(&mut self) -> std::io::Result<()> {
        let mut greeting = [0; 18];
        self.stream.read_exact(&mut greeting)?;
        wire::greeting(&mut &greeting[..]).expect("a right greeting");
        self.stream.write_all(&wire::client_flags(3))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server receives");
    }

    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the server sends");
        bytes
    }

    /// Asks for an option, and returns the kinds of all replies to it.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.send(&wire::option(option, data));
        let mut kinds = Vec::new();
        loop {
            let mut reply = self.read(20);
            let length = u32::from_be_bytes(reply[16..].try_into().expect("4 bytes"));
            reply.extend(self.read(length as usize));
            let replies = wire::option_replies(&mut &reply[..]).expect("a right reply");
            assert_eq!((replies.len(), replies[0].option), (1, option));
            kinds.push(replies[0].kind);
            if replies[0].kind == ACK || replies[0].kind >> 31 == 1 {
                return kinds;
            }
        }
    }

    /// Asks for an option, and returns the kind of the last reply.
    pub fn last(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).pop().expect("a reply")
    }

    pub fn open(&mut self, name: &str) {
        assert_eq!(self.last(OPT_GO, &wire::info(name, &[])), ACK);
    }

    /// Sends a request and returns its cookie.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: usize, payload: Payload<'_>) -> u64 {
        let (length, payload) = match payload {
            Payload::Length(length) => (length, &[][..]),
            Payload::Data(data) => (data.len(), data),
        };
        let cookie = self.next;
        self.next += 1;
        let (offset, payload) = (offset as u64, payload.to_vec());
        let asked = Asked { flags, kind, cookie, offset, length: length as u64, payload };
        self.asked.insert(cookie, if kind == READ { length } else { 0 });
        self.send(&wire::request(Form::Simple, &asked));
        cookie
    }

    pub fn ask_read(&mut self, offset: usize, length: usize) -> u64 {
        self.ask(READ, 0, offset, Payload::Length(length))
    }

    pub fn ask_write(&mut self, offset: usize, data: &[u8]) -> u64 {
        self.ask(WRITE, 0, offset, Payload::Data(data))
    }

    pub fn ask_durable_write(&mut self, offset: usize, data: &[u8]) -> u64 {
        self.ask(WRITE, FUA, offset, Payload::Data(data))
    }

    pub fn ask_flush(&mut self) -> u64 {
        self.ask(FLUSH, 0, 0, Payload::Length(0))
    }

    /// The next reply.
    pub fn answer(&mut self) -> Answer {
        let reply = self.read(16);
        let number = |range: std::ops::Range<usize>| {
            reply[range].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        assert_eq!(number(0..4), 0x6744_6698);
        let (error, cookie) = (number(4..8) as u32, number(8..16));
        let bytes = self.asked.remove(&cookie).expect("it was asked");
        let data = if error == 0 { self.read(bytes) } else { Vec::new() };
        Answer { cookie, error, data }
    }

    /// The error of the next reply, which is to this request.
    pub fn error_of(&mut self, cookie: u64) -> u32 {
        let answer = self.answer();
        assert_eq!(answer.cookie, cookie);
        answer.error
    }

    /// What is read there.
    pub fn content(&mut self, offset: usize, length: usize) -> Vec<u8> {
        let cookie = self.ask_read(offset, length);
        let answer = self.answer();
        assert_eq!((answer.cookie, answer.error), (cookie, 0));
        answer.data
    }

    /// Leaves as a client should.
    pub fn leave(mut self) {
        self.ask(DISC, 0, 0, Payload::Length(0));
        assert!(self.is_closed());
    }

    /// Whether the server closes the connection without a further byte. A reset is as good.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof),
                    "{error}"
                );
                true
            }
        }
    }
}

#[derive(Clone, Copy)]
pub enum Payload<'a> {
    Length(usize),
    Data(&'a [u8]),
}

pub fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("a server");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a server");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}
