//! `turnwright login` and `turnwright logout`: store and remove an API key.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use crate::config::{Credentials, Flags, Paths};
use turnwright_types::io_fault::io_fault;

/// Asks for a key with echo off and stores it. Exits with 0 only if it was stored, because clients
/// rely on the status (R-AUTH-7).
pub(super) fn login(flags: &Flags, paths: &Paths) -> ExitCode {
    match ask_credentials(flags).and_then(|login| login.store(paths)) {
        Ok(()) => finish(&format!("Stored in {}.\n", Credentials::path(paths).display()), true),
        Err(error) => finish(&format!("Nothing was stored: {}\n", io_fault(&error)), false),
    }
}

pub(super) fn logout(paths: &Paths) -> ExitCode {
    match Credentials::remove(paths) {
        Ok(true) => finish("Removed the stored key.\n", true),
        Ok(false) => finish("There was no stored key.\n", true),
        Err(error) => finish(&format!("Could not remove the key: {}\n", io_fault(&error)), false),
    }
}

fn finish(text: &str, ok: bool) -> ExitCode {
    let written = stderr().write_all(text.as_bytes()).is_ok();
    if ok && written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ask_credentials(flags: &Flags) -> io::Result<Credentials> {
    let base_url = match &flags.base_url {
        Some(url) => url.clone(),
        None => ask_line("Base URL (empty for OpenAI): ")?,
    };
    let key = ask_hidden("API key (hidden; empty if the server needs none): ")?;
    let model = match &flags.model {
        Some(model) => model.clone(),
        None => ask_line("Model (empty for the default): ")?,
    };
    let non_empty = |text: String| Some(text.trim().to_owned()).filter(|it| !it.is_empty());
    let login =
        Credentials { key: non_empty(key), base_url: non_empty(base_url), model: non_empty(model) };
    if login.key.is_none() && login.base_url.is_none() {
        return Err(io::Error::other("enter a key or a base URL"));
    }
    Ok(login)
}

fn ask_line(question: &str) -> io::Result<String> {
    stderr().write_all(question.as_bytes())?;
    let mut text = String::new();
    if stdin().lock().read_line(&mut text)? == 0 {
        return Err(io::Error::other("the input ended"));
    }
    Ok(text)
}

/// Reads a line with the terminal's echo off.
#[cfg(unix)]
fn ask_hidden(question: &str) -> io::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

    let input = stdin();
    if !input.is_terminal() {
        return ask_line(question);
    }
    let original = tcgetattr(&input)?;
    let mut quiet = original.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &quiet)?;
    let text = ask_line(question);
    tcsetattr(&input, OptionalActions::Now, &original)?;
    stderr().write_all(b"\n")?;
    text
}

#[cfg(not(unix))]
fn ask_hidden(question: &str) -> io::Result<String> {
    ask_line(question)
}
