//! A text file with everything that must be preserved when a part of it is changed.

use super::FileError;
pub use super::encoding::TextEncoding;
use super::encoding::decode;
use turnwright_types::hash::sha256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// The text without a byte order mark; every line has its own line ending.
    pub text: String,
    /// How the text is encoded in bytes.
    pub encoding: TextEncoding,
    pub source: TextSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSource {
    Disk,
    /// The editor's buffer, which may have unsaved changes.
    Editor,
}

/// The line endings of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEndings {
    /// All lines end with a line feed, or there is only one line.
    Lf,
    /// All lines end with carriage return and line feed.
    Crlf,
    /// Both occur, or a lone carriage return does.
    Mixed,
}

/// The SHA-256 of a text. CRLF counts as LF: an editor shows each file with its own line endings,
/// and that is not a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl FileText {
    /// A text encoded in UTF-8.
    pub fn new(text: impl Into<String>, source: TextSource) -> FileText {
        FileText { text: text.into(), encoding: TextEncoding::default(), source }
    }

    /// Decodes bytes from the disk; `None` if they are not text.
    pub(super) fn decode(bytes: Vec<u8>) -> Option<FileText> {
        decode(bytes).map(|(text, encoding)| FileText { text, encoding, source: TextSource::Disk })
    }

    /// Encodes the text as it is stored on the disk.
    pub(super) fn encode(&self) -> Result<Vec<u8>, FileError> {
        let encoding = self.encoding.charset.name();
        self.encoding.encode(&self.text).map_err(|char| FileError::Unmappable { char, encoding })
    }

    pub fn hash(&self) -> ContentHash {
        if self.text.contains('\r') {
            ContentHash(sha256(self.text.replace("\r\n", "\n").as_bytes()))
        } else {
            ContentHash(sha256(self.text.as_bytes()))
        }
    }

    pub(crate) fn line_endings(&self) -> LineEndings {
        let bytes = self.text.as_bytes();
        let mut both = 0;
        for at in memchr::memchr_iter(b'\r', bytes) {
            if bytes.get(at + 1) != Some(&b'\n') {
                return LineEndings::Mixed;
            }
            both += 1;
        }
        if both == 0 {
            return LineEndings::Lf;
        }
        let all = memchr::memchr_iter(b'\n', bytes).count();
        if both == all { LineEndings::Crlf } else { LineEndings::Mixed }
    }

    /// Returns true if an editor could lose something of the file: it shows every text in UTF-8, without a
    /// byte order mark and with uniform line endings.
    pub(super) fn is_lossy_in_editor(&self) -> bool {
        self.encoding != TextEncoding::default() || self.line_endings() == LineEndings::Mixed
    }

    /// Adapts new text, written with line feeds, to the line endings of this file.
    pub fn with_file_line_endings(&self, new: &str) -> String {
        let new = if self.encoding.has_bom { new.trim_start_matches('\u{feff}') } else { new };
        if self.line_endings() == LineEndings::Crlf && !new.contains('\r') {
            return with_crlf(new);
        }
        new.to_owned()
    }
}

/// The same as [`str::lines`], and faster for texts of many lines.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || match memchr::memchr(b'\n', rest.as_bytes()) {
        Some(end) => {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            Some(line.strip_suffix('\r').unwrap_or(line))
        }
        None => Some(std::mem::take(&mut rest)).filter(|line| !line.is_empty()),
    })
}

/// Replaces LF with CRLF. The text must not have CRLF yet.
pub(super) fn with_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// Replaces CRLF and CR with LF.
pub(super) fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> FileText {
        FileText::new(text, TextSource::Disk)
    }

    #[test]
    fn lines_are_those_of_the_standard_library() {
        for text in ["", "a", "\n", "a\n", "a\r\n\r\nb\r", "\r\n", "a\n\nb", "é\n\r"] {
            assert!(lines(text).eq(text.lines()), "{text:?}");
        }
    }

    #[test]
    fn line_ends_are_told_apart() {
        let table = [
            ("", LineEndings::Lf),
            ("a", LineEndings::Lf),
            ("a\nb\n", LineEndings::Lf),
            ("a\r\nb", LineEndings::Crlf),
            ("a\r\nb\n", LineEndings::Mixed),
            ("a\rb", LineEndings::Mixed),
            ("a\r\nb\r", LineEndings::Mixed),
        ];
        for (new, ends) in table {
            assert_eq!(text(new).line_endings(), ends, "{new:?}");
        }
    }

    #[test]
    fn line_endings_do_not_change_the_hash_and_all_else_does() {
        assert_eq!(text("a\r\nb\n").hash(), text("a\nb\r\n").hash());
        assert_ne!(text("a\nb").hash(), text("a\nb\n").hash());
    }

    #[test]
    fn new_words_get_the_line_ends_of_the_file() {
        assert_eq!(text("a\r\n").with_file_line_endings("b\nc"), "b\r\nc");
        assert_eq!(text("a\r\n").with_file_line_endings("b\r\nc\n"), "b\r\nc\n");
        assert_eq!(text("a\r\nb\n").with_file_line_endings("b\nc"), "b\nc");
        assert_eq!(text("").with_file_line_endings("b\n"), "b\n");
    }
}
