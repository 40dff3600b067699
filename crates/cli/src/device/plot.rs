//! The curves of a profile as one SVG of six panels.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;
use upsweep::layers::device::{Access, Curve, Order, Profile, Varies};

const SIZE: (u32, u32) = (1200, 1080);
const PANELS: (usize, usize) = (3, 2);
/// Colours that can be told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115)];

/// Of a panel: around it, of the labels at its left, and of its title with the legend.
const MARGIN: i32 = 14;
const LABELS_WIDTH: i32 = 64;
const HEAD_HEIGHT: i32 = 56;
/// About that of a character of the legend.
const CHARACTER_WIDTH: i32 = 7;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line of a panel.
struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

/// A panel: what its axes show, and its lines.
struct Panel {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    lines: Vec<Line>,
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Mixed => "half reads, half writes",
        Access::DurableWrite => "durable writes",
    }
}

fn curves(profile: &Profile, order: Order, varies: Varies) -> impl Iterator<Item = &Curve> {
    let is_wanted = move |curve: &&Curve| (curve.order, curve.varies) == (order, varies);
    profile.curves.iter().filter(is_wanted)
}

fn points(curve: &Curve, y: &[u64], divisor: f64) -> Vec<(f64, f64)> {
    let x: Vec<f64> = match curve.varies {
        Varies::RequestBytes => curve.request_bytes.iter().map(|bytes| *bytes as f64).collect(),
        Varies::RequestsInFlight => {
            curve.requests_in_flight.iter().map(|count| f64::from(*count)).collect()
        }
    };
    x.into_iter().zip(y.iter().map(|value| *value as f64 / divisor)).collect()
}

/// Rates of a kind of load.
fn rates(profile: &Profile, title: &'static str, order: Order, varies: Varies) -> Panel {
    let is_cached = |curve: &&Curve| curve.access != Access::DurableWrite;
    let lines = curves(profile, order, varies).filter(is_cached).map(|curve| Line {
        name: name(curve.access),
        points: points(curve, &curve.bytes_per_second, 1e6),
    });
    let x = match varies {
        Varies::RequestBytes => "bytes of a request",
        Varies::RequestsInFlight => "requests in flight",
    };
    Panel { title, x, y: "MB/s", lines: lines.collect() }
}

/// Times of one kind of load.
fn times(
    profile: &Profile,
    title: &'static str,
    (access, order, varies): (Access, Order, Varies),
) -> Panel {
    let x = match varies {
        Varies::RequestBytes => "bytes of a request",
        Varies::RequestsInFlight => "requests in flight",
    };
    let mut lines = Vec::new();
    if let Some(curve) = curves(profile, order, varies).find(|curve| curve.access == access) {
        lines.push(Line { name: "median", points: points(curve, &curve.median_us, 1e3) });
        lines.push(Line { name: "99 % within", points: points(curve, &curve.p99_us, 1e3) });
    }
    Panel { title, x, y: "ms", lines }
}

/// Draws all curves.
///
/// # Errors
/// Why there is nothing to draw, as text for people.
pub(super) fn draw(profile: &Profile) -> Result<String, String> {
    let (size, depth) = (Varies::RequestBytes, Varies::RequestsInFlight);
    let (sequential, random) = (Order::Sequential, Order::Random);
    let panels = [
        rates(profile, "In sequence, four in flight", sequential, size),
        rates(profile, "At random, four in flight", random, size),
        rates(profile, "In sequence", sequential, depth),
        rates(profile, "At random, 16 KiB each", random, depth),
        times(profile, "Random reads of 16 KiB", (Access::Read, random, depth)),
        times(
            profile,
            "Durable writes in sequence, two in flight",
            (Access::DurableWrite, sequential, size),
        ),
    ];
    if panels.iter().all(|panel| panel.lines.is_empty()) {
        return Err("the profile has no curves to draw".to_owned());
    }
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw_all(&root, profile, &panels).map_err(|error| format!("cannot draw: {error}"))?;
    drop(root);
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_all(root: &Area<'_>, profile: &Profile, panels: &[Panel]) -> Drawn {
    root.fill(&WHITE)?;
    let root = root.titled(&profile.name, ("sans-serif", 22))?;
    for (area, panel) in root.split_evenly(PANELS).iter().zip(panels) {
        if !panel.lines.is_empty() {
            draw_panel(area, panel)?;
        }
    }
    root.present()?;
    Ok(())
}

/// The range of values, with some room on both sides where axes are logarithmic.
fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min).max(1e-3);
    let most = values.fold(0.0, f64::max).max(least * 2.0);
    least / 1.2..most * 1.2
}

/// A number as labels have it: bytes and counts in powers of two, rates in decimal.
fn label(value: f64, is_bytes: bool) -> String {
    match (is_bytes, value) {
        (true, value) if value >= 1024.0 * 1024.0 => format!("{} MiB", value / 1024.0 / 1024.0),
        (true, value) => format!("{} KiB", value / 1024.0),
        (false, value) if value >= 10.0 => format!("{value:.0}"),
        (false, value) => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

/// Draws which line is which in a row, where no line can be behind it.
fn draw_legend(area: &Area<'_>, panel: &Panel) -> Drawn {
    let style = ("sans-serif", 13).into_font().color(&BLACK);
    let mut x = MARGIN + LABELS_WIDTH;
    for (line, colour) in panel.lines.iter().zip(COLOURS) {
        area.draw(&PathElement::new([(x, 10), (x + 22, 10)], colour.stroke_width(2)))?;
        area.draw(&Circle::new((x + 11, 10), 3, colour.filled()))?;
        area.draw(&Text::new(line.name, (x + 28, 3), style.clone()))?;
        x += 50 + CHARACTER_WIDTH * line.name.chars().count() as i32;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let (head, area) = area.split_vertically(HEAD_HEIGHT);
    draw_legend(&head.titled(panel.title, ("sans-serif", 17))?, panel)?;
    let all = panel.lines.iter().flat_map(|line| line.points.iter().copied());
    let (x, y) = (range(all.clone().map(|point| point.0)), range(all.map(|point| point.1)));
    let is_bytes = panel.x.starts_with("bytes");
    let mut chart = ChartBuilder::on(&area)
        .margin(MARGIN)
        .margin_top(0)
        .x_label_area_size(44)
        .y_label_area_size(LABELS_WIDTH)
        .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale().base(2.0))?;
    chart
        .configure_mesh()
        .x_desc(panel.x)
        .y_desc(panel.y)
        .x_labels(7)
        .y_labels(7)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| label(*value, is_bytes))
        .y_label_formatter(&|value| label(*value, false))
        .draw()?;
    for (line, colour) in panel.lines.iter().zip(COLOURS) {
        let style = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        let marks = line.points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(marks)?;
    }
    Ok(())
}
