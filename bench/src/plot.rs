//! Plot of throughput as an SVG picture: over time with marks for events, or over named values.

use crate::error::BenchError;
use std::fmt::{self, Write};
use std::path::Path;

/// Size of the picture, and margins of the curve within it, in pixels.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 44.0;
/// Approximate number of steps of an axis.
const STEPS: f64 = 8.0;

/// Colours of curves, in their order.
const COLOURS: [&str; 3] = ["#06c", "#090", "#c60"];

/// Contents of a plot.
pub(crate) struct Plot<'a> {
    /// Text above the plot.
    pub(crate) title: &'a str,
    /// The horizontal axis.
    pub(crate) across: Axis<'a>,
    /// The curves. Their names are shown if there are several.
    pub(crate) curves: &'a [Curve<'a>],
    /// Marks: place on the horizontal axis, and name.
    pub(crate) marks: &'a [(f64, &'a str)],
}

/// A curve of a plot.
pub(crate) struct Curve<'a> {
    /// Name of the curve.
    pub(crate) name: &'a str,
    /// Points: place on the horizontal axis, throughput in Gb/s; ascending.
    pub(crate) points: &'a [(f64, f64)],
}

/// The horizontal axis of a plot.
pub(crate) enum Axis<'a> {
    /// Time in milliseconds.
    Time,
    /// Values side by side, the first at place 0, the next at 1 and so on.
    Values {
        /// What the values are.
        title: &'a str,
        /// Text of each value.
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

    /// Returns the labels between two places: place and text.
    fn labels(&self, from: f64, to: f64) -> Vec<(f64, String)> {
        match self {
            Axis::Time => ticks(from, to).map(|ms| (ms, ms.to_string())).collect(),
            Axis::Values { names, .. } => {
                names.iter().enumerate().map(|(at, name)| (at as f64, escaped(name))).collect()
            }
        }
    }
}

impl Plot<'_> {
    /// Returns the text of the SVG file.
    fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.draw(&mut svg);
        svg
    }

    /// Writes the SVG file.
    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        std::fs::write(file, self.svg())
            .map_err(|error| BenchError::io(format_args!("writing {}", file.display()), error))
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        let (from, to) = self.span();
        let points = self.curves.iter().flat_map(|curve| curve.points);
        let top = points.map(|point| point.1).fold(1e-3, f64::max) * 1.05;
        let scale = Scale { from, to, top };
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>",
            escaped(self.title)
        )?;
        self.draw_axes(svg, &scale)?;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            draw_curve(svg, &scale, curve, colour)?;
        }
        if self.curves.len() > 1 {
            self.draw_names(svg)?;
        }
        self.draw_marks(svg, &scale)?;
        writeln!(svg, "</svg>")
    }

    fn draw_axes(&self, svg: &mut String, scale: &Scale) -> fmt::Result {
        for gbps in ticks(0.0, scale.top) {
            let (y, right) = (scale.y(gbps), WIDTH - RIGHT);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{gbps}</text>",
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        for (place, text) in self.across.labels(scale.from, scale.to) {
            let (x, low) = (scale.x(place), HEIGHT - BOTTOM + 18.0);
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{low}\" text-anchor=\"middle\">{text}</text>")?;
        }
        let (middle, low) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0);
        let title = escaped(self.across.title());
        writeln!(svg, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{title}</text>")?;
        writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" text-anchor=\"end\">Gb/s</text>", TOP - 8.0)
    }

    fn draw_names(&self, svg: &mut String) -> fmt::Result {
        for (at, (curve, colour)) in self.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let (x, y) = (WIDTH - RIGHT, TOP - 18.0 + 14.0 * at as f64);
            let name = escaped(curve.name);
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>"
            )?;
        }
        Ok(())
    }

    fn draw_marks(&self, svg: &mut String, scale: &Scale) -> fmt::Result {
        for (at, &(place, name)) in self.marks.iter().enumerate() {
            let (x, bottom) = (scale.x(place), HEIGHT - BOTTOM);
            // Names of marks close to each other are placed on different lines.
            let high = TOP - 18.0 + 14.0 * (at % 3) as f64;
            writeln!(
                svg,
                "<path d=\"M{x:.1} {high}V{bottom}\" stroke=\"#c30\" stroke-dasharray=\"4 3\"/>\
                 <text x=\"{:.1}\" y=\"{high}\" fill=\"#c30\">{}</text>",
                x + 4.0,
                escaped(name)
            )?;
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
            Axis::Values { .. } => (from - 0.5, to + 0.5),
        }
    }
}

/// Places on the axes as pixels.
struct Scale {
    from: f64,
    to: f64,
    top: f64,
}

impl Scale {
    fn x(&self, place: f64) -> f64 {
        LEFT + (place - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gbps: f64) -> f64 {
        HEIGHT - BOTTOM - gbps / self.top * (HEIGHT - TOP - BOTTOM)
    }
}

fn draw_curve(svg: &mut String, scale: &Scale, curve: &Curve<'_>, colour: &str) -> fmt::Result {
    let pixels = curve.points.iter();
    let pixels = pixels.map(|&(place, gbps)| format!("{:.1},{:.1}", scale.x(place), scale.y(gbps)));
    writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
        pixels.collect::<Vec<_>>().join(" ")
    )
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 10.0).collect::<Vec<_>>(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            ticks(0.25, 0.61).collect::<Vec<_>>(),
            [0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]
        );
    }

    #[test]
    fn every_point_and_mark_lies_in_the_picture() {
        let curve = [(0.0, 0.0), (5.0, 40.0), (10.0, 20.0)];
        let plot = Plot {
            title: "a < b",
            across: Axis::Time,
            curves: &[Curve { name: "one", points: &curve }],
            marks: &[(5.0, "cut"), (6.0, "PATH_MIG")],
        };
        let svg = plot.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains(">cut<") && svg.contains(">PATH_MIG<"));
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        let points: Vec<(f64, f64)> = points
            .unwrap_or_default()
            .split(' ')
            .filter_map(|point| point.split_once(','))
            .map(|(x, y)| (x.parse().unwrap_or(-1.0), y.parse().unwrap_or(-1.0)))
            .collect();
        assert_eq!(points.len(), curve.len());
        assert!(points.is_sorted_by(|left, right| left.0 < right.0), "{points:?}");
        assert!(points.iter().all(|(x, y)| (0.0..WIDTH).contains(x) && (0.0..HEIGHT).contains(y)));
        // The highest value has the smallest y.
        assert!(points[1].1 < points[2].1 && points[2].1 < points[0].1);
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        let curves = [Curve { name: "", points: &[] }];
        let svg = Plot { title: "", across: Axis::Time, curves: &curves, marks: &[] }.svg();
        assert!(svg.contains("points=\"\"") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn values_and_several_curves_are_named() {
        let points = [(0.0, 9.0), (1.0, 3.0)];
        let curves = ["any", "own"].map(|name| Curve { name, points: &points });
        let names = ["0".to_owned(), "1e-3".to_owned()];
        let across = Axis::Values { title: "p", names: &names };
        let svg = Plot { title: "", across, curves: &curves, marks: &[] }.svg();
        for text in [">0<", ">1e-3<", ">p<", ">any<", ">own<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<polyline").count(), 2);
    }
}
