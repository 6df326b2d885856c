//! Values that are wrong, so that something else is in force than the user has asked for, and all problems of the
//! user's file with their lines. Entries that only have no effect are warnings of the file itself. The table of the
//! settings says which value is checked by which function.

use std::path::Path;

use serde_json::{Map, Value};
use url::Url;

use crate::agent::is_agent_name;
use crate::document::{TomlDocument, parse_key};
use crate::environment::{
    ALONE_VARIABLE, CONTEXT_WINDOW_VARIABLE, FIND_CHECKS_VARIABLE, MAX_TURN_REQUESTS_VARIABLE,
    MODE_VARIABLE, SURROUNDINGS_VARIABLE,
};
use crate::table::SettingType;
use crate::{Config, Logins, SettingsSnapshot, parse_number};
use turnwright_llm::Protocol;
use turnwright_llm::quirks::QuirkPatch;
use turnwright_policy::permission::Mode;
use turnwright_types::message::ReasoningEffort;
use turnwright_types::work_settings::{LspMode, ToolChoice, Verify};

impl SettingsSnapshot<'_> {
    /// The errors in the environment, the user's file and the files that it names, a sentence each with
    /// the place, the value and what is allowed.
    pub fn wrong_values(&self) -> Vec<String> {
        let mut wrong = self.wrong_variables();
        wrong.extend(self.logins_error.as_ref().map(ToString::to_string));
        if self.logins.all().iter().any(|login| login.key.is_some()) {
            wrong.extend(exposed(&Logins::path(&self.config.paths)));
        }
        let place = self.config.file_path();
        let of_file = self.values.wrong_values("").into_iter();
        wrong.extend(of_file.map(|problem| format!("{place}: {problem}")));
        let providers = self.values.providers.values();
        wrong
            .extend(providers.filter_map(|provider| {
                exposed(&self.config.key_file(provider.key_file.as_ref()?))
            }));
        wrong
    }

    /// All errors and warnings about the settings, a sentence each, with these errors in the values and rules.
    pub fn errors_and_warnings(&self, mut errors: Vec<String>) -> (Vec<String>, Vec<String>) {
        // Sessions name these servers in a notice of their own.
        let path = self.config.file_path();
        errors.extend(self.mcp_settings().broken.into_iter().map(|(name, why)| {
            format!("{path}: `mcp.servers.{}` is not used: {why}", name.escape_debug())
        }));
        errors.extend(self.model_without_provider().map(|_| self.missing_model()));
        let mut warnings = self.warnings();
        warnings.retain(|warning| !errors.contains(warning));
        (errors, warnings)
    }

    /// The problems in the user's file, a sentence each with file and line. Permission rules are checked
    /// elsewhere; [`Config::locate_problem`] adds the line to their problems.
    pub fn file_problems(&self) -> Vec<String> {
        let file = match self.file() {
            Ok(file) => file,
            Err(error) => return vec![error.to_string()],
        };
        let problems = self.file_warnings.iter().cloned().chain(file.wrong_values(""));
        problems.map(|problem| self.config.locate_problem(&problem)).collect()
    }

    fn wrong_variables(&self) -> Vec<String> {
        let variables = &self.config.variables;
        let mode = variables.get(MODE_VARIABLE);
        let wrong_mode = mode.filter(|word| Mode::parse_lenient(word).is_none()).map(|word| {
            let in_force = self.mode().id();
            format!("{MODE_VARIABLE} {}. Sessions begin in `{in_force}`", expected_mode(word))
        });
        let numbers = [MAX_TURN_REQUESTS_VARIABLE, CONTEXT_WINDOW_VARIABLE];
        let wrong_numbers = numbers.iter().filter_map(|name| {
            let text = variables.get(name)?;
            let is_right = parse_number::<u32>(Some(text)).is_some_and(|number| number > 0);
            let text = (!is_right).then(|| text.escape_debug())?;
            Some(format!("{name} is `{text}`, expected a whole number ≥ 1. It is ignored"))
        });
        let switches = [ALONE_VARIABLE, FIND_CHECKS_VARIABLE, SURROUNDINGS_VARIABLE];
        let wrong_switches = switches.iter().filter_map(|name| {
            let text = variables.get(name)?;
            let is_right = self.config.process_switch(name).is_some();
            let text = (!is_right).then(|| text.escape_debug())?;
            Some(format!("{name} is `{text}`, expected 1 or 0. It is ignored"))
        });
        // The TLS library passes over certificates in binary form, as Windows exports them.
        let wrong_pem = self.config.inherited_text("SSL_CERT_FILE").and_then(|file| {
            let is_file = Path::new(file).is_file();
            let bytes = if is_file { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
            let is_right = String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----");
            let text = (!is_right).then(|| file.escape_debug())?;
            Some(format!("SSL_CERT_FILE is `{text}`, expected a file with certificates (PEM)"))
        });
        wrong_mode.into_iter().chain(wrong_numbers).chain(wrong_switches).chain(wrong_pem).collect()
    }
}

