//! The NBD server beside the commands: its settings, its thread, its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use upsweep_nbd::TlsMode;
use upsweep_nbd::server::{
    Counters, Handle, Listen, Server, ServerConfig, ServerError, Stopped, TlsFiles,
};

use super::access::{Clients, Settings};
use super::calls::Bell;
use super::exports::{ReadOnly, VolumeExports};
use super::limits::Limits;
use crate::args::ServeArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::open_store::OpenStore;

/// The server, which runs on a thread of its own.
pub(super) struct Nbd {
    handle: Handle,
    /// Where clients find it.
    places: Vec<String>,
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Stopped, ServerError>>,
}

/// The settings; `None` if it is to listen nowhere.
fn settings(args: &ServeArgs) -> Option<ServerConfig> {
    let unix = args.unix.iter().map(|path| Listen::Unix(path.clone()));
    let listen: Vec<Listen> = args.listen.iter().cloned().chain(unix).collect();
    if listen.is_empty() {
        return None;
    }
    let mut config = ServerConfig::new(listen);
    if let (Some(certificates), Some(key)) = (&args.tls_certificate, &args.tls_key) {
        let client_authorities = args.tls_clients.clone();
        let [certificates, key] = [certificates.clone(), key.clone()];
        config.tls = Some(TlsFiles { certificates, key, client_authorities });
        config.session.tls = if args.tls_optional { TlsMode::Optional } else { TlsMode::Required };
    }
    config.session.extended_headers = args.extended_headers;
    config.connections_max = args.connections as usize;
    config.workers = args.workers as usize;
    Some(config)
}

impl Nbd {
    /// Starts it if it is to listen anywhere; the bell is rung when it has ended.
    pub(super) fn start(
        context: &Context,
        args: &ServeArgs,
        store: &Arc<OpenStore>,
        bell: Arc<Bell>,
    ) -> Result<Option<Self>, Failure> {
        let Some(config) = settings(args) else { return Ok(None) };
        let read_only = match args.read_only {
            true => ReadOnly::All,
            false => ReadOnly::These(args.read_only_volumes.clone()),
        };
        let allowed = Settings::new(&args.allow, Clients::and);
        let limits = Arc::new(Limits::new(&args.iops, &args.bytes_per_second));
        let (store, context) = (Arc::clone(store), context.clone());
        let exports = VolumeExports { store, read_only, allowed, limits, context };
        let listen = config.listen.clone();
        let server = Server::bind(config, Arc::new(exports)).map_err(explain)?;
        let mut addresses = server.tcp_addresses().into_iter();
        let mut place = |listen: &Listen| match listen {
            // The port may have been any.
            Listen::Tcp(_) => {
                addresses.next().map_or_else(|| listen.to_string(), |at| at.to_string())
            }
            other => other.to_string(),
        };
        let places = listen.iter().map(&mut place).collect();
        let handle = server.handle();
        let has_ended = Arc::new(AtomicBool::new(false));
        let end = End { has_ended: Arc::clone(&has_ended), bell };
        let thread = std::thread::Builder::new().name("nbd".to_owned());
        let thread = thread.spawn(move || {
            let _end = end;
            server.run()
        });
        let thread = thread.map_err(ServerError::System).map_err(explain)?;
        Ok(Some(Self { handle, places, has_ended, thread }))
    }

    /// Whether it has ended, by itself or because it was told to.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Where clients find it.
    pub(super) fn places(&self) -> String {
        self.places.join(", ")
    }

    /// Reads the certificates again.
    pub(super) fn reload(&self) -> Result<(), ServerError> {
        self.handle.reload()
    }

    /// What it has done so far.
    pub(super) fn counters(&self) -> impl Fn() -> Counters + Send + Sync + 'static {
        let handle = self.handle.clone();
        move || handle.counters()
    }

    /// Tells it to end: what is under way is finished.
    pub(super) fn stop(&self) {
        self.handle.stop();
    }

    /// Waits for its end.
    pub(super) fn end(self) -> Result<Stopped, Failure> {
        self.handle.stop();
        let ended = self.thread.join();
        let ended = ended.map_err(|_| Failure::Refused("the NBD server panicked".to_owned()))?;
        ended.map_err(explain)
    }
}

/// Tells that the thread of the server ends, however it does.
struct End {
    has_ended: Arc<AtomicBool>,
    bell: Arc<Bell>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        self.bell.ring();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err passes")]
fn explain(error: ServerError) -> Failure {
    Failure::Refused(error.to_string())
}
