//! A store whose application has modifiers, or kinds of structures, that the program does not know.

use upsweep::{Modifier, Outcome, Refusal, Store, ValueKind, ValueRef};
use upsweep_bitmap::{Bitmap, BitmapKind};

use super::common::{World, refused};

/// Puts the operand backwards.
struct Backwards;

impl Modifier for Backwards {
    fn name(&self) -> &'static str {
        "backwards"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        Ok(Outcome::Put(ValueKind::Bytes, operand.iter().rev().copied().collect()))
    }
}

#[test]
fn what_needs_no_modifier_of_the_application_works() {
    let world = World::new();
    assert_eq!(world.apply("put\tk\tvalue\nadd\tk\t1\n", &["--table", "other"]).status, Some(0));
    world.ok("sweep", &[]);
    let open = || Store::builder().modifier(Backwards).open(world.store()).expect("opens");
    let store = open();
    let table = store.table("own").expect("a table");
    table.put(b"plain", b"text").expect("durable");
    store.close().expect("closed");
    assert_eq!(world.ok("get", &["plain", "--table", "own"]), "text\n", "nothing of it waits yet");

    let store = open();
    let table = store.existing_table("own").expect("the table");
    table.modify(b"turned", &Backwards, b"cba").expect("durable");
    let other = store.existing_table("other").expect("the table");
    other.put(b"late", b"too").expect("durable");
    store.close().expect("closed");
    let other = world.run("get", &["k", "--table", "other"]);
    let ended = (other.status, other.out.as_str());
    assert_eq!(ended, (Some(0), "value\n"), "{}", other.errors);
    assert!(other.errors.contains("opened for reading only"), "{}", other.errors);
    assert!(other.errors.contains("modifier \"backwards\" version 1"), "{}", other.errors);
    assert_eq!(world.ok("get", &["plain", "--table", "own"]), "text\n");
    assert!(world.ok("tables", &[]).contains("own"));
    assert!(world.ok("stat", &[]).contains("records"));
    assert_eq!(world.ok("quarantine list", &[]).lines().count(), 1);
    world.ok("verify", &[]);
    let message = "the store needs modifier \"backwards\" version 1, which is not registered";
    refused_behind_note(&world, "get", &["turned", "--table", "own"], message);
    let swept = world.run("sweep", &[]);
    assert_eq!(swept.status, Some(0), "{}", swept.errors);
    assert!(swept.errors.contains(&format!("opened for upkeep only: {message}")));
    let held = "not swept: 1 block, with waiting updates of unregistered modifiers\n";
    assert!(swept.out.ends_with(held), "{}", swept.out);
    let waiting = |name: &str| {
        let tables = world.ok("tables", &["--json"]);
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        let table = tables.lines().map(of).find(|line| line["table"] == name).expect("listed");
        table["waiting"].as_u64().expect("a number")
    };
    assert_eq!((waiting("other"), waiting("own")), (0, 2), "the other table is swept");
    refused(&world.apply("put\ta\tb\n", &[]), message);
    // The application has it, and nothing was lost meanwhile.
    let store = open();
    let table = store.existing_table("own").expect("the table");
    assert_eq!(*table.get(b"turned").expect("readable").expect("there"), *b"abc");
}

#[test]
fn a_structure_of_an_unknown_kind_is_shown_by_name_and_dropped() {
    let world = World::new();
    assert_eq!(world.apply("put\tk\tvalue\n", &["--table", "other"]).status, Some(0));
    let open = || Store::builder().kind(BitmapKind).open(world.store()).expect("opens");
    let store = open();
    let seen = Bitmap::open(&store, "seen").expect("a set");
    for member in 0..1000 {
        let _ticket = seen.insert(member * 1000).expect("durable");
    }
    store.sweep().expect("swept");
    store.close().expect("closed");

    let listed = world.ok("tables", &[]);
    let line = listed.lines().find(|line| line.starts_with("seen ")).expect("listed");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[..3], ["seen", "bitmap:15", "1,000"]);
    let json = world.ok("tables", &["--json"]);
    assert!(json.contains("\"kind\":\"bitmap:15\""), "{json}");
    world.ok("snapshot create", &["moment"]);
    assert!(world.ok("snapshot list", &["--json"]).contains("\"kind\":\"bitmap:15\""));
    assert!(world.ok("stat", &[]).contains("records"));
    world.ok("verify", &[]);
    let unknown = "\"seen\" is a structure of the kind \"bitmap:15\"; only a program that has";
    refused(&world.run("get", &["1", "--table", "seen"]), unknown);
    refused(&world.run("scan", &["--table", "seen"]), unknown);
    refused(&world.apply("add\t1\t1\n", &["--table", "seen"]), unknown);
    world.ok("clone", &["seen", "copy"]);
    let backup = world.store().with_extension("backup");
    let said = world.ok("backup", &[backup.to_str().expect("text")]);
    assert!(said.contains("left out \"seen\": only a program that has its kind"), "{said}");
    let dropped = world.ok("drop-table", &["seen"]);
    let head = "dropped \"seen\", a structure of the kind \"bitmap:15\"\n";
    assert!(dropped.starts_with(head), "{dropped}");

    // What waits for one is for its application.
    let store = open();
    let copy = Bitmap::open(&store, "copy").expect("a set");
    copy.insert(7).expect("durable");
    store.close().expect("closed");
    let swept = world.run("sweep", &[]);
    let note = "opened for upkeep only: the kind or block format \"bitmap:15\" is not registered";
    assert!(swept.status == Some(0) && swept.errors.contains(note), "{}", swept.errors);
    let read = world.run("get", &["k", "--table", "other"]);
    assert_eq!((read.status, read.out.as_str()), (Some(0), "value\n"));
    let store = open();
    let copy = Bitmap::open(&store, "copy").expect("a set");
    assert_eq!(copy.count(..).expect("readable"), 1001);
}

/// The command was refused behind the note that the store is open for reading only.
fn refused_behind_note(world: &World, command: &str, arguments: &[&str], message: &str) {
    let run = world.run(command, arguments);
    assert_eq!(run.status, Some(2), "{} {}", run.out, run.errors);
    let last = run.errors.lines().last().unwrap_or_default();
    assert!(last.contains(message), "{}", run.errors);
}
