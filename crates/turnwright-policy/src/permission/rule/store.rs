//! The user's own rules for one project, kept in a file outside of the project, in the folder for what is stored about
//! it. Reads and writes block.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Pattern, Rule, RuleAction, Scope, fallback_rules};
use turnwright_types::error_text::{io_error_text, json_error_text};
use turnwright_types::hash::fnv1a;
use turnwright_types::private_file::{self, FileLock};
use turnwright_types::text;
use turnwright_types::timestamp;

/// The version of the file that this crate writes. A file of a newer version is not changed.
const VERSION: u64 = 1;
/// The maximum number of rules of one project.
const MAX_STORED_RULES: usize = 500;
/// The maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The maximum length of a rule or its origin in characters.
const MAX_RULE_CHARS: usize = 1_000;
/// The name of the file, in the project's folder below the state folder.
const FILE_NAME: &str = "permissions.json";

/// The file with the user's rules for one project.
#[derive(Clone, Debug)]
pub struct ProjectRuleStore {
    folder: PathBuf,
    /// The project's folder, with symlinks resolved.
    project: PathBuf,
}

/// One rule of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRule {
    /// A short identifier, by which the rule can be revoked.
    pub id: String,
    /// The text of its [`Pattern`].
    pub rule: String,
    /// The action on a match.
    #[serde(rename = "tier")]
    pub action: RuleAction,
    /// When it was added, as an RFC 3339 timestamp.
    pub at: String,
    /// The command or path that it was added for.
    pub origin: String,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct RuleFile {
    version: u64,
    /// Checked on reading, so that two projects never share a file even if the names of their
    /// folders collide.
    project: PathBuf,
    rules: Vec<StoredRule>,
}

/// The rules of a project, as they were read from the file.
#[derive(Clone, Debug, Default)]
pub struct StoredRules {
    /// The rules, the oldest first.
    pub entries: Vec<StoredRule>,
    /// Why some or all of the rules are ignored, to be shown to the user.
    pub problem: Option<String>,
}

/// The rules could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum RuleStoreError {
    /// There are too many rules, or a rule is too long.
    #[error("there are {MAX_STORED_RULES} rules for this project already; revoke some first")]
    Full,
    /// The file cannot be written, or must not be changed: it was written by a newer version, belongs to another
    /// project, or cannot be read or parsed.
    #[error("{0}")]
    Unusable(String),
}

impl ProjectRuleStore {
    /// The rules of a project, below the folder `state`. `project` must be a path with symlinks
    /// resolved.
    pub fn new(state: &Path, project: &Path) -> ProjectRuleStore {
        ProjectRuleStore { folder: project_folder(state, project), project: project.to_path_buf() }
    }

    /// The path of the file. It need not exist.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Reads the rules. If the file cannot be read there are no entries, and [`StoredRules::problem`]
    /// says why.
    pub fn load(&self) -> StoredRules {
        match self.read_file() {
            Ok(entries) => {
                let problem = invalid_rule(&entries);
                StoredRules { entries, problem }
            }
            Err(error) => {
                let problem = Some(format!("{error}. Until then, you are asked about everything."));
                StoredRules { entries: Vec::new(), problem }
            }
        }
    }

    /// Adds rules and returns them. A rule that exists already is not changed.
    ///
    /// # Errors
    /// When the file cannot be written, or there are too many rules.
    pub fn add(
        &self,
        rules: &[(RuleAction, Pattern)],
        origin: &str,
    ) -> Result<Vec<StoredRule>, RuleStoreError> {
        self.update(|entries| {
            let mut added = Vec::new();
            for (action, pattern) in rules {
                let rule = pattern.to_string();
                let mut same_action = entries.iter().filter(|entry| entry.action == *action);
                if let Some(known) = same_action.find(|entry| entry.rule == rule) {
                    added.push(known.clone());
                    continue;
                }
                if entries.len() >= MAX_STORED_RULES || rule.chars().count() > MAX_RULE_CHARS {
                    return Err(RuleStoreError::Full);
                }
                let at = timestamp::rfc3339(SystemTime::now());
                let origin = text::cut(origin, MAX_RULE_CHARS);
                let id = new_id(entries);
                let entry = StoredRule { id, rule, action: *action, at, origin };
                entries.push(entry.clone());
                added.push(entry);
            }
            Ok(added)
        })
    }

