//! Reads the hooks of a session: those of the user's settings and of the project, and, if the user wants that, those
//! in the files of Claude Code. A project's hooks run only if the user trusts exactly what they say and the files that
//! they name; hooks of the user that run files of the project need that trust for these files.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{LANGUAGE_FILE, PROJECT_FILE, ProjectFile, SERVERS_FILE};
use crate::trust::{self, TrustStore};
use crate::{SettingsSnapshot, jsonc};
use turnwright_hooks::{Handler, HookScope, read_handlers};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_workspace::files::read_head;
use turnwright_workspace::git_repository::is_repository_root;

/// The hook file of a project.
const OWN_FILE: &str = ".turnwright/hooks.json";
/// The settings files of Claude Code that may have hooks.
const CLAUDE_FILES: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];
/// Stands for the files of the project that hooks of the user run.
const RUN_FILES: &str = "files run by your hooks";
/// The names under which hooks are trusted.
pub const HOOK_FILES: [&str; 4] = [OWN_FILE, CLAUDE_FILES[0], CLAUDE_FILES[1], RUN_FILES];

/// The keys of `[hooks]` that are no events.
const READ: &str = "read";
const SANDBOX: &str = "sandbox";
/// The file in the state folder that says that the user was told of the hooks of Claude Code.
const OFFERED_FILE: &str = "hooks-offered";
/// The most bytes of a hook file of the user.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The parts of a hook file that count.
#[derive(Deserialize)]
#[serde(expecting = "a table")]
struct HookFile {
    #[serde(rename = "disableAllHooks", default)]
    is_off: bool,
    hooks: Option<Value>,
}

/// Finds the handlers of a session: those of the user, then those of the project. The folder of the project is a real
/// path. Adds a sentence for each problem, and the files that can be trusted.
pub(super) fn find_hooks(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    project: &Path,
    problems: &mut Vec<String>,
    files: &mut Vec<ProjectFile>,
) -> Vec<Handler> {
    let own = &settings.values.hooks;
    let mut reader = HookReader { trust, project, problems, files, handlers: Vec::new() };
    if own.get(SANDBOX).is_some_and(|value| !value.is_boolean()) {
        reader.add_problem("hooks.sandbox", "it must be true or false");
    }
    let read = own.get(READ);
    let reads_claude = read == Some(&json!(["claude"]));
    if !reads_claude && read.is_some_and(|read| *read != json!([])) {
        reader.add_problem("hooks.read", "it must be [\"claude\"] or []");
    }
    let (of_home, of_project) = if reads_claude {
        reader.claude_hooks(settings.config.paths.home.as_deref())
    } else {
        (None, Vec::new())
    };
    let mut events = own.clone();
    events.retain(|name, _| ![READ, SANDBOX].contains(&name.as_str()));
    let of_settings = (settings.config.file_path(), Value::Object(events));
    for (name, events) in [of_settings].into_iter().chain(of_home) {
        let handlers = reader.read(&name, HookScope::User, &events);
        reader.handlers.extend(handlers);
    }
    reader.check_run_files();
    let own_file = reader.own_hooks();
    for (name, events) in own_file.into_iter().chain(of_project) {
        reader.add_project(name, &events);
    }
    reader.handlers
}

/// The hooks of a file of the project, with its name.
type ProjectHooks = (&'static str, Value);

struct HookReader<'a> {
    trust: &'a TrustStore,
    project: &'a Path,
    problems: &'a mut Vec<String>,
    files: &'a mut Vec<ProjectFile>,
    handlers: Vec<Handler>,
}

