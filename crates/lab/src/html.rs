//! The report as one page: no script, nothing fetched, good on a telephone, on paper, by day and by
//! night. Whatever a figure shows is in a table beside it.

use crate::plot;
use crate::report::{Goal, Group};
use crate::table::{goal_rows, rows};
use crate::{LabError, Report};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fdfdfc; --faint: #cfcfcf;
  --good: #0a6b43; --bad: #a83200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e0; --paper: #17181a; --faint: #45474b;
  --good: #4fd0a0; --bad: #ff9b70; } }
body { color: var(--ink); background: var(--paper); margin: 0 auto; padding: 1rem;
  max-width: 52rem; font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
.question { font-size: 1.1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--faint); text-align: right;
  vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.facts td { white-space: normal; text-align: left; }
.reached { color: var(--good); } .missed { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; }
figcaption { font-size: .875rem; }
svg { display: block; width: 100%; max-width: 40rem; height: auto; }
svg text { fill: var(--ink); }
svg [fill='#000000'] { fill: var(--ink); }
svg [stroke='#000000'] { stroke: var(--ink); }
svg [stroke='#CCCCCC'] { stroke: var(--faint); }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --faint: #bbb;
    --good: #000; --bad: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  th, td { white-space: normal; }
  figure, table, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
";

/// The page.
pub fn page(report: &Report) -> Result<String, LabError> {
    let title = escape(&report.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p class=\"question\">{}</p>\n",
        escape(&report.question)
    );
    if !report.goals.is_empty() {
        out.push_str(&section("Goals", &goals(&report.goals)));
    }
    for group in &report.groups {
        out.push_str(&section(&group.title, &figures(group)?));
    }
    if !report.notes.is_empty() {
        let items = report.notes.iter().map(|n| format!("<li>{}</li>\n", escape(n)));
        out.push_str(&section("Notes", &format!("<ul>\n{}</ul>\n", items.collect::<String>())));
    }
    out.push_str(&section("Measured with", &facts(report)));
    out.push_str("</body>\n</html>\n");
    Ok(out)
}

fn section(title: &str, content: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(title))
}

/// The plots, and the table that has all of their numbers.
fn figures(group: &Group) -> Result<String, LabError> {
    let mut out = String::new();
    for (title, svg) in plot::figures(group)? {
        let title = escape(&title);
        // The picture for those who cannot see it is the table below.
        let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
        out.push_str(&format!(
            "<figure>\n{svg}<figcaption>{title}: medians, dots and lines for the samples\
             </figcaption>\n</figure>\n"
        ));
    }
    out.push_str(&table(&rows(group), |_| ""));
    Ok(out)
}

fn goals(goals: &[Goal]) -> String {
    table(&goal_rows(goals), |row| match goals.get(row) {
        Some(Goal { reached: true, .. }) => "reached",
        Some(Goal { value: Some(_), .. }) => "missed",
        _ => "",
    })
}

/// A table with a head; `class` names the class of the last cell of a row.
fn table(rows: &[Vec<String>], class: impl Fn(usize) -> &'static str) -> String {
    let mut out = "<div class=\"scroll\">\n<table>\n".to_owned();
    if let Some((head, body)) = rows.split_first() {
        let cells = head.iter().map(|c| format!("<th scope=\"col\">{}</th>", escape(c)));
        out.push_str(&format!("<thead><tr>{}</tr></thead>\n", cells.collect::<String>()));
        out.push_str("<tbody>\n");
        for (at, row) in body.iter().enumerate() {
            out.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let last = column + 1 == row.len();
                let class = if last { class(at) } else { "" };
                let cell = escape(cell);
                out.push_str(&match class {
                    "" => format!("<td>{cell}</td>"),
                    class => format!("<td class=\"{class}\">{cell}</td>"),
                });
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out + "</table>\n</div>\n"
}

/// Machine, versions and parameters.
fn facts(report: &Report) -> String {
    let machine = [("Machine", report.machine.line()), ("When", report.measured_at.clone())];
    let machine = machine.map(|(name, value)| (name.to_owned(), value));
    let versions = report.told_versions().into_iter().map(|(s, t)| (s, t.to_owned()));
    let parameters = report.parameters.iter().map(|p| (p.name.clone(), p.value.clone()));
    let row = |(name, value): (String, String)| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(&name), escape(&value))
    };
    let rows = machine.into_iter().chain(versions).chain(parameters).map(row);
    let rows: String = rows.collect();
    format!(
        "<div class=\"scroll\">\n<table class=\"facts\">\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Figure;
    use crate::sample::sample;

    /// Every tag closed, in order; the page is written so that this holds as for XML.
    fn balanced(page: &str) -> Result<(), String> {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page;
        while let Some(at) = rest.find('<') {
            let end = at + rest[at..].find('>').ok_or("an open bracket")?;
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            if tag.starts_with('!') || tag.ends_with('/') {
                continue;
            }
            let word = tag.split_whitespace().next().ok_or("an empty tag")?;
            match word.strip_prefix('/') {
                Some(closed) if open.last() == Some(&closed) => drop(open.pop()),
                Some(closed) => return Err(format!("</{closed}> after {open:?}")),
                None => open.push(word),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
    }

    #[test]
    fn the_page_is_well_formed() {
        let page = page(&sample()).unwrap();
        balanced(&page).unwrap();
        assert!(page.contains("A &lt;sample&gt; &amp; more"));
        assert!(page.contains("A note with &lt;b&gt;markup&lt;/b&gt;."));
        assert!(page.contains("<td class=\"reached\">reached</td>"));
        assert!(balanced("<a><b></a></b>").is_err() && balanced("<a>").is_err());
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page(&sample()).unwrap();
        // The name of SVG's vocabulary looks like an address, and is none.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for wanted in ["name=\"viewport\"", "@media print", "prefers-color-scheme: dark"] {
            assert!(page.contains(wanted), "{wanted}");
        }
    }

    #[test]
    fn figures_are_drawn_and_told() {
        let page = page(&sample()).unwrap();
        // Time, and the parts; the writes ask for no figure.
        assert_eq!(page.matches("<svg ").count(), 2);
        assert_eq!(page.matches("viewBox=").count(), 2);
        for number in ["2,083", "141 (140 - 143)", "98.1"] {
            assert!(page.contains(&format!("<td>{number}</td>")), "{number}");
        }
    }

    #[test]
    fn odd_numbers_are_drawn_too() {
        let mut report = sample();
        let group = report.group("Odd", Figure::Bars);
        for (at, samples) in
            [&[0.0][..], &[], &[-3.0, 4.0], &[1e12, 1e-9], &[f64::INFINITY]].iter().enumerate()
        {
            group.add(&format!("subject {at}"), "m", "u", samples);
        }
        balanced(&page(&report).unwrap()).unwrap();
    }
}
