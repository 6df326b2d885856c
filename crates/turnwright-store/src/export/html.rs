//! A session as one page: no script, nothing from elsewhere, and a policy in its head that would
//! forbid both. Whatever comes from a session goes through [`Html::text`] or is a picture of
//! checked letters, so that it can be nothing but text.

use std::io::{self, Write};

use super::time::short;
use super::{Document, Spent, parts};
use turnwright_types::effect::{Content, visible_line};
use turnwright_types::message::{Media, Message, Part};
use turnwright_types::moment::rfc3339;
use crate::{CallRow, CallStatus, Entry, SessionRow, Stored, TurnRow};
use turnwright_types::update::{PlanEntry, PlanStatus};

const STYLE: &str = include_str!("page.css");

pub(super) struct Html<'a> {
    out: &'a mut dyn Write,
    /// Each turn's number and where its time went.
    turns: Vec<(u64, Spent)>,
}

impl<'a> Html<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Html<'a> {
        Html { out, turns: Vec::new() }
    }

    /// Our own marks.
    fn raw(&mut self, marks: &'static str) -> io::Result<()> {
        self.out.write_all(marks.as_bytes())
    }

    /// Anything as text.
    fn text(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        let special = |it: char| {
            matches!(it, '&' | '<' | '>' | '"' | '\'')
                || it.is_control() && it != '\n' && it != '\t'
        };
        while let Some(at) = rest.find(special) {
            let (before, after) = rest.split_at(at);
            self.out.write_all(before.as_bytes())?;
            let mut chars = after.chars();
            self.raw(match chars.next() {
                Some('&') => "&amp;",
                Some('<') => "&lt;",
                Some('>') => "&gt;",
                Some('"') => "&quot;",
                Some('\'') => "&#39;",
                Some('\r') => "",
                _ => "\u{fffd}",
            })?;
            rest = chars.as_str();
        }
        self.out.write_all(rest.as_bytes())
    }

    /// Anything as text between marks of ours.
    fn put(&mut self, before: &'static str, text: &str, after: &'static str) -> io::Result<()> {
        self.raw(before)?;
        self.text(text)?;
        self.raw(after)
    }

    fn media(&mut self, media: &Media) -> io::Result<()> {
        match parts::picture(media) {
            Some(link) => self.put("<img alt=\"picture\" src=\"", &link, "\">\n"),
            None => self.put("<p class=\"aside\">", &media.mime, " is not shown</p>\n"),
        }
    }

    fn said(&mut self, message: &Message, calls: &[CallRow]) -> io::Result<()> {
        match message {
            Message::User(user) => {
                self.raw("<div class=\"user\">\n")?;
                user.parts.iter().try_for_each(|it| self.part(it))?;
                self.raw("</div>\n")
            }
            Message::Assistant(answer) => {
                if !answer.thought.is_empty() {
                    self.raw("<details class=\"thought\"><summary>Thoughts</summary>")?;
                    self.put("<div class=\"said\">", &answer.thought, "</div></details>\n")?;
                }
                if !answer.text.is_empty() {
                    self.put("<div class=\"agent said\">", &answer.text, "</div>\n")?;
                }
                if answer.interrupted {
                    self.raw("<p class=\"aside\">The answer was cut off.</p>\n")?;
                }
                calls.iter().try_for_each(|it| self.call(it))
            }
            Message::Tool(_) => Ok(()),
        }
    }

    fn part(&mut self, part: &Part) -> io::Result<()> {
        match part {
            Part::Text(text) => self.put("<div class=\"said\">", text, "</div>\n"),
            Part::Image(media) | Part::Audio(media) => self.media(media),
            Part::Link { name, uri } => {
                self.put("<p>", &visible_line(name), " ")?;
                self.put("<code>", &visible_line(uri), "</code></p>\n")
            }
            Part::Resource { uri, text } => {
                self.put("<details><summary><code>", &visible_line(uri), "</code></summary>")?;
                self.put("<pre>", text, "</pre></details>\n")
            }
            Part::Context(_) => Ok(()),
        }
    }

    fn call(&mut self, call: &CallRow) -> io::Result<()> {
        let is_failed = call.status != CallStatus::Success;
        let class = if is_failed { "call failed" } else { "call" };
        self.put("<details class=\"", class, "\"><summary>")?;
        self.put("<b>", &visible_line(&call.tool), "</b> ")?;
        self.put("<code>", &parts::title(call), "</code> ")?;
        self.put("<span class=\"aside\">", &parts::outcome(call), "</span></summary>\n")?;
        let arguments = parts::arguments(call);
        if !arguments.is_empty() {
            self.put("<h4>Arguments</h4><pre>", &arguments, "</pre>\n")?;
        }
        for content in &call.settled.content {
            match content {
                Content::Diff { path, old, new } => {
                    let path = visible_line(&path.to_string_lossy());
                    self.put("<h4><code>", &path, "</code></h4>")?;
                    self.change(&parts::change(old.as_deref(), new))?;
                }
                Content::Image(media) => self.media(media)?,
                Content::Text(text) if call.settled.text.is_empty() => {
                    self.put("<pre>", text, "</pre>\n")?;
                }
                Content::Text(_) | Content::Terminal(_) => {}
            }
        }
        if !call.settled.text.is_empty() {
            self.put("<h4>Result</h4><pre>", &call.settled.text, "</pre>\n")?;
        }
        self.raw("</details>\n")
    }

    fn change(&mut self, lines: &str) -> io::Result<()> {
        self.raw("<pre class=\"diff\">")?;
        for line in lines.split_inclusive('\n') {
            let mark = match line.as_bytes().first() {
                Some(b'+') => "<ins>",
                Some(b'-') => "<del>",
                Some(b'@') => "<i>",
                _ => "<span>",
            };
            let end = match mark {
                "<ins>" => "</ins>",
                "<del>" => "</del>",
                "<i>" => "</i>",
                _ => "</span>",
            };
            self.put(mark, line, end)?;
        }
        self.raw("</pre>\n")
    }

    fn plan(&mut self, entries: &[PlanEntry]) -> io::Result<()> {
        self.raw("<h4>Plan</h4><ul class=\"plan\">\n")?;
        for entry in entries {
            let mark = if entry.status == PlanStatus::Completed { "☑ " } else { "☐ " };
            self.put("<li>", mark, "")?;
            self.put("", &entry.content, "</li>\n")?;
        }
        self.raw("</ul>\n")
    }

    /// A bar a turn, as long as the turn was, in the colours of what its time went to. The page
    /// shows it at its top.
    fn timeline(&mut self) -> io::Result<()> {
        let turns = std::mem::take(&mut self.turns);
        let longest = turns.iter().map(|it| it.1.whole()).max().unwrap_or_default();
        let share = |it: std::time::Duration| {
            let share = it.as_secs_f64() / longest.as_secs_f64().max(0.001);
            format!("{:.2}", (share * 100.0).clamp(0.0, 100.0))
        };
        self.raw("<section class=\"time\"><h2>Where the time went</h2>\n<p class=\"aside\">")?;
        self.raw("<span class=\"model\">model</span> <span class=\"tools\">tools</span> ")?;
        self.raw("<span class=\"waiting\">waiting for you or for another tool</span></p>\n")?;
        for (number, spent) in turns {
            self.put("<a class=\"row\" href=\"#turn-", &number.to_string(), "\">")?;
            self.put("<span>", &number.to_string(), "</span><span class=\"bar\">")?;
            self.put("<span class=\"model\" style=\"width:", &share(spent.model), "%\"></span>")?;
            self.put("<span class=\"tools\" style=\"width:", &share(spent.tools), "%\"></span>")?;
            let waiting = share(spent.waiting);
            self.put("<span class=\"waiting\" style=\"width:", &waiting, "%\"></span></span>")?;
            self.put("<span class=\"aside\">", &times(spent), "</span></a>\n")?;
        }
        self.raw("</section>\n")
    }
}

