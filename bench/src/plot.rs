//! Plots as SVG pictures, drawn by the library `plotters`: curves over time with marks for events,
//! or over named values, with spreads and limits.
//!
//! A picture follows the reader's choice of light or dark: ink, lines of the grid and background
//! have colours of their own here, which a style in the picture replaces in the dark. Curves have
//! Okabe's and Ito's colours, which differ for all eyes and stand out on both.

use crate::error::{BenchError, Step};
use plotters::coord::ranged1d::{
    AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter,
};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;
use std::path::Path;

/// Size of the picture in pixels.
const SIZE: (u32, u32) = (900, 360);
/// Width of the names of curves beside the plot, and of the margin without names.
const NAMES: (i32, i32) = (180, 24);
/// Height of the room for the names of marks.
const MARKS: u32 = 46;
/// Approximate number of steps of an axis.
const STEPS: f64 = 8.0;
/// Largest number of labels beside the horizontal axis.
const LABELS: usize = 30;

/// Colours that the style replaces in the dark.
const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1b);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xde);
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xfe);
const STYLE: &str = "<style>@media (prefers-color-scheme: dark) {\
    [fill=\"#1A1A1B\"] { fill: #e6e6e6 } [stroke=\"#1A1A1B\"] { stroke: #e6e6e6 }\
    [stroke=\"#DDDDDE\"] { stroke: #444 } [fill=\"#FFFFFE\"] { fill: #181818 } }</style>\n";

/// Colours of curves, in their order.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];
/// Colour of marks.
const MARK: RGBColor = RGBColor(0xcc, 0x33, 0x00);

/// Contents of a plot.
pub(crate) struct Plot<'a> {
    /// Text above the plot: what is seen; empty for none.
    pub(crate) title: &'a str,
    /// The horizontal axis.
    pub(crate) across: Axis<'a>,
    /// What the vertical axis shows, with its unit.
    pub(crate) up: &'a str,
    /// The vertical axis is logarithmic. Otherwise it begins at 0.
    pub(crate) is_log: bool,
    /// The curves. Their names are shown if there are several.
    pub(crate) curves: &'a [Curve<'a>],
    /// Marks: place on the horizontal axis, and name.
    pub(crate) marks: &'a [(f64, &'a str)],
}

/// A curve of a plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve<'a> {
    /// Name of the curve.
    pub(crate) name: &'a str,
    /// Points: place on the horizontal axis, value; ascending.
    pub(crate) points: &'a [(f64, f64)],
    /// Least and greatest value of each point; empty if there is one value only.
    pub(crate) spreads: &'a [(f64, f64)],
    /// A limit, drawn as a broken line without points.
    pub(crate) is_limit: bool,
}

/// The horizontal axis of a plot.
pub(crate) enum Axis<'a> {
    /// Time in milliseconds.
    Time,
    /// Values side by side, the first at place 0, the next at 1 and so on.
    Values {
        /// What the values are.
        title: &'a str,
        /// Text of each value. Numbers ascend. From the first text on that begins with a letter,
        /// such as the name of a program, points are not joined.
        names: &'a [String],
    },
}

impl Axis<'_> {
    fn title(&self) -> &str {
        match self {
            Axis::Time => "ms",
            Axis::Values { title, .. } => title,
        }
    }

    /// Returns the places of labels.
    fn places(&self, from: f64, to: f64) -> Vec<f64> {
        match self {
            Axis::Time => ticks(from, to).collect(),
            Axis::Values { names, .. } => (0..names.len()).map(|at| at as f64).collect(),
        }
    }

    /// Returns the first place with a point that is not joined to the one before it.
    fn first_alone(&self) -> f64 {
        let Axis::Values { names, .. } = self else { return f64::INFINITY };
        let is_name = |text: &String| text.starts_with(char::is_alphabetic);
        names.iter().position(is_name).map_or(f64::INFINITY, |at| at as f64)
    }

    /// Returns the label of a place.
    fn label(&self, place: f64) -> String {
        match self {
            Axis::Time => place.to_string(),
            Axis::Values { names, .. } => names.get(place as usize).cloned().unwrap_or_default(),
        }
    }
}

