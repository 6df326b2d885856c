//! Starts and ends commands on Windows, where a job object holds all processes of one.

use std::ffi::OsString;
use std::io;
use std::os::windows::io::OwnedHandle;
use std::process::Stdio;
use std::time::Duration;

use turnwright_sandbox::Sandbox;

use super::command_process::CommandProcess;
use super::group::{READ_SIZE, base_command, configure_command};
use super::piped::{PipedProgram, ProcessPipes};
use super::process_mark::ProcessMark;
use super::running::Leftover;
use super::{CommandSpec, ProcessGroup};

impl ProcessGroup {
    #[expect(clippy::unused_async, reason = "it waits on other systems")]
    pub async fn start(spec: &CommandSpec) -> io::Result<ProcessGroup> {
        // There is no sandbox on Windows; this reports it.
        spec.sandbox.as_ref().map(Sandbox::prepare).transpose()?;
        let mark = ProcessMark::new();
        let shell = ["cmd", "/d", "/s", "/c"].map(OsString::from);
        let mut command = base_command(&shell, &spec.environment, &mark);
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
    pub(super) async fn start_piped(
        program: &PipedProgram,
    ) -> io::Result<(ProcessGroup, ProcessPipes)> {
        program.sandbox.as_ref().map(Sandbox::prepare).transpose()?;
        let mark = ProcessMark::new();
        let mut command = base_command(&program.command_line, &program.environment, &mark);
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

    /// A program of Windows cannot be asked to end.
    pub(super) async fn end_group(&mut self, grace: Duration) -> Leftover {
        // The job counts a program for an instant after its end.
        let has_ended = tokio::time::timeout(Duration::ZERO, self.process.wait()).await.is_ok();
        for _ in 0..if has_ended { 100 } else { 0 } {
            if !self.process.has_running_processes() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !self.process.has_running_processes() {
            return Leftover::None;
        }
        self.process.kill_all();
        tokio::time::timeout(grace, self.process.wait()).await.ok();
        Leftover::Stopped
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
