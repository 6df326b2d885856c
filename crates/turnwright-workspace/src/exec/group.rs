//! One command and all that it starts, as a group that can be ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{ExitStatus, Stdio};
#[cfg(unix)]
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::environment::WAYS_OUT;
use super::piped::{Pipes, Program};
use super::started::{Exit, Leftover, Signal, Sink, Started};
use super::stray::Mark;
#[cfg(unix)]
use super::watch::{self, Watched};
use super::{Environment, Spec, started};
use turnwright_sandbox::{Jail, Network, Profile};

/// How long output is still taken after the command itself has ended: what it left in the pipe
/// is there at once, a background child that holds the pipe open may hold it for ever.
const DRAIN: Duration = Duration::from_millis(100);
/// How often a look is taken at what is left of a group.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes that are taken at once.
const BUFFER: usize = 32 * 1024;
/// Control-D: the end of the input.
const END_OF_INPUT: u8 = 4;

/// A running group. Dropping it kills it.
#[derive(Debug)]
pub struct Group {
    child: Child,
    stdin: Option<ChildStdin>,
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
    #[cfg(unix)]
    pipe: Option<tokio::net::unix::pipe::Receiver>,
    #[cfg(windows)]
    pipe: Option<tokio::process::ChildStdout>,
    buffer: Box<[u8]>,
    mark: Mark,
    /// All of it was ended. Its number may soon be somebody else's.
    is_over: bool,
    /// Dropped last: the group is killed by then.
    #[cfg(unix)]
    _watched: Watched,
}

/// Whether commands are run by bash.
pub(super) fn has_bash() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| cfg!(unix) && std::path::Path::new("/bin/bash").exists())
}

/// The shell, and what makes it run the command.
pub(super) fn shell(command: &str) -> Vec<String> {
    let shell: &[&str] = if cfg!(windows) {
        &["cmd", "/d", "/s", "/c"]
    } else if has_bash() {
        // Start files are slow and a place to hide in.
        &["/bin/bash", "--noprofile", "--norc", "-c"]
    } else {
        &["/bin/sh", "-c"]
    };
    shell.iter().copied().chain([command]).map(str::to_owned).collect()
}

/// The program with what every command of ours gets.
#[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
fn prepare(program: &[impl AsRef<OsStr>], environment: &Environment, mark: &Mark) -> Command {
    let mut words = program.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new(""), AsRef::as_ref));
    command.args(words);
    command.env_clear();
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let (name, value) = mark.variable();
    command.env(name, value);
    command.kill_on_drop(true);
    command
}

/// The command as the specification wants it.
fn specified(spec: &Spec, mark: &Mark) -> io::Result<Command> {
    let words = shell(&spec.command).into_iter().map(OsString::from).collect();
    let words = turnwright_sandbox::front(spec.jail.as_ref(), words)?;
    let mut command = prepare(&words, &spec.environment, mark);
    command.envs(spec.extra.iter().map(|(name, value)| (name, value)));
    if let Some(profile) = &spec.jail {
        close_doors(&mut command, profile);
    }
    command.current_dir(&spec.workdir);
    // Who can only be answered from a terminal asks in vain, and at once.
    command.stdin(if spec.takes_input { Stdio::piped() } else { Stdio::null() });
    Ok(command)
}

/// Takes away the ways to who would do for a command what it may not do itself. With the network
/// goes the agent that holds the keys for it.
fn close_doors(command: &mut Command, profile: &Profile) {
    for name in WAYS_OUT {
        command.env_remove(name);
    }
    if profile.network != Network::On {
        command.env_remove("SSH_AUTH_SOCK");
    }
}

#[cfg(unix)]
impl Group {
    /// Starts the command.
    ///
    /// # Errors
    /// When it does not start, or cannot be confined as it is to be.
    pub fn start(spec: &Spec) -> io::Result<Group> {
        let mark = Mark::new();
        Group::spawn(specified(spec, &mark)?, mark, spec.jail.as_ref())
    }

    /// Starts a program where we are.
    pub(super) fn launch(
        program: &[OsString],
        environment: &Environment,
        takes_input: bool,
        jail: Option<&Profile>,
    ) -> io::Result<Group> {
        let mark = Mark::new();
        let words = turnwright_sandbox::front(jail, program.to_vec())?;
        let mut command = prepare(&words, environment, &mark);
        if let Some(profile) = jail {
            close_doors(&mut command, profile);
        }
        command.stdin(if takes_input { Stdio::piped() } else { Stdio::null() });
        Group::spawn(command, mark, jail)
    }

