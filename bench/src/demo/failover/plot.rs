//! Plot of throughput over time as an SVG picture, with marks for events.

use std::fmt::{self, Write};

/// Size of the picture, and margins of the curve within it, in pixels.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 44.0;
/// Approximate number of steps of an axis.
const STEPS: f64 = 8.0;

/// Contents of a plot.
pub(super) struct Plot<'a> {
    /// Text above the plot.
    pub(super) title: &'a str,
    /// Points of the curve: time in ms, throughput in Gb/s; ascending.
    pub(super) curve: &'a [(f64, f64)],
    /// Marks: time in ms, and name.
    pub(super) marks: &'a [(f64, &'a str)],
}

impl Plot<'_> {
    /// Returns the text of the SVG file.
    pub(super) fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.draw(&mut svg);
        svg
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        let (from, to) = self.span();
        let top = self.curve.iter().map(|point| point.1).fold(1e-3, f64::max) * 1.05;
        let x = |ms: f64| LEFT + (ms - from) / (to - from) * (WIDTH - LEFT - RIGHT);
        let y = |gbps: f64| HEIGHT - BOTTOM - gbps / top * (HEIGHT - TOP - BOTTOM);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>",
            escaped(self.title)
        )?;
        for gbps in ticks(0.0, top) {
            let (y, right) = (y(gbps), WIDTH - RIGHT);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{gbps}</text>",
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        for ms in ticks(from, to) {
            let (x, bottom) = (x(ms), HEIGHT - BOTTOM + 18.0);
            writeln!(svg, "<text x=\"{x:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{ms}</text>")?;
        }
        let (middle, low) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0);
        writeln!(svg, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">ms</text>")?;
        writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" text-anchor=\"end\">Gb/s</text>", TOP - 8.0)?;
        let points: Vec<String> =
            self.curve.iter().map(|&(ms, gbps)| format!("{:.1},{:.1}", x(ms), y(gbps))).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\"/>",
            points.join(" ")
        )?;
        for (at, &(ms, name)) in self.marks.iter().enumerate() {
            let (x, bottom) = (x(ms), HEIGHT - BOTTOM);
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
        writeln!(svg, "</svg>")
    }

    /// Returns the first and last time, which differ even without points.
    fn span(&self) -> (f64, f64) {
        let from = self.curve.first().map_or(0.0, |point| point.0);
        let to = self.curve.last().map_or(from, |point| point.0);
        (from, to.max(from + 1e-3))
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
        let plot =
            Plot { title: "a < b", curve: &curve, marks: &[(5.0, "cut"), (6.0, "PATH_MIG")] };
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
        let svg = Plot { title: "", curve: &[], marks: &[] }.svg();
        assert!(svg.contains("points=\"\"") && !svg.contains("NaN"), "{svg}");
    }
}
