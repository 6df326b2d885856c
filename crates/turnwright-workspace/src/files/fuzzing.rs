//! Private functions of this module for the fuzz targets. The program does not use them.

use super::{TextEncoding, encoding};

/// Decodes the bytes of a text file; `None` if they are not text.
pub fn decode(bytes: Vec<u8>) -> Option<(String, TextEncoding)> {
    encoding::decode(bytes)
}

/// Decodes some lines for display.
pub fn decode_lines(lines: &[Vec<u8>]) -> Vec<String> {
    encoding::decode_lines(lines)
}
