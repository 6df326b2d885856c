//! Takes stdin and stdout (fd 0 and 1) away from the rest of the process, and reads and parses
//! lines of input on a thread of its own. A client in the same process is served on two pipes in their place.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::long_line::read_line;
use super::message::{self, ParsedLine};

/// Maximum length of a line. ACP sets no limit, and images make many megabytes normal (R-TR-13). A
/// longer line is skipped and refused, so that memory stays bounded.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of lines that are parsed ahead of the dispatcher.
pub(super) const MAX_READ_AHEAD_LINES: usize = 32;

/// Maximum size of the lines that are parsed ahead. A longer line is taken only if no other line
/// waits.
pub(super) const MAX_READ_AHEAD_BYTES: usize = 16 * 1024 * 1024;

/// How often a reader that is blocked by these limits checks whether the client has hung up.
const HANGUP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Private copies of the process's standard streams.
#[derive(Debug)]
pub struct Stdio {
    pub input: File,
    pub output: File,
}

/// Takes fd 0 and 1 away from the rest of the process. The connection keeps private copies that
/// children do not inherit. Afterwards, reads of stdin return end of file, and anything printed to
/// stdout by mistake goes to stderr (R-TR-3).
#[cfg(unix)]
pub fn claim_stdio() -> io::Result<Stdio> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdin(empty_input()?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(Stdio { input: File::from(input), output: File::from(output) })
}

/// An input that is at its end. In an empty root there is no `/dev/null`.
#[cfg(unix)]
fn empty_input() -> io::Result<std::os::fd::OwnedFd> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(io::pipe()?.0.into()),
    }
}

/// Duplicates the standard handles. Windows has no `dup2`, so the originals stay in place.
#[cfg(windows)]
#[expect(clippy::disallowed_methods, reason = "this is where the connection takes stdout")]
pub fn claim_stdio() -> io::Result<Stdio> {
    use std::os::windows::io::AsHandle;
    let input = io::stdin().as_handle().try_clone_to_owned()?;
    let output = io::stdout().as_handle().try_clone_to_owned()?;
    Ok(Stdio { input: File::from(input), output: File::from(output) })
}

/// Sees the lines of a connection. It must not block.
pub type LineObserver = dyn Fn(LineDirection, &[u8]) + Send + Sync;

/// The direction of a line, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDirection {
    In,
    Out,
}

/// Parsed lines of input, in order, until the end of the input.
#[derive(Debug)]
pub struct LineReader {
    pub(super) lines: mpsc::Receiver<(ParsedLine, ReservedCapacity)>,
    pub(super) input_ended: CancellationToken,
}

/// The share of the read-ahead limit that a line takes up until this is dropped.
#[derive(Debug)]
pub(super) enum ReservedCapacity {
    /// Of the reader thread, which may wait for it.
    OfThread {
        thread: Thread,
        queued_bytes: Arc<AtomicUsize>,
        bytes: usize,
    },
    OfTask(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit),
}

impl Drop for ReservedCapacity {
    fn drop(&mut self) {
        if let ReservedCapacity::OfThread { thread, queued_bytes, bytes } = self {
            queued_bytes.fetch_sub(*bytes, Ordering::Release);
            thread.unpark();
        }
    }
}

impl LineReader {
    /// Starts the reader thread.
    pub fn start(input: File) -> io::Result<LineReader> {
        LineReader::start_observed(input, None)
    }