    /// Removes the rules with these identifiers and returns those that existed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn revoke(&self, ids: &[String]) -> Result<Vec<StoredRule>, RuleStoreError> {
        if self.read_file()?.is_empty() {
            return Ok(Vec::new());
        }
        self.update(|entries| {
            let (removed, remaining) =
                entries.drain(..).partition(|entry: &StoredRule| ids.contains(&entry.id));
            *entries = remaining;
            Ok(removed)
        })
    }

    /// Reads, changes and writes the rules while holding a lock against other processes.
    fn update<T>(
        &self,
        change: impl FnOnce(&mut Vec<StoredRule>) -> Result<T, RuleStoreError>,
    ) -> Result<T, RuleStoreError> {
        let path = self.path();
        let name = path.display();
        let io_error = |error: io::Error| {
            let why = io_error_text(&error);
            RuleStoreError::Unusable(format!("{name} cannot be written: {why}"))
        };
        let _lock = FileLock::acquire(&self.folder.join("permissions.lock")).map_err(io_error)?;
        let mut entries = self.read_file()?;
        let before = entries.clone();
        let result = change(&mut entries)?;
        if entries != before {
            let project = self.project.clone();
            let file = RuleFile { version: VERSION, project, rules: entries };
            let text =
                serde_json::to_string_pretty(&file).map_err(io::Error::from).map_err(io_error)?;
            if text.len() as u64 > MAX_FILE_BYTES {
                return Err(RuleStoreError::Full);
            }
            private_file::write(&path, text.as_bytes()).map_err(io_error)?;
        }
        Ok(result)
    }

    fn read_file(&self) -> Result<Vec<StoredRule>, RuleStoreError> {
        let path = self.path();
        let why = match private_file::read(&path, MAX_FILE_BYTES) {
            Ok(text) => match parse_file(&text) {
                Ok(file) if file.project == self.project => return Ok(file.rules),
                Ok(_) => "belongs to another project".to_owned(),
                Err(why) => why,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => format!("cannot be read ({})", io_error_text(&error)),
        };
        let remedy = "mend the file, or move it away";
        Err(RuleStoreError::Unusable(format!("{} {why}: {remedy}", path.display())))
    }
}

/// Parses the file. An error follows the file's name.
fn parse_file(text: &str) -> Result<RuleFile, String> {
    let version = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|document| document.get("version")?.as_u64());
    if version.is_some_and(|version| version > VERSION) {
        return Err("was written by a newer turnwright".to_owned());
    }
    serde_json::from_str(text)
        .map_err(|error| format!("is not valid ({})", json_error_text(text, &error)))
}

impl StoredRules {
    /// The rules for decisions. If the file cannot be read or a rule cannot be parsed, nobody knows what it was meant
    /// to deny: the `allow` rules are left out, and everything that may have been denied is asked about.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<_> =
            self.entries.iter().filter_map(|entry| parsed(entry).ok()).collect();
        if self.problem.is_none() {
            return rules;
        }
        rules.retain(|rule| rule.action != RuleAction::Allow);
        let mut restricting = self.entries.iter().filter(|entry| entry.action != RuleAction::Allow);
        if self.entries.is_empty() || restricting.any(|entry| parsed(entry).is_err()) {
            let why = "the rules kept for this project cannot be read";
            rules.extend(fallback_rules(RuleAction::Ask, Scope::Local, why));
        }
        rules
    }

    /// Returns true if a rule in force is one of these.
    pub fn contains(&self, rule: &Rule) -> bool {
        let mut entries = self.entries.iter().filter(|entry| entry.action == rule.action);
        rule.scope == Scope::Local && entries.any(|entry| entry.rule == rule.pattern.to_string())
    }
}