pub(crate) fn wrong_mode(key: &str, word: &str) -> Option<String> {
    let is_known = Mode::parse_lenient(word).is_some();
    (!is_known).then(|| format!("`{key}` {}. Sessions begin in `ask`", expected_mode(word)))
}

pub(crate) fn wrong_effort(key: &str, word: &str) -> Option<String> {
    let is_known = ReasoningEffort::parse(&word.trim().to_ascii_lowercase()).is_some();
    let known = ReasoningEffort::ALL.map(ReasoningEffort::id).join(", ");
    unexpected(key, word, is_known, &format!("one of {known}"))
}

pub(crate) fn wrong_verify(key: &str, word: &str) -> Option<String> {
    unexpected_word(key, word, &Verify::NAMES)
}

pub(crate) fn wrong_tools(key: &str, word: &str) -> Option<String> {
    unexpected_word(key, word, &ToolChoice::NAMES)
}

pub(crate) fn unexpected_word(key: &str, word: &str, known: &[&str]) -> Option<String> {
    unexpected(key, word, known.contains(&word), &format!("one of {}", known.join(", ")))
}

pub(crate) fn wrong_lsp(key: &str, word: &str) -> Option<String> {
    unexpected_word(key, word, &LspMode::ALL.map(LspMode::id))
}

pub(crate) fn wrong_hosts(key: &str, hosts: &[String]) -> Vec<String> {
    unexpected_entries(key, hosts, is_host, "expected HOST or HOST:PORT")
}

pub(crate) fn wrong_name(key: &str, name: &str) -> Option<String> {
    unexpected(key, name, is_agent_name(name.trim()), "one line of at most 100 characters")
}

/// The error in a text that is not right.
pub(crate) fn unexpected(key: &str, text: &str, is_right: bool, what: &str) -> Option<String> {
    (!is_right).then(|| format!("`{key}` is `{}`, expected {what}", text.escape_debug()))
}

/// The errors in a list, of which each entry that is not right is `why`.
pub(crate) fn unexpected_entries(
    key: &str,
    entries: &[String],
    is_right: impl Fn(&str) -> bool,
    why: &str,
) -> Vec<String> {
    let wrong = entries.iter().filter(|entry| !is_right(entry));
    wrong.map(|entry| format!("`{key}` contains `{}`, {why}", entry.escape_debug())).collect()
}

pub(crate) fn wrong_base_url(key: &str, text: &str) -> Option<String> {
    let is_url = Url::parse(text).is_ok_and(|url| ["http", "https"].contains(&url.scheme()));
    // It is not quoted: it may contain a password.
    (!is_url).then(|| format!("`{key}` is not a URL with http or https"))
}

pub(crate) fn wrong_api(key: &str, word: &str) -> Option<String> {
    unexpected(key, word, Protocol::parse(word).is_some(), "`chat` or `responses`")
}

pub(crate) fn wrong_quirks(key: &str, quirks: &Map<String, Value>) -> Vec<String> {
    let mut named = quirks.clone();
    named.retain(|name, _| name != "body");
    let wrong = QuirkPatch::parse(&named).1.into_iter();
    wrong.map(|problem| format!("`{key}`: {problem}")).collect()
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '@', '*', ' '])
}

fn expected_mode(word: &str) -> String {
    let known = Mode::ALL.map(Mode::id).join(", ");
    format!("is `{}`, expected one of {known}", word.escape_debug())
}

