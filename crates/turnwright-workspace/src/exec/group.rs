//! A command to run, and the process group of its own in which it runs and which can be ended as a whole.

use std::ffi::OsStr;
#[cfg(unix)]
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(unix)]
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};

use super::Environment;
use super::command_process::{CommandProcess, ProcessMark};
#[cfg(target_os = "linux")]
use super::descendants::{MemoryMeter, adopt_orphans, has_running_member};
use super::environment::SANDBOX_ESCAPE_VARIABLES;
#[cfg(unix)]
use super::job::signal_name;
use super::job::{CommandExit, OutputSink, RunningCommand, Signal};
#[cfg(unix)]
use super::piped::{PipedProgram, ProcessPipes};
#[cfg(unix)]
use super::signal_action;
#[cfg(unix)]
use super::watchdog::{self, WatchdogEntry};
use tokio::task::spawn_blocking;
#[cfg(unix)]
use turnwright_sandbox::{Refusal, Refusals, Sandbox};
use turnwright_sandbox::{SandboxProfile, SessionNetwork};
use turnwright_types::shell_script::ShellDialect;

/// How long output is still read after the command itself has ended. What is left in the pipe
/// arrives at once, but a background child may keep the pipe open for ever.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// The time that leftover processes get to end by themselves, as `multiprocessing` helpers do.
#[cfg(unix)]
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// How often the remaining processes of a group are checked.
#[cfg(unix)]
const POLL_INTERVAL: Duration = Duration::from_millis(5);
pub(super) const READ_SIZE: usize = 32 * 1024;
/// Control-D, which ends the input.
const END_OF_INPUT: u8 = 4;

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The command line, for the shell.
    pub command: String,
    /// The absolute path of its working folder.
    pub workdir: PathBuf,
    pub environment: Environment,
    /// True if it can be given input; otherwise its stdin is empty.
    pub accepts_input: bool,
    /// Additional variables for this command.
    pub extra_variables: Vec<(&'static str, String)>,
    /// Its confinement; `None` to run it unconfined.
    pub sandbox: Option<SandboxProfile>,
    /// The private network that it shares with other commands.
    pub network: Option<Arc<SessionNetwork>>,
}

impl CommandSpec {
    /// The temporary folders that the command has for itself and others of its session.
    pub fn temp_folder(&self) -> Vec<PathBuf> {
        let variable = self.extra_variables.iter().find(|(name, _)| *name == "TMPDIR");
        let named = variable.map(|(_, path)| PathBuf::from(path));
        let tmp = self.sandbox.as_ref().and_then(|profile| profile.private_tmp.as_ref());
        named.into_iter().chain(tmp.map(|tmp| tmp.folder.clone())).collect()
    }
}

/// A running process group. Dropping it kills it.
#[derive(Debug)]
pub struct ProcessGroup {
    pub(super) process: CommandProcess,
    pub(super) stdin: Option<ChildStdin>,
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
    #[cfg(unix)]
    pipe: Option<tokio::net::unix::pipe::Receiver>,
    #[cfg(windows)]
    pub(super) pipe: Option<tokio::process::ChildStdout>,
    pub(super) buffer: Box<[u8]>,
    pub(super) mark: ProcessMark,
    #[cfg(unix)]
    refusals: Option<Refusals>,
    /// True if dropping it leaves the processes alone that have left the group.
    #[cfg(unix)]
    pub(super) spares_strays: bool,
    /// The whole group has ended, and its id may be reused by another one.
    pub(super) has_ended: bool,
    /// Dropped last, when the group has been killed. Not needed where the kernel kills the command when
    /// this process dies.
    #[cfg(unix)]
    _watchdog_entry: Option<WatchdogEntry>,
}

/// The dialect of the shell that runs commands.
pub fn dialect() -> ShellDialect {
    match bash() {
        _ if cfg!(windows) => ShellDialect::Cmd,
        Some(_) => ShellDialect::Bash,
        None => ShellDialect::Posix,
    }
}

/// Where bash is, on NixOS and Guix as well. No command can have put another program there.
const BASH_PLACES: &str =
    "/bin/bash /run/current-system/sw/bin/bash /run/current-system/profile/bin/bash";

/// The bash that runs commands.
fn bash() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    *FOUND.get_or_init(|| BASH_PLACES.split(' ').find(|place| Path::new(place).exists()))
}

/// The command line that runs `command` in the shell.
#[cfg(unix)]
pub(super) fn shell(command: &str) -> Vec<String> {
    let shell = match bash() {
        // Startup files are slow, and a place for malicious code. A command may begin with `-`.
        Some(bash) => vec![bash, "--noprofile", "--norc", "-c", "--"],
        None => vec!["/bin/sh", "-c", "--"],
    };
    shell.into_iter().chain([command]).map(str::to_owned).collect()
}