fn parsed(entry: &StoredRule) -> Result<Rule, String> {
    Rule::parse(&entry.rule, entry.action, Scope::Local)
}

fn invalid_rule(entries: &[StoredRule]) -> Option<String> {
    let invalid = entries.iter().filter_map(|entry| {
        let why = Pattern::parse(&entry.rule, entry.action).err()?;
        Some((entry, why))
    });
    let strictest = invalid.min_by_key(|(entry, _)| entry.action);
    strictest.map(|(entry, why)| {
        let asks = match entry.action {
            RuleAction::Allow => "",
            RuleAction::Ask | RuleAction::Deny => ", and you are asked about everything",
        };
        format!(
            "Rule {} ({}) is invalid: {why}. Until it is revoked, the allow rules kept for \
             this project are ignored{asks}.",
            entry.id,
            turnwright_types::effect::escape_hidden_line(&entry.rule)
        )
    })
}

/// A unique identifier that is short enough to type.
fn new_id(entries: &[StoredRule]) -> String {
    loop {
        let id = text::cut(uuid::Uuid::new_v4().simple().to_string(), 6);
        if entries.iter().all(|entry| entry.id != id) {
            return id;
        }
    }
}

/// The folder for the data of one project. `project` is a path with symlinks resolved. Its name has a hash, of
/// which collisions are possible, so files in the folder name their project.
pub fn project_folder(state: &Path, project: &Path) -> PathBuf {
    let own_name = project.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain_name: String = own_name
        .chars()
        .filter(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
        .take(40)
        .collect();
    let hash = fnv1a(project.as_os_str().as_encoded_bytes());
    let name = if plain_name.is_empty() { "project" } else { plain_name.as_str() };
    state.join("projects").join(format!("{name}-{hash:016x}"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::fs;

    fn exec(words: &str) -> (RuleAction, Pattern) {
        (RuleAction::Allow, Pattern::parse(&format!("exec({words})"), RuleAction::Allow).unwrap())
    }

    fn store(state: &Path) -> ProjectRuleStore {
        ProjectRuleStore::new(state, Path::new("/ws"))
    }

    #[test]
    fn an_added_rule_stays_with_its_time_and_origin_until_it_is_revoked() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        assert!(store.load().entries.is_empty());
        store.add(&[exec("cargo test"), exec("tee")], "cargo test | tee log").unwrap();
        store.add(&[exec("cargo test")], "cargo test").unwrap();
        let stored = store.load();
        let rules: Vec<_> = stored.entries.iter().map(|entry| entry.rule.as_str()).collect();
        assert_eq!(rules, ["exec(cargo test)", "exec(tee)"]);
        assert_eq!(stored.entries[0].origin, "cargo test | tee log");
        assert!(stored.entries[0].at.ends_with('Z'));
        assert_eq!(stored.rules()[0].pattern, exec("cargo test").1);
        let gone = store.revoke(&[stored.entries[0].id.clone(), "zzz".to_owned()]).unwrap();
        assert_eq!(gone, stored.entries[..1]);
        assert_eq!(store.load().entries, stored.entries[1..]);
        assert!(
            ProjectRuleStore::new(state.path(), Path::new("/other/ws")).load().entries.is_empty()
        );
    }

    #[cfg(unix)]
    #[test]
    fn only_the_user_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        store.add(&[exec("make")], "make").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&store.path()), mode(&store.folder)), (0o600, 0o700));
    }

    #[test]
    fn concurrent_writers_lose_no_rule() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = store(state.path());
                scope.spawn(move || {
                    for number in 0..10 {
                        store.add(&[exec(&format!("t{thread} n{number}"))], "x").unwrap();
                    }
                });
            }
        });
        assert_eq!(store(state.path()).load().entries.len(), 40);
    }

    /// A store with a file of this content.
    fn store_with(state: &Path, text: &[u8]) -> ProjectRuleStore {
        let store = store(state);
        private_file::create_folder(&store.folder).unwrap();
        fs::write(store.path(), text).unwrap();
        store
    }

    fn rules_of(stored: &StoredRules) -> Vec<String> {
        let text = |rule: &Rule| format!("{} {}", rule.action.as_str(), rule.pattern);
        stored.rules().iter().map(text).collect()
    }

    /// The rules that stand in for those that may have denied something.
    const ASKS: [&str; 6] =
        ["ask exec", "ask edit", "ask fetch", "ask search", "ask mcp(*)", "ask read"];

    #[test]
    fn a_file_that_cannot_be_read_makes_everything_ask_and_is_left_alone() {
        let foreign = br#"{ "version": 1, "project": "/else", "rules": [] }"#;
        let cases: [&[u8]; 6] =
            [b"{ \"version\": 1", b"[]", b"", b"\xff", b"{ \"version\": 2, \"x\": 1 }", foreign];
        for text in cases {
            let state = tempfile::tempdir().unwrap();
            let store = store_with(state.path(), text);
            let stored = store.load();
            let problem = stored.problem.as_deref().unwrap();
            assert!(problem.starts_with(&store.path().display().to_string()), "{problem}");
            assert!(problem.contains("move it away"), "{problem}");
            assert_eq!(rules_of(&stored), ASKS);
            assert!(store.add(&[exec("make")], "make").is_err(), "{problem}");
            assert_eq!(fs::read(store.path()).unwrap(), text);
            fs::remove_file(store.path()).unwrap();
            assert_eq!(rules_of(&store.load()), Vec::<String>::new());
        }
    }

    #[test]
    fn an_invalid_rule_disables_the_allow_rules_and_makes_everything_ask_if_it_denied_something() {
        for (tier, asks) in [("allow", &ASKS[..0]), ("ask", &ASKS[..]), ("deny", &ASKS[..])] {
            let entry = |id: &str, tier: &str, rule: &str| serde_json::json!({ "id": id, "tier": tier, "rule": rule, "at": "", "origin": "" });
            let rules = [
                entry("a", "allow", "exec(ls)"),
                entry("b", "deny", "exec(rm)"),
                entry("c", tier, "hologram(x)"),
            ];
            let file = serde_json::json!({ "version": 1, "project": "/ws", "rules": rules });
            let state = tempfile::tempdir().unwrap();
            let store = store_with(state.path(), file.to_string().as_bytes());
            assert_eq!(rules_of(&store.load()), [&["deny exec(rm)"][..], asks].concat(), "{tier}");
            store.revoke(&["c".to_owned()]).unwrap();
            assert_eq!(rules_of(&store.load()), ["allow exec(ls)", "deny exec(rm)"]);
        }
    }

    #[test]
    fn an_unwritable_file_and_too_many_rules_are_errors() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("projects"), "in the way").unwrap();
        assert!(matches!(
            store(state.path()).add(&[exec("a")], ""),
            Err(RuleStoreError::Unusable(_))
        ));
        let state = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..=MAX_STORED_RULES).map(|index| exec(&format!("p{index}"))).collect();
        let store = store(state.path());
        store.add(&many[1..], "").unwrap();
        assert!(matches!(store.add(&many, ""), Err(RuleStoreError::Full)));
        assert_eq!(store.load().entries.len(), MAX_STORED_RULES);
    }

    #[test]
    fn each_project_has_a_folder_of_its_own() {
        let folder = |project: &str| {
            let folder = project_folder(Path::new("/state"), Path::new(project));
            folder.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
        };
        assert!(folder("/home/me/App").starts_with("/state/projects/app-"));
        assert!(folder("/").starts_with("/state/projects/project-"));
        assert!(folder("/a/../b").starts_with("/state/projects/b-"));
        assert_ne!(folder("/a/app"), folder("/b/app"));
        assert_eq!(folder("/a/app"), folder("/a/app"));
    }
}
