//! The descendants of this process, from `/proc`, and the PID namespaces in which those of commands are. To keep all
//! of them, this process becomes the parent of descendants whose own parent has ended. A command is stopped before its
//! descendants take all memory of the machine.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    pidfd_open, pidfd_send_signal, set_child_subreaper, test_kill_process, waitid, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::task::spawn_blocking;
use turnwright_sandbox::NamespaceProcesses;

/// How long to wait for killed processes to end. One that waits for a device may take for ever.
const END_TIMEOUT: Duration = Duration::from_millis(50);

/// The children of this process apart from adopted orphans. The flag is true for a killed one whose end nothing
/// depends on; the owners of the others wait for them.
static CHILDREN: Mutex<Vec<(Pid, bool)>> = Mutex::new(Vec::new());

/// Makes this process the parent of descendants whose parent ends. Call it before the first command is started.
/// Returns true if the kernel lists the children of each process.
pub(super) fn adopt_orphans() -> bool {
    static ADOPTS: OnceLock<bool> = OnceLock::new();
    *ADOPTS
        .get_or_init(|| children("self").is_some() && set_child_subreaper(Some(getpid())).is_ok())
}

/// Processes that somebody waits for, until this is dropped.
#[derive(Debug)]
pub(super) struct StartedChildren(Vec<Pid>);

/// Starts a process and the processes of its namespace. The lock is held meanwhile, so that
/// [`reap_orphans`] knows every child that it sees.
pub(super) fn start(
    spawn: impl FnOnce() -> (io::Result<Child>, io::Result<Option<CommandNamespace>>),
) -> io::Result<(Child, Option<CommandNamespace>, StartedChildren)> {
    // After an error it is dropped last, when the processes of the namespace are abandoned.
    let mut started = StartedChildren(Vec::new());
    let mut known = CHILDREN.lock();
    let (child, namespace) = spawn();
    let process = child.as_ref().ok().and_then(Child::id).and_then(pid);
    let others = namespace.iter().flatten().flat_map(CommandNamespace::children);
    started.0.extend(process.into_iter().chain(others));
    known.extend(started.0.iter().map(|process| (*process, false)));
    // A namespace that is dropped because of an error takes the lock, too.
    drop(known);
    Ok((child?, namespace?, started))
}

impl Drop for StartedChildren {
    fn drop(&mut self) {
        CHILDREN
            .lock()
            .retain(|(process, is_abandoned)| *is_abandoned || !self.0.contains(process));
    }
}

/// Leaves a killed child to [`reap_abandoned`].
fn abandon(child: Pid) {
    CHILDREN.lock().push((child, true));
}

/// Reaps the abandoned children that have ended.
fn reap_abandoned() {
    CHILDREN.lock().retain(|(child, is_abandoned)| {
        !is_abandoned
            || match waitpid(Some(*child), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => !is_end(status),
                Ok(None) => true,
                Err(_) => false,
            }
    });
}

/// Reaps ended children that nobody waits for: abandoned ones, and orphans of a command or server that still
/// runs. `is_ours` returns true for such an orphan.
pub(super) fn reap_orphans(is_ours: impl Fn(Pid) -> bool) {
    reap_abandoned();
    // Listing the children takes many system calls, and there is hardly ever one to reap.
    if !has_ended_child() {
        return;
    }
    let mut ended = of_this_process().unwrap_or_default();
    ended.retain(|process| is_zombie(*process) && is_ours(*process));
    // A child is abandoned before its owner's guard is dropped, so it is always among these.
    let known: Vec<_> = CHILDREN.lock().iter().map(|(child, _)| *child).collect();
    for child in ended.into_iter().filter(|child| !known.contains(child)) {
        reap(child);
    }
}

/// Returns true if a child of this process has ended and was not reaped yet.
fn has_ended_child() -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, how), Ok(None) | Err(rustix::io::Errno::CHILD))
}

