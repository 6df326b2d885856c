//! Exports a session as one HTML page without scripts or external resources; a content security
//! policy forbids both. Everything from a session goes through [`HtmlDocument::text`] or is a data
//! URI of checked characters, so it can never become markup.

use std::io::{self, Write};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::fragments::short_duration;
use super::{Document, TimeSpent, fragments};
use crate::{CallRow, CallStatus, Entry, SessionRow, StoredEntry, TurnRow};
use turnwright_types::effect::{CallContent, escape_hidden_line};
use turnwright_types::message::{Media, Message, PromptPart};
use turnwright_types::timestamp::rfc3339;
use turnwright_types::update::{PlanEntry, PlanStatus};

/// Markdown is nested at most this deep in the page.
const MAX_NESTING: usize = 50;

const STYLE: &str = include_str!("page.css");

pub(super) struct HtmlDocument<'a> {
    pub(super) out: &'a mut dyn Write,
    /// The number of each turn and where its time went.
    pub(super) turns: Vec<(u64, TimeSpent)>,
}

impl HtmlDocument<'_> {
    /// Writes markup. Only literals are accepted.
    fn raw(&mut self, marks: &'static str) -> io::Result<()> {
        self.out.write_all(marks.as_bytes())
    }

    /// Writes any text, escaped.
    fn text(&mut self, text: &str) -> io::Result<()> {
        text.chars().try_for_each(|letter| match letter {
            '&' => self.raw("&amp;"),
            '<' => self.raw("&lt;"),
            '>' => self.raw("&gt;"),
            '"' => self.raw("&quot;"),
            '\'' => self.raw("&#39;"),
            '\r' => Ok(()),
            _ if letter.is_control() && !matches!(letter, '\n' | '\t') => self.raw("\u{fffd}"),
            _ => self.out.write_all(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        })
    }

    /// Writes any text, escaped, between two pieces of markup.
    fn wrapped(&mut self, before: &'static str, text: &str, after: &'static str) -> io::Result<()> {
        self.raw(before)?;
        self.text(text)?;
        self.raw(after)
    }

    /// Writes Markdown between two pieces of markup. HTML in it is text, and only links that a browser can
    /// follow safely are links.
    fn markdown(
        &mut self,
        before: &'static str,
        text: &str,
        after: &'static str,
    ) -> io::Result<()> {
        self.raw(before)?;
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        // The ends of the open elements.
        let mut ends: Vec<&'static str> = Vec::new();
        let mut is_in_head = false;
        for event in Parser::new_ext(text, options) {
            match event {
                Event::Start(tag) => {
                    is_in_head |= matches!(tag, Tag::TableHead);
                    let (start, end) = match (&tag, link_target(&tag)) {
                        (_, Some(target)) => {
                            self.wrapped("<a href=\"", target, "\" rel=\"noopener noreferrer\">")?;
                            ("", "</a>")
                        }
                        (Tag::List(Some(number)), _) if *number != 1 => {
                            self.wrapped("<ol start=\"", &number.to_string(), "\">")?;
                            ("", "</ol>\n")
                        }
                        // Browsers cannot lay out unlimited nesting.
                        _ if ends.len() > MAX_NESTING => ("", ""),
                        _ => element(&tag, is_in_head),
                    };
                    self.raw(start)?;
                    ends.push(end);
                }
                Event::End(tag) => {
                    is_in_head &= tag != TagEnd::TableHead;
                    self.raw(ends.pop().unwrap_or_default())?;
                }
                Event::Code(code) => self.wrapped("<code>", &code, "</code>")?,
                Event::Rule => self.raw("<hr>\n")?,
                Event::SoftBreak => self.raw("\n")?,
                Event::HardBreak => self.raw("<br>\n")?,
                Event::TaskListMarker(is_done) => {
                    self.raw(if is_done { "☑ " } else { "☐ " })?;
                }
                Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                    self.text(&text)?;
                }
                // Options that are off.
                Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => {}
            }
        }
        self.raw(after)
    }

    fn media(&mut self, media: &Media) -> io::Result<()> {
        match fragments::image_data_uri(media) {
            Some(link) => self.wrapped("<img alt=\"image\" src=\"", &link, "\">\n"),
            None => self.wrapped("<p class=\"aside\">", &media.mime, " not shown</p>\n"),
        }
    }

    fn message(&mut self, message: &Message, calls: &[CallRow]) -> io::Result<()> {
        match message {
            Message::User(user) => {
                self.raw("<div class=\"user\">\n")?;
                user.parts.iter().try_for_each(|part| self.part(part))?;
                self.raw("</div>\n")
            }
            Message::Assistant(answer) => {
                if !answer.thought.is_empty() {
                    self.raw("<details class=\"thought\"><summary>Thoughts</summary>")?;
                    self.markdown("<div>", &answer.thought, "</div></details>\n")?;
                }
                if !answer.text.is_empty() {
                    self.markdown("<div class=\"agent\">", &answer.text, "</div>\n")?;
                }
                if answer.interrupted {
                    self.raw("<p class=\"aside\">The answer was cut off.</p>\n")?;
                }
                calls.iter().try_for_each(|call| self.call(call))
            }
            Message::Tool(_) => Ok(()),
        }
    }

    fn part(&mut self, part: &PromptPart) -> io::Result<()> {
        match part {
            PromptPart::Text(text) => self.wrapped("<div class=\"said\">", text, "</div>\n"),
            PromptPart::Image(media) | PromptPart::Audio(media) => self.media(media),
            PromptPart::Link { name, uri } => {
                self.wrapped("<p>", &escape_hidden_line(name), " ")?;
                self.wrapped("<code>", &escape_hidden_line(uri), "</code></p>\n")
            }
            PromptPart::Resource { uri, text } => {
                self.wrapped(
                    "<details><summary><code>",
                    &escape_hidden_line(uri),
                    "</code></summary>",
                )?;
                self.wrapped("<pre>", text, "</pre></details>\n")
            }
            PromptPart::Skill(name) => self.wrapped("<p><code>/", name, "</code></p>\n"),
            PromptPart::Context(_) => Ok(()),
        }
    }

    fn call(&mut self, call: &CallRow) -> io::Result<()> {
        let is_failed = call.status != CallStatus::Success;
        let class = if is_failed { "call failed" } else { "call" };
        self.wrapped("<details class=\"", class, "\"><summary>")?;
        self.wrapped("<b>", &escape_hidden_line(&call.tool), "</b> ")?;
        self.wrapped("<code>", &fragments::call_title(call), "</code> ")?;
        self.wrapped("<span class=\"aside\">", &fragments::outcome(call), "</span></summary>\n")?;
        let arguments = fragments::arguments(call);
        if !arguments.is_empty() {
            self.wrapped("<h4>Arguments</h4><pre>", &arguments, "</pre>\n")?;
        }
        for content in &call.outcome.content {
            match content {
                CallContent::Diff { path, old, new, .. } => {
                    let path = escape_hidden_line(&path.to_string_lossy());
                    self.wrapped("<h4><code>", &path, "</code></h4>")?;
                    self.diff(&fragments::unified_diff(old.as_deref(), new))?;
                }
                CallContent::Image(media) => self.media(media)?,
                CallContent::Text(text) if call.outcome.text.is_empty() => {
                    self.wrapped("<pre>", text, "</pre>\n")?;
                }
                CallContent::Text(_) | CallContent::Terminal(_) | CallContent::Session(_) => {}
            }
        }
        if !call.outcome.text.is_empty() {
            self.wrapped("<h4>Result</h4><pre>", &call.outcome.text, "</pre>\n")?;
        }
        self.raw("</details>\n")
    }

    fn diff(&mut self, lines: &str) -> io::Result<()> {
        self.raw("<pre class=\"diff\">")?;
        for line in lines.split_inclusive('\n') {
            let (start, end) = match line.as_bytes().first() {
                Some(b'+') => ("<ins>", "</ins>"),
                Some(b'-') => ("<del>", "</del>"),
                Some(b'@') => ("<i>", "</i>"),
                _ => ("<span>", "</span>"),
            };
            self.wrapped(start, line, end)?;
        }
        self.raw("</pre>\n")
    }

    fn plan(&mut self, entries: &[PlanEntry]) -> io::Result<()> {
        self.raw("<h4>Plan</h4><ul class=\"plan\">\n")?;
        for entry in entries {
            let mark = if entry.status == PlanStatus::Completed { "☑ " } else { "☐ " };
            self.wrapped("<li>", mark, "")?;
            self.wrapped("", &entry.content, "</li>\n")?;
        }
        self.raw("</ul>\n")
    }

    /// Writes a bar for each turn: its length is the turn's duration, its colours show how the time was
    /// spent. The style sheet moves it to the top of the page.
    fn timeline(&mut self) -> io::Result<()> {
        let turns = std::mem::take(&mut self.turns);
        let longest = turns.iter().map(|turn| turn.1.total()).max().unwrap_or_default();
        self.raw("<section class=\"time\"><h2>Where the time went</h2>\n<p class=\"aside\">")?;
        self.raw("<span class=\"model\">model</span> <span class=\"tools\">tools</span> ")?;
        self.raw("<span class=\"waiting\">waiting for permission or another tool</span></p>\n")?;
        for (number, time_spent) in turns {
            self.wrapped("<a class=\"row\" href=\"#turn-", &number.to_string(), "\">")?;
            self.wrapped("<span>", &number.to_string(), "</span><span class=\"bar\">")?;
            for (part, time) in [
                ("<span class=\"model\" style=\"width:", time_spent.model),
                ("<span class=\"tools\" style=\"width:", time_spent.tools),
                ("<span class=\"waiting\" style=\"width:", time_spent.waiting),
            ] {
                let share = time.as_secs_f64() / longest.as_secs_f64().max(0.001);
                let percent = format!("{:.2}", (share * 100.0).clamp(0.0, 100.0));
                self.wrapped(part, &percent, "%\"></span>")?;
            }
            self.raw("</span>")?;
            let total = short_duration(time_spent.total());
            let summary = format!("{total}: {}", time_spent.parts());
            self.wrapped("<span class=\"aside\">", &summary, "</span></a>\n")?;
        }
        self.raw("</section>\n")
    }
}

