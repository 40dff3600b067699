//! The rules of the buffer, the queue and the host, one by one, on a drive whose times can be
//! computed by hand.
//!
//! A turn takes 10 ms and passes 100 sectors, so a sector takes 0.1 ms. The track of LBN `n` below
//! 100 has its sector at slot `n`; the second track is turned by 10 slots, which is the 1 ms of a
//! change of the surface; a cylinder has two tracks, and LBN 5000 is at slot 0 of cylinder 25.

use upsweep::layers::device::drive::{
    Command, Detail, Drive, DriveDescription, Operation, ReadAhead, Scheduler, Served, WriteBack,
};

const PLAIN: &str = r#"
schema = 1
id = "plain"
name = "A drive for computing by hand"
model = "none"
status = "estimated"
capacity = { sector_bytes = 512, lbns = 20000, mapped_lbns = 20000 }
seek = { form = "points", points = [[1, 1.05], [99, 10.85]] }
start = { cylinder = 0, surface = 0, angle_at_time_zero = 0.0 }
layout = { order = "ascending", skew_unit = "sectors", spares = "none" }
bus = { sector_ms = 0.01, hold_whole_read = false, hold_whole_write = false }
queue = { depth = 4, scheduler = "fcfs" }

[mechanics]
rpm = 6000
surfaces = 2
cylinders = 100
head_switch_ms = 1.0
write_settle_ms = 0.0
zero_latency_read = false
zero_latency_write = false

[overhead_ms]
read_hit_after_read = 0.1
read_hit_after_write = 0.1
read_miss_after_read = 0.2
read_miss_after_write = 0.2
write_hit_after_read = 0.1
write_hit_after_write = 0.1
write_miss_after_read = 0.2
write_miss_after_write = 0.2
other = 0.0

[cache]
enabled = true
segments = 4
write_segments_max = 2
dedicated_write_segment = false
segment_sectors = 60
read_hits_on_write_data = true
partial_hit_transfers_at_once = true
read_ahead = "until-segment-full"
read_ahead_min_sectors = 0
read_ahead_max_sectors = 60
read_ahead_over_requested = false
read_ahead_on_idle_hit = false
read_ahead_stops_in_sector = false
read_sectors_before_request = false
write_back = "any"
combine_sequential_writes = true
write_hit_stops_read_ahead = true
watermark_read = 0.0
watermark_write = 0.0
watermark_of = "request"

[[zone]]
first_lbn = 0
lbns = 20000
first_cylinder = 0
last_cylinder = 99
sectors_per_track = 100
track_skew = 10
cylinder_skew = 10
"#;

/// The plain drive, changed.
fn plain(change: impl FnOnce(&mut DriveDescription)) -> DriveDescription {
    let mut drive: DriveDescription = toml::from_str(PLAIN).expect("it is a description");
    change(&mut drive);
    assert_eq!(drive.check(), Ok(()));
    drive
}

fn same(_: &mut DriveDescription) {}

/// Without write-back.
fn through(drive: &mut DriveDescription) {
    drive.cache.write_back = WriteBack::None;
}

/// As the drives that hold writes and merge them.
fn holding(drive: &mut DriveDescription) {
    through(drive);
    drive.queue.unmergeable_write_hold_ms = 1.0;
    drive.queue.smallest_mergeable_write_sectors = 8;
}

type Request = (f64, Operation, u64, u64);

fn read(arrival_ms: f64, lbn: u64, sectors: u64) -> Request {
    (arrival_ms, Operation::Read, lbn, sectors)
}

fn write(arrival_ms: f64, lbn: u64, sectors: u64) -> Request {
    (arrival_ms, Operation::Write, lbn, sectors)
}

fn stable(arrival_ms: f64, lbn: u64, sectors: u64) -> Request {
    (arrival_ms, Operation::StableWrite, lbn, sectors)
}

fn flush(arrival_ms: f64) -> Request {
    (arrival_ms, Operation::Flush, 0, 0)
}

fn serve(drive: &DriveDescription, detail: Detail, requests: &[Request]) -> Vec<Served> {
    let mut simulated = Drive::new(drive, detail);
    for (number, &(arrival_ms, operation, lbn, sectors)) in (0..).zip(requests) {
        simulated.offer(number, Command { arrival_ms, operation, lbn, sectors });
    }
    let mut all = vec![None; requests.len()];
    while let Some((number, served)) = simulated.serve_next() {
        assert_eq!(all[number as usize].replace(served), None, "request {number} is served once");
    }
    all.into_iter().map(|served| served.expect("every request is served")).collect()
}

