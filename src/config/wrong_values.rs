//! Values that are wrong, so that something else is in force than the user has asked for. Entries that
//! only have no effect are warnings of the file itself.

use std::path::Path;

use serde_json::{Map, Value};
use url::Url;

use super::checks::wrong_checks;
use super::file::{ConfigFile, ProviderSection};
use super::{Config, Logins, parse_number, request_fields};
use turnwright_llm::Protocol;
use turnwright_llm::quirks::QuirkPatch;
use turnwright_policy::permission::Mode;
use turnwright_types::message::ReasoningEffort;

impl Config {
    /// The errors in the environment, the user's file and the files that it names, a sentence each with
    /// the place, the value and what is allowed.
    pub(crate) fn wrong_values(&self) -> Vec<String> {
        let mut wrong = self.wrong_variables();
        match Logins::load(&self.paths) {
            Ok(logins) if logins.all().iter().any(|login| login.key.is_some()) => {
                wrong.extend(exposed(&Logins::path(&self.paths)));
            }
            Ok(_) => {}
            Err(error) => wrong.push(error.to_string()),
        }
        if let Ok(file) = self.file.load() {
            let place = self.user_file_path().display().to_string();
            wrong.extend(
                file.wrong_values().into_iter().map(|problem| format!("{place}: {problem}")),
            );
            wrong.extend(
                file.providers.values().filter_map(|provider| {
                    exposed(self.key_file(provider.key_file.as_ref()?).path())
                }),
            );
        }
        wrong
    }

    fn wrong_variables(&self) -> Vec<String> {
        let variables = &self.variables;
        let wrong_mode = variables.mode.as_ref().filter(|word| Mode::parse_lenient(word).is_none());
        let mode = wrong_mode.map(|word| {
            let in_force = self.mode().id();
            format!("TURNWRIGHT_MODE {}. Sessions begin in `{in_force}`", expected_mode(word))
        });
        let requests =
            wrong_number("TURNWRIGHT_MAX_TURN_REQUESTS", variables.max_turn_requests.as_ref(), 1);
        let window =
            wrong_number("TURNWRIGHT_CONTEXT_WINDOW", variables.context_window.as_ref(), 1);
        mode.into_iter().chain(requests).chain(window).collect()
    }
}

fn wrong_number(name: &str, text: Option<&String>, least: u64) -> Option<String> {
    let text = text?;
    let number = parse_number::<u64>(Some(text));
    if number.is_some_and(|number| (least..=u32::MAX.into()).contains(&number)) {
        return None;
    }
    let text = text.escape_debug();
    Some(format!("{name} is `{text}`, expected a whole number ≥ {least}. It is ignored"))
}

impl ConfigFile {
    pub(super) fn wrong_values(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(word) = self.mode.as_ref().filter(|word| Mode::parse_lenient(word).is_none()) {
            wrong.push(format!("`mode` {}. Sessions begin in `ask`", expected_mode(word)));
        }
        if let Some(word) = self
            .effort
            .as_ref()
            .filter(|word| ReasoningEffort::parse(&word.trim().to_ascii_lowercase()).is_none())
        {
            let known: Vec<_> = ReasoningEffort::ALL.iter().map(|effort| effort.id()).collect();
            let word = word.escape_debug();
            wrong.push(format!("`effort` is `{word}`, expected one of {}", known.join(", ")));
        }
        wrong.extend(self.web.allow.iter().filter(|host| !is_host(host)).map(|host| {
            let entry = host.escape_debug();
            format!("`web.allow` contains `{entry}`, expected HOST or HOST:PORT")
        }));
        wrong.extend(self.limits.wrong_values());
        wrong.extend(self.wrong_agent());
        wrong.extend(wrong_checks(&self.checks));
        wrong.extend(self.sandbox.warnings(false));
        for (place, fields) in self.request_tables() {
            wrong.extend(request_fields::wrong_fields(&place, fields));
        }
        for (name, provider) in &self.providers {
            wrong.extend(wrong_endpoint(name, provider));
            let at = format!("providers.{name}");
            wrong.extend(wrong_quirks(&at, &provider.quirks));
            for (model, section) in &provider.model {
                let at = format!("providers.{name}.model.\"{model}\"");
                wrong.extend(wrong_quirks(&at, &section.quirks));
            }
        }
        wrong
    }

