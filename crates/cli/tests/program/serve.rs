//! Commands on a store that a server has open.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::common::{Run, World, refused, text};

/// A server, which is killed at the end.
pub struct Server {
    process: Child,
    /// Its first line.
    pub said: String,
    /// What it prints after that.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it, and waits until it can be used.
    pub fn start(world: &World) -> Self {
        Self::with(world, &["--memory", "64MiB"])
    }

    /// Starts it with these arguments.
    pub fn with(world: &World, arguments: &[&str]) -> Self {
        Self::of(world.command("serve", arguments))
    }

    /// Starts it by this command.
    pub fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut said = String::new();
        output.read_line(&mut said).expect("readable");
        assert!(said.starts_with("serving "), "{said}");
        Self { process, said, _output: output }
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// Waits for its end, which must come soon.
    fn wait(mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.process.try_wait().expect("observable") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not end");
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    /// Ends it.
    pub fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.wait(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn signal(process: &Child, name: &str) {
    let number = process.id().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &number]).status();
    assert!(sent.expect("kill runs").success());
}

/// An `apply` that has added 1 to `k` and waits for more.
struct Waiting {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Waiting {
    fn start(world: &World) -> Self {
        let mut process = world
            .command("apply", &["--ack-every", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let input = process.stdin.as_mut().expect("a pipe");
        input.write_all(b"add\tk\t1\n").expect("written");
        let mut said = String::new();
        output.read_line(&mut said).expect("readable");
        assert_eq!(said, "durable 1\n");
        Self { process, output }
    }

    fn feed(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().expect("a pipe");
        input.write_all(line.as_bytes()).expect("written");
    }

    /// Lets it end; its status and the rest of what it says.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.process.stdin.take());
        self.rest()
    }

    fn rest(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("readable");
        (self.process.wait().expect("ended").code(), said)
    }
}

/// What a command has printed, without times and without the folder.
fn comparable(world: &World, run: &Run) -> (Option<i32>, String, String) {
    let folder = text(world.path("").as_path());
    let plain = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        let is_time = |nth: usize| {
            let next = words.get(nth + 1).unwrap_or(&"").trim_end();
            matches!(next, "s," | "s" | "s:") || (next == "a" && words.len() > nth + 2)
        };
        let masked =
            |(nth, word): (usize, &&str)| if is_time(nth) { "N" } else { *word }.to_owned();
        let words: Vec<String> = words.iter().enumerate().map(masked).collect();
        words.join(" ").replace(&folder, "")
    };
    (run.status, plain(&run.out), plain(&run.errors))
}

#[test]
fn every_command_prints_what_it_prints_without_a_server() {
    let lines = "put\tname\tUpsweep\nadd\tpage\t1\nadd\tpage\t2\nput\twrong\ttext\nadd\twrong\t1\n";
    let steps: &[(&str, &str, &[&str])] = &[
        ("apply", lines, &[]),
        ("apply", "add\tk\n", &["--table", "never"]),
        ("create-table", "", &["cells", "--kind", "array:u8"]),
        ("create-table", "", &["cells"]),
        ("apply", "add\t7\t300\nput\t8\t5\n", &["--table", "cells"]),
        ("get", "", &["page"]),
        ("get", "", &["page", "--json"]),
        ("get", "", &["absent"]),
        ("sweep", "", &[]),
        ("scan", "", &[]),
        ("scan", "", &["--table", "cells", "--json"]),
        ("scan", "", &["--table", "absent"]),
        ("tables", "", &[]),
        ("quarantine list", "", &[]),
        ("quarantine discard", "", &["--all"]),
        ("quarantine retry", "", &["--all", "--json"]),
        ("dump", "", &[]),
        ("dump", "", &["-", "--format", "jsonl"]),
        ("load", "a\t1\nb\t2\n", &["--table", "loaded"]),
        ("load", "b\t1\na\t2\n", &["--table", "unordered"]),
        ("snapshot create", "", &["monday"]),
        ("apply", "put\tname\tlater\n", &[]),
        ("snapshot create", "", &["tuesday", "--table", "main"]),
        ("snapshot create", "", &["tuesday"]),
        ("changes", "", &["monday", "tuesday"]),
        ("scan", "", &["--at", "monday"]),
        ("clone", "", &["main", "copy", "--at", "monday"]),
        ("remove-range", "", &["--from", "n", "--to", "o", "--table", "copy"]),
        ("scan", "", &["--table", "copy"]),
        ("drop-table", "", &["copy"]),
        ("compact", "", &["main"]),
        ("snapshot drop", "", &["monday"]),
        ("tables", "", &["--json"]),
    ];
    let (with, without) = (World::new(), World::new());
    let server = Server::start(&with);
    for (command, input, arguments) in steps {
        let [found, expected] = [&with, &without]
            .map(|world| comparable(world, &world.feed(command, input, arguments)));
        assert_eq!(found, expected, "{command} {arguments:?}");
    }
    for world in [&with, &without] {
        world.ok("backup", &[&text(&world.path("backup"))]);
        assert!(world.ok("stat", &[]).contains("what bounds the speed"));
        assert!(world.ok("stat", &["--metrics"]).contains("\nupsweep_updates_total "));
    }
    server.stop();
    with.ok("verify", &[]);
    assert_eq!(with.ok("scan", &[]), without.ok("scan", &[]));
}

#[test]
fn commands_run_at_the_same_time() {
    let world = World::new();
    let server = Server::start(&world);
    let (mut first, second) = (Waiting::start(&world), Waiting::start(&world));
    assert_eq!(world.ok("get", &["k"]), "2\n");
    first.feed("add\tk\t5\n");
    let (status, said) = first.end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(world.ok("get", &["k"]), "7\n");
    assert_eq!(second.end().0, Some(0));
    server.stop();
}

#[test]
fn paths_are_those_of_the_caller() {
    let world = World::new();
    let server = Server::start(&world);
    world.file("in.tsv", "put\tk\tv\n");
    let run = |command: &str, arguments: &[&str]| {
        let mut command = world.command(command, arguments);
        let output = command.current_dir(world.path("")).output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("apply", &["in.tsv"]);
    run("dump", &["out.tsv"]);
    assert_eq!(std::fs::read_to_string(world.path("out.tsv")).expect("there"), "k\tv\n");
    run("backup", &["full", "--snapshot", "base"]);
    run("backup", &["increment", "--since", "full"]);
    assert!(world.path("increment").is_dir());
    server.stop();
}

#[test]
fn memory_is_that_of_the_server() {
    let world = World::new();
    let server = Server::start(&world);
    let run = world.run("stat", &["--memory", "1GiB", "--json"]);
    assert_eq!(run.errors.lines().count(), 1, "{}", run.errors);
    assert!(run.errors.starts_with("--memory has no effect: a server "), "{}", run.errors);
    let status: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(status["memory"]["budget"], 64 << 20);
    server.stop();
}

#[test]
fn commands_that_need_the_store_for_themselves_say_so() {
    let world = World::new();
    let server = Server::start(&world);
    let message = format!("is open in a server, process {}; this", server.process.id());
    for command in ["verify", "repair", "device profile", "serve"] {
        refused(&world.run(command, &[]), &message);
    }
    refused(&world.run("create", &[]), "exists already");
    server.stop();
    world.ok("verify", &[]);
}

#[test]
fn the_socket_of_a_killed_server_is_replaced() {
    let world = World::new();
    let mut server = Server::start(&world);
    let socket = world.store().join("server.socket");
    let mode = std::fs::metadata(&socket).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(world.apply("put\tk\tv\n", &[]).status, Some(0));
    server.process.kill().expect("killed");
    server.process.wait().expect("ended");
    assert!(socket.exists());
    assert_eq!(world.ok("get", &["k"]), "v\n", "without a server");
    let server = Server::start(&world);
    assert_eq!(world.ok("get", &["k"]), "v\n", "with one");
    server.stop();
    assert!(!socket.exists());
    world.ok("verify", &[]);
}

#[test]
fn a_killed_command_ends_in_the_server() {
    let world = World::new();
    let server = Server::start(&world);
    let mut waiting = Waiting::start(&world);
    waiting.process.kill().expect("killed");
    waiting.process.wait().expect("ended");
    // The input stays open, so the command would wait forever.
    server.stop();
    assert_eq!(world.ok("get", &["k"]), "1\n");
    drop(waiting);
}

#[test]
fn a_killed_command_ends_where_nobody_reads_on() {
    let world = World::new();
    let lines: String = (0..50_000).map(|n| format!("put\tkey{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    let server = Server::start(&world);
    let mut scan = world.command("scan", &[]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut output = BufReader::with_capacity(16, scan.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("readable");
    scan.kill().expect("killed");
    scan.wait().expect("ended");
    server.stop();
    assert_eq!(line, "key00000\tvalue0\n");
}

#[test]
fn an_interrupted_command_says_how_far_it_has_come() {
    let world = World::new();
    let server = Server::start(&world);
    let waiting = Waiting::start(&world);
    signal(&waiting.process, "INT");
    let (status, said) = waiting.rest();
    assert_eq!(status, Some(130));
    assert!(said.starts_with("applied 1 update in "), "{said}");
    assert!(said.ends_with("all are durable\n"), "{said}");
    server.stop();
}

#[test]
fn a_reader_that_goes_away_is_no_error_in_a_server() {
    let world = World::new();
    let lines: String = (0..50_000).map(|n| format!("put\tkey{n:05}\tvalue{n}\n")).collect();
    let server = Server::start(&world);
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    let mut scan = world.command("scan", &[]);
    let mut scan = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(scan.stdout.take());
    let run = Run::from(scan.wait_with_output().expect("ends"));
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    server.stop();
}

#[test]
fn a_server_that_is_told_to_end_lets_commands_end() {
    let world = World::new();
    let server = Server::start(&world);
    let socket = world.store().join("server.socket");
    let mut waiting = Waiting::start(&world);
    server.signal("TERM");
    while socket.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = world.run("get", &["k"]);
    assert!(refused.errors.contains("is in use by process"), "{}", refused.errors);
    waiting.feed("add\tk\t41\n");
    let (status, said) = waiting.end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(server.wait(), Some(0));
    assert_eq!(world.ok("get", &["k"]), "42\n");
}

#[test]
fn a_second_signal_interrupts_commands() {
    let world = World::new();
    let server = Server::start(&world);
    let waiting = Waiting::start(&world);
    server.signal("INT");
    let socket = world.store().join("server.socket");
    while socket.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let (status, said) = waiting.rest();
    assert_eq!(status, Some(130));
    assert!(said.starts_with("applied 1 update in "), "{said}");
}

#[test]
fn a_service_manager_is_told_of_beginning_and_end() {
    let world = World::new();
    let path = world.path("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let told = || {
        let mut message = [0; 100];
        let length = manager.recv(&mut message).expect("told");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut command = world.command("serve", &[]);
    command.env("NOTIFY_SOCKET", &path);
    let server = Server::of(command);
    assert_eq!(told(), "READY=1\n");
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_command_that_a_server_does_not_end_can_be_left() {
    let world = World::new();
    let listener = UnixListener::bind(world.store().join("server.socket")).expect("bound");
    let mut sweep = world.command("sweep", &[]).stderr(Stdio::piped()).spawn().expect("runs");
    let (mut socket, _) = listener.accept().expect("connected");
    socket.read_exact(&mut [0; 5]).expect("a request");
    signal(&sweep, "INT");
    let status = sweep.wait().expect("ended").code();
    assert_eq!(status, Some(130));
    let mut errors = String::new();
    sweep.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("readable");
    assert_eq!(errors, "upsweep: interrupted; the server completes what it has begun\n");
}

#[test]
fn a_server_that_ends_without_an_answer_is_an_error() {
    let world = World::new();
    let listener = UnixListener::bind(world.store().join("server.socket")).expect("bound");
    let sweep = world.command("sweep", &[]).stderr(Stdio::piped()).spawn().expect("runs");
    let (mut socket, _) = listener.accept().expect("connected");
    socket.read_exact(&mut [0; 5]).expect("a request");
    drop(socket);
    let run = Run::from(sweep.wait_with_output().expect("ended"));
    let message = format!("no answer from a server, process {}: ", std::process::id());
    refused(&run, &message);
}
