//! Volumes over NBD, with the clients of libnbd and qemu, and the pages of a server.
//!
//! Where a client is missing, its test says so aloud, and fails if the environment variable
//! `UPSWEEP_REQUIRE_TOOLS` is set.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{World, refused, text};
use super::serve::Server;

/// Whether these programs are there; if not, says so.
pub fn are_there(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return true;
    }
    let text = format!("\nSKIPPED, NOT TESTED: {missing:?} not installed\n");
    assert!(std::env::var_os("UPSWEEP_REQUIRE_TOOLS").is_none(), "{text}");
    // Past the capture of the test runner.
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
    false
}

/// Runs a program; what it printed, or its errors.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    if program == "nbdsh" {
        // Its library belongs to the Python of the system, of which there may be another.
        command.env("PATH", "/usr/bin:/bin");
    }
    let output = command.args(arguments).output().expect("it runs");
    let [out, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() { Ok(out) } else { Err(out + &errors) }
}

pub fn uri(socket: &Path, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", socket.display())
}

/// Runs commands of `qemu-io` on a volume, which is opened for writing if they are not all reads.
pub fn qemu_io(socket: &Path, name: &str, commands: &[&str]) -> Result<String, String> {
    let uri = uri(socket, name);
    let mut arguments = vec!["-f", "raw"];
    if commands.iter().all(|command| command.starts_with("read ")) {
        arguments.push("-r");
    }
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    run("qemu-io", &arguments)
}

