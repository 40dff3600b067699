//! The generator against what the specification says.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SIZE: Size = Size { warehouses: 4, orders: CUSTOMERS };

fn count<T>(all: &[T], is_it: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|one| is_it(one)).count() as f64
}

/// The changes of each of so many transactions.
fn transactions(size: Size, count: usize) -> Vec<(Transaction, Vec<Change>)> {
    let mut stream = TpcC::new(size, 1);
    let one = |_| (stream.transact(), stream.changes.drain(..).collect());
    (0..count).map(one).collect()
}

fn of(all: &[(Transaction, Vec<Change>)], which: Transaction) -> Vec<&[Change]> {
    let found = all.iter().filter(|(transaction, _)| *transaction == which);
    found.map(|(_, changes)| changes.as_slice()).collect()
}

/// Clause 4.2.2: cardinality for each warehouse, and with it the size of each table.
#[test]
fn a_warehouse_has_the_rows_and_the_bytes_of_the_specification() {
    let layout = Layout { size: Size { warehouses: 1, orders: CUSTOMERS } };
    let tables = [
        (Table::Warehouse, 1, 89),
        (Table::District, 10, 950),
        (Table::Customer, 30_000, 19_650_000),
        (Table::History, 30_000, 1_380_000),
        (Table::Order, 30_000, 720_000),
        (Table::NewOrder, 9_000, 72_000),
        (Table::Stock, 100_000, 30_600_000),
    ];
    for (table, rows, bytes) in tables {
        assert_eq!((layout.rows(table), layout.rows(table) * table.row_bytes()), (rows, bytes));
    }
    // About 300,000 lines: ten for each order, evenly from 5 to 15.
    let lines = layout.rows(Table::OrderLine);
    assert!(lines.abs_diff(300_000) < 300, "{lines}");
    let different: BTreeSet<u64> = OLD_LINES.into_iter().collect();
    assert_eq!(different, (5..=15).collect());
}

/// Clause 2.1.6, by counting what the formula gives for all pairs of its two random numbers.
#[test]
fn non_uniform_numbers_have_the_distribution_of_the_formula() {
    let (a, c, low, high) = (255, 123, 0, 999);
    let mut expected = vec![0.0; 1000];
    for one in 0..=a {
        for other in low..=high {
            expected[(((one | other) + c) % (high - low + 1) + low) as usize] += 1.0;
        }
    }
    let pairs = (a + 1) as f64 * 1000.0;
    let (mut random, draws) = (Random::new(1, "test"), 2_000_000);
    let mut found = vec![0.0; 1000];
    for _ in 0..draws {
        found[non_uniform(&mut random, a, c, (low, high)) as usize] += 1.0;
    }
    let mut chi_squared = 0.0;
    for (expected, found) in expected.iter().zip(&found) {
        let wanted: f64 = expected / pairs * f64::from(draws);
        if wanted == 0.0 {
            assert_eq!(*found, 0.0);
        } else {
            let off: f64 = found - wanted;
            chi_squared += off * off / wanted;
        }
    }
    // About 1,000 degrees of freedom, with a standard deviation of 45.
    assert!((700.0..1300.0).contains(&chi_squared), "{chi_squared}");
}

/// Clause 2.1.6.1.
#[test]
fn the_constants_for_last_names_are_apart() {
    for seed in 0..500 {
        let constants = Constants::new(&mut Random::new(seed, "constants"));
        let delta = constants.names.abs_diff(constants.names_loaded);
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{constants:?}");
        assert!(constants.customers <= 1023 && constants.items <= 8191, "{constants:?}");
    }
}

/// Clauses 5.2.3 and 5.2.4.2.
#[test]
fn transactions_have_the_mix_of_the_deck() {
    let all = transactions(SIZE, 100_000);
    let share = |which| 100.0 * count(&all, |(found, _)| *found == which) / all.len() as f64;
    for (which, cards) in DECK {
        let expected = 100.0 * cards as f64 / 23.0;
        assert!((share(which) - expected).abs() < 0.5, "{which:?}: {}", share(which));
    }
    // The least of each type.
    assert!(share(Transaction::Payment) >= 43.0 - 0.5);
    let others = [Transaction::OrderStatus, Transaction::Delivery, Transaction::StockLevel];
    assert!(others.into_iter().all(|which| share(which) >= 4.0));
}

