//! The plots: throughput by engine and ratio, throughput over time, percentiles of latency, and the
//! longest latencies over time where updates come at a rate, with the pauses of the machine.
//!
//! Axes are logarithmic where what is shown differs by more than ten times. Text is black on white.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::spread::Spread;
use super::{Table, measured, tables};
use crate::failure::Failure;
use crate::outcome::{Latency, Outcome, Results, Series};
use crate::text::short;
use crate::workload::{Class, Workload};

const SIZE: (u32, u32) = (900, 520);
/// Points of a line over time at most; intervals are gathered beyond.
const POINTS_MAX: usize = 120;
/// Factor beyond which an axis is logarithmic.
const FACTOR: f64 = 10.0;

/// Lines of a plot: an engine, and its points.
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
    for class in Class::ALL {
        plots.extend(throughput(&tables, class, folder)?);
    }
    for table in &tables {
        let is_open = matches!(table.name.workload, Workload::Latency50 | Workload::Latency80);
        if table.name.workload == Workload::Increments || is_open {
            plots.extend(over_time(table, folder)?);
            plots.extend(percentiles(table, folder)?);
        }
        if is_open {
            plots.extend(longest_over_time(table, folder)?);
            plots.extend(pauses_over_time(table, folder)?);
        }
    }
    Ok(plots)
}

/// Rates of increments of a class, all paid, by ratio.
fn throughput(
    tables: &[Table<'_>],
    class: Class,
    folder: &Path,
) -> Result<Option<(String, String)>, Failure> {
    let of_class: Vec<&Table<'_>> = tables
        .iter()
        .filter(|table| (table.name.workload, table.name.class) == (Workload::Increments, class))
        .collect();
    let mut lines: Lines<'_> = Vec::new();
    for (place, table) in of_class.iter().enumerate() {
        for (engine, outcomes) in &table.rows {
            let rates = measured(outcomes).iter().map(|run| run.paid_updates_per_second).collect();
            let point = (place as f64, Spread::of(rates).median);
            match lines.iter_mut().find(|(name, _)| name == engine) {
                Some((_, points)) => points.push(point),
                None => lines.push((engine, vec![point])),
            }
        }
    }
    let title = format!("increments, {}: throughput by ratio of data to memory", class.name());
    let frame = Frame {
        title: &title,
        across: "data, as a multiple of the memory",
        up: "updates/s, all paid",
        places: of_class.iter().map(|table| table.name.ratio.to_string()).collect(),
        has_points: true,
    };
    save(folder, &format!("throughput-{}", class.name()), &frame, lines)
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
    let title = headline(table, "longest latency of an update over time");
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
    let longest = |us: &[u64], _: f64| us.iter().copied().max().unwrap_or(0) as f64;
    let lines = table.rows.iter().filter_map(|(engine, outcomes)| {
        let series = series(measured(outcomes).last().copied()?)?;
        Some((*engine, by_time(series, &series.longest_us, longest)))
    });
    let frame =
        Frame { title, across: "seconds", up: "µs", places: Vec::new(), has_points: false };
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
    let together = intervals.len().div_ceil(POINTS_MAX).max(1);
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
    format!("{workload}, {class}, data {} times the memory: {what}", name.ratio)
}

fn file_part(table: &Table<'_>) -> String {
    let name = table.name;
    format!("{}-{}-{}", name.ratio, name.workload.name(), name.class.name())
}

/// Draws a plot, if it has any points; its file and title.
fn save(
    folder: &Path,
    name: &str,
    frame: &Frame<'_>,
    mut lines: Lines<'_>,
) -> Result<Option<(String, String)>, Failure> {
    for (_, points) in &mut lines {
        points.retain(|(_, up)| *up > 0.0);
    }
    lines.retain(|(_, points)| !points.is_empty());
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
    let (least, most) =
        all.fold((f64::MAX, 0.0f64), |(least, most), up| (least.min(up), most.max(up)));
    if most > FACTOR * least {
        draw_on(root, frame, lines, (least / 1.5..most * 1.5).log_scale())
    } else {
        draw_on(root, frame, lines, 0.0..most * 1.1)
    }
}

fn draw_on<Y>(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame<'_>,
    lines: &Lines<'_>,
    up: Y,
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
        .caption(frame.title, ("sans-serif", 17))
        .margin(14)
        .margin_right(170)
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
    let number = |across: &f64| short(*across);
    let formatter: &dyn Fn(&f64) -> String = if has_places { &place } else { &number };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(if has_places { 2 * frame.places.len() + 1 } else { 10 })
        .x_label_formatter(&formatter)
        .y_label_formatter(&|up| short(*up))
        .x_desc(frame.across)
        .y_desc(frame.up)
        .label_style(("sans-serif", 14))
        .draw()
        .map_err(say)?;
    for (index, (engine, points)) in lines.iter().enumerate() {
        let style = colour(engine, index).stroke_width(if *engine == "upsweep" { 3 } else { 2 });
        chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(say)?;
        if frame.has_points {
            let dots = points.iter().map(|point| Circle::new(*point, 4, style.filled()));
            chart.draw_series(dots).map_err(say)?;
        }
        // The legend stands to the right of the plot, where no line runs.
        let height = 60 + 22 * i32::try_from(index).unwrap_or(0);
        let left = i32::try_from(SIZE.0).unwrap_or(0) - 160;
        root.draw(&PathElement::new([(left, height), (left + 24, height)], style)).map_err(say)?;
        let label = Text::new(*engine, (left + 32, height - 8), ("sans-serif", 14));
        root.draw(&label).map_err(say)?;
    }
    Ok(())
}

/// The colour of an engine: the same in all plots.
fn colour(engine: &str, index: usize) -> RGBColor {
    const COLOURS: [(&str, RGBColor); 7] = [
        ("upsweep", RGBColor(200, 30, 30)),
        ("rocksdb-merge", RGBColor(30, 90, 180)),
        ("rocksdb-rmw", RGBColor(110, 170, 230)),
        ("fjall", RGBColor(120, 80, 170)),
        ("lmdb", RGBColor(20, 130, 70)),
        ("redb", RGBColor(230, 140, 20)),
        ("sqlite", RGBColor(90, 90, 90)),
    ];
    let found = COLOURS.iter().find(|(name, _)| *name == engine);
    found.unwrap_or(&COLOURS[index % COLOURS.len()]).1
}
