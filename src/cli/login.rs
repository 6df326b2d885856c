//! `turnwright login` and `turnwright logout`.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use crate::config::{Credentials, Flags, Paths};

/// Asks for a key without showing it and stores it. Ends with 0 only when it is stored, because
/// clients go by that (R-AUTH-7).
pub(super) fn login(flags: &Flags, paths: &Paths) -> ExitCode {
    match ask(flags).and_then(|login| login.store(paths)) {
        Ok(()) => say(&format!("Stored in {}.\n", Credentials::path(paths).display()), true),
        Err(error) => say(&format!("Nothing was stored: {error}\n"), false),
    }
}

/// Removes the key.
pub(super) fn logout(paths: &Paths) -> ExitCode {
    match Credentials::remove(paths) {
        Ok(true) => say("The stored key is removed.\n", true),
        Ok(false) => say("There was no stored key.\n", true),
        Err(error) => say(&format!("The key could not be removed: {error}\n"), false),
    }
}

fn say(text: &str, ok: bool) -> ExitCode {
    let written = stderr().write_all(text.as_bytes()).is_ok();
    if ok && written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ask(flags: &Flags) -> io::Result<Credentials> {
    let base_url = match &flags.base_url {
        Some(url) => url.clone(),
        None => line("Base URL (empty for OpenAI): ")?,
    };
    let key = hidden("Key (not shown; empty if the server needs none): ")?;
    let model = match &flags.model {
        Some(model) => model.clone(),
        None => line("Model (empty for the usual one): ")?,
    };
    let some = |text: String| Some(text.trim().to_owned()).filter(|it| !it.is_empty());
    let login = Credentials { key: some(key), base_url: some(base_url), model: some(model) };
    if login.key.is_none() && login.base_url.is_none() {
        return Err(io::Error::other("neither a key nor a base URL was given"));
    }
    Ok(login)
}

fn line(question: &str) -> io::Result<String> {
    stderr().write_all(question.as_bytes())?;
    let mut text = String::new();
    if stdin().lock().read_line(&mut text)? == 0 {
        return Err(io::Error::other("the input ended"));
    }
    Ok(text)
}

/// Reads a line while the terminal shows nothing.
#[cfg(unix)]
fn hidden(question: &str) -> io::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

    let input = stdin();
    if !input.is_terminal() {
        return line(question);
    }
    let shown = tcgetattr(&input)?;
    let mut quiet = shown.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &quiet)?;
    let text = line(question);
    tcsetattr(&input, OptionalActions::Now, &shown)?;
    stderr().write_all(b"\n")?;
    text
}

#[cfg(not(unix))]
fn hidden(question: &str) -> io::Result<String> {
    line(question)
}
