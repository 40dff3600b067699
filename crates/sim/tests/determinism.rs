//! One seed, one history: the same seed gives the same events and the same devices, byte for byte.

use upsweep_sim::history;

#[test]
fn equal_seeds_give_equal_histories() {
    history::catch_panics(false);
    for seed in [1, 7, 12, 77, 434, 702] {
        let (first, second) = (history::run(seed, 600), history::run(seed, 600));
        assert_eq!(first.failure, None, "seed {seed}");
        assert_eq!(first.history, second.history, "events of seed {seed}");
        assert_eq!(first.digest, second.digest, "devices of seed {seed}");
    }
}

#[test]
fn different_seeds_give_different_histories() {
    let (first, second) = (history::run(1, 50), history::run(2, 50));
    assert_ne!(first.history, second.history);
    assert_ne!(first.digest, second.digest);
}
