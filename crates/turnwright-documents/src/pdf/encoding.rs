//! Turns the codes in the strings of a font into text: by a predefined encoding, the names of glyphs that differ from
//! it, and a map to Unicode. (`lopdf` can do that, but its names of glyphs are half a megabyte of code.)

use std::collections::HashMap;
use std::sync::LazyLock;

use encoding_rs::{BIG5, EUC_JP, EUC_KR, GBK, MACINTOSH, SHIFT_JIS, UTF_16BE, WINDOWS_1252};
use lopdf::content::Content;
use lopdf::{Dictionary, Document, Object};

use crate::MAX_UNPACKED_BYTES;

/// The most codes that a map to Unicode defines.
const MAX_CODES: usize = 0x2_0000;
/// The most bytes of the text of one code.
const MAX_CODE_TEXT: usize = 512;
/// The characters of the standard encoding from A0 to FB.
const STANDARD: &str =
    " ¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ�–†‡·�¶•‚„”»…‰�¿�`´ˆ˜¯˘˙¨�˚¸�˝˛ˇ—����������������Æ�ª����ŁØŒº�����æ���ı��łøœß";
const UNKNOWN: char = '\u{fffd}';

static GLYPHS: LazyLock<HashMap<&str, char>> = LazyLock::new(|| {
    let lines = include_str!("glyphs.txt").lines().filter_map(|line| {
        let (code, names) = line.split_once(' ')?;
        Some((hexadecimal(code)?, names))
    });
    lines.flat_map(|(char, names)| names.split(' ').map(move |name| (name, char))).collect()
});

/// The characters of a font.
pub(super) struct Encoding {
    /// Decodes whole strings of a predefined encoding for Chinese, Japanese or Korean.
    charset: Option<&'static encoding_rs::Encoding>,
    texts: HashMap<u32, String>,
    /// The number of bytes of a code, at least 1.
    code_length: usize,
}

impl Encoding {
    /// Reads the encoding of a font. Its map to Unicode comes before the names of its glyphs, because the codes of font
    /// subsets are often arbitrary. The names are for codes that are not in the map: some programs map only a few.
    pub(super) fn new(font: &Dictionary, is_wide: bool, document: &Document) -> Encoding {
        let declared = font.get_deref(b"Encoding", document);
        let name = declared.and_then(Object::as_name).unwrap_or_default();
        let code_length = if is_wide { 2 } else { 1 };
        let mut encoding = Encoding { charset: charset(name), texts: HashMap::new(), code_length };
        if encoding.charset.is_none() {
            if !is_wide {
                encoding.read_names(name, font, document);
            }
            let map = content(font.get_deref(b"ToUnicode", document));
            encoding.read_map(&map, is_wide && !name.starts_with(b"Identity"));
        }
        encoding
    }

