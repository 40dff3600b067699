//! Views: image and waiting updates belong together, and damage is always reported as an error.

use super::format;
use super::ground::{Ground, exact_space, space};
use crate::device::{DeviceError, Request, Simulated};
use crate::engine::directory::BlockId;
use crate::engine::registry::{DELETE, PUT};
use crate::engine::view::{View, ViewAnswer, ViewId, ViewPoll, Views, Wanted};
use crate::error::{Error, RequestError};

fn point(key: &str) -> Wanted {
    Wanted::Point(key.into())
}

/// The base and the views of it.
struct Looks {
    ground: Ground,
    views: Views,
    /// The blocks of 600 swept records.
    blocks: Vec<BlockId>,
}

impl Looks {
    fn new() -> Self {
        let mut ground = Ground::new();
        let blocks = ground.fill(600);
        Self { ground, views: Views::default(), blocks }
    }

    fn view(&mut self, wanted: Wanted) -> Result<ViewPoll, Error> {
        self.views.view(&mut self.ground.base, space(), wanted)
    }

    fn ready(&mut self, wanted: Wanted) -> View {
        match self.view(wanted).expect("a sound view") {
            ViewPoll::Ready(view) => view,
            ViewPoll::Pending(_) => panic!("the device is needed"),
        }
    }

    fn pending(&mut self, wanted: Wanted) -> ViewId {
        match self.view(wanted).expect("a sound view") {
            ViewPoll::Ready(view) => panic!("{view:?}"),
            ViewPoll::Pending(id) => id,
        }
    }

    /// Submits the reads of views; returns the requests, and the answers available.
    fn pump(&mut self) -> (Vec<Request>, Vec<(ViewId, ViewAnswer)>) {
        let mut answers = Vec::new();
        self.views.pump(&mut self.ground.base, &mut answers);
        (self.ground.requests(), answers)
    }

    fn end(&mut self, request: Request) {
        let completion = self.ground.end(request);
        self.views.read_done(&mut self.ground.base, completion);
    }

    /// Makes a pending view perform its read; returns its answer.
    fn answer(&mut self, id: ViewId) -> ViewAnswer {
        for _ in 0..10 {
            let (requests, answers) = self.pump();
            if let Some((_, answer)) = answers.into_iter().find(|(answered, _)| *answered == id) {
                return answer;
            }
            requests.into_iter().for_each(|request| self.end(request));
        }
        panic!("it is never answered");
    }
}

#[test]
fn a_blind_update_that_waits_answers_without_the_device() {
    let mut looks = Looks::new();
    looks.ground.put("k0100", 7);
    let view = looks.ready(point("k0100"));
    assert_eq!((view.updates().len(), view.image.is_none()), (1, true));
    looks.ground.accept(space(), DELETE, "k0101", &[]);
    assert_eq!(looks.ready(point("k0101")).updates().len(), 1);
    looks.pending(Wanted::Covering(b"k0100".to_vec()));
}

#[test]
fn an_update_that_depends_on_the_value_needs_the_image_and_has_it_from_the_cache_then() {
    let mut looks = Looks::new();
    looks.ground.add("k0100", 7);
    let id = looks.pending(point("k0100"));
    let view = looks.answer(id).expect("a sound block");
    assert!(view.image.is_some());
    assert_eq!(view.updates().len(), 1);
    looks.ground.add("k0100", 8);
    let view = looks.ready(point("k0100"));
    assert_eq!(view.updates().len(), 2, "what came since is in the next view");
    assert_eq!(looks.ground.base.metrics.query_reads_total.get(), 1);
}

#[test]
fn views_of_one_block_share_one_read() {
    let mut looks = Looks::new();
    let ids = [looks.pending(point("k0000")), looks.pending(point("k0001"))];
    let (mut requests, answers) = looks.pump();
    assert_eq!((requests.len(), answers.len()), (1, 0));
    looks.end(requests.pop().expect("one"));
    let (_, answers) = looks.pump();
    let mut answered: Vec<ViewId> = answers.iter().map(|(id, _)| *id).collect();
    answered.sort_unstable();
    assert_eq!(answered, ids);
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
}

#[test]
fn what_was_read_of_a_block_that_has_moved_is_not_used() {
    let mut looks = Looks::new();
    let block = looks.blocks[1];
    let key = looks.ground.key_of(block);
    let id = looks.pending(point(&key));
    let (mut requests, _) = looks.pump();
    let request = requests.pop().expect("one");
    let old = looks.ground.placement(block).extent.expect("it was swept");
    looks.ground.add(&key, 100);
    looks.ground.sweep(&[block]);
    looks.end(request);
    assert!(looks.ground.base.index.cache.get(old).is_none(), "another block may come there");
    let view = looks.answer(id).expect("a sound block");
    let placement = looks.ground.placement(block);
    assert_eq!((view.extent, view.image_seq), (placement.extent, placement.image_seq));
    assert_eq!(looks.ground.base.metrics.query_reads_total.get(), 2, "it read again");
}

