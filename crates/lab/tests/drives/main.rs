//! The drives in `drives/`: each is complete, its layout and its times are those of the README's
//! examples, and the model meets its data sheet.

mod full;
mod rules;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use upsweep::layers::device::drive::{
    Command, Detail, Direction, Drive, DriveDescription, Head, Layout, Mechanism, Operation, Piece,
    Status,
};

use support::lab;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drives")
}

fn drive(id: &str) -> DriveDescription {
    let text = std::fs::read_to_string(folder().join(format!("{id}.toml"))).expect("it exists");
    toml::from_str(&text).expect("it is a description")
}

fn ids() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the folder exists");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let drives = paths.filter(|path| path.extension().is_some_and(|end| end == "toml"));
    let stem = |path: PathBuf| path.file_stem().expect("it has a name").display().to_string();
    let mut ids: Vec<_> = drives.map(stem).collect();
    ids.sort();
    ids
}

#[test]
fn every_drive_is_complete_and_says_where_its_values_come_from() {
    let ids = ids();
    assert_eq!(ids.len(), 10);
    for id in ids {
        let drive = drive(&id);
        assert_eq!((drive.check(), &drive.id), (Ok(()), &id));
        assert!(drive.source.contains_key("seek"), "{id}");
        assert_eq!(drive.status == Status::Measured, drive.datasheet.is_empty(), "{id}");
    }
}

#[test]
fn sectors_lie_where_the_examples_say() {
    let examples = [
        ("atlas10k", 334, (0, 1), (63, 334)),
        ("atlas10k", 2004, (1, 5), (94, 334)),
        ("atlas10k", 55016, (27, 3), (232, 334)),
        ("atlas10k", 55017, (27, 3), (234, 334)),
        ("atlas10k", 867_643, (433, 0), (0, 334)),
        ("atlas10k", 9_999_999, (5134, 1), (61, 306)),
        ("cheetah9lp", 3048, (1, 0), (184, 254)),
        ("cheetah9lp", 2_597_963, (853, 11), (144, 245)),
        ("cheetah9lp", 2_597_965, (853, 11), (149, 245)),
        ("ultrastar18es", 0, (1, 0), (333, 390)),
        ("ultrastar18es", 197_128, (102, 0), (215, 390)),
    ];
    for (id, lbn, (cylinder, surface), (slot, slots)) in examples {
        let piece = Layout::new(&drive(id)).pieces(lbn, 1).remove(0);
        let Piece { cylinder: on, surface: side, first_slot, track_slots, .. } = piece;
        let found = ((on, side), (first_slot, track_slots));
        assert_eq!(found, ((cylinder, surface), (slot, slots)), "{id}, LBN {lbn}");
    }
}

#[test]
fn every_lbn_has_one_place() {
    for id in ids() {
        let drive = drive(&id);
        let layout = Layout::new(&drive);
        for zone in &drive.zones {
            // Around each slip, and at both ends of the zone.
            let slips = zone.slips.iter().map(|(at, _)| at.saturating_sub(900));
            for from in slips.chain([0, zone.lbns.saturating_sub(2000)]) {
                let first = (zone.first_lbn + from.min(zone.lbns - 1)).min(drive.capacity.lbns - 1);
                let sectors = 2000.min(drive.capacity.lbns - first);
                let mut places = Vec::new();
                for lbn in first..first + sectors {
                    let piece = layout.pieces(lbn, 1).remove(0);
                    places.push((piece.cylinder, piece.surface, piece.first_slot));
                }
                // The same, track by track.
                let slots = |piece: &Piece| {
                    let slipped = |slot: &u32| {
                        !piece.gaps.iter().any(|(at, count)| (*at..at + count).contains(slot))
                    };
                    let place = |slot: u32| {
                        let slot = (piece.first_slot + slot) % piece.track_slots;
                        (piece.cylinder, piece.surface, slot)
                    };
                    (0..piece.slots).filter(slipped).map(place).collect::<Vec<_>>()
                };
                let pieces = layout.pieces(first, sectors);
                assert_eq!(pieces.iter().flat_map(slots).collect::<Vec<_>>(), places, "{id}");
                let total: u32 = pieces.iter().map(|piece| piece.sectors).sum();
                assert_eq!(u64::from(total), sectors);
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len() as u64, sectors, "{id}: two LBNs at one place");
            }
        }
    }
}

