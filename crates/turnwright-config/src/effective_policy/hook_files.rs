//! Reads the hooks of a session: those of the user's settings and of the project, and, if the user wants that, those
//! in the files of Claude Code. A project's hooks run only if the user trusts exactly what they say and the files that
//! they name; hooks of the user that run files of the project need that trust for these files.

use std::path::Path;

use serde_json::{Map, Value};

use super::ProjectFile;
use crate::trust::{self, TrustStore};
use crate::{SettingsSnapshot, jsonc};
use turnwright_hooks::{Handler, HookScope, Script, read_handlers};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_workspace::files::read_head;

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
/// The word in `read` for the files of Claude Code.
const CLAUDE: &str = "claude";
/// The files in the state folder that remember what the user was told.
const SEEN_FILE: &str = "hooks-seen";
const OFFERED_FILE: &str = "hooks-offered";
/// The most bytes of a hook file of the user.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// A longer script is trusted by its hash, and not shown.
const MAX_SHOWN_SCRIPT: usize = 4 * 1024;
/// The same for scripts that are named when so much is shown.
const MAX_SHOWN_SCRIPTS: usize = 16 * 1024;

/// The hooks of a session.
#[derive(Debug, Default)]
pub struct SessionHookFiles {
    /// The handlers that may run: those of the user, then those of the project.
    pub handlers: Vec<Handler>,
    /// A hash of what the user's files say; `None` if they have no hooks.
    hash: Option<String>,
    /// The files of Claude Code are not read, and nothing says that they should not be.
    is_undecided: bool,
}

/// Finds the hooks of a session. The folder of the project is a real path. Adds a sentence for each problem, and the
/// files that can be trusted.
pub(super) fn find_hooks(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    project: &Path,
    problems: &mut Vec<String>,
    files: &mut Vec<ProjectFile>,
) -> SessionHookFiles {
    let own = &settings.values.hooks;
    let mut reader = HookReader { trust, project, problems, files, handlers: Vec::new() };
    reader.check_settings(own);
    let mut read = own.get(READ).and_then(Value::as_array).into_iter().flatten();
    let (of_home, of_project) = if read.any(|word| word == CLAUDE) {
        reader.claude_hooks(settings.config.paths.home.as_deref())
    } else {
        (None, Vec::new())
    };
    let events: Map<_, _> = own
        .iter()
        .filter(|(name, _)| ![READ, SANDBOX].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let of_settings =
        (!events.is_empty()).then(|| (settings.config.file_path(), Value::Object(events)));
    let mut hashed = String::new();
    for (name, events) in of_settings.into_iter().chain(of_home) {
        hashed.push_str(&format!("{name}\n{events}\n"));
        let handlers = reader.read(&name, HookScope::User, &events);
        reader.handlers.extend(handlers);
    }
    reader.check_run_files();
    let own_file = reader.own_hooks();
    for (name, events) in own_file.into_iter().chain(of_project) {
        reader.add_project(name, &events);
    }
    SessionHookFiles {
        handlers: reader.handlers,
        hash: (!hashed.is_empty()).then(|| sha256_hex(hashed.as_bytes())),
        is_undecided: !own.contains_key(READ),
    }
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

    fn check_settings(&mut self, own: &Map<String, Value>) {
        let is_read = own.get(READ).is_none_or(|read| {
            read.as_array().is_some_and(|words| words.iter().all(|word| word == CLAUDE))
        });
        if !is_read {
            self.add_problem("hooks.read", "it must be a list of `claude`, the only other format");
        }
        if own.get(SANDBOX).is_some_and(|value| !value.is_boolean()) {
            self.add_problem("hooks.sandbox", "it must be true or false");
        }
    }

    /// The content of a file of hooks; `None` if there is none. Notes what is wrong.
    fn parsed(&mut self, name: &str, text: Result<Option<String>, String>) -> Option<Value> {
        let fault = match text {
            Ok(text) => match jsonc::parse(&text?) {
                Ok(whole) => return Some(whole),
                Err(error) => format!("it is no valid JSON ({error}), and is ignored"),
            },
            Err(why) => format!("it {why}, and is ignored"),
        };
        self.add_problem(name, &fault);
        None
    }

    fn parsed_of_project(&mut self, name: &str) -> Option<Value> {
        self.parsed(name, trust::read_project_file(self.project, name))
    }

    /// The hooks of the project's own file.
    fn own_hooks(&mut self) -> Option<ProjectHooks> {
        let whole = self.parsed_of_project(OWN_FILE)?;
        let hooks = whole.get("hooks");
        if hooks.is_none() {
            self.add_problem(OWN_FILE, "it has no table `hooks`, and is ignored");
        }
        Some((OWN_FILE, hooks?.clone()))
    }

    /// The hooks in the files of Claude Code: those of the user with the name of their file, and those of the project.
    /// The user's file may switch all of them off, those of the project only each other.
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
            let whole = self.parsed(&name, text).unwrap_or_default();
            if is_switched_off(&whole) {
                return (None, Vec::new());
            }
            of_user = hooks_in(&whole).map(|hooks| (name, hooks));
        }
        let parsed = CLAUDE_FILES.map(|name| (name, self.parsed_of_project(name)));
        let files = parsed.iter().filter_map(|(name, whole)| Some((*name, whole.as_ref()?)));
        if files.clone().any(|(_, whole)| is_switched_off(whole)) {
            return (of_user, Vec::new());
        }
        let of_project = files.filter_map(|(name, whole)| Some((name, hooks_in(whole)?)));
        (of_user, of_project.collect())
    }

    fn read(&mut self, name: &str, scope: HookScope, events: &Value) -> Vec<Handler> {
        let (handlers, problems) = read_handlers(name, scope, self.project, events);
        for problem in problems {
            self.add_problem(name, &problem);
        }
        handlers
    }

    /// Leaves out the user's hooks that run files of the project, unless these are trusted. Those whose failure refuses
    /// stay, and fail.
    fn check_run_files(&mut self) {
        let all = self.handlers.iter().filter(|handler| !handler.scripts.is_empty());
        let handlers: Vec<_> = all.cloned().collect();
        if handlers.is_empty() {
            return;
        }
        let text = script_texts(&handlers, self.project);
        if !self.add_file(RUN_FILES, text, &handlers) {
            self.handlers.retain(|handler| handler.scripts.is_empty() || handler.blocks_on_failure);
            for script in self.handlers.iter_mut().flat_map(|handler| &mut handler.scripts) {
                script.sha256 = None;
            }
        }
    }

    fn add_project(&mut self, name: &'static str, events: &Value) {
        let handlers = self.read(name, HookScope::Project, events);
        if handlers.is_empty() {
            return;
        }
        let text = format!("{events:#}\n{}", script_texts(&handlers, self.project));
        if self.add_file(name, text, &handlers) {
            self.handlers.extend(handlers);
        }
    }

    /// Adds what can be trusted. Returns true if it is.
    fn add_file(&mut self, name: &'static str, text: String, handlers: &[Handler]) -> bool {
        let is_trusted = self.trust.is_trusted(self.project, name, text.as_bytes());
        let mut requests: Vec<String> = Vec::new();
        for handler in handlers {
            let request = format!("hooks for {}", handler.event.name());
            if !requests.contains(&request) {
                requests.push(request);
            }
        }
        let full_requests = handlers.iter().map(Handler::line).collect();
        self.files.push(ProjectFile { name, text, is_trusted, requests, full_requests });
        is_trusted
    }
}