/// The start and the end of the element that a piece of Markdown becomes.
fn element(tag: &Tag<'_>, is_in_head: bool) -> (&'static str, &'static str) {
    match tag {
        Tag::Paragraph | Tag::HtmlBlock => ("<p>", "</p>\n"),
        // The page itself has headings above these.
        Tag::Heading { level: HeadingLevel::H1, .. } => ("<h3>", "</h3>\n"),
        Tag::Heading { level: HeadingLevel::H2, .. } => ("<h4>", "</h4>\n"),
        Tag::Heading { level: HeadingLevel::H3, .. } => ("<h5>", "</h5>\n"),
        Tag::Heading { .. } => ("<h6>", "</h6>\n"),
        Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>\n"),
        Tag::CodeBlock(_) => ("<pre><code>", "</code></pre>\n"),
        Tag::List(None) => ("<ul>", "</ul>\n"),
        Tag::List(Some(_)) => ("<ol>", "</ol>\n"),
        Tag::Item => ("<li>", "</li>\n"),
        Tag::Table(_) => ("<table>", "</table>\n"),
        Tag::TableHead => ("<thead><tr>", "</tr></thead>\n"),
        Tag::TableRow => ("<tr>", "</tr>\n"),
        Tag::TableCell if is_in_head => ("<th>", "</th>"),
        Tag::TableCell => ("<td>", "</td>"),
        Tag::Emphasis => ("<em>", "</em>"),
        Tag::Strong => ("<strong>", "</strong>"),
        Tag::Strikethrough => ("<del>", "</del>"),
        _ => ("", ""),
    }
}

