//! Reads through views, as the product does them, and their comparison with the oracle.

use std::collections::BTreeMap;

use upsweep::layers::engine::block_format::{ApplyInput, UpdateRef};
use upsweep::layers::engine::format::quarantine_format::decode_entry;
use upsweep::layers::engine::quarantine::QUARANTINE_SPACE;
use upsweep::layers::engine::registry::{DELETE_RANGE, Modifiers};
use upsweep::layers::engine::{View, ViewPoll, Wanted};
use upsweep::layers::log::Seq;
use upsweep::layers::runtime::scanning::Scan;
use upsweep::layers::structures::array::CellKind;
use upsweep::layers::structures::array::block::cell;
use upsweep::layers::structures::hash::ByHash;
use upsweep::layers::structures::table::{
    ByKey, Lookup, Order, PageRequest, get, get_block, page, sort,
};
use upsweep::{Error, SpaceId};

use crate::oracle::{Found, Layout, Update};
use crate::semantics::{Op, Value, kind};
use crate::world::{Asked, Verdict, World};

/// Attempts to read a large value that the sweep moves in the meantime.
const ATTEMPTS_MAX: u32 = 16;

/// How far ahead of a scan records are changed.
const RECORDS_AHEAD: usize = 100;

/// Average number of blocks after which a scan is replaced by one that begins there.
const BLOCKS_PER_NEW_SCAN: u64 = 200;

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// This value.
    Is(T),
    /// An error, because something on the devices is damaged; its text.
    Damaged(String),
}

/// The waiting updates of a view, in the form that readers need.
fn updates(view: &View) -> Vec<UpdateRef<'_>> {
    let mut updates = view.updates();
    updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
    updates
}

fn body(view: &View) -> Option<&[u8]> {
    view.image.as_ref().map(|image| image.body())
}

/// The result of a lookup.
enum Row {
    Has(Option<Value>),
    NeedsLarge,
}

fn row(lookup: Lookup<'_>) -> Row {
    match lookup {
        Lookup::Value { kind, bytes } => {
            Row::Has(Some(Value { kind: kind as u8, bytes: bytes.into_owned() }))
        }
        Lookup::Absent => Row::Has(None),
        Lookup::NeedLarge { .. } => Row::NeedsLarge,
    }
}

fn point(
    layout: Layout,
    view: &View,
    modifiers: &Modifiers,
    key: &[u8],
    large: Option<&View>,
) -> Result<Row, String> {
    let waiting = updates(view);
    let found = match layout {
        Layout::Raw => get_block(body(view), &waiting, modifiers, key),
        Layout::Array => {
            let index = key.try_into().map_or(0, u64::from_be_bytes);
            let cell = cell(CellKind::I64, body(view), modifiers, index, &waiting)?;
            let value = Value { kind: kind::I64, bytes: cell };
            return Ok(Row::Has(Some(value).filter(|value| value.bytes != [0; 8])));
        }
        Layout::Table => get::<ByKey>(body(view), &waiting, modifiers, key, large.and_then(body)),
        Layout::Hash => get::<ByHash>(body(view), &waiting, modifiers, key, large.and_then(body)),
    };
    found.map(row)
}

/// The rows of one block by key; `None` where a large value has to be read.
type Rows = BTreeMap<Vec<u8>, Option<Value>>;

impl World {
    /// Requests a view and waits for it.
    ///
    /// # Errors
    /// The view does not arrive.
    pub fn view(&mut self, space: SpaceId, wanted: Wanted) -> Verdict<Result<View, Error>> {
        let polled = self.core().view(space, wanted);
        self.wait_for_view(polled)
    }

