//! A small client: writes what a client sends, and reads what a server sends, by the letter of the
//! protocol. It shares no code with the crate. What a server must not send is an error.

use std::collections::BTreeMap;

/// Bytes that are written and read in order, big-endian.
#[derive(Default)]
pub struct Wire(pub Vec<u8>);

impl Wire {
    pub fn n16(mut self, number: u16) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn n32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn n64(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.n32(text.len() as u32).raw(text.as_bytes())
    }
}

pub fn client_flags(flags: u32) -> Vec<u8> {
    Wire::default().n32(flags).0
}

pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    Wire::default().raw(b"IHAVEOPT").n32(option).n32(data.len() as u32).raw(data).0
}

/// The data of `INFO` and `GO`.
pub fn info(name: &str, items: &[u16]) -> Vec<u8> {
    let wire = Wire::default().text(name).n16(items.len() as u16);
    items.iter().fold(wire, |wire, item| wire.n16(*item)).0
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
pub fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let wire = Wire::default().text(name).n32(queries.len() as u32);
    queries.iter().fold(wire, |wire, query| wire.text(query)).0
}

/// What the client asks for in the transmission.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u64,
    pub payload: Vec<u8>,
}

/// How requests and replies look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Simple,
    Structured,
    Extended,
}

pub fn request(form: Form, asked: &Asked) -> Vec<u8> {
    let is_extended = form == Form::Extended;
    let wire = Wire::default().n32(if is_extended { 0x21e4_1c71 } else { 0x2560_9513 });
    let wire = wire.n16(asked.flags).n16(asked.kind).n64(asked.cookie).n64(asked.offset);
    let wire = if is_extended { wire.n64(asked.length) } else { wire.n32(asked.length as u32) };
    wire.raw(&asked.payload).0
}

/// Reads numbers from the front.
struct Read<'a>(&'a [u8]);

impl<'a> Read<'a> {
    fn raw(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (first, rest) = self.0.split_at_checked(count).ok_or("too short")?;
        self.0 = rest;
        Ok(first)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.raw(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn expect(&mut self, bytes: usize, expected: u64) -> Result<(), String> {
        let found = self.number(bytes)?;
        if found == expected { Ok(()) } else { Err(format!("{found:x}, not {expected:x}")) }
    }
}

/// A reply to an option; an error is without its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// Takes the greeting from the front.
pub fn greeting(bytes: &mut &[u8]) -> Result<(), String> {
    let mut read = Read(bytes);
    if read.raw(16)? != b"NBDMAGICIHAVEOPT" {
        return Err("no greeting".to_owned());
    }
    read.expect(2, 3)?;
    *bytes = read.0;
    Ok(())
}

/// Takes the replies to options from the front, as many as there are.
pub fn option_replies(bytes: &mut &[u8]) -> Result<Vec<OptionReply>, String> {
    let mut replies = Vec::new();
    while bytes.starts_with(&0x0003_e889_0455_65a9_u64.to_be_bytes()) {
        let mut read = Read(&bytes[8..]);
        let (option, kind) = (read.number(4)? as u32, read.number(4)? as u32);
        let length = read.number(4)? as usize;
        let data = read.raw(length)?;
        let is_error = kind >> 31 == 1;
        if is_error && (data.len() > 4096 || std::str::from_utf8(data).is_err()) {
            return Err("an error without a proper message".to_owned());
        }
        let data = if is_error { Vec::new() } else { data.to_vec() };
        replies.push(OptionReply { option, kind, data });
        *bytes = read.0;
    }
    Ok(replies)
}

/// A reply to a request, put together from its chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The first error: its code, and its offset.
    pub error: Option<(u32, Option<u64>)>,
    /// What was read before it, or all.
    pub data: Vec<u8>,
    /// Context, and length and status of each extent.
    pub status: Vec<(u32, Vec<(u64, u64)>)>,
    /// How many chunks had content, and how many of these were holes.
    pub content: (usize, usize),
    is_done: bool,
}

/// Reads everything that was sent in the transmission. `asked` has what was sent to the server;
/// with it, bounds are checked, and simple replies can be read at all. The cookies must differ.
pub fn replies(form: Form, asked: &[Asked], bytes: &[u8]) -> Result<BTreeMap<u64, Reply>, String> {
    let asked: BTreeMap<u64, &Asked> = asked.iter().map(|asked| (asked.cookie, asked)).collect();
    let mut replies: BTreeMap<u64, Reply> = BTreeMap::new();
    let mut read = Read(bytes);
    while !read.0.is_empty() {
        let of = |cookie: u64| asked.get(&cookie).copied().ok_or(format!("cookie {cookie}"));
        match form {
            Form::Simple => {
                read.expect(4, 0x6744_6698)?;
                let (error, cookie) = (read.number(4)? as u32, read.number(8)?);
                let request = of(cookie)?;
                let reply = replies.entry(cookie).or_default();
                reply.start()?;
                reply.is_done = true;
                if error != 0 {
                    reply.error = Some((error, None));
                } else if request.kind == 0 {
                    reply.data = read.raw(request.length as usize)?.to_vec();
                }
            }
            Form::Structured | Form::Extended => {
                let is_extended = form == Form::Extended;
                read.expect(4, if is_extended { 0x6e8a_278c } else { 0x668e_33ef })?;
                let (flags, kind) = (read.number(2)?, read.number(2)?);
                let cookie = read.number(8)?;
                let request = of(cookie)?;
                if is_extended {
                    read.expect(8, request.offset)?;
                }
                let length = read.number(if is_extended { 8 } else { 4 })? as usize;
                let payload = read.raw(length)?;
                let reply = replies.entry(cookie).or_default();
                reply.start()?;
                reply.is_done = flags == 1;
                if flags > 1 {
                    return Err(format!("flags {flags}"));
                }
                reply.chunk(form, request, kind, payload)?;
            }
        }
    }
    for (cookie, reply) in &replies {
        reply.check(asked[cookie])?;
    }
    Ok(replies)
}

impl Reply {
    fn start(&self) -> Result<(), String> {
        if self.is_done { Err("a chunk behind the last".to_owned()) } else { Ok(()) }
    }

