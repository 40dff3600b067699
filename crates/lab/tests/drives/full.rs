//! Full detail on every drive: streams, synchronous writes, and what must hold for any commands.

use upsweep::layers::device::drive::{
    Command, Detail, Drive, DriveDescription, Operation, ReadAhead, Scheduler, Served, WriteBack,
};

use super::{drive, ids};

fn through(drive: &mut DriveDescription) {
    drive.cache.write_back = WriteBack::None;
}

/// Serves commands one after another, each when the one before it has ended.
fn one_by_one(drive: &mut Drive, commands: impl Iterator<Item = Command>) -> Vec<Served> {
    let mut arrival_ms = 0.0;
    let serve = |command| {
        drive.offer(0, Command { arrival_ms, ..command });
        let (_, served) = drive.serve_next().expect("a command waits");
        arrival_ms = served.completion_ms;
        served
    };
    commands.map(serve).collect()
}

fn sequence(operation: Operation, sectors: u64, count: u64) -> impl Iterator<Item = Command> {
    let command =
        move |number| Command { arrival_ms: 0.0, operation, lbn: number * sectors, sectors };
    (0..count).map(command)
}

#[test]
fn reads_in_sequence_stream_at_the_rate_of_the_media() {
    for id in ids() {
        let mut drive = drive(&id);
        // The measured drives were measured on a slow host.
        drive.bus.sector_ms = drive.bus.sector_ms.min(0.005);
        drive.host.completion_interrupt_ms = 0.0;
        let ends =
            one_by_one(&mut Drive::new(&drive, Detail::Full), sequence(Operation::Read, 128, 400));
        let mut whole = Drive::new(&drive, Detail::Mechanics);
        whole.without_zero_latency();
        let commands = sequence(Operation::Read, 128 * 200, 2);
        let whole: Vec<_> = one_by_one(&mut whole, commands);
        // The first track and what follows it may come slowly, until reads are known to be in
        // sequence.
        let taken_ms = ends[399].completion_ms - ends[199].completion_ms;
        let whole_ms = whole[1].completion_ms - whole[1].start_ms;
        let ratio = taken_ms / whole_ms;
        assert!((0.98..=1.02).contains(&ratio), "{id}: {taken_ms} ms, as one read {whole_ms} ms");
    }
}

#[test]
fn reading_ahead_costs_nothing_while_commands_wait() {
    let numbers = &mut Numbers(3);
    for id in ids() {
        let mut drive = drive(&id);
        let read = |_| {
            let lbn = numbers.below(drive.capacity.lbns - 8);
            Command { arrival_ms: 0.0, operation: Operation::Read, lbn, sectors: 8 }
        };
        let commands: Vec<_> = (0..300).map(read).collect();
        let serve = |drive: &DriveDescription| {
            let mut simulated = Drive::new(drive, Detail::Full);
            simulated.set_queue(300, Scheduler::Fcfs);
            in_advance(simulated, &commands)
        };
        let with = serve(&drive);
        drive.cache.read_ahead = ReadAhead::None;
        assert_eq!(with, serve(&drive), "{id}");
    }
}

#[test]
fn the_head_leaves_right_after_the_last_sector_that_it_needs() {
    let numbers = &mut Numbers(4);
    for id in ids() {
        let mut drive = drive(&id);
        drive.bus.sector_ms = 0.0001;
        drive.host.completion_interrupt_ms = 0.0;
        drive.cache.read_ahead = ReadAhead::UntilSegmentFull;
        for _ in 0..100 {
            let mut simulated = Drive::new(&drive, Detail::Full);
            simulated.set_queue(3, Scheduler::Fcfs);
            let [lbn, far] = [(); 2].map(|()| numbers.below(drive.capacity.lbns - 300));
            let offer = |simulated: &mut Drive, arrival_ms, lbn, sectors| {
                let operation = Operation::Read;
                simulated.offer(0, Command { arrival_ms, operation, lbn, sectors });
            };
            offer(&mut simulated, 0.0, lbn, 8);
            let (_, first) = simulated.serve_next().expect("it waits");
            // One that the head goes on for, and another.
            offer(&mut simulated, first.completion_ms, lbn + 8, 128);
            offer(&mut simulated, first.completion_ms, far, 8);
            let (_, second) = simulated.serve_next().expect("it waits");
            let (_, third) = simulated.serve_next().expect("it waits");
            let taken_ms = third.seek_ms + third.rotation_ms + third.transfer_ms;
            let begin_ms = third.completion_ms - taken_ms;
            let end_ms = second.completion_ms - drive.bus.sector_ms;
            assert!((begin_ms - end_ms).abs() < 1e-4, "{id}: {end_ms}, and then {begin_ms}");
        }
    }
}

