//! Clients of others, where they are installed: of Debian, `libnbd-bin`, `python3-libnbd` and
//! `qemu-utils`.
//!
//! A test whose program is missing says so aloud. It fails then if the environment variable
//! `UPSWEEP_REQUIRE_TOOLS` is set.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use upsweep_nbd::TlsMode;

use crate::disk::{BLOCK, SIZE};
use crate::encryption::Certificates;
use crate::running::{start, start_with};

/// Whether all of these programs are there.
fn are_there(programs: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&str| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|name| !is_there(name)).collect();
    if missing.is_empty() {
        return true;
    }
    let text = format!("SKIPPED, NOT TESTED: {} not installed", missing.join(", "));
    assert!(std::env::var_os("UPSWEEP_REQUIRE_TOOLS").is_none(), "{text}");
    // Past the capture of the test runner.
    let mut terminal = std::io::stderr();
    std::io::Write::write_all(&mut terminal, format!("\n{text}\n").as_bytes()).expect("stderr");
    false
}

/// Runs it and returns what it prints, if it succeeds.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    if program == "nbdsh" {
        // Its library belongs to the Python of the system, of which there may be another.
        command.env("PATH", "/usr/bin:/bin");
    }
    let output = command.args(arguments).output().expect("the program is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(out) } else { Err(format!("{program}: {out}{error}")) }
}

fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

/// A file with data, zeros and data.
fn image(folder: &TempDir) -> (String, Vec<u8>) {
    let mut content = vec![0; SIZE / 2];
    for (at, byte) in content.iter_mut().enumerate().filter(|(at, _)| at / 65_536 % 2 == 0) {
        *byte = (at * 7 / 5) as u8 | 1;
    }
    let path = folder.path().join("image");
    std::fs::write(&path, &content).expect("a file");
    (path.display().to_string(), content)
}

#[test]
fn nbdinfo_sees_exports_and_what_they_can() {
    if !are_there(&["nbdinfo"]) {
        return;
    }
    let running = start();
    let socket = running.socket();
    assert_eq!(run("nbdinfo", &["--size", &uri(&socket, "disk")]), Ok(format!("{SIZE}\n")));
    let info = run("nbdinfo", &[&uri(&socket, "")]).expect("information");
    let lines = [
        "can_multi_conn: true",
        "can_fua: true",
        "can_zero: true",
        "can_fast_zero: true",
        "can_df: true",
        "is_read_only: false",
        "block_size_preferred: 4096",
        "base:allocation",
    ];
    assert!(lines.iter().all(|line| info.contains(line)), "{info}");
    let list = run("nbdinfo", &["--list", &uri(&socket, "")]).expect("a list");
    assert!(list.contains("export=\"disk\"") && list.contains("description: a disk"), "{list}");
    let cookie = uri(&socket, "nothing");
    assert!(run("nbdinfo", &[&cookie]).expect_err("no export").contains("No such file"));
    let map = run("nbdinfo", &["--map", &uri(&socket, "disk")]).expect("a map");
    let words: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(words, ["0", &SIZE.to_string(), "3", "hole,zero"]);
    running.stop();
}

#[test]
fn nbdcopy_copies_there_and_back() {
    if !are_there(&["nbdcopy"]) {
        return;
    }
    let running = start();
    let (image, content) = image(&running.folder);
    let there = uri(&running.socket(), "disk");
    let options = ["--requests=32", "--request-size=16384", "--connections=4", "--flush"];
    run("nbdcopy", &[&options[..], &[&image, &there]].concat()).expect("a copy");
    assert!(running.disk().stable()[..content.len()] == content);
    let back = running.folder.path().join("back");
    run("nbdcopy", &[&there, &back.display().to_string()]).expect("a copy");
    assert!(std::fs::read(&back).expect("a file") == running.disk().content());
    running.stop();
}

#[test]
fn qemu_img_converts_and_compares() {
    if !are_there(&["qemu-img"]) {
        return;
    }
    let running = start();
    let (image, content) = image(&running.folder);
    let there = uri(&running.socket(), "disk");
    let options = ["convert", "-n", "-f", "raw", "-O", "raw", "--target-is-zero", "-m", "16", "-W"];
    run("qemu-img", &[&options[..], &[&image, &there]].concat()).expect("a conversion");
    assert!(running.disk().content()[..content.len()] == content);
    let limits = format!("driver=raw,size={},file.driver=nbd", content.len());
    let limited = format!("{limits},file.path={},file.export=disk", running.socket().display());
    let compared = ["compare", "--image-opts"];
    let file = format!("driver=raw,file.filename={image}");
    run("qemu-img", &[&compared[..], &[&file, &limited]].concat()).expect("equal images");
    let map = run("qemu-img", &["map", "--output=json", "--image-opts", &limited]).expect("a map");
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
    running.stop();
}