#[test]
fn volumes_are_exports_while_commands_snapshot_and_clone_them() {
    if !are_there(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    assert!(run("nbdinfo", &["--size", &uri(&socket, "disk")]).is_err());
    world.ok("volume create", &["disk", "64MiB"]);
    assert_eq!(run("nbdinfo", &["--size", &uri(&socket, "disk")]), Ok("67108864\n".to_owned()));
    assert_eq!(run("nbdinfo", &["--size", &uri(&socket, "")]), Ok("67108864\n".to_owned()));
    let wrote = qemu_io(&socket, "disk", &["write -P 7 512 1M", "write -z -u 64k 64k", "flush"]);
    wrote.expect("written");
    world.ok("volume snapshot", &["disk", "monday"]);
    qemu_io(&socket, "disk", &["write -P 9 0 2M", "discard 1M 4k", "flush"]).expect("written");
    world.ok("volume clone", &["disk@monday", "was"]);
    let was = ["read -P 0 0 512", "read -P 7 512 63k", "read -P 0 64k 64k", "read -P 7 128k 512"];
    qemu_io(&socket, "was", &was).expect("as it was");
    let is = ["read -P 9 0 1M", "read -P 0 1M 4k", "read -P 9 1028k 64k"];
    qemu_io(&socket, "disk", &is).expect("as it is");
    qemu_io(&socket, "was", &["read -P 9 0 512"]).expect_err("the check can fail");
    let map = |name: &str, context: &str| {
        let map = run("nbdinfo", &[&format!("--map={context}"), &uri(&socket, name)]);
        let map = map.expect("a map");
        let line = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect();
        map.lines().map(line).collect::<Vec<Vec<String>>>()
    };
    let [kib, mib] = [1 << 10, 1 << 20];
    let extents =
        |of: &[[u64; 3]]| of.iter().map(|it| it.map(|n| n.to_string()).to_vec()).collect();
    let expected: Vec<_> = extents(&[
        [0, mib, 0],
        [mib, 4 * kib, 3],
        [mib + 4 * kib, mib - 4 * kib, 0],
        [2 * mib, 62 * mib, 3],
    ]);
    assert_eq!(map("disk", "base:allocation"), expected);
    qemu_io(&socket, "was", &["write 0 4k", "flush"]).expect("written");
    let expected: Vec<_> = extents(&[
        [0, 4 * kib, 1],
        [4 * kib, 60 * kib, 2],
        [64 * kib, 64 * kib, 0],
        [128 * kib, mib + 4 * kib - 128 * kib, 2],
        [mib + 4 * kib, 63 * mib - 4 * kib, 0],
    ]);
    assert_eq!(map("was", "qemu:allocation-depth"), expected);
    assert!(run("nbdinfo", &["--size", &uri(&socket, "")]).is_err(), "the default is unclear");
    let list = run("nbdinfo", &["--list", &uri(&socket, "")]).expect("a list");
    assert!(list.contains("export=\"disk\"") && list.contains("export=\"was\""), "{list}");
    server.stop();
    assert!(!socket.exists());
}

#[test]
fn snapshots_are_exports_that_can_be_read() {
    if !are_there(&["nbdinfo", "nbdcopy", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "64MiB"]);
    qemu_io(&socket, "disk", &["write -P 7 0 1M"]).expect("written");
    world.ok("volume snapshot", &["disk", "monday"]);
    qemu_io(&socket, "disk", &["write -P 9 0 64k"]).expect("written");
    world.ok("volume snapshot", &["disk", "tuesday"]);
    world.ok("volume resize", &["disk", "32MiB"]);
    world.ok("volume rollback", &["disk", "@tuesday"]);
    qemu_io(&socket, "disk", &["write -P 1 0 2M"]).expect("written");
    qemu_io(&socket, "disk@monday", &["read -P 7 0 1M", "read -P 0 1M 63M"]).expect("as it was");
    qemu_io(&socket, "disk@tuesday", &["read -P 9 0 64k", "read -P 7 64k 960k"]).expect("then");
    qemu_io(&socket, "disk@tuesday", &["write 0 4k"]).expect_err("read-only");
    let info = run("nbdinfo", &[&uri(&socket, "disk@tuesday")]).expect("information");
    for line in [
        "export-size: 67108864",
        "is_read_only: true",
        "can_multi_conn: true",
        "base:allocation",
        "qemu:allocation-depth",
        "qemu:dirty-bitmap:monday",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    assert!(!info.contains("dirty-bitmap:tuesday"), "{info}");
    let map = |context: &str| {
        run("nbdinfo", &[&format!("--map={context}"), &uri(&socket, "disk@tuesday")])
    };
    let words = |map: Result<String, String>| {
        let map = map.expect("a map");
        let line = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        map.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(words(map("base:allocation")), ["0 1048576 0", "1048576 66060288 3"]);
    assert_eq!(words(map("qemu:dirty-bitmap:monday")), ["0 65536 1", "65536 67043328 0"]);
    // Over several connections.
    let copy = text(&world.path("copy"));
    run("nbdcopy", &["--connections=4", &uri(&socket, "disk@monday"), &copy]).expect("copied");
    let copy = std::fs::read(&copy).expect("a file");
    assert!(copy.len() == 64 << 20 && copy[..1 << 20].iter().all(|byte| *byte == 7));
    let list = run("nbdinfo", &["--list", &uri(&socket, "")]).expect("a list");
    assert!(list.contains("export=\"disk\"") && !list.contains('@'), "{list}");
    for name in ["disk@none", "none@monday", "disk@", "@monday"] {
        run("nbdinfo", &["--size", &uri(&socket, name)]).expect_err(name);
    }
    server.stop();
}

#[test]
fn views_and_rollbacks_are_seen_by_clients() {
    if !are_there(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "64MiB", "--history", "1h"]);
    qemu_io(&socket, "disk", &["write -P 7 0 1M"]).expect("written");
    world.ok("volume mark", &["disk", "good"]);
    qemu_io(&socket, "disk", &["write -P 9 0 64k"]).expect("written");
    world.ok("volume at", &["disk", "mark:good", "was"]);
    qemu_io(&socket, "was", &["read -P 7 0 1M"]).expect("as it was");
    qemu_io(&socket, "was", &["write 0 4k"]).expect_err("read-only");
    let changed = world.ok("volume diff", &["disk", "mark:good", "--json"]);
    assert!(changed.starts_with("{\"bytes\":65536,\"offset\":0}\n"), "{changed}");
    let used = world.ok("volume df", &[]);
    assert!(used.contains("all volumes need 1.1 MiB; "), "{used}");
    let shown = world.ok("volume history", &["disk"]);
    assert!(shown.contains("  mark:good\n"), "{shown}");
    world.ok("volume rollback", &["disk", "mark:good"]);
    world.ok("volume resize", &["disk", "32MiB"]);
    qemu_io(&socket, "disk", &["read -P 7 0 1M"]).expect("as it was");
    assert_eq!(run("nbdinfo", &["--size", &uri(&socket, "disk")]), Ok("33554432\n".to_owned()));
    server.stop();
    world.ok("verify", &[]);
}

#[test]
fn a_server_notes_moments_that_are_worth_a_return() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "64MiB", "--history", "100MiB"]);
    // Moments are a second apart, and from the beginning of the history.
    std::thread::sleep(Duration::from_millis(1100));
    qemu_io(&socket, "disk", &["write -P 7 0 1M", "flush"]).expect("written");
    let began = Instant::now();
    // The client flushes, and writes nothing for a while then: whichever the server sees first.
    let noted = loop {
        let shown = world.ok("volume history", &["disk"]);
        if let Some(line) = shown.lines().find(|line| line.contains("1.0 MiB  ")) {
            break line.to_owned();
        }
        assert!(began.elapsed().as_secs() < 30, "{shown}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(noted.ends_with("  flush") || noted.ends_with("  quiet"), "{noted}");
    let time = noted.split_whitespace().next().expect("a time");
    qemu_io(&socket, "disk", &["write -P 9 0 1M"]).expect("written");
    world.ok("volume rollback", &["disk", time]);
    qemu_io(&socket, "disk", &["read -P 7 0 1M"]).expect("as it was");
    server.stop();
}

#[test]
fn what_was_flushed_survives_a_kill() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "64MiB"]);
    qemu_io(&socket, "disk", &["write -P 7 0 1M", "flush"]).expect("written");
    qemu_io(&socket, "disk", &["write -f -P 8 1M 64k"]).expect("written through");
    server.kill();
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    qemu_io(&socket, "disk", &["read -P 7 0 1M", "read -P 8 1M 64k"]).expect("there");
    server.stop();
    world.ok("verify", &[]);
}

