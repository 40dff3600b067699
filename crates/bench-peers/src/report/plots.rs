//! The plots: throughput by engine and ratio with what bounds it, throughput and longest waits over
//! time, percentiles of latency, and the pauses of the machine where updates come at a rate.
//!
//! Axes are logarithmic where what is shown differs by more than ten times; zero stands at the foot
//! then. Text is black on white.

use std::collections::BTreeSet;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{Table, about, bounds, measured, tables};
use crate::engine::KEY_BYTES_MIN;
use crate::failure::Failure;
use crate::outcome::{DataSet, Latency, Outcome, Results, Series};
use crate::spread::Spread;
use crate::text::short;
use crate::workload::{Class, Workload};

const SIZE: (u32, u32) = (900, 520);
/// Height of the title.
const TITLE_HEIGHT: u32 = 44;
/// Labels of the vertical axis, about: more run into each other where it is logarithmic.
const LABELS: usize = 6;
/// Width of the legend, which stands to the right of the plot, where no line runs.
const LEGEND_WIDTH: u32 = 215;
/// Points of a line over time at most; intervals are gathered beyond.
const POINTS_MAX: usize = 300;
/// Length of a run in milliseconds from which on its points are seconds at least.
const LONG_MS: u64 = 20_000;
/// Factor beyond which an axis is logarithmic.
const FACTOR: f64 = 10.0;

/// Names of lines that no engine has.
const SWEEP: &str = "bound of the sweep";
const SYNCS: &str = "bound of syncs";

/// Lines of a plot: an engine or a bound, and its points.
type Lines<'a> = Vec<(&'a str, Vec<(f64, f64)>)>;

/// What a plot says around its lines.
struct Frame<'a> {
    title: &'a str,
    across: &'a str,
    up: &'a str,
    /// Names of places 0, 1, 2 and so on of the horizontal axis; empty: it shows numbers.
    places: Vec<String>,
    has_points: bool,
}

/// Draws all plots into a folder; names of files, and what they show.
///
/// # Errors
/// [`Failure::Refused`] if one cannot be drawn.
pub(super) fn draw_all(results: &Results, folder: &Path) -> Result<Vec<(String, String)>, Failure> {
    let tables = tables(results);
    let mut plots = Vec::new();
    let of_increments = tables.iter().filter(|table| table.name.workload == Workload::Increments);
    let lengths: BTreeSet<u8> = of_increments.map(|table| table.name.set.key_bytes).collect();
    for key_bytes in lengths {
        for class in Class::ALL {
            plots.extend(throughput(results, &tables, (class, key_bytes), folder)?);
        }
    }
    for table in &tables {
        let is_open = matches!(table.name.workload, Workload::Latency50 | Workload::Latency80);
        if table.name.workload == Workload::Increments || is_open {
            plots.extend(over_time(table, folder)?);
            plots.extend(longest_over_time(table, folder)?);
            plots.extend(percentiles(table, folder)?);
        }
        if is_open {
            plots.extend(pauses_over_time(table, folder)?);
        }
    }
    Ok(plots)
}

/// Rates of increments of a class with keys of a length by ratio, if there are several ratios; and
/// the bound: of syncs for one caller, of the sweep for others.
fn throughput(
    results: &Results,
    tables: &[Table<'_>],
    (class, key_bytes): (Class, u8),
    folder: &Path,
) -> Result<Option<(String, String)>, Failure> {
    let is_shown = |table: &&Table<'_>| {
        let name = table.name;
        (name.workload, name.class, name.set.key_bytes) == (Workload::Increments, class, key_bytes)
    };
    let shown: Vec<&Table<'_>> = tables.iter().filter(is_shown).collect();
    let mut lines: Lines<'_> = Vec::new();
    let mut add = |name, point| match lines.iter_mut().find(|(found, _)| *found == name) {
        Some((_, points)) => points.push(point),
        None => lines.push((name, vec![point])),
    };
    for (place, table) in shown.iter().enumerate() {
        for (engine, outcomes) in &table.rows {
            let rates: Vec<f64> =
                measured(outcomes).into_iter().map(Outcome::rate_of_run).collect();
            if !rates.is_empty() {
                add(*engine, (place as f64, Spread::of(rates).median));
            }
        }
    }
    for (place, table) in shown.iter().enumerate() {
        let Some(reference) = &results.reference else { break };
        let bounds = bounds::of(&results.settings, reference, table.name.set);
        let (name, bound) = match class {
            Class::Single => (SYNCS, bounds.syncs),
            _ => (SWEEP, bounds.sweep),
        };
        add(name, (place as f64, bound));
    }
    if shown.len() < 2 {
        return Ok(None);
    }
    let class = class.name();
    let title = format!("increments, {class}, keys of {key_bytes} bytes: throughput by ratio");
    let frame = Frame {
        title: &title,
        across: "data, as a multiple of the memory",
        up: "updates in the median second",
        places: shown.iter().map(|table| table.name.set.ratio.to_string()).collect(),
        has_points: true,
    };
    let set = DataSet { ratio: 0, key_bytes };
    save(folder, &format!("throughput-{class}{}", key_part(set)), &frame, lines)
}