/// Checks when requests end on a plain drive in full detail, changed.
#[track_caller]
fn ends(change: impl FnOnce(&mut DriveDescription), requests: &[Request], expected: &[f64]) {
    let served = serve(&plain(change), Detail::Full, requests);
    let ends: Vec<_> = served.iter().map(|served| served.completion_ms).collect();
    let is_near = |(end, expected): (&f64, &f64)| (end - expected).abs() < 1e-9;
    assert_eq!(ends.len(), expected.len());
    assert!(ends.iter().zip(expected).all(is_near), "{ends:?}, expected {expected:?}");
}

/// The end of a read of 10 to 20 at time 0: processed at 0.2, under the head from 1 to 2.
const FIRST: f64 = 2.01;

#[test]
fn a_read_finds_what_was_read_ahead() {
    // The segment holds 10 to 70, and is full at 7.
    let hit = 8.0 + 0.1 + 10.0 * 0.01;
    // 65 to 70 cross at once; 70 comes next at 17.
    let partial = 17.0 + 0.5 + 0.01;
    let requests = [read(0.0, 10, 10), read(8.0, 20, 10), read(8.5, 65, 10)];
    ends(same, &requests, &[FIRST, hit, partial]);
    // Nothing is kept without a cache: 20 comes next at 12, 65 at 16.5.
    ends(|drive| drive.cache.enabled = false, &requests, &[FIRST, 13.01, 17.51]);
    let none = |drive: &mut DriveDescription| drive.cache.read_ahead = ReadAhead::None;
    ends(none, &[read(0.0, 10, 10), read(8.0, 20, 10)], &[FIRST, 13.01]);
    ends(none, &[read(0.0, 10, 10), read(8.0, 10, 10)], &[FIRST, 8.2]);
}

#[test]
fn a_read_goes_on_with_what_is_read_ahead_at_present() {
    // Each is processed while its first sectors pass; 100 is at slot 10, 1 ms after the track.
    let requests =
        [read(0.0, 80, 10), read(9.05, 90, 10), read(10.0, 100, 10), read(12.5, 110, 70)];
    ends(same, &requests, &[9.01, 10.01, 12.01, 19.01]);
    // The head reads all of it before it leaves.
    let requests = [read(0.0, 10, 10), read(2.05, 20, 40), read(2.4, 5070, 1)];
    ends(same, &requests, &[FIRST, 6.01, 17.11]);
    // It does not read over dirty sectors. They are written from 3 to 3.1, and 23 passes after that
    // at 12.3.
    let requests = [write(0.0, 30, 1), read(0.0, 10, 10), read(2.05, 20, 20)];
    ends(same, &requests, &[0.11, FIRST, 14.01]);
    // If another command waits for the head, it is served first.
    let requests = [read(0.0, 10, 10), read(0.0, 5070, 1), read(0.3, 20, 10)];
    ends(same, &requests, &[FIRST, 7.11, 13.01]);
    // One that needs more than was read ahead goes on as well, though the buffer is small.
    let small = |drive: &mut DriveDescription| drive.cache.segment_sectors = 12;
    ends(small, &[read(0.0, 10, 10), read(2.05, 20, 40)], &[FIRST, 6.01]);
}

#[test]
fn reading_ahead_ends_when_the_media_is_needed() {
    // It is processed at 3.23, in the middle of a sector, which ends at 3.3. The seek takes 3.45,
    // so the head comes at 6.75, and 67 passes from 6.7: a turn later.
    let requests = [read(0.0, 10, 10), read(3.03, 5067, 1), read(30.0, 32, 1), read(40.0, 33, 1)];
    ends(same, &requests, &[FIRST, 16.81, 30.11, 53.41]);
    // At 6.68 it is caught; and the sector that passed at 3.23 is lost.
    let in_sector = |drive: &mut DriveDescription| drive.cache.read_ahead_stops_in_sector = true;
    ends(in_sector, &requests[..3], &[FIRST, 6.81, 43.31]);
    // At 10.5 the head is on its way to the next track, where it comes at 11. From there it comes
    // at 14.45.
    ends(same, &[read(0.0, 90, 10), read(10.3, 5042, 1)], &[10.01, 24.31]);
}

#[test]
fn at_least_and_at_most_so_many_sectors_are_read_ahead() {
    // The head can leave at 2.21, in a sector that ends at 2.3, and comes at 5.75.
    let requests = [read(0.0, 10, 10), read(2.01, 5070, 1)];
    ends(same, &requests, &[FIRST, 7.11]);
    // 20 to 50 have passed at 5, and it comes at 8.45.
    let least = |drive: &mut DriveDescription| drive.cache.read_ahead_min_sectors = 30;
    ends(least, &requests, &[FIRST, 17.11]);
    let most = |drive: &mut DriveDescription| drive.cache.read_ahead_max_sectors = 20;
    let requests = [read(0.0, 10, 10), read(8.0, 35, 5), read(9.0, 40, 5)];
    ends(most, &requests, &[FIRST, 8.15, 14.51]);
}

