//! Pages of a device that are read and written with nothing in between: what the device itself can
//! do.

use std::collections::BTreeMap;

use upsweep::layers::device::Token;

use super::{Finished, Io, Model};

/// The device in its bank.
const DEVICE: u16 = 0;

/// An operation on the page at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageAccess {
    /// Reads it.
    Read(u64),
    /// Writes it.
    Write(u64),
    /// Reads one, and then writes the other.
    ReadWrite(u64, u64),
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    number: u64,
    begun_us: u64,
    /// The page that is written next.
    then: Option<u64>,
}

/// The device.
pub(crate) struct BarePages {
    page_bytes: u64,
    requests: BTreeMap<Token, UnderWay>,
}

impl BarePages {
    /// A device in pages of so many bytes.
    pub(crate) fn new(page_bytes: u64) -> Self {
        Self { page_bytes, requests: BTreeMap::new() }
    }
}

impl Model for BarePages {
    type Operation = PageAccess;

    fn begin(&mut self, number: u64, access: PageAccess, io: &mut Io) {
        let (token, then) = match access {
            PageAccess::Read(offset) => (io.read(DEVICE, offset, self.page_bytes), None),
            PageAccess::Write(offset) => (io.write(DEVICE, offset, self.page_bytes), None),
            PageAccess::ReadWrite(from, to) => (io.read(DEVICE, from, self.page_bytes), Some(to)),
        };
        self.requests.insert(token, UnderWay { number, begun_us: io.now_us(), then });
    }

    fn ended(&mut self, token: Token, io: &mut Io) {
        let Some(UnderWay { number, begun_us, then }) = self.requests.remove(&token) else {
            return;
        };
        match then {
            Some(offset) => {
                let token = io.write(DEVICE, offset, self.page_bytes);
                self.requests.insert(token, UnderWay { number, begun_us, then: None });
            }
            None => io.finish(Finished { number, begun_us, found: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{LatencyModel, MemoryDevices};

    use super::super::Bench;
    use super::super::load::Load;
    use super::*;

    #[test]
    fn reading_and_writing_takes_the_time_of_both() {
        let cases = [
            (PageAccess::Read(0), 1.0, 1),
            (PageAccess::Write(4096), 1.0, 1),
            (PageAccess::ReadWrite(0, 4096), 2.0, 2),
        ];
        for (access, expected_ms, requests) in cases {
            let mut devices = MemoryDevices::with_sizes(&[1 << 20], 1);
            devices.set_latency(LatencyModel {
                base_us: 1000,
                bytes_per_us: 1 << 40,
                jitter_us: 0,
            });
            let mut system = Bench::new(BarePages::new(4096), Box::new(devices), 0);
            let load = Load { callers: 1, warm_up: 1, measured: 10 };
            let seen = load.run(&mut system, || access).expect("no request fails");
            assert!((seen.latency_ms - expected_ms).abs() < 0.01, "{access:?}: {seen:?}");
            assert_eq!(seen.traffic.requests(), 10 * requests);
        }
    }
}