/// Why a key in this file is not safe, if others can read or replace it.
#[cfg(unix)]
fn exposed(key_file: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    use turnwright_types::secret::EXPOSED_KEY;
    let mode = std::fs::metadata(key_file).ok()?.permissions().mode();
    let others = match mode & 0o066 {
        0 => return None,
        bits if bits & 0o022 != 0 => "change",
        _ => "read",
    };
    let place = key_file.display();
    Some(format!("{place} {EXPOSED_KEY} {others} it. Run `chmod 600 {place}`"))
}

#[cfg(not(unix))]
fn exposed(_: &Path) -> Option<String> {
    None
}

impl Config {
    /// A sentence about the user's file with the line of the key or the text that it quotes first.
    pub fn locate_problem(&self, problem: &str) -> String {
        let path = self.user_file_path();
        let sentence = problem.strip_prefix(&format!("{}: ", path.display())).unwrap_or(problem);
        let text = self.file.text().unwrap_or_default();
        located(path, &text, sentence)
    }
}

fn located(path: &Path, text: &str, sentence: &str) -> String {
    let line = sentence.split('`').nth(1).and_then(|quoted| line_of(text, quoted));
    let place = line.map(|number| format!(", line {number}")).unwrap_or_default();
    format!("{}{place}: {sentence}", path.display())
}

