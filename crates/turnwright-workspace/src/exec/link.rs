//! The line between the agent and the launcher in the editor's terminal: frames over a Unix
//! socket, a byte for the sort, four for the length, then the content.

use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::started::{Exit, Leftover, Signal};
use turnwright_sandbox::Profile;

/// Bytes of one frame. Whatever says that it is longer is no launcher of ours.
const LONGEST: usize = 1024 * 1024;
/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;

/// What one side tells the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// To the launcher: begin, and keep the command to this.
    Run(Option<Box<Profile>>),
    /// To the launcher: pass this signal on.
    Signal(Signal),
    /// To the launcher: end the command, which has this long to clean up.
    Stop(Duration),
    /// To the launcher: the command is to read this.
    Input(Vec<u8>),
    /// From the launcher: the command has printed this.
    Output(Vec<u8>),
    /// From the launcher: the command has ended, and this was the last of its output.
    Exit(Exit, Leftover),
}

/// What has happened on the line.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// Something was said.
    Frame(Frame),
    /// All that was to be said has been taken.
    Drained,
    /// The other side has gone.
    End,
}

/// One end of the line.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Link {
        Link { stream, incoming: Vec::new(), outgoing: Vec::new() }
    }

    /// Says something. It goes out now if the line is free, else with the next wait.
    pub(super) fn say(&mut self, frame: &Frame) {
        encode(frame, &mut self.outgoing);
        // What is wrong with the line is found out by the next wait.
        drop(self.write());
    }

    /// Bytes that have not been taken yet.
    pub(super) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Waits for the next event. Safe to cancel.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(frame) = decode(&mut self.incoming)? {
                return Ok(Event::Frame(frame));
            }
            let interest = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await?;
            if ready.is_readable() && !self.read()? {
                return Ok(Event::End);
            }
            if ready.is_writable() && !self.outgoing.is_empty() {
                self.write()?;
                if self.outgoing.is_empty() {
                    return Ok(Event::Drained);
                }
            }
        }
    }

    /// Waits until all that was said has been taken. Safe to cancel.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            self.stream.writable().await?;
            self.write()?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<bool> {
        let begun = self.incoming.len();
        self.incoming.resize(begun + PIECE, 0);
        let read = self.stream.try_read(&mut self.incoming[begun..]);
        self.incoming.truncate(begun + read.as_ref().map_or(0, |it| *it));
        match read {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn encode(frame: &Frame, bytes: &mut Vec<u8>) {
    let (number, words, profile);
    let (sort, content): (u8, &[u8]) = match frame {
        Frame::Run(None) => (b'r', &[]),
        Frame::Run(Some(jail)) => {
            // A profile is plain data. If it were not, no launcher would take this for one.
            profile = serde_json::to_vec(jail).unwrap_or_else(|_| b"?".to_vec());
            (b'r', &profile)
        }
        Frame::Signal(Signal::Int) => (b's', b"i"),
        Frame::Signal(Signal::Term) => (b's', b"t"),
        Frame::Signal(Signal::Kill) => (b's', b"k"),
        Frame::Stop(grace) => {
            number = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
            (b'e', &number)
        }
        Frame::Input(bytes) => (b'i', bytes),
        Frame::Output(bytes) => (b'o', bytes),
        Frame::Exit(exit, leftover) => {
            words = said(exit, *leftover);
            (b'x', &words)
        }
    };
    bytes.push(sort);
    bytes.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(content);
}

/// Takes the first frame, if it is complete.
fn decode(bytes: &mut Vec<u8>) -> io::Result<Option<Frame>> {
    let Some((head, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let [sort, length @ ..] = *head;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(nonsense());
    }
    let Some(content) = rest.get(..length) else { return Ok(None) };
    let frame = match (sort, content) {
        (b'r', []) => Frame::Run(None),
        (b'r', profile) => Frame::Run(Some(serde_json::from_slice(profile)?)),
        (b's', b"i") => Frame::Signal(Signal::Int),
        (b's', b"t") => Frame::Signal(Signal::Term),
        (b's', b"k") => Frame::Signal(Signal::Kill),
        (b'e', _) => {
            let number = content.try_into().map(u32::from_le_bytes).map_err(|_| nonsense())?;
            Frame::Stop(Duration::from_millis(u64::from(number)))
        }
        (b'i', bytes) => Frame::Input(bytes.to_vec()),
        (b'o', bytes) => Frame::Output(bytes.to_vec()),
        (b'x', words) => {
            let (exit, leftover) = heard(words).ok_or_else(nonsense)?;
            Frame::Exit(exit, leftover)
        }
        _ => return Err(nonsense()),
    };
    bytes.drain(..5 + length);
    Ok(Some(frame))
}

/// How a command has ended, and whether something was left: a letter each, then the rest.
fn said(exit: &Exit, leftover: Leftover) -> Vec<u8> {
    let sort = match exit {
        Exit::Code(_) => 'c',
        Exit::Signal(_) => 'k',
        Exit::Closed => 'h',
        Exit::Unknown => 'u',
    };
    let left = if leftover == Leftover::Nothing { '-' } else { '+' };
    let rest = match exit {
        Exit::Code(code) => code.to_string(),
        Exit::Signal(name) => name.clone(),
        Exit::Closed | Exit::Unknown => String::new(),
    };
    format!("{sort}{left}{rest}").into_bytes()
}

fn heard(words: &[u8]) -> Option<(Exit, Leftover)> {
    let [sort, left, rest @ ..] = words else { return None };
    let rest = std::str::from_utf8(rest).ok()?;
    let exit = match sort {
        b'c' => Exit::Code(rest.parse().ok()?),
        b'k' => Exit::Signal(rest.to_owned()),
        b'h' => Exit::Closed,
        b'u' => Exit::Unknown,
        _ => return None,
    };
    let leftover = if *left == b'-' { Leftover::Nothing } else { Leftover::Stopped };
    Some((exit, leftover))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "nonsense on the launcher's line")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_sandbox::Network;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let frames = [
            Frame::Run(None),
            Frame::Run(Some(Box::new(Profile { network: Network::On, ..Profile::default() }))),
            Frame::Signal(Signal::Term),
            Frame::Stop(Duration::from_millis(200)),
            Frame::Input(b"yes\n".to_vec()),
            Frame::Output(vec![0, 255, 10]),
            Frame::Output(Vec::new()),
            Frame::Exit(Exit::Code(-3), Leftover::Nothing),
            Frame::Exit(Exit::Signal("SIGKILL".to_owned()), Leftover::Stopped),
            Frame::Exit(Exit::Closed, Leftover::Stopped),
            Frame::Exit(Exit::Unknown, Leftover::Nothing),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            encode(frame, &mut bytes);
        }
        let (mut incoming, mut found) = (Vec::new(), Vec::new());
        for byte in bytes {
            incoming.push(byte);
            found.extend(decode(&mut incoming).unwrap());
        }
        assert_eq!(found, frames);
        assert!(incoming.is_empty());
    }

    #[test]
    fn what_no_launcher_says_is_an_error_and_costs_no_memory() {
        for bytes in [
            &b"x\0\0\0\0"[..],
            b"o\xff\xff\xff\xff",
            b"x\x03\0\0\0c-a",
            b"s\x01\0\0\0z",
            b"r\x01\0\0\0?",
        ] {
            assert!(decode(&mut bytes.to_vec()).is_err(), "{bytes:?}");
        }
        assert_eq!(decode(&mut b"o\x05\0\0\0abc".to_vec()).unwrap(), None);
    }
}