/// Makes the block of this key cached.
fn cached(looks: &mut Looks, key: &str) -> BlockId {
    let id = looks.pending(point(key));
    looks.answer(id).expect("a sound block");
    looks.ground.block_of(key)
}

#[test]
fn a_cached_block_is_not_read_to_be_swept_and_stays_cached() {
    let mut looks = Looks::new();
    let block = cached(&mut looks, "k0100");
    let old = looks.ground.placement(block).extent.expect("it was swept");
    let read = looks.ground.base.metrics.sweep_read_bytes_total.get();
    looks.ground.add("k0100", 7);
    looks.ground.sweep(&[block]);
    assert_eq!(looks.ground.base.metrics.sweep_read_bytes_total.get(), read);
    let view = looks.ready(point("k0100"));
    let placement = looks.ground.placement(block);
    let extent = placement.extent.expect("it was swept");
    assert_ne!(extent, old);
    assert_eq!((view.extent, view.image_seq), (Some(extent), placement.image_seq));
    let found = view.image.as_ref().expect("it is cached").body();
    let bytes = looks.ground.devices.peek(extent.device, extent.offset, extent.bytes as usize);
    assert!(bytes.windows(found.len()).any(|written| written == found), "it is what was written");
    assert_eq!(looks.ground.base.index.cache.bytes(), extent.bytes as usize, "the old one is gone");
}

#[test]
fn only_what_was_cached_is_cached_when_a_run_has_moved_it() {
    let mut looks = Looks::new();
    let block = cached(&mut looks, "k0100");
    let blocks = looks.blocks.clone();
    for block in &blocks {
        let key = looks.ground.key_of(*block);
        looks.ground.add(&key, 1);
    }
    let read = looks.ground.base.metrics.sweep_read_bytes_total.get();
    looks.ground.sweep(&blocks);
    assert!(looks.ground.base.metrics.sweep_read_bytes_total.get() > read, "others are not cached");
    let cached = |block: &BlockId| {
        let extent = looks.ground.placement(*block).extent.expect("it was swept");
        looks.ground.base.index.cache.has(extent)
    };
    let cached: Vec<BlockId> = blocks.iter().copied().filter(cached).collect();
    assert_eq!(cached, [block]);
}

#[test]
fn all_pieces_of_a_cached_block_are_cached() {
    let mut looks = Looks::new();
    let block = cached(&mut looks, "k0100");
    let before = looks.ground.blocks().len();
    for number in 0..400 {
        looks.ground.put(&format!("k0100 {number:03}"), number);
    }
    looks.ground.sweep(&[block]);
    assert!(looks.ground.blocks().len() > before, "it was split");
    for number in 0..400 {
        looks.ready(point(&format!("k0100 {number:03}")));
    }
}

#[test]
fn damage_is_an_error_that_names_the_place_and_is_never_kept() {
    let mut looks = Looks::new();
    let extent = looks.ground.placement(looks.blocks[0]).extent.expect("it was swept");
    let sound = looks.ground.devices.peek(extent.device, extent.offset, 4096);
    let mut torn = sound.clone();
    torn[100] ^= 1;
    looks.ground.devices.poke(extent.device, extent.offset, &torn);
    let id = looks.pending(point("k0000"));
    let Err(Error::Damaged(damage)) = looks.answer(id) else { panic!("it is torn") };
    assert_eq!(damage.location, Some(extent.location()));
    assert_eq!(looks.ground.base.measured.damage().count(), 1);
    looks.ground.devices.poke(extent.device, extent.offset, &sound);
    let id = looks.pending(point("k0000"));
    assert!(looks.answer(id).is_ok(), "the next look reads again");
}

#[test]
fn a_read_that_fails_is_told_to_all_who_wait_for_it() {
    let mut looks = Looks::new();
    for key in ["k0000", "k0001"] {
        looks.pending(point(key));
    }
    let (mut requests, _) = looks.pump();
    let request = requests.pop().expect("one");
    let completion = looks.ground.fail(request, DeviceError::Failed { errno: 5 });
    looks.views.read_done(&mut looks.ground.base, completion);
    let (_, answers) = looks.pump();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|(_, answer)| matches!(answer, Err(Error::Damaged(_)))));
}

#[test]
fn who_waits_may_read_alone_and_who_has_gone_is_not_answered() {
    let mut looks = Looks::new();
    let id = looks.pending(point("k0000"));
    let read = looks.views.take_read(&mut looks.ground.base, id).expect("it is not being read yet");
    assert!(looks.views.take_read(&mut looks.ground.base, id).is_none(), "it is in flight");
    let checked = read.run(|request| request.end(Err(DeviceError::InvalidRange)));
    let answer = looks.views.complete_read(&mut looks.ground.base, id, checked);
    assert!(matches!(answer, Some(Err(Error::Damaged(_)))), "it could not be read");
    let id = looks.pending(point("k0000"));
    let (requests, _) = looks.pump();
    looks.views.forget(id);
    requests.into_iter().for_each(|request| looks.end(request));
    let (_, answers) = looks.pump();
    assert!(answers.is_empty());
    assert!(looks.ready(point("k0000")).image.is_some(), "what was read is in the cache");
}

