//! Each rule at its edges.

use proptest::prelude::*;

use super::*;

/// Blocks of 16 KiB to 256 KiB, and a directory of 170 bytes per block that may take 32 MiB.
const SIZES: BlockSizes =
    BlockSizes { least: 16 << 10, most: 256 << 10, directory_bytes: 32 << 20 };

/// A directory of this many blocks of this many bytes each.
fn directory(blocks: u64, bytes: u64) -> DirectorySize {
    DirectorySize { blocks, image_bytes: blocks * bytes, memory_bytes: blocks * 170 }
}

#[test]
fn blocks_grow_where_the_directory_takes_too_much_and_only_then() {
    let full = SIZES.directory_bytes / 170;
    let target = |blocks, bytes| SIZES.target(&directory(blocks, bytes), SIZES.least);
    assert_eq!(target(0, 0), 16 << 10);
    assert_eq!(target(full, 11_469), 16 << 10, "as much as it may have");
    assert_eq!(target(full + 1, 11_469), 32 << 10);
    assert_eq!(target(full + 1, 16_384), 32 << 10, "full blocks, which updates will split");
    assert_eq!(target(3 * full, 11_469), 64 << 10);
    assert_eq!(target(1000 * full, 11_469), 256 << 10, "the largest that there are");
}

#[test]
fn blocks_shrink_only_where_that_leaves_room() {
    let full = SIZES.directory_bytes / 170;
    let target = |blocks| SIZES.target(&directory(blocks, 22_938), 32 << 10);
    assert_eq!(target(full / 2), 32 << 10, "smaller ones would take all of it");
    assert_eq!(target(full * 3 / 8 + 10), 32 << 10);
    assert_eq!(target(full * 3 / 8 - 10), 16 << 10);
    assert_eq!(SIZES.target(&directory(1, 100), 256 << 10), 16 << 10);
}

proptest! {
    #[test]
    fn the_size_of_blocks_settles(image_bytes in 1u64..1 << 42, now in 0u32..5) {
        // After a cycle of the sweep with a target, the blocks have that size.
        let mut target = SIZES.least << now;
        let mut seen = Vec::new();
        for _ in 0..8 {
            let blocks = image_bytes * 10 / 7 / u64::from(target) + 1;
            let size = DirectorySize { blocks, image_bytes, memory_bytes: blocks * 170 };
            target = SIZES.target(&size, target);
            seen.push(target);
        }
        prop_assert_eq!(seen[6], seen[7], "{:?}", seen);
    }
}

#[test]
fn a_load_makes_blocks_with_which_the_directory_stays_small() {
    for mib in [1, 100, 3000, 3200, 10_000, 100_000, 500_000u64] {
        let target = SIZES.target_for(mib << 20);
        let takes = |target| (mib << 20) / u64::from(target) * 170;
        assert!(takes(target) <= SIZES.directory_bytes || target == SIZES.most, "{mib}");
        assert!(target == SIZES.least || takes(target / 2) > SIZES.directory_bytes, "{mib}");
    }
}

proptest! {
    #[test]
    fn a_target_is_the_least_times_a_power_of_two_whatever_the_figures(
        least in 0u32..1 << 20,
        most: u32,
        directory_bytes: u64,
        size in (any::<u64>(), any::<u64>(), any::<u64>()),
    ) {
        let sizes = BlockSizes { least, most, directory_bytes };
        let (blocks, image_bytes, memory_bytes) = size;
        let directory = DirectorySize { blocks, image_bytes, memory_bytes };
        let loaded = sizes.target_for(image_bytes);
        let target = sizes.target(&directory, loaded);
        for found in [loaded, target] {
            prop_assert!(found <= most.max(least.max(1)), "{found}");
            prop_assert!(found % least.max(1) == 0 && (found / least.max(1)).is_power_of_two());
        }
    }
}
