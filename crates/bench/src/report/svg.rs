//! A small writer of SVG: what the plots need, with text that cannot become markup.
//!
//! Colours are CSS variables. A plot in the page takes them from the page, one in a file of its own
//! carries them, and both follow the reader's light or dark.

use std::fmt::Write;

use crate::quantity::printable;

/// Text of a file as it may stand in HTML and SVG.
pub fn escaped(text: &str) -> String {
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

/// A drawing that grows element by element.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    body: String,
}

impl Drawing {
    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A line through points; nothing for fewer than two.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.len() < 2 {
            return;
        }
        let mut data = String::with_capacity(points.len() * 12);
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(data, "{command}{x:.1} {y:.1}");
        }
        self.push(format_args!(r#"<path class="{class}" d="{data}"/>"#));
    }

    /// A rectangle.
    pub fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#
        ));
    }

    /// A text, made safe.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    /// A text that reads upwards, for the axis at the left.
    pub fn text_upwards(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        self.push(format_args!(
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(text)
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