#[test]
fn requests_take_the_time_that_the_examples_give() {
    let requests = [
        (Direction::Read, 1, 7),
        (Direction::Read, 5_000_001, 9),
        (Direction::Write, 5_000_011, 9),
        (Direction::Read, 331, 5),
    ];
    let examples = [
        ("atlas10k", [0.143354, 11.050882, 0.184723, 7.740905]),
        ("cheetah9lp", [0.188130, 7.968443, 0.250971, 7.748102]),
        ("ultrastar18es", [7.286325, 7.718424, 0.237417, 7.386040]),
    ];
    for (id, expected) in examples {
        let mut simulated = Drive::new(&drive(id), Detail::Mechanics);
        let mut arrival_ms = 0.0;
        for ((direction, lbn, sectors), expected_ms) in requests.into_iter().zip(expected) {
            let operation = direction.into();
            simulated.offer(0, Command { arrival_ms, operation, lbn, sectors });
            let (_, served) = simulated.serve_next().expect("a request waits");
            let taken_ms = served.completion_ms - served.start_ms;
            assert!((taken_ms - expected_ms).abs() < 1e-6, "{id}, LBN {lbn}: {taken_ms}");
            let parts = served.seek_ms + served.rotation_ms + served.transfer_ms;
            assert!((taken_ms - parts).abs() < 1e-9, "{id}: the parts make the whole");
            arrival_ms = served.completion_ms;
        }
    }
}

#[test]
fn requests_in_sequence_lose_no_turn() {
    let operation = Operation::Read;
    let read = |arrival_ms, lbn, sectors| Command { arrival_ms, operation, lbn, sectors };
    for id in ids() {
        let drive = drive(&id);
        // Zero-latency access needs no skew, so a whole track at once is faster with it.
        let [mut parts, mut whole] = [(); 2].map(|()| Drive::new(&drive, Detail::Mechanics));
        parts.without_zero_latency();
        whole.without_zero_latency();
        let mut end_ms = 0.0;
        for number in 0..2000 {
            parts.offer(number, read(end_ms, 8 * number, 8));
            end_ms = parts.serve_next().expect("a request waits").1.completion_ms;
        }
        whole.offer(0, read(0.0, 0, 16_000));
        let whole_ms = whole.serve_next().expect("a request waits").1.completion_ms;
        assert!((end_ms - whole_ms).abs() < 1e-6, "{id}: {end_ms} in parts, {whole_ms} as one");
    }
}

#[test]
fn seeks_take_the_time_that_the_examples_give() {
    let examples = [
        ("atlas10k", 11, 1.523),
        ("atlas10k", 1450, 4.7115),
        ("atlas10k", 10_041, 11.174_667),
        ("dtla307030", 2, 1.2835),
        ("dtla307030", 1000, 3.8228),
    ];
    for (id, distance, expected) in examples {
        let drive = drive(id);
        let time = drive.seek.time_ms(distance, drive.mechanics.cylinders);
        assert!((time - expected).abs() < 1e-4, "{id}: {distance} cylinders take {time} ms");
    }
}

/// The mean of a seek over all pairs of different cylinders.
fn average_seek_ms(drive: &DriveDescription) -> f64 {
    let cylinders = drive.mechanics.cylinders;
    let weighed = (1..cylinders)
        .map(|distance| f64::from(cylinders - distance) * drive.seek.time_ms(distance, cylinders));
    let pairs = f64::from(cylinders) * f64::from(cylinders - 1) / 2.0;
    weighed.sum::<f64>() / pairs
}

/// The rate of a long sequential read that begins at an LBN, in 10^6 bytes a second.
fn sustained_mb_s(drive: &DriveDescription, lbn: u64) -> f64 {
    let mut simulated = Drive::new(drive, Detail::Mechanics);
    let sectors = 200_000.min(drive.capacity.lbns - lbn);
    let direction = Direction::Read;
    let operation = direction.into();
    simulated.offer(0, Command { arrival_ms: 0.0, operation, lbn, sectors });
    let (_, served) = simulated.serve_next().expect("a request waits");
    // Without the way to the first sector.
    let first = Layout::new(drive).pieces(lbn, 1).remove(0);
    let mechanism = Mechanism::new(drive);
    let positioned_ms = mechanism.positioning_ms(first.head(), direction);
    let bytes = sectors as f64 * f64::from(drive.capacity.sector_bytes);
    bytes / (served.completion_ms - positioned_ms) / 1e3
}

