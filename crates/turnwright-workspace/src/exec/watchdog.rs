//! A small process that outlives the agent. It holds the other end of a pipe and a list of the
//! running groups; when the agent is killed without a chance to clean up, the pipe ends and the
//! watchdog kills the groups on its list. `PR_SET_PDEATHSIG` alone reaches only the shell itself
//! and not what the shell has started.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use super::{command_process, signal_action};

/// Reads `+ KEY GROUP` and `- KEY`, and kills the remaining groups at the end of its input. All of
/// this is built into the shell, so it starts nothing and needs no environment. Only processes that
/// have left their group are searched with `grep`, if there is one, by the marks that are passed as
/// arguments.
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

/// An entry on the watchdog's list. Dropping it removes the entry: the group has ended or was never
/// started, and its id may be reused.
#[derive(Debug)]
pub(super) struct WatchdogEntry(pub(super) u32);

impl WatchdogEntry {
    pub(super) fn new() -> WatchdogEntry {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        PIPE.get_or_init(start_watchdog);
        WatchdogEntry(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for WatchdogEntry {
    fn drop(&mut self) {
        write_line(format!("- {}\n", self.0).as_bytes());
    }
}

/// Adds the calling process to the list. Runs between fork and exec, so that no command runs
/// unwatched even for a moment; therefore it only makes system calls and allocates nothing.
pub(super) fn register(key: u32) {
    let mut buffer = [0; 32];
    let mut rest = &mut buffer[..];
    if writeln!(rest, "+ {key} {}", std::process::id()).is_ok() {
        let left = rest.len();
        let end = buffer.len() - left;
        write_line(&buffer[..end]);
    }
}

/// Writes a line to the watchdog's pipe. A line this short is written completely or not at all.
/// Without a watchdog commands run unwatched: SIGPIPE is ignored here, because in a forked child it
/// has its default action again, which would end the command before it has begun.
fn write_line(line: &[u8]) {
    let Some(Some(pipe)) = PIPE.get() else { return };
    let before = signal_action::ignore(Signal::PIPE);
    rustix::io::write(pipe, line).ok();
    signal_action::restore(Signal::PIPE, before);
}

#[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
#[expect(unsafe_code, reason = "pre_exec: the closure makes one system call")]
fn start_watchdog() -> Option<ChildStdin> {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(SCRIPT)
        .arg("sh")
        .args([command_process::environment_pattern(), command_process::limit_pattern()]);
    command.env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure runs between fork and exec, and setsid is async-signal-safe. The watchdog
    // has a session of its own, so that what ends the agent's session does not end it.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    match command.spawn() {
        Ok(mut child) => {
            let pipe = child.stdin.take()?;
            // A watchdog that is stopped must not block the agent.
            rustix::io::ioctl_fionbio(&pipe, true).ok();
            Some(pipe)
        }
        Err(error) => {
            tracing::warn!(%error, "the watchdog could not be started; commands run unwatched");
            None
        }
    }
}