impl HookReader<'_> {
    fn add_problem(&mut self, file: &str, what: &str) {
        self.problems.push(format!("{}: {what}", escape_hidden_line(file)));
    }

    /// Parses a file of hooks; `None` if there is none. Notes what is wrong.
    fn parsed(&mut self, name: &str, text: Result<Option<String>, String>) -> Option<HookFile> {
        match text.and_then(|text| text.map(|text| parse_file(&text)).transpose()) {
            Ok(file) => file,
            Err(why) => {
                self.add_problem(name, &format!("it {why}, and is ignored"));
                None
            }
        }
    }

    fn parsed_of_project(&mut self, name: &str) -> Option<HookFile> {
        self.parsed(name, trust::read_project_file(self.project, name))
    }

    /// Returns the hooks of the project's own file.
    fn own_hooks(&mut self) -> Option<ProjectHooks> {
        let file = self.parsed_of_project(OWN_FILE)?;
        if file.hooks.is_none() {
            self.add_problem(OWN_FILE, "it has no table `hooks`, and is ignored");
        }
        Some((OWN_FILE, file.hooks?))
    }

    /// Returns the hooks in the files of Claude Code: those of the user with the name of their file, and those of the
    /// project. The user's file may switch all of them off, those of the project only each other.
    fn claude_hooks(
        &mut self,
        home: Option<&Path>,
    ) -> (Option<(String, Value)>, Vec<ProjectHooks>) {
        let mut of_user = None;
        if let Some(path) = home.map(|home| home.join(CLAUDE_FILES[0])) {
            let name = path.to_string_lossy().into_owned();
            let text = match private_file::read(&path, MAX_FILE_BYTES) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(format!("cannot be read ({})", io_error_text(&error))),
            };
            let file = self.parsed(&name, text);
            if file.as_ref().is_some_and(|file| file.is_off) {
                return (None, Vec::new());
            }
            of_user = file.and_then(|file| Some((name, file.hooks?)));
        }
        let names = CLAUDE_FILES.into_iter();
        let files: Vec<_> =
            names.filter_map(|name| Some((name, self.parsed_of_project(name)?))).collect();
        if files.iter().any(|(_, file)| file.is_off) {
            return (of_user, Vec::new());
        }
        let of_project = files.into_iter().filter_map(|(name, file)| Some((name, file.hooks?)));
        (of_user, of_project.collect())
    }

    fn read(&mut self, name: &str, scope: HookScope, events: &Value) -> Vec<Handler> {
        let (handlers, problems) = read_handlers(name, scope, self.project, events);
        for problem in problems {
            self.add_problem(name, &problem);
        }
        handlers
    }

    /// Asks for trust in the files of the project that the user's hooks run. Without it these hooks fail.
    fn check_run_files(&mut self) {
        let handlers = self.handlers.iter().filter(|handler| !handler.scripts.is_empty());
        let file = self.file_to_trust(RUN_FILES, String::new(), &handlers.collect::<Vec<_>>());
        if file.as_ref().is_some_and(|file| !file.is_trusted) {
            for script in self.handlers.iter_mut().flat_map(|handler| &mut handler.scripts) {
                script.sha256 = None;
            }
        }
        self.files.extend(file);
    }

    fn add_project(&mut self, name: &'static str, events: &Value) {
        let handlers = self.read(name, HookScope::Project, events);
        let listed: Vec<_> = handlers.iter().collect();
        let file = self.file_to_trust(name, format!("{events:#}\n"), &listed);
        if file.as_ref().is_some_and(|file| file.is_trusted) {
            self.handlers.extend(handlers);
        }
        self.files.extend(file);
    }

    /// Returns the events and the scripts of handlers as a file that can be trusted; `None` if there are no handlers.
    fn file_to_trust(
        &self,
        name: &'static str,
        events: String,
        handlers: &[&Handler],
    ) -> Option<ProjectFile> {
        if handlers.is_empty() {
            return None;
        }
        let text = events + &script_list(handlers);
        let is_trusted = self.trust.is_trusted(self.project, name, text.as_bytes());
        let requests = vec![turnwright_types::text::counted(handlers.len(), "hook")];
        let full_requests = handlers.iter().map(|handler| handler.line.clone()).collect();
        Some(ProjectFile { name, text, is_trusted, requests, full_requests })
    }
}

fn parse_file(text: &str) -> Result<HookFile, String> {
    let value = jsonc::parse(text).map_err(|error| format!("is no valid JSON ({error})"))?;
    HookFile::deserialize(value).map_err(|error| format!("has a wrong field ({error})"))
}

