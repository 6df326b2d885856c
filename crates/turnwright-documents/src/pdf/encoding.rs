//! Turns the codes in the strings of a font into text: by its map to Unicode, or else by a predefined encoding and the
//! names of glyphs that differ from it. (`lopdf` can do that, but its names of glyphs are half a megabyte of code.)

use std::collections::HashMap;
use std::sync::LazyLock;

use lopdf::content::Content;
use lopdf::{Dictionary, Document, Object};

use crate::MAX_UNPACKED_BYTES;

/// The most codes of one range in a map to Unicode.
const MAX_RANGE: usize = 0x1_0000;
/// The characters of the standard encoding from A0 to FB.
const STANDARD: &str = " ¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ�–†‡·�¶•‚„”»…‰�¿�`´ˆ˜¯˘˙¨�˚¸�˝˛ˇ—����������������Æ�ª����ŁØŒº�����æ���ı��łøœß";
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
    /// Decodes whole strings if there are no texts of codes.
    charset: Option<&'static encoding_rs::Encoding>,
    texts: HashMap<u32, String>,
    /// The number of bytes of the codes that begin with each byte.
    lengths: Vec<usize>,
}

impl Encoding {
    /// Reads the encoding of a font. A map to Unicode comes first, because the codes of font subsets are often
    /// arbitrary.
    pub(super) fn new(font: &Dictionary, is_wide: bool, document: &Document) -> Encoding {
        let declared = font.get_deref(b"Encoding", document).ok();
        let name = declared.and_then(|object| object.as_name().ok()).unwrap_or_default();
        let lengths = vec![if is_wide { 2 } else { 1 }; 256];
        let mut encoding = Encoding { charset: charset(name), texts: HashMap::new(), lengths };
        if let Ok(stream) = font.get_deref(b"ToUnicode", document).and_then(Object::as_stream) {
            let map = stream.get_plain_content_with_limit(MAX_UNPACKED_BYTES).unwrap_or_default();
            encoding.read_map(&map, is_wide && !name.starts_with(b"Identity"));
        }
        if encoding.texts.is_empty() && encoding.charset.is_none() && !is_wide {
            let details = declared.and_then(|object| object.as_dict().ok());
            encoding.read_names(name, details, document);
        }
        encoding
    }

