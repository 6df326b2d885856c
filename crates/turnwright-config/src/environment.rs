//! The process's environment, read once at startup.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::agent::AgentSection;
use crate::file::ConfigFile;
use crate::{Config, EnvironmentVariables, provider};
use turnwright_http::Proxies;
use turnwright_types::secret::Secret;

/// The shortest key, in bytes, of which copies in other variables are looked for.
const MIN_KEY_LENGTH: usize = 8;

/// The base URL of the default endpoint.
pub(crate) const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";
/// Its older name, which aider, LiteLLM and LangChain know.
const OLD_BASE_URL_VARIABLE: &str = "OPENAI_API_BASE";
/// The default model.
pub(crate) const MODEL_VARIABLE: &str = "TURNWRIGHT_MODEL";
/// The mode in which sessions start.
pub(crate) const MODE_VARIABLE: &str = "TURNWRIGHT_MODE";
/// The most requests to the model for one prompt.
pub(crate) const MAX_TURN_REQUESTS_VARIABLE: &str = "TURNWRIGHT_MAX_TURN_REQUESTS";
/// 1 if nobody watches who could answer a question.
pub(crate) const ALONE_VARIABLE: &str = "TURNWRIGHT_ALONE";
/// 0 if the commands that the project's files name are not run as checks.
pub(crate) const FIND_CHECKS_VARIABLE: &str = "TURNWRIGHT_FIND_CHECKS";
/// 0 if the model is not told of its surroundings.
pub(crate) const SURROUNDINGS_VARIABLE: &str = "TURNWRIGHT_SURROUNDINGS";
/// The window of the default model.
pub(crate) const CONTEXT_WINDOW_VARIABLE: &str = "TURNWRIGHT_CONTEXT_WINDOW";
/// The file into which the first session is recorded.
pub(crate) const RECORD_VARIABLE: &str = "TURNWRIGHT_RECORD";
/// The filter of the log.
const LOG_VARIABLE: &str = "TURNWRIGHT_LOG";
/// The filter of the log in all programs in Rust, which commands get, too.
const RUST_LOG_VARIABLE: &str = "RUST_LOG";
/// The token of `turnwright serve`.
const SERVE_TOKEN: &str = "TURNWRIGHT_SERVE_TOKEN";
/// Where direnv, mise, shadowenv and varlock keep other variables with their values, which may be keys, mostly encoded.
const KEPT_VARIABLES: &str =
    "DIRENV_DIFF __MISE_DIFF __MISE_SESSION __VARLOCK_ENV __shadowenv_data";

/// The variables with a setting that has no key in the file. Those of the others are in the table.
const OTHER_VARIABLES: [&str; 5] = [
    BASE_URL_VARIABLE,
    OLD_BASE_URL_VARIABLE,
    CONTEXT_WINDOW_VARIABLE,
    RECORD_VARIABLE,
    LOG_VARIABLE,
];

/// Reads the environment and removes keys from it, so that child processes cannot inherit them.
/// [`EnvironmentVariables::classify`] says what a key is.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn take_environment(named: &[String]) -> EnvironmentVariables {
    let (variables, secret_names) = EnvironmentVariables::classify(std::env::vars_os(), named);
    for name in secret_names {
        erase_variable(&name);
    }
    let proxies = Proxies::from_variables(|name| read_variable(name)?.into_string().ok());
    if let Some(list) = proxies.no_proxy_for_libraries() {
        // The OAuth library reads the variable itself. Commands get the user's own.
        set_variable("NO_PROXY", &list);
    }
    turnwright_http::use_proxies(proxies);
    #[cfg(not(target_os = "linux"))]
    if let Some(file) = read_variable("SSL_CERT_FILE") {
        turnwright_http::trust_certificates_in(file.into());
    }
    variables
}

/// A variable that a program of ours or the system has set for this process. Nothing else of the environment is read.
#[cfg(unix)]
pub fn own_variable(name: &str) -> Option<String> {
    read_variable(name)?.into_string().ok()
}

/// The name under which a variable is kept: Windows ignores the case of names.
pub(crate) fn variable_name(name: &str) -> Cow<'_, str> {
    if cfg!(windows) { name.to_ascii_uppercase().into() } else { name.into() }
}

