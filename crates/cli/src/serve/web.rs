//! The page of metrics and that of health, over HTTP.
//!
//! A few threads answer one request after another and close the connection, so that a client which
//! asks for nothing does not hold up the others. A client has [`REQUEST_WAIT`] for all of its
//! request, whose head is bounded.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use upsweep_nbd::server::{Counters, Kind, RequestCounters};
use upsweep_volume::{ScrubPass, Traffic};

use crate::failure::Failure;
use crate::open_store::OpenStore;

/// How long a client may take.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// Requests that are answered at a time.
const THREADS: usize = 4;
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The type of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// What the pages show.
pub(super) struct Pages {
    pub(super) store: Arc<OpenStore>,
    /// Of the NBD server, if there is one.
    pub(super) counters: Option<Box<dyn Fn() -> Counters + Send + Sync>>,
    /// Whether the server can be used.
    pub(super) is_healthy: Arc<AtomicBool>,
}

/// Serves the pages until the process ends; returns where.
pub(super) fn start(address: &str, pages: Pages) -> Result<SocketAddr, Failure> {
    let failed = |error: io::Error| Failure::Refused(format!("--metrics {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let found = listener.local_addr().map_err(failed)?;
    let pages = Arc::new(pages);
    for _ in 0..THREADS {
        let (listener, pages) = (listener.try_clone().map_err(failed)?, Arc::clone(&pages));
        let run = move || {
            for socket in listener.incoming() {
                match socket {
                    // Who is gone, or sends no request, is not answered.
                    Ok(socket) => drop(pages.answer(&socket)),
                    Err(_) => std::thread::sleep(super::ACCEPT_PAUSE),
                }
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(run).map_err(failed)?;
    }
    Ok(found)
}

/// The first line of a request.
fn first_line(mut socket: &TcpStream) -> io::Result<String> {
    let until = Instant::now() + REQUEST_WAIT;
    let mut head = Vec::new();
    let is_whole = |head: &[u8]| head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n");
    while !is_whole(&head) {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() || head.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        socket.set_read_timeout(Some(rest))?;
        let mut buffer = [0; 1024];
        match socket.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => head.extend_from_slice(&buffer[..bytes]),
        }
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

impl Pages {
    fn answer(&self, mut socket: &TcpStream) -> io::Result<()> {
        let line = first_line(socket)?;
        let (status, kind, text) = self.page(&line);
        let (bytes, body) = (text.len(), if line.starts_with("HEAD ") { "" } else { &text });
        socket.set_write_timeout(Some(REQUEST_WAIT))?;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\n\
             Connection: close\r\n\r\n"
        );
        socket.write_all((head + body).as_bytes())
    }

    /// Status, type and text of the page that a request is for.
    fn page(&self, line: &str) -> (&'static str, &'static str, String) {
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let plain = |status, text: &str| (status, "text/plain", text.to_owned());
        if !matches!(method, "GET" | "HEAD") {
            return plain("405 Method Not Allowed", "only GET and HEAD\n");
        }
        match path.split('?').next().unwrap_or_default() {
            "/metrics" => ("200 OK", METRICS_TYPE, self.metrics()),
            "/healthz" if self.is_healthy.load(Ordering::Relaxed) => plain("200 OK", "ok\n"),
            "/healthz" => plain("503 Service Unavailable", "the server ends\n"),
            _ => plain("404 Not Found", "there are /metrics and /healthz\n"),
        }
    }

    fn metrics(&self) -> String {
        let mut text = self.store.store().metrics_text();
        if let Some(counters) = &self.counters {
            text += &of_server(&counters());
        }
        if let Ok(Some(volumes)) = self.store.existing_volumes() {
            text += &of_traffic(&volumes.traffic());
            text += &of_scrub(&volumes.scrub_pass());
        }
        text
    }
}

/// What volumes have written, in the text format of Prometheus.
fn of_traffic(traffic: &Traffic) -> String {
    let Traffic { written_bytes, copied_bytes, .. } = *traffic;
    let families = [
        ("written", "Bytes of payload that clients have written, in whole blocks.", written_bytes),
        ("copied", "Bytes of payload that cleaning has copied to make room.", copied_bytes),
    ];
    let of_one = |(name, help, value)| {
        metric(&format!("upsweep_volume_{name}_bytes_total"), "counter", help, value)
    };
    families.map(of_one).concat()
}

/// One metric without labels, in the text format of Prometheus.
fn metric(name: &str, kind: &str, help: &str, value: impl Display) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
}

/// What the scrub of volumes has found, in the text format of Prometheus.
fn of_scrub(pass: &ScrubPass) -> String {
    let began = pass.began_at as f64 / 1e6;
    let ended = pass.ended_at.unwrap_or_default() as f64 / 1e6;
    let damaged = pass.damaged_blocks.max(pass.damaged_blocks_before);
    let families = [
        ("bytes_total", "counter", "Bytes of payload that were checked.", pass.bytes.to_string()),
        (
            "damaged_blocks",
            "gauge",
            "Damaged blocks that the pass which runs, or the one before it, has found.",
            damaged.to_string(),
        ),
        (
            "pass_begin_timestamp_seconds",
            "gauge",
            "When the last pass began, since 1970; 0: never.",
            began.to_string(),
        ),
        (
            "pass_end_timestamp_seconds",
            "gauge",
            "When the last complete pass ended, since 1970; 0: never.",
            ended.to_string(),
        ),
    ];
    let of_one = |(name, kind, help, value)| {
        metric(&format!("upsweep_volume_scrub_{name}"), kind, help, value)
    };
    families.map(of_one).concat()
}

/// What an NBD server has done, in the text format of Prometheus.
fn of_server(counters: &Counters) -> String {
    let Counters { received_bytes, sent_bytes, requests_in_flight, .. } = *counters;
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        text += &metric(&format!("upsweep_nbd_{name}"), kind, help, value);
    };
    let connections = [
        ("connections_accepted_total", "served", counters.connections_accepted),
        (
            "connections_refused_total",
            "closed, as there were too many",
            counters.connections_refused,
        ),
        ("connections_failed_total", "that the system did not give", counters.connections_failed),
        ("handshakes_late_total", "whose handshake took too long", counters.handshakes_late),
        ("tls_failures_total", "on which TLS failed", counters.tls_failures),
        ("violations_total", "on which the protocol was broken", counters.violations),
    ];
    for (name, help, value) in connections {
        one(name, "counter", &format!("Connections {help}."), value);
    }
    one("connections_open", "gauge", "Connections that are open now.", counters.connections_open);
    one(
        "received_bytes_total",
        "counter",
        "Bytes received, as they are within TLS.",
        received_bytes,
    );
    one("sent_bytes_total", "counter", "Bytes sent, as they are within TLS.", sent_bytes);
    one("requests_in_flight", "gauge", "Requests that are not answered yet.", requests_in_flight);
    type Value = fn(&RequestCounters) -> u64;
    let families: [(&str, &str, Value); 3] = [
        ("requests_total", "Requests that were answered.", |of| of.answered),
        ("requests_failed_total", "Requests that were answered with an error.", |of| of.failed),
        ("request_bytes_total", "Bytes of requests that succeeded.", |of| of.bytes),
    ];
    for (name, help, value) in families {
        let name = format!("upsweep_nbd_{name}");
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for kind in Kind::ALL {
            let (label, value) = (kind.name(), value(counters.of(kind)));
            let _ = writeln!(text, "{name}{{kind=\"{label}\"}} {value}");
        }
    }
    text + &latencies(counters)
}

fn latencies(counters: &Counters) -> String {
    let name = "upsweep_nbd_request_seconds";
    let help = "From when a request had come until its answer was there to be sent.";
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    for kind in Kind::ALL {
        let (label, latency) = (kind.name(), &counters.of(kind).latency);
        let mut count = 0;
        let (last, bounded) = latency.counts.split_last().expect("there are buckets");
        for (nth, bucket) in bounded.iter().enumerate() {
            count += bucket;
            let bound = (1u64 << nth) as f64 / 1e6;
            let _ = writeln!(text, "{name}_bucket{{kind=\"{label}\",le=\"{bound}\"}} {count}");
        }
        count += last;
        let sum = latency.sum_us as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{kind=\"{label}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{kind=\"{label}\"}} {sum}");
        let _ = writeln!(text, "{name}_count{{kind=\"{label}\"}} {count}");
    }
    text
}