    /// Reads a map to Unicode, which has the syntax of a page's content. The codes of a range have a text each, or the
    /// last character of their only text counts up.
    fn read_map(&mut self, map: &[u8], has_lengths: bool) {
        for operation in Content::decode_iter(map).map_while(Result::ok) {
            let columns = if operation.operator == "endbfrange" { 3 } else { 2 };
            for row in operation.operands.chunks_exact(columns) {
                let low = bytes(&row[0]);
                let start = number(low);
                let codes = (start..=number(bytes(&row[columns - 2]))).take(MAX_RANGE);
                match (operation.operator.as_str(), &row[columns - 1]) {
                    ("endcodespacerange", high) if has_lengths => {
                        let first_bytes = low.first().zip(bytes(high).first());
                        for byte in first_bytes.into_iter().flat_map(|(low, high)| *low..=*high) {
                            self.lengths[usize::from(byte)] = low.len();
                        }
                    }
                    ("endbfrange", Object::Array(texts)) => {
                        let texts = texts.iter().map(|text| utf16(bytes(text), 0));
                        self.texts.extend(codes.zip(texts));
                    }
                    ("endbfchar" | "endbfrange", Object::String(text, _)) => {
                        self.texts.extend(codes.map(|code| (code, utf16(text, code - start))));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Reads a predefined encoding, and the glyphs that differ from it. A glyph with an unknown name keeps the
    /// character of the predefined encoding, which is right for many fonts of TeX.
    fn read_names(&mut self, name: &[u8], details: Option<&Dictionary>, document: &Document) {
        let own = details.and_then(|details| details.get_deref(b"BaseEncoding", document).ok());
        let base = own.and_then(|base| base.as_name().ok()).unwrap_or(name);
        self.texts.extend((0..=u8::MAX).map(|code| (u32::from(code), predefined(base, code))));
        let list = details.and_then(|details| details.get_deref(b"Differences", document).ok());
        let mut code = 0_u32;
        for item in list.and_then(|list| list.as_array().ok()).into_iter().flatten() {
            if let Object::Name(glyph) = item {
                let text = self.texts.entry(code).or_default();
                match glyph_text(glyph) {
                    Some(known) => *text = known,
                    None if text.is_empty() => text.push(UNKNOWN),
                    None => {}
                }
                code = code.wrapping_add(1);
            } else if let Ok(first) = item.as_i64() {
                code = u32::try_from(first).unwrap_or(u32::MAX);
            }
        }
    }

    /// Decodes a string. U+FFFD stands for a character that cannot be known, or for a string of such a font.
    pub(super) fn decode(&self, mut bytes: &[u8]) -> String {
        if self.texts.is_empty() {
            let decoded = self.charset.map(|charset| charset.decode_without_bom_handling(bytes).0);
            return decoded.unwrap_or("\u{fffd}".into()).into_owned();
        }
        let mut text = String::new();
        while let Some(first) = bytes.first() {
            let length = self.lengths[usize::from(*first)].min(bytes.len());
            let (code, rest) = bytes.split_at(length);
            text.push_str(self.texts.get(&number(code)).map_or("\u{fffd}", String::as_str));
            bytes = rest;
        }
        text
    }
}

/// Returns the character of a code in a predefined encoding, or nothing for a control character.
fn predefined(encoding: &[u8], code: u8) -> String {
    let charset = match encoding {
        b"MacRomanEncoding" => Some(encoding_rs::MACINTOSH),
        b"WinAnsiEncoding" | b"PDFDocEncoding" => Some(encoding_rs::WINDOWS_1252),
        _ => None,
    };
    let text = match (charset, code) {
        (Some(charset), _) => charset.decode_without_bom_handling(&[code]).0.into_owned(),
        (None, b'\'') => "’".to_owned(),
        (None, b'`') => "‘".to_owned(),
        (None, 0xa0..) => {
            STANDARD.chars().nth((code - 0xa0).into()).unwrap_or(UNKNOWN).to_string()
        }
        (None, _) => char::from(code).to_string(),
    };
    text.replace('\u{a0}', " ").replace('\u{ad}', "-").replace(char::is_control, "")
}

/// Returns the text of a glyph by the rules of the Adobe Glyph List: a period begins the name of a variant, and `_`
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

/// Decodes a text of a map to Unicode, and counts up its last character. Some programs write a letter as one byte.
fn utf16(text: &[u8], step: u32) -> String {
    let padded = [&[0][..text.len() % 2], text].concat();
    let mut decoded = encoding_rs::UTF_16BE.decode_without_bom_handling(&padded).0.into_owned();
    let last = decoded.pop().map(|last| char::from_u32(u32::from(last) + step).unwrap_or(UNKNOWN));
    decoded.extend(last);
    decoded
}

/// Returns the character set of a predefined encoding for Chinese, Japanese or Korean.
fn charset(name: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    let name = str::from_utf8(name).ok()?;
    let known = [
        ("UCS2", encoding_rs::UTF_16BE),
        ("UTF16", encoding_rs::UTF_16BE),
        ("GB", encoding_rs::GBK),
        ("B5", encoding_rs::BIG5),
        ("RKSJ", encoding_rs::SHIFT_JIS),
        ("KSC", encoding_rs::EUC_KR),
        ("EUC", encoding_rs::EUC_JP),
    ];
    known.into_iter().find(|(part, _)| name.contains(part)).map(|(_, charset)| charset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding_with_map(map: &[u8]) -> Encoding {
        let lengths = vec![1; 256];
        let mut encoding = Encoding { charset: None, texts: HashMap::new(), lengths };
        encoding.read_map(map, true);
        encoding
    }

    #[test]
    fn a_map_has_codes_of_several_lengths() {
        let encoding = encoding_with_map(
            b"%!PS-Adobe-3.0 Resource-CMap
            /CIDInit /ProcSet findresource begin 12 dict begin
            /CIDSystemInfo 3 dict dup begin /Registry (A) def end def
            2 begincodespacerange <00> <80> <8140> <FEFE> endcodespacerange
            1 beginbfrange <20> <7e> <0020> endbfrange
            % a remark
            2 beginbfrange <8140> <8142> [<4F60> <597D> <00660069>]
            <8150> <8151> <D83DDE00> endbfrange
            2 beginbfchar <05> <41> <8160> /name endbfchar",
        );
        for (bytes, expected) in [
            (&b"a\x05 b"[..], "aA b"),
            (&b"\x81\x41a\x81\x40\x81\x42"[..], "好a你fi"),
            (&b"\x81\x50\x81\x51"[..], "\u{1f600}\u{1f601}"),
            (&b"\x81\x60a\xffb"[..], "\u{fffd}a\u{fffd}b"),
        ] {
            assert_eq!(encoding.decode(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_hostile_map_neither_fills_the_memory_nor_hangs() {
        let encoding = encoding_with_map(
            b"<> <> <05> <01> endcodespacerange
            <00000000> <FFFFFFFF> <0041> <02> <01> <42> endbfrange",
        );
        assert_eq!(encoding.texts.len(), MAX_RANGE);
        assert_eq!(encoding.decode(b"\x00\x01"), "AB");
    }

    #[test]
    fn the_name_of_a_glyph_is_in_the_list_or_has_the_code() {
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
