//! Changes to texts as models describe them: quoted pieces and patches. Pure: what a file says goes
//! in, what it is to say comes out, or why not. Knows nothing of files.

mod align;
mod closest;
mod ladder;
mod lines;
pub mod omission;
pub mod patch;
pub mod spots;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

pub use closest::{Difference, Near, closest};
pub use ladder::Rung;

use ladder::{Miss, Query};
use lines::{Lines, breaks, normal};
use spots::{Count, Spot};

/// The most edits of one call.
const MOST_EDITS: usize = 200;
/// The longest quotation.
const LONGEST: usize = 8 * 1024 * 1024;
/// The longest text that may come of an edit, unless it was longer before.
const LARGEST: usize = 32 * 1024 * 1024;

/// One change: a piece that is there, and what is to stand in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// What is there.
    pub old: String,
    /// What is to be there.
    pub new: String,
    /// Wherever it is, and not in one place only.
    pub all: bool,
}

/// What one edit has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// How its place was found.
    pub rung: Rung,
    /// In how many places.
    pub places: usize,
}

/// What all edits have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The text now.
    pub text: String,
    /// Each edit.
    pub done: Vec<Done>,
    /// The lines that have changed.
    pub spots: Vec<Spot>,
    /// How many.
    pub count: Count,
}

/// Why nothing was changed. `edit` counts from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which edit.
    pub edit: usize,
    /// Why.
    pub reason: Reason,
}

/// Why an edit is not made. Lines count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are none.
    NoEdits,
    /// There are more than can be.
    TooMany,
    /// It is too long.
    TooLong,
    /// Nothing is quoted.
    Empty,
    /// It would change nothing.
    Same,
    /// This line stands for others that were left out.
    Omission {
        /// What it says.
        line: String,
    },
    /// It is not there.
    Nowhere {
        /// What is most like it.
        near: Vec<Near>,
        /// It was there before the edits before this one.
        was_there: bool,
    },
    /// It is there too often, or what would come of it is too large.
    TooMuch,
    /// It is there more than once.
    Several {
        /// How it was compared.
        rung: Rung,
        /// The first few lines where it begins.
        lines: Vec<usize>,
        /// How often.
        count: usize,
    },
}

/// Makes these edits one after the other, each on what the one before has left: all or none.
///
/// # Errors
/// The first edit that cannot be made.
pub fn apply(text: &str, edits: &[Edit]) -> Result<Applied, Refusal> {
    let refuse = |edit, reason| Err(Refusal { edit, reason });
    match edits.len() {
        0 => return refuse(0, Reason::NoEdits),
        count if count > MOST_EDITS => return refuse(MOST_EDITS, Reason::TooMany),
        _ => {}
    }
    for (number, edit) in edits.iter().enumerate() {
        if let Some(reason) = nonsense(text, edit) {
            return refuse(number, reason);
        }
    }
    let mut lines = Lines::new(text);
    let (mut done, mut spots) = (Vec::new(), Vec::new());
    for (number, edit) in edits.iter().enumerate() {
        match one(&mut lines, edit) {
            Ok((step, changed)) => {
                done.push(step);
                spots = spots::compose(&spots, &changed);
            }
            Err(miss) => {
                let was_there = number > 0 && normal(text).contains(&normal(&edit.old));
                return refuse(number, explain(miss, lines.text(), &edit.old, was_there));
            }
        }
    }
    let now = lines.into_text();
    let count = spots::count(text, &now, &spots);
    Ok(Applied { text: now, done, spots, count })
}

/// What is wrong with an edit whatever the text.
fn nonsense(text: &str, edit: &Edit) -> Option<Reason> {
    if edit.old.len().max(edit.new.len()) > LONGEST {
        return Some(Reason::TooLong);
    }
    if edit.old.is_empty() {
        return Some(Reason::Empty);
    }
    if normal(&edit.old) == normal(&edit.new) {
        return Some(Reason::Same);
    }
    let line = omission::find(&edit.new, text)?;
    let line = edit.new.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
    Some(Reason::Omission { line })
}

fn one(lines: &mut Lines, edit: &Edit) -> Result<(Done, Vec<Spot>), Miss> {
    let (old, new) = (normalised(&edit.old), normalised(&edit.new));
    let within = 0..lines.text().len();
    let query = Query { old: &old, new: &new, all: edit.all, within, whole_lines: false };
    let found = ladder::find(lines.text(), &query)?;
    let before = lines.text().len();
    let gone: usize = found.places.iter().map(Range::len).sum();
    let after = (before - gone).saturating_add(found.places.len().saturating_mul(found.new.len()));
    if after > LARGEST.max(before) {
        return Err(Miss::TooMuch);
    }
    lines.learn_end(&edit.new);
    let spots = lines.replace(&found.places, &found.new);
    Ok((Done { rung: found.rung, places: found.places.len() }, spots))
}

