//! Waits for processes, their output and their connections, with a limit for each wait. If the
//! limit passes, the test fails with a report of what the process was doing, and the process is
//! killed. Without a limit, a test that hangs would report nothing and would keep later tests from
//! running.

use std::io::{self, Read, Write};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::process_report::{describe, give_up, processes_of_this_run};

/// The limit of a wait. It is far longer than any wait in these tests takes, even on a busy
/// machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Runs a command with an empty stdin and returns its status and output.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(wait_with_output(command.spawn()?))
}

/// Runs a command with an empty stdin and returns its status. Its output goes to the terminal.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    status_within(command, LIMIT)
}

/// Runs a command like [`status`], with another limit.
pub fn status_within(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    Ok(wait_within(&mut command.stdin(Stdio::null()).spawn()?, limit))
}

/// Closes the process's stdin and waits for its end.
pub fn wait(child: &mut Child) -> ExitStatus {
    wait_within(child, LIMIT)
}

fn wait_within(child: &mut Child, limit: Duration) -> ExitStatus {
    drop(child.stdin.take());
    let status = poll_until(limit, || child.try_wait().unwrap());
    status.unwrap_or_else(|| give_up(child.id(), "it keeps running"))
}

/// Polls until there is a value or the time limit has passed.
fn poll_until<T>(limit: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let value = poll();
        if value.is_some() || Instant::now() > end {
            return value;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Closes the process's stdin, and reads its output until every process that holds it open has ended.
pub fn wait_with_output(mut child: Child) -> Output {
    drop(child.stdin.take());
    let (stdout, stderr) = (child.stdout.take().map(reading), child.stderr.take().map(reading));
    let status = wait(&mut child);
    let read = |source: Option<Receiver<Vec<u8>>>| {
        let bytes = source.map_or(Ok(Vec::new()), |it| it.recv_timeout(LIMIT));
        bytes.unwrap_or_else(|_| {
            let processes = processes_of_this_run().map(describe).collect::<String>();
            panic!("the process has ended ({status}), but one of these holds its output open:\n{processes}")
        })
    };
    Output { status, stdout: read(stdout), stderr: read(stderr) }
}

/// Kills a process and waits for its end. Never fails, because it is used to clean up.
pub fn kill(child: &mut Child) {
    child.kill().ok();
    if poll_until(LIMIT, || child.try_wait().transpose()).is_none() {
        eprintln!("the process was killed but does not end: {}", describe(child.id()));
    }
}

/// Returns everything that a process writes to `source` until the end of the stream. A read error
/// also counts as the end.
pub fn all_of(source: impl Read + Send + 'static, process: &Child) -> Vec<u8> {
    let bytes = reading(source).recv_timeout(LIMIT);
    bytes.unwrap_or_else(|_| give_up(process.id(), "its output does not end"))
}

/// Accepts a connection from this process.
#[cfg(unix)]
pub fn accept(listener: &UnixListener, process: &Child) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let connection = poll_until(LIMIT, || match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        accepted => Some(accepted.unwrap().0),
    });
    let connection = connection.unwrap_or_else(|| give_up(process.id(), "it does not connect"));
    connection.set_nonblocking(false).unwrap();
    connection
}

/// Reads a stream to its end on a thread. A read error also counts as the end.
pub fn reading(mut source: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).ok();
        sender.send(bytes).ok();
    });
    receiver
}

/// The write end of a pipe whose reader may have stopped reading. A thread writes to the pipe.
/// Dropping this value closes the pipe.
pub struct Input {
    /// The process that reads from the pipe, or `None` if this process reads from it.
    process: Option<u32>,
    bytes: Sender<Vec<u8>>,
    written: Receiver<io::Result<()>>,
}

impl Input {
    /// Returns the stdin of a process.
    pub fn of(child: &mut Child) -> Input {
        let stdin = child.stdin.take().expect("the child's stdin must be a pipe");
        Input { process: Some(child.id()), ..Input::to(stdin) }
    }

    /// Wraps a pipe that this process reads from.
    pub fn to(mut pipe: impl Write + Send + 'static) -> Input {
        let (bytes, requested) = channel::<Vec<u8>>();
        let (done, written) = channel();
        thread::spawn(move || {
            while let Ok(bytes) = requested.recv() {
                if done.send(pipe.write_all(&bytes)).is_err() {
                    break;
                }
            }
        });
        Input { process: None, bytes, written }
    }

    /// Writes all bytes, and returns when they are in the pipe.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.send(bytes.to_vec()).expect("the thread lives as long as this value");
        self.written.recv_timeout(LIMIT).unwrap_or_else(|_| match self.process {
            Some(process) => give_up(process, "it does not read its stdin"),
            None => panic!("the agent does not read its input"),
        })
    }
}