    /// Waits for a view that was requested.
    fn wait_for_view(&mut self, polled: Result<ViewPoll, Error>) -> Verdict<Result<View, Error>> {
        if let Ok(ViewPoll::Pending(id)) = polled {
            self.read_by_caller(id);
        }
        self.settle()?;
        match polled {
            Err(error) => Ok(Err(error)),
            Ok(ViewPoll::Ready(view)) => Ok(Ok(view)),
            Ok(ViewPoll::Pending(id)) => {
                if self.asked.insert(id, Asked::Keep).is_some() {
                    return Err(format!("view number {} given twice", id.0));
                }
                self.turn_until("waiting for a view", |world| world.answers.contains_key(&id))?;
                Ok(self.answers.remove(&id).expect("just seen"))
            }
        }
    }

    /// A view, or the damage that prevents it.
    fn sound_view(&mut self, space: SpaceId, wanted: Wanted) -> Verdict<Answer<View>> {
        let view = self.view(space, wanted)?;
        self.sound(space, view)
    }

    fn sound(&self, space: SpaceId, view: Result<View, Error>) -> Verdict<Answer<View>> {
        match view {
            Ok(view) => Ok(Answer::Is(view)),
            Err(Error::Damaged(damage)) if self.damaged => Ok(Answer::Damaged(damage.to_string())),
            Err(error) => Err(format!("a view of table {space} failed: {error}")),
        }
    }

    /// The view of the next block of a scan, or the damage that prevents it. Between any two of its
    /// steps anything may happen: what was read ahead moves, and its space is written again.
    fn next_of_scan(
        &mut self,
        scan: &mut Scan,
        space: SpaceId,
        wanted: &Wanted,
    ) -> Verdict<Answer<View>> {
        self.turn_while_scanning()?;
        if let Some(view) = scan.take_gathered(wanted) {
            scan.note(wanted, &view);
            return Ok(Answer::Is(view));
        }
        while !scan.prepare(wanted) {
            scan.note_wait();
            self.turn_until("waiting for what a scan has requested", |world| {
                scan.take_arrived(world.core());
                !scan.is_awaiting(wanted)
            })?;
            self.turn_while_scanning()?;
        }
        self.turn_while_scanning()?;
        let polled = scan.view(self.core(), wanted.clone(), None);
        if let Ok(ViewPoll::Ready(view)) = &polled {
            scan.gather_more(self.core(), wanted, view, None);
        }
        let view = self.wait_for_view(polled)?;
        if let Ok(view) = &view {
            scan.note(wanted, view);
        }
        self.sound(space, view)
    }

    /// Now and then changes a record of a table that a scan gets to soon, and has to show changed.
    fn change_ahead(&mut self, space: SpaceId, wanted: &Wanted) -> Verdict {
        let is_wanted = self.scanning.percent(self.plan.turns_of_scans / 4);
        let is_loading = self.loading.as_ref().is_some_and(|load| load.space() == space);
        if !is_wanted || is_loading || self.waiting.is_some() || !self.tables().contains(&space) {
            return Ok(());
        }
        let Some(table) = self.oracle.state.get(&space) else { return Ok(()) };
        let distance = self.scanning.index(RECORDS_AHEAD);
        let found = match wanted {
            Wanted::Covering(at) => table.rows.range(at.clone()..).nth(distance),
            Wanted::Below(Some(at)) => table.rows.range(..at.clone()).nth_back(distance),
            _ => None,
        };
        let Some((key, _)) = found.filter(|_| table.layout == Layout::Table) else { return Ok(()) };
        let key = key.clone();
        let operand = [&[kind::BYTES][..], &self.scanning.word().to_le_bytes()].concat();
        self.modify(vec![Update { space, op: Op::Put, key, operand }], None)
    }

    fn turn_while_scanning(&mut self) -> Verdict {
        while self.scanning.percent(self.plan.turns_of_scans) {
            self.turn()?;
        }
        Ok(())
    }

