//! What the fuzzers call of the things that are private otherwise. Nothing of the program uses it.

use super::{Form, form};

/// The text of a file, if it is one, and how it is written in bytes.
pub fn decode(bytes: Vec<u8>) -> Option<(String, Form)> {
    form::decode(bytes)
}

/// Lines for reading only.
pub fn decode_lines(lines: &[Vec<u8>]) -> Vec<String> {
    form::decode_lines(lines)
}
