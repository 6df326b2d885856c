//! Skills (agentskills.io): folders with a SKILL.md that describes how to do something. Finds
//! skills, lists them and loads their text. A skill is text and grants no permissions.

mod arguments;
pub(crate) mod front_matter;
pub mod fuzzing;
mod scan;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{display, read_head};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

pub use arguments::split_word;
pub(crate) use arguments::substitute;
pub use scan::{ScannedFolder, SkippedSkill, scan, scan_all};

/// The most bytes of the catalogue.
const MAX_CATALOGUE_BYTES: usize = 8 * 1024;
/// The most bytes of a skill's text.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The most files of a skill that are listed.
const MAX_LISTED_FILES: usize = 30;
/// How deep in a skill's folder files are listed.
const MAX_FILE_DEPTH: usize = 3;

/// A skill as described by its front matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// Describes the purpose of the skill in one line.
    pub description: String,
    /// A hint about the arguments.
    pub argument_hint: Option<String>,
    /// True if only the user can invoke the skill.
    pub is_user_only: bool,
    /// The folder with links resolved.
    pub folder: PathBuf,
    /// The name of its file.
    file_name: &'static str,
    /// The folder that its files must not be outside of.
    within: Option<PathBuf>,
}

/// The skills of a session, and which of them the model has loaded.
// Held only to copy a pointer or access a small set.
#[derive(Debug, Default)]
pub struct SkillSet(Mutex<SkillSetState>);

#[derive(Debug, Default)]
struct SkillSetState {
    /// `None` before the first scan.
    skills: Option<Arc<Vec<Skill>>>,
    /// The names of the skills that the model has loaded.
    loaded: HashSet<String>,
}

impl SkillSet {
    /// Replaces the skills at the beginning of a conversation. Its first prompt may have loaded one.
    pub fn replace(&self, skills: Vec<Skill>) {
        self.0.lock().skills = Some(Arc::new(skills));
    }

    /// The skills, ordered by name; `None` before the first scan.
    pub fn skills(&self) -> Option<Arc<Vec<Skill>>> {
        self.0.lock().skills.clone()
    }

    /// The names of the skills that the model may load.
    pub fn names(&self) -> Vec<String> {
        let skills = self.skills().unwrap_or_default();
        skills.iter().filter(|skill| !skill.is_user_only).map(|skill| skill.name.clone()).collect()
    }

    /// Records that the model has loaded a skill; `false` if it had before.
    pub fn mark_loaded(&self, name: &str) -> bool {
        self.0.lock().loaded.insert(name.to_owned())
    }

    /// Returns true if the model has loaded the skill.
    pub fn is_loaded(&self, name: &str) -> bool {
        self.0.lock().loaded.contains(name)
    }

    /// The names of the skills that the model has loaded, in order.
    pub fn loaded_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.lock().loaded.iter().cloned().collect();
        names.sort();
        names
    }

    /// Records that the loaded skills are no longer in the conversation.
    pub fn forget_loaded(&self) {
        self.0.lock().loaded.clear();
    }
}

impl Skill {
    /// Loads the text for the model, with the arguments substituted and the files of the skill
    /// listed. Blocks.
    pub fn load(&self, args: &str) -> Option<String> {
        let seen =
            read_head(&self.folder.join(self.file_name), self.within.as_deref(), MAX_TEXT_BYTES)?;
        let (_, body) = front_matter::split(&seen.text);
        let mut text = substitute(body.trim(), args);
        if !seen.is_complete {
            text.push_str("\n\n[cut after 64 KiB; use read_file on its file for the rest]");
        }
        let files = self.files();
        if !files.is_empty() {
            text.push_str("\n\nFiles of this skill, relative to its folder:");
            for file in files.iter().take(MAX_LISTED_FILES) {
                text.push_str(&format!("\n- {}", escape_hidden_line(&display(file))));
            }
            if files.len() > MAX_LISTED_FILES {
                text.push_str("\n- … and more");
            }
        }
        // The text must not close the element that contains it.
        let text = text.replace("</skill_content", "< /skill_content");
        let dir = escape_hidden_line(&self.folder.to_string_lossy()).replace('"', "&quot;");
        Some(format!(
            "<skill_content name=\"{}\" dir=\"{dir}\">\n{text}\n</skill_content>",
            self.name
        ))
    }

    /// The other files of the skill, at most one more than are listed.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list_files(&self.folder, Path::new(""), MAX_FILE_DEPTH, &mut files);
        files.retain(|path| path != Path::new(self.file_name));
        files
    }
}

fn list_files(base: &Path, below: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(base.join(below)) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).take(1_000).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        if files.len() > MAX_LISTED_FILES {
            return;
        }
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_file() && !is_hidden {
            files.push(path);
        } else if kind.is_dir() && !is_hidden && depth > 1 {
            list_files(base, &path, depth - 1, files);
        }
    }
}

/// A line for each skill that the model may load; `None` if there are none. The more skills there
/// are, the shorter are the descriptions.
pub fn catalogue(skills: &[Skill]) -> Option<String> {
    let offered: Vec<_> = skills.iter().filter(|skill| !skill.is_user_only).collect();
    let names: usize = offered.iter().map(|skill| skill.name.len() + "- : …\n".len()).sum();
    let each = MAX_CATALOGUE_BYTES.saturating_sub(names) / offered.len().max(1);
    let mut text = String::new();
    for Skill { name, description, .. } in offered {
        text.push_str(&format!("- {name}: {}\n", text::clip_bytes(description, each, "…")));
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
            is_user_only: false,
            file_name: "SKILL.md",
            folder: PathBuf::from("/skills"),
            within: None,
        }
    }

    #[test]
    fn the_catalogue_names_all_skills_and_keeps_its_limit() {
        assert_eq!(catalogue(&[]), None);
        let hidden = Skill { is_user_only: true, ..skill("hidden", "x") };
        assert_eq!(catalogue(std::slice::from_ref(&hidden)), None);
        let two = [skill("a", "One."), hidden, skill("b", "Two.")];
        assert_eq!(catalogue(&two).unwrap(), "- a: One.\n- b: Two.\n");
        let many: Vec<_> =
            (0..100).map(|number| skill(&format!("skill-{number}"), &"é".repeat(512))).collect();
        let text = catalogue(&many).unwrap();
        assert!(
            text.len() <= MAX_CATALOGUE_BYTES && text.len() > MAX_CATALOGUE_BYTES / 2,
            "{}",
            text.len()
        );
        assert_eq!(text.lines().count(), 100);
    }

    #[test]
    fn a_skill_is_loaded_once_until_it_is_forgotten() {
        let skills = SkillSet::default();
        assert!(skills.skills().is_none());
        skills.replace(vec![skill("a", "x")]);
        assert!(skills.mark_loaded("a") && !skills.mark_loaded("a"));
        skills.replace(vec![skill("a", "x")]);
        assert!(skills.is_loaded("a"), "the first prompt may have loaded it");
        skills.forget_loaded();
        assert!(skills.mark_loaded("a"));
    }
}