#[test]
fn exports_for_reading_refuse_writes() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let unix = text(&socket);
    world.ok("volume create", &["disk", "1MiB"]);
    world.ok("volume create", &["other", "1MiB"]);
    let server = Server::with(&world, &["--unix", &unix, "--read-only-volume", "disk"]);
    qemu_io(&socket, "disk", &["write 0 4k"]).expect_err("read-only");
    qemu_io(&socket, "other", &["write 0 4k"]).expect("written");
    server.stop();
    let server = Server::with(&world, &["--unix", &unix, "--read-only"]);
    qemu_io(&socket, "other", &["write 0 4k"]).expect_err("read-only");
    server.stop();
}

#[test]
fn clients_see_the_volumes_that_they_may_use() {
    if !are_there(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    for name in ["disk", "other", "secret"] {
        world.ok("volume create", &[name, "1MiB"]);
    }
    let user =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(world.store()).expect("there"));
    let ours = format!("disk=uid:{user},10.0.0.7");
    let theirs = format!("secret=uid:{}", user + 1);
    let arguments = ["--unix", &text(&socket), "--allow", &ours, "--allow", &theirs];
    let server = Server::with(&world, &arguments);
    for name in ["disk", "secret"] {
        world.ok("volume snapshot", &[name, "monday"]);
    }
    qemu_io(&socket, "disk", &["write 0 4k"]).expect("allowed");
    qemu_io(&socket, "disk@monday", &["read 0 4k"]).expect("allowed");
    qemu_io(&socket, "secret@monday", &["read 0 4k"]).expect_err("not allowed");
    qemu_io(&socket, "other", &["write 0 4k"]).expect("has no list");
    qemu_io(&socket, "secret", &["read 0 4k"]).expect_err("not allowed");
    run("nbdinfo", &["--size", &uri(&socket, "secret")]).expect_err("not allowed");
    let list = run("nbdinfo", &["--list", &uri(&socket, "")]).expect("a list");
    assert!(list.contains("export=\"disk\"") && !list.contains("secret"), "{list}");
    server.stop();
    let arguments = ["--unix", &text(&socket), "--allow", &ours, "--allow", "127.0.0.0/8"];
    let server = Server::with(&world, &arguments);
    qemu_io(&socket, "other", &["read 0 4k"]).expect_err("no longer");
    qemu_io(&socket, "", &["read 0 4k"]).expect("the only one that it may use");
    server.stop();
    let run = world.run("serve", &["--allow", "disk=10.0.0.0/40"]);
    assert!(run.errors.contains("\"10.0.0.0/40\" is none of an address"), "{}", run.errors);
}

#[test]
fn requests_beyond_a_limit_wait() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    for name in ["disk", "other", "free"] {
        world.ok("volume create", &[name, "64MiB"]);
    }
    let unix = text(&socket);
    let limits = ["--iops", "disk=20", "--bytes-per-second", "other=8MiB", "--iops", "1000000"];
    let server = Server::with(&world, &[&["--unix", unix.as_str()], &limits[..]].concat());
    let seconds = |name: &str, commands: &[&str]| {
        let began = Instant::now();
        qemu_io(&socket, name, commands).expect("performed");
        began.elapsed().as_secs_f64()
    };
    // Of 22 requests at least, 2 come from the pause before.
    let took = seconds("disk", &["write 0 4k"; 22]);
    assert!(took > 0.99, "{took}");
    let took = seconds("other", &["write 0 4M", "read 0 4M", "read 0 1M"]);
    assert!(took > 1.0, "{took}");
    let took = seconds("free", &["write 0 4k"; 22]);
    assert!(took < 0.9, "{took}");
    server.stop();
    let run = world.run("serve", &["--iops", "disk=0"]);
    assert!(run.errors.contains("give a number from 1"), "{}", run.errors);
}

