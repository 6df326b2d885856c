//! Lines that are too long or too broken to be parsed. Their beginning and their end tell whom to answer.

use std::collections::HashMap;
use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{ParsedLine, RequestId, RpcError, RpcMessage, rejected_line};
use super::stdio::MAX_LINE_BYTES;

/// The most bytes of the end of a line that are kept.
const KEPT_END: usize = 1024;

/// The number of copies of a message while it is parsed, stored and passed on.
const COPIES: usize = 5;

/// Messages up to this size are accepted without checking the memory.
const SMALL: usize = 1024 * 1024;

/// The facts about a line that is too long, or for which there is no memory.
#[derive(Debug, Default)]
pub struct LongLine {
    pub id: Option<RequestId>,
    is_response: bool,
    lacks_memory: bool,
}

impl LongLine {
    /// Reads the facts from the beginning and the end of a line.
    pub fn of(beginning: &[u8], end: &[u8]) -> LongLine {
        let mut line = LongLine::default();
        // Nothing more can be read from where the line is cut off.
        line.read_members(beginning);
        line.id = line.id.or_else(|| id_at_end(end));
        line
    }

    fn read_members(&mut self, mut rest: &[u8]) -> Option<()> {
        take_mark(&mut rest, b'{')?;
        loop {
            let key: String = take_value(&mut rest)?;
            take_mark(&mut rest, b':')?;
            self.is_response |= key == "result" || key == "error";
            let value: &RawValue = take_value(&mut rest)?;
            if key == "id" {
                self.id = RequestId::parse(value);
            }
            take_mark(&mut rest, b',')?;
        }
    }

    /// Returns the message in place of the line: a request is refused, and an answer is an error.
    pub(super) fn parsed(self) -> ParsedLine {
        let error = if self.lacks_memory {
            RpcError::internal_error("There is not enough memory for the message".to_owned())
        } else {
            RpcError::invalid_request("the message is longer than 64 MiB")
        };
        match self {
            LongLine { id: Some(id), is_response: true, .. } => {
                ParsedLine::Message(RpcMessage::Response { id, result: Err(error) })
            }
            LongLine { id, .. } => rejected_line(id, error),
        }
    }

    /// Returns a short line that a peer refuses, or takes for an error, in place of this one.
    pub fn stand_in(&self) -> String {
        let what = "a line of more than 64 MiB";
        match (&self.id, self.is_response) {
            (Some(id), true) => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"{what}"}}}}"#
            ),
            (Some(id), false) => format!(r#"{{"jsonrpc":"2.0","id":{id},"params":["{what}"]}}"#),
            (None, _) => format!(r#""{what}""#),
        }
    }
}

/// Returns the id if nothing but the version follows it in the message.
fn id_at_end(end: &[u8]) -> Option<RequestId> {
    const KEY: &[u8] = b"\"id\"";
    let at = end.windows(KEY.len()).rposition(|part| part == KEY)?;
    let before = end[..at].trim_ascii_end();
    // Inside a string the quotes would be escaped.
    before.last().filter(|mark| b"{,".contains(mark))?;
    let last_members = [b"{", &end[at..]].concat();
    let members: HashMap<String, &RawValue> = serde_json::from_slice(&last_members).ok()?;
    let is_outer = members.keys().all(|key| key == "id" || key == "jsonrpc");
    members.get("id").filter(|_| is_outer).and_then(|id| RequestId::parse(id))
}

fn take_mark(rest: &mut &[u8], mark: u8) -> Option<()> {
    *rest = rest.trim_ascii_start().strip_prefix(&[mark])?;
    Some(())
}

fn take_value<'a, T: Deserialize<'a>>(rest: &mut &'a [u8]) -> Option<T> {
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<T>();
    let value = values.next()?.ok()?;
    *rest = rest.get(values.byte_offset()..)?;
    Some(value)
}

/// Appends the next line to an empty buffer, with its newline. Returns the facts about it if it is too long
/// or if there is no memory for it.
pub fn read_line(input: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<Option<LongLine>> {
    let mut end = Vec::new();
    let mut fits = true;
    let mut lacks_memory = false;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            available => available?,
        };
        let newline = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..newline.map_or(available.len(), |at| at + 1)];
        fits &= buffer.len() + part.len() <= MAX_LINE_BYTES;
        lacks_memory |= fits && buffer.try_reserve(part.len()).is_err();
        fits &= !lacks_memory;
        if fits {
            buffer.extend_from_slice(part);
        } else {
            end.extend_from_slice(part);
            end.drain(..end.len().saturating_sub(KEPT_END));
        }
        let length = part.len();
        input.consume(length);
        if newline.is_none() && length > 0 {
            continue;
        }
        lacks_memory |= fits && !has_memory(buffer.len());
        if fits && !lacks_memory {
            return Ok(None);
        }
        let end = if fits { buffer.as_slice() } else { &end };
        return Ok(Some(LongLine { lacks_memory, ..LongLine::of(buffer, end) }));
    }
}

/// Returns true if there is room for the copies of a message of this size: an allocation that fails later would
/// end the process.
fn has_memory(length: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let fits = length <= SMALL || room.try_reserve_exact(COPIES * length).is_ok();
    // Otherwise the compiler removes an allocation that is not used.
    std::hint::black_box(&mut room);
    fits
}
