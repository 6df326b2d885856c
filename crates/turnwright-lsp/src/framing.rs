//! The frames of the protocol: a header with the length of a message, an empty line, and the message. Lines that are
//! not headers, such as logs, are skipped, and so are messages that are too long.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// The longest message that is read, because parsing may take a hundred times as much memory, and the longest that is
/// skipped. A server that announces a longer one is taken for broken.
const MAX_MESSAGE_BYTES: usize = 2 * 1024 * 1024;
const MAX_SKIPPED_BYTES: usize = 256 * 1024 * 1024;
/// The number of other bytes after which the program is taken for something other than a language server.
const MAX_OTHER_BYTES: usize = 1024 * 1024;

/// Puts a message into a frame.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = format!("Content-Length: {}\r\n\r\n", message.len()).into_bytes();
    frame.extend_from_slice(message);
    frame
}

/// Reads the messages that a server prints.
pub(crate) struct FrameReader<R>(BufReader<R>);

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(output: R) -> FrameReader<R> {
        FrameReader(BufReader::new(output))
    }

    /// Reads the next message. Returns `None` when the server has closed its output.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let Some(length) = self.next_length().await? {
            if length <= MAX_MESSAGE_BYTES {
                let mut message = vec![0; length];
                self.0.read_exact(&mut message).await?;
                return Ok(Some(message));
            }
            let mut rest = (&mut self.0).take(length as u64);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        }
        Ok(None)
    }

    /// Reads up to the beginning of a message. Returns its length.
    async fn next_length(&mut self) -> io::Result<Option<usize>> {
        let mut head = (&mut self.0).take(MAX_OTHER_BYTES as u64);
        let mut line = Vec::new();
        let mut length = None;
        while head.read_until(b'\n', &mut line).await? > 0 {
            match (line.trim_ascii(), length) {
                (b"", Some(found)) if found > MAX_SKIPPED_BYTES => {
                    return Err(io::Error::other("it announces a message of an absurd length"));
                }
                (b"", Some(_)) => return Ok(length),
                (other, _) => length = header_length(other).or(length),
            }
            line.clear();
        }
        if head.limit() == 0 {
            return Err(io::Error::other("it prints other things than messages"));
        }
        Ok(None)
    }
}

fn header_length(line: &[u8]) -> Option<usize> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    let is_length = name.trim().eq_ignore_ascii_case("content-length");
    value.trim().parse().ok().filter(|_| is_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn messages(output: &[u8]) -> (Vec<String>, bool) {
        let mut reader = FrameReader::new(output);
        let mut found = Vec::new();
        loop {
            match reader.next().await {
                Ok(Some(message)) => found.push(String::from_utf8(message).unwrap()),
                end => return (found, end.is_ok()),
            }
        }
    }

    #[tokio::test]
    async fn messages_are_found_between_everything_else() {
        let two = [frame(b"{}"), frame("\"ä\"".as_bytes())].concat();
        let long = MAX_MESSAGE_BYTES + 1;
        let skipped =
            [format!("Content-Length: {long}\r\n\r\n").as_bytes(), &vec![b'x'; long], &two]
                .concat();
        let table: [(&[u8], &[&str], bool); 9] = [
            (&two, &["{}", "\"ä\""], true),
            (b"content-length: 2\nContent-Type: x\n\n{}", &["{}"], true),
            (b"log: starting\n\nContent-Length: 2\r\n\r\n{}", &["{}"], true),
            (b"Content-Length: -1\r\n\r\nContent-Length: 2\r\n\r\n{}", &["{}"], true),
            (&skipped, &["{}", "\"ä\""], true),
            (b"Content-Length: 9\r\n\r\n{}", &[], false),
            (b"Content-Length: 2000000000\r\n\r\n{}", &[], false),
            (&vec![b'\n'; MAX_OTHER_BYTES + 2], &[], false),
            (&vec![b'x'; MAX_OTHER_BYTES * 2], &[], false),
        ];
        for (number, (output, expected, is_ok)) in table.iter().enumerate() {
            let (found, ended_well) = messages(output).await;
            assert_eq!(found, *expected, "{number}");
            assert_eq!(ended_well, *is_ok, "{number}");
        }
    }
}
