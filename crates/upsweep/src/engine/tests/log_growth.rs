//! The log grows with the data, step by step.

use super::ground::{Ground, allocation, geometry};
use super::{SEGMENT, config};
use crate::device::{DeviceError, Operation, Request};
use crate::engine::Config;
use crate::engine::log_growth::LogGrowth;
use crate::engine::policy::REFUSAL_US;

/// A store whose log has 8 segments and may have 64, and is short for the data.
fn ground() -> Ground {
    let mut config = config();
    config.log_regions[0].bytes = 64 * SEGMENT;
    let log = geometry(4096 + 8 * SEGMENT, true);
    let config = Config { log_times_data: 4, ..config };
    let mut ground = Ground::with(config, geometry(4 << 20, false), log);
    ground.take_space_but(1 << 20);
    fill_half(&mut ground);
    ground
}

/// The log asks to grow once half of it is in use.
fn fill_half(ground: &mut Ground) {
    let value = [b'v'; 2000];
    let log = |ground: &Ground| (ground.base.journal.log().used_bytes(), log_bytes(ground));
    while log(ground).0 * 2 <= log(ground).1 + 2 * SEGMENT {
        ground.accept(super::ground::space(), crate::engine::registry::PUT, "k", &value);
        ground.write_log();
    }
}

fn log_bytes(ground: &Ground) -> u64 {
    ground.base.journal.log().capacity_bytes()
}

fn step(ground: &mut Ground, growth: &mut LogGrowth) -> Request {
    growth.pump(&mut ground.base);
    ground.request()
}

fn end(ground: &mut Ground, growth: &mut LogGrowth, request: Request) {
    let offset = request.operation.offset();
    let completion = ground.end(request);
    growth.step_done(&mut ground.base, &completion, offset);
}

fn fail(ground: &mut Ground, growth: &mut LogGrowth, request: Request, error: DeviceError) {
    let offset = request.operation.offset();
    let completion = ground.fail(request, error);
    growth.step_done(&mut ground.base, &completion, offset);
}

#[test]
fn the_device_is_extended_then_filled_with_zeros_and_then_the_log_is_longer() {
    let (mut ground, mut growth) = (ground(), LogGrowth::new(vec![true]));
    let before = log_bytes(&ground);
    let request = step(&mut ground, &mut growth);
    assert_eq!(allocation(&request).0, 4096 + 8 * SEGMENT, "behind the log");
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty(), "one request at a time");
    end(&mut ground, &mut growth, request);
    let mut zeros = 0;
    while ground.base.journal.log().is_growing() {
        let request = step(&mut ground, &mut growth);
        let Operation::Write { ref buffer, .. } = request.operation else { panic!("{request:?}") };
        assert!(buffer.iter().all(|byte| *byte == 0));
        zeros += buffer.len() as u64;
        growth.pump(&mut ground.base);
        assert!(ground.requests().is_empty(), "one part after the other");
        end(&mut ground, &mut growth, request);
    }
    assert_eq!(log_bytes(&ground) - before, zeros, "all of what is new was written once");
    assert_eq!(ground.base.metrics.log_growths_total.get(), 1);
}

#[test]
fn a_device_without_room_is_asked_again_after_some_time() {
    let (mut ground, mut growth) = (ground(), LogGrowth::new(vec![true]));
    let before = log_bytes(&ground);
    let request = step(&mut ground, &mut growth);
    fail(&mut ground, &mut growth, request, DeviceError::NoSpace);
    assert_eq!(log_bytes(&ground), before);
    assert!(!ground.base.gate.is_closed(), "the log is as long as it was");
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    ground.base.now_us += REFUSAL_US;
    allocation(&step(&mut ground, &mut growth));
}

#[test]
fn zeros_that_cannot_be_written_close_the_store() {
    let (mut ground, mut growth) = (ground(), LogGrowth::new(vec![true]));
    let request = step(&mut ground, &mut growth);
    end(&mut ground, &mut growth, request);
    let request = step(&mut ground, &mut growth);
    fail(&mut ground, &mut growth, request, DeviceError::Failed { errno: 5 });
    assert!(ground.base.gate.is_closed(), "it has the space, so its device is broken");
}

#[test]
fn a_log_stays_as_it_is_on_a_device_that_cannot_grow_and_while_data_is_small() {
    let mut ground = ground();
    LogGrowth::new(vec![false]).pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    let small = Config { log_times_data: 0, ..ground.base.config.clone() };
    ground.base.config = small;
    LogGrowth::new(vec![true]).pump(&mut ground.base);
    assert!(ground.requests().is_empty());
}

#[test]
fn nothing_begins_while_the_store_rests() {
    let (mut ground, mut growth) = (ground(), LogGrowth::new(vec![true]));
    ground.base.gate.pause();
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    ground.base.gate.resume();
    allocation(&step(&mut ground, &mut growth));
}
