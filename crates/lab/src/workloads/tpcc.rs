//! The changes that TPC-C makes to the indexes of its tables, by the TPC Benchmark C, Standard
//! Specification, revision 5.11; clauses are named where they are followed.
//!
//! [`TpcC`] draws transactions and yields the rows that they change, one by one. Transactions that
//! only read (Order-Status, Stock-Level) are drawn and yield nothing. Indexes are those of the
//! primary keys (1.3.1) and one of orders by customer, which Order-Status needs (2.6.2.2). The
//! table of items and an index of customers by last name never change, and are left out. The
//! database has run for some time: each district has as many orders as [`Size`] says, of which the
//! last 900 are new, as in the initial population (4.3.3.1).
//!
//! [`Layout`] numbers the rows in the order of their keys, table after table. A row takes as many
//! records of 64 bytes as hold its typical length (4.2.2). The key of the first of them stands for
//! the row. Keys of rows that come later lie between those that are there.

use std::collections::VecDeque;

use upsweep_sim::random::{Random, mix};

use crate::systems::pages::Records;

/// Districts of a warehouse (1.2.1).
pub(crate) const DISTRICTS: u64 = 10;
/// Customers of a district (1.2.1).
pub(crate) const CUSTOMERS: u64 = 3000;
/// Items, and rows of stock of a warehouse (1.2.1).
pub(crate) const ITEMS: u64 = 100_000;
/// Orders of a district that are not delivered initially (4.3.3.1).
pub(crate) const NEW_ORDERS: u64 = 900;
/// Different last names of customers (4.3.2.3).
const NAMES: u64 = 1000;
/// Lines of an order, at least and at most (2.4.1.3).
const LINES: (u64, u64) = (5, 15);
/// Bytes of a record.
pub(crate) const RECORD_BYTES: u64 = 64;
/// The distance between the keys of two records that are there initially.
const STRIDE: u64 = 1 << 30;

/// How large a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Warehouses.
    pub(crate) warehouses: u64,
    /// Orders that each district has had: 3,000 at least, as in the initial population.
    pub(crate) orders: u64,
}

/// A table or an index that changes, in the order of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Warehouse,
    District,
    Customer,
    History,
    NewOrder,
    Order,
    OrderByCustomer,
    OrderLine,
    Stock,
}

impl Table {
    /// All of them.
    const ALL: [Self; 9] = [
        Self::Warehouse,
        Self::District,
        Self::Customer,
        Self::History,
        Self::NewOrder,
        Self::Order,
        Self::OrderByCustomer,
        Self::OrderLine,
        Self::Stock,
    ];

    /// Typical length of a row (4.2.2); an entry of an index is as long as a row of new orders,
    /// and its key.
    fn row_bytes(self) -> u64 {
        match self {
            Self::Warehouse => 89,
            Self::District => 95,
            Self::Customer => 655,
            Self::History => 46,
            Self::NewOrder => 8,
            Self::Order => 24,
            Self::OrderByCustomer => 16,
            Self::OrderLine => 54,
            Self::Stock => 306,
        }
    }

    /// Records that a row takes.
    fn records_per_row(self) -> u64 {
        self.row_bytes().div_ceil(RECORD_BYTES)
    }
}

/// A row, by its key; numbers begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) table: Table,
    pub(crate) warehouse: u64,
    /// 0 where the key has no district.
    pub(crate) district: u64,
    /// Customer, order or item; in the history, which has no key, the number of its row.
    pub(crate) number: u64,
    /// The line of an order; the order in the index of orders by customer.
    pub(crate) line: u64,
}

impl Row {
    fn new(table: Table, (warehouse, district): (u64, u64), number: u64) -> Self {
        Self { table, warehouse, district, number, line: 0 }
    }
}

/// What happens to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Insert,
    Update,
    Delete,
}

/// A change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) row: Row,
}

/// The transactions (2.4 to 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// The deck of cards from which the next transaction is drawn, and how many cards it has of each
/// (5.2.4.2).
const DECK: [(Transaction, u64); 5] = [
    (Transaction::NewOrder, 10),
    (Transaction::Payment, 10),
    (Transaction::OrderStatus, 1),
    (Transaction::Delivery, 1),
    (Transaction::StockLevel, 1),
];

