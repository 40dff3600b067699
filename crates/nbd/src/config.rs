//! What a server allows its clients: TLS, extensions and limits.
//!
//! Every buffer and list that a client can make grow has a bound here or in `format`. A session
//! checks its configuration once, when it is created.

use std::fmt::{self, Display, Formatter};

use crate::format::{EXTENT_BYTES_MAX, EXTENTS_MAX, PAYLOAD_BYTES_DEFAULT, UNFRAGMENTED_BYTES_MIN};

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never: a client that asks for TLS is refused.
    #[default]
    Off,
    /// If the client asks for it. Exports with [`Export::tls_only`](crate::Export::tls_only) are
    /// refused without.
    Optional,
    /// Always: without TLS a client can do nothing but ask for it and leave.
    Required,
}

/// The settings of a [`Session`](crate::Session). They are the same as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether connections are encrypted.
    pub tls: TlsMode,
    /// Whether a client may negotiate extended headers, which are an experimental extension of the
    /// protocol: lengths of 64 bits.
    pub extended_headers: bool,
    /// Whether a client that does not ask for the block sizes of an export is refused, if these are
    /// not what every client expects. Otherwise its requests that do not fit them fail.
    pub block_sizes_required: bool,
    /// The longest payload of a request or a reply, in bytes, 65,536 or more. Clients expect 32 MiB
    /// or more unless they ask. A longer read or write is answered with an error.
    pub payload_bytes_max: u32,
    /// How many requests may wait for their replies, at least 1. Then no further one is taken.
    pub requests_in_flight_max: usize,
    /// How many bytes may be in use by requests and by replies that are not sent, at least
    /// `payload_bytes_max`: the payloads of writes, what reads and block statuses will return, and
    /// the output. Then no further request is taken.
    pub bytes_in_flight_max: u64,
    /// The most extents of a context in the reply to a block status, 1 to 1,048,576. Each counts as
    /// 16 bytes in flight.
    pub extents_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tls: TlsMode::Off,
            extended_headers: false,
            block_sizes_required: false,
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            requests_in_flight_max: 128,
            bytes_in_flight_max: 2 * u64::from(PAYLOAD_BYTES_DEFAULT),
            extents_max: 1 << 15,
        }
    }
}

impl Config {
    /// Checks every bound.
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        if self.payload_bytes_max < UNFRAGMENTED_BYTES_MIN {
            return Err(InvalidConfig::PayloadBytes);
        }
        if self.requests_in_flight_max == 0 {
            return Err(InvalidConfig::RequestsInFlight);
        }
        if self.bytes_in_flight_max < u64::from(self.payload_bytes_max) {
            return Err(InvalidConfig::BytesInFlight);
        }
        let extents_bytes = u64::from(self.extents_max) * EXTENT_BYTES_MAX;
        let is_possible = (1..=EXTENTS_MAX).contains(&self.extents_max);
        if !is_possible || extents_bytes > u64::from(self.payload_bytes_max) {
            return Err(InvalidConfig::Extents);
        }
        Ok(())
    }
}

/// A [`Config`] that cannot work: correct the field that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidConfig {
    /// [`Config::payload_bytes_max`] is below 65,536.
    PayloadBytes,
    /// [`Config::requests_in_flight_max`] is 0.
    RequestsInFlight,
    /// [`Config::bytes_in_flight_max`] is below [`Config::payload_bytes_max`].
    BytesInFlight,
    /// [`Config::extents_max`] is 0, above 1,048,576, or does not fit the longest payload.
    Extents,
}

impl Display for InvalidConfig {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PayloadBytes => "payload_bytes_max is below 65,536",
            Self::RequestsInFlight => "requests_in_flight_max is 0",
            Self::BytesInFlight => "bytes_in_flight_max is below payload_bytes_max",
            Self::Extents => {
                "extents_max is 0, above 1,048,576, or times 16 bytes above payload_bytes_max"
            }
        })
    }
}

impl std::error::Error for InvalidConfig {}