#[test]
fn the_next_track_is_read_ahead_if_reads_are_in_sequence() {
    let sequential = |drive: &mut DriveDescription| {
        drive.cache.read_ahead = ReadAhead::NextTrackIfSequential;
        drive.cache.segment_sectors = 250;
        drive.cache.read_ahead_max_sectors = 250;
    };
    // Nothing follows the first read: the head comes at 11.22 to the next track, where 100 passes
    // at 11 and 21. After the second, that track has passed at 31; the next cylinder is 1.05 ms
    // away and begins at slot 20, at 42; it has passed at 52. 300 is on the track after it, at
    // slot 30.
    let requests =
        [read(0.0, 90, 10), read(10.02, 100, 10), read(60.0, 290, 10), read(61.0, 300, 1)];
    ends(sequential, &requests, &[10.01, 22.01, 60.2, 63.11]);
    // No more than the segment has room for: to 160, at 27. It is at slot 70.
    let small = |drive: &mut DriveDescription| {
        sequential(drive);
        drive.cache.segment_sectors = 60;
    };
    let requests =
        [read(0.0, 90, 10), read(10.02, 100, 10), read(40.0, 155, 5), read(41.0, 160, 1)];
    ends(small, &requests, &[10.01, 22.01, 40.15, 47.11]);
    // Only in sequence: 110 is on the second track, and 120 passes again at 13.
    ends(sequential, &[read(0.0, 110, 10), read(8.0, 120, 10)], &[3.01, 14.01]);
    // The least is read ahead in any case.
    let least = |drive: &mut DriveDescription| {
        sequential(drive);
        drive.cache.read_ahead_min_sectors = 5;
    };
    ends(least, &[read(0.0, 10, 10), read(8.0, 20, 5)], &[FIRST, 8.15]);
}

#[test]
fn reading_ahead_ends_where_another_segment_begins() {
    let most = |drive: &mut DriveDescription| drive.cache.read_ahead_max_sectors = 20;
    // The first segment holds 30 to 60, the second one 10 to 30: 30 passes again at 43.
    let requests = [read(0.0, 30, 10), read(20.0, 10, 10), read(40.0, 25, 10)];
    ends(most, &requests, &[4.01, 22.01, 43.51]);
}

#[test]
fn the_segment_that_was_not_used_for_the_longest_time_is_given_up() {
    let two = |drive: &mut DriveDescription| {
        drive.cache.read_ahead = ReadAhead::None;
        (drive.cache.segments, drive.cache.write_segments_max) = (2, 2);
    };
    let requests = [
        read(0.0, 10, 10),
        read(20.0, 50, 10),
        read(40.0, 10, 10),
        read(60.0, 80, 10),
        read(80.0, 10, 10),
        read(100.0, 50, 10),
    ];
    ends(two, &requests, &[FIRST, 26.01, 40.2, 69.01, 80.2, 106.01]);
    // With one for writes, reads have one.
    let dedicated = |drive: &mut DriveDescription| {
        two(drive);
        drive.cache.dedicated_write_segment = true;
    };
    ends(dedicated, &requests[..3], &[FIRST, 26.01, 42.01]);
}

#[test]
fn a_read_that_waits_for_the_media_uses_what_another_one_brought() {
    // The seek takes 3.45, and 5070 passes at 7. The last read is processed before that, and its
    // sector crosses the bus after those of the other one.
    let requests = [read(0.0, 10, 10), read(0.0, 5070, 10), read(0.0, 5070, 1)];
    ends(same, &requests, &[FIRST, 8.01, 8.02]);
}

#[test]
fn a_read_keeps_the_bus_while_it_waits_for_data_or_not() {
    // Its sectors come from 1.1 to 2 and take the bus for 0.1 ms in all.
    let requests = [read(0.0, 10, 10), write(1.2, 80, 1)];
    ends(same, &requests, &[FIRST, 1.31]);
    ends(|drive| drive.bus.hold_whole_read = true, &requests, &[FIRST, 2.02]);
    // The bus is free from 1.85 to 1.91, and from 2.01 on.
    let requests = [read(0.0, 10, 10), write(1.75, 80, 10)];
    ends(same, &requests, &[FIRST, 2.05]);
    ends(|drive| drive.bus.hold_whole_write = true, &requests, &[FIRST, 2.11]);
}