/// Rates over time, of the last repeat.
fn over_time(table: &Table<'_>, folder: &Path) -> Result<Option<(String, String)>, Failure> {
    let lines = table.rows.iter().filter_map(|(engine, outcomes)| {
        let run = measured(outcomes).last().copied()?;
        Some((*engine, rates(run)))
    });
    let title = headline(table, "over time");
    let frame = Frame {
        title: &title,
        across: "seconds",
        up: "updates/s",
        places: Vec::new(),
        has_points: false,
    };
    save(folder, &format!("time-{}", file_part(table)), &frame, lines.collect())
}

/// Updates per second in each interval, or in several together.
fn rates(run: &Outcome) -> Vec<(f64, f64)> {
    let rate = |counts: &[u64], seconds: f64| counts.iter().sum::<u64>() as f64 / seconds;
    by_time(&run.series, &run.series.counts, rate)
}

/// The longest latencies over time, of the last repeat.
fn longest_over_time(
    table: &Table<'_>,
    folder: &Path,
) -> Result<Option<(String, String)>, Failure> {
    let title = headline(table, "longest wait for an update over time");
    let name = format!("longest-{}", file_part(table));
    save_longest(table, &title, folder, &name, |run| Some(&run.series))
}

/// The longest pauses of the machine over time, of the last repeat.
fn pauses_over_time(table: &Table<'_>, folder: &Path) -> Result<Option<(String, String)>, Failure> {
    let title = headline(table, "longest pause of the machine over time");
    let name = format!("pauses-{}", file_part(table));
    save_longest(table, &title, folder, &name, |run| run.pauses.as_ref()?.series.as_ref())
}

fn save_longest(
    table: &Table<'_>,
    title: &str,
    folder: &Path,
    name: &str,
    series: impl Fn(&Outcome) -> Option<&Series>,
) -> Result<Option<(String, String)>, Failure> {
    let longest = |us: &[u64], _: f64| us.iter().copied().max().unwrap_or(0) as f64 / 1e3;
    let lines = table.rows.iter().filter_map(|(engine, outcomes)| {
        let series = series(measured(outcomes).last().copied()?)?;
        let mut points = by_time(series, &series.longest_us, longest);
        // Where no call ended, none took no time: the one that ends next tells of it.
        points.retain(|(_, longest)| *longest > 0.0);
        Some((*engine, points))
    });
    let frame = Frame { title, across: "seconds", up: "ms", places: Vec::new(), has_points: false };
    save(folder, name, &frame, lines.collect())
}

/// One number for each interval, or for several together of so many seconds, with when they begin.
fn by_time(
    series: &Series,
    intervals: &[u64],
    number: impl Fn(&[u64], f64) -> f64,
) -> Vec<(f64, f64)> {
    // The last interval is cut short by the end of the run.
    let intervals = &intervals[..intervals.len().saturating_sub(1)];
    let is_long = intervals.len() as u64 * series.interval_ms >= LONG_MS;
    let in_second = if is_long { 1000 / series.interval_ms } else { 1 };
    let together = intervals.len().div_ceil(POINTS_MAX).max(in_second.max(1) as usize);
    let seconds = (together as u64 * series.interval_ms) as f64 / 1e3;
    let groups = intervals.chunks_exact(together).enumerate();
    groups.map(|(place, group)| (place as f64 * seconds, number(group, seconds))).collect()
}