fn hooks_in(whole: &Value) -> Option<Value> {
    whole.get("hooks").cloned().filter(|hooks| !hooks.is_null())
}

fn is_switched_off(whole: &Value) -> bool {
    whole.get("disableAllHooks") == Some(&Value::Bool(true))
}

/// The files of the project that hooks name, each with its hash, and with its text if that is short.
fn script_texts(handlers: &[Handler], project: &Path) -> String {
    let mut shown: Vec<&Script> = Vec::new();
    let mut text = String::new();
    for script in handlers.iter().flat_map(|handler| &handler.scripts) {
        if shown.contains(&script) {
            continue;
        }
        shown.push(script);
        let hash = script.sha256.as_deref().unwrap_or("it cannot be read, so it will not run");
        text.push_str(&format!("=== {} (SHA-256: {hash}) ===\n", escape_hidden_line(&script.name)));
        let head = read_head(&project.join(&script.name), Some(project), MAX_SHOWN_SCRIPT);
        // The text that is shown must be the one that was hashed.
        let whole = head.filter(|head| {
            let hash = sha256_hex(head.text.as_bytes());
            let is_short = text.len() + head.text.len() <= MAX_SHOWN_SCRIPTS;
            is_short && head.is_complete && script.sha256.as_deref() == Some(hash.as_str())
        });
        match whole {
            Some(head) => text.push_str(&format!("{}\n", head.text)),
            None => text.push_str("(look at the file itself before you trust it)\n"),
        }
    }
    text
}

impl SessionHookFiles {
    /// Adds the files of the project that hooks run, which commands may not change, to those of the settings. All are
    /// paths below the project.
    pub(super) fn protected(&self, of_settings: &[String]) -> Vec<String> {
        let scripts = self.handlers.iter().flat_map(|handler| &handler.scripts);
        of_settings.iter().cloned().chain(scripts.map(|script| script.name.clone())).collect()
    }

    /// Says what the user has to know about their hooks when a session opens, each once: that they have changed since
    /// the last session, and that there are some of Claude Code.
    pub fn news(&self, settings: &SettingsSnapshot<'_>, project: &Path) -> Vec<String> {
        let state = &settings.config.paths.state;
        let changed = self.hash.as_ref().and_then(|hash| note_hash(&state.join(SEEN_FILE), hash));
        changed.into_iter().chain(self.offer(settings, state, project)).collect()
    }

    fn offer(
        &self,
        settings: &SettingsSnapshot<'_>,
        state: &Path,
        project: &Path,
    ) -> Option<String> {
        let offered_file = state.join(OFFERED_FILE);
        if !self.is_undecided || offered_file.exists() {
            return None;
        }
        let home = settings.config.paths.home.iter();
        let of_user = home.map(|home| home.join(CLAUDE_FILES[0]));
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
            "There are hooks of Claude Code here. To run them, add `read = [\"claude\"]` to `[hooks]` in your \
             settings; with `read = []` they are left alone. You are told this once."
                .to_owned(),
        )
    }
}

/// Notes the hash of the user's hooks. Says so if it was another one before.
fn note_hash(file: &Path, hash: &str) -> Option<String> {
    let seen = private_file::read(file, 1024).ok();
    if seen.as_deref() == Some(hash) {
        return None;
    }
    if let Err(error) = private_file::write(file, hash.as_bytes()) {
        return Some(format!(
            "It cannot be noted which hooks you have: {}.",
            io_error_text(&error)
        ));
    }
    seen.map(|_| {
        "Your hooks have changed since the last session. `/hooks` lists them; if it was not you, remove what you \
         do not know."
            .to_owned()
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