#[test]
fn a_write_replaces_dirty_sectors_or_waits_for_them() {
    let one = |drive: &mut DriveDescription| drive.cache.write_segments_max = 1;
    // 80 to 90 are written at 8, after the read. The last write overlaps them in part.
    let requests = [read(0.0, 10, 10), write(0.0, 80, 10), write(0.0, 82, 2), write(0.0, 85, 10)];
    ends(one, &requests, &[FIRST, 0.4, 0.42, 9.2]);
    // While they are being written, they are not replaced.
    ends(one, &[write(0.0, 10, 10), write(1.5, 12, 2)], &[0.2, 2.12]);
}

#[test]
fn reading_ahead_spares_the_data_just_returned_or_not() {
    let small = |drive: &mut DriveDescription| drive.cache.segment_sectors = 20;
    // 10 to 30 are held.
    let requests = [read(0.0, 10, 15), read(9.0, 10, 1), read(9.5, 40, 1)];
    ends(small, &requests, &[2.51, 9.11, 14.11]);
    // 25 to 45 are held.
    let over = |drive: &mut DriveDescription| {
        small(drive);
        drive.cache.read_ahead_over_requested = true;
    };
    ends(over, &[read(0.0, 10, 15), read(9.0, 40, 1), read(9.5, 10, 1)], &[2.51, 9.11, 11.11]);
}

#[test]
fn a_full_hit_begins_to_read_ahead_or_not() {
    let little = |drive: &mut DriveDescription| drive.cache.read_ahead_max_sectors = 5;
    let requests = [read(0.0, 10, 10), read(8.0, 20, 5), read(14.0, 25, 5)];
    ends(little, &requests, &[FIRST, 8.15, 23.01]);
    let on_hit = |drive: &mut DriveDescription| {
        little(drive);
        drive.cache.read_ahead_on_idle_hit = true;
    };
    ends(on_hit, &requests, &[FIRST, 8.15, 14.15]);
    // Not after written data.
    let requests = [write(0.0, 10, 10), read(8.0, 10, 10), read(14.0, 20, 5)];
    ends(on_hit, &requests, &[0.2, 8.2, 22.51]);
}

#[test]
fn sectors_before_the_request_are_kept_or_not() {
    // The head is on the track at 0.2, so 2 to 10 pass before the request.
    let requests = [read(0.0, 10, 10), read(2.5, 2, 8), read(20.0, 1, 1)];
    ends(same, &requests, &[FIRST, 11.01, 30.21]);
    let before = |drive: &mut DriveDescription| drive.cache.read_sectors_before_request = true;
    ends(before, &requests, &[FIRST, 2.68, 30.21]);
    // A slipped sector between them passes too: LBN 1 is at slot 1, which did not.
    let slipped = |drive: &mut DriveDescription| {
        before(drive);
        let zone = &mut drive.zones[0];
        (zone.slips, zone.lbns) = (vec![(5, 1)], 19_999);
        (drive.capacity.lbns, drive.capacity.mapped_lbns) = (19_999, 19_999);
    };
    ends(slipped, &[read(0.0, 10, 10), read(2.5, 1, 1)], &[2.11, 10.21]);
    // At 7, 70 has passed, and 2 to 10 are overwritten.
    ends(before, &[read(0.0, 10, 10), read(8.0, 2, 8)], &[FIRST, 11.01]);
    let zero_latency = |drive: &mut DriveDescription| {
        before(drive);
        drive.mechanics.zero_latency_read = true;
        drive.cache.segment_sectors = 100;
        drive.cache.read_ahead_max_sectors = 10;
    };
    // The head comes at slot 2, so the whole track passes, and the request ends with 1.
    ends(zero_latency, &[read(0.0, 1, 10), read(20.0, 0, 1)], &[10.21, 20.11]);
}

#[test]
fn a_segment_keeps_the_last_sectors_of_a_long_read() {
    let requests = [read(0.0, 10, 80), read(20.0, 30, 60), read(30.0, 29, 1)];
    ends(same, &requests, &[9.01, 20.7, 32.91 + 0.1]);
}

#[test]
fn what_is_in_the_buffer_crosses_at_once_or_with_the_rest() {
    // The bus is slower than the media.
    let slow = |drive: &mut DriveDescription| {
        drive.bus.sector_ms = 0.2;
        drive.cache.read_ahead_max_sectors = 5;
    };
    // 15 to 25 cross from 8.2 on; 25 to 30 pass from 12.5 to 13.
    let requests = [read(0.0, 10, 10), read(8.0, 15, 15)];
    ends(slow, &requests, &[1.1 + 2.0, 12.6 + 1.0]);
    let later = |drive: &mut DriveDescription| {
        slow(drive);
        drive.cache.partial_hit_transfers_at_once = false;
    };
    ends(later, &requests, &[3.1, 13.0 + 3.0]);
}