    /// Starts a program whose three pipes are taken by who talks to it.
    pub(super) fn piped(program: &Program) -> io::Result<(Group, Pipes)> {
        let mark = Mark::new();
        let words = turnwright_sandbox::front(program.jail.as_ref(), program.words.clone())?;
        let mut command = prepare(&words, &program.environment, &mark);
        command.current_dir(&program.workdir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Group::born(command, mark, program.jail.as_ref(), None)?;
        let (stdin, child) = (group.stdin.take(), &mut group.child);
        match (stdin, child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok((group, Pipes { stdin, stdout, stderr }))
            }
            _ => Err(io::Error::other("it has no pipes")),
        }
    }

    fn spawn(mut command: Command, mark: Mark, jail: Option<&Profile>) -> io::Result<Group> {
        // One pipe for both, so that the order of stdout and stderr is the order of arrival.
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
        Group::born(command, mark, jail, Some(reader))
    }

    fn born(
        mut command: Command,
        mark: Mark,
        jail: Option<&Profile>,
        reader: Option<io::PipeReader>,
    ) -> io::Result<Group> {
        let jail = jail.map(Jail::prepare).transpose()?.map(Arc::new);
        let watched = Watched::new();
        detach(&mut command, watched.key(), &mark, jail.clone());
        let mut child = command.spawn().map_err(|error| match &jail {
            Some(jail) => jail.explain(error),
            None => error,
        })?;
        // The command holds our copies of the writing end: with them the pipe would never end.
        drop(command);
        let id = child
            .id()
            .and_then(|it| i32::try_from(it).ok())
            .and_then(rustix::process::Pid::from_raw);
        let pipe = |it: io::PipeReader| tokio::net::unix::pipe::Receiver::from_owned_fd(it.into());
        Ok(Group {
            stdin: child.stdin.take(),
            child,
            id,
            buffer: vec![0; if reader.is_some() { BUFFER } else { 0 }].into(),
            pipe: reader.map(pipe).transpose()?,
            mark,
            is_over: false,
            _watched: watched,
        })
    }

    fn send(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id.filter(|_| !self.is_over) {
            // A group that is gone already is what we want.
            rustix::process::kill_process_group(id, signal).ok();
        }
    }

    /// Whether no process of the group is left, not even a dead one that nobody has asked about.
    fn is_empty(&self) -> bool {
        self.id.is_none_or(|id| rustix::process::test_kill_process_group(id).is_err())
    }

    /// Whether nothing of the group runs any more.
    async fn is_gone(&self) -> bool {
        let Some(id) = self.id.filter(|_| !self.is_empty()) else { return true };
        let looking = tokio::task::spawn_blocking(move || !super::members::any_runs(id));
        looking.await.unwrap_or(false)
    }

    async fn end_group(&mut self, grace: Duration) -> Leftover {
        if self.is_gone().await {
            return Leftover::Nothing;
        }
        self.send(rustix::process::Signal::TERM);
        if tokio::time::timeout(grace, self.until_gone()).await.is_err() {
            self.send(rustix::process::Signal::KILL);
            drop(tokio::time::timeout(grace, self.until_gone()).await);
        }
        Leftover::Stopped
    }

    async fn until_gone(&mut self) {
        // The shell is ours to reap; its children tell nobody when they end.
        drop(self.child.wait().await);
        while !self.is_gone().await {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Its own session, so that no terminal can be taken from us and one signal reaches all; and
/// the kernel's word that it ends when we do.
#[cfg(unix)]
#[expect(unsafe_code, reason = "pre_exec: the closure makes system calls and allocates nothing")]
fn detach(command: &mut Command, key: u32, mark: &Mark, jail: Option<Arc<Jail>>) {
    #[cfg(target_os = "linux")]
    let limit = mark.limit();
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    #[cfg(target_os = "linux")]
    let parent = rustix::process::getpid();
    // SAFETY: runs between fork and exec; setsid, write and prctl are async-signal-safe, and a jail
    // is entered with system calls only.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            watch::enlist(key);
            // In the sandbox of another agent that one's mark stays.
            #[cfg(target_os = "linux")]
            rustix::process::setrlimit(rustix::process::Resource::Locks, limit).ok();
            if let Some(jail) = &jail {
                jail.enter()?;
            }
            // Tied to the thread that forks. That is the runtime's one thread, which lives as
            // long as the process. After the jail: a change of powers takes the word back.
            #[cfg(target_os = "linux")]
            {
                use rustix::process::{Signal, getppid, set_parent_process_death_signal};
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // It may have ended before that.
                if getppid() != Some(parent) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Ok(())
        });
    }
}

#[cfg(windows)]
impl Group {
    /// Starts the command.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(spec: &Spec) -> io::Result<Group> {
        // There is none yet, and it says so.
        spec.jail.as_ref().map(Jail::prepare).transpose()?;
        let mark = Mark::new();
        let mut command = specified(spec, &mark)?;
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (stdin, pipe) = (child.stdin.take(), child.stdout.take());
        let buffer = vec![0; BUFFER].into();
        Ok(Group { child, stdin, pipe, buffer, mark, is_over: false })
    }