#[test]
fn qemu_io_writes_patterns_zeros_and_flushes() {
    if !are_there(&["qemu-io"]) {
        return;
    }
    let running = start();
    let there = uri(&running.socket(), "disk");
    let commands = [
        "aio_write -P 0x5a 0 64k",
        "aio_write -P 0x5b 64k 64k",
        "aio_flush",
        "write -f -P 0x5c 128k 1k",
        "write -z -u 4k 4k",
        "discard 64k 8k",
        "flush",
        "read -P 0x5a 0 4k",
        "read -P 0 4k 4k",
        "read -P 0x5a 8k 56k",
        "read -P 0x5b 72k 56k",
        "read -P 0x5c 128k 1k",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", *command]));
    arguments.push(&there);
    let output = run("qemu-io", &arguments).expect("commands that work");
    assert!(!output.contains("failed") && !output.contains("error"), "{output}");
    let stable = running.disk().stable();
    assert!(stable[..4096] == [0x5a; 4096] && stable[4096..8192] == [0; 4096]);
    let bad = format!("read {} {BLOCK}", SIZE - BLOCK);
    let output = run("qemu-io", &["-f", "raw", "-c", &bad, &there]);
    let text = output.unwrap_or_else(|text| text);
    assert!(text.contains("Input/output error"), "{text}");
    running.stop();
}

/// Requests that no export can fulfil, past the checks of the library; each has its error.
const NEGATIVE_CASES: &str = "
def fails(expected, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errno == expected, error
    else:
        raise AssertionError('no ' + expected)

h.set_strict_mode(0)
h.connect_uri(uri)
size = h.get_size()
fails('EINVAL', lambda: h.pread(512, size - 256))
fails('ENOSPC', lambda: h.pwrite(bytes(512), size - 256))
fails('EINVAL', lambda: h.trim(1 << 20, size - 512))
fails('ENOSPC', lambda: h.zero(1 << 20, size - 512))
fails('ENOTSUP', lambda: h.zero(100, 100, nbd.CMD_FLAG_FAST_ZERO))
fails('EINVAL', lambda: h.flush(nbd.CMD_FLAG_REQ_ONE))
fails('EINVAL', lambda: h.block_status(512, 0, lambda *extents: 0))
fails('EIO', lambda: h.pread(512, size - 512))
assert h.pread(512, 0) == bytes(512)
h.shutdown()
";

#[test]
fn nbdsh_gets_the_errors_of_the_specification() {
    if !are_there(&["nbdsh"]) {
        return;
    }
    let running = start();
    let uri = format!("uri = '{}'", uri(&running.socket(), "disk"));
    run("nbdsh", &["-c", &uri, "-c", NEGATIVE_CASES]).expect("the errors that are expected");
    running.stop();
}

#[test]
fn nbdinfo_and_qemu_img_speak_tls_with_certificates() {
    if !are_there(&["nbdinfo", "qemu-img"]) {
        return;
    }
    let certificates = Certificates::new();
    let running = start_with(|config| {
        config.session.tls = TlsMode::Required;
        config.tls = Some(certificates.files(true));
    });
    let folder = certificates.folder();
    // The names that both expect.
    let names = [("ca.pem", "ca-cert.pem"), ("client.pem", "client-cert.pem")];
    for (name, expected) in names.into_iter().chain([("client.key", "client-key.pem")]) {
        std::fs::copy(folder.join(name), folder.join(expected)).expect("a file");
    }
    let port = running.address.port();
    let folder = folder.display();
    let secret = format!("nbds://localhost:{port}/secret?tls-certificates={folder}");
    assert_eq!(run("nbdinfo", &["--size", &secret]), Ok(format!("{SIZE}\n")));
    let object = format!("tls-creds-x509,id=tls,dir={folder},endpoint=client");
    let image = format!(
        "driver=nbd,host=localhost,port={port},export=secret,tls-creds=tls,tls-hostname=localhost"
    );
    let info = run("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
    assert!(info.expect("an image").contains("1 MiB"));
    let plain = format!("nbd://localhost:{port}/disk");
    assert!(run("nbdinfo", &["--size", &plain]).is_err());
    let peers = running.shelf.opened();
    assert!(!peers.is_empty() && peers.iter().all(|peer| peer.names[1] == "client.example"));
    running.stop();
}
