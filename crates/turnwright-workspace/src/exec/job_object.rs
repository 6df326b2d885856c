//! A job object of Windows: holds a process and everything that it starts, so that they end together.

use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::ptr::null;

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
