//! Updates that were refused: listing and retrying them.

use super::common::{World, refused};

/// A world in whose store one addition to a text was refused, and its ID.
fn refusal() -> (World, String) {
    let world = World::new();
    assert_eq!(world.apply("put\tk\ttext\nadd\tk\t-5\n", &[]).status, Some(0));
    world.ok("sweep", &[]);
    let list = world.ok("quarantine list", &[]);
    let id = list.split('\t').next().expect("an ID").to_owned();
    (world, id)
}

#[test]
fn what_is_refused_can_be_listed_and_retried() {
    let (world, id) = refusal();
    let list = world.ok("quarantine list", &[]);
    assert!(list.contains("\tmain\tadd_i64\tk\t-5\t"), "{list}");
    let json: serde_json::Value =
        serde_json::from_str(&world.ok("quarantine list", &["--json"])).expect("JSON");
    assert_eq!(json["operand"], -5);
    assert_eq!(world.apply("delete\tk\n", &[]).status, Some(0));
    refused(&world.run("quarantine retry", &["00"]), "no update \"00\" in quarantine");
    refused(&world.run("quarantine retry", &["0g"]), "no update \"0g\" in quarantine");
    assert_eq!(world.ok("quarantine retry", &[&id]), "declared 1 update anew\n");
    assert_eq!(world.ok("get", &["k"]), "-5\n");
    assert_eq!(world.ok("quarantine retry", &["--all"]), "declared 0 updates anew\n");
    assert_eq!(world.ok("quarantine list", &[]), "nothing is in quarantine\n");
}

#[test]
fn what_was_retried_before_a_failure_is_reported() {
    let (world, id) = refusal();
    let run = world.run("quarantine retry", &[&id, &id]);
    refused(&run, &format!("no update \"{id}\" in quarantine"));
    assert_eq!(run.out, "declared 1 update anew\n");
}

#[test]
fn waiting_updates_are_mentioned() {
    let world = World::new();
    assert_eq!(world.apply("put\tk\ttext\nadd\tk\t5\nadd\tl\t5\n", &[]).status, Some(0));
    let run = world.run("quarantine list", &[]);
    assert_eq!((run.status, run.out.as_str()), (Some(0), "nothing is in quarantine\n"));
    assert!(run.errors.starts_with("3 updates wait for a sweep"), "{}", run.errors);
    world.ok("sweep", &[]);
    let run = world.run("quarantine list", &[]);
    assert_eq!((run.out.lines().count(), run.errors.as_str()), (1, ""));
}

#[test]
fn updates_of_dropped_tables_leave_the_quarantine() {
    let (world, _) = refusal();
    let lines = "put\tk\ttext\nadd\tk\t1\n";
    assert_eq!(world.apply(lines, &["--table", "other"]).status, Some(0));
    world.ok("sweep", &[]);
    let store = upsweep::Store::open(world.store()).expect("opens");
    store.drop_table("main").expect("dropped");
    drop(store);
    assert_eq!(world.apply("delete\tk\n", &["--table", "other"]).status, Some(0));
    let retried = world.ok("quarantine retry", &["--all"]);
    assert_eq!(retried, "declared 1 update anew; 1 removed, their tables are gone\n");
    assert_eq!(world.ok("get", &["k", "--table", "other"]), "1\n");
    assert_eq!(world.ok("quarantine list", &[]), "nothing is in quarantine\n");
    assert_eq!(
        world.ok("quarantine retry", &["--all", "--json"]),
        "{\"removed\":0,\"retried\":0}\n"
    );
}

#[test]
fn updates_of_a_damaged_block_are_listed_as_they_were_given() {
    let world = World::new();
    assert_eq!(world.apply("put\told\tvalue\n", &[]).status, Some(0));
    world.ok("sweep", &[]);
    let path = world.store().join("data-0");
    let mut content = std::fs::read(&path).expect("readable");
    let at = content.windows(5).position(|bytes| bytes == b"value").expect("there");
    content[at] ^= 1;
    std::fs::write(&path, content).expect("written");
    assert_eq!(world.apply("put\tk\tv\\tw\n", &[]).status, Some(0));
    world.run("sweep", &[]);
    let list = world.ok("quarantine list", &[]);
    assert_eq!(list.lines().count(), 1, "{list}");
    assert_eq!(list.split('\t').count(), 6, "{list}");
    assert!(list.contains("\tmain\tput\tk\tv\\tw\t"), "{list}");
}

#[test]
fn what_is_refused_can_be_discarded() {
    let (world, id) = refusal();
    refused(&world.run("quarantine discard", &["00"]), "no update \"00\" in quarantine");
    assert_eq!(world.ok("quarantine discard", &[&id]), "discarded 1 update\n");
    assert_eq!(world.ok("quarantine list", &[]), "nothing is in quarantine\n");
    let run = world.run("quarantine discard", &[&id]);
    refused(&run, &format!("no update \"{id}\" in quarantine"));
    assert_eq!(world.ok("get", &["k"]), "text\n");
    assert_eq!(world.ok("quarantine discard", &["--all", "--json"]), "{\"discarded\":0}\n");
}

#[test]
fn what_to_retry_has_to_be_said() {
    let run = World::new().run("quarantine retry", &[]);
    assert_eq!(run.status, Some(2));
    assert!(run.errors.contains("<ID|--all>"), "{}", run.errors);
}
