//! Starts and ends commands on Windows. A job object holds a process and everything that it starts, so that they end
//! together.

use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::process::Stdio;
use std::ptr::null;
use std::time::Duration;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation,
    QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{OpenThread, ResumeThread, THREAD_SUSPEND_RESUME};

use super::command_process::{CommandProcess, ProcessMark};
use super::group::{READ_SIZE, base_command, configure_command};
use super::piped::{PipedProgram, ProcessPipes};
use super::{CommandSpec, ProcessGroup};
use turnwright_sandbox::Sandbox;

/// The shell, which takes one line.
const SHELL: [&str; 4] = ["cmd", "/d", "/s", "/c"];
/// Why a line does not run in such a folder: `cmd` would run it in the folder of Windows instead.
const NO_NETWORK_FOLDER: &str = "cmd cannot work in a network folder or at a very long path; the user can open the \
                                 project through a drive letter (`net use` or `subst`)";
/// The exit code of what is ended. No other one is more usual.
const ENDED: u32 = 1;

/// Processes that end at the latest when this is dropped, also if this process is killed.
#[derive(Debug)]
pub(super) struct JobObject(OwnedHandle);

#[expect(unsafe_code, reason = "calls of the system whose pointers live as long as the call")]
impl JobObject {
    pub(super) fn new() -> io::Result<JobObject> {
        // SAFETY: both may be null; the handle is checked and owned from here on.
        let job = unsafe {
            let handle = CreateJobObjectW(null(), null());
            if handle.is_null() {
                return Err(io::Error::last_os_error());
            }
            JobObject(OwnedHandle::from_raw_handle(handle))
        };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let size = byte_count::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>();
        // SAFETY: `limits` is what this class of information is, and so large.
        check(unsafe {
            let class = JobObjectExtendedLimitInformation;
            SetInformationJobObject(job.0.as_raw_handle(), class, (&raw const limits).cast(), size)
        })?;
        Ok(job)
    }

    /// Adds a process that was started suspended, and lets it run. Whatever it starts is added, too.
    pub(super) fn adopt(&self, process: RawHandle, id: u32) -> io::Result<()> {
        // SAFETY: the caller holds the process.
        check(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process) })?;
        resume(id)
    }

    /// How many of its processes are running.
    pub(super) fn running_processes(&self) -> u32 {
        let mut counts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = byte_count::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>();
        let job = self.0.as_raw_handle();
        let class = JobObjectBasicAccountingInformation;
        let to = (&raw mut counts).cast();
        // SAFETY: `counts` is what this class of information is, and so large.
        check(unsafe { QueryInformationJobObject(job, class, to, size, std::ptr::null_mut()) })
            .map_or(0, |()| counts.ActiveProcesses)
    }

    /// Ends all its processes.
    pub(super) fn terminate(&self) {
        // SAFETY: takes a handle and a number.
        if let Err(error) = check(unsafe { TerminateJobObject(self.0.as_raw_handle(), ENDED) }) {
            tracing::debug!(%error, "a command could not be ended");
        }
    }
}

/// Resumes the threads of a process. There is no other way to find the first thread of a process that the
/// standard library has started.
#[expect(unsafe_code, reason = "calls of the system whose pointers live as long as the call")]
fn resume(process: u32) -> io::Result<()> {
    let mut entry =
        THREADENTRY32 { dwSize: byte_count::<THREADENTRY32>(), ..THREADENTRY32::default() };
    let mut is_resumed = false;
    // SAFETY: each handle is checked and owned; `entry` says how large it is.
    unsafe {
        let list = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
        if list == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        let list = OwnedHandle::from_raw_handle(list);
        let mut found = Thread32First(list.as_raw_handle(), &raw mut entry);
        while found != 0 {
            if entry.th32OwnerProcessID == process {
                let thread = OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID);
                if thread.is_null() {
                    return Err(io::Error::last_os_error());
                }
                let thread = OwnedHandle::from_raw_handle(thread);
                is_resumed |= ResumeThread(thread.as_raw_handle()) != u32::MAX;
            }
            found = Thread32Next(list.as_raw_handle(), &raw mut entry);
        }
    }
    if is_resumed { Ok(()) } else { Err(io::Error::other("its thread was not found")) }
}

fn byte_count<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl ProcessGroup {
    #[expect(clippy::unused_async, reason = "it waits on other systems")]
    pub async fn start(spec: &CommandSpec) -> io::Result<ProcessGroup> {
        // There is no sandbox on Windows; this reports it.
        spec.sandbox.as_ref().map(|profile| Sandbox::prepare(profile, None)).transpose()?;
        // A share may also be written with slashes.
        if spec.workdir.as_os_str().as_encoded_bytes().get(1) != Some(&b':') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_NETWORK_FOLDER));
        }
        let mark = ProcessMark::new();
        let mut command = base_command(&SHELL, &spec.environment, &mark);
        command.raw_arg(quoted_line(&spec.command)?);
        configure_command(&mut command, spec);
        // Both streams share one pipe, so that the order of output is the order of arrival.
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
        let mut process = CommandProcess::spawn(&mut command, None)?;
        // `command` holds our copies of the writing end, which would keep the pipe open.
        drop(command);
        let reader = std::process::ChildStdout::from(OwnedHandle::from(reader));
        Ok(ProcessGroup {
            stdin: process.child.stdin.take(),
            process,
            pipe: Some(tokio::process::ChildStdout::from_std(reader)?),
            buffer: vec![0; READ_SIZE].into(),
            mark,
            has_ended: false,
        })
    }

    /// Starts a program whose three pipes are handed to the caller.
    #[expect(clippy::unused_async, reason = "it waits on other systems")]
    pub async fn start_piped(program: &PipedProgram) -> io::Result<(ProcessGroup, ProcessPipes)> {
        program.sandbox.as_ref().map(|profile| Sandbox::prepare(profile, None)).transpose()?;
        let mark = ProcessMark::new();
        let (words, line) = match program.command_line.split_last() {
            Some((line, shell)) if shell.iter().eq(SHELL) => (shell, Some(line)),
            _ => (program.command_line.as_slice(), None),
        };
        let mut command = base_command(words, &program.environment, &mark);
        if let Some(line) = line {
            command.raw_arg(quoted_line(&line.to_string_lossy())?);
        }
        command.current_dir(&program.workdir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = CommandProcess::spawn(&mut command, None)?;
        let child = &mut process.child;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        let pipe = None;
        let buffer = Vec::new().into();
        let group = ProcessGroup { process, stdin: None, pipe, buffer, mark, has_ended: false };
        Ok((group, ProcessPipes { stdin, stdout, stderr }))
    }

    /// A program of Windows cannot be asked to end. Returns true if there was one that had to be stopped.
    pub(super) async fn end_group(&mut self, grace: Duration) -> bool {
        // The job counts a program for an instant after its end.
        let has_ended = tokio::time::timeout(Duration::ZERO, self.process.wait()).await.is_ok();
        for _ in 0..if has_ended { 100 } else { 1 } {
            if !self.process.has_running_processes() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.process.kill_all();
        tokio::time::timeout(grace, self.process.wait()).await.ok();
        true
    }
}

/// The command line as `cmd /s /c` takes it: it removes one quote at each end and changes nothing between.
fn quoted_line(line: &str) -> io::Result<String> {
    let line = line.trim_end_matches(['\r', '\n']);
    if line.contains('\n') {
        let text =
            "cmd runs only the first line of a command; write it in one line, with & between";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(format!("\"{line}\""))
}