    fn chunk(
        &mut self,
        form: Form,
        asked: &Asked,
        kind: u64,
        payload: &[u8],
    ) -> Result<(), String> {
        let mut read = Read(payload);
        match (kind, form) {
            (0, _) if self.is_done => {}
            (1, _) => {
                self.at(asked, read.number(8)?)?;
                self.content.0 += 1;
                if read.0.is_empty() {
                    return Err("no data".to_owned());
                }
                self.data.extend_from_slice(std::mem::take(&mut read.0));
            }
            (2, _) => {
                self.at(asked, read.number(8)?)?;
                self.content = (self.content.0 + 1, self.content.1 + 1);
                let hole = read.number(4)? as usize;
                if hole == 0 {
                    return Err("an empty hole".to_owned());
                }
                self.data.resize(self.data.len() + hole, 0);
            }
            (5, Form::Structured) => {
                let id = read.number(4)? as u32;
                let mut extents = Vec::new();
                while !read.0.is_empty() {
                    extents.push((read.number(4)?, read.number(4)?));
                }
                self.status.push((id, extents));
            }
            (6, Form::Extended) => {
                let (id, count) = (read.number(4)? as u32, read.number(4)?);
                let extent = |_| Ok((read.number(8)?, read.number(8)?));
                let extents: Result<Vec<_>, String> = (0..count).map(extent).collect();
                self.status.push((id, extents?));
            }
            (0x8001 | 0x8002, _) => {
                let error = read.number(4)? as u32;
                let length = read.number(2)? as usize;
                std::str::from_utf8(read.raw(length)?).map_err(|error| error.to_string())?;
                let at = if kind == 0x8002 { Some(read.number(8)?) } else { None };
                let is_within = at.is_none_or(|at| {
                    at.checked_sub(asked.offset).is_some_and(|behind| behind < asked.length)
                });
                if error == 0 || length > 4096 || !is_within || self.error.is_some() {
                    return Err(format!("error {error} at {at:?}"));
                }
                self.error = Some((error, at));
            }
            _ => return Err(format!("chunk of type {kind}")),
        }
        if read.0.is_empty() { Ok(()) } else { Err("a chunk is too long".to_owned()) }
    }

    /// The owner of the tests sends content in order, so none overlaps.
    fn at(&self, asked: &Asked, at: u64) -> Result<(), String> {
        let is_next = asked.kind == 0 && at == asked.offset + self.data.len() as u64;
        if is_next { Ok(()) } else { Err(format!("content at {at}")) }
    }

    /// Checks a reply that is complete.
    fn check(&self, asked: &Asked) -> Result<(), String> {
        let effect = match asked {
            Asked { kind: 7, payload, .. } if payload.len() >= 8 => Read(payload).number(8)?,
            _ => asked.length,
        };
        let has_all = match self.error {
            Some((_, Some(at))) if asked.kind == 0 => {
                self.data.is_empty() || asked.offset + self.data.len() as u64 == at
            }
            Some(_) => self.data.is_empty() && self.status.is_empty(),
            None if asked.kind == 0 => self.data.len() as u64 == asked.length,
            None => self.data.is_empty(),
        };
        let is_whole = asked.flags & 4 == 0 || self.content.0 <= 1;
        let is_status = |(_, extents): &(u32, Vec<(u64, u64)>)| {
            let before_last: u64 = extents.iter().rev().skip(1).map(|extent| extent.0).sum();
            let is_single = extents.len() == 1 && extents[0].0 <= effect;
            !extents.is_empty()
                && extents.iter().all(|extent| extent.0 > 0)
                && before_last < effect
                && (asked.flags & 8 == 0 || is_single)
        };
        let is_right = self.is_done && has_all && is_whole && self.status.iter().all(is_status);
        if is_right { Ok(()) } else { Err(format!("{self:?} to {asked:?}")) }
    }
}