#[test]
fn watermarks_hold_back_the_bus_and_the_media() {
    let slow = |drive: &mut DriveDescription| {
        through(drive);
        drive.bus.sector_ms = 0.2;
    };
    // Data of the write crosses from 0.2 to 2.2.
    ends(slow, &[read(0.0, 10, 10)], &[3.1]);
    ends(slow, &[write(0.0, 20, 10)], &[3.0]);
    let marked = |drive: &mut DriveDescription| {
        slow(drive);
        drive.cache.watermark_read = 0.5;
        drive.cache.watermark_write = 1.0;
    };
    ends(marked, &[read(0.0, 10, 10)], &[1.5 + 2.0]);
    ends(marked, &[write(0.0, 20, 10)], &[13.0]);
}

#[test]
fn a_write_ends_in_the_buffer_and_goes_to_the_media_when_that_is_idle() {
    // 10 to 20 are written from 1 to 2; the seek takes 3.45.
    let requests = [write(0.0, 10, 10), read(0.5, 5070, 1), read(9.0, 10, 10)];
    ends(same, &requests, &[0.2, 7.11, 9.2]);
    // Nothing is written while the media has something else to do.
    ends(same, &[read(0.0, 10, 10), write(0.0, 80, 1), read(0.0, 50, 1)], &[FIRST, 0.31, 5.11]);
    let not_kept = |drive: &mut DriveDescription| drive.cache.read_hits_on_write_data = false;
    ends(not_kept, &[write(0.0, 10, 10), read(9.0, 10, 10)], &[0.2, 12.01]);
    // A segment that cannot be read is free, and does not end reading ahead.
    let requests = [write(0.0, 30, 10), read(20.0, 10, 10), read(40.0, 30, 10)];
    ends(not_kept, &requests, &[0.2, 22.01, 40.2]);
    // A read waits until they are on the media.
    ends(not_kept, &[write(0.0, 10, 10), read(0.5, 10, 10)], &[0.2, 12.01]);
}

#[test]
fn a_write_waits_for_room() {
    // The first is written from 1 to 1.1, and then its segment is free.
    let requests = [write(0.0, 10, 1), write(0.0, 30, 1), write(0.0, 50, 1)];
    ends(same, &requests, &[0.11, 0.21, 1.21]);
    let more = |drive: &mut DriveDescription| drive.cache.write_segments_max = 3;
    ends(more, &requests, &[0.11, 0.21, 0.31]);
    // One that is larger than a segment goes to the media.
    ends(same, &[write(0.0, 10, 61)], &[7.1]);
}

#[test]
fn room_is_made_in_the_order_of_the_scheduler() {
    let sptf = |drive: &mut DriveDescription| drive.queue.scheduler = Scheduler::Sptf;
    // Two are dirty when the read ends, and the last write waits for one of them.
    let requests = [read(0.0, 10, 10), write(0.0, 5000, 1), write(0.0, 50, 1), write(0.0, 80, 1)];
    ends(same, &requests, &[FIRST, 0.31, 0.41, 10.21]);
    ends(sptf, &requests, &[FIRST, 0.31, 0.41, 5.21]);
    // A command that came later than the one that waits for room is served later.
    let requests = [
        read(0.0, 10, 10),
        write(0.0, 30, 1),
        write(0.0, 50, 1),
        write(0.0, 80, 1),
        read(0.5, 5070, 1),
    ];
    ends(|drive| drive.queue.depth = 8, &requests, &[FIRST, 0.31, 0.41, 3.21, 7.11]);
}

#[test]
fn writes_in_sequence_share_a_segment_or_not() {
    let requests = [write(0.0, 10, 1), write(0.0, 11, 1), write(0.0, 12, 1)];
    ends(same, &requests, &[0.11, 0.21, 0.31]);
    let apart = |drive: &mut DriveDescription| drive.cache.combine_sequential_writes = false;
    ends(apart, &requests, &[0.11, 0.21, 1.21]);
    // They are written in one pass: 10 to 11 alone first, then the others at once.
    let requests = [write(0.0, 10, 1), write(0.2, 11, 1), write(0.4, 12, 1), flush(0.6)];
    ends(same, &requests, &[0.11, 0.31, 0.51, 1.3]);
}

