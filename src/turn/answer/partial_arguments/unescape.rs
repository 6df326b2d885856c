//! Decodes the inside of a JSON string incrementally, from pieces cut anywhere.

/// The state of the decoder between two pieces.
#[derive(Debug, Default)]
pub(super) struct StringUnescaper {
    escape: Option<EscapeState>,
    /// A high surrogate whose low surrogate has not arrived yet.
    high_surrogate: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum EscapeState {
    /// After a backslash.
    Backslash,
    /// In the digits of a `\u`.
    Hex { value: u16, digits: u8 },
}

/// The result of reading a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StringProgress<'a> {
    /// The string is not closed yet.
    Unfinished,
    /// The string is closed; this text follows it.
    Closed(&'a str),
    /// The string is not valid JSON.
    Invalid,
}

impl StringUnescaper {
    /// Decodes a piece and passes the text to `take`.
    pub(super) fn read<'a>(
        &mut self,
        piece: &'a str,
        mut take: impl FnMut(&str),
    ) -> StringProgress<'a> {
        let mut rest = piece;
        while let Some(&first) = rest.as_bytes().first() {
            if let Some(escape) = self.escape {
                if self.escape_byte(escape, first, &mut take).is_none() {
                    return StringProgress::Invalid;
                }
                // Every byte of an escape is ASCII, so this is a character boundary.
                rest = &rest[1..];
                continue;
            }
            // A lone surrogate is invalid.
            if self.high_surrogate.is_some() && first != b'\\' {
                return StringProgress::Invalid;
            }
            let end = memchr::memchr2(b'"', b'\\', rest.as_bytes()).unwrap_or(rest.len());
            if end > 0 {
                take(&rest[..end]);
            }
            match rest.as_bytes().get(end) {
                Some(b'"') => return StringProgress::Closed(&rest[end + 1..]),
                Some(_) => self.escape = Some(EscapeState::Backslash),
                None => return StringProgress::Unfinished,
            }
            rest = &rest[end + 1..];
        }
        StringProgress::Unfinished
    }

    /// Handles a byte of an escape; `None` if it is invalid.
    fn escape_byte(
        &mut self,
        escape: EscapeState,
        byte: u8,
        take: &mut impl FnMut(&str),
    ) -> Option<()> {
        self.escape = None;
        let (value, digits) = match (escape, byte) {
            (EscapeState::Backslash, b'u') => {
                self.escape = Some(EscapeState::Hex { value: 0, digits: 0 });
                return Some(());
            }
            (EscapeState::Backslash, _) if self.high_surrogate.is_some() => return None,
            (EscapeState::Backslash, _) => {
                take(simple_escape(byte)?);
                return Some(());
            }
            (EscapeState::Hex { value, digits }, _) => {
                let digit =
                    char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok())?;
                (value << 4 | digit, digits + 1)
            }
        };
        if digits < 4 {
            self.escape = Some(EscapeState::Hex { value, digits });
            return Some(());
        }
        match (self.high_surrogate.take(), value) {
            (None, 0xD800..0xDC00) => self.high_surrogate = Some(value),
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

fn simple_escape(byte: u8) -> Option<&'static str> {
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