/// Clause 2.4: items of an order, remote stock, roll-backs, and what is inserted and updated.
#[test]
fn a_new_order_changes_what_the_specification_says() {
    let all = transactions(SIZE, 100_000);
    let orders = of(&all, Transaction::NewOrder);
    let rolled_back = count(&orders, |changes| changes.is_empty());
    assert!((rolled_back / orders.len() as f64 - 0.01).abs() < 0.003, "{rolled_back}");
    let mut lines = BTreeMap::<u64, f64>::new();
    let (mut remote, mut items) = (0.0, 0.0);
    for changes in orders.iter().filter(|changes| !changes.is_empty()) {
        let rows = |kind, table| {
            let found = changes.iter().filter(move |one| one.kind == kind);
            found.map(|one| one.row).filter(move |row| row.table == table).collect::<Vec<_>>()
        };
        let inserted = rows(Kind::Insert, Table::OrderLine);
        let stock = rows(Kind::Update, Table::Stock);
        assert_eq!(inserted.len(), stock.len());
        for table in [Table::Order, Table::NewOrder, Table::OrderByCustomer] {
            assert_eq!(rows(Kind::Insert, table).len(), 1, "{table:?}");
        }
        let districts = rows(Kind::Update, Table::District);
        assert_eq!((districts.len(), changes.len()), (1, 4 + 2 * stock.len()));
        *lines.entry(stock.len() as u64).or_default() += 1.0;
        remote += count(&stock, |row| row.warehouse != districts[0].warehouse);
        items += stock.len() as f64;
    }
    assert!((remote / items - 0.01).abs() < 0.002, "{remote} of {items}");
    let made: f64 = lines.values().sum();
    assert_eq!(lines.keys().copied().collect::<Vec<_>>(), (5..=15).collect::<Vec<_>>());
    assert!(lines.values().all(|of_it| (of_it / made - 1.0 / 11.0).abs() < 0.01), "{lines:?}");
}

/// Clause 2.5: where customers pay, and who they are.
#[test]
fn a_payment_changes_what_the_specification_says() {
    let all = transactions(SIZE, 100_000);
    let payments = of(&all, Transaction::Payment);
    let tables = [Table::Warehouse, Table::District, Table::Customer, Table::History];
    let found = |changes: &[Change]| changes.iter().map(|one| one.row.table).collect::<Vec<_>>();
    assert!(payments.iter().all(|changes| found(changes) == tables));
    let remote = count(&payments, |changes| changes[2].row.warehouse != changes[0].row.warehouse);
    let share = remote / payments.len() as f64;
    assert!((share - 0.15).abs() < 0.01, "{share}");
    // By last name, the first thousand customers are found more often than by number alone.
    let first = count(&payments, |changes| changes[2].row.number < NAMES);
    let share = first / payments.len() as f64;
    assert!((0.34..0.60).contains(&share), "{share}");
}

/// Clause 2.7: the oldest new order of each district; orders are delivered in turn.
#[test]
fn a_delivery_takes_the_oldest_new_order_of_each_district() {
    let mut stream = TpcC::new(SIZE, 1);
    stream.deliver(2);
    let first: Vec<Change> = stream.changes.drain(..).collect();
    let deleted: Vec<Row> =
        first.iter().filter(|one| one.kind == Kind::Delete).map(|one| one.row).collect();
    let expected: Vec<Row> = (0..DISTRICTS)
        .map(|district| Row::new(Table::NewOrder, (2, district), CUSTOMERS - NEW_ORDERS))
        .collect();
    assert_eq!(deleted, expected);
    let lines = count(&first, |one| one.row.table == Table::OrderLine);
    let of_each = OLD_LINES[((CUSTOMERS - NEW_ORDERS) % 11) as usize];
    assert_eq!(lines, (DISTRICTS * of_each) as f64);
    assert_eq!(first.len() as u64, DISTRICTS * (3 + of_each));
    (1..NEW_ORDERS).for_each(|_| stream.deliver(2));
    stream.changes.clear();
    stream.deliver(2);
    assert!(stream.changes.is_empty(), "there is nothing to deliver (2.7.4.2)");
}

/// Rows that are there have the keys of records, each its own; later rows lie where they belong.
#[test]
fn keys_are_in_the_order_of_rows() {
    let layout = Layout { size: Size { warehouses: 2, orders: 3100 } };
    let mut stream = TpcC::new(layout.size, 3);
    let mut keys = BTreeMap::new();
    for _ in 0..200_000 {
        let Change { kind, row } = stream.next_change();
        let key = layout.key(row);
        if let Some(other) = keys.insert(row, key) {
            assert_eq!(other, key);
        }
        let is_there = key.is_multiple_of(STRIDE) && key / STRIDE < layout.records().count;
        assert!(is_there || kind != Kind::Update || row.number >= 3100, "{row:?}");
        assert!(!is_there || kind != Kind::Insert, "{row:?}");
    }
    let ascending: Vec<u64> = keys.into_values().collect();
    assert!(ascending.len() > 50_000 && ascending.is_sorted_by(|one, next| one < next));
}

#[test]
fn an_index_has_about_as_many_records_as_asked_for() {
    for wanted in [2_000_000, 9_000_000] {
        let records = Layout::of(3, wanted).records().count;
        assert!(records.abs_diff(3 * wanted) < wanted / 100, "{records} of 3 times {wanted}");
    }
}
