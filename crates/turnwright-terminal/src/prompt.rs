//! Questions of commands on the terminal, or their answers from a pipe. Keys are read with echo off.

#[cfg(unix)]
use std::io::Read;
use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

#[cfg(unix)]
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
#[cfg(unix)]
use tokio::task::spawn_blocking;

use crate::CliResult;
#[cfg(unix)]
use crate::block_on;
use turnwright_types::look_alike::narrow;

/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// Returns true if somebody can answer questions.
pub fn is_terminal() -> bool {
    stdin().is_terminal()
}

/// Writes a text to stderr.
pub fn say(text: &str) -> io::Result<()> {
    stderr().write_all(text.as_bytes())
}

/// Writes the last text of the command, or why it was `not_done`, and returns its status.
pub(crate) fn finish(done: CliResult<String>, not_done: &str) -> ExitCode {
    let is_done = done.is_ok();
    let text = done.unwrap_or_else(|error| format!("{not_done}: {error}\n"));
    if say(&text).is_ok() && is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Asks a question and reads a line.
pub(crate) fn ask(question: &str) -> io::Result<String> {
    say(question)?;
    read_line()
}

/// Asks for a yes. Everything else is a no, and so is the end of the input.
pub fn is_confirmed(question: &str) -> io::Result<bool> {
    say(question)?;
    Ok(read_line().is_ok_and(|answer| is_yes(&answer)))
}

/// Asks for confirmation. Accepts an answer only from a terminal: piped input is not a decision.
pub fn confirm(question: &str, advice_for_pipe: &str) -> io::Result<bool> {
    if !is_terminal() {
        return Err(io::Error::other(format!("stdin is not a terminal; {advice_for_pipe}")));
    }
    is_confirmed(question)
}

pub(crate) fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&plain_answer(answer).as_str())
}

/// Returns an answer in small and narrow letters: where an input method is on, those and digits are wide.
pub(crate) fn plain_answer(answer: &str) -> String {
    narrow(answer.trim()).to_lowercase()
}

/// Reads a line, without the white space around it.
pub(crate) fn read_line() -> io::Result<String> {
    next_line(stdin().lock())
}

fn next_line(input: impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    match input.take(MAX_ANSWER).read_line(&mut text)? as u64 {
        0 => Err(io::Error::other("the input ended")),
        // The rest must not become the next answer.
        MAX_ANSWER if !text.ends_with('\n') => Err(io::Error::other("a line is too long")),
        // As in `hidden_line`. The end of a key that was pasted with its line end comes here, too.
        _ => Ok(text.replace("\x1b[200~", "").replace("\x1b[201~", "").trim().to_owned()),
    }
}

/// Asks for a key and reads it with the terminal's echo off.
#[cfg(unix)]
pub(crate) fn ask_hidden(question: &str) -> io::Result<String> {
    if !is_terminal() {
        return ask(question);
    }
    let answer = block_on(ask_unless_ended(question))?;
    say("\n")?;
    answer
}

#[cfg(not(unix))]
#[expect(unsafe_code, reason = "calls of the system that take a handle which is open")]
pub(crate) fn ask_hidden(question: &str) -> io::Result<String> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::System::Console::{ENABLE_ECHO_INPUT, GetConsoleMode, SetConsoleMode};
    let console = stdin().as_raw_handle();
    let mut mode = 0;
    // SAFETY: stdin stays open, `mode` is what the call fills, and anything but a console is refused.
    if unsafe { GetConsoleMode(console, &raw mut mode) } == 0 {
        return ask(question);
    }
    // SAFETY: the same.
    unsafe { SetConsoleMode(console, mode & !ENABLE_ECHO_INPUT) };
    let answer = ask(question);
    // SAFETY: the same.
    unsafe { SetConsoleMode(console, mode) };
    say("\n")?;
    answer
}

/// The modes of the terminal before something changes them. Dropping it restores them.
#[cfg(unix)]
pub(crate) struct TerminalMode(Termios);

#[cfg(unix)]
impl TerminalMode {
    pub(crate) fn save() -> io::Result<TerminalMode> {
        Ok(TerminalMode(tcgetattr(stdin())?))
    }

    /// From now on the terminal neither echoes what is typed nor turns control characters into signals: a
    /// signal would end the process with the echo off.
    fn hide_input(&self) -> io::Result<()> {
        let mut hidden = self.0.clone();
        hidden
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN);
        hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
        hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
        Ok(tcsetattr(stdin(), OptionalActions::Flush, &hidden)?)
    }
}

