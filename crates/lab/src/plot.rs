//! Figures as SVG: horizontal bars, a row a subject, so that names can be read on a narrow screen.
//!
//! A bar is the median, a line over it goes from the lowest to the highest sample, and each sample
//! is a dot. A stacked bar is a whole with its parts. The picture has no background, and its black
//! and grey are renamed by the page's style sheet in a dark scheme ([`crate::html`]).

use crate::LabError;
use crate::format::short;
use crate::report::{Figure, Group, Measurement};
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, EmptyElement, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};

/// In the picture's own units; the page scales it.
const WIDTH: u32 = 480;
const BAR: u32 = 20;
const GAP: u32 = 14;
const LEGEND_LINE: u32 = 22;
const AXIS: u32 = 44;
const LABELS: u32 = 172;
const MARGIN: u32 = 8;
/// About 13 units in the picture: the writer divides by the usual proportion of a font's em.
const FONT: u32 = 16;
/// Room for the number behind the longest bar.
const BEYOND: f64 = 1.22;

/// Told apart in print and by colour-blind readers (after Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(150, 150, 150),
];
const INK: RGBColor = RGBColor(0, 0, 0);
const FAINT: RGBColor = RGBColor(204, 204, 204);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The group's figures, one a unit, each with what it is called.
pub fn figures(group: &Group) -> Result<Vec<(String, String)>, LabError> {
    let mut units: Vec<&str> = Vec::new();
    for m in group.measurements.iter().filter(|m| drawable(m)) {
        if !units.contains(&m.unit.as_str()) {
            units.push(&m.unit);
        }
    }
    if group.figure == Figure::None {
        return Ok(Vec::new());
    }
    let figure = |unit: &&str| {
        let title =
            if unit.is_empty() { group.title.clone() } else { format!("{}, {unit}", group.title) };
        let svg = draw(group, unit)
            .map_err(|e| LabError::Plot { figure: title.clone(), what: e.to_string() })?;
        Ok((title, svg))
    };
    units.iter().map(figure).collect()
}

/// Whether there is a place for it on an axis.
fn drawable(measurement: &Measurement) -> bool {
    measurement.summary().is_some_and(|s| s.lowest.is_finite() && s.highest.is_finite())
}

/// What one picture shows.
struct Picture<'a> {
    unit: &'a str,
    metrics: Vec<&'a str>,
    rows: Vec<(&'a str, Vec<(usize, &'a Measurement)>)>,
    stacked: bool,
}

impl<'a> Picture<'a> {
    fn new(group: &'a Group, unit: &'a str) -> Picture<'a> {
        let metrics: Vec<&str> =
            group.metrics().into_iter().filter(|(_, u)| *u == unit).map(|(m, _)| m).collect();
        let bars = |subject: &str| -> Vec<(usize, &'a Measurement)> {
            let found = metrics.iter().enumerate().filter_map(|(at, metric)| {
                let m = group.find(subject, metric)?;
                (m.unit == unit && drawable(m)).then_some((at, m))
            });
            found.collect()
        };
        let rows = group.subjects().into_iter().map(|s| (s, bars(s)));
        let rows = rows.filter(|(_, bars)| !bars.is_empty()).collect();
        Picture { unit, metrics, rows, stacked: group.figure == Figure::Stacked }
    }

    /// Bars below each other in a row.
    fn lanes(&self, bars: &[(usize, &Measurement)]) -> u32 {
        if self.stacked { 1 } else { bars.len() as u32 }
    }

    fn height(&self) -> u32 {
        self.rows.iter().map(|(_, bars)| self.lanes(bars) * BAR + GAP).sum()
    }

    fn longest(&self) -> f64 {
        let length = |bars: &[(usize, &Measurement)]| {
            let summaries = bars.iter().filter_map(|(_, m)| m.summary());
            if self.stacked {
                summaries.map(|s| s.median.max(0.0)).sum()
            } else {
                summaries.map(|s| s.highest).fold(0.0, f64::max)
            }
        };
        let longest = self.rows.iter().map(|(_, bars)| length(bars)).fold(0.0, f64::max);
        if longest > 0.0 && longest.is_finite() { longest } else { 1.0 }
    }

    fn legend_lines(&self) -> u32 {
        if self.metrics.len() > 1 { self.metrics.len() as u32 } else { 0 }
    }
}

