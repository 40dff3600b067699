//! Each rule at its edges.

use super::*;

const LIMITS: RunLimits = RunLimits {
    blocks: 4,
    span_bytes: 1000,
    queue_bytes: 2000,
    growth_bytes: 3000,
    density_percent: 50,
};

#[test]
fn a_run_ends_at_each_of_its_limits() {
    assert!(!LIMITS.is_too_long(3, 1000, 2000));
    assert!(LIMITS.is_too_long(4, 0, 0), "it has as many blocks as it may");
    assert!(LIMITS.is_too_long(0, 1001, 0));
    assert!(LIMITS.is_too_long(0, 0, 2001));
    assert!(LIMITS.is_too_long(usize::MAX, u64::MAX, u64::MAX));
    assert!(!LIMITS.is_full(3, 3000));
    assert!(LIMITS.is_full(4, 0) && LIMITS.is_full(0, 3001) && LIMITS.is_full(0, u64::MAX));
}

#[test]
fn half_of_a_run_waits() {
    for (waiting, span, sparse) in [(0, 0, false), (500, 1000, false), (499, 1000, true)] {
        assert_eq!(LIMITS.is_too_sparse(waiting, span), sparse, "{waiting} of {span}");
    }
    let any = RunLimits { density_percent: 0, ..LIMITS };
    assert!(!any.is_too_sparse(0, u64::MAX));
    let all = RunLimits { density_percent: 100, ..LIMITS };
    assert!(all.is_too_sparse(u64::MAX - 1, u64::MAX) && !all.is_too_sparse(u64::MAX, u64::MAX));
    assert!(RunLimits { density_percent: u32::MAX, ..LIMITS }.is_too_sparse(u64::MAX, u64::MAX));
    assert_eq!([0, 15, 16].map(RunLimits::ends_after), [false, false, true]);
}