#[test]
fn small_synchronous_writes_lose_a_turn_each() {
    for id in ids() {
        let mut drive = drive(&id);
        through(&mut drive);
        let turn_ms = 60_000.0 / drive.mechanics.rpm;
        let ends =
            one_by_one(&mut Drive::new(&drive, Detail::Full), sequence(Operation::Write, 8, 20));
        for pair in ends.windows(2) {
            let turns = (pair[1].completion_ms - pair[0].completion_ms) / turn_ms;
            assert!((0.99..1.2).contains(&turns), "{id}: {turns} turns");
        }
    }
}

#[test]
fn a_queue_of_two_keeps_the_media_of_the_caviar_black_writing() {
    let mut drive = drive("caviar-black-1tb");
    through(&mut drive);
    let rate = |kib: u64, drive: &DriveDescription| {
        let mut simulated = Drive::new(drive, Detail::Full);
        let mut commands = sequence(Operation::Write, 2 * kib, 2000);
        for command in commands.by_ref().take(2) {
            simulated.offer(0, command);
        }
        let mut end_ms: f64 = 0.0;
        while let Some((_, served)) = simulated.serve_next() {
            end_ms = end_ms.max(served.completion_ms);
            if let Some(command) = commands.next() {
                simulated.offer(0, Command { arrival_ms: served.completion_ms, ..command });
            }
        }
        2000.0 * kib as f64 * 1.024 / end_ms
    };
    // Of 10^6 bytes a second: a batch that is submitted while the one before it is written loses no
    // turn, a smaller one does.
    assert!(rate(32, &drive) > 100.0, "{}", rate(32, &drive));
    assert!(rate(16, &drive) < 10.0, "{}", rate(16, &drive));
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Commands in bursts and pauses, some in sequence, some on the same sectors.
fn commands(numbers: &mut Numbers, lbns: u64, count: usize) -> Vec<Command> {
    let (mut arrival_ms, mut next) = (0.0, 0);
    let mut commands = Vec::new();
    for _ in 0..count {
        arrival_ms += match numbers.below(8) {
            0 => 30.0,
            1..4 => 0.0,
            _ => numbers.below(4000) as f64 / 1000.0,
        };
        let operation = match numbers.below(16) {
            0 => Operation::Flush,
            1..3 => Operation::StableWrite,
            3..9 => Operation::Write,
            _ => Operation::Read,
        };
        let sectors = [1, 8, 8, 64, 300][numbers.below(5) as usize];
        let lbn = match numbers.below(4) {
            0 => numbers.below(lbns - sectors),
            1 => numbers.below(3000),
            _ => next,
        };
        next = if lbn + sectors + 300 < lbns { lbn + sectors } else { 0 };
        commands.push(Command { arrival_ms, operation, lbn, sectors });
    }
    commands
}

/// A drive as described or changed a little, with a queue.
fn variant(numbers: &mut Numbers, id: &str) -> (DriveDescription, usize, Scheduler) {
    let mut drive = drive(id);
    let cache = &mut drive.cache;
    match numbers.below(4) {
        0 => cache.write_back = WriteBack::None,
        1 => cache.write_back = WriteBack::Any,
        2 => cache.write_back = WriteBack::AppendingMixed,
        _ => cache.enabled = false,
    }
    cache.read_hits_on_write_data = numbers.below(2) == 0;
    cache.write_hit_stops_read_ahead = numbers.below(2) == 0;
    cache.read_ahead_on_idle_hit = numbers.below(2) == 0;
    cache.write_segments_max = cache.write_segments_max.min(numbers.below(3) as u32 + 1);
    drive.queue.smallest_mergeable_write_sectors = numbers.below(2) as u32 * 8;
    drive.bus.hold_whole_read = numbers.below(2) == 0;
    let schedulers = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::Sptf, Scheduler::CLook];
    (drive, [1, 2, 5, 32][numbers.below(4) as usize], schedulers[numbers.below(4) as usize])
}