impl Plot<'_> {
    /// Writes the SVG file.
    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        std::fs::write(file, self.svg()?)
            .map_err(|error| BenchError::io(format_args!("writing {}", file.display()), error))
    }

    /// Returns the text of the SVG file.
    pub(crate) fn svg(&self) -> Result<String, BenchError> {
        let values = self.curves.iter().flat_map(|curve| {
            let spreads = curve.spreads.iter().flat_map(|(low, high)| [*low, *high]);
            curve.points.iter().map(|point| point.1).chain(spreads)
        });
        let top = values.clone().fold(1e-3, f64::max);
        let mut svg = String::new();
        if self.is_log {
            let least = values.filter(|value| *value > 0.0).fold(top, f64::min);
            self.draw(&mut svg, (least / 1.5..top * 1.5).log_scale())
        } else {
            self.draw(&mut svg, 0.0..top * 1.05)
        }
        .step("drawing a plot")?;
        // The style is the first thing in the picture.
        if let Some(end) = svg.find('>') {
            svg.insert_str(end + 1, STYLE);
        }
        Ok(svg)
    }

    fn draw<Y>(&self, svg: &mut String, up: Y) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&PAPER)?;
        let (from, to) = self.span();
        let across = Across { from, to, places: self.across.places(from, to) };
        let named = self.curves.len() > 1;
        let right = if named { NAMES.0 } else { NAMES.1 };
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let area = match self.title {
            "" => root.clone(),
            title => root.titled(title, text(17))?,
        };
        let mut chart = ChartBuilder::on(&area);
        chart
            .x_label_area_size(46)
            .y_label_area_size(74)
            .margin_right(right)
            .margin_left(4)
            .margin_top(if self.marks.is_empty() { 4 } else { 4 + MARKS });
        let mut chart = chart.build_cartesian_2d(across, up)?;
        let label = |place: &f64| self.across.label(*place);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_labels(LABELS)
            .y_labels(STEPS as usize)
            .x_label_formatter(&label)
            .y_label_formatter(&|value: &f64| short(*value))
            .label_style(text(14))
            .axis_desc_style(text(14))
            .x_desc(self.across.title())
            .y_desc(self.up)
            .draw()?;
        let first_alone = self.across.first_alone();
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            draw_curve(&mut chart, curve, *colour, first_alone)?;
        }
        self.draw_marks(&root, &chart)?;
        if named {
            let (columns, rows) = chart.plotting_area().get_pixel_range();
            self.draw_names(&root, (columns.end + 12, rows.start + 8))?;
        }
        root.present()
    }

    /// Draws the names of curves beside the plot, each with a piece of its line.
    fn draw_names(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        (x, top): (i32, i32),
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        for (at, (curve, colour)) in self.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let y = top + 18 * at as i32;
            let line = [(x, y), (x + 22, y)];
            match curve.is_limit {
                true => root.draw(&DashedPathElement::new(line, 6, 4, colour.stroke_width(1)))?,
                false => root.draw(&PathElement::new(line, colour.stroke_width(3)))?,
            }
            let style = ("sans-serif", 15).into_font().color(&INK);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(curve.name.to_owned(), (x + 28, y), style))?;
        }
        Ok(())
    }

    fn draw_marks<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        let (_, rows) = chart.plotting_area().get_pixel_range();
        for (at, &(place, name)) in self.marks.iter().enumerate() {
            let x = chart.plotting_area().get_x_range().start;
            let (left, _) = chart.backend_coord(&(place.max(x), chart.y_range().start));
            // Names of marks close to each other are placed on different lines.
            let high = rows.start - 12 - 14 * (2 - at as i32 % 3);
            let line = [(left, high), (left, rows.end)];
            root.draw(&DashedPathElement::new(line, 4, 3, MARK.stroke_width(1)))?;
            let style = ("sans-serif", 14).into_font().color(&MARK);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(name.to_owned(), (left + 4, high + 4), style))?;
        }
        Ok(())
    }

    /// Returns the first and last place, which differ even without points.
    fn span(&self) -> (f64, f64) {
        let places = || self.curves.iter().flat_map(|curve| curve.points).map(|point| point.0);
        let from = places().reduce(f64::min).unwrap_or(0.0);
        let to = places().reduce(f64::max).unwrap_or(from);
        match self.across {
            Axis::Time => (from, to.max(from + 1e-3)),
            // Half a place on each side, for the texts.
            Axis::Values { names, .. } => (-0.5, names.len().max(1) as f64 - 0.5),
        }
    }
}

/// The horizontal axis, with labels at places of our own.
struct Across {
    from: f64,
    to: f64,
    places: Vec<f64>,
}