#[test]
fn neighbours_are_found_by_position() {
    let mut looks = Looks::new();
    let keys: Vec<String> =
        looks.blocks.clone().iter().map(|block| looks.ground.key_of(*block)).collect();
    let mut low = |wanted: Wanted| {
        let view = match looks.view(wanted).expect("a sound view") {
            ViewPoll::Ready(view) => view,
            ViewPoll::Pending(id) => looks.answer(id).expect("a sound block"),
        };
        let text = |key: Box<[u8]>| String::from_utf8_lossy(&key).into_owned();
        (text(view.low), view.high.map(text))
    };
    let second = keys[1].as_bytes().to_vec();
    let last = keys.len() - 1;
    assert_eq!(low(Wanted::Below(Some(second.clone()))), (keys[0].clone(), Some(keys[1].clone())));
    assert_eq!(low(Wanted::Below(None)), (keys[last].clone(), None));
    assert_eq!(low(Wanted::AtOrAbove(second.clone())).0, keys[1]);
    assert_eq!(low(Wanted::AtOrAbove([&second[..], b"!"].concat())).0, keys[2]);
    assert_eq!(low(Wanted::Covering([&second[..], b"!"].concat())).0, keys[1]);
}

#[test]
fn a_range_has_what_may_concern_it() {
    let mut looks = Looks::new();
    let key = looks.ground.key_of(looks.blocks[1]);
    let keys = ["", "a", "b", "c"].map(|end| format!("{key}{end}"));
    for key in &keys {
        looks.ground.accept(space(), PUT, key, &format::number(1));
    }
    let [_, from, _, to] = keys.each_ref().map(|key| key.as_bytes().to_vec());
    let mut keys_of = |wanted: Wanted| {
        let view = match looks.view(wanted).expect("a sound view") {
            ViewPoll::Ready(view) => view,
            ViewPoll::Pending(id) => looks.answer(id).expect("a sound block"),
        };
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let all: Vec<String> = view.updates().iter().map(|update| text(update.key)).collect();
        (text(&view.low), all)
    };
    let whole = keys_of(Wanted::Covering(from.clone()));
    assert_eq!(whole, (key.clone(), keys.to_vec()));
    assert_eq!(keys_of(Wanted::Range { from, to }), (key, keys[1..3].to_vec()));
}

#[test]
fn a_space_that_is_not_there_has_no_views_and_a_block_that_is_not_there_an_empty_one() {
    let mut looks = Looks::new();
    let base = &mut looks.ground.base;
    let refused = looks.views.view(base, space().plus(90), point("k"));
    assert!(matches!(refused, Err(Error::Request(RequestError::NoTable(_)))), "{refused:?}");
    let exact = exact_space();
    let ViewPoll::Ready(view) = looks.views.view(base, exact, point("k")).expect("a sound view")
    else {
        panic!("nothing is there to read")
    };
    assert!(view.image.is_none() && view.updates().is_empty());
}

#[test]
fn updates_that_wait_for_their_record_are_seen_at_once() {
    let mut looks = Looks::new();
    let exact = exact_space();
    looks.ground.accept(exact, PUT, "k", &format::number(1));
    let mut updates = |wanted: Wanted| {
        let base = &mut looks.ground.base;
        let ViewPoll::Ready(view) = looks.views.view(base, exact, wanted).expect("a view") else {
            panic!("nothing is there to read")
        };
        view.updates().len()
    };
    assert_eq!(updates(point("k")), 1);
    assert_eq!(updates(point("l")), 0);
    assert_eq!(updates(Wanted::AtOrAbove(b"a".to_vec())), 1);
    assert_eq!(updates(Wanted::AtOrAbove(b"l".to_vec())), 0);
    assert_eq!(updates(Wanted::Below(None)), 1);
    assert_eq!(updates(Wanted::Covering(b"k".to_vec())), 1);
}

#[test]
fn a_view_is_outdated_by_changes_of_its_block_alone() {
    let mut looks = Looks::new();
    let keys = [1, 2].map(|block| looks.ground.key_of(looks.blocks[block]));
    let [first, second] = keys.clone().map(|key| {
        let id = looks.pending(Wanted::Covering(key.into_bytes()));
        looks.answer(id).expect("a sound block").version
    });
    let none = looks.views.view(&mut looks.ground.base, exact_space(), point("none"));
    let Ok(ViewPoll::Ready(View { version: none, .. })) = none else { panic!("nothing is there") };
    let is_current = |looks: &Looks, version| {
        looks.ground.base.index.directory().table.versions().is_current(version)
    };
    let are_current = |looks: &Looks| [first, second, none].map(|of| is_current(looks, of));
    assert_eq!(are_current(&looks), [true; 3]);
    looks.ground.add(&keys[0], 7);
    assert_eq!(are_current(&looks), [false, true, true]);
    looks.ground.sweep(&[looks.blocks[2]]);
    assert_eq!(are_current(&looks), [false, false, true], "its image has moved");
    looks.ground.accept(exact_space(), PUT, "none", &[0]);
    assert_eq!(are_current(&looks), [false; 3], "an update of a block that is not there yet");
}