#[test]
fn the_model_meets_the_data_sheets() {
    let mut compared = 0;
    for id in ids() {
        let drive = drive(&id);
        let cylinders = drive.mechanics.cylinders;
        let full = |direction| {
            let far = Head { cylinder: cylinders - 1, surface: drive.start.surface };
            Mechanism::new(&drive).positioning_ms(far, direction)
        };
        for (key, published) in &drive.datasheet {
            let model = match key.as_str() {
                "average_seek_read_ms" => average_seek_ms(&drive),
                "average_seek_write_ms" => {
                    average_seek_ms(&drive) + drive.mechanics.write_settle_ms
                }
                "full_stroke_read_ms" => full(Direction::Read),
                "full_stroke_write_ms" => full(Direction::Write),
                "single_track_seek_ms" => drive.seek.time_ms(1, cylinders),
                "rotational_latency_ms" => 30_000.0 / drive.mechanics.rpm,
                "sustained_outer_mb_s" => sustained_mb_s(&drive, 0),
                _ => continue,
            };
            compared += 1;
            let ratio = model / published;
            assert!((0.95..=1.05).contains(&ratio), "{id}, {key}: {model}, published {published}");
        }
    }
    assert!(compared >= 25, "{compared} figures were compared");
}

#[test]
fn the_program_serves_a_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace.csv");
    let lines = "arrival_us,op,lbn,sectors\n9,read,1,7\n9,read,5000001,9\n9, write ,5000011,9\n";
    std::fs::write(&trace, lines).expect("it can be written");
    let (file, trace) = (folder_of("atlas10k"), trace.display().to_string());
    let closed = ["drive", &file, &trace, "--mode", "mech", "--closed-loop"];
    let (succeeded, printed, problem) = lab(&closed);
    assert!(succeeded, "{problem}");
    let lines: Vec<_> = printed.lines().collect();
    let names = "index,arrival_us,start_us,seek_us,rotation_us,transfer_us,completion_us";
    assert_eq!((lines.len(), lines[0]), (4, names));
    assert!(lines[1].starts_with("0,0.000,0.000,0.000,") && lines[1].ends_with(",143.354"));
    assert!(lines[2].starts_with("1,143.354,143.354,"), "{}", lines[2]);
}

#[test]
fn the_program_serves_a_trace_in_full_detail() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace.csv");
    std::fs::write(&trace, "0,write,5000,8\n0,write,3000,8\n50000,write,9000,8\n")
        .expect("written");
    let (file, trace) = (folder_of("caviar-black-1tb"), trace.display().to_string());
    let full = ["drive", &file, &trace, "--mode", "full", "--queue", "3", "--scheduler", "c-look"];
    let (succeeded, printed, problem) = lab(&full);
    assert!(succeeded, "{problem}");
    // Each ends in the buffer: 0.1 ms of processing, eight sectors across the bus, and 0.1 ms of
    // the host's interrupt. The second waits for the processor.
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[1], "0,0.000,0.000,0.000,0.000,13.656,213.656");
    assert_eq!(lines[2], "1,0.000,100.000,0.000,0.000,13.656,313.656");
    assert_eq!(lines[3], "2,50000.000,50000.000,0.000,0.000,13.656,50213.656");
}

fn folder_of(id: &str) -> String {
    folder().join(format!("{id}.toml")).display().to_string()
}

#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace.csv").display().to_string();
    let drive = folder_of("atlas10k");
    let cases = [
        ("1,read,0,8\n1,write,17938980,8\n", "line 2: 8 sectors at LBN 17938980"),
        ("1,read,0,0\n", "line 1: 0 sectors"),
        ("-1,read,0,8\n", "line 1: arrival_us is -1"),
        ("1,erase,0,8\n", "erase"),
        ("1,read,0\n", "line: 1"),
    ];
    for (lines, expected) in cases {
        std::fs::write(&trace, lines).expect("it can be written");
        let (succeeded, printed, problem) = lab(&["drive", &drive, &trace]);
        assert!(!succeeded && printed.is_empty(), "{lines}");
        assert!(problem.contains(expected) && problem.contains("trace.csv"), "{problem}");
    }
    let (succeeded, _, problem) = lab(&["drive", "none.toml", &trace]);
    assert!(!succeeded && problem.contains("none.toml"), "{problem}");
}