impl Ranged for Across {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (left, right): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        left + (f64::from(right - left) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.places.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// Draws a curve: points before the place `first_alone` are joined. A limit is a broken line, with
/// pieces of its own at the later places.
fn draw_curve<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    curve: &Curve<'_>,
    colour: RGBColor,
    first_alone: f64,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let joined = curve.points.partition_point(|point| point.0 < first_alone);
    let (joined, alone) = curve.points.split_at(joined);
    if curve.is_limit {
        let pieces = alone.iter().map(|&(at, value)| vec![(at - 0.3, value), (at + 0.3, value)]);
        for line in std::iter::once(joined.to_vec()).chain(pieces) {
            chart.draw_series(DashedLineSeries::new(line, 6, 4, colour.stroke_width(1)))?;
        }
        return Ok(());
    }
    if joined.len() > 1 {
        chart.draw_series(LineSeries::new(joined.iter().copied(), colour.stroke_width(2)))?;
    }
    let bars = curve.points.iter().zip(curve.spreads).map(|(&(place, value), &(low, high))| {
        ErrorBar::new_vertical(place, low, value, high, colour.filled(), 8)
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Returns a value with as many digits as a reader needs.
fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 || value == 0.0 { 0 } else { 3 };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns round numbers from `from` to `to`.
fn ticks(from: f64, to: f64) -> impl Iterator<Item = f64> {
    let rough = (to - from) / STEPS;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(decade);
    let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
    // Rounding through text avoids values like 0.30000000000000004.
    (first..=last).map(move |at| format!("{:.6}", at as f64 * step).parse().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot<'a>(across: Axis<'a>, curves: &'a [Curve<'a>]) -> Plot<'a> {
        Plot { title: "a < b", across, up: "Gb/s", is_log: false, curves, marks: &[] }
    }

    /// The points of each polyline.
    fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let points = |text: &str| {
            let pairs = text.split_whitespace().filter_map(|point| point.split_once(','));
            pairs.filter_map(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?))).collect()
        };
        let parts = svg.split("points=\"").skip(1);
        parts.filter_map(|rest| rest.split('"').next()).map(points).collect()
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 10.0).collect::<Vec<_>>(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            ticks(0.25, 0.61).collect::<Vec<_>>(),
            [0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]
        );
        assert_eq!([0.0, 1.5, 0.25, 120.4].map(short), ["0", "1.5", "0.25", "120"]);
    }

    #[test]
    fn every_point_and_mark_lies_in_the_picture() {
        let points = [(0.0, 0.0), (5.0, 40.0), (10.0, 20.0)];
        let curves = [Curve { name: "one", points: &points, ..Curve::default() }];
        let marks = [(5.0, "cut"), (6.0, "PATH_MIG")];
        let svg = Plot { marks: &marks, ..plot(Axis::Time, &curves) }.svg().expect("a picture");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        for text in ["a &lt; b", "cut", "PATH_MIG", "Gb/s", "ms"] {
            assert!(svg.contains(&format!("\n{text}\n</text>")), "{text}: {svg}");
        }
        let lines = lines(&svg);
        let line = lines.iter().find(|line| line.len() == points.len()).expect("a curve");
        assert!(line.is_sorted_by(|left, right| left.0 < right.0), "{line:?}");
        let inside = |(x, y): &(f64, f64)| {
            (0.0..f64::from(SIZE.0)).contains(x) && (0.0..f64::from(SIZE.1)).contains(y)
        };
        assert!(lines.iter().flatten().all(inside), "{lines:?}");
        // The highest value has the smallest y.
        assert!(line[1].1 < line[2].1 && line[2].1 < line[0].1);
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        for is_log in [false, true] {
            let curves = [Curve::default()];
            let svg = Plot { is_log, ..plot(Axis::Time, &curves) }.svg().expect("a picture");
            assert!(!svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn values_curves_and_limits_are_named_and_spreads_drawn() {
        let points = [(0.0, 9.0), (1.0, 3.0)];
        let spreads = [(8.0, 10.0), (2.0, 4.0)];
        let curve = |name, is_limit| Curve {
            name,
            points: &points,
            spreads: if is_limit { &[] } else { &spreads },
            is_limit,
        };
        let names = ["0".to_owned(), "1e-3".to_owned()];
        let across = Axis::Values { title: "p", names: &names };
        let curves = [curve("any", false), curve("wire", true)];
        let svg = plot(across, &curves).svg().expect("a picture");
        for text in ["0", "1e-3", "p", "any", "wire"] {
            assert!(svg.contains(&format!("\n{text}\n</text>")), "{text}: {svg}");
        }
        assert!(svg.contains("prefers-color-scheme: dark"));
        let alone = [Curve { spreads: &[], ..curve("any", false) }];
        let across = Axis::Values { title: "p", names: &names };
        let without = plot(across, &alone).svg().expect("a picture");
        assert!(without.matches("<polyline").count() < svg.matches("<polyline").count());
        let names = ["0".to_owned(), "IMIX".to_owned()];
        let across = Axis::Values { title: "frame", names: &names };
        let apart = plot(across, &alone).svg().expect("a picture");
        assert_eq!(apart.matches("<polyline").count() + 1, without.matches("<polyline").count());
    }
}
