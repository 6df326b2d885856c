//! The log: to stderr when it was asked for, else warnings to a file in the state folder that
//! is opened when there is something to write. Some editors show every line of stderr as an
//! error, so silence is the rule.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use turnwright_types::redact;

/// A log that is larger at the start is put aside.
const LARGEST_LOG: u64 = 1024 * 1024;

/// What speaks OAuth for us would log what it is answered, with tokens among it.
const LOGINS: &str = "rmcp::transport::auth";

/// Starts logging. `wanted` is a filter such as `debug` or `turnwright::llm=trace`.
pub fn start(wanted: Option<&str>, state: PathBuf) {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false);
    let result = match wanted {
        Some(filter) => {
            // A filter nobody understands should still show what is going on.
            let filter: Targets =
                filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
            let filter = filter.with_target(LOGINS, LevelFilter::INFO);
            let layer = layer.with_writer(Stderr::start()).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init()
        }
        None => {
            let file = LazyFile { folder: state, file: Arc::default() };
            let filter = Targets::new().with_target("turnwright", LevelFilter::WARN);
            let layer = layer.with_writer(file).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init()
        }
    };
    // Only a test that starts twice in one process fails here.
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

/// Lines that may wait for somebody to read stderr.
const BACKLOG: usize = 1024;

/// Lines that have not been written to stderr yet.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Waits until the log is written, but not longer than this. To be called before the end.
pub fn flush(limit: Duration) {
    let end = Instant::now() + limit;
    while WAITING.load(Ordering::Acquire) > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stderr by way of a thread: a client that never reads it must not stop the work (R-TR-4).
/// Lines that find no place are lost.
#[derive(Clone)]
struct Stderr(SyncSender<Vec<u8>>);

impl Stderr {
    fn start() -> Stderr {
        let (sender, lines) = sync_channel::<Vec<u8>>(BACKLOG);
        let write = move || {
            for line in lines {
                // Nobody can be told when this fails.
                io::stderr().write_all(&line).ok();
                WAITING.fetch_sub(1, Ordering::Release);
            }
        };
        // Without a thread there is no log, which is better than no agent.
        thread::Builder::new().name("log".into()).stack_size(64 * 1024).spawn(write).ok();
        Stderr(sender)
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WAITING.fetch_add(1, Ordering::Acquire);
        let line = redact::bytes(bytes).unwrap_or_else(|| bytes.to_vec());
        if self.0.try_send(line).is_err() {
            WAITING.fetch_sub(1, Ordering::Release);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Stderr;

    fn make_writer(&'a self) -> Stderr {
        self.clone()
    }
}

/// A file that is opened by the first line.
#[derive(Clone)]
struct LazyFile {
    folder: PathBuf,
    file: Arc<Mutex<Option<File>>>,
}

impl LazyFile {
    fn open(&self) -> io::Result<File> {
        let (mut folders, mut options) = (fs::DirBuilder::new(), OpenOptions::new());
        folders.recursive(true);
        options.create(true).append(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
            folders.mode(0o700);
            // A pipe that nobody reads must not hold up the work either.
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            options.mode(0o600).custom_flags(flags);
        }
        folders.create(&self.folder)?;
        let path = self.folder.join("turnwright.log");
        if fs::metadata(&path).is_ok_and(|it| it.len() > LARGEST_LOG) {
            fs::rename(&path, self.folder.join("turnwright.log.old"))?;
        }
        options.open(path)
    }
}

impl Write for LazyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = self.open().ok();
        }
        // A log that cannot be written must not disturb the work.
        if let Some(file) = file.as_mut() {
            file.write_all(redact::bytes(bytes).as_deref().unwrap_or(bytes))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LazyFile {
    type Writer = LazyFile;

    fn make_writer(&'a self) -> LazyFile {
        self.clone()
    }
}
