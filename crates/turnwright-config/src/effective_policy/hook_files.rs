//! Reads the hooks of a session: those of the user's settings and of the project, and, if the user wants that, those
//! in the files of Claude Code. A project's hooks run only if the user trusts exactly what they say and the files that
//! they name; hooks of the user that run files of the project need that trust for these files.

use std::path::Path;

use serde_json::{Map, Value};

use super::ProjectFile;
use crate::SettingsSnapshot;
use crate::trust::{self, TrustStore};
use turnwright_hooks::{Handler, HookFile, HookScope, Script, read_handlers};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;
use turnwright_workspace::files::read_head;

/// The hook file of a project.
const OWN_FILE: &str = ".turnwright/hooks.json";
/// Those of Claude Code.
const CLAUDE_FILES: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];
/// Stands for the files of the project that hooks of the user run.
const RUN_FILES: &str = "files run by your hooks";
/// The names under which hooks are trusted.
pub const HOOK_FILES: [&str; 4] = [OWN_FILE, CLAUDE_FILES[0], CLAUDE_FILES[1], RUN_FILES];

/// The keys of `[hooks]` that are no events.
const READ: &str = "read";
const SANDBOX: &str = "sandbox";
const DISABLE: &str = "disable";
/// The word in `read` for the files of Claude Code.
const CLAUDE: &str = "claude";
/// The files in the state folder that remember what the user was told.
const SEEN_FILE: &str = "hooks-seen";
const OFFERED_FILE: &str = "hooks-offered";
/// The most bytes of a hook file of the user.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// A longer script is trusted by its hash, and not shown.
const MAX_SHOWN_SCRIPT: usize = 4 * 1024;

/// The hooks of a session.
#[derive(Debug, Default)]
pub struct SessionHookFiles {
    /// Those that may run: the user's, and then the project's.
    pub handlers: Vec<Handler>,
    /// A hash of what the user's files say; `None` if they have no hooks.
    hash: Option<String>,
    /// The files of Claude Code are not read, and nothing says that they should not be.
    is_undecided: bool,
}

/// The hooks that were found, with the files that can be trusted.
#[derive(Debug, Default)]
pub(super) struct FoundHooks {
    session: SessionHookFiles,
    files: Vec<ProjectFile>,
    /// One sentence for each problem.
    problems: Vec<String>,
}

impl FoundHooks {
    /// Reads all files. The folder of the project is a real path.
    pub(super) fn find(
        settings: &SettingsSnapshot<'_>,
        trust: &TrustStore,
        project: &Path,
    ) -> FoundHooks {
        let own = &settings.values.hooks;
        let mut found = FoundHooks::default();
        if own.get(DISABLE) == Some(&Value::Bool(true)) {
            return found;
        }
        found.session.is_undecided = !own.contains_key(READ);
        let mut reader = HookReader { trust, project, found };
        reader.check_settings(own);
        let claude = match own.get(READ) {
            Some(Value::Array(read)) if read.iter().any(|word| word == CLAUDE) => {
                reader.claude_files(settings.config.paths.home.as_deref())
            }
            _ => Vec::new(),
        };
        let mut hashed = String::new();
        let events: Map<_, _> = own
            .iter()
            .filter(|(name, _)| ![READ, SANDBOX, DISABLE].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let of_user = std::iter::once((settings.config.file_path(), Value::Object(events)));
        let at_home = claude.iter().filter(|file| file.project_name.is_none());
        let of_home = at_home.map(|file| (file.name.clone(), file.hooks.clone()));
        for (name, events) in of_user.chain(of_home) {
            if events.as_object().is_some_and(|events| !events.is_empty()) {
                hashed.push_str(&format!("{name}\n{events}\n"));
            }
            reader.add_user(&name, &events);
        }
        reader.found.session.hash = (!hashed.is_empty()).then(|| sha256_hex(hashed.as_bytes()));
        reader.check_run_files();
        reader.add_own_project_file();
        for file in claude {
            if let Some(name) = file.project_name {
                reader.add_project(name, &file.hooks);
            }
        }
        reader.found
    }

    /// Adds the problems and the files to these. Returns the hooks.
    pub(super) fn add_to(
        self,
        problems: &mut Vec<String>,
        files: &mut Vec<ProjectFile>,
    ) -> SessionHookFiles {
        problems.extend(self.problems);
        files.extend(self.files);
        self.session
    }
}

/// A file of Claude Code that has hooks.
struct ClaudeFile {
    name: String,
    /// Its name below the project; `None` for the user's.
    project_name: Option<&'static str>,
    hooks: Value,
}

struct HookReader<'a> {
    trust: &'a TrustStore,
    project: &'a Path,
    found: FoundHooks,
}

