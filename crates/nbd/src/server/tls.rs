//! TLS 1.3: certificates from files, and connections through it.
//!
//! A connection keeps the certificates that it began with when they are read again.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConnection};
use webpki::EndEntityCert;

use super::ServerError;
use super::config::TlsFiles;

/// Certificates and keys.
pub(super) struct Tls {
    files: TlsFiles,
    current: Mutex<Arc<rustls::ServerConfig>>,
}

impl Tls {
    pub(super) fn load(files: &TlsFiles) -> Result<Self, ServerError> {
        Ok(Self { files: files.clone(), current: Mutex::new(read(files)?) })
    }

    /// Reads the files again, for connections from now on. After an error the old ones stay.
    pub(super) fn reload(&self) -> Result<(), ServerError> {
        let fresh = read(&self.files)?;
        *self.current.lock() = fresh;
        Ok(())
    }

    /// The server's side of a new connection.
    pub(super) fn connection(&self) -> Result<ServerConnection, rustls::Error> {
        let current = Arc::clone(&self.current.lock());
        ServerConnection::new(current)
    }
}

/// The DNS names of the client, whose certificate was verified.
pub(super) fn names(connection: &ServerConnection) -> Vec<String> {
    let first = connection.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
    let certificate = first.and_then(|first| EndEntityCert::try_from(first).ok());
    let names = |of: EndEntityCert<'_>| of.valid_dns_names().map(str::to_owned).collect();
    certificate.map(names).unwrap_or_default()
}

fn read(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has cipher suites of TLS 1.3");
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(path, &error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, &error))?)
        }
    };
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
    let config = builder.with_single_cert(certificates(&files.certificates)?, key);
    config.map(Arc::new).map_err(|error| wrong(&files.certificates, &error))
}

/// At least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| wrong(path, &error))?;
    if all.is_empty() { Err(wrong(path, &"it has no certificate")) } else { Ok(all) }
}

fn wrong(path: &Path, reason: &dyn std::fmt::Display) -> ServerError {
    ServerError::TlsFile { path: path.to_owned(), reason: reason.to_string() }
}
