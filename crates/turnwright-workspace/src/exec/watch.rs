//! Somebody who outlives us: a small process that holds the other end of a pipe and a list of the
//! groups that run. When we are killed without a chance to clean up, the pipe ends, and it kills
//! what is on the list. The kernel's word (`PR_SET_PDEATHSIG`) reaches only the shell itself and
//! not what the shell has started.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::stray;

/// Reads `+ KEY GROUP` and `- KEY`; at the end of its input it kills the groups that are left. All of
/// that is built into the shell, so it starts nothing and needs no environment. Only what has left
/// its group is looked for with `grep`, where there is one: by the marks that are its arguments.
const SCRIPT: &str = r#"
list=' '
while read -r sign key group; do
    case $sign in
        +) list="$list$key:$group " ;;
        -) case $list in *" $key:"*) rest=${list#* $key:}; list="${list%% $key:*} ${rest#* }" ;; esac ;;
    esac
done
for entry in $list; do kill -s KILL -- "-${entry#*:}"; done 2>/dev/null
for round in 1 2 3; do
    {
        grep -lsF -- "$1" /proc/[0-9]*/environ
        grep -lsF -- "$2" /proc/[0-9]*/limits
    } | while IFS=/ read -r none proc process rest; do
        kill -s KILL "$process"
    done
done 2>/dev/null
"#;

static PIPE: OnceLock<Option<ChildStdin>> = OnceLock::new();

/// A place on the list. Dropping it frees the place: the group is gone, or never was, and its
/// number may soon be somebody else's.
#[derive(Debug)]
pub(super) struct Watched(u32);

impl Watched {
    pub(super) fn new() -> Watched {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        PIPE.get_or_init(start);
        Watched(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The key under which the group enlists.
    pub(super) fn key(&self) -> u32 {
        self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        write(format!("- {}\n", self.0).as_bytes());
    }
}

/// Puts the calling process on the list. Runs between fork and exec, so that there is no moment
/// in which a command runs unwatched: makes system calls and allocates nothing.
pub(super) fn enlist(key: u32) {
    let mut buffer = [0; 32];
    let mut rest = &mut buffer[..];
    if writeln!(rest, "+ {key} {}", std::process::id()).is_ok() {
        let left = rest.len();
        let end = buffer.len() - left;
        write(&buffer[..end]);
    }
}

/// A line this short goes into a pipe as a whole or not at all. Without anybody to read it the
/// commands are unwatched, and still run: in the child of a fork SIGPIPE has its default action
/// again, which would end the command before it has begun.
#[expect(unsafe_code, reason = "signal(2) is async-signal-safe")]
fn write(line: &[u8]) {
    unsafe extern "C" {
        fn signal(number: std::ffi::c_int, handler: usize) -> usize;
    }
    const IGNORE: usize = 1;
    const FAILED: usize = usize::MAX;
    let Some(Some(pipe)) = PIPE.get() else { return };
    let number = rustix::process::Signal::PIPE.as_raw();
    // SAFETY: one system call each; what was there before is put back.
    let before = unsafe { signal(number, IGNORE) };
    rustix::io::write(pipe, line).ok();
    if before != FAILED {
        unsafe { signal(number, before) };
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
#[expect(unsafe_code, reason = "pre_exec: the closure makes one system call")]
fn start() -> Option<ChildStdin> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(SCRIPT).arg("sh").args([stray::common(), stray::common_limit()]);
    command.env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: runs between fork and exec; setsid is async-signal-safe. It has a session of its
    // own, so that what ends ours does not end it.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    match command.spawn() {
        Ok(mut child) => {
            let pipe = child.stdin.take()?;
            // A watcher that is stopped must not stop us.
            rustix::io::ioctl_fionbio(&pipe, true).ok();
            Some(pipe)
        }
        Err(error) => {
            tracing::warn!(%error, "nobody watches over the commands");
            None
        }
    }
}