    fn wrong_agent(&self) -> Option<String> {
        let name = self.agent.name.as_ref()?;
        self.agent.usable_name().is_none().then(|| {
            let name = name.escape_debug();
            format!("`agent.name` is `{name}`, expected one line of at most 100 characters")
        })
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '@', '*', ' '])
}

fn wrong_endpoint(name: &str, provider: &ProviderSection) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(word) = provider.api.as_ref().filter(|word| Protocol::parse(word).is_none()) {
        let word = word.escape_debug();
        wrong.push(format!("`providers.{name}.api` is `{word}`, expected `chat` or `responses`"));
    }
    if let Some(text) = &provider.base_url
        && !Url::parse(text).is_ok_and(|url| ["http", "https"].contains(&url.scheme()))
    {
        // It is not quoted: it may contain a password.
        wrong.push(format!("`providers.{name}.base_url` is not a URL with http or https"));
    }
    wrong
}

fn expected_mode(word: &str) -> String {
    let known = Mode::ALL.map(Mode::id).join(", ");
    format!("is `{}`, expected one of {known}", word.escape_debug())
}

fn wrong_quirks(place: &str, quirks: &Map<String, Value>) -> Vec<String> {
    let named: Map<_, _> = quirks
        .iter()
        .filter(|field| field.0 != "body")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let wrong = QuirkPatch::parse(&named).1.into_iter();
    wrong.map(|problem| format!("`{place}.quirks`: {problem}")).collect()
}

/// Words of the sentence about a file with a key that others can read or replace.
pub(crate) const EXPOSED_KEY: &str = "holds a key, and other users can";

/// Why a key in this file is not safe, if others can read or replace it.
#[cfg(unix)]
fn exposed(key_file: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::super::{EnvironmentVariables, Flags, Paths, UserFile};
    use super::*;

    fn wrong(variables: EnvironmentVariables, file: &str) -> (Vec<String>, Mode) {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::below(home.path());
        let own = UserFile::at_default_path(&paths);
        std::fs::create_dir_all(own.path().parent().unwrap()).unwrap();
        std::fs::write(own.path(), file).unwrap();
        let config = Config::new(variables, Flags::default(), own, paths);
        (config.wrong_values(), config.mode())
    }

    #[test]
    fn each_wrong_value_is_named_with_its_place_and_what_is_allowed() {
        let some = |text: &str| Some(text.to_owned());
        let none = EnvironmentVariables::default;
        let table = [
            (
                EnvironmentVariables { mode: some("all"), ..none() },
                "mode = 'plan'",
                "TURNWRIGHT_MODE is `all`, expected one of ask, plan, auto-edit, auto, full. Sessions \
                 begin in `plan`",
            ),
            (
                EnvironmentVariables { max_turn_requests: some("many"), ..none() },
                "",
                "TURNWRIGHT_MAX_TURN_REQUESTS is `many`, expected a whole number ≥ 1. It is ignored",
            ),
            (
                EnvironmentVariables { context_window: some("0"), ..none() },
                "",
                "TURNWRIGHT_CONTEXT_WINDOW is `0`, expected a whole number ≥ 1. It is ignored",
            ),
            (none(), "mode = 'alles'", "config.toml: `mode` is `alles`, expected one of ask, plan"),
            (none(), "effort = 'huge'", "config.toml: `effort` is `huge`, expected one of"),
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
            (none(), "[sandbox]\nnetwork = 'maybe'", "`maybe`, expected off, loopback or on"),
            (none(), "[sandbox]\nwrite = ['here']", "`here`, which must start with / or ~/"),
            (none(), "[providers.x]\napi = 'all'", "`providers.x.api` is `all`, expected `chat`"),
            (none(), "[providers.x]\nbase_url = 'h:1/v1'", "`providers.x.base_url` is not a URL"),
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
            let mode = variable.map(str::to_owned);
            let variables = EnvironmentVariables { mode, ..EnvironmentVariables::default() };
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
            assert_eq!(config.wrong_values().len(), expected, "{:?}", config.wrong_values());
        }
    }
}