/// A command with the environment and the mark that every command gets.
#[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
pub(super) fn base_command(
    program: &[impl AsRef<OsStr>],
    environment: &Environment,
    mark: &ProcessMark,
) -> Command {
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

/// The variables, folder and input of a command.
pub(super) fn configure_command(command: &mut Command, spec: &CommandSpec) {
    command.envs(spec.extra_variables.iter().map(|(name, value)| (name, value)));
    if let Some(profile) = &spec.sandbox {
        remove_escapes(command, &spec.environment, profile);
    }
    command.current_dir(&spec.workdir);
    // A program that can only be answered from a terminal fails at once instead of waiting.
    command.stdin(if spec.accepts_input { Stdio::piped() } else { Stdio::null() });
}

/// Removes the variables that lead to services outside the sandbox, except to a container engine whose socket is open
/// to the command, and to the ssh agent unless the network is allowed.
fn remove_escapes(command: &mut Command, environment: &Environment, profile: &SandboxProfile) {
    for name in SANDBOX_ESCAPE_VARIABLES.split(' ') {
        let socket = environment.socket(name).map(Path::new);
        if socket.is_none_or(|path| !profile.writable.iter().any(|place| path.starts_with(place))) {
            command.env_remove(name);
        }
    }
    if !profile.network.reaches_other_machines() {
        command.env_remove("SSH_AUTH_SOCK");
    }
}

/// Prepares the sandbox of a command off the runtime's thread: it opens the paths of the profile. The
/// working folder is looked up there too, because the runtime's thread waits for the child to enter it,
/// and a folder that never answers must not hold up more than this command.
#[cfg(unix)]
async fn prepare(
    profile: Option<SandboxProfile>,
    network: Option<Arc<SessionNetwork>>,
    workdir: PathBuf,
) -> io::Result<Option<Sandbox>> {
    let preparing = spawn_blocking(move || {
        super::command_process::reap_orphans();
        // The start of the command reports a folder that cannot be entered.
        std::fs::metadata(workdir).ok();
        profile.map(|profile| prepare_sandbox(&profile, network)).transpose()
    });
    preparing.await.map_err(io::Error::other)?
}

#[cfg(unix)]
fn prepare_sandbox(
    profile: &SandboxProfile,
    network: Option<Arc<SessionNetwork>>,
) -> io::Result<Sandbox> {
    let sandbox = Sandbox::prepare(profile, network)?;
    #[cfg(target_os = "linux")]
    if adopt_orphans() {
        return sandbox.with_process_namespace();
    }
    Ok(sandbox)
}

#[cfg(unix)]
impl ProcessGroup {
    /// Starts the command. Call it on the runtime's thread, because a child is tied to the thread that
    /// forks.
    pub async fn start(spec: &CommandSpec) -> io::Result<ProcessGroup> {
        let sandbox =
            prepare(spec.sandbox.clone(), spec.network.clone(), spec.workdir.clone()).await?;
        let mark = ProcessMark::new();
        let shell_words = shell(&spec.command).into_iter().map(OsString::from).collect();
        let words = turnwright_sandbox::wrap_command(spec.sandbox.as_ref(), shell_words)?;
        let mut command = base_command(&words, &spec.environment, &mark);
        configure_command(&mut command, spec);
        ProcessGroup::spawn(command, mark, sandbox)
    }

    /// Starts a program in the current folder.
    pub(super) fn start_program(
        program: &[OsString],
        environment: &Environment,
        accepts_input: bool,
        sandbox: Option<SandboxProfile>,
        network: Option<Arc<SessionNetwork>>,
    ) -> io::Result<ProcessGroup> {
        let mark = ProcessMark::new();
        let words = turnwright_sandbox::wrap_command(sandbox.as_ref(), program.to_vec())?;
        let mut command = base_command(&words, environment, &mark);
        if let Some(profile) = &sandbox {
            remove_escapes(&mut command, environment, profile);
        }
        command.stdin(if accepts_input { Stdio::piped() } else { Stdio::null() });
        let sandbox = sandbox.map(|profile| prepare_sandbox(&profile, network)).transpose()?;
        ProcessGroup::spawn(command, mark, sandbox)
    }

    /// Starts a program whose three pipes are handed to the caller. Call it on the runtime's thread, as well.
    pub async fn start_piped(program: &PipedProgram) -> io::Result<(ProcessGroup, ProcessPipes)> {
        let sandbox = prepare(program.sandbox.clone(), None, program.workdir.clone()).await?;
        let mark = ProcessMark::new();
        let words = turnwright_sandbox::wrap_command(
            program.sandbox.as_ref(),
            program.command_line.clone(),
        )?;
        let mut command = base_command(&words, &program.environment, &mark);
        command.current_dir(&program.workdir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = ProcessGroup::spawn_with_output(command, mark, sandbox, None)?;
        let stdin = group.stdin.take();
        let child = &mut group.process.child;
        match (stdin, child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok((group, ProcessPipes { stdin, stdout, stderr }))
            }
            _ => Err(io::Error::other("it has no pipes")),
        }
    }

    fn spawn(
        mut command: Command,
        mark: ProcessMark,
        sandbox: Option<Sandbox>,
    ) -> io::Result<ProcessGroup> {
        // Both streams share one pipe, so that the order of output is the order of arrival.
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
        ProcessGroup::spawn_with_output(command, mark, sandbox, Some(reader))
    }

    fn spawn_with_output(
        mut command: Command,
        mark: ProcessMark,
        sandbox: Option<Sandbox>,
        reader: Option<io::PipeReader>,
    ) -> io::Result<ProcessGroup> {
        let sandbox = sandbox.map(Arc::new);
        let needs_watchdog =
            !sandbox.as_ref().is_some_and(|sandbox| sandbox.has_process_namespace());
        let watchdog_entry = needs_watchdog.then(WatchdogEntry::new);
        let key = watchdog_entry.as_ref().map(|entry| entry.0);
        configure_child(&mut command, key, &mark, sandbox.clone());
        let refusals = sandbox.as_ref().and_then(|sandbox| sandbox.refusals());
        let mut process = CommandProcess::spawn(&mut command, sandbox.as_deref())?;
        // `command` holds our copies of the writing end, which would keep the pipe open.
        drop(command);
        let id = process.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        Ok(ProcessGroup {
            stdin: process.child.stdin.take(),
            process,
            id,
            buffer: vec![0; if reader.is_some() { READ_SIZE } else { 0 }].into(),
            pipe: reader
                .map(|reader| tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()))
                .transpose()?,
            mark,
            refusals,
            spares_strays: false,
            has_ended: false,
            _watchdog_entry: watchdog_entry,
        })
    }

    fn signal_group(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.id.filter(|_| !self.has_ended) {
            // The group may have ended already.
            rustix::process::kill_process_group(id, signal).ok();
        }
    }

    /// True if no process of the group is left, not even a zombie.
    fn is_empty(&self) -> bool {
        self.id.is_none_or(|id| rustix::process::test_kill_process_group(id).is_err())
    }

    /// True if no process of the group is running.
    async fn has_stopped_running(&self) -> bool {
        let Some(id) = self.id.filter(|_| !self.is_empty()) else { return true };
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &self.process.namespace {
            if namespace.has_ended() {
                return true;
            }
            let has_member = spawn_blocking(namespace.group_check(id));
            return !has_member.await.unwrap_or(true);
        }
        let looking = spawn_blocking(move || !has_running_member(id));
        looking.await.unwrap_or(false)
    }

    /// Ends the processes of the group. Returns true if there was one that had to be stopped.
    async fn end_group(&mut self, grace: Duration) -> bool {
        if self.has_stopped_running().await {
            return false;
        }
        let has_exited = self.process.wait().now_or_never().is_some();
        if has_exited && tokio::time::timeout(LEFTOVER_GRACE, self.wait_until_gone()).await.is_ok()
        {
            return false;
        }
        self.signal_group(rustix::process::Signal::TERM);
        if tokio::time::timeout(grace, self.wait_until_gone()).await.is_err() {
            self.signal_group(rustix::process::Signal::KILL);
            tokio::time::timeout(grace, self.wait_until_gone()).await.ok();
        }
        true
    }

    async fn wait_until_gone(&mut self) {
        // Only the shell is our child; there is no notification when its children end.
        self.process.wait().await.ok();
        while !self.has_stopped_running().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Elsewhere than on Linux there is no simple way to tell running processes from zombies.
#[cfg(all(unix, not(target_os = "linux")))]
fn has_running_member(_: rustix::process::Pid) -> bool {
    true
}

/// Gives the command a session of its own, so that it cannot take over our terminal and one signal
/// reaches all its processes, and makes the kernel kill it when the agent dies.
#[cfg(unix)]
#[expect(unsafe_code, reason = "pre_exec: the closure makes system calls and allocates nothing")]
fn configure_child(
    command: &mut Command,
    watchdog_key: Option<u32>,
    mark: &ProcessMark,
    sandbox: Option<Arc<Sandbox>>,
) {
    #[cfg(target_os = "linux")]
    let limit = mark.limit();
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    #[cfg(target_os = "linux")]
    adopt_orphans();
    #[cfg(target_os = "linux")]
    let parent = rustix::process::getpid();
    #[cfg(target_os = "linux")]
    let has_namespace = sandbox.as_ref().is_some_and(|sandbox| sandbox.has_process_namespace());
    // SAFETY: The closure runs between fork and exec. setsid, write and prctl are
    // async-signal-safe, and the sandbox is entered with system calls only.
    unsafe {
        command.pre_exec(move || {
            #[cfg(target_os = "linux")]
            prefer_as_memory_victim().ok();
            // In the sandbox of another agent, that one's mark stays.
            #[cfg(target_os = "linux")]
            rustix::process::setrlimit(rustix::process::Resource::Locks, limit).ok();
            if let Some(sandbox) = &sandbox {
                sandbox.enter()?;
            }
            // From here on this is the process that becomes the program.
            rustix::process::setsid()?;
            signal_action::reset_for_program();
            if let Some(key) = watchdog_key {
                watchdog::register(key);
            }
            // This ties the command to the thread that forks, which is the runtime's only thread
            // and lives as long as the process. It comes after the sandbox, because a change of
            // capabilities resets it.
            #[cfg(target_os = "linux")]
            if !has_namespace {
                use rustix::process::{Signal, getppid, set_parent_process_death_signal};
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The agent may have died before the call.
                if getppid() != Some(parent) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Ok(())
        });
    }
}

/// When memory runs out, the kernel kills the command and not the agent. A process that is not dumpable
/// does not own its files in `/proc`, so it is made dumpable for this write. Until then another process
/// could read its memory, but only one that runs as the user outside of any sandbox.
#[cfg(target_os = "linux")]
fn prefer_as_memory_victim() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
    let before = dumpable_behavior()?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty());
    let written = opened.and_then(|file| rustix::io::write(file, b"1000"));
    set_dumpable_behavior(before)?;
    written?;
    Ok(())
}

impl ProcessGroup {
    /// Waits for the end of the command itself. Cancel safe.
    pub async fn wait_for_end(&mut self) -> CommandExit {
        self.process.wait().await.map_or(CommandExit::Unknown, exit_of)
    }

    /// Kills the processes that have left the group. Returns true if there were any.
    async fn kill_strays(&mut self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &mut self.process.namespace {
            return namespace.kill().await;
        }
        let mark = self.mark.clone();
        let leader = self.process.id();
        // The result is not withheld if no thread can be started.
        spawn_blocking(move || mark.kill_all(leader)).await.unwrap_or(false)
    }
}

impl RunningCommand for ProcessGroup {
    fn next_output<'a>(
        &'a mut self,
        sink: OutputSink<'a>,
    ) -> BoxFuture<'a, io::Result<Option<CommandExit>>> {
        Box::pin(async move {
            // In random order: a child that never stops printing must not hide the end of the
            // command itself.
            tokio::select! {
                () = read_once(&mut self.pipe, &mut self.buffer, sink) => Ok(None),
                status = self.process.wait() => status.map(|status| Some(exit_of(status))),
            }
        })
    }

    fn drain<'a>(&'a mut self, sink: OutputSink<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let all = async {
                while self.pipe.is_some() {
                    read_once(&mut self.pipe, &mut self.buffer, sink).await;
                }
            };
            tokio::time::timeout(DRAIN_TIME, all).await.ok();
        })
    }

    fn stop(&mut self, grace: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            self.stdin = None;
            let had_members = self.end_group(grace).await;
            let had_strays = self.kill_strays().await;
            self.has_ended = true;
            had_members || had_strays
        })
    }

    #[cfg(unix)]
    fn take_refusals(&mut self) -> Vec<Refusal> {
        self.refusals.as_mut().map(Refusals::take).unwrap_or_default()
    }

    #[cfg(target_os = "linux")]
    fn memory(&self) -> Option<MemoryMeter> {
        let roots = match &self.process.namespace {
            Some(namespace) => namespace.children().collect(),
            None => self.id.into_iter().collect(),
        };
        Some(MemoryMeter { roots })
    }

    #[cfg(unix)]
    fn send_signal(&mut self, signal: Signal) {
        self.signal_group(match signal {
            Signal::Int => rustix::process::Signal::INT,
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        });
    }

    #[cfg(windows)]
    fn send_signal(&mut self, _: Signal) {
        self.process.kill_all();
    }

    fn write_input<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
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

/// Reads once. Waits for ever when the pipe has ended.
async fn read_once<R: AsyncRead + Unpin>(
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

fn exit_of(status: ExitStatus) -> CommandExit {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return CommandExit::Signal(signal_name(signal));
    }
    status.code().map_or(CommandExit::Unknown, CommandExit::Code)
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // A panic or an aborted task must not leave processes behind.
        #[cfg(target_os = "linux")]
        if self.process.namespace.is_some() {
            return;
        }
        if !self.has_ended && !self.is_empty() {
            self.signal_group(rustix::process::Signal::KILL);
            if !self.spares_strays {
                self.mark.kill_all(self.process.id());
            }
        }
    }
}
