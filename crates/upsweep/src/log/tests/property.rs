//! Random histories with crashes, and random damage.

use proptest::prelude::*;

use super::world::{World, config};
use crate::log::{AppendError, LogConfig, LogMode, Motion, Quota, Seq, Urgency};

#[derive(Clone, Debug)]
enum Step {
    Append {
        stream: u32,
        bytes: usize,
        fill: u8,
        urgent: bool,
        internal: bool,
    },
    Dispatch,
    /// The train starts or stops, if the log has one.
    Train(bool),
    Complete(usize),
    Wait(u64),
    Release(u8),
    /// A step of extending a ring by this many segments.
    Grow(u64),
    /// The fate of each write in flight, by turns: lost, whole, or torn by a sector mask.
    Crash {
        fates: Vec<u64>,
        ahead: u8,
        /// A device that was being extended has been.
        extends: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![6 => 0..200usize, 3 => 0..6000usize, 1 => 0..33_000usize];
    let append = (5..8u32, bytes, 0..3u8, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(stream, bytes, fill, urgent, internal)| Step::Append {
            stream,
            bytes,
            fill,
            urgent,
            internal,
        },
    );
    let fate = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    let step = prop_oneof![
        20 => append,
        8 => Just(Step::Dispatch),
        2 => prop::bool::weighted(0.8).prop_map(Step::Train),
        8 => any::<usize>().prop_map(Step::Complete),
        2 => (0..300u64).prop_map(Step::Wait),
        4 => any::<u8>().prop_map(Step::Release),
        8 => (1..4u64).prop_map(Step::Grow),
        2 => (prop::collection::vec(fate, 1..6), any::<u8>(), any::<bool>())
            .prop_map(|(fates, ahead, extends)| Step::Crash { fates, ahead, extends }),
    ];
    prop::collection::vec(step, 1..150)
}

fn configs() -> impl Strategy<Value = LogConfig> {
    let page_bytes = prop_oneof![Just(512), Just(1024), Just(4096)];
    let modes = [LogMode::Idle, LogMode::Full, LogMode::Sentinel, LogMode::Predict];
    let mode = prop::sample::select(modes.to_vec());
    // Short turns: the head may be anywhere after each wait. Tracks from a page to a segment.
    let motion = (1..400_000u64, 1..40_000u64);
    let motion = motion.prop_map(|(turn_ns, turn_bytes)| Some(Motion { turn_ns, turn_bytes }));
    let kept_bytes = prop_oneof![Just(0), 0..100_000usize, Just(usize::MAX)];
    let drives = (mode, motion);
    (1..4u16, 4..9u64, 2..9u32, 1..4u8, 1..3u32, page_bytes, drives, kept_bytes).prop_map(
        |(devices, segments, pages, depth, batch, page_bytes, (mode, motion), kept_bytes)| {
            let mut config = config(devices, segments.max(u64::from(depth) + 2), pages, batch);
            config.depth = depth;
            config.page_bytes = page_bytes;
            config.mode = mode;
            config.motion = motion;
            config.kept_bytes = kept_bytes;
            config
        },
    )
}

fn run(world: &mut World, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Append { stream, bytes, fill, urgent, internal } => {
                let urgency = if *urgent { Urgency::Now } else { Urgency::Relaxed };
                let quota = if *internal { Quota::Internal } else { Quota::User };
                let payload = vec![*fill; *bytes];
                match world.append(*stream, &payload, urgency, quota) {
                    Ok(_) | Err(AppendError::Full | AppendError::Busy) => {}
                    Err(AppendError::TooLong { limit }) => assert!(payload.len() > limit),
                    Err(AppendError::Failed) => panic!("no write has failed"),
                }
            }
            Step::Dispatch => world.dispatch(),
            Step::Train(true) => world.log.start_train(),
            Step::Train(false) => world.log.stop_train(),
            Step::Complete(index) if !world.flights.is_empty() => {
                world.complete(index % world.flights.len());
            }
            Step::Complete(_) => {}
            Step::Wait(us) => world.now_us += us,
            Step::Release(part) => {
                let durable = world.log.durable();
                world.release(Seq::new(1 + durable.get() * u64::from(*part) / 255));
            }
            Step::Grow(more) => world.grow(*more),
            Step::Crash { fates, ahead, extends } => {
                if *extends {
                    world.extend();
                }
                crash(world, fates, *ahead);
            }
        }
    }
}

fn crash(world: &mut World, fates: &[u64], ahead: u8) {
    for (request, fate) in world.flights.drain(..).zip(fates.iter().cycle()) {
        world.bank.tear(&request, |sector| fate >> (sector % 64) & 1 == 1);
    }
    let newer = world.log.durable().next().since(world.released);
    world.reopen(world.released.plus(newer * u64::from(ahead) / 255));
}

/// Damage anywhere but in the youngest batch: the whole answer, or an error.
fn damage(world: &mut World, device: usize, at: usize, bit: u8) {
    let before = world.bank.media[device].clone();
    let page = world.config.page_bytes as usize;
    if bit == 7 {
        // A write that the device confirmed and lost.
        world.bank.media[device][at / page * page..][..page].fill(0);
    } else {
        world.bank.media[device][at] ^= 1 << bit;
    }
    let from = world.released;
    let found = world.replay(from);
    world.bank.media[device] = before;
    if let Ok(found) = found {
        let wanted = &world.model[from.since(Seq::FIRST) as usize..];
        let (some, all) = (found.len(), wanted.len());
        assert!(found == wanted, "{some} of {all} from {from}: {device} {at} {bit}");
    }
}

proptest! {

    #[test]
    fn recovers_a_prefix_after_any_crashes(config in configs(), steps in steps()) {
        let mut world = World::new(config);
        run(&mut world, &steps);
        crash(&mut world, &[0], 0);
        crash(&mut world, &[0], 100);
        world.drain();
        world.reopen(world.log.last().next());
    }

    #[test]
    fn damage_to_attested_batches_is_never_silent(
        config in configs(),
        steps in steps(),
        places in prop::collection::vec((any::<usize>(), any::<usize>(), 0..8u8), 40),
    ) {
        let mut world = World::new(config);
        run(&mut world, &steps);
        world.drain();
        let released = world.log.last().get() + 1;
        world.release(Seq::new(released.max(4) - 3));
        // The last batch attests all before, and is not touched.
        world.append(5, b"x", Urgency::Now, Quota::Internal).expect("there is room");
        world.dispatch();
        let crate::device::Operation::Write { offset, ref buffer, .. } =
            world.flights[0].operation else { panic!("a write") };
        let youngest = offset as usize..offset as usize + buffer.len();
        let youngest_device = usize::from(world.flights[0].device.0);
        world.drain();
        for (device, at, bit) in places {
            let device = device % world.bank.media.len();
            let at = at % world.bank.media[device].len();
            // Headers are the critical part: every other flip hits one.
            let page = world.config.page_bytes as usize;
            let at = if bit % 2 == 0 { at } else { at / page * page + at % 128 };
            if device != youngest_device || !youngest.contains(&at) {
                damage(&mut world, device, at, bit);
            }
        }
    }
}
