//! A program that the agent talks to through pipes, such as an MCP server. Like every command it
//! ends as a process group.
//!
//! Each thread counts how often it has left a processor, so it can be seen whether the program has run in between. A
//! program of which no thread has run since a moment has changed no file since then.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::Environment;
use super::descendants::wait_until_above;
use super::group::ProcessGroup;
use super::job::RunningCommand;
use turnwright_sandbox::SandboxProfile;

const READ_BYTES: usize = 16 * 1024;
/// The time for which output is still read after a program has ended, such as that of a `tee` which it left running. It
/// passes only if what was left running keeps a pipe open.
const DRAIN: Duration = Duration::from_millis(250);

/// A program to run.
#[derive(Clone, Debug)]
pub struct PipedProgram {
    /// The program and its arguments.
    pub command_line: Vec<OsString>,
    /// The absolute path of its working folder.
    pub workdir: PathBuf,
    /// The complete environment. Whoever confines the program must use
    /// [`Environment::for_sandbox`].
    pub environment: Environment,
    /// Its confinement; `None` to run it unconfined.
    pub sandbox: Option<SandboxProfile>,
}

/// The pipes to the program.
#[derive(Debug)]
pub struct ProcessPipes {
    pub stdin: ChildStdin,
    /// Its answers.
    pub stdout: ChildStdout,
    /// Its messages for people.
    pub stderr: ChildStderr,
}

impl ProcessPipes {
    /// Writes the input and reads all output, so that the program is never blocked, until `ending` is over, which waits
    /// for the end of the program. `keep` adds bytes to what is kept of a stream. Returns the result of `ending`, and
    /// what is kept of stdout and of stderr.
    pub async fn talk<T>(
        self,
        input: &[u8],
        ending: impl Future<Output = T>,
        keep: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> (T, Vec<u8>, Vec<u8>) {
        let ProcessPipes { mut stdin, stdout, stderr } = self;
        let mut printed = Vec::new();
        let mut messages = Vec::new();
        let talking = async {
            let writing = async move {
                // It may end without having read everything.
                stdin.write_all(input).await.ok();
            };
            let reading = collect(stdout, &mut printed, &keep);
            tokio::join!(writing, reading, collect(stderr, &mut messages, &keep));
        };
        let end = match select(pin!(talking), Box::pin(ending)).await {
            Either::Left(((), ending)) => ending.await,
            Either::Right((end, talking)) => {
                tokio::time::timeout(DRAIN, talking).await.ok();
                end
            }
        };
        (end, printed, messages)
    }
}

/// Reads a stream to its end.
async fn collect(
    mut stream: impl AsyncRead + Unpin,
    kept: &mut Vec<u8>,
    keep: &impl Fn(&mut Vec<u8>, &[u8]),
) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        keep(kept, &buffer[..count]);
    }
}

impl ProcessGroup {
    /// Lets daemons that it has started, such as agents that hold keys, outlive this value. What stays in its process
    /// group is killed all the same.
    #[cfg(unix)]
    pub fn spare_daemons(&mut self) {
        self.spares_strays = true;
    }

    /// Lets what the program has started outlive this value, for a program that has ended and that nothing confines.
    /// It is reaped like other orphans. On Windows it ends all the same, and on Linux the watchdog ends it when this
    /// process has ended.
    pub fn leave_running(&mut self) {
        self.has_ended = true;
    }

    /// Has `activity` look at this program from now on.
    pub fn observe(&self, activity: &ProgramActivity) {
        #[cfg(target_os = "linux")]
        if let Some(namespace) = &self.process.namespace {
            return activity.set(ProgramRoots::Namespace(namespace.children().collect()));
        }
        activity.set(ProgramRoots::Everything);
    }

    /// Waits until it and all that it has started hold more than `limit` bytes of memory, and returns how many
    /// they hold. Waits for ever without a limit, or if the system does not tell.
    pub fn memory_above(&self, limit: Option<u64>) -> impl Future<Output = u64> + Send + use<> {
        wait_until_above(self.memory(), limit)
    }

    /// Ends the program. Its input is closed by now, so it gets the time `patience` to end by
    /// itself, then SIGTERM, and after `grace` it is killed.
    pub async fn stop_after(mut self, patience: Duration, grace: Duration) {
        tokio::time::timeout(patience, self.wait_for_end()).await.ok();
        self.stop(grace).await;
    }
}

/// The processes of a program, which may be started anew. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct ProgramActivity(watch::Sender<Option<ProgramRoots>>);