/// Returns true if a process has ended, whether it was reaped or not.
pub(super) fn is_zombie(process: Pid) -> bool {
    Stat::of(process).map_or_else(|| !is_hidden(process), |stat| stat.has_ended())
}

/// Returns true if a process without a readable folder in `/proc` exists: with `hidepid`, a running process that is
/// not dumpable has none.
fn is_hidden(process: Pid) -> bool {
    test_kill_process(process).is_ok()
}

/// The children of this process, zombies included; `None` if the kernel does not list them, or if
/// not all descendants stay below it.
pub(super) fn of_this_process() -> Option<Vec<Pid>> {
    adopt_orphans().then(|| children("self")).flatten()
}

/// The children of another process, apart from hidden ones.
pub(super) fn of(process: Pid) -> Vec<Pid> {
    match children(&process.to_string()) {
        Some(found) => found,
        None if is_hidden(process) => children_by_parent(process),
        None => Vec::new(),
    }
}

/// The children of a process, each of which is asked for its parent.
fn children_by_parent(parent: Pid) -> Vec<Pid> {
    let mut found: Vec<_> = all_processes().into_iter().flatten().collect();
    found.retain(|process| {
        Stat::of(*process).is_some_and(|stat| stat.parent == parent.as_raw_pid())
    });
    found
}

/// These processes and all below them. The children of each are looked up after it was taken.
pub(super) fn with_descendants(mut waiting: Vec<Pid>) -> impl Iterator<Item = Pid> {
    let mut taken = None;
    std::iter::from_fn(move || {
        waiting.extend(taken.into_iter().flat_map(of));
        taken = waiting.pop();
        taken
    })
}

/// Each thread of a process has a list of the children that it has.
fn children(process: &str) -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        // A thread may have ended since; its children have gone to another one.
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
}

/// All processes that this one can see.
pub(super) fn all_processes() -> io::Result<impl Iterator<Item = Pid>> {
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.filter_map(|entry| parse_pid(entry.file_name().to_str()?)))
}

/// True if any process of the group is running. To the kernel a zombie is a member as well, and its parent may be slow
/// to reap it or be stopped itself. Takes a few milliseconds, so it must not run on the runtime's thread.
pub(super) fn has_running_member(group: Pid) -> bool {
    let Ok(mut processes) = all_processes() else { return true };
    processes.any(|process| is_running_member(process, group))
}

/// True if the process is running and belongs to the group.
fn is_running_member(process: Pid, group: Pid) -> bool {
    Stat::of(process).is_some_and(|stat| stat.group == group.as_raw_pid() && !stat.has_ended())
}

/// The first fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    state: u8,
    parent: i32,
    group: i32,
}

impl Stat {
    fn of(process: Pid) -> Option<Stat> {
        Stat::parse(&fs::read(format!("/proc/{process}/stat")).ok()?)
    }

    /// The line is `number (name) state parent group …`, and the name may contain anything.
    fn parse(line: &[u8]) -> Option<Stat> {
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&line[end + 1..]).ok()?.split_ascii_whitespace();
        let state = fields.next()?.bytes().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Stat { state, parent, group })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

fn parse_pid(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse().ok()?)
}

/// Kills those of the processes that are `ours` and waits until they have ended.
pub(super) fn kill(processes: &[Pid], is_ours: impl Fn(Pid) -> bool) {
    let mut handles = Vec::new();
    for process in processes {
        // With the handle the number cannot come to mean another process after the check.
        let handle = pidfd_open(*process, PidfdFlags::empty());
        if !is_ours(*process) {
            continue;
        }
        match handle {
            Ok(handle) => {
                pidfd_send_signal(&handle, Signal::KILL).ok();
                handles.push(handle);
            }
            Err(_) => drop(kill_process(*process, Signal::KILL)),
        }
    }
    let begun = Instant::now();
    for handle in &handles {
        let left = END_TIMEOUT.saturating_sub(begun.elapsed());
        let limit = Timespec::try_from(left).unwrap_or_default();
        poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit)).ok();
    }
}