fn times(spent: Spent) -> String {
    let Spent { tools, waiting, model } = spent;
    let (model, tools, waiting) = (short(model), short(tools), short(waiting));
    format!("{}: model {model}, tools {tools}, waiting {waiting}", short(spent.whole()))
}

impl Document for Html<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        self.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        self.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")?;
        self.raw("style-src 'unsafe-inline'; img-src data:\">\n")?;
        self.raw("<meta name=\"referrer\" content=\"no-referrer\">\n")?;
        self.raw("<meta name=\"viewport\" content=\"width=device-width\">\n")?;
        let name = parts::name(session);
        self.put("<title>", &name, "</title>\n<style>\n")?;
        self.raw(STYLE)?;
        self.put("</style>\n</head>\n<body>\n<header><h1>", &name, "</h1>\n")?;
        self.put("<p class=\"aside\">Session <code>", session.id.as_str(), "</code> in ")?;
        let cwd = visible_line(&session.cwd.to_string_lossy());
        self.put("<code>", &cwd, "</code>")?;
        if let Some(model) = &session.model {
            self.put(" with <code>", &visible_line(model), "</code>")?;
        }
        self.put(", begun ", &rfc3339(session.created), ".</p></header>\n<main>\n")
    }

    fn turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        self.put("<section id=\"turn-", &turn.number.to_string(), "\">")?;
        self.put("<h2>Turn ", &turn.number.to_string(), " <span class=\"aside\">")?;
        self.put("", turn.kind.word(), ", ")?;
        self.put("", &rfc3339(turn.begun), "</span></h2>\n")
    }

    fn entry(&mut self, stored: &Stored) -> io::Result<()> {
        match &stored.entry {
            Entry::Message { message, .. } => self.said(message, &stored.calls),
            Entry::Note { text, .. } => self.put("<div class=\"note said\">", text, "</div>\n"),
            Entry::Lost { name, view, why, .. } => {
                self.put("<p class=\"call failed\"><b>", &visible_line(name), "</b> <code>")?;
                self.put("", &visible_line(&view.title), "</code> ")?;
                self.put("<span class=\"aside\">", why, "</span></p>\n")
            }
            Entry::Plan { entries } => self.plan(entries),
            Entry::Cleared => self
                .raw("<p class=\"aside\">From here on the model knew nothing of the above.</p>\n"),
            Entry::Refused | Entry::Rewound { .. } | Entry::Unknown => Ok(()),
        }
    }

    fn turn_over(&mut self, turn: &TurnRow, spent: Spent) -> io::Result<()> {
        self.turns.push((turn.number, spent));
        self.put("<p class=\"aside\">", parts::stop(turn), ", after ")?;
        self.put("", &short(spent.whole()), "</p>\n</section>\n")
    }

    fn end(&mut self) -> io::Result<()> {
        self.raw("</main>\n")?;
        self.timeline()?;
        self.raw("</body>\n</html>\n")?;
        self.out.flush()
    }
}
