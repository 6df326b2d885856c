//! The process that runs a command, and the mark by which processes are found that have left its
//! group by `setsid`, job control or a double fork. Every descendant inherits the mark: an environment
//! variable and, on Linux, a resource limit that the kernel no longer enforces and that no command in
//! the sandbox can change.

#[cfg(target_os = "linux")]
use std::fs;
use std::io;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::process::Pid;
use tokio::process::{Child, Command};

#[cfg(target_os = "linux")]
use super::descendants::{self, CommandNamespace, StartedChildren};
#[cfg(windows)]
use super::windows_group::JobObject;
use turnwright_sandbox::Sandbox;

/// A started command.
#[derive(Debug)]
pub(super) struct CommandProcess {
    /// The process that was spawned. With a namespace it has only started the program, and ends.
    pub(super) child: Child,
    /// Dropping it ends the command.
    #[cfg(windows)]
    job: JobObject,
    #[cfg(target_os = "linux")]
    pub(super) namespace: Option<CommandNamespace>,
    #[cfg(target_os = "linux")]
    _started: StartedChildren,
}

impl CommandProcess {
    /// Starts the command, which enters the sandbox by itself.
    #[cfg(target_os = "linux")]
    pub(super) fn spawn(
        command: &mut Command,
        sandbox: Option<&Sandbox>,
    ) -> io::Result<CommandProcess> {
        let (child, namespace, started) = descendants::start(|| {
            let child = command.spawn().map_err(|error| match sandbox {
                Some(sandbox) => sandbox.explain(error),
                None => error,
            });
            // Also after an error there may be some.
            let processes = sandbox.and_then(Sandbox::processes);
            (child, processes.map(CommandNamespace::open).transpose())
        })?;
        Ok(CommandProcess { child, namespace, _started: started })
    }

    #[cfg(not(any(target_os = "linux", windows)))]
    pub(super) fn spawn(
        command: &mut Command,
        sandbox: Option<&Sandbox>,
    ) -> io::Result<CommandProcess> {
        let child = command.spawn().map_err(|error| match sandbox {
            Some(sandbox) => sandbox.explain(error),
            None => error,
        })?;
        Ok(CommandProcess { child })
    }

    /// Starts the command without a window. It is suspended until its job object has it, so that the job has
    /// everything that it starts.
    #[cfg(windows)]
    pub(super) fn spawn(command: &mut Command, _: Option<&Sandbox>) -> io::Result<CommandProcess> {
        const SUSPENDED: u32 = 4;
        const NO_WINDOW: u32 = 0x0800_0000;
        let job = JobObject::new()?;
        let child = command.creation_flags(SUSPENDED | NO_WINDOW).spawn()?;
        let (Some(handle), Some(id)) = (child.raw_handle(), child.id()) else {
            return Err(io::Error::other("it has ended at once"));
        };
        job.adopt(handle, id)?;
        Ok(CommandProcess { child, job })
    }

    /// The number of the program's process.
    pub(super) fn id(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &self.namespace {
            return Some(namespace.program_id());
        }
        self.child.id()
    }

    /// Waits for the end of the program. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &mut self.namespace {
            return namespace.wait().await;
        }
        Ok(status)
    }

    /// Kills the program and everything that it has started.
    #[cfg(windows)]
    pub(super) fn kill_all(&self) {
        self.job.terminate();
    }

    #[cfg(windows)]
    pub(super) fn has_running_processes(&self) -> bool {
        self.job.running_processes() > 0
    }
}

/// The variable that carries the mark.
const MARK_VARIABLE: &str = "TURNWRIGHT_COMMAND";
/// The number of commands of one process that can be told apart by their limit.
#[cfg(target_os = "linux")]
const MARKS_PER_PROCESS: u64 = 100_000_000;
/// Rounds of searching and killing, since a process may fork during the search.
#[cfg(target_os = "linux")]
const MAX_ROUNDS: usize = 5;

/// The prefix of all marks of this process. It is unique even among containers that number processes
/// from 1.
fn process_prefix() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| format!("{}-", uuid::Uuid::new_v4().simple()))
}

/// The leading digits of the limits of all commands of this process.
#[cfg(target_os = "linux")]
fn limit_prefix() -> u64 {
    static PREFIX: OnceLock<u64> = OnceLock::new();
    *PREFIX.get_or_init(|| 1_000_000_000 + uuid::Uuid::new_v4().as_u64_pair().1 % 8_000_000_000)
}

