//! Emphasis, code and links within a line of Markdown. A mark is hidden only once its counterpart has
//! arrived in the same line; until then the text behind it is held back. A mark without one is text.

use super::super::text_style::{TerminalColor, TextStyle};

/// How many bytes behind a mark are held back at most.
const MAX_HELD_BYTES: usize = 600;

/// Characters that a backslash makes text.
const ESCAPABLE: &str = "\\`*_[]()#<>|~!-+.";

/// Where pieces of text go.
pub(super) type EmitPiece<'a> = &'a mut dyn FnMut(&str, TextStyle);

/// Emits the pieces of a part of a line and returns how many bytes of it were used. Unless the line
/// `is_complete`, what may still become something else is left over. `before` is the character before the
/// text. With `keeps_marks` nothing is hidden.
pub(super) fn emit_inline(
    text: &str,
    is_complete: bool,
    before: Option<char>,
    (style, keeps_marks): (TextStyle, bool),
    emit: EmitPiece<'_>,
) -> usize {
    let mut at = 0;
    let mut before = before;
    while let Some(offset) = text[at..].find(['\\', '`', '*', '_', '[']) {
        if offset > 0 {
            emit(&text[at..at + offset], style);
            before = text[..at + offset].chars().next_back();
            at += offset;
        }
        let rest = &text[at..];
        let used = match construct(rest, before, is_complete) {
            Construct::Unknown if rest.len() <= MAX_HELD_BYTES => return at,
            Construct::Unknown => mark_length(rest),
            Construct::Text(length) => length,
            construct => {
                emit_construct(rest, &construct, (style, keeps_marks), emit);
                at += construct.length();
                before = text[..at].chars().next_back();
                continue;
            }
        };
        emit(&rest[..used], style);
        at += used;
        before = text[..at].chars().next_back();
    }
    if at < text.len() {
        emit(&text[at..], style);
    }
    text.len()
}

/// The construct that begins at a mark. Lengths are in bytes.
#[derive(Debug, PartialEq, Eq)]
enum Construct {
    /// That depends on what follows.
    Unknown,
    /// Just this much text.
    Text(usize),
    /// A character after a backslash.
    Escaped(usize),
    /// Code between two marks of this length.
    Code { mark: usize, inner: usize },
    /// Text between two marks of this length.
    Emphasis { mark: usize, inner: usize },
    /// A label, and the address behind it.
    Link { label: usize, address: usize },
}

impl Construct {
    fn length(&self) -> usize {
        match self {
            Construct::Unknown => 0,
            Construct::Text(length) | Construct::Escaped(length) => *length,
            Construct::Code { mark, inner } | Construct::Emphasis { mark, inner } => {
                2 * mark + inner
            }
            Construct::Link { label, address } => label + address + 4,
        }
    }
}

fn construct(rest: &str, before: Option<char>, is_complete: bool) -> Construct {
    let unknown = |length: usize| {
        if is_complete { Construct::Text(length) } else { Construct::Unknown }
    };
    match rest.as_bytes()[0] {
        b'\\' => match rest[1..].chars().next() {
            Some(char) if ESCAPABLE.contains(char) => Construct::Escaped(2),
            Some(_) => Construct::Text(1),
            None => unknown(1),
        },
        b'`' => {
            let mark = mark_length(rest);
            match find_mark(&rest[mark..], '`', |length| length == mark) {
                // The mark may become longer.
                Some(inner) if is_complete || 2 * mark + inner < rest.len() => {
                    Construct::Code { mark, inner }
                }
                _ => unknown(mark),
            }
        }
        b'[' => link(rest).unwrap_or_else(|| {
            let label = rest.find(']');
            match label.and_then(|label| rest[label + 1..].chars().next()) {
                Some(char) if char != '(' => Construct::Text(1),
                _ => unknown(1),
            }
        }),
        _ => emphasis(rest, before, is_complete),
    }
}

fn emphasis(rest: &str, before: Option<char>, is_complete: bool) -> Construct {
    let mark = mark_length(rest);
    let sign = if rest.starts_with('*') { '*' } else { '_' };
    let Some(next) = rest[mark..].chars().next() else {
        return if is_complete { Construct::Text(mark) } else { Construct::Unknown };
    };
    // In `snake_case`, `__init__.py` and `2*3` the signs are no marks.
    let is_within_word = match (sign, mark) {
        ('_', 1) => before.is_some_and(char::is_alphanumeric),
        ('_', _) => true,
        (_, 1) => before.is_some_and(|letter| letter.is_ascii_alphanumeric()),
        _ => false,
    };
    if mark > 3 || next.is_whitespace() || is_within_word {
        return Construct::Text(mark);
    }
    match closing_mark(&rest[mark..], (sign, mark), is_complete) {
        Some(inner) if is_complete || 2 * mark + inner < rest.len() => {
            Construct::Emphasis { mark, inner }
        }
        _ if is_complete => Construct::Text(mark),
        _ => Construct::Unknown,
    }
}

