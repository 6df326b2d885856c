//! Reads an answer that the user types at the terminal, until it is typed or no longer wanted.

use std::fs::File;
use std::io;

use tokio::task::{JoinHandle, spawn_blocking};

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
        File::open(TERMINAL).ok().map(AnswerSource)
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

/// Windows has no way to wait for the console and something else. After a question that was cancel_signal, the next
/// line that is typed is lost.
#[cfg(windows)]
fn read_line(source: &File, _: &io::PipeReader) -> io::Result<String> {
    use std::io::{BufRead, BufReader, Read};
    let mut line = String::new();
    BufReader::new(source.take(MAX_ANSWER as u64)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
