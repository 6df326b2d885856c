//! `turnwright logout`: removes stored logins, and says what still gives a key.

use std::fmt::Write;
use std::process::ExitCode;

use crate::config::{Config, Logins, StoredLogin};

use super::super::CliError;
use super::answers::choose;
use super::prompt;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct LogoutCliArgs {
    /// Provider to log out of, or the base URL of a server
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Remove all stored logins
    #[arg(long, conflicts_with = "provider")]
    all: bool,
}

/// Removes a login, or all of them.
pub(in crate::cli) fn logout(args: &LogoutCliArgs, config: &Config) -> ExitCode {
    match remove(args, config) {
        Ok(text) => prompt::finish(&text, true),
        Err(error) => prompt::finish(&format!("Nothing was removed: {error}\n"), false),
    }
}

/// Removes what the arguments or the user's answer name, and returns what to say.
fn remove(args: &LogoutCliArgs, config: &Config) -> Result<String, CliError> {
    let mut logins = match Logins::load(&config.paths) {
        Ok(logins) => logins,
        Err(error) if args.provider.is_some() => return Err(CliError::Other(error.to_string())),
        Err(_) => {
            Logins::default().remove(|_| true, &config.paths)?;
            return Ok("Removed the stored logins, which were damaged.\n".to_owned());
        }
    };
    let names: Vec<String> = logins.all().iter().map(StoredLogin::name).collect();
    let removed = match (&args.provider, &names[..]) {
        (Some(name), _) => {
            let is_meant = |login: &StoredLogin| plain_name(&login.name()) == plain_name(name);
            if !logins.all().iter().any(is_meant) {
                return Err(CliError::Other(format!(
                    "there is no login of `{}`. Stored are: {}",
                    name.escape_debug(),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                )));
            }
            logins.remove(is_meant, &config.paths)?
        }
        (None, []) => Vec::new(),
        (None, [_]) => logins.remove(|_| true, &config.paths)?,
        (None, _) if args.all => logins.remove(|_| true, &config.paths)?,
        (None, names) => {
            let name = ask_which(names)?;
            logins.remove(|login| name.is_none_or(|name| login.name() == name), &config.paths)?
        }
    };
    Ok(report(&removed, config))
}

fn plain_name(name: &str) -> String {
    name.trim_end_matches('/').to_ascii_lowercase()
}

/// Asks which login is to be removed; `None` for all.
fn ask_which(names: &[String]) -> Result<Option<&str>, CliError> {
    if !prompt::is_terminal() {
        return Err(CliError::Other(format!(
            "there are several logins. Add --all, or --provider with one of {}",
            names.join(", ")
        )));
    }
    let mut choices: Vec<&str> = names.iter().map(String::as_str).collect();
    choices.push("all");
    for (number, name) in choices.iter().enumerate() {
        prompt::say(&format!("{:4}  {name}\n", number + 1))?;
    }
    loop {
        match choose(&prompt::ask("Log out of (number or name): ")?, &choices, choices.len()) {
            Ok(at) => return Ok(names.get(at).map(String::as_str)),
            Err(why) => prompt::say(&format!("{why}.\n"))?,
        }
    }
}

/// The text about what was removed, and what still gives a key.
fn report(removed: &[StoredLogin], config: &Config) -> String {
    let mut text = String::new();
    if removed.is_empty() {
        text.push_str("There was no stored login.\n");
    } else {
        let names: Vec<_> = removed.iter().map(StoredLogin::name).collect();
        writeln!(text, "Removed the login of {}.", names.join(", ")).ok();
    }
    let left: Vec<_> = config.snapshot().keys_of_well_known_providers();
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|(name, key)| format!("{name} ({key})")).collect();
        writeln!(text, "There is still a key for {}.", left.join(", ")).ok();
    }
    text
}
