//! The results as one HTML page, without scripts and without anything from elsewhere; a content security policy forbids
//! both. The same results are the same bytes. All names go through [`Page::text`], so none of them becomes markup.

use crate::results::{Outcome, TrialLine};
use crate::summary::{Cell, Column, Comparison, Summary};
use crate::table::{MEDIANS, MEDIANS_TITLE, UNKNOWN, interval, money, percent, seconds};
use turnwright_types::effect::escape_hidden_line;

const STYLE: &str = include_str!("report.css");
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
    <meta name=\"referrer\" content=\"no-referrer\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Evaluation</title>\n<style>\n";
const TABLE_END: &str = "</tbody>\n</table>\n</div>\n";
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
    let mut page = Page(HEAD.to_owned());
    page.raw(STYLE);
    page.raw("</style>\n</head>\n<body>\n<header>\n<h1>Evaluation</h1>\n<p class=\"aside\">");
    let columns = summary.columns.iter();
    let trials: usize = columns.map(|column| column.trials + column.invalid).sum();
    let tasks = summary.tasks.len();
    page.text(&format!("{tasks} tasks, {} columns, {trials} trials", summary.columns.len()));
    page.raw("</p>\n</header>\n<main>\n<div class=\"cards\">\n");
    for column in &summary.columns {
        page.card(column);
    }
    page.raw("</div>\n");
    page.comparisons(&summary.comparisons);
    page.tasks(summary);
    page.medians(summary);
    page.unpassed(lines);
    page.raw(READING);
    page.raw("</main>\n</body>\n</html>\n");
    page.0
}

/// A page that is being written.
struct Page(String);

impl Page {
    /// Adds markup. Only literals are accepted.
    fn raw(&mut self, marks: &'static str) {
        self.0.push_str(marks);
    }