impl EnvironmentVariables {
    /// Sorts the variables of an environment, and returns with them the names of those that hold a key or a
    /// copy of one, or may. Keys are the variables in `named`, those of well-known providers, the token of
    /// `turnwright serve`, and all that end in `_API_KEY`, because the settings file may name them later.
    pub fn classify(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        named: &[String],
    ) -> (EnvironmentVariables, Vec<String>) {
        let mut variables = EnvironmentVariables::default();
        let mut keys = Vec::new();
        for (name, value) in environment {
            let name = if cfg!(windows) { name.to_ascii_uppercase() } else { name };
            if let Some(setting) = name.to_str().and_then(setting_variable) {
                variables.settings.extend(setting_text(&value).map(|text| (setting, text)));
                continue;
            }
            match name.to_str() {
                Some(RUST_LOG_VARIABLE) => {
                    let text = setting_text(&value);
                    variables.settings.extend(text.map(|text| (RUST_LOG_VARIABLE, text)));
                    variables.inherited.push((name, value));
                }
                Some(key) if is_key_variable(key, named) => {
                    keys.push(key.to_owned());
                    // A variable that the settings name may hold a whole header.
                    let read = if provider::is_key_variable(key) {
                        Secret::from_copied
                    } else {
                        Secret::from_variable
                    };
                    let secret = value.to_str().and_then(read);
                    variables.keys.extend(secret.map(|secret| (key.to_owned(), secret)));
                }
                Some(kept) if KEPT_VARIABLES.split(' ').any(|known| known == kept) => {
                    keys.push(kept.to_owned());
                }
                _ => variables.inherited.push((name, value)),
            }
        }
        if let Some(base_url) = variables.settings.remove(OLD_BASE_URL_VARIABLE) {
            variables.settings.entry(BASE_URL_VARIABLE).or_insert(base_url);
        }
        // Variables of other names that contain a key.
        let secrets: Vec<_> = variables.keys.values().map(Secret::expose).collect();
        let copies = variables.inherited.iter().filter(|(_, value)| {
            let value = value.to_string_lossy();
            secrets.iter().any(|secret| secret.len() >= MIN_KEY_LENGTH && value.contains(secret))
        });
        keys.extend(copies.filter_map(|variable| variable.0.to_str()).map(str::to_owned));
        (variables, keys)
    }

    /// The value of a variable that holds a setting; `None` if it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// The filter of the log.
    pub fn log(&self) -> Option<&str> {
        self.get(LOG_VARIABLE).or_else(|| self.get(RUST_LOG_VARIABLE))
    }

    /// An environment of these settings.
    #[cfg(test)]
    pub(crate) fn of(settings: &[(&'static str, &str)]) -> EnvironmentVariables {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        EnvironmentVariables { settings, ..EnvironmentVariables::default() }
    }
}

/// The text of a variable that holds a setting, without the quotes around it, which `docker --env-file` and the like
/// leave there; `None` if it is empty.
fn setting_text(value: &OsStr) -> Option<String> {
    let text = value.to_str()?.trim();
    let quoted =
        ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let word = quoted.unwrap_or(text).trim();
    (!word.is_empty()).then(|| word.to_owned())
}

/// The variables of the settings that have a key in the file.
pub(crate) fn table_variables() -> impl Iterator<Item = &'static str> {
    let rows = ConfigFile::ROWS.iter().chain(AgentSection::ROWS);
    rows.map(|row| row.variable).filter(|name| !name.is_empty())
}

/// The variable of this name, if it holds a setting.
fn setting_variable(name: &str) -> Option<&'static str> {
    table_variables().chain(OTHER_VARIABLES).find(|variable| *variable == name)
}

fn is_key_variable(name: &str, named: &[String]) -> bool {
    name.ends_with("_API_KEY")
        || name == SERVE_TOKEN
        || provider::is_key_variable(name)
        || named.iter().any(|key| variable_name(key) == name)
}

/// The variables with a setting that another process of this program must not get: they are about this one.
const FOR_THIS_PROCESS: [&str; 5] =
    [MODEL_VARIABLE, MODE_VARIABLE, RECORD_VARIABLE, LOG_VARIABLE, RUST_LOG_VARIABLE];

impl Config {
    /// The variables with settings for another process of this program that works for the same user: those of this
    /// process, but for the model, the mode, the log and the recording.
    pub fn shared_settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let settings = self.variables.settings.iter().map(|(name, value)| (*name, value.as_str()));
        settings.filter(|(name, _)| !FOR_THIS_PROCESS.contains(name))
    }

    /// The variables with the keys for another process of this program, which takes them out of its environment as this
    /// one did. No other program may get them.
    pub fn shared_keys(&self) -> impl Iterator<Item = (&str, &Secret)> {
        let keys = self.variables.keys.iter().map(|(name, key)| (name.as_str(), key));
        keys.filter(|(name, _)| *name != SERVE_TOKEN)
    }

    /// `TURNWRIGHT_SERVE_TOKEN`.
    pub fn serve_token(&self) -> Option<&Secret> {
        self.variables.keys.get(SERVE_TOKEN)
    }
}

/// Sets a variable for the libraries of this process.
#[expect(unsafe_code, reason = "the environment is changed before any thread is started")]
fn set_variable(name: &str, value: &str) {
    // SAFETY: called before any thread is started.
    unsafe { std::env::set_var(name, value) };
}

/// Removes the variable and overwrites its bytes: commands could otherwise read the initial environment in
/// `/proc/PID/environ`.
#[expect(unsafe_code, reason = "the environment is changed before any thread is started")]
fn erase_variable(name: &str) {
    #[cfg(unix)]
    if let Ok(name) = std::ffi::CString::new(name) {
        unsafe extern "C" {
            fn getenv(name: *const std::ffi::c_char) -> *mut std::ffi::c_char;
        }
        // SAFETY: called before any thread is started; the value ends with a zero byte, and only
        // the bytes before it are written.
        unsafe {
            let value = getenv(name.as_ptr());
            if !value.is_null() {
                let length = std::ffi::CStr::from_ptr(value).count_bytes();
                std::ptr::write_bytes(value, 0, length);
            }
        }
    }
    // SAFETY: as above.
    unsafe { std::env::remove_var(name) };
}