#[test]
fn appended_writes_end_in_the_buffer_and_all_else_waits_for_them() {
    let appending =
        |drive: &mut DriveDescription| drive.cache.write_back = WriteBack::AppendingMixed;
    // 10 to 20 are written from 1 to 2, 20 to 30 right after them.
    let first = [write(0.0, 10, 10), write(0.3, 20, 10)];
    let after = |request: Request| [first.as_slice(), &[request]].concat();
    ends(appending, &after(read(0.6, 5070, 1)), &[0.2, 0.5, 7.11]);
    ends(appending, &after(read(0.6, 10, 10)), &[0.2, 0.5, 3.2]);
    ends(appending, &after(write(0.6, 80, 1)), &[0.2, 0.5, 3.11]);
    ends(appending, &after(stable(0.6, 80, 1)), &[0.2, 0.5, 8.1]);
}

#[test]
fn a_write_in_the_buffer_stops_reading_ahead_or_not() {
    // At 3.05 the sector under the head is 30. The next one that is read comes from cylinder 25.
    let requests = [read(0.0, 10, 10), write(3.05, 5000, 1), read(40.0, 31, 1)];
    ends(same, &requests, &[FIRST, 3.16, 53.21]);
    let requests = [read(0.0, 10, 10), write(3.05, 5000, 1), read(40.0, 60, 1)];
    let goes_on = |drive: &mut DriveDescription| drive.cache.write_hit_stops_read_ahead = false;
    ends(goes_on, &requests, &[FIRST, 3.16, 40.11]);
    // It goes to the media when reading has ended, at 7: 72 passes at 7.2.
    let requests = [read(0.0, 10, 10), write(3.05, 72, 1), flush(7.4)];
    ends(goes_on, &requests, &[FIRST, 3.16, 7.4]);
    // What it wrote itself is not read ahead.
    let requests = [read(0.0, 10, 10), write(3.05, 40, 1), read(40.0, 41, 1)];
    ends(goes_on, &requests, &[FIRST, 3.16, 44.21]);
    let requests = [read(0.0, 10, 10), write(3.05, 40, 1), read(3.2, 35, 10)];
    ends(goes_on, &requests, &[FIRST, 3.16, 14.51]);
}

#[test]
fn hits_and_misses_have_their_overheads() {
    let distinct = |drive: &mut DriveDescription| {
        let times = &mut drive.overhead_ms;
        times.read_hit_after_read = 0.11;
        times.read_hit_after_write = 0.12;
        times.write_hit_after_read = 0.13;
        times.write_hit_after_write = 0.14;
        times.other = 0.5;
    };
    let requests = [
        read(0.0, 10, 10),
        read(20.0, 10, 10),
        write(21.0, 80, 10),
        write(22.0, 90, 10),
        read(40.0, 10, 10),
        flush(50.0),
    ];
    let [hit, transfer] = [0.5, 0.1];
    let expected = [
        FIRST,
        20.0 + hit + 0.11 + transfer,
        21.0 + hit + 0.13 + transfer,
        22.0 + hit + 0.14 + transfer,
        40.0 + hit + 0.12 + transfer,
        50.0 + hit,
    ];
    ends(distinct, &requests, &expected);
}

#[test]
fn a_stable_write_ends_on_the_media() {
    ends(same, &[stable(0.0, 10, 10)], &[2.0]);
    // As every write without write-back, or without a cache.
    ends(through, &[write(0.0, 10, 10)], &[2.0]);
    ends(|drive| drive.cache.enabled = false, &[write(0.0, 10, 10)], &[2.0]);
    // What it overwrites goes to the media before it: 10 to 20 at 1 to 2, then it from 11 on.
    ends(same, &[write(0.0, 10, 10), stable(0.3, 10, 10)], &[0.2, 12.0]);
    // What is read ahead before it stays.
    let requests = [read(0.0, 10, 10), stable(20.0, 40, 1), read(40.0, 30, 10)];
    ends(same, &requests, &[FIRST, 24.1, 40.2]);
    // Its data stays readable.
    ends(same, &[stable(0.0, 10, 10), read(5.0, 10, 10)], &[2.0, 5.2]);
}

#[test]
fn a_flush_ends_when_what_was_accepted_before_it_is_on_the_media() {
    ends(same, &[flush(1.0)], &[1.0]);
    ends(same, &[write(0.0, 10, 10), flush(0.25)], &[0.2, 2.0]);
    // It does not wait for what comes later.
    ends(same, &[write(0.0, 10, 10), flush(0.25), write(0.5, 30, 10)], &[0.2, 2.0, 0.7]);
    // Nor for what comes later in the same segment.
    ends(same, &[write(0.0, 10, 10), flush(0.25), write(1.5, 20, 10)], &[0.2, 2.0, 1.7]);
    ends(same, &[write(0.0, 10, 10), write(0.5, 30, 10), flush(0.8)], &[0.2, 0.7, 4.0]);
    ends(same, &[write(0.0, 10, 10), write(1.5, 20, 10), flush(1.8)], &[0.2, 1.7, 3.0]);
    // It does not wait for other commands, which may be in front of it at the media.
    let requests = [read(0.0, 10, 10), write(0.0, 80, 1), flush(0.3), read(0.4, 50, 1)];
    ends(same, &requests, &[FIRST, 0.31, 8.1, 5.11]);
}

