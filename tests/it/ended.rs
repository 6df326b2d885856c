//! Waits that have an end: for a process, for what it prints, for what comes through a socket. What
//! does not end within the limit is told with all that it is doing, and killed, and the test fails.
//! A test that hangs says nothing, and nobody hears of those that come after it.
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "some of it is for the tests of Linux only")
)]

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::{eventually, is_alive, run_mark};

/// Far more than anything here takes, also on a machine that has much else to do.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Runs it to its end, with nothing on its stdin, and returns what it has printed.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(wait_with_output(command.spawn()?))
}

/// The same where only its status is asked for; what it prints is for who looks at the tests.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    status_within(command, LIMIT)
}

/// The same for what takes longer.
pub fn status_within(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    Ok(wait_within(&mut command.stdin(Stdio::null()).spawn()?, limit))
}

/// Closes its stdin and waits for its end.
pub fn wait(child: &mut Child) -> ExitStatus {
    wait_within(child, LIMIT)
}

fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    drop(child.stdin.take());
    until(limit, || child.try_wait().unwrap()).unwrap_or_else(|| give_up(child.id(), "it runs on"))
}

/// Asks again and again, until there is something or the time is over.
fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() > end {
            return answer;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Closes its stdin, and takes what it prints until all who could print have ended.
pub fn wait_with_output(child: Child) -> Output {
    output_within(child, LIMIT)
}

fn output_within(mut child: Child, limit: Duration) -> Output {
    drop(child.stdin.take());
    let (stdout, stderr) = (child.stdout.take().map(reading), child.stderr.take().map(reading));
    let status = wait(&mut child);
    let all = |it: Option<Receiver<Vec<u8>>>| {
        it.map_or(Ok(Vec::new()), |it| it.recv_timeout(limit)).unwrap_or_else(|_| {
            let ours = of_this_run().map(told).collect::<String>();
            panic!("it has ended ({status}), and one of these holds what it printed to:\n{ours}")
        })
    };
    Output { status, stdout: all(stdout), stderr: all(stderr) }
}

/// Kills it and waits for its end. Does not fail: it is for those who clean up.
pub fn kill(child: &mut Child) {
    child.kill().ok();
    if until(LIMIT, || child.try_wait().transpose()).is_none() {
        eprintln!("was killed and does not end: {}", told(child.id()));
    }
}

/// Everything until the end, of what this process prints or says. Whatever comes before an error
/// counts.
pub fn all_of(source: impl Read + Send + 'static, process: &Child) -> Vec<u8> {
    let all = reading(source).recv_timeout(LIMIT);
    all.unwrap_or_else(|_| give_up(process.id(), "what it says has no end"))
}

/// The call of this process.
pub fn accept(listener: &UnixListener, process: &Child) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let call = until(LIMIT, || match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        accepted => Some(accepted.unwrap().0),
    });
    let call = call.unwrap_or_else(|| give_up(process.id(), "it does not call"));
    call.set_nonblocking(false).unwrap();
    call
}

/// Reads to the end, somewhere else.
pub fn reading(mut source: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).ok();
        sender.send(bytes).ok();
    });
    receiver
}

/// The stdin of a process that may have ceased to read it. Dropping this closes it.
pub struct Input {
    process: u32,
    bytes: Sender<Vec<u8>>,
    written: Receiver<io::Result<()>>,
}

impl Input {
    pub fn of(child: &mut Child) -> Input {
        let (bytes, wanted) = channel::<Vec<u8>>();
        let (done, written) = channel();
        let mut stdin = child.stdin.take().expect("its stdin is a pipe");
        thread::spawn(move || {
            while let Ok(bytes) = wanted.recv() {
                if done.send(stdin.write_all(&bytes)).is_err() {
                    break;
                }
            }
        });
        Input { process: child.id(), bytes, written }
    }

    /// Returns when all of it is in the pipe.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.send(bytes.to_vec()).expect("the writer lives as long as we do");
        let written = self.written.recv_timeout(LIMIT);
        written.unwrap_or_else(|_| give_up(self.process, "it does not read"))
    }
}

/// Fails, with all that can be known about a process and those that it has started, which are killed.
pub fn give_up(process: u32, why: &str) -> ! {
    let all = with_descendants(process);
    let told: String = all.iter().map(|it| told(*it)).collect();
    for it in &all {
        let id = i32::try_from(*it).ok().and_then(rustix::process::Pid::from_raw);
        // It may have ended in the meantime.
        id.map(|it| rustix::process::kill_process(it, rustix::process::Signal::KILL));
    }
    panic!("waited for process {process} in vain, {why}:\n{told}");
}

fn read(process: u32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

fn of_this_run() -> impl Iterator<Item = u32> {
    let (name, value) = run_mark();
    let mark = format!("{name}={value} ");
    all_processes().filter(move |it| read(*it, "environ").contains(&mark))
}

/// A process and what it has started and has not lost, the parents first.
fn with_descendants(process: u32) -> Vec<u32> {
    let parent = |it: u32| read(it, "stat").rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok();
    let family: Vec<(u32, Option<u32>)> = all_processes().map(|it| (it, parent(it))).collect();
    let mut all = vec![process];
    let mut place = 0;
    while let Some(above) = all.get(place).copied() {
        all.extend(family.iter().filter(|it| it.1 == Some(above)).map(|it| it.0));
        place += 1;
    }
    all
}

/// What is seen of a process from outside. What the system does not show is left out.
fn told(process: u32) -> String {
    let status = read(process, "status");
    let of_interest = ["State:", "PPid:", "Threads:", "SigBlk:", "SigIgn:", "Seccomp:"];
    let facts = status.lines().filter(|it| of_interest.iter().any(|word| it.starts_with(word)));
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

/// What a test says that fails.
#[cfg(target_os = "linux")]
fn failure(test: impl FnOnce()) -> String {
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).unwrap_err();
    *failed.downcast::<String>().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn what_does_not_end_is_told_with_all_that_it_has_started_and_killed() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 609.1 & wait"]).envs([run_mark()]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    eventually("it runs", || is_alive("sleep\x00609.1"));
    let said = failure(|| {
        wait_within(&mut child, Duration::ZERO);
    });
    assert!(said.contains("sh -c sleep 609.1 & wait") && said.contains(": sleep 609.1"), "{said}");
    eventually("all of it is gone", || !is_alive("sleep\x00609.1"));
    wait(&mut child);
}

#[cfg(target_os = "linux")]
#[test]
fn who_holds_the_output_of_what_has_ended_is_told() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 609.2 & echo $! >&2"]).envs([run_mark()]).stdout(Stdio::piped());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let number = child.stderr.take().unwrap();
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(number), &mut line).unwrap();
    eventually("it runs", || is_alive("sleep\x00609.2"));
    let said = failure(|| drop(output_within(child, Duration::from_millis(1))));
    assert!(said.contains(": sleep 609.2"), "{said}");
    let id = line.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.unwrap(), rustix::process::Signal::KILL).unwrap();
}
