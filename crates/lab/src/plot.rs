//! Figures as SVG: measured points joined by lines, published points as black marks.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::beside::column_of;
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Curve, Figure, PaperPoints};
use crate::papers::Papers;
use crate::problem::Problem;

const SIZE: (u32, u32) = (900, 480);
/// Height of the title.
const TITLE_HEIGHT: u32 = 44;
/// Width of the legend, which stands to the right of the plot, where no line runs.
const LEGEND_WIDTH: u32 = 250;
/// Labels of an axis, about: more run into each other where it is logarithmic.
const LABELS: usize = 7;
/// Colours of curves that can be told apart also by those who see few colours (Okabe and Ito), and
/// grey, as published points are black.
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws a figure.
///
/// # Errors
/// [`Problem::Data`] if it names published points that are not there, or has more curves than there
/// are colours; [`Problem::Figure`] if it cannot be drawn.
pub(crate) fn draw(figure: &Figure, papers: &Papers) -> Result<String, Problem> {
    let (curves, colours) = (figure.curves.len(), COLOURS.len());
    if curves > colours {
        let reason = format!("figure {}: {curves} curves, and {colours} colours", figure.name);
        return Err(Problem::Data(reason));
    }
    let marks = figure.papers.iter().map(|points| published(points, papers));
    let marks = marks.collect::<Result<Vec<Curve>, Problem>>()?;
    let shown = Shown {
        figure,
        curves: figure.curves.iter().map(|curve| drawable(curve, figure)).collect(),
        marks: marks.iter().map(|curve| drawable(curve, figure)).collect(),
    };
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    shown.draw(&root).map_err(|error| Problem::Figure(format!("{}: {error:?}", figure.name)))?;
    drop(root);
    Ok(svg)
}

/// The points that a paper states.
fn published(points: &PaperPoints, papers: &Papers) -> Result<Curve, Problem> {
    let published = papers.published(&points.paper)?;
    let across = column_of(published, &points.across)?;
    let up = column_of(published, &points.up)?;
    let only = match &points.only {
        Some((title, text)) => Some((column_of(published, title)?, Cell::Text(text.clone()))),
        None => None,
    };
    let rows = published.rows.iter();
    let rows = rows.filter(|row| only.as_ref().is_none_or(|(place, text)| row[*place] == *text));
    let points_of = rows.filter_map(|row| match (&row[across], &row[up]) {
        (Cell::Number(across), Cell::Number(up)) => Some((*across, *up)),
        _ => None,
    });
    Ok(Curve { name: points.name.clone(), points: points_of.collect() })
}

/// A curve without the points that its axes cannot show.
fn drawable(curve: &Curve, figure: &Figure) -> Curve {
    let can = |at: f64, axis: &Axis| at.is_finite() && (at > 0.0 || !axis.logarithmic);
    let mut curve = curve.clone();
    curve.points.retain(|(across, up)| can(*across, &figure.across) && can(*up, &figure.up));
    curve
}

/// A figure with its published points.
struct Shown<'a> {
    figure: &'a Figure,
    curves: Vec<Curve>,
    marks: Vec<Curve>,
}

