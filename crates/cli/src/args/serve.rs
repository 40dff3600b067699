//! The command line of `serve`.

use std::path::PathBuf;

use clap::Args;
use upsweep_nbd::server::Listen;

use super::OpenArgs;
use crate::serve::{Clients, Period, Rate, Setting};

/// Have a store open, so that other commands work on it at the same time, and export its volumes
///
/// A store is open in one process at a time. While this server runs, it is this one, and it runs
/// the commands that others are called with: `upsweep get STORE KEY` and all others find the server
/// through the socket `server.socket` in the folder of the store, and work as without it, at the
/// same time as each other. Only the user of the server, and root, may use the socket. `verify`,
/// `repair` and `device profile` need the store for themselves.
///
/// A command that is interrupted, or whose process is killed, stops at the next line that it reads
/// or writes. What the store does as a whole, such as `sweep`, `compact` or `backup`, it completes.
///
/// With --listen or --unix, every volume is an export over NBD under its name, and if there is only
/// one, also the default. A snapshot is one, too, VOLUME@SNAPSHOT, which lists do not have. A
/// client that is told that a write is done finds it after a crash if it has asked for that, or
/// flushed afterwards. A volume that is deleted fails for its clients.
///
/// What `upsweep volume set` has set for a volume counts unless it is given here for this volume.
///
/// In the background the server gives back what volumes no longer need, makes everything durable,
/// and checks the content of volumes against its checksums. It prints a line once it can be used.
/// SIGTERM or SIGINT ends it: it lets the commands that run come to their end, for 30 seconds or
/// until a second signal, and then interrupts them. A server that is killed loses nothing that was
/// durable. With systemd, Type=notify tells it when the server can be used. SIGHUP has the
/// certificates read again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep serve hits.upsweep
  upsweep serve hits.upsweep --memory 4GiB
  upsweep serve disks.upsweep --unix /run/disks.nbd --metrics 127.0.0.1:9464
  upsweep serve disks.upsweep --listen 0.0.0.0:10809 --allow 10.0.0.0/8 --allow secret=10.0.0.7
  upsweep serve disks.upsweep --listen 0.0.0.0:10809 --tls-certificate server.pem \\
    --tls-key server.key --tls-clients clients.pem")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Export the volumes here: a TCP address with its port, unix:PATH, or systemd for the sockets
    /// that a socket unit passes; several may be given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<Listen>,
    /// Export the volumes on this Unix socket; several may be given. Its folder and the file mode
    /// mask decide who may connect
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Vec<PathBuf>,
    /// Export all volumes for reading only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Export this volume for reading only; several may be given
    #[arg(long = "read-only-volume", value_name = "VOLUME")]
    pub(crate) read_only_volumes: Vec<String>,
    /// Export a volume to these clients only, or without VOLUME=, all volumes that have no list of
    /// their own: addresses, networks such as 10.0.0.0/8, uid:NUMBER for a user on a Unix socket,
    /// name:DNS-NAME for a name in the certificate of a client, with commas between them; several
    /// may be given
    #[arg(long, value_name = "[VOLUME=]CLIENTS")]
    pub(crate) allow: Vec<Setting<Clients>>,
    /// Most requests of a volume that are performed in a second, of all its clients, or without
    /// VOLUME=, of each volume that has no limit of its own; several may be given. Further ones
    /// wait. After a pause, a tenth of a second's worth is performed at once
    #[arg(long, value_name = "[VOLUME=]N")]
    pub(crate) iops: Vec<Setting<Rate>>,
    /// Most bytes of a volume that are read and written in a second, likewise, such as 100MiB
    #[arg(long, value_name = "[VOLUME=]SIZE")]
    pub(crate) bytes_per_second: Vec<Setting<Rate>>,
    /// Require TLS of NBD clients: the certificate of the server in PEM, and those between it and
    /// the root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificates of authorities, in PEM: a client needs a certificate that one of them has
    /// signed
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_clients: Option<PathBuf>,
    /// Serve NBD clients without TLS, too
    #[arg(long, requires = "tls_certificate")]
    pub(crate) tls_optional: bool,
    /// Offer NBD clients extended headers, an experimental extension of the protocol with which
    /// they can ask for more than 4 GiB at a time
    #[arg(long)]
    pub(crate) extended_headers: bool,
    /// Most NBD connections at a time; further ones are closed at once
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Most NBD requests that are performed at a time, of all connections; each has a thread. A
    /// connection that is alone has two thirds of them, and several leave some to others
    #[arg(long, value_name = "N", default_value_t = 24,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workers: u32,
    /// Check the content of all volumes once in this time, such as 30d, or off. It is read evenly
    /// over that time, and at 1 MiB a second at least; a server that is started again goes on.
    /// Damage is printed to standard error
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(crate) scrub: Period,
    /// Serve /metrics, in the text format of Prometheus, and /healthz over HTTP at this TCP address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
}