    /// Reads a map to Unicode, which has the syntax of a page's content. The codes of a range have a text each, or the
    /// last character of their only text counts up.
    fn read_map(&mut self, map: &[u8], has_length: bool) {
        let mut left = 0..MAX_CODES;
        for operation in Content::decode_iter(map).map_while(Result::ok) {
            let columns = if operation.operator == "endbfrange" { 3 } else { 2 };
            for row in operation.operands.chunks_exact(columns) {
                let start = number(bytes(&row[0]));
                let codes = (start..=number(bytes(&row[columns - 2]))).zip(&mut left);
                match (operation.operator.as_str(), &row[columns - 1]) {
                    ("endcodespacerange", high) if has_length => {
                        self.code_length = bytes(high).len().max(1);
                    }
                    ("endbfrange", Object::Array(texts)) => {
                        let texts = texts.iter().map(|text| utf16(bytes(text), 0));
                        self.define(codes.zip(texts).map(|((code, _), text)| (code, text)));
                    }
                    ("endbfchar" | "endbfrange", Object::String(text, _)) => {
                        self.define(codes.map(|(code, _)| (code, utf16(text, code - start))));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Sets the texts of codes. Some programs give NUL to what they do not know, such as ligatures; the name of the
    /// glyph may tell.
    fn define(&mut self, entries: impl Iterator<Item = (u32, String)>) {
        self.texts.extend(entries.filter(|(_, text)| text != "\0"));
    }

    /// Reads a predefined encoding or that of a Type 1 font's program, and the glyphs that differ from it.
    fn read_names(&mut self, name: &[u8], font: &Dictionary, document: &Document) {
        let empty = Dictionary::new();
        let declared = font.get_deref(b"Encoding", document);
        let details = declared.and_then(Object::as_dict).unwrap_or(&empty);
        let own = details.get_deref(b"BaseEncoding", document).and_then(Object::as_name);
        let base = own.unwrap_or(name);
        self.texts.extend((0..=u8::MAX).map(|code| (u32::from(code), predefined(base, code))));
        if base.is_empty() {
            let descriptor = font.get_deref(b"FontDescriptor", document).and_then(Object::as_dict);
            let program =
                content(descriptor.and_then(|dict| dict.get_deref(b"FontFile", document)));
            let text = String::from_utf8_lossy(&program).replace('/', " ");
            let words: Vec<_> = text.split_whitespace().collect();
            for window in words.windows(4) {
                if let ["dup", code, glyph, "put"] = window {
                    self.name_code(code.parse().unwrap_or(u32::MAX), glyph.as_bytes());
                }
            }
        }
        let list = details.get_deref(b"Differences", document).and_then(Object::as_array);
        let mut code = 0_u32;
        for item in list.into_iter().flatten() {
            if let Object::Name(glyph) = item {
                self.name_code(code, glyph);
                code = code.saturating_add(1);
            } else if let Ok(first) = item.as_i64() {
                code = u32::try_from(first).unwrap_or(u32::MAX);
            }
        }
    }

    /// Sets the glyph of a code. A glyph with an unknown name keeps the character of the predefined encoding, which is
    /// right for many fonts of TeX.
    fn name_code(&mut self, code: u32, glyph: &[u8]) {
        let Some(text) = self.texts.get_mut(&code) else { return };
        match glyph_text(glyph) {
            Some(known) => *text = known,
            None if text.is_empty() => text.push(UNKNOWN),
            None => {}
        }
    }

    /// Decodes a string. U+FFFD stands for an unknown character, or for the whole string if the font says nothing about
    /// its characters.
    pub(super) fn decode(&self, bytes: &[u8]) -> String {
        if let Some(charset) = self.charset {
            return charset.decode_without_bom_handling(bytes).0.into_owned();
        }
        if self.texts.is_empty() {
            return UNKNOWN.to_string();
        }
        let codes = bytes.chunks(self.code_length).map(number);
        codes.map(|code| self.texts.get(&code).map_or("\u{fffd}", String::as_str)).collect()
    }
}

/// Returns the character of a code in a predefined encoding, or nothing for a control character.
fn predefined(encoding: &[u8], code: u8) -> String {
    let text = match (encoding, code) {
        (b"MacRomanEncoding", _) => MACINTOSH.decode_without_bom_handling(&[code]).0.into_owned(),
        (b"WinAnsiEncoding", _) => WINDOWS_1252.decode_without_bom_handling(&[code]).0.into_owned(),
        (_, b'\'') => "’".to_owned(),
        (_, b'`') => "‘".to_owned(),
        (_, 0xa0..) => STANDARD.chars().nth((code - 0xa0).into()).unwrap_or(UNKNOWN).to_string(),
        _ => char::from(code).to_string(),
    };
    text.replace('\u{a0}', " ").replace('\u{ad}', "-").replace(char::is_control, "")
}

/// Returns the text of a glyph by the rules of the Adobe Glyph List: the name of a variant follows a period, and `_`
/// joins the letters of a ligature.
fn glyph_text(name: &[u8]) -> Option<String> {
    let letters = str::from_utf8(name).ok()?.split('.').next()?.split('_');
    let chars = letters.filter(|letter| !letter.is_empty()).map(|letter| {
        let code = letter.strip_prefix("uni").or_else(|| letter.strip_prefix('u'));
        let by_code = code.filter(|code| code.len() >= 4).and_then(hexadecimal);
        GLYPHS.get(letter).copied().or(by_code)
    });
    chars.collect()
}

fn hexadecimal(code: &str) -> Option<char> {
    char::from_u32(u32::from_str_radix(code, 16).ok()?)
}

fn number(code: &[u8]) -> u32 {
    code.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

fn bytes(string: &Object) -> &[u8] {
    string.as_str().unwrap_or_default()
}

/// Returns the unpacked content of a stream, or nothing if it is too large or no stream.
fn content(object: lopdf::Result<&Object>) -> Vec<u8> {
    let stream = object.and_then(Object::as_stream);
    let content = stream.and_then(|stream| stream.get_plain_content_with_limit(MAX_UNPACKED_BYTES));
    content.unwrap_or_default()
}

/// Decodes a text of a map to Unicode and adds `step` to its last character. Some programs write a letter as one byte.
fn utf16(text: &[u8], step: u32) -> String {
    let text = &text[..text.len().min(MAX_CODE_TEXT)];
    let padded = [&[0][..text.len() % 2], text].concat();
    let mut decoded = UTF_16BE.decode_without_bom_handling(&padded).0.into_owned();
    if let Some(last) = decoded.pop() {
        decoded.push(char::from_u32(u32::from(last) + step).unwrap_or(UNKNOWN));
    }
    decoded
}

/// Returns the character set of a predefined encoding for Chinese, Japanese or Korean.
fn charset(name: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    let name = str::from_utf8(name).ok()?;
    let known = [
        ("UCS2", UTF_16BE),
        ("UTF16", UTF_16BE),
        ("GB", GBK),
        ("B5", BIG5),
        ("RKSJ", SHIFT_JIS),
        ("KSC", EUC_KR),
        ("EUC", EUC_JP),
    ];
    known.into_iter().find(|(part, _)| name.contains(part)).map(|(_, charset)| charset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding_with_map(map: &[u8]) -> Encoding {
        let mut encoding = Encoding { charset: None, texts: HashMap::new(), code_length: 1 };
        encoding.read_map(map, true);
        encoding
    }

    #[test]
    fn a_map_has_characters_and_ranges() {
        let encoding = encoding_with_map(
            b"%!PS-Adobe-3.0 Resource-CMap
            /CIDInit /ProcSet findresource begin 12 dict begin
            /CIDSystemInfo 3 dict dup begin /Registry (A) def end def
            1 begincodespacerange <0000> <FFFF> endcodespacerange
            1 beginbfrange <0020> <007e> <0020> endbfrange
            % a remark
            2 beginbfrange <8140> <8142> [<4F60> <597D> <00660069>]
            <8150> <8151> <D83DDE00> endbfrange
            2 beginbfchar <0005> <41> <8160> /name endbfchar",
        );
        for (bytes, expected) in [
            (&b"\0a\0\x05\0b"[..], "aAb"),
            (&b"\x81\x41\0a\x81\x40\x81\x42"[..], "好a你fi"),
            (&b"\x81\x50\x81\x51"[..], "\u{1f600}\u{1f601}"),
            (&b"\x81\x60\0a\xff"[..], "\u{fffd}a\u{fffd}"),
        ] {
            assert_eq!(encoding.decode(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_map_to_nul_says_nothing_about_a_character() {
        let mut encoding = Encoding { charset: None, texts: HashMap::new(), code_length: 1 };
        encoding.texts.insert(1, "\u{fb01}".to_owned());
        encoding.read_map(
            b"3 beginbfchar <01> <0000> <02> <0000> <03> <0041> endbfchar
            2 beginbfrange <04> <05> [<0000> <0042>] <06> <07> <0000> endbfrange",
            false,
        );
        let expected = "\u{fb01}\u{fffd}A\u{fffd}B\u{fffd}\u{1}";
        assert_eq!(encoding.decode(b"\x01\x02\x03\x04\x05\x06\x07"), expected);
    }

    #[test]
    fn a_hostile_map_neither_fills_the_memory_nor_hangs() {
        let text = "0041".repeat(MAX_CODE_TEXT);
        let ranges = "<00000000> <FFFFFFFF> <0041> ".repeat(1_000);
        let map = format!(
            "<> <> <05> <01> endcodespacerange <FFFFFFFF> <{text}> endbfchar {ranges} endbfrange"
        );
        let encoding = encoding_with_map(map.as_bytes());
        assert_eq!(encoding.texts.len(), MAX_CODES);
        assert_eq!(encoding.texts[&u32::MAX].len(), MAX_CODE_TEXT / 2);
        assert_eq!(encoding.decode(b"\x00\x01"), "AB");
    }

    #[test]
    fn the_name_of_a_glyph_is_in_the_list_or_contains_its_code() {
        for (name, expected) in [
            ("eacute", Some("é")),
            ("space", Some(" ")),
            ("fi", Some("\u{fb01}")),
            ("f_f_i", Some("ffi")),
            ("Lslash.alt", Some("Ł")),
            ("zerooldstyle", Some("0")),
            ("afii10066", Some("б")),
            ("circledot", Some("⊙")),
            ("uni20AC", Some("€")),
            ("u1F600", Some("\u{1f600}")),
            ("u", Some("u")),
            (".notdef", Some("")),
            ("udd", None),
            ("uniD800", None),
            ("g37", None),
            ("a1.alt", None),
            ("#", None),
        ] {
            assert_eq!(glyph_text(name.as_bytes()).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_predefined_encoding_has_the_characters_of_its_name() {
        for (name, code, expected) in [
            ("WinAnsiEncoding", 0x80_u8, Some('€')),
            ("WinAnsiEncoding", 0xa0, Some(' ')),
            ("WinAnsiEncoding", 0xad, Some('-')),
            ("WinAnsiEncoding", b'\n', None),
            ("MacRomanEncoding", 0x8e, Some('é')),
            ("MacRomanEncoding", 0xde, Some('\u{fb01}')),
            ("StandardEncoding", b'A', Some('A')),
            ("StandardEncoding", b'\'', Some('’')),
            ("StandardEncoding", 0xae, Some('\u{fb01}')),
            ("StandardEncoding", 0xfb, Some('ß')),
            ("StandardEncoding", 0xff, Some(UNKNOWN)),
            ("", 0xb1, Some('–')),
            ("", 0x90, None),
        ] {
            let text: String = expected.into_iter().collect();
            assert_eq!(predefined(name.as_bytes(), code), text, "{name} {code:x}");
        }
    }
}
