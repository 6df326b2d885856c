//! The floor program gives a lower bound for the agent's figures: it reads the same stream of
//! deltas, parses only the text of each delta and writes the same notifications. It runs as a
//! separate process, `process --floor HOST:PORT`, so that it is measured in the same way as the
//! agent. A line on stdin is a prompt, and the line `{"done":true}` ends the output for it.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use turnwright_llm::sse::Decoder;

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: Params<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: &'a str,
    update: Update<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    session_update: &'static str,
    content: Content<'a>,
    message_id: &'a str,
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// Runs the floor program until stdin ends.
pub(crate) fn run(address: &str) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, &stream);
    let mut output = BufWriter::with_capacity(64 * 1024, io::stdout());
    for prompt in io::stdin().lock().lines() {
        let message = json!({ "role": "user", "content": prompt? });
        let body = json!({ "messages": [message] }).to_string();
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
        (&stream).write_all((head + &body).as_bytes())?;
        while !read_line(&mut reader)?.is_empty() {}
        forward_stream(&mut reader, &mut output)?;
        output.write_all(b"{\"done\":true}\n")?;
        output.flush()?;
    }
    Ok(())
}

/// Writes a notification for each delta of a response body.
fn forward_stream(reader: &mut BufReader<&TcpStream>, output: &mut impl Write) -> io::Result<()> {
    let mut decoder = Decoder::default();
    let mut bytes = Vec::new();
    loop {
        let size = usize::from_str_radix(&read_line(reader)?, 16).map_err(io::Error::other)?;
        bytes.resize(size + 2, 0);
        reader.read_exact(&mut bytes)?;
        if size == 0 {
            return Ok(());
        }
        let mut result = Ok(());
        let pushed = decoder.push(&bytes[..size], |event| {
            if event.data != "[DONE]" && result.is_ok() {
                result = write_update(event.data, output);
            }
        });
        result?;
        pushed.map_err(io::Error::other)?;
        // Flushes before a read that may block, so that no notification waits for the next delta.
        if reader.buffer().is_empty() {
            output.flush()?;
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn write_update(data: &str, output: &mut impl Write) -> io::Result<()> {
    let chunk: Chunk = serde_json::from_str(data)?;
    let Some(text) = chunk.choices.first().and_then(|it| it.delta.content.as_ref()) else {
        return Ok(());
    };
    let content = Content { r#type: "text", text };
    let session_update = "agent_message_chunk";
    let update = Update { session_update, content, message_id: "msg-1" };
    let params = Params { session_id: "0b7f2c52-1f6d-4a4e-9a3d-2f2b8c1f0d11", update };
    let notification = Notification { jsonrpc: "2.0", method: "session/update", params };
    serde_json::to_writer(&mut *output, &notification)?;
    output.write_all(b"\n")
}

/// The floor program, running as a child process.
#[derive(Debug)]
pub(crate) struct Floor {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Floor {
    pub(crate) fn start(address: &str) -> io::Result<Floor> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--floor", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("no stdin"))?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        Ok(Floor { child, stdin, stdout: BufReader::new(stdout) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a whole prompt. Returns the time right before it was written.
    pub(crate) fn turn(&mut self, prompt: &str) -> io::Result<Instant> {
        let begun = Instant::now();
        self.stdin.write_all(format!("{prompt}\n").as_bytes())?;
        self.wait_for("{\"done\"")?;
        Ok(begun)
    }

    /// Runs a whole prompt. Returns the time when its first notification was read.
    pub(crate) fn first_update(&mut self, prompt: &str) -> io::Result<Instant> {
        self.stdin.write_all(format!("{prompt}\n").as_bytes())?;
        self.wait_for("{\"jsonrpc\"")?;
        let seen = Instant::now();
        self.wait_for("{\"done\"")?;
        Ok(seen)
    }

    fn wait_for(&mut self, start: &str) -> io::Result<()> {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the floor program exited"));
            }
        }
        Ok(())
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
