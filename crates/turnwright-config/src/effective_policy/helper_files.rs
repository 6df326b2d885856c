//! Reads the types of helpers that a project and the user define. A project's are used only if the user
//! trusts exactly the content of its files, because what they say becomes an instruction to a model.

use std::collections::HashSet;
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
        for path in found.paths(config, USER_FOLDER) {
            match read_head(&config.join(&path), None, MAX_FILE_BYTES) {
                Some(seen) if seen.is_complete => {
                    let helper = found.parse(&path, &seen.text);
                    found.types.extend(helper);
                }
                Some(_) => found.add_problem(&path, "is larger than 64 KiB"),
                None => found.add_problem(&path, "cannot be read"),
            }
        }
        let mut names = HashSet::new();
        found.types.retain(|helper| names.insert(helper.name.clone()));
        found
    }

    /// Adds what the files of one folder of the project say. Only those that define helpers are trusted or not.
    fn add_project_files(&mut self, name: &'static str, trust: &TrustStore, project: &Path) {
        let mut text = String::new();
        let mut helpers = Vec::new();
        for path in self.paths(project, name.trim_end_matches("/*.md")) {
            match trust::read_project_file(project, &path) {
                Ok(Some(content)) => {
                    let Some(helper) = self.parse(&path, &content) else { continue };
                    text.push_str(&format!("=== {} ===\n{content}\n", escape_hidden_line(&path)));
                    helpers.push(helper);
                }
                Ok(None) => {}
                Err(why) => self.add_problem(&path, &why),
            }
        }
        if helpers.is_empty() {
            return;
        }
        let is_trusted = trust.is_trusted(project, name, text.as_bytes());
        let requests = helpers.iter().map(|helper| format!("the helper `{}`", helper.name));
        self.files.push(ProjectFile::new(name, text, is_trusted, requests.collect()));
        if is_trusted {
            self.types.extend(helpers);
        }
    }

    /// Parses a file. If it is no helper, that is a problem, except for a text without a head in a folder below.
    fn parse(&mut self, path: &str, text: &str) -> Option<HelperType> {
        let (folder, file) = path.rsplit_once('/')?;
        match HelperType::parse(file.trim_end_matches(".md"), text) {
            Ok(helper) => return Some(helper),
            Err(_) if !Path::new(folder).ends_with(USER_FOLDER) && !text.starts_with("---") => {}
            Err(why) => self.add_problem(path, why),
        }
        None
    }

    /// The paths below `base` of the files in a folder, and in those below it, that may define helpers, in order.
    /// Links to folders are not followed. If there are too many, that is a problem.
    fn paths(&mut self, base: &Path, folder: &str) -> Vec<String> {
        let mut folders = vec![folder.to_owned()];
        let mut paths = Vec::new();
        for _ in 0..MAX_FILES {
            let Some(below) = folders.pop() else { break };
            let entries = fs::read_dir(base.join(&below)).into_iter().flatten().flatten();
            for entry in entries.take(20 * MAX_FILES) {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_file = name.strip_suffix(".md").is_some_and(|stem| stem != "README");
                let list = if is_folder { &mut folders } else { &mut paths };
                if !name.starts_with('.') && (is_folder || is_file) {
                    list.push(format!("{below}/{name}"));
                }
            }
        }
        paths.sort();
        if let Some(late) = paths.split_off(MAX_FILES.min(paths.len())).first() {
            self.add_problem(late, "(and any after it) comes after 50 others");
        }
        paths
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
        put(&base.join("config/agents/zz.md"), "zz", "of the user");
        let found = HelperFiles::find(&base.join("config"), &trust, &base.join("ws"));
        assert_eq!(found.types.len(), 50);
        let problem = "agents/z.md (and any after it) comes after 50 others and is ignored";
        assert_eq!(found.problems, [problem]);
    }

    #[test]
    fn other_texts_in_folders_below_are_neither_problems_nor_part_of_what_is_trusted() {
        let base = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(base.path()).unwrap();
        let trust = TrustStore::new(&base.join("state"));
        put(&base.join(".claude/agents/team/a.md"), "tester", "of the project");
        let found = HelperFiles::find(&base.join("config"), &trust, &base);
        trust.trust(&base, found.files[0].name, found.files[0].text.as_bytes()).unwrap();
        fs::write(base.join(".claude/agents/team/guide.md"), "How to write one.").unwrap();
        fs::write(base.join(".claude/agents/team/half.md"), "---\nname: half\n---\n").unwrap();
        let found = HelperFiles::find(&base.join("config"), &trust, &base);
        assert_eq!(found.types.len(), 1, "{found:?}");
        let problem = ".claude/agents/team/half.md has no description and is ignored";
        assert_eq!(found.problems, [problem]);
    }
}