#[test]
fn a_write_that_merges_with_none_is_held() {
    // 9 passes at 0.9, when the write is ready but held.
    ends(holding, &[write(0.0, 9, 8)], &[11.7]);
    let not_held = |drive: &mut DriveDescription| {
        holding(drive);
        drive.queue.unmergeable_write_hold_ms = 0.0;
    };
    ends(not_held, &[write(0.0, 9, 8)], &[1.7]);
    // From 1 ms on it is not too late.
    ends(holding, &[write(0.0, 10, 8)], &[1.8]);
    // None can come to merge with in a queue of one.
    let one = |drive: &mut DriveDescription| {
        holding(drive);
        drive.queue.depth = 1;
    };
    ends(one, &[write(0.0, 9, 8)], &[1.7]);
    // Reads are not held.
    ends(holding, &[read(0.0, 9, 8)], &[1.71]);
}

#[test]
fn writes_that_follow_one_another_merge() {
    // The second comes while the first is held: both are written from 0.9 on.
    ends(holding, &[write(0.0, 9, 8), write(0.2, 17, 8)], &[1.7, 2.5]);
    // In either order.
    ends(holding, &[write(0.0, 28, 8), write(0.5, 20, 8)], &[3.6, 2.8]);
    // On a slow bus the data of the second is in the buffer at 3.4, before its last sector passes.
    let slow = |drive: &mut DriveDescription| {
        holding(drive);
        drive.bus.sector_ms = 0.2;
    };
    ends(slow, &[write(0.0, 20, 8), write(0.1, 28, 8)], &[2.8, 3.6]);
    // One that is too small does not merge, and is held.
    ends(holding, &[write(0.0, 9, 8), write(0.2, 17, 7)], &[11.7, 12.4]);
    let sptf = |drive: &mut DriveDescription| {
        holding(drive);
        drive.queue.scheduler = Scheduler::Sptf;
    };
    ends(sptf, &[write(0.0, 2, 7), write(0.2, 9, 8)], &[10.9, 11.7]);
    // One that follows the write under the head is not held: that is from 2 to 2.8.
    ends(holding, &[write(0.0, 20, 8), write(2.5, 28, 8)], &[2.8, 3.6]);
    // One that comes after that is held, so that the read is first.
    let requests = [write(0.0, 20, 8), write(2.85, 28, 8), read(2.9, 80, 1)];
    ends(holding, &requests, &[2.8, 13.6, 8.11]);
    // Without a smallest size the drive merges none.
    let apart = |drive: &mut DriveDescription| {
        holding(drive);
        drive.queue.smallest_mergeable_write_sectors = 0;
    };
    ends(apart, &[write(0.0, 28, 8), write(0.5, 20, 8)], &[3.6, 12.8]);
}

#[test]
fn the_ends_of_merged_writes_are_known_at_once() {
    let mut drive = Drive::new(&plain(holding), Detail::Full);
    for (number, (arrival_ms, operation, lbn, sectors)) in
        (0..).zip([write(0.0, 20, 8), write(0.2, 28, 8)])
    {
        drive.offer(number, Command { arrival_ms, operation, lbn, sectors });
    }
    // They begin at 0.4, when both have been processed.
    assert_eq!(drive.serve_until(0.3), None);
    let is_begun = |drive: &Drive| drive.next_ms().is_some_and(|ms| (ms - 0.4).abs() < 1e-9);
    assert!(is_begun(&drive) && drive.serve_until(0.5).is_some_and(|(number, _)| number == 0));
    assert!(is_begun(&drive) && drive.serve_until(0.5).is_some_and(|(number, _)| number == 1));
    assert_eq!(drive.next_ms(), None);
}

#[test]
fn the_host_knows_of_an_end_after_its_interrupt() {
    let slow_host = |drive: &mut DriveDescription| drive.host.completion_interrupt_ms = 0.3;
    let requests = [read(0.0, 10, 10), read(20.0, 10, 10), write(21.0, 10, 10), flush(30.0)];
    ends(slow_host, &requests, &[FIRST + 0.3, 20.5, 21.5, 32.3]);
    // The next command enters the drive at the end, not after the interrupt.
    let one = |drive: &mut DriveDescription| {
        slow_host(drive);
        drive.queue.depth = 1;
    };
    ends(one, &[read(0.0, 10, 10), read(0.0, 5058, 1)], &[FIRST + 0.3, 6.21]);
}

