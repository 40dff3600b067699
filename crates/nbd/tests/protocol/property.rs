//! Arbitrary conversations, in arbitrary pieces, answered in arbitrary order: valid and nearly
//! valid ones against the model, and damaged ones for panics, bounds, and independence of the
//! pieces.

use proptest::prelude::*;
use upsweep_nbd::{Config, TlsMode};

use crate::client::{self, Asked, Form, Wire, option, request};
use crate::model::{Model, NAMES, Outcome, QUERIES, Step};
use crate::owner::{BLOCK, Owner, SIZE, exports};

fn config() -> Config {
    Config {
        tls: TlsMode::Optional,
        extended_headers: true,
        payload_bytes_max: 1 << 16,
        requests_in_flight_max: 3,
        bytes_in_flight_max: 100_000,
        extents_max: 1024,
        ..Config::default()
    }
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let queries = || prop::collection::vec(prop::sample::select(&QUERIES[..]), 0..4);
    let unknown = prop::sample::select(vec![0_u32, 4, 12, 999, u32::MAX]);
    let step = prop_oneof![
        1 => (0..3_usize).prop_map(|data| Step::List { data }),
        1 => Just(Step::StartTls),
        3 => Just(Step::Structured),
        2 => Just(Step::Extended),
        3 => (names(), prop::collection::vec(0..5_u16, 0..4))
            .prop_map(|(name, items)| Step::Info { go: false, name, items }),
        6 => (any::<bool>(), names(), queries())
            .prop_map(|(set, name, queries)| Step::Contexts { set, name, queries }),
        1 => (unknown, 0..40_usize).prop_map(|(option, data)| Step::Unknown { option, data }),
        1 => prop::sample::select(vec![3_u32, 6, 7, 8, 9, 10, 11])
            .prop_map(|option| Step::Long { option }),
    ];
    prop::collection::vec(step, 0..12)
}

/// How a conversation ends: with `GO`, which succeeds or not.
fn go() -> impl Strategy<Value = Step> {
    let name = prop_oneof![4 => Just("disk"), 1 => names()];
    name.prop_map(|name| Step::Info { go: true, name, items: vec![3] })
}

/// A request but for its form; the filter is of the number of ids.
#[derive(Clone, Debug)]
struct Draft {
    kind: u16,
    flags: u16,
    offset: u64,
    length: u64,
    filter: Option<Vec<u32>>,
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let kind = prop_oneof![12 => 0..2_u16, 9 => 3..8_u16, 1 => 8..100_u16];
    let one = prop::sample::select(vec![1_u16, 2, 4, 8, 16, 17, 32]);
    let flags = prop_oneof![6 => Just(0), 3 => one, 1 => any::<u16>()];
    let place = || {
        prop_oneof![
            4 => 0..SIZE as u64,
            4 => (0..128_u64).prop_map(|block| block * BLOCK as u64),
            1 => Just(SIZE as u64),
            1 => any::<u64>(),
        ]
    };
    let length =
        prop_oneof![6 => 0..3000_u64, 4 => (0..9_u64).prop_map(|n| n * BLOCK as u64), 1 => place()];
    let filter = prop::option::weighted(0.3, prop::collection::vec(0..6_u32, 0..4));
    let draft = (kind, flags, place(), length, filter);
    let draft = draft.prop_map(|(kind, flags, offset, length, filter)| {
        let (offset, length) = if kind == 3 && flags & 2 == 0 { (0, 0) } else { (offset, length) };
        Draft { kind, flags, offset, length, filter }
    });
    prop::collection::vec(draft, 0..25)
}

/// The request in its form, such that a payload is there where the header says so.
fn finish(form: Form, cookie: u64, draft: &Draft) -> Asked {
    let Draft { kind, mut flags, offset, mut length, ref filter } = *draft;
    let mut payload = Vec::new();
    if form == Form::Extended {
        flags |= if kind == 1 && flags & 2 == 0 { 32 } else { 0 };
        if let (7, Some(ids)) = (kind, filter) {
            flags |= 32;
            payload = ids.iter().fold(Wire::default().n64(length), |wire, id| wire.n32(*id)).0;
            length = payload.len() as u64;
        }
    } else {
        length = u64::from(length as u32);
    }
    let has_payload = if form == Form::Extended { flags & 32 != 0 } else { kind == 1 };
    if has_payload && payload.is_empty() {
        length %= 1 << 16;
        payload = (0..length).map(|at| (at * 31 + cookie) as u8).collect();
    }
    Asked { flags, kind, cookie, offset, length, payload }
}

/// A source of choices; when it is used up, the same again.
fn chooser(choices: &[u16]) -> impl FnMut(usize) -> usize {
    let mut choices = choices.iter().copied().cycle();
    move |below| choices.next().map_or(0, |choice| usize::from(choice) % below)
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(prop_oneof![2 => 0..4_u16, 1 => any::<u16>()], 0..200)
}

fn bytes_of(step: &Step) -> Vec<u8> {
    match step {
        Step::List { data } => option(3, &vec![0; *data]),
        Step::StartTls => option(5, b""),
        Step::Structured => option(8, b""),
        Step::Extended => option(11, b""),
        Step::Info { go, name, items } => {
            option(if *go { 7 } else { 6 }, &client::info(name, items))
        }
        Step::Contexts { set, name, queries } => {
            option(if *set { 10 } else { 9 }, &client::queries(name, queries))
        }
        Step::Unknown { option: number, data } => option(*number, &vec![0; *data]),
        Step::Long { option: number } => option(*number, &vec![0; 70_000]),
    }
}

