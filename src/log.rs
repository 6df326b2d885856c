//! Logging: to stderr if requested, otherwise warnings to a file in the state folder, which is
//! created by the first line. Some editors show every line of stderr as an error, so nothing is
//! written there by default.

use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use turnwright_types::private_file;
use turnwright_types::redact;

/// A log file that is larger than this is rotated before the next line.
const MAX_LOG_SIZE: u64 = 1024 * 1024;

/// The target of the OAuth client, which logs server responses, tokens included, below `info`.
const OAUTH_TARGET: &str = "rmcp::transport::auth";

/// Starts logging: to stderr with a filter such as `debug` or `turnwright_llm=trace`, else to a file
/// in the state folder.
pub(crate) fn init(filter: Option<&str>, state_folder: PathBuf) {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false);
    let result = match filter {
        Some(filter) => {
            // A malformed filter must not hide everything.
            let filter: Targets =
                filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
            let filter = filter.with_target(OAUTH_TARGET, LevelFilter::INFO);
            let stderr = BackgroundStderr::start();
            let layer = layer.with_writer(move || stderr.clone()).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init()
        }
        None => {
            let file = LazyLogFile { folder: state_folder, file: Arc::default() };
            let filter = Targets::new().with_target("turnwright", LevelFilter::WARN);
            let layer = layer.with_writer(move || file.clone()).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init()
        }
    };
    // Fails only in a test that initialises logging twice in one process.
    drop(result);
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!(place, "panic: {text}");
    }));
}

/// The most lines that may wait to be written to stderr.
const MAX_PENDING_LINES: usize = 1024;

/// The number of lines that have not been written to stderr yet.
static PENDING_LINES: AtomicUsize = AtomicUsize::new(0);

/// Waits until all lines are written, but at most for `timeout`. To be called before the process
/// exits.
pub(crate) fn flush(timeout: Duration) {
    let end = Instant::now() + timeout;
    while PENDING_LINES.load(Ordering::Acquire) > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Writes to stderr from a thread of its own: a client that never reads stderr must not block the
/// agent (R-TR-4). When the queue is full, lines are dropped.
#[derive(Clone)]
struct BackgroundStderr(SyncSender<Vec<u8>>);

impl BackgroundStderr {
    fn start() -> BackgroundStderr {
        let (sender, lines) = sync_channel::<Vec<u8>>(MAX_PENDING_LINES);
        // Without the thread there is no log, but the agent still works.
        let thread = thread::Builder::new().name("log".into()).stack_size(64 * 1024);
        let started = thread.spawn(move || {
            for line in lines {
                // There is nowhere left to report a failure.
                io::stderr().write_all(&line).ok();
                PENDING_LINES.fetch_sub(1, Ordering::Release);
            }
        });
        started.ok();
        BackgroundStderr(sender)
    }
}

impl Write for BackgroundStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        PENDING_LINES.fetch_add(1, Ordering::Acquire);
        let line = redact::bytes(bytes).unwrap_or_else(|| bytes.to_vec());
        if self.0.try_send(line).is_err() {
            PENDING_LINES.fetch_sub(1, Ordering::Release);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log file that the first line creates.
#[derive(Clone)]
struct LazyLogFile {
    folder: PathBuf,
    file: Arc<Mutex<Option<File>>>,
}

impl LazyLogFile {
    fn open(&self) -> io::Result<File> {
        let mut options = private_file::options();
        options.create(true).append(true);
        #[cfg(unix)]
        {
            // The path may be a pipe that nobody reads, which must not block either.
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
        }
        private_file::create_folder(&self.folder)?;
        let path = self.folder.join("turnwright.log");
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > MAX_LOG_SIZE) {
            // A log that grows is better than none.
            fs::rename(&path, self.folder.join("turnwright.log.old")).ok();
        }
        options.open(path)
    }
}

impl Write for LazyLogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.file.lock();
        let found = file.as_ref().and_then(|open| open.metadata().ok());
        if found.is_none_or(|found| found.len() > MAX_LOG_SIZE) {
            *file = self.open().ok();
        }
        // The agent works without a log.
        if let Some(file) = file.as_mut() {
            file.write_all(redact::bytes(bytes).as_deref().unwrap_or(bytes))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_small_however_long_the_program_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LazyLogFile { folder: folder.path().to_path_buf(), file: Arc::default() };
        let line = vec![b'x'; 1024 * 1024 + 1];
        for _ in 0..3 {
            log.write_all(&line).unwrap();
        }
        for name in ["turnwright.log", "turnwright.log.old"] {
            let found = fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!(found.len(), line.len() as u64, "{name}");
        }
    }
}