fn normalised(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(normal(text)) } else { Cow::Borrowed(text) }
}

fn explain(miss: Miss, text: &str, old: &str, was_there: bool) -> Reason {
    match miss {
        Miss::Nowhere => Reason::Nowhere { near: closest(text, old), was_there },
        Miss::TooMuch => Reason::TooMuch,
        Miss::Several { rung, starts, count } => {
            let lines = starts.iter().map(|it| breaks(&text[..*it])).collect();
            Reason::Several { rung, lines, count }
        }
    }
}

impl Refusal {
    /// What the model is told about it. `name` is the file, `of` how many edits there were.
    pub fn explain(&self, name: &str, of: usize) -> String {
        let cure = "Add surrounding lines to make it unique or set replace_all.";
        let why = self.reason.explain(name, &Voice { quoted: "old_text", cure });
        if of > 1 { format!("Edit {} of {of}: {why}", self.edit + 1) } else { why }
    }
}

/// How a reason is told.
#[derive(Clone, Copy, Debug)]
struct Voice<'a> {
    /// What the quoted piece is called.
    quoted: &'a str,
    /// What helps where it is there more than once.
    cure: &'a str,
}

impl Reason {
    fn explain(&self, name: &str, voice: &Voice<'_>) -> String {
        let quoted = voice.quoted;
        let why = match self {
            Reason::NoEdits => {
                "edits is empty: give at least one old_text and new_text.".to_owned()
            }
            Reason::TooMany => format!(
                "more than {MOST_EDITS} edits in one call: make several calls, or use write_file."
            ),
            Reason::TooLong => "old_text or new_text is longer than 8 MiB.".to_owned(),
            Reason::Empty => "old_text is empty. To create, replace or append to a file use \
                              write_file; to insert, quote a line beside and repeat it in new_text."
                .to_owned(),
            Reason::Same if quoted == "old_text" => {
                "old_text and new_text are the same; nothing would change.".to_owned()
            }
            Reason::Same => format!("{quoted} would change nothing in {name}."),
            Reason::Omission { line } => format!(
                "`{line}` stands for lines that were left out; they would be lost. Write out all \
                 lines, or change fewer of them."
            ),
            Reason::TooMuch => format!(
                "{quoted} is in more than a million places, or the text would become larger than \
                 32 MiB. Use exec for a change of that size."
            ),
            Reason::Nowhere { near, was_there } => nowhere(name, quoted, near, *was_there),
            Reason::Several { rung, lines, count } => several(rung, lines, *count, voice),
        };
        format!("{why}\nNothing was written.")
    }
}

fn nowhere(name: &str, quoted: &str, near: &[Near], was_there: bool) -> String {
    let mut text = format!("{quoted} not found in {name}.");
    if was_there {
        text.push_str(
            " It was there before the edits before this one: each edit works on what the ones \
             before have left.",
        );
    }
    let Some(best) = near.first() else {
        text.push_str(" Nothing there is like it. Read the file and copy exactly.");
        return text;
    };
    text.push_str(&format!(" Closest: {} ({} %)", range(best), best.percent));
    for other in &near[1..] {
        text.push_str(&format!(", {} ({} %)", range(other), other.percent));
    }
    text.push('.');
    if let Some(Difference { line, there, sent }) = &best.difference {
        text.push_str(&format!(
            " First difference, line {}: file has \"{there}\" you sent \"{sent}\".",
            line + 1
        ));
    }
    let (from, to) = (best.lines.start.saturating_sub(5) + 1, best.lines.end + 5);
    text.push_str(&format!(" Re-read lines {from}–{to} or copy exactly.\n"));
    for (number, near) in near.iter().enumerate() {
        if number > 0 {
            text.push_str("…\n");
        }
        text.push_str(&near.excerpt);
    }
    text.truncate(text.trim_end().len());
    text
}

fn range(near: &Near) -> String {
    match near.lines.len() {
        1 => format!("line {}", near.lines.end),
        _ => format!("lines {}–{}", near.lines.start + 1, near.lines.end),
    }
}

fn several(rung: &Rung, lines: &[usize], count: usize, voice: &Voice<'_>) -> String {
    let Voice { quoted, cure } = voice;
    let named: Vec<_> = lines.iter().map(|it| (it + 1).to_string()).collect();
    let more = if count > lines.len() { ", …" } else { "" };
    let named = format!("matches {count} places: lines {}{more}", named.join(", "));
    if *rung == Rung::Exact {
        return format!("{quoted} {named}. {cure}");
    }
    let but = match rung {
        Rung::Indentation(_) => "but for indentation".to_owned(),
        rung => rung.to_string(),
    };
    format!(
        "{quoted} is nowhere exactly; {but} it {named}. Copy exactly, with enough lines around it \
         to make it unique."
    )
}
