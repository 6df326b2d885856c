//! Changes one setting in the user's file. A value that would be wrong, or would put a key into the file, is
//! refused before anything is written.

use std::io;
use std::path::{Path, PathBuf};

use url::Url;

use crate::document::{TomlDocument, key_text, parse_key};
use crate::file::ConfigFile;
use crate::reader::parse_error;
use crate::table::SettingType;
use crate::{Config, ConfigError, PermissionSection, schema};
use turnwright_types::error_text::with_path;
use turnwright_types::private_file;

/// The beginnings of the keys of well-known services.
const KEY_PREFIXES: &[&str] =
    &["sk-", "gsk_", "xai-", "nvapi-", "hf_", "ghp_", "github_pat_", "AIza"];
/// Shorter words are not taken for keys.
const MIN_KEY_LENGTH: usize = 20;
/// The shortest known key that is looked for in a value.
const MIN_KNOWN_KEY_LENGTH: usize = 8;

/// A change of one setting that is right and not yet saved.
#[derive(Debug)]
pub struct SettingChange {
    /// The key as it is written in the file.
    pub key: String,
    /// The TOML text of the old value, if there was one; `"…"` if it may be a secret.
    pub old: Option<String>,
    /// The TOML text of the new value; none if the setting was removed.
    pub new: Option<String>,
    /// The variable that takes precedence.
    pub overridden_by: Option<&'static str>,
    /// The permission rules of the file before and after the change.
    pub permissions: [PermissionSection; 2],
    path: PathBuf,
    text: String,
}

impl Config {
    /// Prepares to set a setting to what was typed, or to remove it.
    ///
    /// # Errors
    /// If there is no such setting, the value is not allowed, or the file would be wrong.
    pub fn change_setting(
        &self,
        key: &str,
        typed: Option<&[String]>,
    ) -> Result<SettingChange, ConfigError> {
        let path = parse_key(key).ok_or_else(|| {
            let key = key.escape_debug();
            ConfigError::new(format!(
                "`{key}` is not the key of a setting, such as mode or sessions.keep_days"
            ))
        })?;
        let key = key_text(&path);
        let value = typed.map(|words| self.new_value(&key, &path, words)).transpose()?;
        let file_path = self.user_file_path();
        let text = self.file.text()?;
        let document = TomlDocument::parse(&text)
            .map_err(|error| parse_error(error.span(), error.message(), &text, file_path))?;
        if value.is_none() && !document.contains(&path) {
            return Err(ConfigError::new(format!("`{key}` is not set in {}", file_path.display())));
        }
        let changed = match &value {
            Some(value) => document.with_value(&path, value),
            None => document.without(&path),
        }
        .map_err(|why| ConfigError::new(format!("`{key}` {why}")))?;
        let permissions = judge(&text, &changed, file_path)?;
        let shown =
            |value: &str| if may_be_secret(&path, value) { "\"…\"" } else { value }.to_owned();
        Ok(SettingChange {
            old: document.value(&path).map(shown),
            new: value.as_deref().map(shown),
            overridden_by: self.overriding_variable(&key),
            key,
            permissions,
            path: file_path.to_path_buf(),
            text: changed,
        })
    }

    /// The TOML text of what was typed as the value of a setting.
    fn new_value(
        &self,
        key: &str,
        path: &[String],
        typed: &[String],
    ) -> Result<String, ConfigError> {
        let schema = schema::root();
        let node = schema::find(&schema, path)?;
        let known_keys = self.snapshot().secrets();
        if typed.iter().any(|word| looks_like_key(word) || holds_known_key(word, &known_keys)) {
            return Err(ConfigError::new(format!(
                "The value of `{key}` looks like a key, and keys do not belong in the file: put it into a \
             variable or a file that `key_env` or `key_file` names"
            )));
        }
        if key.starts_with("providers.")
            && key.ends_with(".key_env")
            && !typed.iter().all(|word| is_variable_name(word))
        {
            // It is not quoted: it may be the key.
            return Err(ConfigError::new(format!(
                "`{key}` is the name of an environment variable, such as MY_API_KEY, and not the key itself"
            )));
        }
        schema::value_text(node, typed).map_err(|expected| {
            let shown = typed.join(" ").escape_debug().to_string();
            ConfigError::new(format!("`{key}` cannot be `{shown}`, expected {expected}"))
        })
    }

    fn overriding_variable(&self, key: &str) -> Option<&'static str> {
        let row = ConfigFile::ROWS.iter().find(|row| row.key == key)?;
        self.variables.get(row.variable).map(|_| row.variable)
    }
}

impl SettingChange {
    /// Writes the file.
    pub fn save(&self) -> io::Result<()> {
        let written = private_file::write(&self.path, self.text.as_bytes());
        written.map_err(|error| with_path(&self.path, &error))
    }
}

/// Returns true if a text contains one of the keys of this process.
fn holds_known_key(text: &str, keys: &[String]) -> bool {
    keys.iter().any(|key| key.len() >= MIN_KNOWN_KEY_LENGTH && text.contains(key.as_str()))
}

pub(crate) fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The permission rules before and after the change.
///
/// # Errors
/// If something is wrong that was not before, or there is a credential that was not.
fn judge(old: &str, new: &str, path: &Path) -> Result<[PermissionSection; 2], ConfigError> {
    let (file, warnings) = ConfigFile::parse(new, path)?;
    // A file that cannot be parsed has no problems to compare with.
    let (before, old_warnings) = ConfigFile::parse(old, path).unwrap_or_default();
    let old_problems = all_problems(&before, old_warnings);
    let problems = all_problems(&file, warnings);
    if let Some(problem) = problems.iter().find(|problem| !old_problems.contains(problem)) {
        let place = format!("{}: ", path.display());
        return Err(ConfigError::new(problem.trim_start_matches(&place).to_owned()));
    }
    let old_credentials = before.literal_credentials();
    if file.literal_credentials().iter().any(|value| !old_credentials.contains(value)) {
        return Err(ConfigError::new(
            "The value would be a credential in the file. Put it into a variable and refer to it as ${NAME}",
        ));
    }
    Ok([before.permissions, file.permissions])
}

fn all_problems(file: &ConfigFile, warnings: Vec<String>) -> Vec<String> {
    warnings.into_iter().chain(file.wrong_values("")).collect()
}

/// Returns true if a text looks as if it contained a key or a password.
pub fn looks_like_key(text: &str) -> bool {
    text.split([' ', '=', ',']).any(is_key_word)
        || Url::parse(text.trim_matches(['"', '\''])).is_ok_and(|url| url.password().is_some())
}

fn is_key_word(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    word.len() >= MIN_KEY_LENGTH && KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// Returns true if a value that is in the file may be a secret.
fn may_be_secret(path: &[String], value: &str) -> bool {
    let has_private_part = value.contains("headers") || value.contains("env");
    path.iter().any(|part| ["headers", "env", "key", "api_key"].contains(&part.as_str()))
        || value.starts_with('{') && has_private_part
        || value.contains("://") && value.contains(['@', '?'])
}

#[cfg(test)]
mod tests;