/// The conversation in parts, the next of which is sent only after the last: cut behind STARTTLS.
fn parts(steps: &[Step]) -> Vec<Vec<u8>> {
    let mut parts = vec![client::client_flags(3)];
    for step in steps {
        let last = parts.last_mut().expect("the flags");
        last.extend_from_slice(&bytes_of(step));
        if matches!(step, Step::StartTls) {
            parts.push(Vec::new());
        }
    }
    parts
}

/// Runs a conversation on a session and the model; returns the kinds of outcomes.
fn compare(steps: &[Step], drafts: &[Draft], choices: &[u16]) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    let expected: Vec<_> = steps.iter().flat_map(|step| model.step(step)).collect();
    let mut parts = parts(steps);
    let asked: Vec<Asked> =
        (0..).zip(drafts).map(|(at, draft)| finish(model.form, at, draft)).collect();
    let form = model.form;
    let mut outcomes = Vec::new();
    if model.frozen.is_some() {
        let last = parts.last_mut().expect("the flags");
        asked.iter().for_each(|asked| last.extend_from_slice(&request(form, asked)));
        outcomes = asked.iter().map(|asked| model.request(asked)).collect();
    }
    let exports = exports();
    let mut owner = Owner::new(config(), &exports);
    owner.run(&parts, &mut chooser(choices));
    let mut sent = &owner.sent[..];
    client::greeting(&mut sent).map_err(TestCaseError::fail)?;
    let found = client::option_replies(&mut sent).map_err(TestCaseError::fail)?;
    prop_assert_eq!(found, expected);
    prop_assert_eq!(owner.session.ended(), None);
    prop_assert_eq!(owner.opened.is_some(), model.frozen.is_some());
    let replies = client::replies(form, &asked, sent).map_err(TestCaseError::fail)?;
    prop_assert_eq!(replies.len(), outcomes.len());
    for (asked, outcome) in asked.iter().zip(outcomes) {
        let reply = &replies[&asked.cookie];
        let found = match reply.error {
            Some((code, at)) => Outcome::Error(code, at),
            None if asked.kind == 0 => Outcome::Data(reply.data.clone()),
            None if asked.kind == 7 => Outcome::Status(reply.status.clone()),
            None => Outcome::Done,
        };
        let Some(outcome) = outcome else { panic!("no DISC among the requests") };
        prop_assert!(found == outcome, "{asked:?}\n{found:?}\n{outcome:?}");
    }
    Ok(())
}

/// A change of the bytes of a conversation.
#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let damage = prop_oneof![
        3 => (any::<usize>(), 1..=u8::MAX).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        1 => (any::<usize>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => (any::<usize>(), 1..60_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
    ];
    prop::collection::vec(damage, 0..4)
}

fn damage(bytes: &mut Vec<u8>, damages: &[Damage]) {
    for damage in damages {
        let length = bytes.len().max(1);
        match damage {
            Damage::Flip(at, bits) if !bytes.is_empty() => bytes[at % length] ^= bits,
            Damage::Flip(..) => {}
            Damage::Insert(at, inserted) => {
                let at = at % length;
                bytes.splice(at..at, inserted.iter().copied());
            }
            Damage::Remove(at, count) => {
                let at = at % length;
                bytes.drain(at..(at + count).min(bytes.len()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn conversations_are_as_the_model_says(
        steps in steps(),
        go in go(),
        drafts in drafts(),
        choices in choices(),
    ) {
        compare(&[&steps[..], &[go]].concat(), &drafts, &choices)?;
    }

    #[test]
    fn damaged_conversations_neither_panic_nor_depend_on_the_pieces(
        steps in steps(),
        drafts in drafts(),
        damages in damages(),
        choices in choices(),
    ) {
        let go = Step::Info { go: true, name: "disk", items: Vec::new() };
        let steps = [&steps[..], &[go]].concat();
        let mut model = Model::new();
        steps.iter().for_each(|step| drop(model.step(step)));
        let mut parts = parts(&steps);
        let last = parts.last_mut().expect("the flags");
        for (cookie, draft) in (0..).zip(&drafts) {
            last.extend_from_slice(&request(model.form, &finish(model.form, cookie, draft)));
        }
        // Damage anywhere, but to bytes that are in one part: where TLS begins is the client's to
        // say.
        let at = damages.len() % parts.len();
        damage(&mut parts[at], &damages);
        let exports = exports();
        let mut plain = Owner::new(config(), &exports);
        let end = plain.run_plainly(&parts);
        let mut pieces = Owner::new(config(), &exports);
        pieces.run(&parts, &mut chooser(&choices));
        prop_assert_eq!(pieces.session.ended(), end);
        prop_assert_eq!(&pieces.opened, &plain.opened);
        prop_assert_eq!(pieces.sent.len(), plain.sent.len());
        prop_assert!(pieces.disk == plain.disk);
    }

    #[test]
    fn any_bytes_are_taken_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        options in any::<bool>(),
    ) {
        let first = if options {
            vec![client::client_flags(3), option(11, b"")]
        } else {
            super::transmission::negotiate(Form::Structured)
        };
        let exports = exports();
        let mut owner = Owner::new(config(), &exports);
        owner.run_plainly(&[first, vec![bytes]].concat());
    }
}
