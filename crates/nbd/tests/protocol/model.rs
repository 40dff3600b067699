//! What has to come of a conversation, step by step and without bytes: an independent reading of
//! the specification for the exports of the tests, with TLS optional and extended headers on.

use crate::client::{Asked, Form, OptionReply, Wire};
use crate::handshake::{
    ERR_EXT_HEADER_REQD, ERR_INVALID, ERR_TLS_REQD, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP,
};
use crate::owner::{BAD, BLOCK, SIZE, disk};

/// A step of the handshake.
#[derive(Clone, Debug)]
pub enum Step {
    List {
        data: usize,
    },
    StartTls,
    Structured,
    Extended,
    /// `INFO`, or `GO`; a name of the tests, and what is asked.
    Info {
        go: bool,
        name: &'static str,
        items: Vec<u16>,
    },
    Contexts {
        set: bool,
        name: &'static str,
        queries: Vec<&'static str>,
    },
    Unknown {
        option: u32,
        data: usize,
    },
    Long {
        option: u32,
    },
}

pub const NAMES: [&str; 5] = ["disk", "", "frozen", "secret", "none"];
pub const QUERIES: [&str; 7] = [
    "base:",
    "base:allocation",
    "qemu:",
    "qemu:dirty-bitmap:",
    "qemu:dirty-bitmap:a",
    "qemu:allocation-depth",
    "x-other:thing",
];
const CONTEXTS: [&str; 4] =
    ["base:allocation", "qemu:allocation-depth", "qemu:dirty-bitmap:a", "qemu:dirty-bitmap:b"];

/// The server as the specification describes it.
pub struct Model {
    pub form: Form,
    pub encrypted: bool,
    /// Once `GO` succeeded: whether the export is `frozen`.
    pub frozen: Option<bool>,
    /// The contexts that a block status reports, with their numbers.
    pub selected: Vec<(u32, usize)>,
    selected_of: &'static str,
    next_id: u32,
    content: Vec<u8>,
    dirty: Vec<bool>,
}

/// What has to come of a request.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Done,
    Error(u32, Option<u64>),
    Data(Vec<u8>),
    Status(Vec<(u32, Vec<(u64, u64)>)>),
}

impl Model {
    pub fn new() -> Self {
        Self {
            form: Form::Simple,
            encrypted: false,
            frozen: None,
            selected: Vec::new(),
            selected_of: "",
            next_id: 1,
            content: disk(),
            dirty: vec![false; SIZE / BLOCK],
        }
    }

    /// The replies to a step.
    pub fn step(&mut self, step: &Step) -> Vec<OptionReply> {
        let (option, kinds) = match step {
            Step::List { data } => {
                (3, if *data > 0 { vec![ERR_INVALID] } else { vec![2, 2, 2, 1] })
            }
            Step::StartTls if self.encrypted => (5, vec![ERR_INVALID]),
            Step::StartTls => {
                (self.encrypted, self.form) = (true, Form::Simple);
                self.selected.clear();
                (5, vec![1])
            }
            Step::Structured if self.form == Form::Extended => (8, vec![ERR_EXT_HEADER_REQD]),
            Step::Structured => {
                self.form = Form::Structured;
                (8, vec![1])
            }
            Step::Extended => {
                self.form = Form::Extended;
                (11, vec![1])
            }
            Step::Unknown { option, .. } => (*option, vec![ERR_UNSUP]),
            Step::Long { option } => {
                if *option == 10 {
                    self.selected.clear();
                }
                (*option, vec![ERR_TOO_BIG])
            }
            Step::Info { go, name, items } => return self.info(*go, name, items),
            Step::Contexts { set, name, queries } => return self.contexts(*set, name, queries),
        };
        let text = |(at, kind): (usize, u32)| {
            let listed = [("disk", "a disk"), ("frozen", ""), ("secret", "")];
            let wire = match kind {
                2 => Wire::default().text(listed[at].0).raw(listed[at].1.as_bytes()),
                _ => Wire::default(),
            };
            OptionReply { option, kind, data: wire.0 }
        };
        kinds.into_iter().enumerate().map(text).collect()
    }

