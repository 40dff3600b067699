//! Trees under any mix of operations, against plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Items, NodeId, Trees};

/// Items are their own keys.
#[derive(Default)]
struct Keys(Vec<Vec<u8>>);

impl Items for Keys {
    fn key(&self, item: u32) -> &[u8] {
        &self.0[item as usize]
    }
}

/// A forest and the expected content of every tree in it.
struct World {
    trees: Trees,
    keys: Keys,
    roots: Vec<(NodeId, BTreeMap<Vec<u8>, u32>)>,
    deferred: BTreeMap<u64, i64>,
}

impl World {
    fn new(b: usize) -> Self {
        let mut trees = Trees::new(b);
        let root = trees.create();
        let roots = vec![(root, BTreeMap::new())];
        Self { trees, keys: Keys::default(), roots, deferred: BTreeMap::new() }
    }

    fn item(&mut self, key: &[u8]) -> u32 {
        self.keys.0.push(key.to_vec());
        u32::try_from(self.keys.0.len() - 1).expect("few")
    }

    fn put(&mut self, tree: usize, key: &[u8]) {
        let item = self.item(key);
        let (root, map) = &mut self.roots[tree];
        *root = if map.insert(key.to_vec(), item).is_some() {
            self.trees.replace(*root, &self.keys, item)
        } else {
            self.trees.insert(*root, &self.keys, item)
        };
    }

    fn remove(&mut self, tree: usize, key: &[u8]) {
        let (root, map) = &mut self.roots[tree];
        if map.remove(key).is_some() {
            *root = self.trees.remove(*root, &self.keys, key);
        }
    }

    fn remove_range(&mut self, tree: usize, from: &[u8], to: Option<&[u8]>) {
        let (root, map) = &mut self.roots[tree];
        let (before, bound) = (self.trees.counters(), 4 * self.trees.depth(*root) as u64);
        *root = self.trees.remove_range(*root, &self.keys, from, to);
        let after = self.trees.counters();
        let changed = after.range_nodes_changed - before.range_nodes_changed;
        assert_eq!(changed, after.nodes_changed - before.nodes_changed);
        assert!((1..=bound).contains(&changed), "{changed} nodes changed; the bound is {bound}");
        map.retain(|key, _| key.as_slice() < from || to.is_some_and(|to| key.as_slice() >= to));
    }

    fn check(&mut self) {
        let roots: Vec<NodeId> = self.roots.iter().map(|(root, _)| *root).collect();
        let audit = self.trees.audit(&roots, &self.keys);
        assert_eq!(audit.faults, Vec::<String>::new());
        assert_eq!(&audit.cells(), self.trees.deferred(), "what is deferred is what is counted");
        for (root, map) in &self.roots {
            let found: Vec<u32> = self.trees.iter(*root).collect();
            assert_eq!(found, map.values().copied().collect::<Vec<_>>());
        }
        self.deferred = audit.cells();
    }

    fn check_searches(&self, tree: usize, key: &[u8]) {
        let (root, map) = &self.roots[tree];
        let floor = map.range(..=key.to_vec()).next_back().map(|(_, item)| *item);
        assert_eq!(self.trees.floor(*root, &self.keys, key).map(|found| found.item), floor);
        let exact = map.get(key).copied();
        assert_eq!(self.trees.exact(*root, &self.keys, key).map(|found| found.item), exact);
        let above = map.range(key.to_vec()..).find(|(found, _)| found.as_slice() > key);
        assert_eq!(self.trees.above(*root, &self.keys, key), above.map(|(_, item)| *item));
        let below = map.range(..key.to_vec()).next_back().map(|(_, item)| *item);
        assert_eq!(self.trees.below(*root, &self.keys, Some(key)), below);
    }