/// An order that is not delivered.
#[derive(Clone, Copy, Debug)]
struct Undelivered {
    customer: u64,
    lines: u64,
}

/// What changes in a district.
#[derive(Clone, Debug)]
struct District {
    next_order: u64,
    /// The last orders, up to the next one.
    undelivered: VecDeque<Undelivered>,
}

/// The constants of non-uniform random numbers (2.1.6).
#[derive(Clone, Copy, Debug)]
struct Constants {
    /// For last names, in the initial population.
    names_loaded: u64,
    /// For last names, in transactions.
    names: u64,
    customers: u64,
    items: u64,
}

impl Constants {
    fn new(random: &mut Random) -> Self {
        let names_loaded = random.between(0, 255);
        // How far the two constants for last names must be apart (2.1.6.1).
        let is_apart = |one: u64| {
            let delta = one.abs_diff(names_loaded);
            (65..=119).contains(&delta) && delta != 96 && delta != 112
        };
        let allowed: Vec<u64> = (0..=255).filter(|one| is_apart(*one)).collect();
        Self {
            names_loaded,
            names: random.pick(&allowed),
            customers: random.between(0, 1023),
            items: random.between(0, 8191),
        }
    }
}

/// A non-uniform random number in `low..=high`: NURand(A, x, y) with the constant C (2.1.6).
fn non_uniform(random: &mut Random, a: u64, c: u64, (low, high): (u64, u64)) -> u64 {
    let mixed = random.between(0, a) | random.between(low, high);
    (mixed + c) % (high - low + 1) + low
}

/// Lines of one of the orders that were there initially: even from 5 to 15 (4.3.3.1), in a fixed
/// sequence that repeats, so that they can be counted.
const OLD_LINES: [u64; 11] = [9, 14, 6, 12, 5, 15, 10, 7, 13, 8, 11];

/// Lines of the first so many old orders of a district.
fn old_lines_before(orders: u64) -> u64 {
    let (rounds, rest) = (orders / 11, orders % 11);
    rounds * OLD_LINES.iter().sum::<u64>() + OLD_LINES[..rest as usize].iter().sum::<u64>()
}

/// The stream.
pub(crate) struct TpcC {
    size: Size,
    random: Random,
    constants: Constants,
    /// The customers with each last name: the same in all districts.
    named: Vec<Vec<u64>>,
    districts: Vec<District>,
    /// Rows of the history.
    payments: u64,
    changes: VecDeque<Change>,
}

impl TpcC {
    /// Transactions on a database of this size.
    pub(crate) fn new(size: Size, seed: u64) -> Self {
        let mut random = Random::new(seed, "TPC-C");
        let constants = Constants::new(&mut random);
        let mut named = vec![Vec::new(); NAMES as usize];
        for customer in 0..CUSTOMERS {
            // The first thousand have all names, the others random ones (4.3.3.1).
            let name = match customer {
                0..NAMES => customer,
                _ => non_uniform(&mut random, 255, constants.names_loaded, (0, NAMES - 1)),
            };
            named[name as usize].push(customer);
        }
        let old = size.orders - NEW_ORDERS..size.orders;
        let district = |_| District {
            next_order: size.orders,
            undelivered: old
                .clone()
                .map(|order| Undelivered {
                    customer: random.below(CUSTOMERS),
                    lines: OLD_LINES[(order % 11) as usize],
                })
                .collect(),
        };
        let districts = (0..size.warehouses * DISTRICTS).map(district).collect();
        let (payments, changes) = (Layout { size }.rows(Table::History), VecDeque::new());
        Self { size, random, constants, named, districts, payments, changes }
    }

