//! Volumes with the standard clients of NBD: what they are told, errors, and images there and back.
//!
//! `scripts/volume-tools` has what takes longer, or needs file systems to be mounted.

use std::path::PathBuf;

use super::common::{World, text};
use super::exports::{are_there, qemu_io, run, uri};
use super::serve::Server;

const MIB: usize = 1 << 20;

/// A world whose volumes are served at the socket.
fn served() -> (World, PathBuf, Server) {
    let world = World::new();
    let socket = world.path("nbd");
    let server = Server::with(&world, &["--unix", &text(&socket)]);
    (world, socket, server)
}

/// An image of 4 MiB with data in every other 64 KiB, in the first half.
fn image(world: &World) -> String {
    let mut content = vec![0; 4 * MIB];
    let data = content[..2 * MIB].iter_mut().enumerate().filter(|(at, _)| at / 65_536 % 2 == 0);
    data.for_each(|(at, byte)| *byte = (at * 7 / 5) as u8 | 1);
    let path = world.path("image");
    std::fs::write(&path, content).expect("written");
    text(&path)
}

/// The bytes of a volume that are data.
fn data_bytes(uri: &str) -> String {
    let totals = run("nbdinfo", &["--map", "--totals", uri]).expect("totals");
    let data = totals.lines().find(|line| line.ends_with("data"));
    data.map_or("0", |line| line.split_whitespace().next().expect("a number")).to_owned()
}

#[test]
fn nbdinfo_is_told_what_a_volume_can() {
    if !are_there(&["nbdinfo"]) {
        return;
    }
    let (world, socket, server) = served();
    world.ok("volume create", &["disk", "4MiB"]);
    let info = run("nbdinfo", &[&uri(&socket, "disk")]).expect("information");
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 4194304",
        "is_read_only: false",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "base:allocation",
        "qemu:allocation-depth",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    server.stop();
}

/// Requests below the block size: refused by a library that looks at it, performed for others.
const SMALL_REQUESTS: &str = "
def connect(name, strict):
    h = nbd.NBD()
    if not strict:
        h.set_strict_mode(0)
    h.connect_uri('nbd+unix:///' + name + '?socket=' + socket)
    return h

