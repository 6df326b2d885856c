//! The results as one HTML page, without scripts and without anything from elsewhere; a content security policy forbids
//! both. The same results are the same bytes. All names go through [`escaped`], so none of them becomes markup.

use crate::results::{Outcome, TrialLine};
use crate::summary::{Cell, Column, Comparison, MEASURES, Summary};
use crate::table::{MEDIANS_TITLE, UNKNOWN, interval, median_text, money, percent, seconds};
use turnwright_types::effect::escape_hidden_line;

const STYLE: &str = include_str!("report.css");
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
    <meta name=\"referrer\" content=\"no-referrer\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Evaluation</title>\n<style>\n";
/// At most this many trials that did not pass are listed.
const MAX_LISTED: usize = 500;

/// The words on how to read the numbers.
const READING: &str = "<h2>How to read this</h2>\n\
    <p>A task counts as passed if its check command ended with 0 after the agent's work. The bar is the range in which the \
    true rate lies with a probability of 95&nbsp;% (Wilson), if the trials are independent. Trials of one task are more \
    alike than that, so the real range is rather wider.</p>\n\
    <p>Two ranges that overlap do not tell which one is better, and few trials tell little: to see 80&nbsp;% against \
    60&nbsp;%, about 81 trials a side are needed. Whatever is seen holds for these tasks.</p>\n\
    <p>Invalid trials, in which the machine or the model's server failed, count nowhere. Tokens, cost and time are medians of \
    the trials that count.</p>\n";

/// Writes the page. `lines` are all trials, of which those that did not pass are listed.
pub fn page(summary: &Summary, lines: &[TrialLine]) -> String {
    let Summary { tasks, columns, comparisons } = summary;
    let totals = columns.iter().map(|column| &column.total);
    let trials: usize = totals.map(|total| total.trials + total.invalid).sum();
    let cards: String = columns.iter().map(card).collect();
    let told: String = comparisons.iter().map(comparison).collect();
    let told_title = if told.is_empty() { "" } else { "<h2>What the comparison tells</h2>\n" };
    let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    let by_task = tasks.iter().map(|task| {
        let cells = columns.iter().map(|column| cell(column.cells.get(task)));
        (task.as_str(), cells.collect::<String>())
    });
    let medians = columns.iter().map(|column| {
        let cells = MEASURES.map(|(key, ..)| format!("<td>{}</td>", median_text(column, key)));
        (column.name.as_str(), cells.concat())
    });
    let task_table = table(&[&["Task"][..], &names].concat(), by_task);
    let measures = MEASURES.map(|(_, name, _)| name);
    let median_table = table(&[&["model"][..], &measures].concat(), medians);
    let failures = unpassed(lines);
    format!(
        "{HEAD}{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>Evaluation</h1>\n<p class=\"aside\">{} tasks, {} \
         columns, {trials} trials</p>\n</header>\n<main>\n<div class=\"cards\">\n{cards}</div>\n{told_title}{told}\
         <h2>Tasks</h2>\n{task_table}<h2>{MEDIANS_TITLE}</h2>\n{median_table}{failures}{READING}</main>\n</body>\n\
         </html>\n",
        tasks.len(),
        columns.len()
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
    let Cell { passed, trials, invalid, .. } = &column.total;
    let mut tally = format!("{passed} of {trials} passed");
    if *invalid > 0 {
        tally.push_str(&format!(", {invalid} invalid"));
    }
    let mut facts = format!("95 % range {}", interval(column.interval));
    if column.cost.is_some() {
        facts.push_str(&format!(" · {} in all", money(column.cost)));
    }
    let served = column.served.join(", ");
    let named = if served.is_empty() { UNKNOWN } else { &served };
    let names = format!("The server named it: {named}. Version {}.", column.variant.version);
    format!(
        "<section class=\"card\">\n<h3>{}</h3>\n<div class=\"rate\">{}</div>\n<p>{tally}</p>\n{}{}{}</section>\n",
        escaped(&column.name),
        percent(column.rate),
        column.rate.zip(column.interval).map(bar).unwrap_or_default(),
        paragraph("aside", &facts),
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

fn comparison(comparison: &Comparison) -> String {
    let mut told = paragraph("verdict", &comparison.verdict);
    for (name, tasks) in comparison.names.iter().zip(&comparison.flips) {
        if !tasks.is_empty() {
            let text = format!("Mostly passed only by {name}: {}", tasks.join(", "));
            told.push_str(&paragraph("aside", &text));
        }
    }
    if let Some(note) = comparison.note() {
        told.push_str(&paragraph("aside", &note));
    }
    told
}

/// A table with rows of a name and the markup of its cells.
fn table<'a>(names: &[&str], rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let heads: Vec<_> =
        names.iter().map(|name| format!("<th scope=\"col\">{}</th>", escaped(name))).collect();
    let mut text = format!(
        "<div class=\"wide\">\n<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        heads.concat()
    );
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

/// Lists the trials that did not pass, with the reasons.
fn unpassed(lines: &[TrialLine]) -> String {
    let mut listed: Vec<_> = lines.iter().filter(|line| line.outcome != Outcome::Passed).collect();
    if listed.is_empty() {
        return String::new();
    }
    listed.sort_by_cached_key(|line| (line.task.clone(), line.variant.clone(), line.run));
    let rows = listed.iter().take(MAX_LISTED).map(|line| {
        let cells = format!(
            "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td>",
            escaped(&line.variant.model),
            line.run,
            line.outcome.word(),
            seconds(Some(line.seconds)),
            escaped(&line.reason)
        );
        (line.task.as_str(), cells)
    });
    let all = table(&["Task", "Model", "Run", "Outcome", "Time", "Reason"], rows);
    let count = listed.len();
    format!("<details>\n<summary>Trials that did not pass: {count}</summary>\n{all}</details>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::line;

    fn lines() -> Vec<TrialLine> {
        let mut failed = line("<script>alert(1)</script>", "m\"><img src=x>", 2, Outcome::Failed);
        failed.reason = "check: exit 1: <b>&\u{202e}".to_owned();
        vec![
            line("a", "m\"><img src=x>", 1, Outcome::Passed),
            failed,
            line("a", "other", 1, Outcome::Invalid),
        ]
    }

    #[test]
    fn the_same_results_are_the_same_bytes_in_any_order() {
        let all = lines();
        let first = page(&Summary::of(&all), &all);
        let reversed: Vec<_> = all.into_iter().rev().collect();
        assert_eq!(page(&Summary::of(&reversed), &reversed), first);
    }

    #[test]
    fn the_page_has_no_script_and_hostile_names_are_text() {
        let all = lines();
        let page = page(&Summary::of_both(&all, &all), &all);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("http:"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(!page.contains('\u{202e}'));
        assert!(page.contains("default-src 'none'"));
        for element in ["table", "section", "tbody", "details", "svg", "b", "div"] {
            let opened = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_so() {
        let page = page(&Summary::of(&lines()), &lines());
        assert!(page.contains("<b>–</b>"), "a task without trials of a model");
        assert!(page.contains("<b class=\"all\">1/1</b>"));
        assert!(page.contains("<b class=\"none\">0/1</b>"));
        assert!(page.contains("<i>1 invalid</i>"));
    }
}
