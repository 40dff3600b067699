//! Volumes over TLS, and on sockets that a service manager passes.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::common::{World, refused, text};
use super::exports::{are_there, qemu_io, run};
use super::serve::Server;

/// An authority, and folders with what clients and servers need of it.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate and its key.
    fn issue(&self, names: &[&str], certificate: &Path, key: &Path) {
        let own = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("good names");
        let signed = params.signed_by(&own, &self.issuer).expect("a certificate");
        std::fs::write(certificate, signed.pem()).expect("a file");
        std::fs::write(key, own.serialize_pem()).expect("a file");
    }

    /// Writes its own certificate.
    fn write(&self, to: &Path) -> String {
        std::fs::write(to, &self.certificate).expect("a file");
        text(to)
    }

    /// A folder for a client that trusts `trusted` and has a certificate with this name.
    fn client(&self, world: &World, trusted: &Self, name: &str) -> PathBuf {
        let folder = world.path(name);
        std::fs::create_dir(&folder).expect("a folder");
        trusted.write(&folder.join("ca-cert.pem"));
        let [certificate, key] = ["client-cert.pem", "client-key.pem"].map(|it| folder.join(it));
        self.issue(&[name], &certificate, &key);
        folder
    }

    /// Writes the certificate of the server.
    fn server(&self, world: &World) -> [String; 2] {
        let paths = ["server.pem", "server.key"].map(|name| world.path(name));
        self.issue(&["localhost"], &paths[0], &paths[1]);
        paths.map(|path| text(&path))
    }
}

/// The TCP port at which a server has said that volumes are.
fn port(server: &Server) -> String {
    let (_, rest) = server.said.split_once("volumes on 127.0.0.1:").expect("a TCP address");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// The address of a volume for a client with the certificates in this folder.
fn secure(server: &Server, volume: &str, folder: &Path) -> String {
    let port = port(server);
    format!("nbds://localhost:{port}/{volume}?tls-certificates={}", folder.display())
}

/// The size of a volume, as a client is told.
fn size(uri: &str) -> Result<String, String> {
    run("nbdinfo", &["--size", uri])
}

#[test]
fn clients_with_a_certificate_are_let_in_and_no_others() {
    if !are_there(&["nbdinfo", "nbdsh"]) {
        return;
    }
    let world = World::new();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let [certificate, key] = ours.server(&world);
    let authority = ours.write(&world.path("clients.pem"));
    let known = ours.client(&world, &ours, "backup.example");
    let unknown = theirs.client(&world, &ours, "stranger.example");
    let suspicious = ours.client(&world, &theirs, "suspicious.example");
    for name in ["disk", "secret"] {
        world.ok("volume create", &[name, "1MiB"]);
    }
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-clients", &authority];
    let listen = ["--listen", "127.0.0.1:0", "--allow", "secret=name:boss.example"];
    let server = Server::with(&world, &[&listen[..], &tls[..]].concat());
    assert_eq!(size(&secure(&server, "disk", &known)), Ok("1048576\n".to_owned()));
    // What the address names are files of this machine.
    let connect = |uri: &str| format!("h.set_uri_allow_local_file(True)\nh.connect_uri('{uri}')");
    let script = "
assert h.get_tls_negotiated()
h.pwrite(b'through TLS!' * 128, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(1536, 4096) == b'through TLS!' * 128
h.shutdown()
";
    let connects = connect(&secure(&server, "disk", &known));
    run("nbdsh", &["-c", &connects, "-c", script]).expect("as told");
    size(&secure(&server, "secret", &known)).expect_err("the list has another name");
    size(&secure(&server, "disk", &unknown)).expect_err("of another authority");
    size(&secure(&server, "disk", &suspicious)).expect_err("the client trusts another authority");
    let plain = size(&format!("nbd://localhost:{}/disk", port(&server)));
    let message = plain.expect_err("TLS is required");
    assert!(message.to_lowercase().contains("tls"), "{message}");
    server.stop();
    let optional = [&["--listen", "127.0.0.1:0", "--tls-optional"], &tls[..]].concat();
    let server = Server::with(&world, &optional);
    let plain = format!("nbd://localhost:{}/disk", port(&server));
    assert_eq!(size(&plain), Ok("1048576\n".to_owned()));
    let script = "
assert not h.get_tls_negotiated()
assert h.pread(1536, 4096) == b'through TLS!' * 128
h.shutdown()
";
    run("nbdsh", &["-c", &connect(&plain), "-c", script]).expect("as told");
    size(&secure(&server, "disk", &unknown)).expect_err("of another authority");
    server.stop();
}

#[test]
fn certificates_are_read_again_after_a_signal() {
    if !are_there(&["nbdinfo"]) {
        return;
    }
    let world = World::new();
    let (old, new) = (Authority::new(), Authority::new());
    let [certificate, key] = old.server(&world);
    let [trusts_old, trusts_new] = [(&old, "old"), (&new, "new")]
        .map(|(authority, name)| authority.client(&world, authority, name));
    world.ok("volume create", &["disk", "1MiB"]);
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
    let server = Server::with(&world, &[&["--listen", "127.0.0.1:0"], &tls[..]].concat());
    let known = |folder: &Path| size(&secure(&server, "disk", folder)).is_ok();
    assert_eq!([known(&trusts_old), known(&trusts_new)], [true, false]);
    new.server(&world);
    assert_eq!([known(&trusts_old), known(&trusts_new)], [true, false], "not yet");
    server.signal("HUP");
    let began = std::time::Instant::now();
    while !known(&trusts_new) {
        assert!(began.elapsed().as_secs() < 20, "the certificate is the old one");
    }
    assert!(!known(&trusts_old));
    server.stop();
}

/// Runs the program as a service manager does: with this socket as descriptor 3, through a shell
/// that knows its own number.
fn activated(world: &World, socket: OwnedFd, process: &str) -> Command {
    let script = format!(r#"LISTEN_PID={process} LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#);
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_upsweep"), "serve", &text(&world.store())]);
    command.args(["--listen", "systemd"]).stdin(Stdio::from(socket));
    command
}

#[test]
fn a_socket_of_the_service_manager_outlives_the_server() {
    if !are_there(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let world = World::new();
    let path = world.path("nbd");
    let listener = UnixListener::bind(&path).expect("bound");
    let passed = || OwnedFd::from(listener.try_clone().expect("another descriptor"));
    world.ok("volume create", &["disk", "1MiB"]);
    let server = Server::of(activated(&world, passed(), "$$"));
    assert!(server.said.contains("systemd"), "{}", server.said);
    qemu_io(&path, "disk", &["write -P 7 0 64k", "flush"]).expect("written");
    server.stop();
    assert!(path.exists(), "it belongs to the service manager");
    // A client that comes now waits for the next server.
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || qemu_io(&path, "disk", &["read -P 7 0 64k"])
    });
    let server = Server::of(activated(&world, passed(), "$$"));
    waiting.join().expect("no panic").expect("read");
    server.stop();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let server = Server::of(activated(&world, listener.into(), "$$"));
    let size = size(&format!("nbd://127.0.0.1:{port}/disk"));
    assert_eq!(size, Ok("1048576\n".to_owned()));
    server.stop();
}

#[test]
fn sockets_that_are_for_another_process_are_not_taken() {
    let world = World::new();
    let path = world.path("nbd");
    let listener = UnixListener::bind(&path).expect("bound");
    let run = activated(&world, listener.into(), "1").output().expect("it runs");
    refused(&run.into(), "no sockets were passed to this process");
    let none = world.run("serve", &["--listen", "systemd"]);
    refused(&none, "no sockets were passed to this process");
}
