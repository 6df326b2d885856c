//! A text file as it was found: what it says, and everything else that has to stay as it is when
//! a part of it is changed.

use ring::digest::{SHA256, digest};

use super::FileError;
pub use super::form::Form;
use super::form::decode;

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it says, without a byte order mark, every line with its own end.
    pub text: String,
    /// How that is written in bytes.
    pub form: Form,
    /// Where it came from.
    pub source: Source,
}

/// Where a text came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The disk.
    Disk,
    /// The editor's buffer, which may have unsaved changes.
    Editor,
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnds {
    /// With a line feed, or there is but one line.
    Lf,
    /// With carriage return and line feed, all of them.
    Crlf,
    /// Some so, some so, or with a carriage return alone.
    Mixed,
}

/// What a text says, in 32 bytes. Line ends do not count: an editor shows every file with its
/// own, and that is no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Text {
    /// A text in UTF-8.
    pub fn new(text: impl Into<String>, source: Source) -> Text {
        Text { text: text.into(), form: Form::default(), source }
    }

    /// The text in these bytes of the disk, if it is one.
    pub(super) fn decode(bytes: Vec<u8>) -> Option<Text> {
        decode(bytes).map(|(text, form)| Text { text, form, source: Source::Disk })
    }

    /// Its bytes on the disk.
    pub(super) fn encode(&self) -> Result<Vec<u8>, FileError> {
        let encoding = self.form.encoding.name();
        self.form.encode(&self.text).map_err(|char| FileError::Unmappable { char, encoding })
    }

    /// Its hash.
    pub fn hash(&self) -> Hash {
        let unified = if self.text.contains('\r') {
            digest(&SHA256, self.text.replace("\r\n", "\n").as_bytes())
        } else {
            digest(&SHA256, self.text.as_bytes())
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(unified.as_ref());
        Hash(hash)
    }

    /// How its lines end.
    pub fn line_ends(&self) -> LineEnds {
        let bytes = self.text.as_bytes();
        let mut both = 0;
        for at in memchr::memchr_iter(b'\r', bytes) {
            if bytes.get(at + 1) != Some(&b'\n') {
                return LineEnds::Mixed;
            }
            both += 1;
        }
        if both == 0 {
            return LineEnds::Lf;
        }
        let all = memchr::memchr_iter(b'\n', bytes).count();
        if both == all { LineEnds::Crlf } else { LineEnds::Mixed }
    }

    /// Whether an editor would lose something of it: it shows each file in UTF-8, without a
    /// mark, and with line ends that are all the same.
    pub(super) fn is_special(&self) -> bool {
        self.form != Form::default() || self.line_ends() == LineEnds::Mixed
    }

    /// New words for the same file, from somebody who knows line feeds only: with the line ends
    /// that the file has.
    pub fn adapt(&self, words: &str) -> String {
        let words = if self.form.mark { words.trim_start_matches('\u{feff}') } else { words };
        if self.line_ends() == LineEnds::Crlf && !words.contains('\r') {
            return with_crlf(words);
        }
        words.to_owned()
    }
}

/// Every line feed with a carriage return. For text that has none yet.
pub(super) fn with_crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// Every line end as a line feed.
pub(super) fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::new(text, Source::Disk)
    }

    #[test]
    fn line_ends_are_told_apart() {
        let table = [
            ("", LineEnds::Lf),
            ("a", LineEnds::Lf),
            ("a\nb\n", LineEnds::Lf),
            ("a\r\nb", LineEnds::Crlf),
            ("a\r\nb\n", LineEnds::Mixed),
            ("a\rb", LineEnds::Mixed),
            ("a\r\nb\r", LineEnds::Mixed),
        ];
        for (words, ends) in table {
            assert_eq!(text(words).line_ends(), ends, "{words:?}");
        }
    }

    #[test]
    fn line_ends_are_no_difference_and_all_else_is() {
        assert_eq!(text("a\r\nb\n").hash(), text("a\nb\r\n").hash());
        assert_ne!(text("a\nb").hash(), text("a\nb\n").hash());
    }

    #[test]
    fn new_words_get_the_line_ends_of_the_file() {
        assert_eq!(text("a\r\n").adapt("b\nc"), "b\r\nc");
        assert_eq!(text("a\r\n").adapt("b\r\nc\n"), "b\r\nc\n");
        assert_eq!(text("a\r\nb\n").adapt("b\nc"), "b\nc");
        assert_eq!(text("").adapt("b\n"), "b\n");
    }
}
