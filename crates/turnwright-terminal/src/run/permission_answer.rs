//! Answers to the agent's questions: by the flags, or by what the user types at the terminal, until it is typed or no
//! longer wanted.

use std::fs::File;
use std::io;

use serde_json::Value;
use tokio::task::{JoinHandle, spawn_blocking};

use super::agent_link::{list, string};
use crate::prompt::{is_yes, plain_answer};
use turnwright_types::client::IS_BOUNDED;

/// Who answers questions.
#[derive(Debug)]
pub(super) struct AnswerPolicy {
    /// `--yes`: what the mode `auto` would not have asked is allowed once.
    pub(super) allows_bounded: bool,
    /// The terminal on which the user is asked; `None` if nobody is.
    pub(super) asks_on: Option<AnswerSource>,
    /// `--no-input`.
    pub(super) is_silenced: bool,
}

/// The treatment of a question. An option is named by its id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerRule {
    AllowOnce(String),
    Reject(String),
    Ask,
}

impl AnswerPolicy {
    /// The rule for a `session/request_permission`. `--yes` never answers what leaves the sandbox or the
    /// project, is dangerous, or is asked because of a rule: the agent says which questions are not so.
    pub(super) fn rule(&self, params: &Value) -> AnswerRule {
        let options = list(&params["options"]);
        let is_bounded = params["_meta"][IS_BOUNDED] == true;
        match option(options, "allow_once") {
            Some((id, _)) if self.allows_bounded && is_bounded => AnswerRule::AllowOnce(id),
            _ if self.asks_on.is_some() => AnswerRule::Ask,
            _ => AnswerRule::Reject(option(options, "reject_once").unwrap_or_default().0),
        }
    }

    /// Says why nobody was asked.
    pub(super) fn why_rejected(&self) -> &'static str {
        match (self.is_silenced, self.allows_bounded) {
            (true, false) => "Refused, because --no-input asks nobody.",
            (true, true) => "Refused: --yes does not cover it, and --no-input asks nobody.",
            (false, false) => "Refused, because there is no terminal to ask on.",
            (false, true) => {
                "Refused: --yes does not cover it, and there is no terminal to ask on."
            }
        }
    }
}

/// The option that an answer chooses, by its number or by yes or no. Anything that is not clearly one of
/// them rejects.
pub(super) fn chosen(answer: &str, options: &[Value]) -> Option<(String, String)> {
    let answer = plain_answer(answer);
    let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    if let Some(found) = number.and_then(|index| options.get(index)) {
        return Some((string(&found["optionId"]), string(&found["name"])));
    }
    option(options, if is_yes(&answer) { "allow_once" } else { "reject_once" })
}

/// True if an answer is neither a number nor yes or no, but words to the model.
pub(super) fn is_words(answer: &str) -> bool {
    let answer = plain_answer(answer);
    let is_number = answer.trim_start_matches('-').parse::<usize>().is_ok();
    !is_number && !["", "y", "yes", "n", "no"].contains(&answer.as_str())
}

/// The id and the name of the option of this kind.
fn option(options: &[Value], kind: &str) -> Option<(String, String)> {
    let found = options.iter().find(|option| option["kind"] == kind)?;
    Some((string(&found["optionId"]), string(&found["name"])))
}

/// The terminal of the process, also if stdin is a pipe.
#[cfg(unix)]
const TERMINAL: &str = "/dev/tty";
#[cfg(windows)]
const TERMINAL: &str = "CONIN$";

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 4096;

/// The most bytes that are kept of what was typed before a question.
#[cfg(unix)]
const MAX_TYPED: usize = 1024 * 1024;

/// The terminal that answers are read from.
#[derive(Debug)]
pub(super) struct AnswerSource(File);

impl AnswerSource {
    /// Opens the terminal: stdin if it is one. `None` if there is no terminal.
    pub(super) fn open(stdin_is_terminal: bool) -> Option<AnswerSource> {
        if stdin_is_terminal && let Ok(input) = duplicate_stdin() {
            return Some(AnswerSource(input));
        }
        // Windows discards earlier input only through a handle that may write.
        let terminal = File::options().read(true).write(cfg!(windows)).open(TERMINAL);
        terminal.ok().map(AnswerSource)
    }