    /// Starts a program whose three pipes are taken by who talks to it.
    pub(super) fn piped(program: &Program) -> io::Result<(Group, Pipes)> {
        program.jail.as_ref().map(Jail::prepare).transpose()?;
        let mark = Mark::new();
        let mut command = prepare(&program.words, &program.environment, &mark);
        command.current_dir(&program.workdir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (pipe, buffer) = (None, Vec::new().into());
        let group = Group { child, stdin: None, pipe, buffer, mark, is_over: false };
        Ok((group, Pipes { stdin, stdout, stderr }))
    }

    async fn end_group(&mut self, grace: Duration) -> Leftover {
        drop(self.child.start_kill());
        drop(tokio::time::timeout(grace, self.child.wait()).await);
        Leftover::Nothing
    }
}

impl Started for Group {
    fn next<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, io::Result<Option<Exit>>> {
        Box::pin(async move {
            // In no fixed order: a child that never stops talking must not hide the end of the
            // command itself.
            tokio::select! {
                () = read(&mut self.pipe, &mut self.buffer, sink) => Ok(None),
                status = self.child.wait() => status.map(|it| Some(exit(it))),
            }
        })
    }

    fn drain<'a>(&'a mut self, sink: Sink<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let all = async {
                while self.pipe.is_some() {
                    read(&mut self.pipe, &mut self.buffer, sink).await;
                }
            };
            drop(tokio::time::timeout(DRAIN, all).await);
        })
    }

    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, Leftover> {
        Box::pin(async move {
            self.stdin = None;
            let of_group = self.end_group(grace).await;
            let mark = self.mark.clone();
            // A thread that cannot be had is no reason to keep the result back.
            let strays = tokio::task::spawn_blocking(move || mark.end_all()).await.unwrap_or(false);
            self.is_over = true;
            if strays { Leftover::Stopped } else { of_group }
        })
    }

    #[cfg(unix)]
    fn signal(&mut self, signal: Signal) {
        self.send(match signal {
            Signal::Int => rustix::process::Signal::INT,
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        });
    }

    #[cfg(windows)]
    fn signal(&mut self, _: Signal) {
        drop(self.child.start_kill());
    }

    fn input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let Some(stdin) = &mut self.stdin else {
                return Err(io::Error::other("its input is closed"));
            };
            let text = bytes.strip_suffix(&[END_OF_INPUT]);
            stdin.write_all(text.unwrap_or(bytes)).await?;
            stdin.flush().await?;
            if text.is_some() {
                self.stdin = None;
            }
            Ok(())
        })
    }
}

/// Waits for ever when the pipe has ended.
async fn read<R: AsyncRead + Unpin>(
    pipe: &mut Option<R>,
    buffer: &mut [u8],
    sink: &mut (dyn FnMut(&[u8]) + Send),
) {
    let Some(reader) = pipe else { return std::future::pending().await };
    match reader.read(buffer).await {
        Ok(0) | Err(_) => *pipe = None,
        Ok(count) => sink(&buffer[..count]),
    }
}

fn exit(status: ExitStatus) -> Exit {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Exit::Signal(started::name(signal));
    }
    status.code().map_or(Exit::Unknown, Exit::Code)
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        // A panic or an aborted task must not leave processes behind either.
        if !self.is_over && !self.is_empty() {
            self.send(rustix::process::Signal::KILL);
            self.mark.end_all();
        }
    }
}
