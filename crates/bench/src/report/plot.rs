//! What every plot has: a title, axes with units, a legend, and its numbers as a table.

use super::scale::Scale;
use super::svg::{Anchor, SvgDrawing, SvgPoint, escape};
use crate::quantity::truncate;

/// The width of every plot, in the units of its drawing.
pub(crate) const WIDTH: f64 = 560.0;
const LEFT_MARGIN: f64 = 66.0;
const RIGHT_MARGIN: f64 = 26.0;
const BOTTOM_MARGIN: f64 = 46.0;
const TITLE_HEIGHT: f64 = 30.0;
const LEGEND_LINE_HEIGHT: f64 = 18.0;
/// About the width of a letter at the size of a plot's text.
const LETTER_WIDTH: f64 = 7.1;
const LEGEND_TEXT_MAX: usize = 44;

/// Numbers as a table.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows; the first cell names the row.
    pub rows: Vec<Vec<String>>,
}

impl Numbers {
    /// A table with these columns.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }
}

/// A finished plot with its numbers.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What its file is called, without an ending.
    pub name: String,
    /// Title of the plot.
    pub title: String,
    /// How to read the plot, in a sentence.
    pub description: String,
    /// Elements of the drawing.
    pub drawing: SvgDrawing,
    /// Its height; the width is [`WIDTH`].
    pub height: f64,
    /// The numbers behind it.
    pub numbers: Numbers,
}

impl Plot {
    /// The plot as an element of a page, or of a file where `style` is its style sheet.
    pub fn svg(&self, id: &str, style: Option<&str>) -> String {
        let (name_space, style) = match style {
            Some(style) => {
                (r#" xmlns="http://www.w3.org/2000/svg""#, format!("<style>{style}</style>\n"))
            }
            None => ("", String::new()),
        };
        format!(
            r#"<svg{name_space} class="plot" viewBox="0 0 {WIDTH:.0} {height:.0}" role="img" aria-labelledby="{id}-title {id}-text">
<title id="{id}-title">{title}</title>
<desc id="{id}-text">{description}</desc>
{style}<rect class="ground" width="{WIDTH:.0}" height="{height:.0}"/>
{body}</svg>
"#,
            height = self.height,
            title = escape(&self.title),
            description = escape(&self.description),
            body = self.drawing.body()
        )
    }
}

/// An axis: its scale, what it measures, in which unit.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Where values lie on the axis.
    pub scale: Scale,
    /// Title of the axis.
    pub title: String,
    /// The unit of its ticks.
    pub unit: String,
}

impl Axis {
    /// An axis with the unit of its ticks.
    pub fn new(scale: Scale, title: &str, unit: &str) -> Self {
        Self { scale, title: title.to_owned(), unit: unit.to_owned() }
    }
}

/// One entry of a legend: the class of its mark and what it stands for.
#[derive(Clone, Debug)]
pub struct LegendEntry {
    /// A class such as `line s0` or `dot s1`.
    pub class: String,
    /// Text beside the mark.
    pub text: String,
}

/// The area between the axes, while a plot is drawn.
#[derive(Debug)]
pub struct Frame {
    /// The elements so far.
    pub drawing: SvgDrawing,
    x: Scale,
    y: Scale,
    left: f64,
    top: f64,
    bottom: f64,
    height: f64,
}

impl Frame {
    /// Draws title, legend, grid and axes, and leaves `plot_height` high an area for the data.
    pub fn new(title: &str, legend: &[LegendEntry], x: &Axis, y: &Axis, plot_height: f64) -> Self {
        let mut frame = Self::without_y_axis(title, legend, x, LEFT_MARGIN, plot_height);
        frame.y = y.scale;
        let right = WIDTH - RIGHT_MARGIN;
        for (value, name) in y.scale.ticks(&y.unit) {
            let tick_y = frame.y(value);
            let from = SvgPoint::new(frame.left, tick_y);
            frame.drawing.line("grid", from, SvgPoint::new(right, tick_y));
            let position = SvgPoint::new(frame.left - 7.0, tick_y + 4.0);
            frame.drawing.text("tick", position, Anchor::End, &name);
        }
        let middle = f64::midpoint(frame.top, frame.bottom);
        frame.drawing.text_upwards("name", 13.0, middle, &y.title);
        frame
    }

