//! Exports a session as Markdown. Messages are copied as they are but for control characters, since they are Markdown
//! themselves; everything else is fenced or quoted as code.

use std::io::{self, Write};

use super::fragments::short_duration;
use super::{Document, TimeSpent, fragments};
use crate::{CallRow, Entry, SessionRow, StoredEntry, TurnRow};
use turnwright_types::effect::{CallContent, escape_hidden_line, terminal_safe};
use turnwright_types::message::{Media, Message, PromptPart};
use turnwright_types::text;
use turnwright_types::timestamp::rfc3339;
use turnwright_types::update::{PlanEntry, PlanStatus};

pub(super) struct MarkdownDocument<'a> {
    pub(super) out: &'a mut dyn Write,
}

impl MarkdownDocument<'_> {
    /// Writes a paragraph, followed by an empty line.
    fn block(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}\n", terminal_safe(text.trim_end().to_owned()))
    }

    fn fenced(&mut self, language: &str, text: &str) -> io::Result<()> {
        let fence = "`".repeat(text::longest_backtick_run(text).max(2) + 1);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let shown = terminal_safe(text.to_owned());
        writeln!(self.out, "{fence}{language}\n{shown}{end}{fence}\n")
    }

    fn media(&mut self, media: &Media) -> io::Result<()> {
        match fragments::image_data_uri(media) {
            Some(link) => self.block(&format!("![image]({link})")),
            None => self.block(&format!("*{} not shown*", inline_code(&media.mime))),
        }
    }

    fn message(&mut self, message: &Message, calls: &[CallRow]) -> io::Result<()> {
        match message {
            Message::User(user) => {
                self.block("**User**")?;
                user.parts.iter().try_for_each(|part| self.part(part))
            }
            Message::Assistant(answer) => {
                if !answer.thought.is_empty() {
                    self.block("**Thoughts**")?;
                    let lines = answer.thought.trim_end().lines();
                    let quoted: Vec<_> = lines.map(|line| format!("> {line}")).collect();
                    self.block(&quoted.join("\n"))?;
                }
                if !answer.text.is_empty() {
                    self.block("**Agent**")?;
                    self.block(&answer.text)?;
                }
                if answer.interrupted {
                    self.block("*The answer was cut off.*")?;
                }
                calls.iter().try_for_each(|call| self.call(call))
            }
            Message::Tool(_) => Ok(()),
        }
    }

    fn part(&mut self, part: &PromptPart) -> io::Result<()> {
        match part {
            PromptPart::Text(text) => self.block(text),
            PromptPart::Image(media) | PromptPart::Audio(media) => self.media(media),
            PromptPart::Link { name, uri } => {
                self.block(&format!("{} ({})", inline_code(name), inline_code(uri)))
            }
            PromptPart::Resource { uri, text } => {
                self.block(&inline_code(uri))?;
                self.fenced("", text)
            }
            PromptPart::Skill(name) => self.block(&inline_code(&format!("/{name}"))),
            PromptPart::Context(_) => Ok(()),
        }
    }

    fn call(&mut self, call: &CallRow) -> io::Result<()> {
        let name = inline_code(&call.tool);
        let outcome = fragments::outcome(call);
        let title = match fragments::call_title(call) {
            title if title.is_empty() => String::new(),
            title => format!(" {}", inline_code(&title)),
        };
        self.block(&format!("### {name}{title}: {outcome}"))?;
        let arguments = fragments::arguments(call);
        if !arguments.is_empty() {
            self.fenced("json", &arguments)?;
        }
        for content in &call.outcome.content {
            match content {
                CallContent::Diff { path, old, new, .. } => {
                    self.block(&inline_code(&path.to_string_lossy()))?;
                    self.fenced("diff", &fragments::unified_diff(old.as_deref(), new))?;
                }
                CallContent::Text(text) if call.outcome.text.is_empty() => self.fenced("", text)?,
                CallContent::Image(media) => self.media(media)?,
                CallContent::Text(_) | CallContent::Terminal(_) | CallContent::Session(_) => {}
            }
        }
        if call.outcome.text.is_empty() {
            return Ok(());
        }
        self.block("Result:")?;
        self.fenced("", &call.outcome.text)
    }

    fn plan(&mut self, entries: &[PlanEntry]) -> io::Result<()> {
        self.block("**Plan**")?;
        let lines = entries.iter().map(|entry| {
            let mark = if entry.status == PlanStatus::Completed { 'x' } else { ' ' };
            format!("- [{mark}] {}", escape_hidden_line(&entry.content))
        });
        self.block(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl Document for MarkdownDocument<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        self.block(&format!("# {}", fragments::session_title(session)))?;
        let id = inline_code(session.id.as_str());
        let cwd = inline_code(&session.cwd.to_string_lossy());
        let named = session.model.as_ref().map(|model| format!(" with {}", inline_code(model)));
        let model = named.unwrap_or_default();
        let started = rfc3339(session.created_at);
        self.block(&format!("Session {id} in {cwd}{model}, started {started}."))
    }

    fn begin_turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        let started = rfc3339(turn.started_at);
        self.block(&format!("## Turn {} ({}), {started}", turn.number, turn.kind.as_str()))
    }

    fn entry(&mut self, entry_row: &StoredEntry) -> io::Result<()> {
        match &entry_row.entry {
            Entry::Message { message, .. } => self.message(message, &entry_row.calls),
            Entry::Note { text, .. } => {
                self.block("**Note**")?;
                self.block(text)
            }
            Entry::IncompleteCall { name, view, reason: why, .. } => {
                let name = inline_code(name);
                let title = inline_code(&escape_hidden_line(&view.title));
                self.block(&format!("### {name} {title}: incomplete"))?;
                self.fenced("", why)
            }
            Entry::Plan { entries } => self.plan(entries),
            Entry::Goal { goal: Some(goal) } => {
                self.block("**Goal**")?;
                self.fenced("", &format!("{}\n{}", goal.text, goal.notice()))
            }
            Entry::Cleared => {
                self.block("*Context cleared: from here on, the model did not see anything above.*")
            }
            Entry::Compacted { .. } => self.block(&format!("*{}*", fragments::COMPACTED)),
            // The others are not shown.
            _ => Ok(()),
        }
    }

    fn end_turn(&mut self, turn: &TurnRow, time_spent: TimeSpent) -> io::Result<()> {
        self.block(&format!(
            "*Turn {}: {}, after {} ({}).*",
            turn.number,
            escape_hidden_line(fragments::stop_reason(turn)),
            short_duration(time_spent.total()),
            time_spent.parts()
        ))
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One line as inline code, in which nothing is interpreted as markup.
fn inline_code(text: &str) -> String {
    let text = escape_hidden_line(text);
    let ticks = "`".repeat(text::longest_backtick_run(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}
