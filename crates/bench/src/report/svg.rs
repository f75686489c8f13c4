//! A small writer of SVG: what the plots need, with text that cannot become markup.
//!
//! Colours are CSS variables. A plot in the page takes them from the page, one in a file of its own
//! carries them, and both follow the reader's light or dark.

use std::fmt::Write;

use crate::quantity::printable;

/// Text of a file as it may stand in HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Where a text stands in relation to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The point is where it starts.
    Start,
    /// The point is in its middle.
    Middle,
    /// The point is where it ends.
    End,
}

/// A place in a drawing; `y` grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SvgPoint {
    /// Distance from the left.
    pub x: f64,
    /// Distance from the top.
    pub y: f64,
}

impl SvgPoint {
    /// The point at this place.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }
}

/// A drawing that grows element by element.
#[derive(Clone, Debug, Default)]
pub struct SvgDrawing {
    body: String,
}

impl SvgDrawing {
    /// Adds a straight line.
    pub fn line(&mut self, class: &str, from: SvgPoint, to: SvgPoint) {
        let SvgPoint { x: x1, y: y1 } = from;
        let SvgPoint { x: x2, y: y2 } = to;
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A line through points; nothing for fewer than two.
    pub fn path(&mut self, class: &str, points: &[SvgPoint]) {
        if points.len() < 2 {
            return;
        }
        let mut data = String::with_capacity(points.len() * 12);
        for (index, SvgPoint { x, y }) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(data, "{command}{x:.1} {y:.1}");
        }
        self.push(format_args!(r#"<path class="{class}" d="{data}"/>"#));
    }

    /// Adds a rectangle with its upper left corner; negative sizes count as 0.
    pub(crate) fn rectangle(&mut self, class: &str, corner: SvgPoint, width: f64, height: f64) {
        let SvgPoint { x, y } = corner;
        let (width, height) = (width.max(0.0), height.max(0.0));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    /// Adds a filled circle.
    pub fn dot(&mut self, class: &str, center: SvgPoint, radius: f64) {
        let SvgPoint { x, y } = center;
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#
        ));
    }

    /// A text, made safe.
    pub fn text(&mut self, class: &str, position: SvgPoint, anchor: Anchor, text: &str) {
        let SvgPoint { x, y } = position;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        ));
    }

    /// A text that reads upwards, for the axis at the left.
    pub(crate) fn text_upwards(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.push(format_args!(
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(text)
        ));
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{element}");
    }

    /// The elements so far.
    pub fn body(&self) -> &str {
        &self.body
    }
}

#[cfg(test)]
mod tests;