/// Removes a child that has ended. Returns whether it had.
pub(super) fn reap(child: Pid) -> bool {
    matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some((_, status))) if is_end(status))
}

/// Returns true if a child has ended. One that asks to be traced may have stopped instead.
fn is_end(status: WaitStatus) -> bool {
    status.exited() || status.signaled()
}

/// The time that the killed processes of a namespace get to end.
const NAMESPACE_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The PID namespace of a command. All that the command starts is in there, and ends with it. Dropping it kills
/// everything in it.
#[derive(Debug)]
pub(super) struct CommandNamespace {
    /// `None` once it is killed.
    init: Option<NamespaceProcess>,
    program: NamespaceProcess,
}

/// A child of this process.
#[derive(Debug)]
struct NamespaceProcess {
    id: Pid,
    /// Readable when the process has ended.
    handle: AsyncFd<OwnedFd>,
    /// Set once it is reaped.
    status: Option<ExitStatus>,
}

impl NamespaceProcess {
    #[expect(unsafe_code, reason = "registers a descriptor with the runtime")]
    fn open(id: Pid) -> io::Result<NamespaceProcess> {
        let pidfd = pidfd_open(id, PidfdFlags::empty())?;
        // SAFETY: an owned descriptor that is neither replaced nor closed while it is registered.
        let handle = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        Ok(NamespaceProcess { id, handle, status: None })
    }

    /// Waits for its end and reaps it. Cancel safe.
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            let mut ended = self.handle.readable().await?;
            match waitpid(Some(self.id), WaitOptions::NOHANG)? {
                Some((_, status)) => self.status = Some(ExitStatus::from_raw(status.as_raw())),
                None => ended.clear_ready(),
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.status.is_some() || is_zombie(self.id)
    }
}

impl CommandNamespace {
    /// Opens the namespace of a command that was just started. If that fails, the command is killed.
    pub(super) fn open(processes: NamespaceProcesses) -> io::Result<CommandNamespace> {
        let (Some(init_id), Some(program_id)) = (pid(processes.init), pid(processes.program))
        else {
            return Err(io::Error::other("a process number is out of range"));
        };
        let opened = NamespaceProcess::open(init_id).and_then(|init| {
            let program = NamespaceProcess::open(program_id)?;
            Ok(CommandNamespace { init: Some(init), program })
        });
        opened.inspect_err(|_| {
            kill_process(init_id, Signal::KILL).ok();
        })
    }

    pub(super) fn program_id(&self) -> u32 {
        self.program.id.as_raw_pid().cast_unsigned()
    }

    /// The ids of its first process and its program, both children of this process, unless they were reaped.
    pub(super) fn children(&self) -> impl Iterator<Item = Pid> {
        let both = self.init.iter().chain([&self.program]);
        both.filter(|process| process.status.is_none()).map(|process| process.id)
    }

