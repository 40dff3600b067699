//! TLS: certificates of both sides, who is let in, and certificates that are read again.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use upsweep_nbd::TlsMode;
use upsweep_nbd::server::{ServerError, TlsFiles};

use crate::client::{ACK, Client, OPT_GO, OPT_LIST, OPT_STARTTLS, tcp};
use crate::disk::BLOCK;
use crate::running::{Running, start, start_with};
use crate::wire;

const TLS_REQUIRED: u32 = (1 << 31) + 5;
const POLICY: u32 = (1 << 31) + 2;

/// Certificates in a folder: `NAME.pem` and `NAME.key`.
pub struct Certificates(TempDir);

impl Certificates {
    /// Two authorities, each with a certificate for a server and a client.
    pub fn new() -> Self {
        let own = Self(TempDir::new().expect("a folder"));
        for (authority, names) in [("ca", ["server", "client"]), ("other", ["fake", "stranger"])] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).expect("a certificate");
            std::fs::write(own.pem(authority), certificate.pem()).expect("a file");
            let issuer = Issuer::new(params, key);
            for name in names {
                own.issue(name, &issuer);
            }
        }
        own
    }

    fn issue(&self, name: &str, issuer: &Issuer<'_, KeyPair>) {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), format!("{name}.example")];
        let params = CertificateParams::new(names).expect("good names");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        std::fs::write(self.pem(name), certificate.pem()).expect("a file");
        std::fs::write(self.key(name), key.serialize_pem()).expect("a file");
    }

    pub fn pem(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.pem"))
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.key"))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The files of the server, which asks clients for certificates if so wanted.
    pub fn files(&self, asks_clients: bool) -> TlsFiles {
        TlsFiles {
            certificates: self.pem("server"),
            key: self.key("server"),
            client_authorities: asks_clients.then(|| self.pem("ca")),
        }
    }

    fn load(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let all = CertificateDer::pem_file_iter(self.pem(name)).expect("a file");
        all.collect::<Result<_, _>>().expect("certificates")
    }

    /// A client that trusts the authority `ca` and has this certificate.
    fn client(&self, certificate: Option<&str>) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.load("ca").remove(0)).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.key(name)).expect("a key");
                builder.with_client_auth_cert(self.load(name), key).expect("a certificate")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a client")
    }
}

fn serve(mode: TlsMode, files: TlsFiles) -> Running {
    start_with(|config| {
        config.session.tls = mode;
        config.tls = Some(files);
    })
}

/// Asks for TLS on a connection that had its greeting, up to the acknowledgement.
fn ask_tls(running: &Running) -> TcpStream {
    let mut stream = tcp(running.address);
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    stream.write_all(&wire::client_flags(3)).expect("the server receives");
    stream.write_all(&wire::option(OPT_STARTTLS, &[])).expect("the server receives");
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[12..16], ACK.to_be_bytes());
    stream
}

fn encrypted(running: &Running, certificates: &Certificates, own: Option<&str>) -> Client {
    Client::on(Box::new(StreamOwned::new(certificates.client(own), ask_tls(running))))
}

/// Checks that the server ends TLS with an alert.
fn assert_refused(mut client: Client) {
    let sent = client.stream.write_all(&wire::option(OPT_LIST, &[]));
    let result = sent.and_then(|()| client.stream.read_exact(&mut [0]));
    let error = result.expect_err("a client that is not let in");
    // The alert says that a certificate is missing or unknown.
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_server_that_requires_tls_gives_nothing_without() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Required, certificates.files(false));
    let mut plain = running.client();
    assert_eq!(plain.last(OPT_LIST, &[]), TLS_REQUIRED);
    assert_eq!(plain.last(OPT_GO, &wire::info("disk", &[])), TLS_REQUIRED);
    let mut client = encrypted(&running, &certificates, None);
    assert_eq!(client.option(OPT_LIST, &[]), [2, 2, 1]);
    client.open("secret");
    let data: Vec<u8> = (0..500_000_u32).map(|at| (at / 3) as u8).collect();
    let cookie = client.ask_write(0, &data);
    assert_eq!(client.error_of(cookie), 0);
    // More than TLS holds back, several at once.
    let cookies: Vec<u64> = (0..8).map(|_| client.ask_read(0, data.len())).collect();
    for _ in cookies {
        assert!(client.answer().data == data);
    }
    client.leave();
    let peers = running.shelf.opened();
    assert!(peers[0].is_encrypted && peers[0].names.is_empty());
    running.stop();
}