#[test]
fn a_drive_processes_commands_while_its_media_works() {
    // In overheads mode the second begins at 2, is ready at 2.2 and loses a turn.
    let requests = [write(0.0, 10, 10), write(0.0, 20, 10)];
    ends(through, &requests, &[2.0, 3.0]);
    let in_turn = serve(&plain(through), Detail::Overheads, &requests);
    assert!((in_turn[1].completion_ms - 13.0).abs() < 1e-9, "{in_turn:?}");
}

#[test]
fn the_queue_holds_no_more_commands_than_it_has_places() {
    let sstf = |depth| {
        move |drive: &mut DriveDescription| {
            through(drive);
            (drive.queue.depth, drive.queue.scheduler) = (depth, Scheduler::Sstf);
        }
    };
    // The third is nearer than the second, and is seen before that only with a third place.
    let requests = [read(0.0, 10, 1), read(0.0, 5000, 1), read(0.0, 60, 1)];
    ends(sstf(3), &requests, &[1.11, 10.11, 6.11]);
    ends(sstf(2), &requests, &[1.11, 10.11, 16.11]);
    // While a write is held, a second command enters when the one before it has left.
    let two = |drive: &mut DriveDescription| {
        holding(drive);
        drive.queue.depth = 2;
    };
    let requests = [read(0.0, 10, 10), write(20.0, 5000, 8), read(20.0, 10, 10), read(20.0, 11, 1)];
    ends(two, &requests, &[FIRST, 30.8, 20.4, 20.51]);
}

#[test]
fn the_elevator_goes_upwards() {
    let elevator = |drive: &mut DriveDescription| drive.queue.scheduler = Scheduler::CLook;
    let requests = [read(0.0, 50, 1), read(0.0, 20, 1), read(0.0, 70, 1), read(0.0, 60, 1)];
    let none = |drive: &mut DriveDescription| {
        elevator(drive);
        drive.cache.enabled = false;
    };
    ends(none, &requests, &[5.11, 12.11, 7.11, 6.11]);
}

#[test]
fn a_drive_forgets_what_it_has_not_done() {
    let mut drive = Drive::new(&plain(same), Detail::Full);
    let offer = |drive: &mut Drive, (arrival_ms, operation, lbn, sectors)| {
        drive.offer(0, Command { arrival_ms, operation, lbn, sectors });
    };
    for request in [write(0.0, 10, 10), flush(0.2), read(0.3, 5070, 1), read(5.0, 10, 10)] {
        offer(&mut drive, request);
    }
    // The write has ended in the buffer, 10 to 20 are being written from 1 to 2, and the flush and
    // the read wait for that.
    assert!(drive.serve_until(1.5).is_some() && drive.serve_until(1.5).is_none());
    drive.forget();
    assert_eq!((drive.next_ms(), drive.serve_next()), (None, None));
    // Nothing is in the buffer.
    offer(&mut drive, read(8.0, 10, 10));
    let (_, served) = drive.serve_next().expect("it waits");
    assert!((served.completion_ms - 12.01).abs() < 1e-9, "{served:?}");
}

#[test]
fn a_write_on_a_busy_bus_waits_for_it() {
    let slow = plain(|drive| drive.bus.sector_ms = 0.2);
    // The read is under the head from 1 to 2 and keeps the bus until 3.1. The write begins at 2,
    // and its data crosses from 3.1 to 5.1: it can pass without a pause from 4.2 on.
    let requests = [read(0.0, 10, 10), write(0.0, 41, 10), write(0.0, 42, 1)];
    for (lbn, expected_ms) in [(41, 15.1), (42, 5.2)] {
        let mut requests = requests;
        requests[1].2 = lbn;
        let served = serve(&slow, Detail::Overheads, &requests[..2]);
        let end_ms = served[1].completion_ms;
        assert!((served[0].completion_ms - 3.1).abs() < 1e-9, "{served:?}");
        assert!((end_ms - expected_ms).abs() < 1e-9, "LBN {lbn} ends at {end_ms}");
    }
    // The scheduler knows: the second write passes at 9, before the first one can.
    let mut drive = Drive::new(&slow, Detail::Overheads);
    drive.set_queue(3, Scheduler::Sptf);
    let requests = [read(0.0, 10, 10), write(0.1, 41, 10), write(0.1, 90, 1)];
    for (number, (arrival_ms, operation, lbn, sectors)) in (0..).zip(requests) {
        drive.offer(number, Command { arrival_ms, operation, lbn, sectors });
    }
    let numbers: Vec<_> = std::iter::from_fn(|| drive.serve_next()).map(|(n, _)| n).collect();
    assert_eq!(numbers, [0, 2, 1]);
}
