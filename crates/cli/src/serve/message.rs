//! What a command and the server of its store say to each other.
//!
//! The request is the length of its text as four bytes, lowest first, to which the standard
//! streams of the command are attached as descriptors, and the text: `upsweep`, the version, the
//! working directory, and the arguments, with a zero byte after each. The first two never change,
//! so that programs of different versions find out. The answer is the exit status, as one byte.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::context::Streams;

const PROGRAM: &str = "upsweep";
/// Version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest text of a request: more than the system lets arguments have by default.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// A command to run for another process.
pub(super) struct Request {
    pub(super) version: String,
    /// Its working directory.
    pub(super) folder: PathBuf,
    /// Its arguments; the first is the name of the program.
    pub(super) arguments: Vec<OsString>,
}

impl Request {
    /// The command that this process was called with.
    pub(super) fn of_process() -> io::Result<Self> {
        let folder = std::env::current_dir()?;
        Ok(Self { version: VERSION.to_owned(), folder, arguments: std::env::args_os().collect() })
    }

    fn encode(&self) -> Vec<u8> {
        let head =
            [PROGRAM.as_bytes(), self.version.as_bytes(), self.folder.as_os_str().as_bytes()];
        let arguments = self.arguments.iter().map(|argument| argument.as_bytes());
        head.into_iter().chain(arguments).flat_map(|part| [part, &[0]].concat()).collect()
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let mut parts = text.strip_suffix(&[0])?.split(|byte| *byte == 0);
        if parts.next()? != PROGRAM.as_bytes() {
            return None;
        }
        let version = String::from_utf8(parts.next()?.to_vec()).ok()?;
        let mut rest = parts.map(|part| OsString::from_vec(part.to_vec()));
        let folder = PathBuf::from(rest.next()?);
        Some(Self { version, folder, arguments: rest.collect() })
    }

    pub(super) fn send(&self, mut socket: &UnixStream, streams: &Streams) -> io::Result<()> {
        let text = self.encode();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        let Streams { input, output, errors } = streams;
        let descriptors = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        let has_room = attached.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(has_room, "the space is for three descriptors");
        sendmsg(socket, &[IoSlice::new(&length)], &mut attached, SendFlags::NOSIGNAL)?;
        socket.write_all(&text)
    }

    /// The next request; `None` if the other side has closed the socket instead.
    pub(super) fn receive(mut socket: &UnixStream) -> io::Result<Option<(Self, Streams)>> {
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(socket, &mut [IoSliceMut::new(&mut length)], &mut attached, flags)?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let descriptors: Vec<OwnedFd> = attached
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        let text_bytes = u32::from_le_bytes(length) as usize;
        let descriptors: Result<[OwnedFd; 3], _> = descriptors.try_into();
        let (true, Ok(descriptors)) = (text_bytes <= TEXT_BYTES_MAX, descriptors) else {
            return Err(ErrorKind::InvalidData.into());
        };
        let mut text = vec![0; text_bytes];
        socket.read_exact(&mut text)?;
        let request = Self::decode(&text).ok_or(ErrorKind::InvalidData)?;
        let [input, output, errors] = descriptors.map(File::from);
        Ok(Some((request, Streams { input, output, errors })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &[&[u8]]) -> Request {
        let arguments = arguments.iter().map(|part| OsString::from_vec(part.to_vec())).collect();
        Request { version: "7.8.9".to_owned(), folder: PathBuf::from("/a b"), arguments }
    }

    #[test]
    fn a_request_arrives_with_its_streams() {
        let (ours, other) = UnixStream::pair().expect("a pair");
        let null = || File::open("/dev/null").expect("there");
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let output = File::from(OwnedFd::from(writer));
        let streams = Streams { input: null(), output, errors: null() };
        let sent = request(&[b"upsweep", b"", b"\xff\n"]);
        sent.send(&ours, &streams).expect("sent");
        drop(streams);
        let (found, mut streams) = Request::receive(&other).expect("right").expect("there");
        assert_eq!(found.version, "7.8.9");
        assert_eq!((found.folder, found.arguments), (sent.folder, sent.arguments));
        streams.output.write_all(b"text").expect("written");
        drop(streams);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "text");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let (ours, other) = UnixStream::pair().expect("a pair");
        (&ours).write_all(b"GET / HTTP/1.1\r\n").expect("written");
        let refused = Request::receive(&other).err().expect("refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        drop((ours, other));
        let (ours, other) = UnixStream::pair().expect("a pair");
        drop(ours);
        assert!(Request::receive(&other).expect("closed").is_none());
        assert!(Request::decode(b"upsweep\0").is_none());
        assert!(Request::decode(b"other\x001\0/\0").is_none());
    }
}
