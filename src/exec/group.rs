//! One command and all that it starts, as a group that can be ended.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::stray::Mark;
#[cfg(unix)]
use super::watch::{self, Watched};
use super::{Output, Spec};

/// A running group. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
    #[cfg(unix)]
    pipe: Option<tokio::net::unix::pipe::Receiver>,
    #[cfg(windows)]
    pipe: Option<tokio::process::ChildStdout>,
    buffer: Box<[u8]>,
    mark: Mark,
    /// Dropped last: the group is killed by then.
    #[cfg(unix)]
    _watched: Watched,
}

#[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
fn shell(spec: &Spec, mark: &Mark) -> Command {
    let mut command;
    if cfg!(windows) {
        command = Command::new("cmd");
        command.args(["/d", "/s", "/c"]);
    } else if std::path::Path::new("/bin/bash").exists() {
        command = Command::new("/bin/bash");
        // Start files are slow and a place to hide in.
        command.args(["--noprofile", "--norc", "-c"]);
    } else {
        command = Command::new("/bin/sh");
        command.arg("-c");
    }
    command.arg(&spec.command);
    command.current_dir(&spec.workdir);
    command.env_clear();
    command.envs(spec.environment.iter().map(|(name, value)| (name, value)));
    let (name, value) = mark.variable();
    command.env(name, value);
    command.stdin(Stdio::null());
    command.kill_on_drop(true);
    command
}

#[cfg(unix)]
impl Group {
    /// Starts the command.
    pub(super) fn start(spec: &Spec) -> io::Result<Group> {
        let mark = Mark::new();
        let mut command = shell(spec, &mark);
        // One pipe for both, so that the order of stdout and stderr is the order of arrival.
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
        let watched = Watched::new();
        detach(&mut command, watched.key());
        let child = command.spawn()?;
        // The command holds our copies of the writing end: with them the pipe would never end.
        drop(command);
        let id = child
            .id()
            .and_then(|it| i32::try_from(it).ok())
            .and_then(rustix::process::Pid::from_raw);
        let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?;
        Ok(Group {
            child,
            id,
            pipe: Some(pipe),
            buffer: vec![0; 32 * 1024].into(),
            mark,
            _watched: watched,
        })
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id {
            // A group that is gone already is what we want.
            rustix::process::kill_process_group(id, signal).ok();
        }
    }

    /// Whether any process of the group is left.
    fn is_gone(&self) -> bool {
        self.id.is_none_or(|id| rustix::process::test_kill_process_group(id).is_err())
    }

    /// Asks the group to end, and makes it end when the time is up.
    pub(super) async fn stop(&mut self, grace: Duration) {
        if self.is_gone() {
            return;
        }
        self.signal(rustix::process::Signal::TERM);
        let waited = async {
            // The shell is ours to reap; its children tell nobody when they end.
            drop(self.child.wait().await);
            while !self.is_gone() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(grace, waited).await.is_err() {
            self.signal(rustix::process::Signal::KILL);
            drop(tokio::time::timeout(grace, self.child.wait()).await);
        }
    }
}

/// Its own session, so that no terminal can be taken from us and one signal reaches all; and
/// the kernel's word that it ends when we do.
#[cfg(unix)]
#[expect(unsafe_code, reason = "pre_exec: the closure makes system calls and allocates nothing")]
fn detach(command: &mut Command, key: u32) {
    // SAFETY: runs between fork and exec; setsid, write and prctl are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            watch::enlist(key);
            // Tied to the thread that forks. That is the runtime's one thread, which lives as
            // long as the process.
            #[cfg(target_os = "linux")]
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
}

#[cfg(windows)]
impl Group {
    pub(super) fn start(spec: &Spec) -> io::Result<Group> {
        let mark = Mark::new();
        let mut command = shell(spec, &mark);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdout.take();
        Ok(Group { child, pipe, buffer: vec![0; 32 * 1024].into(), mark })
    }

    pub(super) async fn stop(&mut self, grace: Duration) {
        drop(self.child.start_kill());
        drop(tokio::time::timeout(grace, self.child.wait()).await);
    }
}

impl Group {
    /// Waits for output, which is put where it belongs, or for the end of the shell itself.
    /// Safe to cancel.
    pub(super) async fn next(&mut self, output: &mut Output) -> io::Result<Option<ExitStatus>> {
        tokio::select! {
            biased;
            () = read(&mut self.pipe, &mut self.buffer, output) => Ok(None),
            status = self.child.wait() => status.map(Some),
        }
    }

    /// What all processes of this command carry.
    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Takes output until there will be no more.
    pub(super) async fn drain(&mut self, output: &mut Output) {
        while self.pipe.is_some() {
            read(&mut self.pipe, &mut self.buffer, output).await;
        }
    }
}

/// Waits for ever when the pipe has ended.
async fn read<R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &mut [u8], output: &mut Output) {
    let Some(reader) = pipe else { return std::future::pending().await };
    match reader.read(buffer).await {
        Ok(0) | Err(_) => *pipe = None,
        Ok(count) => output.push(&buffer[..count]),
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        // A panic or an aborted task must not leave processes behind either.
        if !self.is_gone() {
            self.signal(rustix::process::Signal::KILL);
            self.mark.end_all();
        }
    }
}