fn draw(group: &Group, unit: &str) -> Result<String, DrawError> {
    let picture = Picture::new(group, unit);
    let (legend, body) = (picture.legend_lines() * LEGEND_LINE, picture.height());
    let mut svg = String::new();
    {
        let size = (WIDTH, legend + body + AXIS + 2 * MARGIN);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw_legend(&root, &picture)?;
        let (_, below) = root.split_vertically(legend);
        let mut chart = ChartBuilder::on(&below)
            .margin(MARGIN)
            .x_label_area_size(AXIS)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(0.0..picture.longest() * BEYOND, f64::from(body)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_labels(5)
            .x_label_formatter(&|v| short(*v))
            .x_desc(picture.unit)
            .label_style(text(HPos::Center, VPos::Top))
            .axis_style(FAINT)
            .bold_line_style(FAINT)
            .light_line_style(FAINT.mix(0.0))
            .draw()?;
        draw_rows(&below, &mut chart, &picture)?;
        root.present()?;
    }
    Ok(svg)
}

fn text(across: HPos, down: VPos) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&INK).pos(Pos::new(across, down))
}

fn colour(metric: usize) -> RGBColor {
    COLOURS[metric % COLOURS.len()]
}

fn draw_legend(root: &Area<'_>, picture: &Picture<'_>) -> Result<(), DrawError> {
    if picture.legend_lines() == 0 {
        return Ok(());
    }
    for (at, metric) in picture.metrics.iter().enumerate() {
        let (left, top) = (LABELS as i32 + 8, at as i32 * LEGEND_LINE as i32 + 6);
        root.draw(&Rectangle::new([(left, top), (left + 12, top + 12)], colour(at).filled()))?;
        let style = text(HPos::Left, VPos::Center);
        root.draw(&Text::new((*metric).to_owned(), (left + 20, top + 6), style))?;
    }
    Ok(())
}

fn draw_rows(
    area: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    picture: &Picture<'_>,
) -> Result<(), DrawError> {
    let mut top = f64::from(GAP) / 2.0;
    for (subject, bars) in &picture.rows {
        let height = f64::from(picture.lanes(bars) * BAR);
        // The chart speaks of the whole drawing; the area begins below the legend.
        let (left, middle) = chart.backend_coord(&(0.0, top + height / 2.0));
        let middle = middle - area.get_pixel_range().1.start;
        let style = text(HPos::Right, VPos::Center);
        area.draw(&Text::new((*subject).to_owned(), (left - 8, middle), style))?;
        if picture.stacked {
            draw_stack(chart, bars, top)?;
        } else {
            for (lane, (metric, m)) in bars.iter().enumerate() {
                let lane_top = top + f64::from(lane as u32 * BAR);
                draw_bar(chart, m, colour(*metric), lane_top)?;
            }
        }
        top += height + f64::from(GAP);
    }
    Ok(())
}

fn draw_bar(
    chart: &Chart<'_, '_>,
    measurement: &Measurement,
    colour: RGBColor,
    top: f64,
) -> Result<(), DrawError> {
    let Some(s) = measurement.summary() else { return Ok(()) };
    let area = chart.plotting_area();
    let (bar, middle) = (f64::from(BAR), top + f64::from(BAR) / 2.0);
    let corners = [(0.0, top + 2.0), (s.median.max(0.0), top + bar - 2.0)];
    area.draw(&Rectangle::new(corners, colour.mix(0.75).filled()))?;
    let ink: ShapeStyle = INK.stroke_width(1);
    area.draw(&PathElement::new(vec![(s.lowest, middle), (s.highest, middle)], ink))?;
    for sample in &measurement.samples {
        area.draw(&Circle::new((*sample, middle), 2, INK.filled()))?;
    }
    // Seven pixels behind the highest sample, wherever that is.
    let label = EmptyElement::at((s.highest.max(0.0), middle))
        + Text::new(short(s.median), (7, 0), text(HPos::Left, VPos::Center));
    area.draw(&label)
}

fn draw_stack(
    chart: &Chart<'_, '_>,
    bars: &[(usize, &Measurement)],
    top: f64,
) -> Result<(), DrawError> {
    let area = chart.plotting_area();
    let mut from = 0.0;
    for (metric, m) in bars {
        let to = from + m.summary().map_or(0.0, |s| s.median.max(0.0));
        let corners = [(from, top + 2.0), (to, top + f64::from(BAR) - 2.0)];
        area.draw(&Rectangle::new(corners, colour(*metric).mix(0.75).filled()))?;
        from = to;
    }
    Ok(())
}
