//! A text file with everything that must be preserved when a part of it is changed, and its encoding. Bytes count as
//! text only if encoding the text gives the same bytes again, so that a change of one line never changes another.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, GB18030, UTF_8, UTF_16BE, UTF_16LE};

use super::FileError;
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

    /// The SHA-256 of the text. CRLF counts as LF: an editor shows each file with its own line endings,
    /// and that is not a change.
    pub(super) fn hash(&self) -> [u8; 32] {
        if self.text.contains('\r') {
            sha256(self.text.replace("\r\n", "\n").as_bytes())
        } else {
            sha256(self.text.as_bytes())
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

/// How many bytes are examined to tell text from binary.
pub(crate) const PROBE_BYTES: usize = 8 * 1024;

/// From how many bytes a legacy encoding is guessed.
const MAX_GUESS_BYTES: usize = 256 * 1024;

/// Fewer wrong bytes than this for each character of three or more bytes in UTF-8 count as mistakes. Other
/// encodings rarely look like such a character.
const MAX_WRONG_FOR_WIDE: usize = 8;

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEncoding {
    pub charset: &'static Encoding,
    /// True if the file begins with a byte order mark.
    pub has_bom: bool,
}

impl Default for TextEncoding {
    fn default() -> TextEncoding {
        TextEncoding { charset: UTF_8, has_bom: false }
    }
}

impl TextEncoding {
    /// Encodes a text.
    ///
    /// # Errors
    /// The first character that cannot be represented.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, char> {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        if self.charset == UTF_8 {
            bytes.extend_from_slice(if self.has_bom { b"\xef\xbb\xbf" } else { b"" });
            bytes.extend_from_slice(text.as_bytes());
        } else if self.charset == UTF_16LE {
            bytes.extend_from_slice(b"\xff\xfe");
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        } else if self.charset == UTF_16BE {
            bytes.extend_from_slice(b"\xfe\xff");
            bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
        } else {
            bytes.extend_from_slice(&encode_legacy(self.charset, text)?);
        }
        Ok(bytes)
    }
}

/// Decodes the bytes of a text file; `None` if they are not text.
pub fn decode(mut bytes: Vec<u8>) -> Option<(String, TextEncoding)> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
        let text = String::from_utf8(bytes).ok().filter(|text| !has_nul(text.as_bytes()))?;
        return Some((text, TextEncoding { charset: UTF_8, has_bom: true }));
    }
    if let Some(encoding) = utf16_from_bom(&bytes) {
        let text = decode_utf16(&bytes[2..], encoding).filter(|text| !text.contains('\0'))?;
        return Some((text, TextEncoding { charset: encoding, has_bom: true }));
    }
    if has_nul(&bytes) {
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some((text, TextEncoding::default())),
        Err(error) => decode_legacy(&error.into_bytes()),
    }
}

/// Detects UTF-16 by its byte order mark.
pub(super) fn utf16_from_bom(bytes: &[u8]) -> Option<&'static Encoding> {
    match bytes {
        [0xff, 0xfe, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] => Some(UTF_16BE),
        _ => None,
    }
}

/// Returns true if these bytes cannot be the beginning of a text.
pub(super) fn is_binary(head: &[u8]) -> bool {
    let head = &head[..head.len().min(PROBE_BYTES)];
    let odd = head
        .iter()
        .filter(|byte| byte.is_ascii_control() && !b"\t\n\r\x0c\x08\x1b".contains(byte))
        .count();
    // The last character may be incomplete.
    let is_foreign = !is_utf8(head, true)
        && (super::file_kind::detect(head).is_some() || odd > 0 && !mostly_utf8(head, 10));
    has_nul(head) || is_foreign || odd * 10 > head.len() * 3
}

/// Decodes some lines for display: what cannot be decoded becomes a replacement character.
pub fn decode_lines(lines: &[Vec<u8>]) -> Vec<String> {
    let all = lines.join(&b'\n');
    // A few lines have few characters to judge by.
    let has_utf8 = is_utf8(&all, false) || mostly_utf8(&all, 1);
    let encoding = if has_utf8 { UTF_8 } else { guess_charset(&all) };
    lines.iter().map(|line| encoding.decode_without_bom_handling(line).0.into_owned()).collect()
}

/// Decodes a text file for reading, or its beginning if it is cut off: what cannot be decoded becomes a
/// replacement character. Returns `None` if it is not text.
pub fn decode_head(bytes: &[u8], is_cut: bool) -> Option<String> {
    let encoding = match Charset::of(bytes, is_cut) {
        Charset::Binary => return None,
        Charset::Other(encoding) => encoding,
        Charset::Utf8 | Charset::BrokenUtf8 => UTF_8,
    };
    let decoded = encoding.decode(bytes).0;
    let text = if is_cut { decoded.trim_end_matches('\u{fffd}') } else { &decoded };
    Some(text.to_owned()).filter(|text| !text.contains('\0'))
}

/// How the bytes of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Utf8,
    /// UTF-8 with a few wrong bytes.
    BrokenUtf8,
    Other(&'static Encoding),
    /// Not as text.
    Binary,
}

