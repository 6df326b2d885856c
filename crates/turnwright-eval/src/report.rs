//! The results as one HTML page, without scripts and without anything from elsewhere; a content security policy forbids
//! both. The same results are the same bytes. All names go through [`escaped`], so none of them becomes markup.

use crate::summary::{Cell, Column, Comparison, MEASURES, Summary};
use crate::table::{MEDIANS_TITLE, UNKNOWN, interval, median_text, percent, tally};
use turnwright_types::effect::escape_hidden_line;

const STYLE: &str = include_str!("report.css");
const HEAD: &str = include_str!("report-head.html");
/// The words on how to read the numbers.
const READING: &str = include_str!("report-reading.html");

/// Writes the page.
pub fn page(summary: &Summary) -> String {
    let Summary { tasks, columns, comparisons } = summary;
    let cards: String = columns.iter().map(card).collect();
    let sentences = comparisons.iter().flat_map(Comparison::sentences);
    let told: String = sentences.map(|text| paragraph("verdict", &text)).collect();
    let told_title = if told.is_empty() { "" } else { "<h2>What the comparison tells</h2>\n" };
    let by_task = tasks.iter().map(|task| {
        let cells = columns.iter().map(|column| cell(column.cells.get(task)));
        (task.as_str(), cells.collect::<String>())
    });
    let task_table = table(columns, by_task);
    let medians = MEASURES.into_iter().map(|(key, name, _)| {
        let cells = columns.iter().map(|column| format!("<td>{}</td>", median_text(column, key)));
        (name, cells.collect::<String>())
    });
    let median_table = table(columns, medians);
    format!(
        "{HEAD}{STYLE}</style>\n</head>\n<body>\n<h1>Evaluation</h1>\n<main>\n<div class=\"cards\">\n{cards}</div>\n\
         {told_title}{told}<h2>Tasks</h2>\n{task_table}<h2>{MEDIANS_TITLE}</h2>\n{median_table}{READING}</main>\n\
         </body>\n</html>\n"
    )
}

/// Any text as text of the page.
fn escaped(text: &str) -> String {
    let marks = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#39;")];
    marks.into_iter().fold(escape_hidden_line(text), |text, (mark, name)| text.replace(mark, name))
}

fn paragraph(class: &'static str, text: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escaped(text))
}

fn card(column: &Column) -> String {
    let range = format!("95 % range {}", interval(column.interval));
    let served = column.served.join(", ");
    let named = if served.is_empty() { UNKNOWN } else { &served };
    let names = format!("The server named it: {named}. Version {}.", column.variant.version);
    format!(
        "<section class=\"card\">\n<h3>{}</h3>\n<div class=\"rate\">{}</div>\n<p>{} passed</p>\n{}{}{}</section>\n",
        escaped(&column.name),
        percent(column.rate),
        tally(Some(&column.total)),
        column.rate.zip(column.interval).map(bar).unwrap_or_default(),
        paragraph("aside", &range),
        paragraph("aside", &names)
    )
}

/// Draws the interval on a scale from 0 to 100.
fn bar((rate, (low, high)): (f64, (f64, f64))) -> String {
    let left = low * 1_000.0;
    let width = ((high - low) * 1_000.0).max(4.0);
    let point = (rate * 1_000.0 - 4.0).clamp(0.0, 992.0);
    format!(
        "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"track\" x=\"0\" y=\"8\" width=\"1000\" height=\"4\"/>\
         <rect class=\"span\" y=\"2\" height=\"16\" x=\"{left:.1}\" width=\"{width:.1}\"/>\
         <rect class=\"point\" y=\"0\" width=\"8\" height=\"20\" x=\"{point:.1}\"/></svg>\n\
         <div class=\"scale\"><span>0</span><span>50</span><span>100 %</span></div>\n"
    )
}

/// A table with these columns, and rows of a name and the markup of its cells.
fn table<'a>(columns: &[Column], rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = "<div class=\"wide\">\n<table>\n<thead><tr><th></th>".to_owned();
    for column in columns {
        text.push_str(&format!("<th scope=\"col\">{}</th>", escaped(&column.name)));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (name, cells) in rows {
        let name = escaped(name);
        text.push_str(&format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n"));
    }
    text + "</tbody>\n</table>\n</div>\n"
}

/// The cell of a task, coloured by how many of its trials have passed. The numbers say the same as the colour.
fn cell(found: Option<&Cell>) -> String {
    let Some(Cell { passed, trials, invalid, .. }) = found else {
        return format!("<td><b>{UNKNOWN}</b></td>");
    };
    let class = match (*passed, *trials) {
        (_, 0) => "",
        (0, _) => " class=\"none\"",
        (passed, trials) if passed == trials => " class=\"all\"",
        _ => " class=\"some\"",
    };
    let note = if *invalid > 0 { format!("<i>{invalid} invalid</i>") } else { String::new() };
    format!("<td><b{class}>{passed}/{trials}</b>{note}</td>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::line;
    use crate::results::{Outcome, TrialLine};

    fn lines() -> Vec<TrialLine> {
        let hostile = "<script>alert(1)</script>&\u{202e}";
        vec![
            line("a", "m\"><img src=x>", 1, Outcome::Passed),
            line(hostile, "m\"><img src=x>", 2, Outcome::Failed),
            line("a", "other", 1, Outcome::Invalid),
        ]
    }

    #[test]
    fn the_same_results_are_the_same_bytes_in_any_order() {
        let all = lines();
        let first = page(&Summary::of(&all));
        let reversed: Vec<_> = all.into_iter().rev().collect();
        assert_eq!(page(&Summary::of(&reversed)), first);
    }

    #[test]
    fn the_page_has_no_script_and_hostile_names_are_text() {
        let all = lines();
        let page = page(&Summary::of_both(&all, &all));
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("http:"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(!page.contains('\u{202e}'));
        assert!(page.contains("default-src 'none'"));
        for element in ["table", "section", "tbody", "svg", "b", "div"] {
            let opened = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_so() {
        let page = page(&Summary::of(&lines()));
        assert!(page.contains("<b>–</b>"), "a task without trials of a model");
        assert!(page.contains("<b class=\"all\">1/1</b>"));
        assert!(page.contains("<b class=\"none\">0/1</b>"));
        assert!(page.contains("<i>1 invalid</i>"));
    }
}