    /// Adds any text, escaped.
    fn text(&mut self, text: &str) {
        for letter in escape_hidden_line(text).chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                letter => self.0.push(letter),
            }
        }
    }

    /// Adds any text, escaped, between two pieces of markup.
    fn wrapped(&mut self, before: &'static str, text: &str, after: &'static str) {
        self.raw(before);
        self.text(text);
        self.raw(after);
    }

    fn card(&mut self, column: &Column) {
        self.wrapped("<section class=\"card\">\n<h3>", &column.name, "</h3>\n");
        self.wrapped("<div class=\"rate\">", &percent(column.rate), "</div>\n");
        let mut tally = format!("{} of {} passed", column.passed, column.trials);
        if column.invalid > 0 {
            tally.push_str(&format!(", {} invalid", column.invalid));
        }
        self.wrapped("<p>", &tally, "</p>\n");
        if let Some((rate, range)) = column.rate.zip(column.interval) {
            self.bar(rate, range);
        }
        let mut facts = vec![format!("95 % range {}", interval(column.interval))];
        if column.cost.is_some() {
            facts.push(format!("{} in all", money(column.cost)));
        }
        self.wrapped("<p class=\"aside\">", &facts.join(" · "), "</p>\n");
        let named = column.served.join(", ");
        let served = if named.is_empty() { UNKNOWN } else { &named };
        let names = format!("The server named it: {served}. Version {}.", column.version);
        self.wrapped("<p class=\"aside\">", &names, "</p>\n</section>\n");
    }

    /// Draws the interval on a scale from 0 to 100.
    fn bar(&mut self, rate: f64, (low, high): (f64, f64)) {
        let [rate, low, high] = [rate, low, high].map(|rate| rate * 1_000.0);
        self.raw("<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" aria-hidden=\"true\">");
        self.raw("<rect class=\"track\" x=\"0\" y=\"8\" width=\"1000\" height=\"4\"/>");
        self.wrapped("<rect class=\"span\" y=\"2\" height=\"16\" x=\"", &format!("{low:.1}"), "\"");
        self.wrapped(" width=\"", &format!("{:.1}", (high - low).max(4.0)), "\"/>");
        let left = (rate - 4.0).clamp(0.0, 992.0);
        self.raw("<rect class=\"point\" y=\"0\" width=\"8\" height=\"20\"");
        self.wrapped(" x=\"", &format!("{left:.1}"), "\"/>");
        self.raw(
            "</svg>\n<div class=\"scale\"><span>0</span><span>50</span><span>100 %</span></div>\n",
        );
    }

    fn comparisons(&mut self, comparisons: &[Comparison]) {
        if comparisons.is_empty() {
            return;
        }
        self.raw("<h2>What the comparison tells</h2>\n");
        for comparison in comparisons {
            self.wrapped("<p class=\"verdict\">", &comparison.verdict, "</p>\n");
            for (name, tasks) in comparison.names.iter().zip(&comparison.flips) {
                if !tasks.is_empty() {
                    let text = format!("Mostly passed only by {name}: {}", tasks.join(", "));
                    self.wrapped("<p class=\"aside\">", &text, "</p>\n");
                }
            }
            if let Some(note) = comparison.note() {
                self.wrapped("<p class=\"aside\">", &note, "</p>\n");
            }
        }
    }

    /// Begins a table with these headings.
    fn table<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.raw("<div class=\"wide\">\n<table>\n<thead><tr>");
        for name in names {
            self.wrapped("<th scope=\"col\">", name, "</th>");
        }
        self.raw("</tr></thead>\n<tbody>\n");
    }

    fn tasks(&mut self, summary: &Summary) {
        self.raw("<h2>Tasks</h2>\n");
        let names = summary.columns.iter().map(|column| column.name.as_str());
        self.table(["Task"].into_iter().chain(names));
        for task in &summary.tasks {
            self.wrapped("<tr><th scope=\"row\">", task, "</th>");
            for column in &summary.columns {
                let cell = column.cells.get(task);
                self.raw("<td>");
                self.raw(mark_of(cell));
                let counted = cell.map(|cell| format!("{}/{}", cell.passed, cell.trials));
                self.text(counted.as_deref().unwrap_or(UNKNOWN));
                self.raw("</b>");
                let invalid = cell.map_or(0, |cell| cell.invalid);
                if invalid > 0 {
                    self.wrapped("<i>", &format!("{invalid} invalid"), "</i>");
                }
                self.raw("</td>");
            }
            self.raw("</tr>\n");
        }
        self.raw(TABLE_END);
    }

    fn medians(&mut self, summary: &Summary) {
        self.wrapped("<h2>", MEDIANS_TITLE, "</h2>\n");
        self.table(["model"].into_iter().chain(MEDIANS.map(|(name, _)| name)));
        for column in &summary.columns {
            self.wrapped("<tr><th scope=\"row\">", &column.name, "</th>");
            for (_, value) in MEDIANS {
                self.wrapped("<td>", &value(column), "</td>");
            }
            self.raw("</tr>\n");
        }
        self.raw(TABLE_END);
    }

    /// Lists the trials that did not pass, with the reasons.
    fn unpassed(&mut self, lines: &[TrialLine]) {
        let mut listed: Vec<_> =
            lines.iter().filter(|line| line.outcome != Outcome::Passed).collect();
        if listed.is_empty() {
            return;
        }
        listed.sort_by_cached_key(|line| {
            let TrialLine { task, model, version, settings, .. } = line;
            ([task, model, version, settings].map(String::clone), line.run)
        });
        self.raw("<details>\n<summary>");
        self.wrapped("Trials that did not pass: ", &listed.len().to_string(), "</summary>\n");
        self.table(["Task", "Model", "Run", "Outcome", "Time", "Reason"]);
        for line in listed.iter().take(MAX_LISTED) {
            let outcome = if line.outcome == Outcome::Invalid { "invalid" } else { "failed" };
            self.wrapped("<tr><th scope=\"row\">", &line.task, "</th>");
            self.wrapped("<td>", &line.model, "</td>");
            self.wrapped("<td>", &line.run.to_string(), "</td>");
            self.wrapped("<td>", outcome, "</td>");
            self.wrapped("<td>", &seconds(Some(line.seconds)), "</td>");
            self.wrapped("<td class=\"text\">", &line.reason, "</td></tr>\n");
        }
        self.raw(TABLE_END);
        self.raw("</details>\n");
    }
}

/// The beginning of a cell, by how many of its trials have passed. The numbers say the same as the colour.
fn mark_of(cell: Option<&Cell>) -> &'static str {
    match cell {
        None | Some(Cell { trials: 0, .. }) => "<b>",
        Some(cell) if cell.passed == cell.trials => "<b class=\"all\">",
        Some(Cell { passed: 0, .. }) => "<b class=\"none\">",
        Some(_) => "<b class=\"some\">",
    }
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