for name, least in [('disk', 512), ('large', 4096), ('large@monday', 4096)]:
    h = connect(name, True)
    assert h.get_block_size(nbd.SIZE_MINIMUM) == least
    assert h.get_block_size(nbd.SIZE_PREFERRED) == 4096
    h.pread(least, 3 * least)
    try:
        h.pread(least // 2, 0)
    except nbd.Error as error:
        assert error.errno == 'EINVAL', error
    else:
        raise AssertionError('it is not told')
    h.shutdown()
    h = connect(name, False)
    if not h.is_read_only():
        h.pwrite(b'odd', 3 * least - 1)
        assert h.pread(5, 3 * least - 2) == b'\\0odd\\0'
    h.shutdown()
";

#[test]
fn clients_are_told_the_block_size_of_a_volume() {
    if !are_there(&["nbdsh", "qemu-io", "nbdinfo"]) {
        return;
    }
    let (world, socket, server) = served();
    world.ok("volume create", &["disk", "4197376"]);
    world.ok("volume create", &["large", "4MiB", "--block-size", "4096"]);
    world.ok("volume snapshot", &["large", "monday"]);
    let names = format!("socket = '{}'", text(&socket));
    run("nbdsh", &["-c", &names, "-c", SMALL_REQUESTS]).expect("as told");
    // It puts blocks together itself, so a guest may have smaller ones.
    let small = ["write -P 7 512 512", "write -P 8 5k 1k", "read -P 7 512 512", "read -P 8 5k 1k"];
    qemu_io(&socket, "large", &small).expect("written");
    // The last block is half of one of 4 KiB.
    assert_eq!(run("nbdinfo", &["--size", &uri(&socket, "disk")]), Ok("4197376\n".to_owned()));
    let end =
        ["write -P 9 4095k 4k", "read -P 9 4095k 4k", "discard 4094k 5k", "read -P 9 4096k 3k"];
    qemu_io(&socket, "disk", &end).expect("written to the end");
    qemu_io(&socket, "disk", &["read -P 0 4095k 1k"]).expect_err("only whole blocks of 4 KiB");
    server.stop();
}

#[test]
fn nbdcopy_copies_between_images_and_volumes() {
    if !are_there(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let (world, socket, server) = served();
    let image = image(&world);
    world.ok("volume create", &["disk", "4MiB"]);
    world.ok("volume create", &["other", "4MiB"]);
    let [disk, other] = ["disk", "other"].map(|name| uri(&socket, name));
    let options = ["--requests=32", "--request-size=16384", "--connections=4", "--flush"];
    run("nbdcopy", &[&options[..], &[&image, &disk]].concat()).expect("to the volume");
    assert_eq!(data_bytes(&disk), "1048576", "zeros take no space");
    run("nbdcopy", &["--flush", &disk, &other]).expect("to the other volume");
    assert_eq!(data_bytes(&other), "1048576", "zeros take no space");
    let back = text(&world.path("back"));
    run("nbdcopy", &[&other, &back]).expect("from the volume");
    assert!(std::fs::read(&back).expect("a file") == std::fs::read(&image).expect("a file"));
    server.stop();
}

#[test]
fn qemu_img_converts_compares_and_benches() {
    if !are_there(&["qemu-img"]) {
        return;
    }
    let (world, socket, server) = served();
    let image = image(&world);
    let packed = text(&world.path("image.qcow2"));
    world.ok("volume create", &["disk", "4MiB"]);
    world.ok("volume create", &["other", "4MiB"]);
    let [disk, other] = ["disk", "other"].map(|name| uri(&socket, name));
    let img = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        run("qemu-img", &arguments)
    };
    img(&format!("convert -n -W -m 16 -f raw -O raw {image} {disk}")).expect("imported");
    img(&format!("compare -f raw -F raw {image} {disk}")).expect("equal");
    img(&format!("convert -c -f raw -O qcow2 {disk} {packed}")).expect("exported as qcow2");
    img(&format!("check -f qcow2 {packed}")).expect("sound");
    img(&format!("convert -n -f qcow2 -O raw {packed} {other}")).expect("imported from qcow2");
    img(&format!("compare -f raw -F raw {disk} {other}")).expect("equal");
    let ran = img(&format!("bench -f raw -w -c 500 -d 32 --flush-interval 64 {other}"));
    assert!(ran.expect("writes").contains("Run completed"));
    img(&format!("bench -f raw -c 500 -d 32 {other}")).expect("reads");
    let differs = img(&format!("compare -f raw -F raw {disk} {other}"));
    assert!(differs.expect_err("the check can fail").contains("Content mismatch at offset"));
    server.stop();
}

#[test]
fn qemu_io_sees_what_it_wrote_in_any_order() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let (world, socket, server) = served();
    world.ok("volume create", &["disk", "4MiB"]);
    let commands = [
        "aio_write -P 0x5a 0 64k",
        "aio_write -P 0x5b 64k 64k",
        "aio_flush",
        "write -f -P 0x5c 128k 1k",
        "write -z 4k 4k",
        "write -z -u 12k 4k",
        "discard 64k 8k",
        "writev -P 0x5d 200k 3k 5k 512",
        "flush",
        "read -P 0x5a 0 4k",
        "read -P 0 4k 4k",
        "read -P 0x5a 8k 4k",
        "read -P 0 12k 4k",
        "read -P 0x5a 16k 48k",
        "read -P 0 64k 8k",
        "read -P 0x5b 72k 56k",
        "read -P 0x5c 128k 1k",
        "read -P 0 129k 71k",
        "read -P 0x5d 200k 8704",
    ];
    let done = qemu_io(&socket, "disk", &commands).expect("all of them");
    assert!(!done.contains("failed"), "{done}");
    server.stop();
}

