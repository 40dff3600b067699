//! Dirty bitmaps of volumes over NBD, and those of qemu beside them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::common::{World, text};
use super::exports::{are_there, qemu_io, run, uri};
use super::serve::Server;

const BLOCK: u64 = 4096;

/// The blocks of an export that have changed, as a bitmap says.
fn dirty(socket: &Path, name: &str, bitmap: &str) -> Result<BTreeSet<u64>, String> {
    let map = format!("--map=qemu:dirty-bitmap:{bitmap}");
    let map = run("nbdinfo", &[&map, &uri(socket, name)])?;
    let mut blocks = BTreeSet::new();
    for line in map.lines() {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let [offset, length, status] = [(); 3].map(|()| numbers.next().expect("a number"));
        assert!(status <= 1 && offset.is_multiple_of(BLOCK), "{map}");
        if status == 1 {
            blocks.extend(offset / BLOCK..(offset + length).div_ceil(BLOCK));
        }
    }
    Ok(blocks)
}

#[test]
fn bitmaps_have_what_changed_since_a_snapshot_or_a_mark() {
    if !are_there(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "64MiB", "--history", "1h"]);
    qemu_io(&socket, "disk", &["write 0 64k"]).expect("written");
    world.ok("volume snapshot", &["disk", "monday"]);
    qemu_io(&socket, "disk", &["write 4k 8k", "write 1M 512"]).expect("written");
    world.ok("volume mark", &["disk", "later"]);
    qemu_io(&socket, "disk", &["write -z 60k 4k", "discard 8M 1M"]).expect("written");
    let blocks = |blocks: &[u64]| Ok(blocks.iter().copied().collect());
    assert_eq!(dirty(&socket, "disk", "later"), blocks(&[15]));
    assert_eq!(dirty(&socket, "disk", "monday"), blocks(&[1, 2, 15, 256]));
    let list = run("nbdinfo", &["--list", &uri(&socket, "")]).expect("a list");
    let has = |name: &str| list.contains(&format!("qemu:dirty-bitmap:{name}\n"));
    assert!(has("monday") && has("later"), "{list}");
    // With the name of a snapshot, that is meant.
    world.ok("volume mark", &["disk", "monday"]);
    assert_eq!(dirty(&socket, "disk", "monday"), blocks(&[1, 2, 15, 256]));
    world.ok("volume delete", &["disk@monday"]);
    assert_eq!(dirty(&socket, "disk", "monday"), blocks(&[]));
    dirty(&socket, "disk", "none").expect_err("there is none");
    server.stop();
}