/// The processes below which all others of a program are.
#[derive(Clone, Debug)]
enum ProgramRoots {
    #[cfg(target_os = "linux")]
    Namespace(Vec<rustix::process::Pid>),
    /// All that this process has started: what a program without a namespace starts may be anywhere.
    Everything,
}

/// The state of the threads at one moment. A program that has not run in between looks the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivitySample {
    /// How often each thread has left a processor.
    switches: BTreeMap<i32, u64>,
    is_running: bool,
}

impl ActivitySample {
    /// Returns true if the program may have run since the other sample.
    pub fn has_run_since(&self, earlier: &ActivitySample) -> bool {
        self.is_running || self != earlier
    }

    /// Adds the threads of a process that was found. If it, or one of them, is gone by now, it has run: otherwise a
    /// chain of processes, each of which starts the next one and ends, would look as if nothing had run.
    #[cfg(target_os = "linux")]
    fn add(&mut self, process: rustix::process::Pid) {
        let threads = std::fs::read_dir(format!("/proc/{process}/task"));
        let mut threads = threads.into_iter().flatten().flatten().peekable();
        self.is_running |= threads.peek().is_none();
        for thread in threads {
            let status = std::fs::read_to_string(thread.path().join("status"));
            let (count, is_running) = switches(&status.unwrap_or_default());
            self.is_running |= is_running;
            let number = thread.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            self.switches.extend(number.map(|number| (number, count)));
        }
    }
}

impl ProgramActivity {
    fn set(&self, roots: ProgramRoots) {
        self.0.send_replace(Some(roots));
    }

    /// Looks at all threads. `None` where the system does not tell. Blocks.
    #[cfg(target_os = "linux")]
    pub fn sample(&self) -> Option<ActivitySample> {
        use super::descendants;
        if !descendants::adopt_orphans() {
            return None;
        }
        let mut sample = ActivitySample::default();
        let Some(known) = self.0.borrow().clone() else { return Some(sample) };
        let roots = match known {
            ProgramRoots::Namespace(mut roots) => {
                // One that has ended does not run any more.
                roots.retain(|root| !descendants::is_zombie(*root));
                roots
            }
            ProgramRoots::Everything => descendants::of(rustix::process::getpid()),
        };
        for process in descendants::with_descendants(roots) {
            sample.add(process);
        }
        Some(sample)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn sample(&self) -> Option<ActivitySample> {
        None
    }
}

/// The number of context switches of a thread, and true if it is running or about to, or if its status does not say.
#[cfg(target_os = "linux")]
fn switches(status: &str) -> (u64, bool) {
    let names = ["State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let values = names.map(|name| status.lines().find_map(|line| line.strip_prefix(name)));
    let [state, counts @ ..] = values.map(|value| value.unwrap_or("").trim());
    let count = counts.iter().filter_map(|count| count.parse::<u64>().ok()).sum();
    (count, state.is_empty() || state.starts_with('R'))
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn a_program_that_waits_looks_the_same_and_one_that_has_run_does_not() {
        use std::io::Write;
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let root = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let program = ProgramActivity::default();
        assert_eq!(program.sample(), Some(ActivitySample::default()));
        program.set(ProgramRoots::Namespace(vec![root]));
        // Until it waits for its input.
        let idle = loop {
            let one = program.sample().unwrap();
            let other = program.sample().unwrap();
            let waits = std::fs::read_to_string(format!("/proc/{root}/wchan")).unwrap_or_default();
            if !other.has_run_since(&one) && (waits.contains("pipe") || waits == "0") {
                break other;
            }
        };
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        while !program.sample().unwrap().has_run_since(&idle) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(program.sample().unwrap().has_run_since(&idle));
    }

    #[test]
    fn a_process_that_was_found_and_is_gone_has_run_and_an_ended_program_has_not() {
        let gone = rustix::process::Pid::from_raw(i32::MAX).unwrap();
        let idle = ActivitySample::default();
        let mut sample = ActivitySample::default();
        sample.add(gone);
        assert!(sample.has_run_since(&idle));
        let ended = ProgramActivity::default();
        ended.set(ProgramRoots::Namespace(vec![gone]));
        assert!(!ended.sample().unwrap().has_run_since(&idle));
    }

    #[test]
    fn the_switches_of_a_thread_are_read_from_its_status() {
        let status = "Name:\tx\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t5\n\
                      nonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches(status), (7, false));
        assert_eq!(switches("State:\tR (running)\n"), (0, true));
        // It is gone.
        assert_eq!(switches(""), (0, true));
    }
}
