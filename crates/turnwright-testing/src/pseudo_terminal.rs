//! A program on a pseudo-terminal, whose questions a test answers.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::process_waits::{self, LIMIT};
use crate::waits::eventually;

/// A running program whose stdin and stderr are a terminal.
pub struct PseudoTerminal {
    child: Child,
    /// The side of the test.
    controller: File,
    /// The side of the program.
    terminal: Option<File>,
    shown: Arc<Mutex<Vec<u8>>>,
    /// How much of `shown` has been waited for.
    waited_for: usize,
    /// The thread that reads what the program shows.
    reader: Option<JoinHandle<()>>,
}

impl PseudoTerminal {
    /// Starts a program.
    pub fn start(command: Command) -> PseudoTerminal {
        PseudoTerminal::start_with(command, None)
    }

    /// Starts a program whose stdout is the terminal as well, which has this many columns.
    pub fn start_on_screen(command: Command, columns: u16) -> PseudoTerminal {
        PseudoTerminal::start_with(command, Some(columns))
    }

    fn start_with(mut command: Command, columns: Option<u16>) -> PseudoTerminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        // Programs that other tests start do not inherit it.
        #[cfg(target_os = "linux")]
        let flags = flags | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let no_controlling_terminal = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(no_controlling_terminal);
        let terminal = options.open(name).unwrap();
        let controller = File::from(controller);
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let reader = thread::spawn({
            let (mut source, shown) = (controller.try_clone().unwrap(), Arc::clone(&shown));
            // Linux reports the end as an error.
            move || {
                let mut bytes = [0; 1024];
                while let Ok(count @ 1..) = source.read(&mut bytes) {
                    shown.lock().unwrap().extend_from_slice(&bytes[..count]);
                }
            }
        });
        command.stdin(terminal.try_clone().unwrap()).stderr(terminal.try_clone().unwrap());
        if let Some(columns) = columns {
            let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(&terminal, size).unwrap();
            command.stdout(terminal.try_clone().unwrap());
        }
        let child = command.spawn().unwrap();
        let (terminal, reader) = (Some(terminal), Some(reader));
        PseudoTerminal { child, controller, terminal, shown, waited_for: 0, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the text is shown, after everything that was waited for before.
    pub fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let shown = self.text();
            if let Some(at) = shown[self.waited_for..].find(text) {
                self.waited_for += at + text.len();
                return;
            }
            assert!(
                Instant::now() < end,
                "{text:?} is not shown after byte {}: {shown}",
                self.waited_for
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Types a text; `\n` is the Enter key.
    pub fn type_in(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a question and types the answer.
    pub fn answer(&mut self, question: &str, answer: &str) {
        self.wait_for(question);
        self.type_in(&format!("{answer}\n"));
    }

    /// Sends the signal of Ctrl-C. The terminal does not: it controls no process.
    pub fn interrupt(&self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.unwrap(), Signal::INT).unwrap();
    }

    /// Whether the terminal shows what is typed.
    pub fn echoes(&self) -> bool {
        tcgetattr(self.terminal.as_ref().unwrap()).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Sends SIGTERM to the program.
    pub fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits until the program has written the text and has ended. Returns its status and everything that was
    /// shown.
    pub fn wait_for_end(mut self, text: &str) -> (ExitStatus, String) {
        self.wait_for(text);
        let status = process_waits::wait(&mut self.child);
        assert!(self.echoes(), "the program has left the terminal without echo");
        // The thread reads the rest once no side of the program is open any more.
        drop(self.terminal.take());
        let reader = self.reader.take();
        eventually("the end of the terminal", || {
            reader.as_ref().is_none_or(JoinHandle::is_finished)
        });
        (status, self.text())
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        process_waits::kill(&mut self.child);
    }
}