    /// Like [`LineReader::start`], with an observer that sees each line before it is parsed.
    pub fn start_observed(
        input: File,
        observer: Option<Arc<LineObserver>>,
    ) -> io::Result<LineReader> {
        let (sender, lines) = mpsc::channel(MAX_READ_AHEAD_LINES);
        let input_ended = CancellationToken::new();
        let ended = input_ended.clone();
        thread::Builder::new().name("stdin".into()).spawn(move || {
            let _ended_on_drop = ended.clone().drop_guard();
            make_blocking(&input);
            let queued_bytes = Arc::<AtomicUsize>::default();
            let mut lines = BufReader::with_capacity(64 * 1024, input);
            let mut buffer = Vec::new();
            while let Some(line) = next_line(&mut lines, &mut buffer) {
                if !matches!(line, ParsedLine::Ignored) {
                    if let Some(observer) = &observer {
                        observer(LineDirection::In, &buffer);
                    }
                    let bytes = buffer.len();
                    while sender.capacity() == 0 || !has_room(&queued_bytes, bytes) {
                        let begin = Instant::now();
                        thread::park_timeout(HANGUP_CHECK_INTERVAL);
                        let is_stalled = begin.elapsed() >= HANGUP_CHECK_INTERVAL;
                        if is_stalled && is_hung_up(lines.get_ref()) {
                            ended.cancel();
                        }
                    }
                    queued_bytes.fetch_add(bytes, Ordering::Relaxed);
                    let capacity = ReservedCapacity::OfThread {
                        thread: thread::current(),
                        queued_bytes: Arc::clone(&queued_bytes),
                        bytes,
                    };
                    if sender.blocking_send((line, capacity)).is_err() {
                        break;
                    }
                }
                buffer.clear();
                // Long lines are rare; their memory is not kept.
                buffer.shrink_to(64 * 1024);
            }
        })?;
        Ok(LineReader { lines, input_ended })
    }

    /// Returns the next line, or `None` at the end of the input. Cancel safe.
    pub async fn next(&mut self) -> Option<ParsedLine> {
        let (line, capacity) = self.lines.recv().await?;
        drop(capacity);
        Some(line)
    }

    /// Waits until the client has closed its end. Lines that were read before may still be queued.
    pub async fn ended(&self) {
        self.input_ended.cancelled().await;
    }
}

/// Returns true if one more line of this size may be queued.
fn has_room(queued_bytes: &AtomicUsize, bytes: usize) -> bool {
    let queued = queued_bytes.load(Ordering::Acquire);
    queued == 0 || queued + bytes <= MAX_READ_AHEAD_BYTES
}

/// True if the client has closed its end, even if there is still unread input.
#[cfg(unix)]
fn is_hung_up(input: &File) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(input, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// `PeekNamedPipe` fails only when nothing is left to read, so the state of the pipe is queried instead.
#[cfg(windows)]
#[expect(unsafe_code, reason = "a call of the system whose pointers live as long as the call")]
fn is_hung_up(input: &File) -> bool {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Wdk::Storage::FileSystem::{
        FILE_PIPE_CLOSING_STATE, FILE_PIPE_DISCONNECTED_STATE, FILE_PIPE_LOCAL_INFORMATION,
        FilePipeLocalInformation, NtQueryInformationFile,
    };
    use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
    let mut status = IO_STATUS_BLOCK::default();
    let mut pipe = FILE_PIPE_LOCAL_INFORMATION::default();
    let size = u32::try_from(size_of::<FILE_PIPE_LOCAL_INFORMATION>()).unwrap_or_default();
    // SAFETY: the handle is open, and `status` and `pipe` are what the call fills.
    let result = unsafe {
        NtQueryInformationFile(
            input.as_raw_handle(),
            &raw mut status,
            (&raw mut pipe).cast(),
            size,
            FilePipeLocalInformation,
        )
    };
    let closed = [FILE_PIPE_CLOSING_STATE, FILE_PIPE_DISCONNECTED_STATE];
    result == 0 && closed.contains(&pipe.NamedPipeState)
}

fn next_line(lines: &mut impl BufRead, buffer: &mut Vec<u8>) -> Option<ParsedLine> {
    match read_line(lines, buffer) {
        Ok(Some(long)) => Some(long.parsed()),
        Ok(None) if buffer.is_empty() => None,
        Ok(None) => Some(message::parse_line(buffer)),
        Err(error) => {
            tracing::debug!(%error, "cannot read stdin");
            None
        }
    }
}

/// Makes reads and writes of the standard streams wait; see [`make_blocking`].
#[cfg(unix)]
pub fn make_stdio_blocking() {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        make_blocking(stream);
    }
}

