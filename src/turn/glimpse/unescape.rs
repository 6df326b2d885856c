//! The inside of a JSON string → the text that it means, in pieces cut anywhere.

/// Where in a string the reading is.
#[derive(Debug, Default)]
pub(super) struct Unescape {
    escape: Option<Escape>,
    /// The first half of a pair, whose other half has not come yet.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Escape {
    /// Behind a backslash.
    Begun,
    /// In the digits of a `\u`.
    Hex { value: u16, digits: u8 },
}

/// How far a piece has led.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// The string goes on.
    On,
    /// It is closed; this follows.
    Closed(&'a str),
    /// This is no JSON string.
    Wrong,
}

impl Unescape {
    /// Takes a piece and hands on what it means.
    pub(super) fn read<'a>(&mut self, piece: &'a str, mut take: impl FnMut(&str)) -> Read<'a> {
        let mut rest = piece;
        while let Some(&first) = rest.as_bytes().first() {
            if let Some(escape) = self.escape {
                if self.escaped(escape, first, &mut take).is_none() {
                    return Read::Wrong;
                }
                // Every byte of an escape is ASCII, so this is the border of a character.
                rest = &rest[1..];
                continue;
            }
            // A half of a pair alone means nothing.
            if self.high.is_some() && first != b'\\' {
                return Read::Wrong;
            }
            let end = memchr::memchr2(b'"', b'\\', rest.as_bytes()).unwrap_or(rest.len());
            if end > 0 {
                take(&rest[..end]);
            }
            match rest.as_bytes().get(end) {
                Some(b'"') => return Read::Closed(&rest[end + 1..]),
                Some(_) => self.escape = Some(Escape::Begun),
                None => return Read::On,
            }
            rest = &rest[end + 1..];
        }
        Read::On
    }

    /// Takes a byte of an escape; `None` if it makes no sense.
    fn escaped(&mut self, escape: Escape, byte: u8, take: &mut impl FnMut(&str)) -> Option<()> {
        self.escape = None;
        let (value, digits) = match (escape, byte) {
            (Escape::Begun, b'u') => {
                self.escape = Some(Escape::Hex { value: 0, digits: 0 });
                return Some(());
            }
            (Escape::Begun, _) if self.high.is_some() => return None,
            (Escape::Begun, _) => {
                take(simple(byte)?);
                return Some(());
            }
            (Escape::Hex { value, digits }, _) => {
                let digit = char::from(byte).to_digit(16).and_then(|it| u16::try_from(it).ok())?;
                (value << 4 | digit, digits + 1)
            }
        };
        if digits < 4 {
            self.escape = Some(Escape::Hex { value, digits });
            return Some(());
        }
        match (self.high.take(), value) {
            (None, 0xD800..0xDC00) => self.high = Some(value),
            (high, _) => {
                let units = high.into_iter().chain([value]);
                for char in char::decode_utf16(units) {
                    take(char.ok()?.encode_utf8(&mut [0; 4]));
                }
            }
        }
        Some(())
    }
}

fn simple(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'"' => "\"",
        b'\\' => "\\",
        b'/' => "/",
        b'n' => "\n",
        b't' => "\t",
        b'r' => "\r",
        b'b' => "\u{8}",
        b'f' => "\u{c}",
        _ => return None,
    })
}
