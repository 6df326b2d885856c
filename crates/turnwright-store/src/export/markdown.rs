//! A session as Markdown. What was said stands as it is, for it is Markdown itself; all else is
//! fenced.

use std::io::{self, Write};

use super::time::short;
use super::{Document, Spent, parts};
use turnwright_types::effect::{Content, visible_line};
use turnwright_types::message::{Media, Message, Part};
use turnwright_types::moment::rfc3339;
use crate::{CallRow, Entry, SessionRow, Stored, TurnRow};
use turnwright_types::update::{PlanEntry, PlanStatus};

pub(super) struct Markdown<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Markdown<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Markdown<'a> {
        Markdown { out }
    }

    /// A part that stands alone.
    fn block(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}\n", text.trim_end())
    }

    fn fenced(&mut self, language: &str, text: &str) -> io::Result<()> {
        let fence = "`".repeat(longest_run(text).max(2) + 1);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        writeln!(self.out, "{fence}{language}\n{text}{end}{fence}\n")
    }

    fn media(&mut self, media: &Media) -> io::Result<()> {
        match parts::picture(media) {
            Some(link) => self.block(&format!("![picture]({link})")),
            None => self.block(&format!("*{} is not shown*", code(&media.mime))),
        }
    }

    fn said(&mut self, message: &Message, calls: &[CallRow]) -> io::Result<()> {
        match message {
            Message::User(user) => {
                self.block("**User**")?;
                user.parts.iter().try_for_each(|it| self.part(it))
            }
            Message::Assistant(answer) => {
                if !answer.thought.is_empty() {
                    self.block("**Thoughts**")?;
                    let lines = answer.thought.trim_end().lines();
                    let quoted: Vec<_> = lines.map(|it| format!("> {it}")).collect();
                    self.block(&quoted.join("\n"))?;
                }
                if !answer.text.is_empty() {
                    self.block("**Agent**")?;
                    self.block(&answer.text)?;
                }
                if answer.interrupted {
                    self.block("*The answer was cut off.*")?;
                }
                calls.iter().try_for_each(|it| self.call(it))
            }
            Message::Tool(_) => Ok(()),
        }
    }

    fn part(&mut self, part: &Part) -> io::Result<()> {
        match part {
            Part::Text(text) => self.block(text),
            Part::Image(media) | Part::Audio(media) => self.media(media),
            Part::Link { name, uri } => self.block(&format!("{} ({})", code(name), code(uri))),
            Part::Resource { uri, text } => {
                self.block(&code(uri))?;
                self.fenced("", text)
            }
            Part::Context(_) => Ok(()),
        }
    }

    fn call(&mut self, call: &CallRow) -> io::Result<()> {
        let (name, outcome) = (code(&call.tool), parts::outcome(call));
        let title = Some(parts::title(call)).filter(|it| !it.is_empty());
        let title = title.map(|it| format!(" {}", code(&it))).unwrap_or_default();
        self.block(&format!("### {name}{title}: {outcome}"))?;
        let arguments = parts::arguments(call);
        if !arguments.is_empty() {
            self.fenced("json", &arguments)?;
        }
        for content in &call.settled.content {
            match content {
                Content::Diff { path, old, new } => {
                    self.block(&code(&path.to_string_lossy()))?;
                    self.fenced("diff", &parts::change(old.as_deref(), new))?;
                }
                Content::Text(text) if call.settled.text.is_empty() => self.fenced("", text)?,
                Content::Image(media) => self.media(media)?,
                Content::Text(_) | Content::Terminal(_) => {}
            }
        }
        if call.settled.text.is_empty() {
            return Ok(());
        }
        self.block("Result:")?;
        self.fenced("", &call.settled.text)
    }

    fn plan(&mut self, entries: &[PlanEntry]) -> io::Result<()> {
        self.block("**Plan**")?;
        let lines = entries.iter().map(|it| {
            let mark = if it.status == PlanStatus::Completed { 'x' } else { ' ' };
            format!("- [{mark}] {}", visible_line(&it.content))
        });
        self.block(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Document for Markdown<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        self.block(&format!("# {}", parts::name(session)))?;
        let (id, cwd) = (code(session.id.as_str()), code(&session.cwd.to_string_lossy()));
        let model = session.model.as_deref().map(|it| format!(" with {}", code(it)));
        let (begun, model) = (rfc3339(session.created), model.unwrap_or_default());
        self.block(&format!("Session {id} in {cwd}{model}, begun {begun}."))
    }

    fn turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        let begun = rfc3339(turn.begun);
        self.block(&format!("## Turn {} ({}), {begun}", turn.number, turn.kind.word()))
    }

    fn entry(&mut self, stored: &Stored) -> io::Result<()> {
        match &stored.entry {
            Entry::Message { message, .. } => self.said(message, &stored.calls),
            Entry::Note { text, .. } => {
                self.block("**Note**")?;
                self.block(text)
            }
            Entry::Lost { name, view, why, .. } => {
                let (name, title) = (code(name), code(&visible_line(&view.title)));
                self.block(&format!("### {name} {title}: never whole"))?;
                self.fenced("", why)
            }
            Entry::Plan { entries } => self.plan(entries),
            Entry::Cleared => self.block("*From here on the model knew nothing of the above.*"),
            Entry::Refused | Entry::Rewound { .. } | Entry::Unknown => Ok(()),
        }
    }

    fn turn_over(&mut self, turn: &TurnRow, spent: Spent) -> io::Result<()> {
        let Spent { tools, waiting, model } = spent;
        self.block(&format!(
            "*Turn {}: {}, after {} (model {}, tools {}, waiting {}).*",
            turn.number,
            visible_line(parts::stop(turn)),
            short(spent.whole()),
            short(model),
            short(tools),
            short(waiting)
        ))
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One line in which nothing is a mark.
fn code(text: &str) -> String {
    let text = visible_line(text);
    let ticks = "`".repeat(longest_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}

/// The most backticks in a row.
fn longest_run(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or_default()
}