/// Where a link or picture leads, if a browser can go there without running anything.
fn link_target<'t>(tag: &'t Tag<'_>) -> Option<&'t str> {
    let (Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = tag else { return None };
    let is_safe =
        ["http://", "https://", "mailto:"].iter().any(|scheme| dest_url.starts_with(scheme));
    is_safe.then_some(&**dest_url)
}

impl Document for HtmlDocument<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        self.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        self.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")?;
        self.raw("style-src 'unsafe-inline'; img-src data:\">\n")?;
        self.raw("<meta name=\"referrer\" content=\"no-referrer\">\n")?;
        self.raw("<meta name=\"viewport\" content=\"width=device-width\">\n")?;
        let name = fragments::session_title(session);
        self.wrapped("<title>", &name, "</title>\n<style>\n")?;
        self.raw(STYLE)?;
        self.wrapped("</style>\n</head>\n<body>\n<header><h1>", &name, "</h1>\n")?;
        self.wrapped("<p class=\"aside\">Session <code>", session.id.as_str(), "</code> in ")?;
        let cwd = escape_hidden_line(&session.cwd.to_string_lossy());
        self.wrapped("<code>", &cwd, "</code>")?;
        if let Some(model) = &session.model {
            self.wrapped(" with <code>", &escape_hidden_line(model), "</code>")?;
        }
        self.wrapped(", started ", &rfc3339(session.created_at), ".</p></header>\n<main>\n")
    }

    fn begin_turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        self.wrapped("<section id=\"turn-", &turn.number.to_string(), "\">")?;
        self.wrapped("<h2>Turn ", &turn.number.to_string(), " <span class=\"aside\">")?;
        self.wrapped("", turn.kind.as_str(), ", ")?;
        self.wrapped("", &rfc3339(turn.started_at), "</span></h2>\n")
    }

    fn entry(&mut self, entry_row: &StoredEntry) -> io::Result<()> {
        match &entry_row.entry {
            Entry::Message { message, .. } => self.message(message, &entry_row.calls),
            Entry::Note { text, .. } => self.markdown("<div class=\"note\">", text, "</div>\n"),
            Entry::IncompleteCall { name, view, reason: why, .. } => {
                self.wrapped("<p class=\"call failed\"><b>", &escape_hidden_line(name), "</b> <code>")?;
                self.wrapped("", &escape_hidden_line(&view.title), "</code> ")?;
                self.wrapped("<span class=\"aside\">", why, "</span></p>\n")
            }
            Entry::Plan { entries } => self.plan(entries),
            Entry::Goal { goal: Some(goal) } => {
                self.wrapped("<p class=\"aside\">Goal: ", &goal.text, "<br>")?;
                self.wrapped("", &goal.notice(), "</p>\n")
            }
            Entry::Cleared => self
                .raw("<p class=\"aside\">Context cleared: from here on, the model did not see anything above.</p>\n"),
            Entry::Compacted { .. } => {
                self.wrapped("<p class=\"aside\">", fragments::COMPACTED, "</p>\n")
            }
            // The others are not shown.
            _ => Ok(()),
        }
    }

    fn end_turn(&mut self, turn: &TurnRow, time_spent: TimeSpent) -> io::Result<()> {
        self.turns.push((turn.number, time_spent));
        self.wrapped("<p class=\"aside\">", fragments::stop_reason(turn), ", after ")?;
        self.wrapped("", &short_duration(time_spent.total()), "</p>\n</section>\n")
    }

    fn end(&mut self) -> io::Result<()> {
        self.raw("</main>\n")?;
        self.timeline()?;
        self.raw("</body>\n</html>\n")?;
        self.out.flush()
    }
}
