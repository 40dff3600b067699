//! Time of a seek by its distance.

use super::description::SeekCurve;

impl SeekCurve {
    /// Milliseconds for a seek over this many of a drive's cylinders; 0 for none.
    #[must_use]
    pub fn time_ms(&self, distance: u32, cylinders: u32) -> f64 {
        if distance == 0 {
            return 0.0;
        }
        let distance = f64::from(distance);
        match self {
            Self::Points { points } => between(points, distance),
            Self::ThreePoint { single_ms, average_ms, full_ms } => {
                // Of one cylinder less than the drive has; one that has two is all at distance 1.
                let span = f64::from(cylinders.saturating_sub(2).max(1));
                let part = (distance - 1.0) / span;
                let root = (-10.0 * single_ms + 15.0 * average_ms - 5.0 * full_ms) / 3.0;
                let linear = (7.0 * single_ms - 15.0 * average_ms + 8.0 * full_ms) / 3.0;
                single_ms + root * part.sqrt() + linear * part
            }
        }
    }
}

/// The value at `distance` of the lines through these points; outside of them, of the line through
/// the nearest two.
fn between(points: &[(f64, f64)], distance: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at < distance);
    let second = above.clamp(1, points.len() - 1);
    let ((from, low), (to, high)) = (points[second - 1], points[second]);
    low + (high - low) * (distance - from) / (to - from)
}