    /// Without an axis at the left, which begins at `left`: for plots whose rows have names.
    pub(crate) fn without_y_axis(
        title: &str,
        legend: &[LegendEntry],
        x: &Axis,
        left: f64,
        plot_height: f64,
    ) -> Self {
        let mut drawing = SvgDrawing::default();
        let position = SvgPoint::new(10.0, 20.0);
        drawing.text("title", position, Anchor::Start, &truncate(title, 60));
        let top = TITLE_HEIGHT + draw_legend(&mut drawing, legend) + 6.0;
        let bottom = top + plot_height;
        let mut frame = Self {
            drawing,
            x: x.scale,
            y: Scale::from_zero(1.0),
            left,
            top,
            bottom,
            height: bottom + BOTTOM_MARGIN,
        };
        let mut labels_end = f64::MIN;
        for (value, name) in x.scale.ticks(&x.unit) {
            let tick_x = frame.x(value);
            let from = SvgPoint::new(tick_x, top);
            frame.drawing.line("grid", from, SvgPoint::new(tick_x, bottom));
            // A name that would run into the one before is left out; its line stays.
            let half = name.chars().count() as f64 * LETTER_WIDTH / 2.0;
            if tick_x - half > labels_end {
                let place = SvgPoint::new(tick_x, bottom + 17.0);
                frame.drawing.text("tick", place, Anchor::Middle, &name);
                labels_end = tick_x + half + 4.0;
            }
        }
        let right = WIDTH - RIGHT_MARGIN;
        let from = SvgPoint::new(left, bottom);
        frame.drawing.line("axis", from, SvgPoint::new(right, bottom));
        let place = SvgPoint::new(f64::midpoint(left, right), bottom + 37.0);
        frame.drawing.text("name", place, Anchor::Middle, &x.title);
        frame
    }

    /// The horizontal place of a value.
    pub fn x(&self, value: f64) -> f64 {
        self.left + self.x.position(value) * (WIDTH - RIGHT_MARGIN - self.left)
    }

    /// The vertical place of a value.
    pub fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.position(value) * (self.bottom - self.top)
    }

    /// The place of a point with these values.
    pub fn point(&self, x: f64, y: f64) -> SvgPoint {
        SvgPoint::new(self.x(x), self.y(y))
    }

    /// The upper end of the area.
    pub fn top(&self) -> f64 {
        self.top
    }

    /// The lower end of the area.
    pub(crate) fn bottom(&self) -> f64 {
        self.bottom
    }

    /// Returns the finished plot.
    pub fn finish(self, name: &str, title: &str, description: &str, numbers: Numbers) -> Plot {
        Plot {
            name: slug(name),
            title: title.to_owned(),
            description: description.to_owned(),
            drawing: self.drawing,
            height: self.height,
            numbers,
        }
    }
}

/// Draws the entries in as many lines as they need and returns their height.
fn draw_legend(drawing: &mut SvgDrawing, legend: &[LegendEntry]) -> f64 {
    let (mut x, mut line) = (10.0, 0.0);
    for entry in legend {
        let text = truncate(&entry.text, LEGEND_TEXT_MAX);
        let width = 30.0 + text.chars().count() as f64 * LETTER_WIDTH + 16.0;
        if x > 10.0 && x + width > WIDTH {
            (x, line) = (10.0, line + 1.0);
        }
        let y = TITLE_HEIGHT + line * LEGEND_LINE_HEIGHT + 6.0;
        if entry.class.starts_with("dot") {
            drawing.dot(&entry.class, SvgPoint::new(x + 11.0, y), 3.5);
        } else {
            let from = SvgPoint::new(x, y);
            drawing.line(&entry.class, from, SvgPoint::new(x + 22.0, y));
        }
        let position = SvgPoint::new(x + 28.0, y + 4.0);
        drawing.text("tick", position, Anchor::Start, &text);
        x += width;
    }
    if legend.is_empty() { 0.0 } else { (line + 1.0) * LEGEND_LINE_HEIGHT }
}

/// A name that is safe for a file.
fn slug(name: &str) -> String {
    const LENGTH_MAX: usize = 60;
    name.chars()
        .take(LENGTH_MAX)
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() || c == '_' => c.to_ascii_lowercase(),
            _ => '-',
        })
        .collect()
}
