//! From LBNs to places on the media: zones, skews, slips and spares.
//!
//! The sectors of a zone are numbered along its tracks, in the order of surfaces. Those that are
//! reserved or slipped hold no LBN. Skews rotate a track against the one before it, so that a head
//! that switches finds the next sector under it.

use std::ops::Range;

use super::description::{DriveDescription, SurfaceOrder, Zone};

/// Sectors of one track: what the head takes without moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The cylinder, from the outermost.
    pub cylinder: u32,
    /// The surface.
    pub surface: u32,
    /// Slots of the track: the unit of its angles.
    pub track_slots: u32,
    /// The slot of the first sector; its angle is this over `track_slots`.
    pub first_slot: u32,
    /// Slots from the first sector to the last, both included, with slipped ones between them.
    pub slots: u32,
    /// Sectors.
    pub sectors: u32,
    /// Slipped sectors between them: slots after the first sector, and how many.
    pub gaps: Vec<(u32, u32)>,
}

/// The layout of a drive.
#[derive(Clone, Debug)]
pub struct Layout {
    surfaces: u32,
    order: SurfaceOrder,
    lbns: u64,
    zones: Vec<ZoneLayout>,
}

#[derive(Clone, Debug)]
struct ZoneLayout {
    zone: Zone,
    slips: Vec<Slip>,
}

/// Slipped sectors.
#[derive(Clone, Copy, Debug)]
struct Slip {
    /// The first of them, from the start of the zone.
    at: u64,
    sectors: u64,
    /// Good sectors of the zone before it.
    good_before: u64,
}

impl ZoneLayout {
    fn new(zone: &Zone) -> Self {
        let mut slipped = 0;
        let slips = zone.slips.iter().map(|(at, sectors)| {
            let slip = Slip { at: *at, sectors: *sectors, good_before: at - slipped };
            slipped += sectors;
            slip
        });
        let slips = slips.collect();
        Self { zone: zone.clone(), slips }
    }

    /// The position in the zone of its good sector with this number.
    fn position(&self, good: u64) -> u64 {
        let passed = self.slips.partition_point(|slip| slip.good_before <= good);
        good + self.slips[..passed].iter().map(|slip| slip.sectors).sum::<u64>()
    }

    /// Good sectors before this position.
    fn good_before(&self, position: u64) -> u64 {
        let begun = self.slips.partition_point(|slip| slip.at < position);
        let slipped = |slip: &Slip| slip.sectors.min(position - slip.at);
        position - self.slips[..begun].iter().map(slipped).sum::<u64>()
    }

    /// The position of the sector with this LBN.
    fn position_of(&self, lbn: u64) -> u64 {
        self.position(lbn - self.zone.first_lbn + self.zone.reserved_at_front)
    }

    /// The LBNs at positions from `from` to `to`.
    fn lbns_between(&self, from: u64, to: u64) -> Range<u64> {
        let Zone { first_lbn, lbns, reserved_at_front, .. } = self.zone;
        let lbn = |position| {
            let good = self.good_before(position).saturating_sub(reserved_at_front);
            first_lbn + good.min(lbns)
        };
        lbn(from)..lbn(to)
    }

    /// Slips between two positions, as offsets from the first.
    fn gaps(&self, first: u64, last: u64) -> Vec<(u32, u32)> {
        let from = self.slips.partition_point(|slip| slip.at < first);
        let inside = self.slips[from..].iter().take_while(|slip| slip.at < last);
        inside.map(|slip| ((slip.at - first) as u32, slip.sectors as u32)).collect()
    }
}

impl Layout {
    /// The layout of a drive whose description was checked.
    #[must_use]
    pub fn new(drive: &DriveDescription) -> Self {
        Self {
            surfaces: drive.mechanics.surfaces,
            order: drive.layout.order,
            lbns: drive.capacity.lbns,
            zones: drive.zones.iter().map(ZoneLayout::new).collect(),
        }
    }

    /// LBNs that the host may use.
    #[must_use]
    pub fn lbns(&self) -> u64 {
        self.lbns
    }

    /// The sectors of a request, track by track.
    ///
    /// # Panics
    /// If one of them does not exist.
    #[must_use]
    pub fn pieces(&self, lbn: u64, sectors: u64) -> Vec<Piece> {
        let end = lbn.checked_add(sectors).filter(|end| *end <= self.lbns);
        let end = end.expect("a request is inside of its drive");
        let mut pieces = Vec::new();
        let mut next = lbn;
        while next < end {
            let piece = self.piece(next, end);
            next += u64::from(piece.sectors);
            pieces.push(piece);
        }
        pieces
    }

    /// The LBNs on the track of this one.
    pub(super) fn track(&self, lbn: u64) -> Range<u64> {
        let found = self.zone(lbn);
        let track_slots = u64::from(found.zone.sectors_per_track);
        let track = found.position_of(lbn) / track_slots;
        found.lbns_between(track * track_slots, (track + 1) * track_slots)
    }

    /// The first of the LBNs that pass in `slots` slots before this one, on its track.
    pub(super) fn passed_before(&self, lbn: u64, slots: u64) -> u64 {
        let found = self.zone(lbn);
        let position = found.position_of(lbn);
        let along = position % u64::from(found.zone.sectors_per_track);
        found.lbns_between(position - slots.min(along), position).start
    }

    fn zone(&self, lbn: u64) -> &ZoneLayout {
        let number = self.zones.partition_point(|found| found.zone.first_lbn <= lbn) - 1;
        &self.zones[number]
    }

    /// The sectors from `lbn` on that are on its track, up to `end`.
    pub(super) fn piece(&self, lbn: u64, end: u64) -> Piece {
        let found = self.zone(lbn);
        let Zone { first_lbn, lbns, sectors_per_track, reserved_at_front, .. } = found.zone;
        let track_slots = u64::from(sectors_per_track);
        let good = lbn - first_lbn + reserved_at_front;
        let first = found.position(good);
        let track = first / track_slots;
        let on_track = found.good_before((track + 1) * track_slots) - good;
        let sectors = on_track.min(end.min(first_lbn + lbns) - lbn);
        let last = found.position(good + sectors - 1);
        let (cylinder, surface, first_slot) = self.place(&found.zone, first);
        Piece {
            cylinder,
            surface,
            track_slots: sectors_per_track,
            first_slot,
            slots: (last - first + 1) as u32,
            sectors: sectors as u32,
            gaps: found.gaps(first, last),
        }
    }

    /// Cylinder, surface and slot of the sector at a position in a zone.
    fn place(&self, zone: &Zone, position: u64) -> (u32, u32, u32) {
        let (slots, surfaces) = (u64::from(zone.sectors_per_track), u64::from(self.surfaces));
        let (track, along) = (position / slots, position % slots);
        let (cylinder, turn) = (track / surfaces, track % surfaces);
        let surface = match self.order {
            SurfaceOrder::Serpentine if cylinder % 2 == 1 => surfaces - 1 - turn,
            SurfaceOrder::Serpentine | SurfaceOrder::Ascending => turn,
        };
        let track_skews = turn + (surfaces - 1) * cylinder;
        let skew =
            track_skews * u64::from(zone.track_skew) + cylinder * u64::from(zone.cylinder_skew);
        let slot = (along + skew) % slots;
        (zone.first_cylinder + cylinder as u32, surface as u32, slot as u32)
    }
}
