//! Describes processes from the outside. A description is part of the panic message when a test
//! has waited for a process in vain.

use crate::waits::{eventually, run_mark};

/// Kills a process and its descendants, and panics with a description of them.
pub fn give_up(process: u32, why: &str) -> ! {
    let all = with_descendants(process);
    let report: String = all.iter().map(|it| describe(*it)).collect();
    for process in &all {
        // The process may have ended in the meantime.
        kill(*process).ok();
    }
    panic!("waited for process {process} in vain, {why}:\n{report}");
}

#[cfg(unix)]
pub(crate) fn kill(process: u32) -> std::io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    Ok(kill_process(id.ok_or(std::io::ErrorKind::InvalidInput)?, Signal::KILL)?)
}

/// Kills a process and its descendants.
#[cfg(windows)]
pub(crate) fn kill(process: u32) -> std::io::Result<()> {
    let mut command = std::process::Command::new("taskkill");
    command.args(["/f", "/t", "/pid", &process.to_string()]).status().map(drop)
}

/// The peak memory of a process, in bytes; 0 where the system does not tell it as Linux does.
pub fn peak_memory(process: u32) -> u64 {
    if cfg!(not(target_os = "linux")) {
        return 0;
    }
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Waits until a process uses no processor time, and none of its threads waits for a processor, which means
/// that it waits for its reader. One without bounds would have taken in all data by then. Only Linux tells;
/// elsewhere this is a pause.
pub fn wait_until_idle(process: u32) {
    // The times and the states of all threads.
    let state = || {
        if cfg!(not(target_os = "linux")) {
            return Vec::new();
        }
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let stats = threads.filter_map(|it| {
            let stat = std::fs::read_to_string(it.unwrap().path().join("stat")).ok()?;
            Some(stat.rsplit_once(") ")?.1.to_owned())
        });
        let facts = |stat: String| {
            let fields: Vec<_> = stat.split(' ').collect();
            (fields[0] == "S", fields[11].to_owned(), fields[12].to_owned())
        };
        stats.map(facts).collect::<Vec<_>>()
    };
    // Looks are counted, since time passes while this machine is stopped, too.
    let (mut last, mut looks) = (state(), 0);
    eventually("the process is idle", || {
        let now = state();
        let is_idle = now == last && now.iter().all(|it| it.0);
        looks = if is_idle { looks + 1 } else { 0 };
        last = now;
        looks > 80
    });
}

/// Returns the processes whose environment has the mark of this test run.
pub(crate) fn processes_of_this_run() -> impl Iterator<Item = u32> {
    let (name, value) = run_mark();
    let mark = format!("{name}={value} ");
    all_processes().filter(move |it| read(*it, "environ").contains(&mark))
}

/// Describes a process: its command line, state, threads and open files.
pub(crate) fn describe(process: u32) -> String {
    let status = read(process, "status");
    let shown_fields = ["State:", "PPid:", "Threads:", "SigBlk:", "SigIgn:", "Seccomp:"];
    let facts = status.lines().filter(|it| shown_fields.iter().any(|word| it.starts_with(word)));
    let mut lines = vec![format!("process {process}: {}", read(process, "cmdline"))];
    lines.extend(facts.map(str::to_owned));
    let entries = |folder: &str| {
        std::fs::read_dir(format!("/proc/{process}/{folder}")).into_iter().flatten().flatten()
    };
    for thread in entries("task") {
        let name = thread.file_name().to_string_lossy().into_owned();
        let of = |file: &str| read(process, &format!("task/{name}/{file}")).trim().to_owned();
        lines.push(format!("thread {name} {}: {} {}", of("comm"), of("wchan"), of("syscall")));
        lines.push(of("stack"));
    }
    for file in entries("fd") {
        let target = std::fs::read_link(file.path()).unwrap_or_default();
        lines.push(format!("{} → {}", file.file_name().to_string_lossy(), target.display()));
    }
    lines.retain(|it| !it.is_empty());
    lines.join("\n    ") + "\n"
}

fn read(process: u32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

pub(crate) fn all_processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// Returns a process and its descendants, parents first. Descendants that were re-parented are
/// missing.
fn with_descendants(process: u32) -> Vec<u32> {
    let parent = |it: u32| read(it, "stat").rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok();
    let parents: Vec<(u32, Option<u32>)> = all_processes().map(|it| (it, parent(it))).collect();
    let mut all = vec![process];
    let mut next = 0;
    while let Some(ancestor) = all.get(next).copied() {
        all.extend(parents.iter().filter(|it| it.1 == Some(ancestor)).map(|it| it.0));
        next += 1;
    }
    all
}