    /// Every key whose item differs between the trees lies in a reported range.
    fn check_difference(&self, left: usize, right: usize, from: &[u8]) {
        let ((left, of_left), (right, of_right)) = (&self.roots[left], &self.roots[right]);
        let found: Vec<_> = self.trees.difference(&self.keys, *left, *right, from).collect();
        for pair in found.windows(2) {
            assert!(pair[0].high.as_deref().is_some_and(|high| high <= &*pair[1].low));
        }
        for key in of_left.keys().chain(of_right.keys()).filter(|key| key.as_slice() >= from) {
            let differs = of_left.get(key) != of_right.get(key);
            let is_in = found.iter().any(|range| {
                *range.low <= **key
                    && range.high.as_deref().is_none_or(|high| key.as_slice() < high)
            });
            // What is in one tree only may be covered in the other by the block before it.
            assert!(is_in || !differs, "{key:?} differs, and is in none of {found:?}");
        }
        if left == right {
            assert!(found.is_empty());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u16),
    PutMany(usize, u16, u16),
    Remove(usize, u16),
    RemoveMany(usize, u16, u16),
    RemoveRange(usize, u16, Option<u16>),
    Clone(usize),
    Drop(usize),
    Release(usize),
    Compare(usize, usize, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<usize>(), any::<u16>()).prop_map(|(tree, key)| Step::Put(tree, key)),
        4 => (any::<usize>(), any::<u16>(), 0u16..400)
            .prop_map(|(tree, key, count)| Step::PutMany(tree, key, count)),
        4 => (any::<usize>(), any::<u16>()).prop_map(|(tree, key)| Step::Remove(tree, key)),
        2 => (any::<usize>(), any::<u16>(), 0u16..200)
            .prop_map(|(tree, key, count)| Step::RemoveMany(tree, key, count)),
        3 => (any::<usize>(), any::<u16>(), any::<Option<u16>>())
            .prop_map(|(tree, from, to)| Step::RemoveRange(tree, from, to)),
        3 => any::<usize>().prop_map(Step::Clone),
        2 => any::<usize>().prop_map(Step::Drop),
        3 => (1usize..50).prop_map(Step::Release),
        2 => (any::<usize>(), any::<usize>(), any::<u16>())
            .prop_map(|(left, right, from)| Step::Compare(left, right, from)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Keys of two bytes, so that most have equal prefixes; some are longer.
fn key(number: u16) -> Vec<u8> {
    let mut key = if number.is_multiple_of(7) { b"a prefix ".to_vec() } else { Vec::new() };
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn run(b: usize, steps: Vec<Step>) {
    let mut world = World::new(b);
    for step in steps {
        let count = world.roots.len();
        match step {
            Step::Put(tree, number) => world.put(tree % count, &key(number)),
            Step::PutMany(tree, number, many) => {
                for step in 0..many {
                    world.put(tree % count, &key(number.wrapping_add(step * 3)));
                }
            }
            Step::Remove(tree, number) => {
                let (_, map) = &world.roots[tree % count];
                let found = map.range(key(number)..).next().map(|(key, _)| key.clone());
                world.remove(tree % count, &found.unwrap_or_else(|| key(number)));
            }
            Step::RemoveMany(tree, number, many) => {
                for step in 0..many {
                    world.remove(tree % count, &key(number.wrapping_add(step * 3)));
                }
            }
            Step::RemoveRange(tree, from, to) => {
                let (from, to) = (key(from), to.map(key));
                if to.as_ref().is_none_or(|to| *to > from) {
                    world.remove_range(tree % count, &from, to.as_deref());
                }
            }
            Step::Clone(tree) if count < 6 => {
                let (root, map) = world.roots[tree % count].clone();
                world.roots.push((world.trees.share(root), map));
            }
            Step::Drop(tree) if count > 1 => {
                let (root, _) = world.roots.swap_remove(tree % count);
                world.trees.condemn(root);
            }
            Step::Release(portion) => world.trees.release(portion),
            Step::Compare(left, right, from) => {
                world.check_difference(left % count, right % count, &key(from));
            }
            Step::Clone(_) | Step::Drop(_) => {}
        }
        let count = world.roots.len();
        for tree in 0..count {
            world.check_searches(tree, &key(17 * u16::try_from(tree).expect("few")));
        }
        world.check();
    }
    while world.roots.len() > 1 {
        let (root, _) = world.roots.swap_remove(0);
        world.trees.condemn(root);
    }
    world.trees.release(usize::MAX);
    world.check();
    assert!(world.trees.deferred().is_empty() && !world.trees.has_sharing());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn trees_keep_their_invariants_and_equal_maps(b in 6usize..9, steps in steps()) {
        run(b, steps);
    }
}

#[test]
fn a_clone_costs_one_reference_and_shares_everything() {
    let mut world = World::new(6);
    for number in 0..5000 {
        world.put(0, &key(number));
    }
    let nodes = world.trees.node_count();
    let (root, map) = world.roots[0].clone();
    world.roots.push((world.trees.share(root), map));
    assert_eq!((world.trees.node_count(), world.trees.deferred().len()), (nodes, 1));
    world.put(1, &key(77));
    let depth = world.trees.depth(root);
    assert!(world.trees.node_count() <= nodes + 2 * depth + 1, "only a path was copied");
    world.check();
}

#[test]
fn removing_a_range_changes_few_nodes_whatever_its_length() {
    // The bound of 4 x depth nodes is checked inside.
    for part in [1i32, 10, 50, 90, 99] {
        let mut world = World::new(6);
        (0..20_000i32).for_each(|number| world.put(0, &number.to_be_bytes()));
        let to = (100 + 200 * part).to_be_bytes();
        world.remove_range(0, &100i32.to_be_bytes(), Some(&to));
        let freed = world.trees.take_freed_items().len();
        assert!(freed <= 2 * 18, "{freed} items were looked at; the others are condemned whole");
        world.check();
    }
}