    /// Takes what was typed before the question was shown, because it cannot be an answer to it. The last
    /// line may not be finished.
    #[cfg(unix)]
    pub(super) fn take_typed(&self) -> String {
        use rustix::termios::{
            LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr,
        };
        let Ok(modes) = tcgetattr(&self.0) else { return String::new() };
        let mut unbuffered = modes.clone();
        // By lines, one that is not finished could not be read.
        unbuffered.local_modes.remove(LocalModes::ICANON);
        unbuffered.special_codes[SpecialCodeIndex::VMIN] = 0;
        unbuffered.special_codes[SpecialCodeIndex::VTIME] = 0;
        let mut typed = Vec::new();
        let mut bytes = [0; 1024];
        if tcsetattr(&self.0, OptionalActions::Now, &unbuffered).is_ok() {
            while typed.len() < MAX_TYPED
                && let Ok(count @ 1..) = rustix::io::read(&self.0, &mut bytes)
            {
                typed.extend_from_slice(&bytes[..count]);
            }
        }
        tcsetattr(&self.0, OptionalActions::Now, &modes).ok();
        let mut text = String::from_utf8_lossy(&typed).into_owned();
        text.retain(|char| !char.is_control() || char == '\n');
        text
    }

    /// On a console of Windows it is discarded.
    #[cfg(windows)]
    #[expect(unsafe_code, reason = "a call of the system that takes a handle which is open")]
    pub(super) fn take_typed(&self) -> String {
        use std::os::windows::io::AsRawHandle;
        use windows_sys::Win32::System::Console::FlushConsoleInputBuffer;
        // SAFETY: the handle is open; that of anything but a console is refused.
        unsafe { FlushConsoleInputBuffer(self.0.as_raw_handle()) };
        String::new()
    }

    /// Starts to read a line. Dropping the returned pipe ends the reading.
    pub(super) fn read_line(&self) -> io::Result<(JoinHandle<io::Result<String>>, io::PipeWriter)> {
        let (cancel_signal, guard) = io::pipe()?;
        let source = self.0.try_clone()?;
        let reading = spawn_blocking(move || read_line(&source, &cancel_signal));
        Ok((reading, guard))
    }
}

#[cfg(unix)]
fn duplicate_stdin() -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?))
}

#[cfg(windows)]
fn duplicate_stdin() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Reads a line, or nothing if the answer is no longer wanted or the input ends.
#[cfg(unix)]
fn read_line(source: &File, cancel_signal: &io::PipeReader) -> io::Result<String> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < MAX_ANSWER {
        let mut fds =
            [PollFd::new(source, PollFlags::IN), PollFd::new(cancel_signal, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !fds[1].revents().is_empty() {
            return Ok(String::new());
        }
        let mut bytes = [0; 256];
        match rustix::io::read(source, &mut bytes) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&bytes[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

/// Windows has no way to wait for the console and something else. After a question that was cancelled, the next line
/// that is typed is lost.
#[cfg(windows)]
fn read_line(source: &File, _: &io::PipeReader) -> io::Result<String> {
    use std::io::{BufRead, BufReader, Read};
    let mut line = Vec::new();
    BufReader::new(source.take(MAX_ANSWER as u64)).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(is_bounded: bool) -> Value {
        let option = |kind: &str| json!({ "optionId": kind, "kind": kind, "name": kind });
        let options = ["allow_once", "allow_always", "reject_once", "reject_always"].map(option);
        let meta = if is_bounded { json!({ IS_BOUNDED: true }) } else { Value::Null };
        json!({ "options": options, "_meta": meta })
    }

    #[test]
    fn yes_answers_only_what_is_bounded_and_nobody_is_asked_without_a_terminal() {
        let policy =
            |allows_bounded| AnswerPolicy { allows_bounded, asks_on: None, is_silenced: false };
        let allowed = AnswerRule::AllowOnce("allow_once".to_owned());
        let rejected = || AnswerRule::Reject("reject_once".to_owned());
        assert_eq!(policy(true).rule(&question(true)), allowed);
        assert_eq!(policy(true).rule(&question(false)), rejected());
        assert_eq!(policy(false).rule(&question(true)), rejected());
        assert_eq!(policy(false).rule(&question(false)), rejected());
    }

    #[test]
    fn only_a_clear_answer_allows() {
        let question = question(false);
        for (answer, expected) in [
            ("1", "allow_once"),
            ("2", "allow_always"),
            ("3", "reject_once"),
            ("4", "reject_always"),
            ("y", "allow_once"),
            ("YES", "allow_once"),
            ("ｙ", "allow_once"),
            ("２", "allow_always"),
            ("n", "reject_once"),
            ("", "reject_once"),
            ("0", "reject_once"),
            ("5", "reject_once"),
            ("-1", "reject_once"),
            ("yess", "reject_once"),
            // On French keyboards this is the key beside `1`.
            ("²", "reject_once"),
        ] {
            let (id, _) = chosen(answer, list(&question["options"])).unwrap();
            assert_eq!(id, expected, "{answer:?}");
            assert_eq!(is_words(answer), ["yess", "²"].contains(&answer), "{answer:?}");
        }
    }
}
