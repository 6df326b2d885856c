//! Runs the agent on a thread of the test, with pipes like those of a process.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
#[cfg(unix)]
use std::os::fd::OwnedFd as OwnedEnd;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedEnd;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use super::{AgentPipes, EXIT_LIMIT, Launch, Transport, read_messages};
use crate::process_waits::Input;

/// The stack size of a program's main thread on Linux. An agent in a process runs on such a stack.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// The agent's code. Only the root package's integration tests can name it.
pub trait InProcessServer: 'static {
    /// Serves a client until its end of `input` is closed. The agent must read only these
    /// variables, not the environment of the test.
    fn serve(
        home: &Path,
        variables: &[(String, String)],
        input: File,
        output: File,
    ) -> io::Result<()>;
}

/// An agent on a thread of the test. It must not run commands, because their watchdog and their
/// marks belong to a process.
pub struct ThreadAgent<S> {
    ended: Receiver<io::Result<()>>,
    server: PhantomData<S>,
}

impl<S: InProcessServer> Transport for ThreadAgent<S> {
    type Ended = ();

    fn start(launch: &Launch) -> (Self, AgentPipes) {
        let (agent_input, stdin) = io::pipe().unwrap();
        let (stdout, agent_output) = io::pipe().unwrap();
        let (sender, ended) = channel();
        let launch = launch.clone();
        let serve = move || {
            let input = File::from(OwnedEnd::from(agent_input));
            let output = File::from(OwnedEnd::from(agent_output));
            let result = S::serve(&launch.home, &launch.variables, input, output);
            // If the test has failed, the receiver may be gone.
            sender.send(result).ok();
        };
        let builder = thread::Builder::new().name("agent".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(serve).unwrap();
        let pipes = AgentPipes { stdin: Input::to(stdin), messages: read_messages(stdout) };
        (ThreadAgent { ended, server: PhantomData }, pipes)
    }

    fn wait_for_end(&mut self) {
        match self.ended.recv_timeout(EXIT_LIMIT) {
            Ok(result) => result.expect("the agent must end without an error"),
            Err(RecvTimeoutError::Timeout) => panic!("the agent does not end"),
            Err(RecvTimeoutError::Disconnected) => panic!("the agent has panicked"),
        }
    }

    fn check_end((): (), _allows_stderr: bool) {}

    fn abandon(&mut self) {}
}