    /// The value of a key, read to the end.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn read(
        &mut self,
        space: SpaceId,
        layout: Layout,
        key: &[u8],
    ) -> Verdict<Answer<Option<Value>>> {
        let mut reason = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let view = match self.sound_view(space, Wanted::Point(key.to_vec()))? {
                Answer::Is(view) => view,
                Answer::Damaged(reason) => return Ok(Answer::Damaged(reason)),
            };
            let modifiers = self.core().modifiers();
            if let Row::Has(value) = point(layout, &view, &modifiers, key, None)? {
                return Ok(Answer::Is(value));
            }
            let companion = self.core().space_record(space).map(|record| record.companion);
            let companion = companion.ok_or("the table of a view is gone")?;
            let large = match self.sound_view(companion, Wanted::Point(key.to_vec()))? {
                Answer::Is(view) => view,
                Answer::Damaged(reason) => return Ok(Answer::Damaged(reason)),
            };
            match point(layout, &view, &modifiers, key, Some(&large)) {
                Ok(Row::Has(value)) => {
                    self.tally.large += 1;
                    return Ok(Answer::Is(value));
                }
                Ok(Row::NeedsLarge) => "no image of the value".clone_into(&mut reason),
                Err(mismatch) => reason = mismatch,
            }
        }
        if self.damaged {
            Ok(Answer::Damaged(reason))
        } else {
            Err(format!("large value: {reason}"))
        }
    }

    /// Takes the answer to a view that was requested asynchronously.
    ///
    /// # Errors
    /// It differs from the oracle.
    pub fn compare_answer(
        &mut self,
        space: SpaceId,
        key: Vec<u8>,
        answer: Result<View, Error>,
    ) -> Verdict {
        let Some(layout) = self.oracle.state.get(&space).map(|table| table.layout) else {
            return Ok(());
        };
        let view = match answer {
            Ok(view) => view,
            Err(Error::Damaged(_)) if self.damaged => {
                self.tally.damaged += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("a view of table {space} failed: {error}")),
        };
        let modifiers = self.core().modifiers();
        match point(layout, &view, &modifiers, &key, None)? {
            Row::Has(value) => self.compare(space, &key, value.as_ref()),
            Row::NeedsLarge => {
                self.follow_up.push((space, key));
                Ok(())
            }
        }
    }

    /// Compares a value with the oracle's.
    ///
    /// # Errors
    /// They differ.
    pub fn compare(&mut self, space: SpaceId, key: &[u8], found: Option<&Value>) -> Verdict {
        self.tally.compared += 1;
        self.history.add(found.map_or(0, |value| 1 + value.bytes.len() as u64));
        if self.is_unsettled(space) {
            return Ok(());
        }
        let wanted = self.oracle.value(space, key);
        if wanted == found || (self.damaged && self.was_set_aside(key)?) {
            return Ok(());
        }
        let wanted = self.oracle.value(space, key);
        Err(format!(
            "table {space}, key {:02x?}: has {}, must have {}",
            &key[..key.len().min(16)],
            shown(found),
            shown(wanted)
        ))
    }

    /// Whether a range of the table is being removed, or was when the step began; the model has
    /// already removed it.
    fn is_unsettled(&self, space: SpaceId) -> bool {
        self.unsettled.iter().any(|(of, _)| *of == space)
    }

    /// Whether updates of the key are, or once were, in the quarantine because of damage, or the
    /// quarantine itself is damaged. The block answers with an error until a sweep can read
    /// everything that it needs: in the case of an unreadable large value, once the value has been
    /// replaced. From then on it answers, without the updates that are in the quarantine.
    fn was_set_aside(&mut self, key: &[u8]) -> Verdict<bool> {
        self.tally.set_aside += 1;
        if matches!(self.quarantine()?, Answer::Damaged(_)) {
            return Ok(true);
        }
        // A block shared by several tables is set aside in the name of one of them.
        let concerns = |entry: &(Vec<u8>, bool)| {
            let (from, is_range) = entry;
            from == key || (*is_range && from.as_slice() <= key)
        };
        Ok(self.set_aside.iter().any(concerns))
    }

    /// All rows of a table, block by block; `None` for a large value.
    fn rows(&mut self, space: SpaceId, layout: Layout, reverse: bool) -> Verdict<Answer<Rows>> {
        let mut scan = Scan::new(space, reverse);
        let rows = self.rows_of(&mut scan, space, layout, reverse);
        scan.end(self.core());
        rows
    }

    fn rows_of(
        &mut self,
        scan: &mut Scan,
        space: SpaceId,
        layout: Layout,
        reverse: bool,
    ) -> Verdict<Answer<Rows>> {
        let mut rows = Rows::new();
        let mut wanted = if reverse { Wanted::Below(None) } else { Wanted::Covering(Vec::new()) };
        let mut blocks = 0;
        loop {
            blocks += 1;
            if blocks > 100_000 {
                return Err(format!("a scan of table {space} does not end"));
            }
            if self.scanning.one_in(BLOCKS_PER_NEW_SCAN) {
                scan.end(self.core());
                *scan = Scan::new(space, reverse);
            }
            self.change_ahead(space, &wanted)?;
            let asked = wanted.clone();
            let view = match self.next_of_scan(scan, space, &wanted)? {
                Answer::Is(view) => view,
                Answer::Damaged(reason) => return Ok(Answer::Damaged(reason)),
            };
            let modifiers = self.core().modifiers();
            let cursor = cursor_of(&asked);
            match layout {
                Layout::Raw => {
                    let waiting = updates(&view);
                    let found = get_block(body(&view), &waiting, &modifiers, &view.low)?;
                    if let Row::Has(Some(value)) = row(found) {
                        rows.insert(view.low.to_vec(), Some(value));
                    }
                }
                Layout::Array => self.add_cells(&view, &modifiers, &mut rows)?,
                Layout::Table => add_page::<ByKey>(&view, &modifiers, cursor, &mut rows)?,
                Layout::Hash => add_page::<ByHash>(&view, &modifiers, cursor, &mut rows)?,
            }
            wanted = match (reverse, &view.high) {
                (true, _) if view.low.is_empty() => break,
                (true, _) => Wanted::Below(Some(view.low.to_vec())),
                (false, None) => break,
                (false, Some(high)) if **high <= *view.low => {
                    return Err("a block ends before it begins".to_owned());
                }
                (false, Some(high)) => Wanted::Covering(high.to_vec()),
            };
        }
        Ok(Answer::Is(rows))
    }

    /// The cells of a block of an array.
    fn add_cells(&self, view: &View, modifiers: &Modifiers, rows: &mut Rows) -> Verdict {
        let format = self.registry.formats["array"].configure("i64")?;
        let waiting = updates(view);
        let input = ApplyInput {
            body: body(view),
            updates: &waiting,
            modifiers,
            values: &[],
            body_bytes_max: usize::MAX,
            inline_value_bytes_max: usize::MAX,
            expired_us: 0,
        };
        let body = format.read(&input).map_err(|error| format!("{error:?}"))?;
        format.for_each(&view.low, &body, &mut |key, value| {
            let value = Value { kind: value.kind as u8, bytes: value.bytes.to_vec() };
            rows.insert(key.to_vec(), Some(value));
        })
    }

    /// Reads a whole table and compares it with the oracle.
    ///
    /// # Errors
    /// The first difference.
    pub fn scan(&mut self, space: SpaceId, reverse: bool) -> Verdict {
        let Some(table) = self.oracle.state.get(&space) else { return Ok(()) };
        let layout = table.layout;
        let reverse = reverse || matches!(layout, Layout::Raw | Layout::Array);
        let rows = match self.rows(space, layout, reverse)? {
            Answer::Is(rows) => rows,
            Answer::Damaged(_) => {
                self.tally.damaged += 1;
                return Ok(());
            }
        };
        let table = self.oracle.state.get(&space).ok_or("a table went away in a scan")?;
        let keys: Vec<Vec<u8>> = table.rows.keys().chain(rows.keys()).cloned().collect();
        for key in keys {
            match rows.get(&key) {
                Some(None) => self.compare_read(space, layout, &key)?,
                found => {
                    let found = found.cloned().flatten();
                    self.compare(space, &key, found.as_ref())
                        .map_err(|reason| format!("scan, reverse {reverse}: {reason}"))?;
                }
            }
        }
        Ok(())
    }

    /// Reads one key to the end and compares it with the oracle.
    ///
    /// # Errors
    /// They differ.
    pub fn compare_read(&mut self, space: SpaceId, layout: Layout, key: &[u8]) -> Verdict {
        match self.read(space, layout, key)? {
            Answer::Is(value) => self.compare(space, key, value.as_ref()),
            Answer::Damaged(_) => {
                self.tally.damaged += 1;
                Ok(())
            }
        }
    }

    /// Everything in the quarantine.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn quarantine(&mut self) -> Verdict<Answer<Vec<Found>>> {
        let rows = match self.rows(QUARANTINE_SPACE, Layout::Table, false)? {
            Answer::Is(rows) => rows,
            Answer::Damaged(reason) => return Ok(Answer::Damaged(reason)),
        };
        let mut found = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            let value = match value {
                Some(value) => value,
                None => match self.read(QUARANTINE_SPACE, Layout::Table, &key)? {
                    Answer::Is(value) => value.ok_or("a row of the quarantine is gone")?,
                    Answer::Damaged(reason) => return Ok(Answer::Damaged(reason)),
                },
            };
            let entry = decode_entry(&value.bytes).map_err(|error| error.to_string())?;
            let seq = key.first_chunk::<8>().ok_or("a short key in the quarantine")?;
            let is_range = entry.modifier == DELETE_RANGE;
            let named = self.modifier_ids.iter().find(|(_, id)| **id == entry.modifier);
            let op = named.map(|(op, _)| *op).or(is_range.then_some(Op::Delete));
            found.push(Found {
                is_range,
                seq: Seq::new(u64::from_be_bytes(*seq)),
                space: entry.space,
                op: op.ok_or("an unknown modifier in the quarantine")?,
                key: entry.key,
                operand: entry.operand,
                damaged: entry.reason.contains("damaged"),
            });
        }
        let set_aside = found.iter().filter(|entry| entry.damaged);
        self.set_aside.extend(set_aside.map(|entry| (entry.key.clone(), entry.is_range)));
        Ok(Answer::Is(found))
    }
}