/// The line of a key or of its nearest section, else of a value with the same text.
fn line_of(text: &str, quoted: &str) -> Option<usize> {
    let document = TomlDocument::parse(text).ok()?;
    let key = parse_key(quoted).unwrap_or_default();
    let found = (1..=key.len()).rev().find_map(|depth| document.line(&key[..depth]));
    found.or_else(|| {
        let mut quotes = ['"', '\''].into_iter();
        let position = quotes.find_map(|quote| text.find(&format!("{quote}{quoted}{quote}")))?;
        Some(text[..position].matches('\n').count() + 1)
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use crate::{Config, EnvironmentVariables, Flags, Paths, UserFile};

    fn wrong(variables: EnvironmentVariables, file: &str) -> (Vec<String>, Mode) {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let own = UserFile::at_default_path(&paths);
        std::fs::create_dir_all(own.path().parent().unwrap()).unwrap();
        std::fs::write(own.path(), file).unwrap();
        let config = Config::new(variables, Flags::default(), own, paths);
        let settings = config.snapshot();
        (settings.wrong_values(), settings.mode())
    }

    #[test]
    fn a_file_without_certificates_to_trust_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("authority.cer");
        for (content, is_wrong) in [
            (&b""[..], true),
            (&b"0\x82\x05\x0b"[..], true),
            (&b"-----BEGIN TRUSTED CERTIFICATE-----\n"[..], true),
            (&b"# \xe9\n-----BEGIN CERTIFICATE-----\n"[..], false),
        ] {
            if !content.is_empty() {
                std::fs::write(&file, content).unwrap();
            }
            let inherited = vec![("SSL_CERT_FILE".into(), file.clone().into())];
            let variables = EnvironmentVariables { inherited, ..EnvironmentVariables::default() };
            let told = wrong(variables, "").0.concat();
            assert_eq!(told.contains("SSL_CERT_FILE is `"), is_wrong, "{content:?}: {told}");
        }
    }

    #[test]
    fn each_wrong_value_is_named_with_its_place_and_what_is_allowed() {
        let none = EnvironmentVariables::default;
        let set = |name, value| EnvironmentVariables::of(&[(name, value)]);
        let table = [
            (
                set(MODE_VARIABLE, "all"),
                "mode = 'plan'",
                "TURNWRIGHT_MODE is `all`, expected one of ask, plan, auto-edit, auto, full. Sessions \
                 begin in `plan`",
            ),
            (
                set(MAX_TURN_REQUESTS_VARIABLE, "many"),
                "",
                "TURNWRIGHT_MAX_TURN_REQUESTS is `many`, expected a whole number ≥ 1. It is ignored",
            ),
            (
                set(CONTEXT_WINDOW_VARIABLE, "0"),
                "",
                "TURNWRIGHT_CONTEXT_WINDOW is `0`, expected a whole number ≥ 1. It is ignored",
            ),
            (none(), "mode = 'alles'", "config.toml: `mode` is `alles`, expected one of ask, plan"),
            (none(), "effort = 'huge'", "config.toml: `effort` is `huge`, expected one of"),
            (none(), "effort = 'max'", "config.toml: `effort` is `max`, expected one of"),
            (
                none(),
                "[web]\nallow = ['http://localhost:3000/']",
                "`http://localhost:3000/`, expected",
            ),
            (none(), "[checks]\nrust = ''", "`checks.rust` must be a command in one line"),
            (none(), "[agent]\nname = ''", "`agent.name` is ``, expected one line of at most"),
            (
                none(),
                "[providers.x]\nrequest = { stream = false }",
                "`providers.x.request` contains `stream`, which the agent sets itself: answers",
            ),
            (none(), "[models]\nrequest = { n = 2 }", "`models.request` contains `n`, which the"),
            (
                none(),
                "[models.model.'p/m']\nrequest = { n = 2 }",
                "`models.model.\"p/m\".request` contains `n`, which the agent sets itself",
            ),
            (
                none(),
                "[sandbox]\nnetwork = 'maybe'",
                "`maybe`, expected off, loopback, on or a list of hosts",
            ),
            (none(), "[sandbox]\nwrite = ['here']", "`here`, which must start with / or ~/"),
            (none(), "[providers.x]\napi = 'all'", "`providers.x.api` is `all`, expected `chat`"),
            (none(), "[providers.x]\nbase_url = 'h/v1'", "`providers.x.base_url` is not a URL"),
            (
                none(),
                "[providers.x]\nquirks = { nonsense = 1 }",
                "config.toml: `providers.x.quirks`: unknown quirk `nonsense`",
            ),
        ];
        for (variables, file, expected) in table {
            let (wrong, _) = wrong(variables, file);
            assert!(matches!(&wrong[..], [one] if one.contains(expected)), "{expected}: {wrong:?}");
        }
    }

    #[test]
    fn a_wrong_mode_never_gives_more_and_case_does_not_matter() {
        for (variable, file, expected) in [
            (Some("Plan"), "", Mode::Plan),
            (Some("nonsense"), "mode = 'PLAN'", Mode::Plan),
            (Some("nonsense"), "mode = 'full'", Mode::Ask),
            (None, "mode = 'nonsense'", Mode::Ask),
            (None, "mode = 'Auto'", Mode::Auto),
        ] {
            let mode: Vec<_> = variable.map(|word| (MODE_VARIABLE, word)).into_iter().collect();
            let variables = EnvironmentVariables::of(&mode);
            assert_eq!(wrong(variables, file).1, expected, "{variable:?} {file}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_key_file_that_others_can_change_or_read_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "k").unwrap();
        let file = format!("[providers.x]\nbase_url = 'http://x'\nkey_file = '{}'", key.display());
        for (mode, expected) in
            [(0o666, "change it. Run `chmod 600"), (0o644, "read it"), (0o600, "")]
        {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            let (wrong, _) = wrong(EnvironmentVariables::default(), &file);
            assert_eq!(wrong.len(), usize::from(!expected.is_empty()), "{wrong:?}");
            assert!(wrong.concat().contains(expected), "{wrong:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn stored_logins_that_others_can_read_are_told() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let own = UserFile::at_default_path(&paths);
        let config = Config::new(EnvironmentVariables::default(), Flags::default(), own, paths);
        let file = Logins::path(&config.paths);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, r#"{ "logins": [{ "provider": "groq", "key": "k" }] }"#).unwrap();
        for (mode, expected) in [(0o644, 1), (0o600, 0)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let wrong = config.snapshot().wrong_values();
            assert_eq!(wrong.len(), expected, "{wrong:?}");
        }
    }

    #[test]
    fn a_problem_has_the_line_of_what_it_quotes() {
        let text = "mode = 'all'\n\n[providers.x]\nquirks = { nonsense = 1 }\n\n[permissions]\n\
                    allow = [\n  'exec(ls)',\n  'exec(',\n]\n";
        for (sentence, expected) in [
            ("`mode` is `all`", "c.toml, line 1: `mode` is `all`"),
            ("`providers.x.quirks`: no", "c.toml, line 4: `providers.x.quirks`: no"),
            ("Unknown `providers.x.\"y z\".a`", "c.toml, line 3: Unknown `providers.x.\"y z\".a`"),
            ("`exec(` is open", "c.toml, line 9: `exec(` is open"),
            ("`effort` is missing", "c.toml: `effort` is missing"),
            ("nothing is quoted", "c.toml: nothing is quoted"),
        ] {
            assert_eq!(located(Path::new("c.toml"), text, sentence), expected);
        }
    }
}