/// The common part of the variable in the environments of all commands of this process.
#[cfg(unix)]
pub(super) fn environment_pattern() -> String {
    format!("{MARK_VARIABLE}={}", process_prefix())
}

/// The common part of their limits, as `/proc` shows it.
#[cfg(target_os = "linux")]
pub(super) fn limit_pattern() -> String {
    limits_line(limit_prefix())
}

/// Limits are not searched on other systems.
#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn limit_pattern() -> String {
    environment_pattern()
}

#[cfg(target_os = "linux")]
fn limits_line(limit: u64) -> String {
    format!("{:<25} {limit}", "Max file locks")
}

/// The mark of one command: the prefix of this process and a counter.
#[derive(Clone, Debug)]
pub(super) struct ProcessMark {
    name: String,
    #[cfg(target_os = "linux")]
    limit: u64,
}

impl ProcessMark {
    pub(super) fn new() -> ProcessMark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ProcessMark {
            name: format!("{}{number}", process_prefix()),
            #[cfg(target_os = "linux")]
            limit: limit_prefix() * MARKS_PER_PROCESS + number % MARKS_PER_PROCESS,
        }
    }

    /// The name and value to set in the command's environment.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (MARK_VARIABLE, &self.name)
    }

    /// Returns the limit on file locks that marks the command's processes. It is too high to limit anything.
    #[cfg(target_os = "linux")]
    pub(super) fn limit(&self) -> rustix::process::Rlimit {
        rustix::process::Rlimit { current: Some(self.limit), maximum: Some(self.limit) }
    }

    /// Kills every process with the mark, but not `leader`, and returns whether there was one. Waits
    /// for their end, at most a quarter of a second, so it belongs on a blocking thread.
    #[cfg(target_os = "linux")]
    pub(super) fn kill_all(&self, leader: Option<u32>) -> bool {
        let leader = leader.and_then(descendants::pid);
        let entry = format!("{MARK_VARIABLE}={}", self.name);
        let limit = format!("{} ", limits_line(self.limit));
        for round in 0..MAX_ROUNDS {
            let mut found = running_processes(leader, &entry, &limit);
            // The kernel's list may lack a child while another one is being reaped.
            if found.is_empty() {
                found = running_processes(leader, &entry, &limit);
            }
            if found.is_empty() {
                return round > 0;
            }
            descendants::kill(&found, |process| is_running_with(process, &entry, &limit));
        }
        true
    }

    /// On other systems the environment of other processes is not easily readable.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "Linux looks for the mark")]
    pub(super) fn kill_all(&self, _: Option<u32>) -> bool {
        false
    }
}

/// The running processes with a mark, but not `leader`. The children of this process among them that
/// have ended are reaped.
#[cfg(target_os = "linux")]
fn running_processes(leader: Option<Pid>, entry: &str, limit: &str) -> Vec<Pid> {
    let Some(children) = descendants::of_this_process() else {
        return descendants::all_processes()
            .into_iter()
            .flatten()
            .filter(|process| is_running_with(*process, entry, limit))
            .collect();
    };
    let marked = children.into_iter().filter(|process| {
        Some(*process) == leader
            || has_environment(*process, entry)
            || (has_limit(*process, limit) && !descendants::reap(*process))
    });
    // The leader's owner waits for it.
    descendants::with_descendants(marked.collect())
        .filter(|process| Some(*process) != leader && is_running_with(*process, entry, limit))
        .collect()
}

/// Reaps children that have ended: orphans of commands that still run, and abandoned ones.
#[cfg(target_os = "linux")]
pub(super) fn reap_orphans() {
    let pattern = limit_pattern();
    descendants::reap_orphans(|process| has_limit(process, &pattern));
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn reap_orphans() {}

/// Returns true if a running process has the mark.
#[cfg(target_os = "linux")]
fn is_running_with(process: Pid, entry: &str, limit: &str) -> bool {
    has_environment(process, entry)
        || (has_limit(process, limit) && !descendants::is_zombie(process))
}

#[cfg(target_os = "linux")]
fn has_environment(process: Pid, entry: &str) -> bool {
    fs::read(format!("/proc/{process}/environ")).is_ok_and(|variables| {
        variables.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    })
}

/// A zombie keeps its limits until it is reaped.
#[cfg(target_os = "linux")]
fn has_limit(process: Pid, limit: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/limits")).is_ok_and(|limits| limits.contains(limit))
}