impl Shown<'_> {
    fn draw<'a>(&self, root: &Area<'a>) -> Drawn<'a> {
        root.fill(&WHITE)?;
        let (across, up) = (self.span(|point| point.0), self.span(|point| point.1));
        let figure = self.figure;
        let wide = |(least, most): (f64, f64), coordinate: fn(&(f64, f64)) -> f64| {
            let (from, to) = (least / 1.3, most * 1.3);
            let labels = labels(from, to, self.are_powers_of_two(coordinate));
            (from..to).log_scale().with_key_points(labels)
        };
        let wide_across = || wide(across, |point| point.0);
        let wide_up = || wide(up, |point| point.1);
        let flat_up = 0.0..up.1 * 1.1;
        // A margin, so that the first and last points are not on the frame.
        let margin = (across.1 - across.0) * 0.05;
        let flat = (across.0 - margin).min(0.0).max(across.0 - margin)..across.1 + margin;
        match (figure.across.logarithmic, figure.up.logarithmic) {
            (false, false) => self.draw_on(root, flat, flat_up)?,
            (false, true) => self.draw_on(root, flat, wide_up())?,
            (true, false) => self.draw_on(root, wide_across(), flat_up)?,
            (true, true) => self.draw_on(root, wide_across(), wide_up())?,
        }
        self.draw_legend(root)?;
        root.present()
    }

    /// Whether all points are, as sizes often are.
    fn are_powers_of_two(&self, coordinate: fn(&(f64, f64)) -> f64) -> bool {
        let curves = self.curves.iter().chain(&self.marks);
        let mut all = curves.flat_map(|curve| curve.points.iter().map(coordinate));
        all.all(|at| at.log2().fract() == 0.0)
    }

    /// The least and the most of all points; wide enough to be an axis if there are few.
    fn span(&self, coordinate: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let curves = self.curves.iter().chain(&self.marks);
        let all = curves.flat_map(|curve| curve.points.iter().map(&coordinate));
        let least_and_most = all.fold(None, |span: Option<(f64, f64)>, at| {
            Some(span.map_or((at, at), |(least, most)| (least.min(at), most.max(at))))
        });
        match least_and_most {
            Some((least, most)) if most > least => (least, most),
            Some((least, _)) => (least, least + least.abs().max(1.0)),
            None => (1.0, 10.0),
        }
    }

    fn draw_on<'a, X, Y>(&self, root: &Area<'a>, across: X, up: Y) -> Drawn<'a>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .margin(14)
            .margin_top(TITLE_HEIGHT)
            .margin_right(LEGEND_WIDTH)
            .x_label_area_size(50)
            .y_label_area_size(90)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(LABELS)
            .y_labels(LABELS)
            .x_label_formatter(&|across| short(*across))
            .y_label_formatter(&|up| short(*up))
            .x_desc(self.figure.across.title.as_str())
            .y_desc(self.figure.up.title.as_str())
            .label_style(("sans-serif", 15))
            .draw()?;
        for (curve, style) in self.curves.iter().zip(styles()) {
            let points = curve.points.iter().copied();
            chart.draw_series(LineSeries::new(points.clone(), style))?;
            chart.draw_series(points.map(|point| Circle::new(point, 4, style.filled())))?;
        }
        for (marks, kind) in self.marks.iter().zip(Mark::ALL.iter().cycle()) {
            let points = marks.points.iter().map(|point| kind.at(*point));
            chart.draw_series(points)?;
        }
        Ok(())
    }

    /// Writes the title and what each curve is.
    fn draw_legend<'a>(&self, root: &Area<'a>) -> Drawn<'a> {
        // Centred above the plot it would be cut.
        root.draw(&Text::new(self.figure.title.as_str(), (16, 12), ("sans-serif", 18)))?;
        let left = i32::try_from(SIZE.0 - LEGEND_WIDTH).unwrap_or(0) + 12;
        let mut height = 60;
        let mut name = |name: &str| {
            let at = (left + 32, height - 6);
            height += 22;
            root.draw(&Text::new(name, at, ("sans-serif", 15)))?;
            Ok(height - 22)
        };
        for (curve, style) in self.curves.iter().zip(styles()) {
            let height = name(&curve.name)?;
            root.draw(&PathElement::new([(left, height), (left + 24, height)], style))?;
            root.draw(&Circle::new((left + 12, height), 4, style.filled()))?;
        }
        for (marks, kind) in self.marks.iter().zip(Mark::ALL.iter().cycle()) {
            if !marks.points.is_empty() {
                let height = name(&marks.name)?;
                root.draw(&kind.at((left + 12, height)))?;
            }
        }
        Ok(())
    }
}

/// The labels of a logarithmic axis: powers of two where all points are, else powers of ten, and
/// twice and five times these if that is not too many.
fn labels(from: f64, to: f64, of_two: bool) -> Vec<f64> {
    let series = |base: f64, times: &[f64]| -> Vec<f64> {
        let (first, last) = (from.log(base).floor() as i32, to.log(base).ceil() as i32);
        let powers = (first..=last).flat_map(|power| times.iter().map(move |by| (power, by)));
        let all = powers.map(|(power, by)| base.powi(power) * by);
        all.filter(|at| (from..=to).contains(at)).collect()
    };
    let mut kinds = vec![series(10.0, &[1.0, 2.0, 5.0]), series(10.0, &[1.0])];
    if of_two {
        kinds.insert(0, series(2.0, &[1.0]));
    }
    let fits = kinds.iter().position(|labels| labels.len() <= LABELS + 3);
    let mut chosen = kinds.swap_remove(fits.unwrap_or(kinds.len() - 1));
    // Of many, every other one, or fewer.
    let step = chosen.len().div_ceil(LABELS + 3).max(1);
    let mut place = 0;
    chosen.retain(|_| {
        place += 1;
        (place - 1) % step == 0
    });
    chosen
}

/// How published points are drawn, in the order of the figure.
#[derive(Clone, Copy)]
enum Mark {
    Cross,
    Triangle,
    Ring,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Cross, Self::Triangle, Self::Ring];

    /// The mark of a point.
    fn at<DB: DrawingBackend, C: Clone + 'static>(self, point: C) -> DynElement<'static, DB, C> {
        let style = BLACK.stroke_width(2);
        match self {
            Self::Cross => Cross::new(point, 6, style).into_dyn(),
            Self::Triangle => TriangleMarker::new(point, 6, style).into_dyn(),
            Self::Ring => Circle::new(point, 6, style).into_dyn(),
        }
    }
}