/// Makes reads and writes of a stream wait, for all processes that share it. Another program, such as one of Node.js or
/// Go, may have set it to return at once (`O_NONBLOCK`).
#[cfg(unix)]
pub(crate) fn make_blocking(stream: impl std::os::fd::AsFd) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    if let Ok(flags) = fcntl_getfl(&stream)
        && flags.contains(OFlags::NONBLOCK)
    {
        fcntl_setfl(&stream, flags.difference(OFlags::NONBLOCK)).ok();
    }
}

/// Handles of Windows always wait.
#[cfg(windows)]
pub(crate) fn make_blocking(_: &File) {}

/// Returns true if the program was started with SIGHUP ignored, as `nohup` does. It then keeps running when
/// its terminal is closed.
#[cfg(unix)]
pub fn is_hangup_ignored() -> bool {
    signal_action(libc::SIGHUP) == libc::SIG_IGN
}

/// Returns the action of a signal: `SIG_DFL`, `SIG_IGN` or the address of a handler. A handler may call it.
#[cfg(unix)]
#[expect(unsafe_code, reason = "a call of the system whose pointers live as long as the call")]
fn signal_action(signal: libc::c_int) -> libc::sighandler_t {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set, and `action` is what the call fills. Zeros, which stay if it fails, are an action, too.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

/// Lets SIGTERM and Ctrl-C end this process if it is the first one of a container, which they do not reach without a
/// handler. A later listener takes the place of this handler.
#[cfg(unix)]
#[expect(unsafe_code, reason = "sets a handler that only asks for an action and ends the process")]
pub fn end_first_process_by_signals() {
    extern "C" fn end(signal: libc::c_int) {
        // A listener also calls the handler that was there before it.
        if signal_action(signal) == end as *const () as libc::sighandler_t {
            // SAFETY: a handler may call it.
            unsafe { libc::_exit(128 + signal) }
        }
    }
    if std::process::id() == 1 {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the handler calls only what a handler may call.
            unsafe { libc::signal(signal, end as *const () as libc::sighandler_t) };
        }
    }
}

/// Waits for SIGTERM, SIGINT or SIGHUP, unless that is ignored (Ctrl-C on Windows).
#[cfg(unix)]
pub async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut kinds = vec![SignalKind::terminate(), SignalKind::interrupt()];
    if !is_hangup_ignored() {
        kinds.push(SignalKind::hangup());
    }
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let waits = signals.iter_mut().map(|stream| Box::pin(stream.recv()));
    if waits.len() == 0 {
        return std::future::pending().await;
    }
    futures_util::future::select_all(waits).await;
}

#[cfg(not(unix))]
pub async fn stop_signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The stack of the agent's thread, which is a main thread elsewhere.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// The thread of an agent, with our ends of its pipes.
#[derive(Debug)]
pub struct AgentThread {
    /// The end of its input.
    pub requests: File,
    /// The end of its output.
    pub messages: File,
    /// Ends the agent.
    pub stop: CancellationToken,
    /// The thread, with the result of serving.
    pub thread: JoinHandle<io::Result<()>>,
}

impl AgentThread {
    /// Starts the thread. `serve` gets our pipes as its standard streams, and the token that ends it.
    pub fn start(
        serve: impl FnOnce(Stdio, CancellationToken) -> io::Result<()> + Send + 'static,
    ) -> io::Result<AgentThread> {
        let (agent_input, requests) = io::pipe()?;
        let (messages, agent_output) = io::pipe()?;
        let stop = CancellationToken::new();
        let requested = stop.clone();
        let builder = thread::Builder::new().name("agent".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            let stdio = Stdio { input: pipe_file(agent_input), output: pipe_file(agent_output) };
            serve(stdio, requested)
        })?;
        Ok(AgentThread {
            requests: pipe_file(requests),
            messages: pipe_file(messages),
            stop,
            thread,
        })
    }
}

/// The end of a pipe, as a file.
#[cfg(unix)]
fn pipe_file(pipe: impl Into<std::os::fd::OwnedFd>) -> File {
    File::from(pipe.into())
}

/// The end of a pipe, as a file.
#[cfg(windows)]
fn pipe_file(pipe: impl Into<std::os::windows::io::OwnedHandle>) -> File {
    File::from(pipe.into())
}