    /// The next change.
    pub(crate) fn next_change(&mut self) -> Change {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            self.transact();
        }
    }

    /// The changes of the next transaction that makes some.
    pub(crate) fn next_transaction(&mut self) -> Vec<Change> {
        while self.changes.is_empty() {
            self.transact();
        }
        self.changes.drain(..).collect()
    }

    /// Draws a transaction and makes its changes (5.2.4.2, 2.4 to 2.8).
    fn transact(&mut self) -> Transaction {
        let mut card = self.random.below(DECK.iter().map(|(_, cards)| cards).sum());
        let drawn = DECK.iter().find(|(_, cards)| {
            let is_it = card < *cards;
            card = card.saturating_sub(*cards);
            is_it
        });
        let transaction = drawn.map_or(Transaction::NewOrder, |(transaction, _)| *transaction);
        // All terminals are equally fast, and each warehouse has as many.
        let warehouse = self.random.below(self.size.warehouses);
        match transaction {
            Transaction::NewOrder => self.new_order(warehouse),
            Transaction::Payment => self.pay(warehouse),
            Transaction::Delivery => self.deliver(warehouse),
            Transaction::OrderStatus | Transaction::StockLevel => {}
        }
        transaction
    }

    fn change(&mut self, kind: Kind, row: Row) {
        self.changes.push_back(Change { kind, row });
    }

    fn district(&mut self, (warehouse, district): (u64, u64)) -> &mut District {
        &mut self.districts[(warehouse * DISTRICTS + district) as usize]
    }

    /// Another warehouse, or this one if there is no other.
    fn other_warehouse(&mut self, warehouse: u64) -> u64 {
        let others = self.size.warehouses - 1;
        if others == 0 {
            return warehouse;
        }
        (warehouse + 1 + self.random.below(others)) % self.size.warehouses
    }

    fn customer(&mut self) -> u64 {
        let c = self.constants.customers;
        non_uniform(&mut self.random, 1023, c, (1, CUSTOMERS)) - 1
    }

    /// The New-Order transaction (2.4).
    fn new_order(&mut self, warehouse: u64) {
        let place = (warehouse, self.random.below(DISTRICTS));
        let customer = self.customer();
        let lines = self.random.between(LINES.0, LINES.1);
        // One in a hundred names an item that does not exist, and is rolled back (2.4.1.4).
        if self.random.one_in(100) {
            return;
        }
        let district = self.district(place);
        let order = district.next_order;
        district.next_order += 1;
        district.undelivered.push_back(Undelivered { customer, lines });
        self.change(Kind::Update, Row::new(Table::District, place, 0));
        self.change(Kind::Insert, Row::new(Table::Order, place, order));
        let by_customer = Row::new(Table::OrderByCustomer, place, customer);
        self.change(Kind::Insert, Row { line: order, ..by_customer });
        self.change(Kind::Insert, Row::new(Table::NewOrder, place, order));
        for line in 0..lines {
            let c = self.constants.items;
            let item = non_uniform(&mut self.random, 8191, c, (1, ITEMS)) - 1;
            // One line in a hundred is supplied by another warehouse (2.4.1.5).
            let is_remote = self.random.one_in(100);
            let from = if is_remote { self.other_warehouse(warehouse) } else { warehouse };
            self.change(Kind::Update, Row::new(Table::Stock, (from, 0), item));
            let row = Row::new(Table::OrderLine, place, order);
            self.change(Kind::Insert, Row { line, ..row });
        }
    }

    /// The Payment transaction (2.5).
    fn pay(&mut self, warehouse: u64) {
        let place = (warehouse, self.random.below(DISTRICTS));
        // 85 of 100 pay where they live (2.5.1.2).
        let home = match self.random.percent(85) {
            true => place,
            false => (self.other_warehouse(warehouse), self.random.below(DISTRICTS)),
        };
        let customer = match self.random.percent(60) {
            true => self.customer_by_name(home),
            false => self.customer(),
        };
        self.change(Kind::Update, Row::new(Table::Warehouse, (warehouse, 0), 0));
        self.change(Kind::Update, Row::new(Table::District, place, 0));
        self.change(Kind::Update, Row::new(Table::Customer, home, customer));
        self.change(Kind::Insert, Row::new(Table::History, (0, 0), self.payments));
        self.payments += 1;
    }

    /// The customer in the middle of those with a random last name, by first name (2.5.2.2). First
    /// names are random, so that it is any of them, but always the same one.
    fn customer_by_name(&mut self, (warehouse, district): (u64, u64)) -> u64 {
        let c = self.constants.names;
        let name = non_uniform(&mut self.random, 255, c, (0, NAMES - 1));
        let named = &self.named[name as usize];
        let which = mix((warehouse * DISTRICTS + district) * NAMES + name);
        named[(which % named.len() as u64) as usize]
    }

    /// The Delivery transaction: the oldest new order of each district (2.7).
    fn deliver(&mut self, warehouse: u64) {
        for place in (0..DISTRICTS).map(|district| (warehouse, district)) {
            let district = self.district(place);
            let order = district.next_order - district.undelivered.len() as u64;
            let Some(Undelivered { customer, lines }) = district.undelivered.pop_front() else {
                continue;
            };
            self.change(Kind::Delete, Row::new(Table::NewOrder, place, order));
            let row = Row::new(Table::Order, place, order);
            self.change(Kind::Update, row);
            for line in 0..lines {
                self.change(Kind::Update, Row { table: Table::OrderLine, line, ..row });
            }
            self.change(Kind::Update, Row::new(Table::Customer, place, customer));
        }
    }
}