impl Charset {
    /// Finds out how to read bytes. If they are `is_cut` off, the last character may be incomplete.
    pub(crate) fn of(bytes: &[u8], is_cut: bool) -> Charset {
        match utf16_from_bom(bytes) {
            Some(encoding) => Charset::Other(encoding),
            None if is_binary(bytes) => Charset::Binary,
            None if is_utf8(bytes, is_cut) => Charset::Utf8,
            None if mostly_utf8(bytes, 10) => Charset::BrokenUtf8,
            None => Charset::Other(guess_charset(bytes)),
        }
    }
}

/// Decodes lines that are not UTF-8. Their encoding is guessed line by line.
#[derive(Default)]
pub(crate) struct LineDecoder(Option<Box<EncodingDetector>>);

impl LineDecoder {
    /// Decodes a line, or the end of one that begins with this text. Bytes that are not text become replacement
    /// characters.
    pub(crate) fn decode(&mut self, beginning: &str, line: &[u8]) -> String {
        let parts = line.utf8_chunks().map(|chunk| chunk.valid());
        let wide =
            std::iter::once(beginning).chain(parts).filter(|part| has_wide_char(part)).count();
        let wrong = line.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
        // After one line in another encoding, the others probably have it as well.
        let most_wrong = if self.0.is_some() { wide } else { wide * MAX_WRONG_FOR_WIDE };
        if wrong == 0 || most_wrong > wrong || is_binary(line) {
            return String::from_utf8_lossy(line).into_owned();
        }
        let detector =
            self.0.get_or_insert_with(|| Box::new(EncodingDetector::new(Iso2022JpDetection::Deny)));
        detector.feed(line, false);
        let usual = detector.guess(None, Utf8Detection::Deny);
        let (text, is_other) = usual.decode_without_bom_handling(line);
        let text =
            if is_other { guess_charset(line).decode_without_bom_handling(line).0 } else { text };
        text.into_owned()
    }
}

fn has_wide_char(text: &str) -> bool {
    text.chars().any(|char| char.len_utf8() > 2)
}

/// Returns true if bytes are UTF-8. With `is_cut`, the last character may be cut off.
pub(crate) fn is_utf8(bytes: &[u8], is_cut: bool) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_none_or(|error| is_cut && error.error_len().is_none())
}

fn has_nul(bytes: &[u8]) -> bool {
    memchr::memchr(0, &bytes[..bytes.len().min(PROBE_BYTES)]).is_some()
}

fn decode_utf16(bytes: &[u8], encoding: &'static Encoding) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let unit = if encoding == UTF_16LE { u16::from_le_bytes } else { u16::from_be_bytes };
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect::<Result<_, _>>().ok()
}

fn decode_legacy(bytes: &[u8]) -> Option<(String, TextEncoding)> {
    if is_binary(bytes) || mostly_utf8(bytes, 10) {
        return None;
    }
    let guessed = guess_charset(bytes);
    let text = guessed.decode_without_bom_handling_and_without_replacement(bytes)?;
    // A single-byte encoding decodes any bytes; control characters show that they are not text.
    let has_odd = text.contains(|c: char| c.is_control() && !"\t\n\r\x0c\x08\x1b".contains(c));
    // GBK is decoded as GB18030, whose longer characters it cannot encode.
    let charset = [guessed, GB18030].into_iter().find(|&charset| {
        !has_odd && encode_legacy(charset, &text).is_ok_and(|encoded| encoded == bytes)
    })?;
    Some((text.into_owned(), TextEncoding { charset, has_bom: false }))
}