/// Requests that a volume cannot fulfil, past the checks of the library; each has its error.
const NEGATIVE_CASES: &str = "
def fails(expected, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errno == expected, error
    else:
        raise AssertionError('no ' + expected)

def connect(name):
    h = nbd.NBD()
    h.add_meta_context('base:allocation')
    h.set_strict_mode(0)
    h.connect_uri('nbd+unix:///' + name + '?socket=' + socket)
    return h

h = connect('disk')
size = h.get_size()
fails('EINVAL', lambda: h.pread(512, size - 256))
fails('EINVAL', lambda: h.pread(512, 1 << 62))
fails('ENOSPC', lambda: h.pwrite(bytes(512), size - 256))
fails('ENOSPC', lambda: h.zero(1 << 20, size - 512))
fails('EINVAL', lambda: h.trim(1 << 20, size - 512))
fails('EINVAL', lambda: h.flush(nbd.CMD_FLAG_REQ_ONE))
fails('ENOTSUP', lambda: h.zero(8192, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
fails('ENOENT', lambda: connect('nothing'))

h.pwrite(b'odd' * 1000, 4095)
h.trim(8192, 1)
assert h.pread(3002, 4094) == b'\\0o' + bytes(3000), 'a trim is of whole blocks'
h.zero(3000, 4095, nbd.CMD_FLAG_FUA)
assert h.pread(3002, 4094) == bytes(3002)

r = connect('fixed')
assert r.is_read_only()
fails('EPERM', lambda: r.pwrite(bytes(512), 0))
fails('EPERM', lambda: r.zero(512, 0))
fails('EPERM', lambda: r.trim(4096, 0))
assert r.pread(512, 0) == bytes(512)
r.shutdown()
h.shutdown()
";

/// Once the volume or the snapshot of a client is deleted.
const AFTER_ITS_END: &str = "
def volume(*arguments):
    command = [UPSWEEP, 'volume', arguments[0], STORE, *arguments[1:]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

h = connect('other')
h.pwrite(b'first', 0)
volume('snapshot', 'other', 'monday')
s = connect('other@monday')
h.pwrite(b'later', 0)
assert s.pread(5, 0) == b'first'
fails('EPERM', lambda: s.pwrite(b'no', 0))
volume('delete', 'other@monday')
volume('snapshot', 'other', 'monday')
fails('EIO', lambda: s.pread(5, 0))
fails('EIO', lambda: s.block_status(4096, 0, lambda *found: 0))
s.shutdown()
s = connect('other@monday')
assert s.pread(5, 0) == b'later'
s.shutdown()
h.pwrite(b'gone', 0)
volume('delete', 'other')
fails('EIO', lambda: h.pread(4, 0))
fails('EIO', lambda: h.pwrite(b'more', 0))
fails('ENOENT', lambda: connect('other'))
h.shutdown()
";

#[test]
fn nbdsh_gets_the_errors_of_the_specification() {
    if !are_there(&["nbdsh"]) {
        return;
    }
    let world = World::new();
    let socket = text(&world.path("nbd"));
    let server = Server::with(&world, &["--unix", &socket, "--read-only-volume", "fixed"]);
    for name in ["disk", "fixed", "other"] {
        world.ok("volume create", &[name, "4MiB"]);
    }
    let (program, store) = (env!("CARGO_BIN_EXE_upsweep"), text(&world.store()));
    let names =
        format!("import subprocess\nsocket = '{socket}'\nUPSWEEP = '{program}'\nSTORE = '{store}'");
    run("nbdsh", &["-c", &names, "-c", NEGATIVE_CASES, "-c", AFTER_ITS_END]).expect("as told");
    server.stop();
}