/// Percentiles of the latencies of updates: medians over the repeats.
fn percentiles(table: &Table<'_>, folder: &Path) -> Result<Option<(String, String)>, Failure> {
    let lines = table.rows.iter().filter_map(|(engine, outcomes)| {
        let runs = measured(outcomes);
        let latencies: Vec<[f64; 6]> = runs
            .iter()
            .filter_map(|run| Some(run.update_latency.as_ref()?.percentiles()))
            .collect();
        let median = |place: usize| {
            Spread::of(latencies.iter().map(|percentiles| percentiles[place]).collect()).median
        };
        let places = 0..Latency::NAMES.len();
        let points = places.map(|place| (place as f64, median(place))).collect();
        (!latencies.is_empty()).then_some((*engine, points))
    });
    let title = headline(table, "latency of updates");
    let frame = Frame {
        title: &title,
        across: "",
        up: "µs",
        places: Latency::NAMES.map(str::to_owned).to_vec(),
        has_points: true,
    };
    save(folder, &format!("latency-{}", file_part(table)), &frame, lines.collect())
}

fn headline(table: &Table<'_>, what: &str) -> String {
    let name = table.name;
    let (workload, class) = (name.workload.name(), name.class.name());
    format!("{workload}, {class}, {}: {what}", about(name.set))
}

fn file_part(table: &Table<'_>) -> String {
    let name = table.name;
    let key = key_part(name.set);
    format!("{}{key}-{}-{}", name.set.ratio, name.workload.name(), name.class.name())
}

/// What names of files say of keys that are not the shortest.
fn key_part(set: DataSet) -> String {
    if set.key_bytes == KEY_BYTES_MIN {
        return String::new();
    }
    format!("-key{}", set.key_bytes)
}

/// Draws a plot, if it has any points; its file and title.
fn save(
    folder: &Path,
    name: &str,
    frame: &Frame<'_>,
    mut lines: Lines<'_>,
) -> Result<Option<(String, String)>, Failure> {
    lines.retain(|(_, points)| points.iter().any(|(_, up)| *up > 0.0));
    if lines.is_empty() {
        return Ok(None);
    }
    let file = format!("{name}.svg");
    let path = folder.join(&file);
    let refused = |reason: String| Failure::Refused(format!("{}: {reason}", path.display()));
    let root = SVGBackend::new(&path, SIZE).into_drawing_area();
    draw(&root, frame, &lines)
        .and_then(|()| root.present().map_err(|error| error.to_string()))
        .map_err(refused)?;
    Ok(Some((file, frame.title.to_owned())))
}

fn draw(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame<'_>,
    lines: &Lines<'_>,
) -> Result<(), String> {
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let all = lines.iter().flat_map(|(_, points)| points.iter().map(|(_, up)| *up));
    let seen = all.filter(|up| *up > 0.0);
    let (least, most) =
        seen.fold((f64::MAX, 0.0f64), |(least, most), up| (least.min(up), most.max(up)));
    if most > FACTOR * least {
        draw_on(root, frame, lines, (least / 1.5..most * 1.5).log_scale(), least / 1.5)
    } else {
        draw_on(root, frame, lines, 0.0..most * 1.1, 0.0)
    }
}

