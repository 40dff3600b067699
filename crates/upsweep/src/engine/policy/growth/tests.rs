//! Each rule at its edges.

use proptest::prelude::*;

use super::*;

const SPACE: FileSpace = FileSpace {
    step_bytes_min: 1 << 20,
    granule_bytes: 4096,
    kept_bytes_min: 1 << 20,
    window_us: 0,
};

#[test]
fn the_reserve_is_twice_what_waits_and_a_unit_for_each_block() {
    assert_eq!(reserved_bytes(&Demand::default()), 0);
    let demand = Demand { waiting_bytes: 10, blocks: 3, copied_bytes: 5, kept_bytes: 7 };
    assert_eq!(reserved_bytes(&demand), 20 + 3 * 4096 + 5 + 7);
    let huge = Demand { waiting_bytes: u64::MAX, blocks: u64::MAX, ..demand };
    assert_eq!(reserved_bytes(&huge), u64::MAX);
}

#[test]
fn a_checkpoint_and_two_runs_are_kept() {
    assert_eq!(checkpoint_bytes(0, 0, 0), 2 * 4096, "the root, and what lists it");
    assert_eq!(checkpoint_bytes(3, 10, 100), 5 * 4096 + 640 + 200);
    assert_eq!(checkpoint_bytes(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(shadow_bytes(100, 1600), 100);
    assert_eq!(shadow_bytes(101, 1600), 100, "a sixteenth of the devices");
    assert_eq!(shadow_bytes(u64::MAX, 0), 0);
    assert_eq!(kept_bytes(7, 100), 207);
    assert_eq!(kept_bytes(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn devices_grow_before_anybody_waits() {
    let ahead = ahead_bytes(1000, &SPACE);
    assert_eq!(ahead, 1000 + (1 << 19));
    for (short, free, can_grow, wanted) in [
        (0, ahead, true, 0),
        (0, ahead - 1, true, 1),
        (0, 0, false, 0),
        (5, ahead, true, 5),
        (5, ahead - 9, true, 9),
        (5, 0, false, 5),
    ] {
        assert_eq!(growth_wanted(short, free, ahead, can_grow), wanted, "{short} {free}");
    }
    assert_eq!(ahead_bytes(u64::MAX, &SPACE), u64::MAX);
}

#[test]
fn a_step_is_an_eighth_of_the_device_or_four_times_what_lacks() {
    let step = |capacity, bytes| step_bytes(capacity, bytes, &SPACE);
    assert_eq!(step(0, 0), 1 << 20, "the least");
    assert_eq!(step(8 << 20, 1 << 18), 1 << 20);
    assert_eq!(step((8 << 20) + 8, 0), (1 << 20) + 4096, "whole granules");
    assert_eq!(step(0, (1 << 18) + 1), (1 << 20) + 4096);
    assert_eq!(step(u64::MAX, u64::MAX) % 4096, 4095, "as much as there are numbers for");
}

#[test]
fn a_device_grows_by_what_was_not_refused_or_not_at_all() {
    let by = |end, bytes, step_max| extension_bytes(end, bytes, 1 << 20, step_max, &SPACE);
    assert_eq!(by(0, 1, ANY_STEP), Some(1 << 20));
    assert_eq!(by(0, 1, 8192), Some(8192));
    assert_eq!(by(0, 8192, 8192), Some(8192));
    assert_eq!(by(0, 8193, 8192), None, "less than is needed");
    assert_eq!(by(0, 0, 4096), Some(4096));
    assert_eq!(by(0, 0, 4095), None, "not a granule");
    assert_eq!(by(DEVICE_BYTES_MAX - 4096, 1, ANY_STEP), Some(4096), "as long as one may be");
    assert_eq!(by(DEVICE_BYTES_MAX, 1, ANY_STEP), None);
    assert_eq!(by(u64::MAX, u64::MAX, u64::MAX), None);
}

#[test]
fn a_refused_step_is_halved_down_to_one_granule() {
    let halves = [0, 4096, 8191, 8192, 3 * 8192].map(|gain| half_step(gain, &SPACE));
    assert_eq!(halves, [0, 0, 0, 4096, 3 * 4096]);
    assert_eq!([0, 4096, ANY_STEP, u64::MAX].map(doubled_step), [0, 8192, ANY_STEP, ANY_STEP]);
}

#[test]
fn what_goes_back_leaves_a_quarter_of_what_is_used() {
    for (spare, used, excess) in [
        (0, 0, 0),
        (1 << 20, 0, 0),
        ((1 << 20) + 1, 4 << 20, 1),
        ((1 << 20) + 1, (4 << 20) + 4, 0),
        (u64::MAX, u64::MAX, u64::MAX - u64::MAX / 4),
    ] {
        assert_eq!(excess_bytes(spare, used, &SPACE), excess, "{spare} {used}");
    }
    // What a step adds to a device in use is never an excess.
    for used in [0, 1 << 20, 100 << 20, 1 << 40] {
        let space = FileSpace::default();
        let after = step_bytes(used, 0, &space) + space.step_bytes_min / 2;
        assert_eq!(excess_bytes(after, used, &space), 0, "{used}");
    }
}

#[test]
fn extents_leave_a_part_of_the_devices_to_updates() {
    let margin_mib = |capacity_mib: u64| extent_margin_bytes(capacity_mib << 20) >> 20;
    let found = [64, 256, 1024, 2048, 1 << 17, 1 << 30].map(margin_mib);
    assert_eq!(found, [2, 8, 8, 16, 1024, 1024]);
}

#[test]
fn the_log_is_as_long_as_so_many_times_the_data_over_all_its_devices() {
    assert_eq!(log_bytes_wanted(100, 4, 2), 200);
    assert_eq!(log_bytes_wanted(100, 0, 2), 0);
    assert_eq!(log_bytes_wanted(0, u32::MAX, 1), 0);
    assert_eq!(log_bytes_wanted(u64::MAX, u32::MAX, 1), u64::MAX);
    assert_eq!(log_bytes_wanted(100, 4, 0), 400, "no device: no division");
}

proptest! {
    #[test]
    fn an_extension_has_room_for_what_lacks(
        figures in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        granule_bytes in 0u64..1 << 20,
    ) {
        let space = FileSpace { granule_bytes, ..SPACE };
        let (end, bytes, capacity, step_max) = figures;
        let step = step_bytes(capacity, bytes, &space);
        if let Some(found) = extension_bytes(end, bytes, step, step_max, &space) {
            prop_assert!(found >= bytes && found <= step_max && found > 0);
            prop_assert!(end + found <= DEVICE_BYTES_MAX);
        }
    }

    #[test]
    fn the_reserve_grows_with_each_figure(
        demand in (0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40, 0u64..1 << 40),
        which in 0usize..4,
    ) {
        let (waiting_bytes, blocks, copied_bytes, kept_bytes) = demand;
        let less = Demand { waiting_bytes, blocks, copied_bytes, kept_bytes };
        let mut more = less;
        *[&mut more.waiting_bytes, &mut more.blocks, &mut more.copied_bytes, &mut more.kept_bytes]
            [which] += 1;
        prop_assert!(reserved_bytes(&more) > reserved_bytes(&less));
    }
}
