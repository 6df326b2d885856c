//! Skills: folders with a SKILL.md that says how something is done (agentskills.io). Finds them,
//! tells what there is, and gives the text of one. A skill is text and grants nothing.

mod fill;
mod front_matter;
pub mod inside;
mod scan;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use turnwright_types::effect::visible_line;
use crate::files::glance;

pub use scan::{Place, scan};

/// Bytes of the catalogue.
const CATALOGUE: usize = 8 * 1024;
/// Bytes of a skill's text.
const LONGEST_TEXT: usize = 64 * 1024;
/// Files of a skill that are named.
const MOST_FILES: usize = 30;
/// How deep below a skill's folder its files are named.
const DEEPEST_FILE: usize = 3;

/// A skill, as its head tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// What its arguments are.
    pub argument_hint: Option<String>,
    /// The model is not told about it.
    pub only_user: bool,
    /// Where it lies, a real path.
    pub folder: PathBuf,
    /// What its files must not lie outside of.
    within: Option<PathBuf>,
}

/// The skills of a session.
#[derive(Debug, Default)]
// A std mutex: held to copy a pointer or to look into a small set.
pub struct Shelf(Mutex<Shelved>);

#[derive(Debug, Default)]
struct Shelved {
    /// `None` until they have been looked for.
    skills: Option<Arc<Vec<Skill>>>,
    /// The names of those that the model has read.
    loaded: HashSet<String>,
}

impl Shelf {
    /// Puts there what was found. The conversation begins anew: nothing has been read in it.
    pub fn fill(&self, skills: Vec<Skill>) {
        *self.lock() = Shelved { skills: Some(Arc::new(skills)), loaded: HashSet::new() };
    }

    /// What there is, in the order of the names; `None` if nobody has looked yet.
    pub fn skills(&self) -> Option<Arc<Vec<Skill>>> {
        self.lock().skills.clone()
    }

    /// The names of those that the model may load.
    pub fn names(&self) -> Vec<String> {
        let skills = self.skills().unwrap_or_default();
        skills.iter().filter(|it| !it.only_user).map(|it| it.name.clone()).collect()
    }

    /// Notes that the model has read one; `false` if it had before.
    pub fn note(&self, name: &str) -> bool {
        self.lock().loaded.insert(name.to_owned())
    }

    /// Whether the model has read it.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.lock().loaded.contains(name)
    }

    /// Notes that what the model has read is no longer in the conversation.
    pub fn forget_loaded(&self) {
        self.lock().loaded.clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shelved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Skill {
    /// What the model reads: the text with the arguments put in, and which files come with it.
    /// Not for the runtime's thread.
    pub fn load(&self, args: &str) -> Option<String> {
        let seen = glance(&self.folder.join("SKILL.md"), self.within.as_deref(), LONGEST_TEXT)?;
        let (_, body) = front_matter::split(&seen.text);
        let mut text = fill::fill(body.trim(), args);
        if !seen.is_whole {
            text.push_str("\n\n[cut after 64 KiB; use read_file on SKILL.md for the rest]");
        }
        let files = self.files();
        if !files.is_empty() {
            text.push_str("\n\nFiles of this skill, relative to its folder:");
            for file in files.iter().take(MOST_FILES) {
                text.push_str(&format!("\n- {}", visible_line(&file.to_string_lossy())));
            }
            if files.len() > MOST_FILES {
                text.push_str("\n- … and more");
            }
        }
        // The text cannot end what it stands in.
        let text = text.replace("</skill_content", "< /skill_content");
        let dir = visible_line(&self.folder.to_string_lossy()).replace('"', "&quot;");
        Some(format!(
            "<skill_content name=\"{}\" dir=\"{dir}\">\n{text}\n</skill_content>",
            self.name
        ))
    }

    /// Its other files, one more than are named if there are more.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list(&self.folder, Path::new(""), DEEPEST_FILE, &mut files);
        files
    }
}

fn list(base: &Path, below: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(base.join(below)) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).take(1_000).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        if files.len() > MOST_FILES {
            return;
        }
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_file() && !is_hidden && path != Path::new("SKILL.md") {
            files.push(path);
        } else if kind.is_dir() && !is_hidden && depth > 1 {
            list(base, &path, depth - 1, files);
        }
    }
}

/// A line for each skill that the model may load, or nothing where there are none. With many
/// skills each has fewer words.
pub fn catalogue(skills: &[Skill]) -> Option<String> {
    let offered: Vec<_> = skills.iter().filter(|it| !it.only_user).collect();
    let names: usize = offered.iter().map(|it| it.name.len() + "- : …\n".len()).sum();
    let each = CATALOGUE.saturating_sub(names) / offered.len().max(1);
    let mut text = String::new();
    for Skill { name, description, .. } in offered {
        let end =
            (0..=each.min(description.len())).rev().find(|it| description.is_char_boundary(*it));
        let (start, rest) = description.split_at(end.unwrap_or(0));
        let cut = if rest.is_empty() { "" } else { "…" };
        text.push_str(&format!("- {name}: {start}{cut}\n"));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, description: &str) -> Skill {
        Skill {
            name: name.to_owned(),
            description: description.to_owned(),
            argument_hint: None,
            only_user: false,
            folder: PathBuf::from("/skills"),
            within: None,
        }
    }

    #[test]
    fn the_catalogue_names_all_skills_and_keeps_its_limit() {
        assert_eq!(catalogue(&[]), None);
        let hidden = Skill { only_user: true, ..skill("hidden", "x") };
        assert_eq!(catalogue(std::slice::from_ref(&hidden)), None);
        let two = [skill("a", "One."), hidden, skill("b", "Two.")];
        assert_eq!(catalogue(&two).unwrap(), "- a: One.\n- b: Two.\n");
        let many: Vec<_> =
            (0..100).map(|it| skill(&format!("skill-{it}"), &"é".repeat(512))).collect();
        let text = catalogue(&many).unwrap();
        assert!(text.len() <= CATALOGUE && text.len() > CATALOGUE / 2, "{}", text.len());
        assert_eq!(text.lines().count(), 100);
    }

    #[test]
    fn a_new_conversation_has_read_nothing() {
        let shelf = Shelf::default();
        assert!(shelf.skills().is_none());
        shelf.fill(vec![skill("a", "x")]);
        assert!(shelf.note("a") && !shelf.note("a"));
        shelf.fill(vec![skill("a", "x")]);
        assert!(shelf.note("a"));
    }
}