    /// Waits for the end of the program. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.program.wait().await
    }

    /// The children of the first process and of the program, zombies included. All other processes are among or
    /// below them: an orphan becomes a child of the first process.
    fn others(&self) -> Vec<Pid> {
        self.children().flat_map(of).collect()
    }

    /// A look, for a blocking thread, at whether a process of the group is running.
    pub(super) fn group_check(&self, group: Pid) -> impl FnOnce() -> bool + Send + 'static {
        let children = self.children().collect();
        move || {
            let mut all = with_descendants(children);
            all.any(|process| is_running_member(process, group))
        }
    }

    /// Returns true if the program has ended and nothing else is running.
    pub(super) fn has_ended(&self) -> bool {
        self.program.has_ended() && !is_any_running(&self.others())
    }

    /// Kills everything in the namespace and waits for the end of what has run in it. Returns whether
    /// anything was running besides the program.
    pub(super) async fn kill(&mut self) -> bool {
        let others = self.others();
        let had_others = is_any_running(&others);
        self.kill_init();
        let Some(mut init) = self.init.take() else { return had_others };
        // If it was alone, nothing depends on its end: it is reaped while the agent goes on. Of processes that start
        // the next one and end, one at least is seen, though it may have ended meanwhile.
        if !others.is_empty() || self.program.status.is_none() {
            // The first process ends last: when all others are reaped, and this reaps the program.
            let end = async {
                self.program.wait().await.ok();
                init.wait().await.ok();
            };
            tokio::time::timeout(NAMESPACE_END_TIMEOUT, end).await.ok();
        }
        if init.status.is_none() {
            leave(init.id);
        }
        had_others
    }

    fn kill_init(&self) {
        if let Some(init) = &self.init {
            pidfd_send_signal(init.handle.get_ref(), Signal::KILL).ok();
        }
    }
}

/// The process with this number.
pub(super) fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn is_any_running(processes: &[Pid]) -> bool {
    processes.iter().any(|process| !is_zombie(*process))
}

/// Has a killed child reaped when it ends.
fn leave(child: Pid) {
    abandon(child);
    // Without a runtime it is reaped before the next command.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        let Ok(process) = NamespaceProcess::open(child) else { return };
        if process.handle.readable().await.is_ok() {
            reap_abandoned();
        }
    });
}

impl Drop for CommandNamespace {
    fn drop(&mut self) {
        self.kill_init();
        // The first process ends when the program was reaped.
        self.children().for_each(leave);
    }
}

/// The shortest and the longest time between two measurements.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// More bytes than a command can fill in a second: the kernel clears each page first.
const GROWTH_PER_SECOND: u64 = 8 << 30;

/// The processes of a command.
#[derive(Clone, Debug)]
pub struct MemoryMeter {
    pub(super) roots: Vec<Pid>,
}