/// How the curves are drawn, in order.
fn styles() -> impl Iterator<Item = ShapeStyle> {
    COLOURS.iter().map(|colour| colour.stroke_width(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(logarithmic: bool, points: &[(f64, f64)]) -> Figure {
        let axis = |title: &str| Axis { title: title.to_owned(), logarithmic };
        Figure {
            name: "figure".into(),
            title: "Latency < 1 & \"more\"".into(),
            across: axis("batch [KB]"),
            up: axis("<latency> [us]"),
            curves: vec![Curve { name: "ours & theirs".into(), points: points.to_vec() }],
            papers: vec![PaperPoints {
                name: "Beluga".into(),
                paper: "beluga-table-6.2".into(),
                across: "batch [KB]".into(),
                up: "latency [us]".into(),
                only: None,
            }],
        }
    }

    #[test]
    fn a_figure_is_xml_with_every_text_and_every_published_point() {
        let papers = Papers::load().expect("the files are right");
        for logarithmic in [false, true] {
            let figure = figure(logarithmic, &[(16.0, 5e3), (0.0, 1.0), (64.0, f64::NAN)]);
            let svg = draw(&figure, &papers).expect("it can be drawn");
            let parsed = roxmltree::Document::parse(&svg).expect("it is XML");
            let texts = parsed.descendants().filter(|node| node.has_tag_name("text"));
            let texts: Vec<&str> = texts.filter_map(|node| node.text().map(str::trim)).collect();
            for text in [&figure.title, &figure.up.title, &figure.curves[0].name, "Beluga"] {
                assert!(texts.contains(&text), "{text} in {texts:?}");
            }
            let lines = parsed.descendants().filter(|node| {
                node.attribute("stroke") == Some("#000000")
                    && node.attribute("stroke-width") == Some("2")
            });
            // One dot for each point that the axes can show, and that of the legend.
            let dots = parsed.descendants().filter(|node| node.has_tag_name("circle"));
            assert_eq!(dots.count(), if logarithmic { 1 + 1 } else { 2 + 1 }, "{svg}");
            // Two lines for each of eight crosses, and for that of the legend.
            assert_eq!(lines.count(), 2 * (8 + 1), "{svg}");
        }
    }

    #[test]
    fn a_logarithmic_axis_has_labels_that_fit() {
        assert_eq!(labels(200.0, 1400.0, true), [256.0, 512.0, 1024.0]);
        assert_eq!(labels(3000.0, 15_000.0, false), [5000.0, 10_000.0]);
        assert_eq!(labels(90.0, 1.1e5, false).len(), 10);
        let powers = [1e2, 1e3, 1e4, 1e5, 1e6];
        let found = labels(90.0, 1.1e6, false);
        assert!(found.iter().zip(powers).all(|(found, power)| (found / power - 1.0).abs() < 1e-9));
        for decades in 1..60 {
            let count = labels(1.0, 10_f64.powi(decades), decades % 2 == 0).len();
            assert!((2..=LABELS + 3).contains(&count), "{count} for {decades}");
        }
    }

    #[test]
    fn figures_with_one_point_or_none_can_be_drawn() {
        let papers = Papers::load().expect("the files are right");
        for points in [&[][..], &[(3.0, 3.0)], &[(-3.0, 0.0)]] {
            for logarithmic in [false, true] {
                let mut figure = figure(logarithmic, points);
                figure.papers.clear();
                let svg = draw(&figure, &papers).expect("it can be drawn");
                assert!(roxmltree::Document::parse(&svg).is_ok());
            }
        }
    }

    #[test]
    fn each_curve_has_a_colour_of_its_own() {
        let papers = Papers::load().expect("the files are right");
        let mut figure = figure(false, &[(1.0, 1.0)]);
        figure.curves = vec![figure.curves[0].clone(); COLOURS.len()];
        let svg = draw(&figure, &papers).expect("it can be drawn");
        let parsed = roxmltree::Document::parse(&svg).expect("it is XML");
        let dots = parsed.descendants().filter(|node| node.has_tag_name("circle"));
        let colours: std::collections::BTreeSet<_> =
            dots.filter_map(|node| node.attribute("fill")).collect();
        assert_eq!(colours.len(), COLOURS.len());
        figure.curves.push(figure.curves[0].clone());
        assert!(matches!(draw(&figure, &papers), Err(Problem::Data(_))));
    }

    #[test]
    fn published_points_that_are_not_there_are_a_problem() {
        let papers = Papers::load().expect("the files are right");
        let mut figure = figure(false, &[(1.0, 1.0)]);
        figure.papers[0].up = "latency [ms]".into();
        assert!(matches!(draw(&figure, &papers), Err(Problem::Data(_))));
    }
}