/// The hosts of the proxies that these variables name.
pub(crate) fn proxy_hosts(variables: &[(OsString, OsString)]) -> Vec<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let proxies = variables.iter().filter(|(name, _)| {
        name.to_str().is_some_and(|name| names.iter().any(|proxy| name.eq_ignore_ascii_case(proxy)))
    });
    let hosts = proxies.filter_map(|(_, value)| {
        let proxy = turnwright_http::plain_proxy(value.to_str()?);
        let url = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
        Some(url::Url::parse(&url).ok()?.host_str()?.to_owned())
    });
    hosts.collect()
}

/// Reads one variable that locates a folder or a file.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn read_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The user's home folder. Looked up once: without `HOME` it is read from the system's list of users. A path that is
/// not absolute would lead into the project.
pub(crate) fn home() -> Option<PathBuf> {
    static HOME: OnceLock<Option<PathBuf>> = OnceLock::new();
    HOME.get_or_init(|| etcetera::home_dir().ok().filter(|path| path.is_absolute())).clone()
}

#[cfg(windows)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_and_removed_in_any_case_of_its_name() {
        let environment = [
            ("My_Own_Secret", "value-of-the-first-key"),
            ("OpenAI_Api_Key", "value-of-the-second-key"),
            ("Copy", "x value-of-the-first-key"),
            ("Path", "bin"),
        ];
        let environment = environment.map(|(name, value)| (name.into(), value.into()));
        let named = ["my_own_SECRET".to_owned()];
        let (variables, mut removed) = EnvironmentVariables::classify(environment, &named);
        removed.sort();
        assert_eq!(removed, ["COPY", "MY_OWN_SECRET", "OPENAI_API_KEY"]);
        for name in ["My_own_secret", "openai_api_key"] {
            assert!(variables.keys.contains_key(&*variable_name(name)), "{name}");
        }
        let names: Vec<_> =
            variables.inherited.iter().map(|variable| variable.0.to_str().unwrap()).collect();
        assert_eq!(names, ["COPY", "PATH"]);
    }
}

#[cfg(test)]
mod key_tests {
    use super::*;

    #[test]
    fn quotes_around_a_key_are_no_part_of_it() {
        let environment = [("OPENAI_API_KEY".into(), "\u{feff}'sk-0123456789' ".into())];
        let (variables, removed) = EnvironmentVariables::classify(environment, &[]);
        assert_eq!(variables.keys["OPENAI_API_KEY"].expose(), "sk-0123456789");
        let header = [("MY_HEADER".into(), "'Bearer sk-0123456789'".into())];
        let (variables, _) = EnvironmentVariables::classify(header, &["MY_HEADER".to_owned()]);
        assert_eq!(variables.keys["MY_HEADER"].expose(), "Bearer sk-0123456789");
        assert_eq!(removed, ["OPENAI_API_KEY"]);
    }

    #[test]
    fn variables_with_the_values_of_others_are_not_inherited() {
        let names = ["DIRENV_DIFF", "DIRENV_DIR", "__MISE_DIFF", "__VARLOCK_ENV", "PATH"];
        let environment = names.map(|name| (name.into(), "eJxTyk7MyUnNS1Gy".into()));
        let (variables, removed) = EnvironmentVariables::classify(environment, &[]);
        assert_eq!(removed, ["DIRENV_DIFF", "__MISE_DIFF", "__VARLOCK_ENV"]);
        let inherited: Vec<_> = variables.inherited.iter().map(|(name, _)| name).collect();
        assert_eq!(inherited, ["DIRENV_DIR", "PATH"]);
        assert!(variables.keys.is_empty());
    }

    #[test]
    fn the_old_name_of_the_base_url_counts_if_the_new_one_is_not_set() {
        for (new, expected) in [("http://new/v1", "http://new/v1"), ("", "http://old/v1")] {
            let environment = [
                (BASE_URL_VARIABLE.into(), new.into()),
                (OLD_BASE_URL_VARIABLE.into(), "http://old/v1".into()),
            ];
            let (variables, _) = EnvironmentVariables::classify(environment, &[]);
            assert_eq!(variables.get(BASE_URL_VARIABLE), Some(expected));
            assert_eq!(variables.settings.len(), 1);
        }
    }

    #[test]
    fn quotes_around_a_setting_are_no_part_of_it() {
        for (text, expected) in [
            ("\"gpt-5-mini\"", Some("gpt-5-mini")),
            (" 'gpt-5-mini' ", Some("gpt-5-mini")),
            ("\"gpt", Some("\"gpt")),
            ("\"\"", None),
            ("", None),
        ] {
            let environment = [(MODEL_VARIABLE.into(), text.into())];
            let (variables, _) = EnvironmentVariables::classify(environment, &[]);
            assert_eq!(variables.get(MODEL_VARIABLE), expected, "{text}");
        }
    }
}