/// Settings that change while clients are connected.
const SETTINGS: &str = "
import subprocess, time
def set(*arguments):
    command = [UPSWEEP, 'volume', 'set', STORE, 'disk', *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

def connect(name):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.connect_uri('nbd+unix:///' + name + '?socket=' + socket)
    return h

def fails(expected, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errno == expected, error
    else:
        raise AssertionError('no ' + expected)

def seconds(h, count):
    began = time.monotonic()
    for _ in range(count):
        h.pread(4096, 0)
    return time.monotonic() - began

h = connect('disk')
s = connect('disk@monday')
set('--iops', '10')
# Of 12 requests, one comes from the pause before.
took = seconds(h, 6) + seconds(s, 6)
assert took > 1.0, took
set('--iops', 'none')
took = seconds(h, 12)
assert took < 0.9, took
set('--bytes-per-second', '20KiB')
took = seconds(h, 6)
assert took > 1.0, took
set('--bytes-per-second', 'none')

set('--quota', '64KiB')
fails('ENOSPC', lambda: h.pwrite(b'x' * 131072, 0))
h.pwrite(b'x' * 32768, 0)
set('--quota', 'none')
h.pwrite(b'x' * 131072, 0)

set('--read-only', 'yes')
fails('EPERM', lambda: h.pwrite(bytes(4096), 0))
r = connect('disk')
assert r.is_read_only()
set('--read-only', 'no')
h.pwrite(bytes(4096), 0)
fails('EPERM', lambda: r.pwrite(bytes(4096), 0))
assert not connect('disk').is_read_only()

set('--allow', f'uid:{USER + 1},10.0.0.7')
for name in ['disk', 'disk@monday']:
    fails('ENOENT', lambda: connect(name))
h.pread(4096, 0)
set('--allow', f'uid:{USER + 1}', '--allow', f'uid:{USER}')
connect('disk')
set('--allow', 'all')
connect('disk@monday')
set('--allow', f'uid:{USER + 1}')
";

#[test]
fn settings_of_volumes_count_at_once() {
    if !are_there(&["nbdsh", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    world.ok("volume create", &["disk", "1MiB"]);
    world.ok("volume snapshot", &["disk", "monday"]);
    let user =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(world.store()).expect("there"));
    let unix = text(&socket);
    let names = format!(
        "socket = '{unix}'; UPSWEEP = '{}'; STORE = '{}'; USER = {user}",
        env!("CARGO_BIN_EXE_upsweep"),
        text(&world.store())
    );
    let server = Server::with(&world, &["--unix", &unix]);
    run("nbdsh", &["-c", &names, "-c", SETTINGS]).expect("as set");
    server.stop();
    // They are kept, and come before what is given for all volumes, and after what is given for it.
    let all = format!("uid:{user}");
    let server = Server::with(&world, &["--unix", &unix, "--allow", &all]);
    qemu_io(&socket, "disk", &["read 0 4k"]).expect_err("not allowed");
    server.stop();
    let own = format!("disk=uid:{user}");
    let server = Server::with(&world, &["--unix", &unix, "--allow", &own]);
    qemu_io(&socket, "disk", &["read 0 4k"]).expect("allowed");
    server.stop();
}

/// The answer of an HTTP server to a request.
pub fn answer(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("connects");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn metrics_and_health_are_pages() {
    let world = World::new();
    let server = Server::with(&world, &["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    assert!(server.said.contains(", volumes on 127.0.0.1:"), "{}", server.said);
    let (_, address) = server.said.trim_end().split_once("metrics on http://").expect("told");
    let address = address.trim_end_matches("/metrics");
    assert_eq!(world.apply("put\tk\tv\n", &[]).status, Some(0));
    let get = |path: &str| answer(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"));
    for line in [
        "upsweep_updates_total 1",
        "upsweep_nbd_connections_open 0",
        "upsweep_nbd_requests_total{kind=\"read\"} 0",
        "upsweep_nbd_request_seconds_bucket{kind=\"write\",le=\"0.000001\"} 0",
        "upsweep_nbd_request_seconds_count{kind=\"write\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
    let head = answer(address, "HEAD /healthz HTTP/1.0\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    let post = answer(address, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    // Clients that ask for nothing hold up nobody. Each may do so for 5 s.
    let silent = [0; 3].map(|_| TcpStream::connect(address).expect("connects"));
    let began = Instant::now();
    assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(began.elapsed() < Duration::from_secs(4));
    drop(silent);
    server.stop();
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    let world = World::new();
    let file = world.file("file", "");
    refused(&world.run("serve", &["--unix", &file]), "exists and is no socket");
    let missing = text(&world.path("none.pem"));
    let tls = ["--listen", "127.0.0.1:0", "--tls-certificate", &missing, "--tls-key", &missing];
    refused(&world.run("serve", &tls), "none.pem for TLS");
    refused(&world.run("serve", &["--metrics", "nowhere"]), "--metrics nowhere: ");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "");
}