/// Guesses a legacy encoding. It is never UTF-8, and never one with escape sequences.
fn guess_charset(bytes: &[u8]) -> &'static Encoding {
    let first = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(0);
    let rest = &bytes[first.saturating_sub(1024)..];
    let part = &rest[..rest.len().min(MAX_GUESS_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(part, true);
    detector.guess(None, Utf8Detection::Deny)
}

/// Returns true for UTF-8 with a few invalid bytes: any other encoding would garble the rest. There must be more than
/// `for_each` characters for each of them.
fn mostly_utf8(bytes: &[u8], for_each: usize) -> bool {
    let mut right = 0_usize;
    let mut wrong = 0_usize;
    for chunk in bytes.utf8_chunks() {
        right += chunk.valid().bytes().filter(|byte| *byte >= 0xc0).count();
        wrong += usize::from(!chunk.invalid().is_empty());
    }
    right > for_each * wrong
}

fn encode_legacy(encoding: &'static Encoding, text: &str) -> Result<Vec<u8>, char> {
    let (bytes, _, unmappable) = encoding.encode(text);
    // Some encoders map a character to bytes that decode to another one.
    let back = encoding.decode_without_bom_handling(&bytes).0;
    if !unmappable && back == text {
        return Ok(bytes.into_owned());
    }
    let failing = text.chars().find(|c| {
        let mut buffer = [0; 4];
        let one = c.encode_utf8(&mut buffer);
        let (bytes, _, unmappable) = encoding.encode(one);
        unmappable || encoding.decode_without_bom_handling(&bytes).0 != *one
    });
    Err(failing.unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use encoding_rs::{GBK, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};
    use proptest::prelude::*;

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

    const ENCODINGS: &[TextEncoding] = &[
        TextEncoding { charset: UTF_8, has_bom: false },
        TextEncoding { charset: UTF_8, has_bom: true },
        TextEncoding { charset: UTF_16LE, has_bom: true },
        TextEncoding { charset: UTF_16BE, has_bom: true },
    ];

    /// Lines of printable characters, each with its own line ending.
    fn texts() -> impl Strategy<Value = String> {
        let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r"), Just("")];
        proptest::collection::vec(("[\\PC\t]{0,12}", end), 0..12)
            .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(text in texts(), text_encoding in proptest::sample::select(ENCODINGS)) {
            // A byte order mark at the beginning belongs to the encoding and not to the text.
            prop_assume!(text_encoding.has_bom || !text.starts_with('\u{feff}'));
            let bytes = text_encoding.encode(&text).unwrap();
            prop_assert_eq!(decode(bytes), Some((text, text_encoding)));
        }

        #[test]
        fn what_can_be_read_is_written_back_byte_by_byte(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((text, text_encoding)) = decode(bytes.clone()) {
                prop_assert_eq!(text_encoding.encode(&text), Ok(bytes));
            }
        }

        #[test]
        fn a_changed_line_leaves_the_bytes_of_the_others(
            words in proptest::collection::vec("[а-яА-Яé ]{1,20}", 1..8),
            encoding in proptest::sample::select(vec![WINDOWS_1252, WINDOWS_1251, SHIFT_JIS, GBK]),
        ) {
            let text = words.join("\r\n");
            let Ok(bytes) = (TextEncoding { charset: encoding, has_bom: false }).encode(&text) else { return Ok(()) };
            // `яю` in the old encoding is what a text in UTF-16 begins with.
            prop_assume!(![b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| bytes.starts_with(*mark)));
            if let Some((text, text_encoding)) = decode(bytes.clone()) {
                let after = text_encoding.encode(&format!("x = 1;\n{text}")).unwrap();
                prop_assert_eq!(after, [b"x = 1;\n".as_slice(), &bytes].concat());
            }
        }
    }

    #[test]
    fn files_in_old_encodings_are_texts() {
        let russian = "Съешь же ещё этих мягких французских булок, да выпей чаю.\n";
        let japanese = "これは日本語のテキストです。色は匂へど散りぬるを。\n";
        let table = [
            ("Le café est fermé à Noël.\n", WINDOWS_1252),
            (russian, WINDOWS_1251),
            (japanese, SHIFT_JIS),
            ("中文𠀀😀内容\n第二\n", GB18030),
        ];
        for (text, encoding) in table {
            let text_encoding = TextEncoding { charset: encoding, has_bom: false };
            assert_eq!(
                decode(text_encoding.encode(text).unwrap()),
                Some((text.to_owned(), text_encoding))
            );
        }
    }

    #[test]
    fn what_is_no_text_is_none() {
        let table: &[&[u8]] = &[
            b"ab\0cd",
            b"\x89PNG\r\n\x1a\nnot much of a picture",
            b"\xff\xd8\xff\xe0picture",
            b"\xff\xfea",
            b"\xff\xfe\x00\xd8a\x00",
            b"\xff\xfe\x00\x00a\x00\x00\x00",
            b"\xef\xbb\xbf\xff\xff",
            b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
            "log: überall grün, schön, früh, spät, Bär, müde, Öl, Äste\n\u{7}\u{1}".as_bytes(),
        ];
        for bytes in &table[..8] {
            assert_eq!(decode(bytes.to_vec()), None, "{bytes:?}");
        }
        let mut broken = table[8].to_vec();
        assert!(decode(broken.clone()).is_some());
        broken.push(0xff);
        assert_eq!(
            decode(broken),
            None,
            "a wrong byte does not make all the rest another encoding"
        );
    }

    #[test]
    fn a_character_that_an_encoding_cannot_hold_is_named() {
        let text_encoding = |encoding| TextEncoding { charset: encoding, has_bom: false };
        assert_eq!(text_encoding(WINDOWS_1252).encode("Preis: 5 € für 語"), Err('語'));
        assert_eq!(text_encoding(SHIFT_JIS).encode("¥"), Err('¥'));
    }

    #[test]
    fn lines_for_reading_are_decoded_as_well_as_can_be() {
        let lines = [b"caf\xe9".to_vec(), b"plain".to_vec()];
        assert_eq!(decode_lines(&lines), ["café", "plain"]);
        let lines =
            ["grün über schön früh spät Bär müde Öl Äste Übel Ähre".into(), b"\xff".to_vec()];
        assert_eq!(decode_lines(&lines)[1], "\u{fffd}");
        let lines = ["schön grün".into(), b"x \xff".to_vec()];
        assert_eq!(decode_lines(&lines), ["schön grün", "x \u{fffd}"]);
    }
}