    /// Why this export is not to be had, if so.
    fn denied(&self, name: &str) -> Option<u32> {
        match name {
            "none" => Some(ERR_UNKNOWN),
            "secret" if !self.encrypted => Some(ERR_TLS_REQD),
            _ => None,
        }
    }

    fn info(&mut self, go: bool, name: &'static str, items: &[u16]) -> Vec<OptionReply> {
        let option = if go { 7 } else { 6 };
        let reply = |kind, wire: Wire| OptionReply { option, kind, data: wire.0 };
        if let Some(error) = self.denied(name) {
            return vec![reply(error, Wire::default())];
        }
        let is_frozen = name == "frozen";
        // Flags, FLUSH, FUA and CACHE; read-only and rotational, or TRIM and both kinds of zeros.
        let mut flags = 0x040d | if is_frozen { 0x12 } else { 0x0860 };
        if matches!(name, "" | "disk") {
            flags |= 0x0100;
        }
        if self.form != Form::Simple {
            flags |= 0x0080;
        }
        if self.form == Form::Extended && !self.selected.is_empty() && self.selected_of == name {
            flags |= 0x1000;
        }
        let minimum = if is_frozen { 512 } else { 1 };
        let mut replies = vec![
            reply(3, Wire::default().n16(3).n32(minimum).n32(4096).n32(1 << 16)),
            reply(3, Wire::default().n16(0).n64(SIZE as u64).n16(flags)),
        ];
        if items.contains(&1) {
            let canonical = if name.is_empty() { "disk" } else { name };
            replies.push(reply(3, Wire::default().n16(1).raw(canonical.as_bytes())));
        }
        if items.contains(&2) && matches!(name, "" | "disk") {
            replies.push(reply(3, Wire::default().n16(2).raw(b"a disk")));
        }
        replies.push(reply(1, Wire::default()));
        if go {
            self.frozen = Some(is_frozen);
            if self.selected_of != name {
                self.selected.clear();
            }
        }
        replies
    }

    fn contexts(&mut self, set: bool, name: &'static str, queries: &[&str]) -> Vec<OptionReply> {
        let option = if set { 10 } else { 9 };
        let reply = |kind, wire: Wire| OptionReply { option, kind, data: wire.0 };
        if set {
            self.selected.clear();
        }
        if self.form == Form::Simple {
            return vec![reply(ERR_INVALID, Wire::default())];
        }
        if self.denied(name).is_some() {
            return vec![reply(ERR_UNKNOWN, Wire::default())];
        }
        let mut replies = Vec::new();
        for (at, context) in CONTEXTS.iter().enumerate() {
            let mut is_meant = queries.contains(context);
            if !set {
                is_meant |= queries.is_empty()
                    || queries.contains(&"base:") && at == 0
                    || queries.contains(&"qemu:") && at > 0
                    || queries.contains(&"qemu:dirty-bitmap:") && at > 1;
            }
            if is_meant && matches!(name, "" | "disk") {
                let id = if set { self.next_id } else { 0 };
                if set {
                    self.selected.push((id, at));
                    self.selected_of = name;
                    self.next_id += 1;
                }
                replies.push(reply(4, Wire::default().n32(id).raw(context.as_bytes())));
            }
        }
        replies.push(reply(1, Wire::default()));
        replies
    }