/// Every command in advance.
fn in_advance(mut drive: Drive, commands: &[Command]) -> Vec<(u64, Served)> {
    (0..).zip(commands).for_each(|(number, command)| drive.offer(number, *command));
    std::iter::from_fn(|| drive.serve_next()).collect()
}

/// Every command when it arrives, with the drive asked at other times as well.
fn as_time_passes(
    mut drive: Drive,
    commands: &[Command],
    numbers: &mut Numbers,
) -> Vec<(u64, Served)> {
    let (mut all, mut now_ms, mut offered) = (Vec::new(), 0.0, 0);
    loop {
        while let Some(command) =
            commands.get(offered).filter(|command| command.arrival_ms <= now_ms)
        {
            drive.offer(offered as u64, *command);
            offered += 1;
        }
        while let Some(served) = drive.serve_until(now_ms) {
            all.push(served);
        }
        let next_ms = drive.next_ms();
        assert!(
            next_ms.is_none_or(|next_ms| next_ms > now_ms),
            "{next_ms:?} has passed at {now_ms}"
        );
        let arrival_ms = commands.get(offered).map(|command| command.arrival_ms);
        let Some(next_ms) = next_ms.into_iter().chain(arrival_ms).min_by(f64::total_cmp) else {
            return all;
        };
        // Half of the time it is asked before anything happens.
        let part = [1.0, 0.5][numbers.below(2) as usize];
        let asked_ms = now_ms + (next_ms - now_ms) * part;
        now_ms = if asked_ms > now_ms { asked_ms } else { next_ms };
    }
}

#[test]
fn what_happens_does_not_depend_on_when_the_drive_is_asked() {
    let numbers = &mut Numbers(1);
    for round in 0..60 {
        for id in ids() {
            let (description, depth, scheduler) = variant(numbers, &id);
            for detail in [Detail::Overheads, Detail::Full] {
                let mut drive = Drive::new(&description, detail);
                drive.set_queue(depth, scheduler);
                let commands = commands(numbers, drive.lbns(), 120);
                let expected = in_advance(drive.clone(), &commands);
                assert_eq!(expected.len(), commands.len(), "{id}, round {round}");
                for (number, served) in &expected {
                    let Command { arrival_ms, .. } = commands[*number as usize];
                    let Served { start_ms, media_end_ms, completion_ms, .. } = *served;
                    assert!(arrival_ms <= start_ms && start_ms <= media_end_ms, "{served:?}");
                    assert!(media_end_ms <= completion_ms, "{served:?}");
                    let least_ms = [served.seek_ms, served.rotation_ms, served.transfer_ms];
                    assert!(least_ms.iter().all(|part_ms| *part_ms > -1e-9), "{served:?}");
                }
                let found = as_time_passes(drive, &commands, numbers);
                assert_eq!(found, expected, "{id}, round {round}, {detail:?}, {scheduler:?}");
            }
        }
    }
}

#[test]
fn a_drive_without_a_buffer_and_a_queue_is_as_in_overheads_mode() {
    let numbers = &mut Numbers(2);
    for id in ids() {
        let mut drive = drive(&id);
        drive.cache.enabled = false;
        drive.host.completion_interrupt_ms = 0.0;
        let mut commands = commands(numbers, drive.capacity.lbns, 500);
        commands.retain(|command| command.operation != Operation::Flush);
        let serve = |detail| {
            let mut simulated = Drive::new(&drive, detail);
            simulated.set_queue(1, Scheduler::Fcfs);
            in_advance(simulated, &commands)
        };
        for ((number, one), (_, other)) in serve(Detail::Overheads).iter().zip(serve(Detail::Full))
        {
            let parts = |served: &Served| {
                let Served { start_ms, overhead_ms, seek_ms, rotation_ms, .. } = *served;
                let Served { transfer_ms, media_end_ms, completion_ms, .. } = *served;
                let parts = [start_ms, overhead_ms, seek_ms, rotation_ms];
                [parts.as_slice(), &[transfer_ms, media_end_ms, completion_ms]].concat()
            };
            for (one_ms, other_ms) in parts(one).iter().zip(parts(&other)) {
                assert!((one_ms - other_ms).abs() < 1e-6, "{id}, {number}: {one:?}, {other:?}");
            }
        }
    }
}