/// Where rows are in an index of all tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The size of the database.
    pub(crate) size: Size,
}

impl Layout {
    /// A database in which the index of each warehouse has about so many records, with as many
    /// orders as that takes.
    pub(crate) fn of(warehouses: u64, records_per_warehouse: u64) -> Self {
        let with = |orders| Self { size: Size { warehouses: 1, orders } }.records().count;
        let (none, some) = (with(CUSTOMERS), with(CUSTOMERS + 11));
        let rounds = records_per_warehouse.saturating_sub(none) / (some - none);
        Self { size: Size { warehouses, orders: CUSTOMERS + 11 * rounds } }
    }

    /// The records that the index holds initially.
    pub(crate) fn records(&self) -> Records {
        let records = |table: Table| self.rows(table) * table.records_per_row();
        Records { count: Table::ALL.into_iter().map(records).sum(), stride: STRIDE }
    }

    /// Rows of a table.
    fn rows(&self, table: Table) -> u64 {
        let Size { warehouses, orders } = self.size;
        let districts = warehouses * DISTRICTS;
        match table {
            Table::Warehouse => warehouses,
            Table::District => districts,
            Table::Customer => districts * CUSTOMERS,
            // A customer has made one payment initially (4.3.3.1); payments are as frequent as
            // orders (5.2.4.2).
            Table::History | Table::Order | Table::OrderByCustomer => districts * orders,
            Table::NewOrder => districts * NEW_ORDERS,
            Table::OrderLine => districts * old_lines_before(orders),
            Table::Stock => warehouses * ITEMS,
        }
    }

    /// The key of a row.
    pub(crate) fn key(&self, row: Row) -> u64 {
        let before = Table::ALL.into_iter().take_while(|table| *table < row.table);
        let first: u64 = before.map(|table| self.rows(table) * table.records_per_row()).sum();
        let (place, later) = self.place(row);
        (first + place * row.table.records_per_row()) * STRIDE + later
    }

    /// The number of a row in its table; of one that came later, that of the row before it, and how
    /// far it is from that.
    fn place(&self, row: Row) -> (u64, u64) {
        let Row { table, warehouse, district, number, line } = row;
        let orders = self.size.orders;
        let in_warehouse = warehouse * DISTRICTS + district;
        // Of a table with so many rows in a district: those there, or a later one.
        let in_district = |rows: u64, place: u64, later: u64| match later {
            0 => (in_warehouse * rows + place, 0),
            _ => (in_warehouse * rows + place.min(rows - 1), later),
        };
        let age = |order: u64| (order + 1).saturating_sub(orders);
        match table {
            Table::Warehouse => (warehouse, 0),
            Table::District => (in_warehouse, 0),
            Table::Customer => in_district(CUSTOMERS, number, 0),
            Table::History => {
                let rows = self.rows(table);
                (number.min(rows - 1), (number + 1).saturating_sub(rows))
            }
            Table::NewOrder => in_district(NEW_ORDERS, number + NEW_ORDERS - orders, age(number)),
            Table::Order => in_district(orders, number, age(number)),
            // Each customer has an equal share of the old orders.
            Table::OrderByCustomer => {
                in_district(orders, (number + 1) * orders / CUSTOMERS - 1, age(line))
            }
            Table::OrderLine => {
                let rows = old_lines_before(orders);
                match age(number) {
                    0 => in_district(rows, old_lines_before(number) + line, 0),
                    age => in_district(rows, rows, age * 16 + line),
                }
            }
            Table::Stock => (warehouse * ITEMS + number, 0),
        }
    }
}

#[cfg(test)]
mod tests;
