//! The only owner of fd 0 and fd 1: takes them away from the rest of the process and reads
//! lines on a thread of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::frame::{self, Line, RequestId, RpcError};

/// The longest line that is read. ACP sets no limit and images make many megabytes normal
/// (R-TR-13); one that is longer is skipped and refused, so that memory stays bounded.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;

/// Lines that are parsed ahead of the dispatcher.
const AHEAD: usize = 32;

/// How often a reader that has to wait looks whether the client is still there.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Bytes of lines that are parsed ahead. One line may have more, but then it is alone.
const AHEAD_BYTES: usize = 16 * 1024 * 1024;

/// The process's standard streams, ours alone.
#[derive(Debug)]
pub struct Stdio {
    /// What the client sends.
    pub input: File,
    /// What the client reads.
    pub output: File,
}

/// Takes fd 0 and 1 away from the rest of the process. The connection keeps private copies that
/// children do not inherit; whatever reads stdin gets end of file, and whatever prints to
/// stdout by mistake lands on stderr (R-TR-3).
///
/// # Errors
/// When the streams are closed or cannot be duplicated.
#[cfg(unix)]
pub fn claim() -> io::Result<Stdio> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(Stdio { input: File::from(input), output: File::from(output) })
}

/// Duplicates the standard handles; without `dup2` nothing can be taken away here.
///
/// # Errors
/// When the streams are closed.
#[cfg(windows)]
pub fn claim() -> io::Result<Stdio> {
    use std::os::windows::io::AsHandle;
    let input = io::stdin().as_handle().try_clone_to_owned()?;
    let output = io::stdout().as_handle().try_clone_to_owned()?;
    Ok(Stdio { input: File::from(input), output: File::from(output) })
}

/// Lines as they come in, until the end of the input.
#[derive(Debug)]
pub struct Input {
    lines: mpsc::Receiver<(Line, usize)>,
    ahead: Arc<Ahead>,
    ended: CancellationToken,
}

impl Input {
    /// Starts the reader thread.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(input: File) -> io::Result<Input> {
        let (sender, lines) = mpsc::channel(AHEAD);
        let ahead = Arc::<Ahead>::default();
        let behind = Arc::clone(&ahead);
        let ended = CancellationToken::new();
        let (end, hung_up) = (ended.clone(), ended.clone());
        std::thread::Builder::new().name("stdin".into()).spawn(move || {
            let _end = end.drop_guard();
            let mut lines = BufReader::with_capacity(64 * 1024, input);
            let mut buffer = Vec::new();
            while let Some(line) = next_line(&mut lines, &mut buffer) {
                if !matches!(line, Line::Ignored) {
                    behind.add(buffer.len(), || {
                        if is_hung_up(lines.get_ref()) {
                            hung_up.cancel();
                        }
                    });
                    if sender.blocking_send((line, buffer.len())).is_err() {
                        break;
                    }
                }
                buffer.clear();
                // A long line is rare; its memory is not kept for the short ones.
                buffer.shrink_to(64 * 1024);
            }
        })?;
        Ok(Input { lines, ahead, ended })
    }

    /// The next line, or `None` at the end. Safe to cancel.
    pub async fn next(&mut self) -> Option<Line> {
        let (line, bytes) = self.lines.recv().await?;
        self.ahead.take(bytes);
        Some(line)
    }

    /// Waits until there is nothing left to read, though lines may still be waiting.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// How much waits for the dispatcher.
#[derive(Debug, Default)]
struct Ahead {
    // A std mutex: an addition long. Only the reader thread ever waits.
    waiting: Mutex<Waiting>,
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: usize,
    bytes: usize,
}

impl Ahead {
    /// Waits until there is room, and takes it; looks around now and then meanwhile. The process
    /// ends without this thread.
    fn add(&self, bytes: usize, look: impl Fn()) {
        let is_full =
            |it: &Waiting| it.lines >= AHEAD || (it.lines > 0 && it.bytes + bytes > AHEAD_BYTES);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while is_full(&waiting) {
            let waited = self.taken.wait_timeout(waiting, LOOK_AROUND);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting = guard;
            if timeout.timed_out() {
                look();
            }
        }
        waiting.lines += 1;
        waiting.bytes += bytes;
    }

    fn take(&self, bytes: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.lines -= 1;
        waiting.bytes -= bytes;
        self.taken.notify_one();
    }
}

/// Whether the client has closed its end, though there may be more to read before that.
#[cfg(unix)]
fn is_hung_up(input: &File) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(input, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(not(unix))]
fn is_hung_up(_: &File) -> bool {
    false
}

fn next_line(lines: &mut impl BufRead, buffer: &mut Vec<u8>) -> Option<Line> {
    match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', buffer) {
        Ok(0) => None,
        Ok(_) if buffer.last() != Some(&b'\n') && buffer.len() as u64 == LONGEST_LINE => {
            lines.skip_until(b'\n').ok()?;
            let error = RpcError::invalid_request("a line may have at most 64 MiB");
            Some(Line::Refused { id: RequestId::null(), error })
        }
        Ok(_) => Some(frame::parse(buffer)),
        Err(error) => {
            tracing::debug!(%error, "stdin cannot be read");
            None
        }
    }
}

/// Waits until the process is told to stop.
#[cfg(unix)]
pub async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut signals: Vec<_> = signals.into_iter().filter_map(|it| signal(it).ok()).collect();
    let waits = signals.iter_mut().map(|it| Box::pin(it.recv()));
    if waits.len() == 0 {
        return std::future::pending().await;
    }
    futures_util::future::select_all(waits).await;
}

#[cfg(not(unix))]
pub async fn stop_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