/// Lists the files of the project that hooks name, each with its hash.
fn script_list(handlers: &[&Handler]) -> String {
    let scripts = handlers.iter().flat_map(|handler| &handler.scripts);
    let mut lines: Vec<_> = scripts
        .map(|script| {
            let hash = script.sha256.as_deref().unwrap_or("it cannot be read, so it will not run");
            format!("{} (SHA-256: {hash})\n", escape_hidden_line(&script.name))
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

/// Adds the trusted files of the project that hooks run, which commands may not change, to those of the settings. All
/// are paths below the project.
pub(super) fn with_scripts(handlers: &[Handler], of_settings: &[String]) -> Vec<String> {
    let all = handlers.iter().flat_map(|handler| &handler.scripts);
    let trusted = all.filter(|script| script.sha256.is_some());
    of_settings.iter().cloned().chain(trusted.map(|script| script.name.clone())).collect()
}

/// Returns a notice about hooks of Claude Code that are not read, if the user has not decided about them and has not
/// been told of them.
pub fn hook_offer(settings: &SettingsSnapshot<'_>, project: &Path) -> Option<String> {
    let paths = &settings.config.paths;
    let offered_file = paths.state.join(OFFERED_FILE);
    if settings.values.hooks.contains_key(READ) || offered_file.exists() {
        return None;
    }
    let of_user = paths.home.iter().map(|home| home.join(CLAUDE_FILES[0]));
    let mut files = of_user.chain(CLAUDE_FILES.map(|name| project.join(name)));
    let has_hooks = files.any(|path| {
        let head = read_head(&path, None, 256 * 1024);
        head.is_some_and(|head| head.text.contains("\"hooks\""))
    });
    if !has_hooks {
        return None;
    }
    private_file::write(&offered_file, b"").ok();
    Some(
        "There are hooks of Claude Code here. To run them, add `read = [\"claude\"]` to `[hooks]` in your settings; \
         with `read = []` they are left alone. You are told this once."
            .to_owned(),
    )
}

/// Returns a notice about settings, hooks and servers in the root of the repository, which apply only to sessions in
/// that folder. The home folder and the folders above it are never taken for a project. Blocks.
pub fn settings_above(
    settings: &SettingsSnapshot<'_>,
    project: &Path,
    home: Option<&Path>,
) -> Option<String> {
    let mut above =
        project.ancestors().take_while(|folder| !home.is_some_and(|home| home.starts_with(folder)));
    let root = above.find(|folder| is_repository_root(folder)).filter(|root| *root != project)?;
    let reads_claude = settings.values.hooks.get(READ) == Some(&json!(["claude"]));
    let usual = [PROJECT_FILE, OWN_FILE, SERVERS_FILE, LANGUAGE_FILE].into_iter();
    let all = usual.chain(reads_claude.then_some(CLAUDE_FILES[0]));
    let found: Vec<_> = all.filter(|name| root.join(name).exists()).collect();
    (!found.is_empty()).then(|| {
        format!(
            "Not used, because only files of the session's own folder count: {} in {}.",
            found.join(", "),
            escape_hidden_line(&root.to_string_lossy())
        )
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;

    use super::*;
    use turnwright_workspace::real_path;

    #[test]
    fn a_project_cannot_switch_off_the_hooks_of_the_user() {
        let base = tempfile::tempdir().unwrap();
        let home = real_path(base.path()).unwrap().join("home");
        let project = home.with_file_name("project");
        let on = r#"{ "hooks": { "Stop": [] } }"#;
        let off = r#"{ "disableAllHooks": true, "hooks": { "Stop": [] } }"#;
        for (of_home, of_project, expected) in
            [(on, on, (true, 1)), (on, off, (true, 0)), (off, on, (false, 0))]
        {
            for (folder, text) in [(&home, of_home), (&project, of_project)] {
                fs::create_dir_all(folder.join(".claude")).unwrap();
                fs::write(folder.join(CLAUDE_FILES[0]), text).unwrap();
            }
            let trust = TrustStore::new(base.path());
            let mut reader = HookReader {
                trust: &trust,
                project: &project,
                problems: &mut Vec::new(),
                files: &mut Vec::new(),
                handlers: Vec::new(),
            };
            let (user, theirs) = reader.claude_hooks(Some(&home));
            assert_eq!((user.is_some(), theirs.len()), expected, "{of_home} {of_project}");
        }
    }
}