#[test]
fn a_bitmap_stays_as_it_was_when_a_connection_asked_for_it() {
    if !are_there(&["nbdsh", "nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    world.ok("volume create", &["disk", "1MiB"]);
    world.ok("volume snapshot", &["disk", "monday"]);
    world.ok("volume snapshot", &["disk", "tuesday"]);
    let script = r#"
def status(name):
    found = []
    def note(context, offset, extents, error):
        if context == "qemu:dirty-bitmap:" + name:
            found.extend(extents)
    h.block_status(1 << 20, 0, note)
    return found
for name in ["monday", "tuesday"]:
    h.add_meta_context("qemu:dirty-bitmap:" + name)
"#;
    let steps = r#"
h.pwrite(bytes(4096), 4096)
assert status("monday") == [4096, 0, 4096, 1, 1040384, 0], status("monday")
h.pwrite(bytes(4096), 0)
assert status("monday") == [4096, 0, 4096, 1, 1040384, 0], status("monday")
"#;
    let connect = format!("h.connect_uri({:?})", uri(&socket, "disk"));
    run("nbdsh", &["-c", script, "-c", &connect, "-c", steps]).expect("as it was asked for");
    assert_eq!(dirty(&socket, "disk", "tuesday"), Ok([0, 1].into_iter().collect()));
    // A volume that comes under the name of another one is another one.
    let renamed = r#"
import subprocess, sys
def volume(*arguments):
    subprocess.run([UPSWEEP, "volume", *arguments], check=True, stdout=sys.stderr)
volume("rename", STORE, "disk", "old")
volume("create", STORE, "disk", "1MiB")
assert status("monday") == [8192, 1, 1040384, 0], status("monday")
"#;
    let names = format!(
        "UPSWEEP = {:?}; STORE = {:?}",
        env!("CARGO_BIN_EXE_upsweep"),
        text(&world.store())
    );
    run("nbdsh", &["-c", script, "-c", &connect, "-c", &names, "-c", renamed])
        .expect("the old one");
    server.stop();
}

/// A `qemu-storage-daemon` that exports a file as `disk`, with the bitmap `monday` from its start.
struct Qemu {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Qemu {
    fn start(file: &Path, socket: &Path) -> Self {
        let mut process = Command::new("qemu-storage-daemon")
            .args(["--chardev", "stdio,id=qmp", "--monitor", "chardev=qmp"])
            .arg("--blockdev")
            .arg(format!("driver=file,node-name=disk,discard=unmap,filename={}", file.display()))
            .arg("--nbd-server")
            .arg(format!("addr.type=unix,addr.path={}", socket.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, output }
    }

    fn tell(&mut self, command: &str, arguments: &serde_json::Value) {
        let line = serde_json::json!({"execute": command, "arguments": arguments});
        let input = self.process.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("told");
        loop {
            let mut answer = String::new();
            assert!(self.output.read_line(&mut answer).expect("readable") > 0, "it has ended");
            assert!(!answer.contains("\"error\""), "{command}: {answer}");
            if answer.contains("\"return\"") {
                return;
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn bitmaps_are_those_of_qemu() {
    if !are_there(&["nbdinfo", "qemu-io", "qemu-storage-daemon"]) {
        return;
    }
    let world = World::new();
    let [ours, theirs, file] = ["ours", "theirs", "file"].map(|name| world.path(name));
    let server = Server::with(&world, &["--unix", &text(&ours)]);
    world.ok("volume create", &["disk", "8MiB"]);
    std::fs::File::create(&file).and_then(|file| file.set_len(8 << 20)).expect("made");
    let mut qemu = Qemu::start(&file, &theirs);
    qemu.tell("qmp_capabilities", &serde_json::json!({}));
    // What was zero stays clean here when it is made zero, and not there.
    qemu_io(&ours, "disk", &["write -P 1 0 8M"]).expect("written");
    world.ok("volume snapshot", &["disk", "monday"]);
    let bitmap = serde_json::json!({"node": "disk", "name": "monday", "granularity": BLOCK});
    qemu.tell("block-dirty-bitmap-add", &bitmap);
    let export = serde_json::json!({
        "type": "nbd", "id": "disk", "node-name": "disk", "writable": true, "bitmaps": ["monday"],
    });
    qemu.tell("block-export-add", &export);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    for round in 0..6 {
        let mut commands = Vec::new();
        for _ in 0..20 {
            let (sector, sectors) = (below(16_000), 1 + below(100));
            let (block, blocks) = (below(2000), 1 + below(20));
            commands.push(match below(3) {
                0 => format!("write -P {} {} {}", 2 + below(9), 512 * sector, 512 * sectors),
                1 => format!("write -z {} {}", 512 * sector, 512 * sectors),
                _ => format!("discard {} {}", BLOCK * block, BLOCK * blocks),
            });
        }
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        for socket in [&ours, &theirs] {
            qemu_io(socket, "disk", &commands).expect("written");
        }
        let [found, expected] = [&ours, &theirs].map(|socket| dirty(socket, "disk", "monday"));
        assert!(expected.as_ref().is_ok_and(|blocks| blocks.len() > 50), "{expected:?}");
        assert_eq!(found, expected, "round {round}");
    }
    server.stop();
}