/// Waits until a command holds more than `limit` bytes, and returns how many it holds. Waits for ever without a
/// limit, or if it cannot be measured.
pub(super) async fn wait_until_above(meter: Option<MemoryMeter>, limit: Option<u64>) -> u64 {
    let Some((meter, limit)) = meter.zip(limit) else { return std::future::pending().await };
    let mut pause = PAUSES.0;
    loop {
        tokio::time::sleep(pause).await;
        let meter = meter.clone();
        let measuring = spawn_blocking(move || meter.measure(limit));
        match measuring.await {
            Ok(Some(ControlFlow::Break(bytes))) => return bytes,
            Ok(Some(ControlFlow::Continue(free))) => pause = pause_before(free),
            // Fails for now, for example because too many files are open.
            Ok(None) => pause = PAUSES.0,
            // The process is ending.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Measures rarely while a command is far below its limit, so that the processor need not wake up often.
fn pause_before(free: u64) -> Duration {
    let until_full = Duration::from_millis(free / (GROWTH_PER_SECOND / 1000));
    until_full.clamp(PAUSES.0, PAUSES.1)
}

/// The default limit: three quarters of the machine's memory, or of that of the container or service. Read once: the
/// kernel counts the free memory for each reader.
pub fn default_memory_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(read_memory_limit)
}

fn read_memory_limit() -> Option<u64> {
    let files = limit_files(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    let limits = texts.filter_map(|text| text.trim().parse::<u64>().ok());
    let machine = meminfo().map(|(total, _)| total);
    limits.chain(machine).min().map(|all| all / 4 * 3)
}

/// The files with the limits of the control group that `groups`, the text of `/proc/self/cgroup`, names, and of those
/// around it. Of version 1, only the file that a container sees as its own.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    const TOP: &str = "/sys/fs/cgroup";
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let folder = Path::new(TOP).join(group);
    let around = folder.ancestors().take_while(|above| above.starts_with(TOP));
    let version_1 = Path::new(TOP).join("memory/memory.limit_in_bytes");
    around.map(|above| above.join("memory.max")).chain([version_1]).collect()
}

/// The memory of the machine, and how much of it is available.
fn meminfo() -> Option<(u64, u64)> {
    // The kernel generates the text for each read, and does not say how long it is.
    let mut text = String::with_capacity(4096);
    File::open("/proc/meminfo").ok()?.read_to_string(&mut text).ok()?;
    Some((bytes_of(&text, "MemTotal:")?, bytes_of(&text, "MemAvailable:")?))
}

/// The number of bytes in a line `NAME NUMBER kB`.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

impl MemoryMeter {
    /// Measures the memory in bytes. Breaks with what the command holds if that is more than the limit, and otherwise
    /// continues with what is left, at least.
    fn measure(&self, limit: u64) -> Option<ControlFlow<u64, u64>> {
        let (total, available) = meminfo()?;
        // The whole machine uses less than the limit.
        let used = total.saturating_sub(available);
        if used < limit {
            return Some(ControlFlow::Continue(limit - used));
        }
        let mut own = 0;
        let mut mapped = 0;
        let mut files = HashMap::new();
        for process in with_descendants(self.roots.clone()) {
            let path = format!("/proc/{process}/status");
            let status = fs::read_to_string(path).unwrap_or_default();
            own += bytes_of(&status, "RssAnon:").unwrap_or_default();
            mapped += bytes_of(&status, "RssShmem:").unwrap_or_default();
            count_memory_files(process, &mut files);
        }
        // A mapped file is counted in both.
        let held = own + mapped.max(files.values().sum());
        let free = limit.checked_sub(held);
        Some(free.map_or(ControlFlow::Break(held), ControlFlow::Continue))
    }
}

/// Adds the bytes of the files that a process has open and that exist only in memory: from `memfd_create`, or unlinked
/// on a file system in memory. They are counted nowhere else until a process maps them. `counted` has the files by
/// device and inode, at most as many as a command can open.
fn count_memory_files(process: Pid, counted: &mut HashMap<(u64, u64), u64>) {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    for file in open.into_iter().flatten().flatten() {
        let path = file.path();
        // All of them are unlinked. Others may be on a file system that does not answer, and are not asked.
        let name = fs::read_link(&path).unwrap_or_default();
        if !name.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
            continue;
        }
        // These links lead to the open file itself, whatever its name says.
        let Ok(found) = rustix::fs::stat(&path) else { continue };
        let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        if !is_file || found.st_nlink > 0 || found.st_blocks <= 0 || !is_in_memory(&path) {
            continue;
        }
        let bytes = u64::try_from(found.st_blocks).unwrap_or_default() * 512;
        counted.entry((found.st_dev, found.st_ino)).or_insert(bytes);
    }
}

/// Returns true if a file is on a file system in memory.
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;
    rustix::fs::statfs(path).is_ok_and(|stat| [TMPFS, HUGETLBFS].contains(&stat.f_type))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn an_abandoned_child_is_reaped_when_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("714").spawn().unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        abandon(id);
        reap_orphans(|_| false);
        assert!(CHILDREN.lock().contains(&(id, true)));
        child.kill().unwrap();
        let begun = Instant::now();
        while CHILDREN.lock().contains(&(id, true)) {
            assert!(begun.elapsed().as_secs() < 60, "it is not reaped");
            reap_orphans(|_| false);
        }
        assert!(child.wait().is_err(), "somebody else must have reaped it");
    }

    #[test]
    fn the_limits_of_a_service_and_of_both_versions_of_groups_are_found() {
        let service = "system.slice/a.service/memory.max system.slice/memory.max";
        for (groups, below_top) in [
            ("0::/\n", ""),
            ("1:name=systemd:/b\n0::/system.slice/a.service\n", service),
            ("4:cpu,memory:/docker/a\n1:name=systemd:/\n", ""),
            ("", ""),
        ] {
            let at_top = ["memory.max", "memory/memory.limit_in_bytes"];
            let names = below_top.split_whitespace().chain(at_top);
            let expected: Vec<_> =
                names.map(|name| Path::new("/sys/fs/cgroup").join(name)).collect();
            assert_eq!(limit_files(groups), expected, "{groups}");
        }
    }

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        for (line, stat) in [
            (&b"5 (a) Z 1 77) S 4 77 5 0"[..], Some((b'S', 4, 77))),
            (b"5 (a) Z 4 77 5 0", Some((b'Z', 4, 77))),
            (b"5 (a) S 77 78 77 0", Some((b'S', 77, 78))),
            (b"5 (a) S 77", None),
            (b"", None),
        ] {
            let expected = stat.map(|(state, parent, group)| Stat { state, parent, group });
            assert_eq!(Stat::parse(line), expected);
        }
    }

    /// With `hidepid` the list of its children cannot be read.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn the_children_of_a_hidden_process_are_found_by_their_parent() {
        let mut child = std::process::Command::new("sleep").arg("713").spawn().unwrap();
        let id = pid(child.id()).unwrap();
        assert!(children_by_parent(getpid()).contains(&id));
        assert!(is_hidden(id) && !is_zombie(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_hidden(id) && is_zombie(id));
        assert_eq!(children_by_parent(id), []);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn zombies_do_not_count() {
        use std::os::unix::process::CommandExt;
        // Nobody reaps it, so it stays a zombie.
        let mut child =
            std::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(has_running_member(group));
        child.kill().unwrap();
        let begun = Instant::now();
        while has_running_member(group) {
            assert!(begun.elapsed().as_secs() < 60, "a zombie is taken for a running process");
        }
        assert!(rustix::process::test_kill_process_group(group).is_ok(), "it was no zombie");
        child.wait().unwrap();
    }

    #[test]
    fn the_memory_of_a_process_counts() {
        let held = vec![1_u8; 64 << 20];
        let meter = MemoryMeter { roots: vec![getpid()] };
        let measured = meter.measure(16 << 20).unwrap();
        assert!(measured.break_value().is_some_and(|held| held > 64 << 20), "{measured:?}");
        let measured = meter.measure(u64::MAX / 2).unwrap();
        assert!(measured.continue_value().is_some_and(|left| left > u64::MAX / 4), "{measured:?}");
        assert!(held.iter().all(|byte| *byte == 1));
        assert!(default_memory_limit().is_some_and(|limit| limit > 64 << 20));
    }

    #[test]
    fn the_next_look_is_before_the_limit_can_be_reached() {
        let [short, long] = [PAUSES.0, PAUSES.1];
        for (free, pause) in [
            (0, short),
            (GROWTH_PER_SECOND / 10, short),
            (GROWTH_PER_SECOND, Duration::from_secs(1)),
            (GROWTH_PER_SECOND / 2, Duration::from_millis(500)),
            (u64::MAX, long),
        ] {
            assert_eq!(pause_before(free).as_millis(), pause.as_millis(), "{free}");
        }
    }

    #[test]
    fn files_in_memory_count_once_although_nobody_maps_them() {
        use rustix::fs::{MemfdFlags, memfd_create};

        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let _second = file.try_clone().unwrap();
        (&file).write_all(&vec![1; 64 << 20]).unwrap();
        let mut files = HashMap::new();
        count_memory_files(getpid(), &mut files);
        // Other tests of this process may have some, too.
        let found = rustix::fs::fstat(&file).unwrap();
        assert!(files.contains_key(&(found.st_dev, found.st_ino)));
        let bytes: u64 = files.values().sum();
        assert!((64 << 20..128 << 20).contains(&bytes), "{bytes}");
        let unnamed = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(&unnamed).unwrap();
        assert!(!files.contains_key(&(found.st_dev, found.st_ino)));
    }
}
