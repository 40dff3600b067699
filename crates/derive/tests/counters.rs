//! Tests of derived structs of counters in tables.

use proptest::prelude::*;
use upsweep::typed::{CounterRule, Value};
use upsweep::{Compared, Counters, Durability, Error, RequestError, Store, TableDefinition};

#[derive(Clone, Copy, Debug, PartialEq, Counters)]
struct Sensor {
    #[counter(add)]
    readings: u64,
    #[counter(add)]
    balance: i64,
    #[counter(max)]
    hottest: f64,
    #[counter(min)]
    coldest: f64,
    #[counter(max)]
    highest: i64,
    #[counter(min)]
    lowest: u64,
    #[counter(set)]
    last: i64,
}

const SENSORS: TableDefinition<u32, Sensor> = TableDefinition::new("sensors");
/// The same table, with a different type of values.
const OTHERS: TableDefinition<u32, [u8; 8]> = TableDefinition::new("sensors");

const NEW: Sensor = Sensor {
    readings: 0,
    balance: 0,
    hottest: f64::NEG_INFINITY,
    coldest: f64::INFINITY,
    highest: i64::MIN,
    lowest: u64::MAX,
    last: 0,
};

#[test]
fn each_field_changes_by_its_rule_in_one_update() {
    let store = Store::in_memory().expect("a store");
    let sensors = store.typed(SENSORS).expect("a table");
    sensors.change(1, Sensor::change().readings(1)).expect("durable");
    assert_eq!(sensors.get(1).expect("readable"), Some(Sensor { readings: 1, ..NEW }));
    let change = Sensor::change().readings(2).balance(-5).hottest(31.5).coldest(-2.0);
    sensors.change(1, change.highest(-9).lowest(7).last(4)).expect("durable");
    store.sweep().expect("swept");
    let change = Sensor::change().balance(i64::MIN).hottest(30.0).coldest(-2.5).highest(-10);
    let (made, _) = sensors.change_and_get(1, change.lowest(8).last(-4)).expect("durable");
    let expected = Sensor {
        readings: 3,
        balance: i64::MAX - 4,
        hottest: 31.5,
        coldest: -2.5,
        highest: -9,
        lowest: 7,
        last: -4,
    };
    assert_eq!(made, expected);
    store.sweep().expect("swept");
    assert_eq!(sensors.get(1).expect("readable"), Some(expected));
    assert_eq!(store.quarantined().expect("listed"), []);
    let Compared::Differs(Some(found)) = sensors.compare_and_put(1, None, NEW).expect("ok") else {
        panic!("there is one")
    };
    assert_eq!(found, expected);
    let mut batch = store.batch();
    batch.put(&sensors, &2, &NEW).change(&sensors, &2, Sensor::change().last(3));
    batch.commit(Durability::Wait).expect("durable");
    assert_eq!(sensors.get(2).expect("readable"), Some(Sensor { last: 3, ..NEW }));
}

#[test]
fn a_struct_of_other_fields_is_refused() {
    let store = Store::in_memory().expect("a store");
    let (sensors, others) =
        (store.typed(SENSORS).expect("a table"), store.typed(OTHERS).expect("the same"));
    others.put(1, &[7; 8]).expect("durable");
    let error = sensors.get(1).expect_err("8 bytes are no 7 fields");
    assert!(matches!(error, Error::Request(RequestError::TypeMismatch { .. })), "{error}");
    let error = sensors.change_and_get(1, Sensor::change().last(1)).expect_err("refused");
    assert!(matches!(error, Error::Request(RequestError::Refused { .. })), "{error}");
    let error = sensors.change(1, Sensor::change().hottest(f64::NAN)).expect_err("no number");
    assert!(matches!(error, Error::Request(RequestError::BadOperand { .. })), "{error}");
    assert_eq!(others.get(1).expect("readable"), Some([7; 8]));
}

#[test]
fn fields_lie_in_their_order() {
    assert_eq!(Sensor::RULES[2], CounterRule::MaxF64);
    let mut bytes = Vec::new();
    Sensor::encode(Sensor { readings: 0x0102, last: -1, ..NEW }, &mut bytes).expect("written");
    assert_eq!(bytes.len(), 7 * 8);
    assert_eq!((&bytes[..8], &bytes[48..]), (&[2, 1, 0, 0, 0, 0, 0, 0][..], &[0xff; 8][..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn changes_that_wait_together_make_what_they_make_one_by_one(
        changes in prop::collection::vec(
            any::<(Option<u64>, Option<i64>, Option<i64>, Option<u64>)>(),
            200..400,
        ),
    ) {
        let store = Store::in_memory().expect("a store");
        let sensors = store.typed(SENSORS).expect("a table").with_durability(Durability::Ticket);
        let mut expected = NEW;
        for (readings, highest, last, lowest) in changes {
            let mut change = Sensor::change();
            if let Some(readings) = readings {
                change = change.readings(readings);
                expected.readings = expected.readings.wrapping_add(readings);
            }
            if let Some(highest) = highest {
                change = change.highest(highest);
                expected.highest = expected.highest.max(highest);
            }
            if let Some(last) = last {
                change = change.last(last);
                expected.last = last;
            }
            if let Some(lowest) = lowest {
                change = change.lowest(lowest);
                expected.lowest = expected.lowest.min(lowest);
            }
            // One key, with enough changes for its queue to fold them.
            sensors.change(1, change).expect("accepted");
        }
        prop_assert_eq!(sensors.get(1).expect("readable"), Some(expected));
        store.sweep().expect("swept");
        prop_assert_eq!(sensors.get(1).expect("readable"), Some(expected));
    }
}