/// The start, the end, and whether in reverse.
type Cursor<'a> = (&'a [u8], Option<&'a [u8]>, bool);

/// The part of the answer to a view that has not been read yet: a block may have grown since.
fn cursor_of(asked: &Wanted) -> Cursor<'_> {
    match asked {
        Wanted::Covering(key) | Wanted::Point(key) | Wanted::AtOrAbove(key) => (key, None, false),
        Wanted::Range { from, to } => (from, Some(to), false),
        Wanted::Below(key) => (&[], key.as_deref(), true),
    }
}

fn add_page<O: Order>(
    view: &View,
    modifiers: &Modifiers,
    cursor: Cursor<'_>,
    rows: &mut Rows,
) -> Verdict {
    let mut waiting = updates(view);
    sort::<O>(&mut waiting);
    let (from, to, reverse) = cursor;
    let (records_max, bytes_max) = (usize::MAX, usize::MAX);
    let request = PageRequest { from, to, reverse, records_max, bytes_max };
    let page = page::<O>(body(view), &waiting, modifiers, &request)?;
    if !page.is_complete {
        return Err("a page without limits is not complete".to_owned());
    }
    for record in page.records {
        let position = O::position(record.key);
        let inside =
            *position >= *view.low && view.high.as_ref().is_none_or(|high| *position < **high);
        if !inside {
            return Err("a row outside of its block".to_owned());
        }
        let value = match row(record.value) {
            Row::Has(None) => continue,
            Row::Has(value) => value,
            Row::NeedsLarge => None,
        };
        if rows.insert(record.key.to_vec(), value).is_some() {
            return Err("a row in two blocks".to_owned());
        }
    }
    Ok(())
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value { kind, bytes }) => {
            format!("kind {kind}, {} bytes {:02x?}", bytes.len(), &bytes[..bytes.len().min(12)])
        }
    }
}
