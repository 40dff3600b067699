//! The format of small worlds: records in key order, each with its lengths, and the built-in
//! modifiers as far as they are needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Piece, Refused, Routing,
};
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
use crate::engine::registry::{ADD_I64, DELETE, KeyRange, Modifiers, OwnFormats, PUT, Registry};

/// The operand or value of this number.
pub fn number(value: i64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

struct Put;
struct Delete;
struct Add;

impl Modifier for Put {
    fn name(&self) -> &'static str {
        "put"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, to: &[u8]) -> Result<Outcome, Refusal> {
        Ok(Outcome::Put(ValueKind::Bytes, to.to_vec()))
    }

    fn blind(&self) -> bool {
        true
    }
}

impl Modifier for Delete {
    fn name(&self) -> &'static str {
        "delete"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, _: &[u8]) -> Result<Outcome, Refusal> {
        Ok(Outcome::Delete)
    }

    fn blind(&self) -> bool {
        true
    }
}

impl Modifier for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(&self, _: &[u8], now: Option<ValueRef<'_>>, by: &[u8]) -> Result<Outcome, Refusal> {
        let parse = |bytes: &[u8]| {
            let bytes = bytes.try_into().map_err(|_| Refusal("no number".to_owned()))?;
            Ok(i64::from_le_bytes(bytes))
        };
        let sum = now.map_or(Ok(0), |now| parse(now.bytes))? + parse(by)?;
        Ok(Outcome::Put(ValueKind::I64, number(sum)))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        if operand.len() == 8 { Ok(()) } else { Err(Refusal("8 bytes are a number".to_owned())) }
    }
}

/// Records as key and value.
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy)]
struct Plain(&'static str);

fn decode(mut body: &[u8]) -> Result<Records, String> {
    let mut take = || -> Result<Option<Vec<u8>>, String> {
        let Some((length, rest)) = body.split_at_checked(2) else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (bytes, rest) = rest.split_at_checked(length).ok_or("a record ends early")?;
        body = rest;
        Ok(Some(bytes.to_vec()))
    };
    let mut records = Records::new();
    while let Some(key) = take()? {
        records.insert(key, take()?.ok_or("a key has no value")?);
    }
    Ok(records)
}

fn encode(key: &[u8], value: &[u8], body: &mut Vec<u8>) {
    for bytes in [key, value] {
        body.extend_from_slice(&u16::try_from(bytes.len()).expect("short").to_le_bytes());
        body.extend_from_slice(bytes);
    }
}

fn applied(input: &ApplyInput<'_, '_>) -> Result<(Records, Vec<Refused>), String> {
    let mut records = decode(input.body.unwrap_or_default())?;
    let mut refused = Vec::new();
    let mut updates: Vec<_> = input.updates.iter().enumerate().collect();
    updates.sort_by_key(|(_, update)| update.seq);
    for (index, update) in updates {
        if let Some(range) = KeyRange::of(update) {
            records.retain(|key, _| !range.contains(key));
            continue;
        }
        let modifier = input.modifiers.get(update.modifier).ok_or("an unknown modifier")?;
        let kind = ValueKind::Bytes;
        let now = records.get(update.key).map(|bytes| ValueRef { kind, bytes });
        match modifier.apply(update.key, now, update.operand) {
            Ok(Outcome::Put(_, value)) => drop(records.insert(update.key.to_vec(), value)),
            Ok(Outcome::Delete) => drop(records.remove(update.key)),
            Ok(Outcome::Keep) => {}
            Err(refusal) => refused.push(Refused { index, reason: refusal.into_reason() }),
        }
    }
    Ok((records, refused))
}

/// The number under a key once the updates are applied.
pub fn value_of(input: &ApplyInput<'_, '_>, key: &str) -> Option<i64> {
    let (records, _) = applied(input).expect("a sound body");
    let value = records.get(key.as_bytes())?.as_slice().try_into().expect("a number");
    Some(i64::from_le_bytes(value))
}

impl BlockFormat for Plain {
    fn name(&self) -> &'static str {
        self.0
    }

    fn routing(&self) -> Routing {
        if self.0 == "table" { Routing::Ordered } else { Routing::Exact }
    }

    fn configure(&self, _: &str) -> Result<Arc<dyn BlockFormat>, String> {
        Ok(Arc::new(*self))
    }

    fn keeps_key_order(&self) -> bool {
        self.routing() == Routing::Ordered
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let (records, refused) = applied(input).map_err(ApplyError::Corrupt)?;
        let mut pieces = vec![Piece { key: None, body: Vec::new(), records: 0 }];
        for (key, value) in &records {
            let bytes = key.len() + value.len() + 4;
            let last = pieces.last().expect("there is one");
            if last.records > 0 && last.body.len() + bytes > input.body_bytes_max {
                pieces.push(Piece { key: Some(key.clone()), body: Vec::new(), records: 0 });
            }
            let last = pieces.last_mut().expect("there is one");
            encode(key, value, &mut last.body);
            last.records += 1;
        }
        Ok(Applied { pieces, values: Vec::new(), refused })
    }

    fn for_each(
        &self,
        _: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        let kind = ValueKind::Bytes;
        let records = decode(body)?;
        records.iter().for_each(|(key, bytes)| visit(key, ValueRef { kind, bytes }));
        Ok(())
    }

    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        (left.len() + right.len() <= body_bytes_max / 2).then(|| [left, right].concat())
    }

    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        let records = decode(body)?;
        let is_inside = |key: &Vec<u8>| **key >= *low && high.is_none_or(|high| **key < *high);
        if self.keeps_key_order() && !records.keys().all(is_inside) {
            return Err("a key lies outside of its block".to_owned());
        }
        Ok(Checked { records: records.len() as u32, values: Vec::new() })
    }
}

/// The formats that every store needs, and three modifiers.
pub fn registry() -> Registry {
    let mut builtins = Modifiers::default();
    builtins.bind(PUT, Arc::new(Put));
    builtins.bind(DELETE, Arc::new(Delete));
    builtins.bind(ADD_I64, Arc::new(Add));
    let formats = ["table", "raw", "array"].map(|name| {
        let format: Arc<dyn BlockFormat> = Arc::new(Plain(name));
        (name.to_owned(), format)
    });
    let own = OwnFormats { quarantine: "table".to_owned(), references: "array:i64".to_owned() };
    Registry { own, formats: formats.into_iter().collect(), builtins, modifiers: Vec::new() }
}