fn draw_on<Y>(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame<'_>,
    lines: &Lines<'_>,
    up: Y,
    foot: f64,
) -> Result<(), String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let say = |error: DrawingAreaErrorKind<_>| format!("{error:?}");
    let furthest = lines.iter().flat_map(|(_, points)| points.iter().map(|(across, _)| *across));
    let furthest = furthest.fold(0.0f64, f64::max);
    let has_places = !frame.places.is_empty();
    let across = if has_places { -0.5..furthest + 0.5 } else { 0.0..furthest.max(0.1) };
    let mut chart = ChartBuilder::on(root)
        .margin(14)
        .margin_top(TITLE_HEIGHT)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(50)
        .y_label_area_size(90)
        .build_cartesian_2d(across, up)
        .map_err(say)?;
    let place = |across: &f64| {
        let nearest = across.round();
        let name = frame.places.get(nearest.max(0.0) as usize);
        name.filter(|_| (across - nearest).abs() < 1e-6 && nearest >= 0.0)
            .cloned()
            .unwrap_or_default()
    };
    let number = |across: &f64| ((across * 100.0).round() / 100.0).to_string();
    let formatter: &dyn Fn(&f64) -> String = if has_places { &place } else { &number };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(if has_places { 2 * frame.places.len() + 1 } else { 10 })
        .x_label_formatter(&formatter)
        .y_labels(LABELS)
        .y_label_formatter(&|up| short(*up))
        .x_desc(frame.across)
        .y_desc(frame.up)
        .label_style(("sans-serif", 14))
        .draw()
        .map_err(say)?;
    // The first engine is drawn over the others.
    for (index, (name, points)) in lines.iter().enumerate().rev() {
        let (style, is_bound) = style(name, index);
        let points = points.iter().map(|(across, up)| (*across, up.max(foot)));
        if is_bound {
            let (dash, gap) = DASHES;
            chart.draw_series(DashedLineSeries::new(points, dash, gap, style)).map_err(say)?;
            continue;
        }
        chart.draw_series(LineSeries::new(points.clone(), style)).map_err(say)?;
        if frame.has_points {
            let dots = points.map(|point| Circle::new(point, 4, style.filled()));
            chart.draw_series(dots).map_err(say)?;
        }
    }
    name_lines(root, frame, lines).map_err(say)
}

/// Writes the title and what each line is.
fn name_lines<'a>(
    root: &DrawingArea<SVGBackend<'a>, Shift>,
    frame: &Frame<'_>,
    lines: &Lines<'_>,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    // Centred above the plot it would be cut.
    root.draw(&Text::new(frame.title, (16, 12), ("sans-serif", 17)))?;
    for (index, (name, _)) in lines.iter().enumerate() {
        let (style, is_bound) = style(name, index);
        let height = 60 + 22 * i32::try_from(index).unwrap_or(0);
        let left = i32::try_from(SIZE.0 - LEGEND_WIDTH).unwrap_or(0) + 12;
        let key = [(left, height), (left + 24, height)];
        if is_bound {
            let (dash, gap) = DASHES;
            root.draw(&DashedPathElement::new(key, dash, gap, style))?;
        } else {
            root.draw(&PathElement::new(key, style))?;
        }
        root.draw(&Text::new(*name, (left + 32, height - 8), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// How a line is drawn, and whether it is a bound, which is dashed.
fn style(name: &str, index: usize) -> (ShapeStyle, bool) {
    if [SWEEP, SYNCS].contains(&name) {
        return (BOUND.stroke_width(2), true);
    }
    (colour(name, index).stroke_width(if name == "upsweep" { 3 } else { 2 }), false)
}

/// Lengths of the dashes of bounds, and between them.
const DASHES: (i32, i32) = (8, 5);
/// The colour of bounds.
const BOUND: RGBColor = RGBColor(140, 140, 140);

/// The colour of an engine: the same in all plots. What is tuned is lighter.
fn colour(engine: &str, index: usize) -> RGBColor {
    const COLOURS: [(&str, RGBColor); 10] = [
        ("upsweep", RGBColor(200, 20, 20)),
        ("rocksdb-merge", RGBColor(20, 70, 170)),
        ("rocksdb-merge-tuned", RGBColor(100, 170, 240)),
        ("rocksdb-rmw-tuned", RGBColor(0, 170, 170)),
        ("fjall", RGBColor(110, 50, 160)),
        ("fjall-tuned", RGBColor(195, 140, 225)),
        ("lmdb", RGBColor(20, 130, 60)),
        ("redb", RGBColor(235, 150, 0)),
        ("sqlite", RGBColor(60, 60, 60)),
        // Before there were two configurations.
        ("rocksdb-rmw", RGBColor(0, 170, 170)),
    ];
    let found = COLOURS.iter().find(|(name, _)| *name == engine);
    found.unwrap_or(&COLOURS[index % COLOURS.len()]).1
}
