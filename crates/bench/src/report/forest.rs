//! Each file against the first: ratios with their intervals, and the margin.

use super::plot::{Axis, Frame, LegendEntry, Numbers, Plot, WIDTH};
use super::scale::Scale;
use super::svg::{Anchor, SvgDrawing, SvgPoint};
use crate::compare::Comparison;
use crate::quantity::{format_change, format_quantity, truncate};

const ROW_HEIGHT: f64 = 22.0;
const NAMES_WIDTH: f64 = 172.0;
const NAME_LENGTH_MAX: usize = 22;
/// Beyond these an interval is drawn to the edge: a plot about percents need not show factors.
const RATIO_MAX: f64 = 3.0;

/// The plot of one comparison; `None` when no figure has a ratio.
pub(crate) fn plot(comparison: &Comparison, class: &str) -> Option<Plot> {
    let rows: Vec<_> =
        comparison.rows.iter().filter_map(|row| row.ratio.map(|ratio| (row, ratio))).collect();
    if rows.is_empty() {
        return None;
    }
    let margin = 1.0 + comparison.margin;
    let ratio_bound = rows
        .iter()
        .flat_map(|(row, ratio)| {
            let (low, high) = row.interval.unwrap_or((*ratio, *ratio));
            [high, 1.0 / low, *ratio, 1.0 / ratio]
        })
        .fold(margin, f64::max)
        .min(RATIO_MAX)
        * 1.05;
    let scale = Scale::Log { from: 1.0 / ratio_bound, to: ratio_bound };
    let x = Axis::new(scale, "change from A to B (ratio, logarithmic)", "percent");
    let title = format!("{} against {}", comparison.b.label, comparison.a.label);
    let interval = format!("interval {class}");
    let legend = [
        LegendEntry { class: interval.clone(), text: "95% interval".to_owned() },
        LegendEntry {
            class: "band".to_owned(),
            text: format!("margin of ±{:.1}%", comparison.margin * 100.0),
        },
    ];
    let plot_height = ROW_HEIGHT * rows.len() as f64 + 8.0;
    let mut frame = Frame::without_y_axis(&title, &legend, &x, NAMES_WIDTH, plot_height);
    let (top, bottom) = (frame.top(), frame.bottom());
    let (from, to) = (frame.x(1.0 / margin), frame.x(margin));
    let corner = SvgPoint::new(from, top);
    frame.drawing.rectangle("margin", corner, to - from, bottom - top);
    let upper = SvgPoint::new(frame.x(1.0), top);
    let lower = SvgPoint::new(frame.x(1.0), bottom);
    frame.drawing.line("axis", upper, lower);
    for (index, (row, ratio)) in rows.iter().enumerate() {
        let y = top + 4.0 + ROW_HEIGHT * (index as f64 + 0.5);
        let name = truncate(&row.figure, NAME_LENGTH_MAX);
        let position = SvgPoint::new(NAMES_WIDTH - 8.0, y + 4.0);
        frame.drawing.text("tick", position, Anchor::End, &name);
        let center = SvgPoint::new(frame.x(*ratio), y);
        match row.interval {
            Some((low, high)) => {
                let (low, high) = (frame.x(low), frame.x(high).min(WIDTH));
                draw_interval(&mut frame.drawing, &interval, low, high, y);
                frame.drawing.dot(&format!("dot {class}"), center, 4.5);
            }
            None => frame.drawing.dot(&format!("hollow {class}"), center, 4.5),
        }
    }
    let description = "Left of the line B is smaller, right of it larger. An interval that lies within \
                       the margin is equivalent; a hollow dot has too few runs for an interval.";
    let name = format!("comparison-{}", comparison.b.label);
    Some(frame.finish(&name, &title, description, numbers(comparison)))
}

/// Draws a line with a bar at each end.
fn draw_interval(drawing: &mut SvgDrawing, class: &str, low: f64, high: f64, y: f64) {
    drawing.line(class, SvgPoint::new(low, y), SvgPoint::new(high, y));
    for end in [low, high] {
        let upper = SvgPoint::new(end, y - 4.0);
        let lower = SvgPoint::new(end, y + 4.0);
        drawing.line(class, upper, lower);
    }
}

/// The figures of a comparison as a table.
pub fn numbers(comparison: &Comparison) -> Numbers {
    let mut numbers = Numbers::new(&["metric", "A", "B", "B/A", "95% interval", "verdict"]);
    numbers.rows = comparison
        .rows
        .iter()
        .map(|row| {
            let interval = row.interval.map_or("–".to_owned(), |(low, high)| {
                format!("{} to {}", format_change(low), format_change(high))
            });
            vec![
                row.figure.clone(),
                format_quantity(row.a, &row.unit),
                format_quantity(row.b, &row.unit),
                row.ratio.map_or("–".to_owned(), format_change),
                interval,
                row.verdict.as_str().to_owned(),
            ]
        })
        .collect();
    numbers
}