impl HookReader<'_> {
    fn add_problem(&mut self, file: &str, what: &str) {
        self.found.problems.push(format!("{}: {what}", escape_hidden_line(file)));
    }

    fn check_settings(&mut self, own: &Map<String, Value>) {
        let is_read = own.get(READ).is_none_or(|read| {
            read.as_array().is_some_and(|words| words.iter().all(|word| word == CLAUDE))
        });
        if !is_read {
            self.add_problem("hooks.read", "it must be a list of `claude`, the only other format");
        }
        for name in [SANDBOX, DISABLE] {
            if own.get(name).is_some_and(|value| !value.is_boolean()) {
                self.add_problem(&format!("hooks.{name}"), "it must be true or false");
            }
        }
    }

    /// Reads the files of Claude Code, unless one of them switches all hooks off.
    fn claude_files(&mut self, home: Option<&Path>) -> Vec<ClaudeFile> {
        let mut files = Vec::new();
        let of_user = home.map(|home| home.join(CLAUDE_FILES[0]));
        let mut texts = Vec::new();
        if let Some(path) = of_user {
            let name = path.to_string_lossy().into_owned();
            match private_file::read(&path, MAX_FILE_BYTES) {
                Ok(text) => texts.push((name, None, text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.add_problem(&name, &io_error_text(&error)),
            }
        }
        for name in CLAUDE_FILES {
            match trust::read_project_file(self.project, name) {
                Ok(Some(text)) => texts.push((name.to_owned(), Some(name), text)),
                Ok(None) => {}
                Err(why) => self.add_problem(name, &format!("it {why}, and is ignored")),
            }
        }
        for (name, project_name, text) in texts {
            match serde_json::from_str::<Value>(&text) {
                Ok(whole) if whole.get("disableAllHooks") == Some(&Value::Bool(true)) => {
                    return Vec::new();
                }
                Ok(whole) => {
                    let hooks = whole.get("hooks").cloned().filter(|hooks| !hooks.is_null());
                    files.extend(hooks.map(|hooks| ClaudeFile { name, project_name, hooks }));
                }
                Err(error) => self.add_problem(&name, &format!("it is no valid JSON ({error})")),
            }
        }
        files
    }

    fn read(&mut self, name: &str, scope: HookScope, events: &Value) -> Vec<Handler> {
        let file = HookFile { name, scope, project: self.project };
        let mut problems = Vec::new();
        let handlers = read_handlers(events, &file, &mut problems);
        for problem in problems {
            self.add_problem(name, &problem);
        }
        handlers
    }

    fn add_user(&mut self, name: &str, events: &Value) {
        let handlers = self.read(name, HookScope::User, events);
        self.found.session.handlers.extend(handlers);
    }

    /// Leaves out the user's hooks that run files of the project, unless these are trusted.
    fn check_run_files(&mut self) {
        let all = self.found.session.handlers.iter().filter(|handler| !handler.scripts.is_empty());
        let handlers: Vec<_> = all.cloned().collect();
        if handlers.is_empty() {
            return;
        }
        let text = script_texts(&handlers, self.project);
        if !self.add_file(RUN_FILES, text, &handlers) {
            self.found.session.handlers.retain(|handler| handler.scripts.is_empty());
        }
    }

    fn add_own_project_file(&mut self) {
        let text = match trust::read_project_file(self.project, OWN_FILE) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(why) => return self.add_problem(OWN_FILE, &format!("it {why}, and is ignored")),
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(whole) => match whole.get("hooks") {
                Some(hooks) => self.add_project(OWN_FILE, hooks),
                None => self.add_problem(OWN_FILE, "it has no table `hooks`, and is ignored"),
            },
            Err(error) => {
                self.add_problem(
                    OWN_FILE,
                    &format!("it is no valid JSON ({error}), and is ignored"),
                );
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
            self.found.session.handlers.extend(handlers);
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
        self.found.files.push(ProjectFile { name, text, is_trusted, requests, full_requests });
        is_trusted
    }
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
            head.is_complete && script.sha256.as_deref() == Some(hash.as_str())
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