    /// What comes of a request; `None` if it ends the session. Payloads are at most 64 KiB.
    pub fn request(&mut self, asked: &Asked) -> Option<Outcome> {
        if asked.kind == 2 {
            return None;
        }
        let is_extended = self.form == Form::Extended;
        let allowed = match asked.kind {
            0 if self.form != Form::Simple => 4,
            1 if is_extended => 32,
            6 => 2 | 16,
            7 if is_extended && asked.payload.len() >= 12 => 8 | 32,
            7 => 8,
            _ => 0,
        };
        let is_empty_write = asked.kind == 1 && asked.flags & 32 == 0 && is_extended;
        if asked.flags & !(allowed | 1) != 0 || asked.kind > 7 || is_empty_write {
            return Some(Outcome::Error(22, None));
        }
        if asked.kind == 3 {
            let is_right = asked.offset == 0 && asked.length == 0;
            return Some(if is_right { Outcome::Done } else { Outcome::Error(22, None) });
        }
        let is_change = matches!(asked.kind, 1 | 4 | 6);
        let is_frozen = self.frozen == Some(true);
        if is_change && is_frozen {
            return Some(Outcome::Error(1, None));
        }
        let mut selected = self.selected.clone();
        let mut length = asked.length;
        if asked.flags & 32 != 0 && asked.kind == 7 {
            let (first, ids) = asked.payload.split_at(8);
            length = first.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
            selected.clear();
            for id in ids.chunks(4) {
                let id = id.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
                let found = self.selected.iter().find(|selected| selected.0 == id);
                match found {
                    Some(found) if ids.len() % 4 == 0 && !selected.contains(found) => {
                        selected.push(*found);
                    }
                    _ => return Some(Outcome::Error(22, None)),
                }
            }
        }
        let beyond = if matches!(asked.kind, 1 | 6) { 28 } else { 22 };
        if u128::from(asked.offset) + u128::from(length) > SIZE as u128 {
            return Some(Outcome::Error(beyond, None));
        }
        let is_unaligned = !asked.offset.is_multiple_of(512) || !length.is_multiple_of(512);
        if is_frozen && is_unaligned {
            return Some(Outcome::Error(22, None));
        }
        Some(self.effect(asked, asked.offset as usize, length as usize, &selected))
    }

    fn effect(
        &mut self,
        asked: &Asked,
        offset: usize,
        length: usize,
        selected: &[(u32, usize)],
    ) -> Outcome {
        let range = offset..offset + length;
        match asked.kind {
            0 => match range.clone().find(|at| (BAD..BAD + BLOCK).contains(at)) {
                Some(_) if self.form == Form::Simple => Outcome::Error(5, None),
                Some(at) => Outcome::Error(5, Some(at as u64)),
                None => Outcome::Data(self.content[range].to_vec()),
            },
            6 if asked.flags & 16 != 0 && !offset.is_multiple_of(BLOCK) && length > 0 => {
                Outcome::Error(95, None)
            }
            1 | 6 => {
                for (at, byte) in range.enumerate() {
                    self.content[byte] = if asked.kind == 1 { asked.payload[at] } else { 0 };
                    self.dirty[byte / BLOCK] = true;
                }
                Outcome::Done
            }
            7 if selected.is_empty() || length == 0 => Outcome::Error(22, None),
            7 => {
                let is_single = asked.flags & 8 != 0;
                let list = |context| self.extents(context, offset, length, is_single);
                Outcome::Status(selected.iter().map(|(id, at)| (*id, list(*at))).collect())
            }
            _ => Outcome::Done,
        }
    }

    /// The status of each byte, then runs of equal ones. The owner of the tests knows whole blocks.
    fn extents(&self, at: usize, offset: usize, length: usize, is_single: bool) -> Vec<(u64, u64)> {
        let end = (offset + length).div_ceil(BLOCK) * BLOCK;
        let end = if is_single { offset + length } else { end };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for byte in offset..end {
            let block = byte / BLOCK;
            let content = &self.content[block * BLOCK..(block + 1) * BLOCK];
            let is_zero = content.iter().all(|byte| *byte == 0);
            let status = match at {
                0 => u64::from(is_zero) * 3,
                1 => u64::from(!is_zero),
                _ => u64::from(self.dirty[block]),
            };
            match runs.last_mut() {
                Some(last) if last.1 == status => last.0 += 1,
                Some(_) if is_single => break,
                _ => runs.push((1, status)),
            }
        }
        runs
    }
}
