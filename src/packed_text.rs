//! Long texts that few commands need. `build.rs` compresses them, which makes the program 95 KB smaller.

use std::io::Read;

use flate2::read::ZlibDecoder;

#[derive(Clone, Copy)]
pub(crate) struct PackedText(&'static [u8]);

impl PackedText {
    /// For a file that `build.rs` has made.
    pub(crate) const fn new(zlib: &'static [u8]) -> PackedText {
        PackedText(zlib)
    }

    pub(crate) fn unpack(self) -> String {
        let mut text = String::new();
        // A test reads each of them.
        match ZlibDecoder::new(self.0).read_to_string(&mut text) {
            Ok(_) => text,
            Err(_) => String::new(),
        }
    }
}
