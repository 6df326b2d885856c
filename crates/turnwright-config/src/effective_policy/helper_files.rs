//! Reads the types of helpers that a project and the user define. A project's are used only if the user
//! trusts exactly the content of its files, because what they say becomes an instruction to a model.

use std::fs;
use std::path::Path;

use super::ProjectFile;
use crate::trust::{self, TrustStore};
use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::files::read_head;
use turnwright_workspace::helper_types::HelperType;

/// The files of a project, also in folders below. All files of one folder are trusted together.
pub const HELPER_FILES: [&str; 2] = [".turnwright/agents/*.md", ".claude/agents/*.md"];
/// The folder of the user's files, below the folder of the settings.
const USER_FOLDER: &str = "agents";

/// The most files of a folder with those below it, and the most of these folders.
const MAX_FILES: usize = 50;
/// The most bytes that are read of one of the user's files.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// The types of helpers of a session.
#[derive(Debug, Default)]
pub(super) struct HelperFiles {
    /// The project's files by their folder.
    pub(super) files: Vec<ProjectFile>,
    /// The types that can be used. If two have the same name the first counts.
    pub(super) types: Vec<HelperType>,
    /// One sentence for each problem in them.
    pub(super) problems: Vec<String>,
}

impl HelperFiles {
    /// Reads the types of the project in this folder, a real path, and of the user, whose settings are in
    /// the folder `config`.
    pub(super) fn find(config: &Path, trust: &TrustStore, project: &Path) -> HelperFiles {
        let mut found = HelperFiles::default();
        for name in HELPER_FILES {
            found.add_project_files(name, trust, project);
        }
        let folder = config.join(USER_FOLDER);
        for file in found.file_names(&folder, USER_FOLDER) {
            match read_head(&folder.join(&file), None, MAX_FILE_BYTES) {
                Some(seen) if seen.is_complete => {
                    found.parse(&format!("{USER_FOLDER}/{file}"), &file, &seen.text, true);
                }
                Some(_) => found.add_problem(&file, "is larger than 64 KiB"),
                None => found.add_problem(&file, "cannot be read"),
            }
        }
        found
    }

    /// Adds what the files of one folder of the project say.
    fn add_project_files(&mut self, name: &'static str, trust: &TrustStore, project: &Path) {
        let folder = name.trim_end_matches("/*.md");
        let mut text = String::new();
        let mut texts = Vec::new();
        for file in self.file_names(&project.join(folder), folder) {
            let path = format!("{folder}/{file}");
            match trust::read_project_file(project, &path) {
                Ok(Some(content)) => {
                    text.push_str(&format!("=== {} ===\n{content}\n", escape_hidden_line(&path)));
                    texts.push((path, file, content));
                }
                Ok(None) => {}
                Err(why) => self.add_problem(&path, &why),
            }
        }
        if texts.is_empty() {
            return;
        }
        let is_trusted = trust.is_trusted(project, name, text.as_bytes());
        let mut requests = Vec::new();
        for (path, file, content) in texts {
            let helper = self.parse(&path, &file, &content, is_trusted);
            requests.extend(helper.map(|helper| format!("the helper `{helper}`")));
        }
        if !requests.is_empty() {
            self.files.push(ProjectFile::new(name, text, is_trusted, requests));
        }
    }

    /// Parses a file, and adds its type if it `is_used`. Returns the name of the type.
    fn parse(&mut self, path: &str, file: &str, text: &str, is_used: bool) -> Option<String> {
        match HelperType::parse(file.trim_end_matches(".md"), text) {
            Ok(helper) => {
                let name = helper.name.clone();
                if is_used && !self.types.iter().any(|known| known.name == name) {
                    self.types.push(helper);
                }
                Some(name)
            }
            Err(why) => {
                self.add_problem(path, why);
                None
            }
        }
    }