#[cfg(unix)]
impl Drop for TerminalMode {
    fn drop(&mut self) {
        if !is_in_background() {
            tcsetattr(stdin(), OptionalActions::Now, &self.0).ok();
        }
    }
}

/// Returns true if the terminal belongs to another job of the shell. The system stops a background job that
/// changes the modes of its terminal.
#[cfg(unix)]
fn is_in_background() -> bool {
    rustix::termios::tcgetpgrp(stdin()).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// Asks, and reads what is typed, unless a signal ends the program.
#[cfg(unix)]
async fn ask_unless_ended(question: &str) -> io::Result<String> {
    use tokio::signal::unix::{SignalKind, signal};
    // Before the echo is off, because a signal that is not handled would leave it off.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // Before the question: what is typed in between would be shown.
    let mode = TerminalMode::save()?;
    mode.hide_input()?;
    say(question)?;
    let why = tokio::select! {
        typed = spawn_blocking(|| hidden_line(stdin().lock().take(MAX_ANSWER).bytes())) => {
            return typed.map_err(io::Error::other)?;
        }
        _ = terminate.recv() => "it was ended by a signal",
        _ = hangup.recv() => "the terminal was closed",
    };
    // The shell must not get what has been typed of the key.
    rustix::termios::tcflush(stdin(), rustix::termios::QueueSelector::IFlush).ok();
    Err(io::Error::other(why))
}

/// Reads what is typed up to the end of the line, with the usual keys for corrections.
#[cfg(unix)]
fn hidden_line(bytes: impl Iterator<Item = io::Result<u8>>) -> io::Result<String> {
    let ended = || io::Error::other("the input ended");
    let mut line = Vec::new();
    for byte in bytes {
        match byte? {
            // Ctrl-C.
            0x03 => return Err(io::Error::other("it was interrupted")),
            // Ctrl-D ends the input if nothing has been typed.
            0x04 if line.is_empty() => return Err(ended()),
            b'\r' | b'\n' | 0x04 => {
                let text =
                    String::from_utf8(line).map_err(|_| io::Error::other("it is not UTF-8"))?;
                // A terminal that another program has left in that mode puts these, each behind an ESC, around a paste.
                let key = text.trim().trim_start_matches("[200~").trim_end_matches("[201~");
                return Ok(key.trim().to_owned());
            }
            // Backspace, as either of its codes.
            0x08 | 0x7f => drop(line.pop()),
            // Ctrl-U.
            0x15 => line.clear(),
            byte if byte.is_ascii_control() => {}
            byte => line.push(byte),
        }
    }
    Err(ended())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_line_that_is_too_long_is_not_the_next_answer() {
        let line = |length: usize| next_line(format!("{}\nnext", "x".repeat(length)).as_bytes());
        assert_eq!(line(65_535).unwrap().len(), 65_535);
        assert_eq!(line(65_536).unwrap_err().to_string(), "a line is too long");
        assert_eq!(next_line(&b" last"[..]).unwrap(), "last");
        assert_eq!(next_line(&b"\x1b[201~\x1b[200~2\x1b[201~\n"[..]).unwrap(), "2");
        assert_eq!(next_line(&b""[..]).unwrap_err().to_string(), "the input ended");
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, expected) in
            [("y", true), (" YES\n", true), ("ｙ", true), ("", false), ("no", false), ("ｎ", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_hidden_line_can_be_corrected_and_interrupted() {
        for (bytes, expected) in [
            (&b"sk-1\n"[..], Ok("sk-1")),
            (b" sk-1 \r", Ok("sk-1")),
            (b"skk\x7f-2\x08\x081\n", Ok("sk1")),
            (b"wrong\x15sk-1\n", Ok("sk-1")),
            (b"\x7f\x1a\n", Ok("")),
            (b"sk-1\x04", Ok("sk-1")),
            (b"\x1b[200~sk-1\x1b[201~\r", Ok("sk-1")),
            (b"\x1b[200~sk-1\n\x1b[201~\r", Ok("sk-1")),
            (b"\x04", Err("the input ended")),
            (b"sk\x03", Err("it was interrupted")),
            (b"\xff\n", Err("it is not UTF-8")),
        ] {
            let line = hidden_line(bytes.bytes()).map_err(|error| error.to_string());
            assert_eq!(line, expected.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