#[test]
fn tls_can_be_optional_but_not_for_every_export() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Optional, certificates.files(false));
    let mut plain = running.opened();
    assert_eq!(plain.content(0, BLOCK), [0; BLOCK]);
    let mut refused = running.client();
    assert_eq!(refused.last(OPT_GO, &wire::info("secret", &[])), TLS_REQUIRED);
    encrypted(&running, &certificates, None).open("secret");
    running.stop();
    let running = start();
    assert_eq!(running.client().last(OPT_STARTTLS, &[]), POLICY);
    running.stop();
}

#[test]
fn clients_need_a_certificate_of_the_authority() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Required, certificates.files(true));
    let mut client = encrypted(&running, &certificates, Some("client"));
    client.open("disk");
    client.leave();
    assert_refused(encrypted(&running, &certificates, None));
    assert_refused(encrypted(&running, &certificates, Some("stranger")));
    let closed = running.shelf.until_closed(3);
    // The thread of the first one may end last.
    let failed = closed.iter().filter(|closing| closing.starts_with("TLS failed")).count();
    assert_eq!(failed, 2, "{closed:?}");
    assert_eq!(running.handle.counters().tls_failures, 2);
    let peers = running.shelf.opened();
    assert_eq!((peers.len(), &peers[0].names[..]), (1, &names("client")[..]));
    running.stop();
}

fn names(certificate: &str) -> [String; 2] {
    ["localhost".to_owned(), format!("{certificate}.example")]
}

#[test]
fn bytes_where_tls_has_to_begin_end_the_connection() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Required, certificates.files(false));
    // Plain bytes right behind the option.
    let mut early = running.client();
    let bytes = [wire::option(OPT_STARTTLS, &[]), wire::option(OPT_LIST, &[])].concat();
    early.send(&bytes);
    assert_eq!(early.read(20)[12..16], ACK.to_be_bytes());
    assert!(early.is_closed());
    // And what is no TLS.
    let mut stream = ask_tls(&running);
    stream.write_all(&[0x55; 100]).expect("the server receives");
    let _ = stream.read_to_end(&mut Vec::new());
    // And nothing.
    drop(ask_tls(&running));
    running.shelf.until_closed(3);
    let counters = running.handle.counters();
    assert_eq!((counters.violations, counters.tls_failures), (1, 1));
    running.stop();
}

#[test]
fn certificates_are_read_again_on_request_and_bad_ones_change_nothing() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Required, certificates.files(true));
    let mut old = encrypted(&running, &certificates, Some("client"));
    old.open("disk");
    // From now on clients of the other authority are let in.
    let (ca, other) = (certificates.pem("ca"), certificates.pem("other"));
    let root = std::fs::read(&ca).expect("a file");
    std::fs::copy(other, &ca).expect("a file");
    running.handle.reload().expect("good files");
    std::fs::write(&ca, root).expect("a file");
    encrypted(&running, &certificates, Some("stranger")).open("disk");
    assert_refused(encrypted(&running, &certificates, Some("client")));
    assert_eq!(old.content(0, BLOCK), [0; BLOCK]);
    std::fs::write(certificates.key("server"), "no key").expect("a file");
    let error = running.handle.reload().expect_err("a bad key");
    assert!(
        matches!(&error, ServerError::TlsFile { path, .. } if *path == certificates.key("server"))
    );
    encrypted(&running, &certificates, Some("stranger")).open("disk");
    running.stop();
}

#[test]
fn a_stop_reaches_clients_through_tls() {
    let certificates = Certificates::new();
    let running = serve(TlsMode::Required, certificates.files(false));
    let mut client = encrypted(&running, &certificates, None);
    client.open("disk");
    running.disk().shut(true);
    let early = client.ask_read(0, BLOCK);
    running.disk().until_waiting(1);
    let mut idle = running.client();
    running.handle.stop();
    // Connections have been told when one of them is closed.
    assert!(idle.is_closed());
    let late = client.ask_read(0, BLOCK);
    assert_eq!(client.error_of(late), 108);
    running.disk().shut(false);
    assert_eq!(client.error_of(early), 0);
    // With the announcement that TLS needs.
    assert!(matches!(client.stream.read(&mut [0]), Ok(0)));
    running.join();
}