    /// The files in a folder and those below it that may define helpers, by their paths there, in order. Links to
    /// folders are not followed. Those beyond the limit are problems, which name the folder as `shown`.
    fn file_names(&mut self, folder: &Path, shown: &str) -> Vec<String> {
        let mut folders = vec![String::new()];
        let mut names = Vec::new();
        for _ in 0..MAX_FILES {
            let Some(below) = folders.pop() else { break };
            let entries = fs::read_dir(folder.join(&below)).into_iter().flatten().flatten();
            for entry in entries.take(20 * MAX_FILES) {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_used = !name.starts_with('.') && name != "README.md";
                if is_used && is_folder {
                    folders.push(format!("{below}{name}/"));
                } else if is_used && Path::new(&name).extension().is_some_and(|end| end == "md") {
                    names.push(format!("{below}{name}"));
                }
            }
        }
        names.sort();
        for late in names.split_off(MAX_FILES.min(names.len())) {
            self.add_problem(&format!("{shown}/{late}"), "comes after 50 others");
        }
        names
    }

    fn add_problem(&mut self, path: &str, why: &str) {
        self.problems.push(format!("{} {why} and is ignored", escape_hidden_line(path)));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn put(path: &Path, name: &str, description: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("---\nname: {name}\ndescription: {description}\n---\nText.\n"))
            .unwrap();
    }

    #[test]
    fn files_of_a_project_are_used_while_exactly_they_are_trusted() {
        let base = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(base.path()).unwrap();
        let project = base.join("ws");
        let config = base.join("config");
        let trust = TrustStore::new(&base.join("state"));
        put(&project.join(".turnwright/agents/a.md"), "reviewer", "of the project");
        put(&project.join(".claude/agents/b.md"), "tester", "of the project");
        fs::write(project.join(".claude/agents/c.md"), "no head").unwrap();
        fs::write(project.join(".claude/agents/README.md"), "Our helpers.").unwrap();
        put(&config.join("agents/d.md"), "reviewer", "of the user");
        let find = || HelperFiles::find(&config, &trust, &project);
        let used = |found: &HelperFiles| -> Vec<_> {
            found
                .types
                .iter()
                .map(|helper| format!("{} {}", helper.name, helper.description))
                .collect()
        };

        let found = find();
        assert_eq!(used(&found), ["reviewer of the user"]);
        let asked: Vec<_> =
            found.files.iter().map(|file| (file.name, file.requests.concat())).collect();
        assert_eq!(
            asked,
            [
                (HELPER_FILES[0], "the helper `reviewer`".to_owned()),
                (HELPER_FILES[1], "the helper `tester`".to_owned())
            ]
        );
        assert_eq!(found.problems, [".claude/agents/c.md has no description and is ignored"]);

        for file in &found.files {
            trust.trust(&project, file.name, file.text.as_bytes()).unwrap();
        }
        assert_eq!(used(&find()), ["reviewer of the project", "tester of the project"]);
        put(&project.join(".turnwright/agents/e.md"), "other", "later");
        assert_eq!(used(&find()), ["tester of the project", "reviewer of the user"]);
    }

    #[test]
    fn helpers_in_folders_below_count_and_those_beyond_the_limit_are_named() {
        let base = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(base.path()).unwrap();
        for number in 10..60 {
            let name = format!("a{number}");
            put(&base.join(format!("config/agents/team/deep/{name}.md")), &name, "of the user");
        }
        let trust = TrustStore::new(&base.join("state"));
        let found = HelperFiles::find(&base.join("config"), &trust, &base.join("ws"));
        assert!(found.types.len() == 50 && found.problems.is_empty(), "{found:?}");
        put(&base.join("config/agents/z.md"), "z", "of the user");
        let found = HelperFiles::find(&base.join("config"), &trust, &base.join("ws"));
        assert_eq!(found.types.len(), 50);
        assert_eq!(found.problems, ["agents/z.md comes after 50 others and is ignored"]);
    }
}