/// Finds the mark that closes an emphasis, outside code.
fn closing_mark(text: &str, (sign, mark): (char, usize), is_complete: bool) -> Option<usize> {
    let mut at = 0;
    while let Some(offset) = text[at..].find([sign, '`', '\\']) {
        let start = at + offset;
        let rest = &text[start..];
        let length = mark_length(rest);
        at = start + length;
        if let Some(escaped) = rest.strip_prefix('\\') {
            at = start + 1 + escaped.chars().next().map_or(0, char::len_utf8);
        } else if rest.starts_with('`') {
            match find_mark(&rest[length..], '`', |found| found == length) {
                Some(inner) => at += inner + length,
                // The text behind it may be code.
                None if !is_complete => return None,
                None => {}
            }
        } else {
            // Three signs close both emphases.
            let closes = length == mark || length == 3 && mark < 3;
            let is_after_word =
                text[..start].chars().next_back().is_some_and(|letter| !letter.is_whitespace());
            let is_within_word =
                sign == '_' && text[at..].chars().next().is_some_and(char::is_alphanumeric);
            if closes && is_after_word && !is_within_word {
                return Some(start + length - mark);
            }
        }
    }
    None
}

fn link(rest: &str) -> Option<Construct> {
    let label = rest.find("](").filter(|at| !rest[..*at].contains(']'))? - 1;
    let address = rest[label + 3..].find([')', ' '])?;
    let is_link = label > 0 && address > 0 && rest[label + 3 + address..].starts_with(')');
    is_link.then_some(Construct::Link { label, address })
}

fn emit_construct(
    rest: &str,
    construct: &Construct,
    (style, keeps_marks): (TextStyle, bool),
    emit: EmitPiece<'_>,
) {
    if keeps_marks {
        return emit(&rest[..construct.length()], style);
    }
    match *construct {
        Construct::Unknown | Construct::Text(_) => {}
        Construct::Escaped(length) => emit(&rest[1..length], style),
        Construct::Code { mark, inner } => {
            emit(&rest[mark..mark + inner], style.colored(TerminalColor::Cyan));
        }
        Construct::Emphasis { mark, inner } => {
            let bold = style.bold || mark > 1;
            let italic = style.italic || mark != 2;
            let inner = &rest[mark..mark + inner];
            emit_inline(inner, true, None, (TextStyle { bold, italic, ..style }, false), emit);
        }
        Construct::Link { label, address } => {
            let address = &rest[label + 3..label + 3 + address];
            let label = &rest[1..=label];
            emit(label, TextStyle { underline: true, ..style });
            // A bare address that is its own label is shown once.
            if label != address || !label.starts_with("http") {
                emit(" (", style);
                emit(address, style);
                emit(")", style);
            }
        }
    }
}

/// The number of times that the first character is repeated.
pub(super) fn mark_length(text: &str) -> usize {
    let first = text.chars().next();
    text.len() - text.trim_start_matches(|letter| Some(letter) == first).len()
}

/// Finds a run of the character whose length fits.
pub(super) fn find_mark(text: &str, char: char, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut at = 0;
    while let Some(offset) = text[at..].find(char) {
        let length = mark_length(&text[at + offset..]);
        if fits(length) {
            return Some(at + offset);
        }
        at += offset + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, is_complete: bool) -> (String, usize) {
        let mut found = String::new();
        let used =
            emit_inline(text, is_complete, None, (TextStyle::PLAIN, false), &mut |text, style| {
                let name = match style {
                    TextStyle { bold: true, italic: true, .. } => "BI",
                    TextStyle { bold: true, color: Some(_), .. } => "BC",
                    TextStyle { bold: true, .. } => "B",
                    TextStyle { italic: true, .. } => "I",
                    TextStyle { underline: true, .. } => "U",
                    TextStyle { color: Some(_), .. } => "C",
                    _ => "",
                };
                let text =
                    if name.is_empty() { text.to_owned() } else { format!("{name}<{text}>") };
                found.push_str(&text);
            });
        (found, used)
    }

    #[test]
    fn marks_in_pairs_are_hidden_and_all_others_are_text() {
        for (text, expected) in [
            ("a **b** c", "a B<b> c"),
            ("*a* _b_ ***c***", "I<a> I<b> BI<c>"),
            ("`a*b*` and ``c`d``", "C<a*b*> and C<c`d>"),
            ("**use `x` now**", "B<use >BC<x>B< now>"),
            ("**a *b***", "B<a >BI<b>"),
            ("这是**重点**。", "这是B<重点>。"),
            ("[docs](https://a.b/c) x", "U<docs> (https://a.b/c) x"),
            ("[https://a](https://a)", "U<https://a>"),
            (r"\*a\* C:\dir \\", r"*a* C:\dir \"),
            // No marks.
            ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
            ("match *.rs files", "match *.rs files"),
            ("2 * 3 * 4, a ** b", "2 * 3 * 4, a ** b"),
            ("**open, `open, [open](", "**open, `open, [open]("),
            ("[x] done, a[0][1](y z)", "[x] done, a[0][1](y z)"),
            ("****", "****"),
            ("__init__.py", "__init__.py"),
        ] {
            assert_eq!(pieces(text, true), (expected.to_owned(), text.len()), "{text}");
        }
    }

    #[test]
    fn what_may_become_something_else_waits() {
        for (text, shown) in [
            ("a **b", "a "),
            ("a **b*", "a "),
            ("a `b`", "a "),
            ("a `b` ", "a C<b> "),
            ("a [b](c", "a "),
            ("a [b] ", "a [b] "),
            ("a_", "a"),
            ("a_b", "a_b"),
            ("x\\", "x"),
        ] {
            assert_eq!(pieces(text, false).0, shown, "{text}");
        }
        let long = format!("a *{}", "b".repeat(MAX_HELD_BYTES));
        assert_eq!(pieces(&long, false), (long.clone(), long.len()));
    }
}
