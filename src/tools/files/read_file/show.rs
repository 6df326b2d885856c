//! Renders text, outlines and binary files for the model.

use super::outline::outline;
use turnwright_types::text::format_bytes;
use turnwright_workspace::files::{BinaryFile, Excerpt, LineWindow, ReadContent};

const MAX_LINES: usize = 2_000;
const MAX_LINE_CHARS: usize = 2_000;
pub(super) const MAX_CALL_BYTES: usize = 50 * 1024;
/// Larger files are shown as an outline if no lines are requested.
const OUTLINE_BYTES: usize = 100 * 1024;
/// If more characters than this of a line are cut, another tool is suggested.
const MAX_CUT_CHARS: usize = 20_000;

/// The requested range and the limits of the shown part.
pub(super) fn window((start, end): (Option<i64>, Option<i64>)) -> LineWindow {
    LineWindow {
        start,
        end,
        max_lines: MAX_LINES,
        max_width: MAX_LINE_CHARS,
        max_bytes: MAX_CALL_BYTES,
    }
}

#[derive(Debug)]
pub(super) enum ShownText {
    Lines(Excerpt),
    Outline { lines: usize, bytes: usize, text: String },
}

/// Selects the shown part of a text. Slow for large texts.
pub(super) fn select_shown(name: &str, look: ReadContent, window: &LineWindow) -> ShownText {
    let text = match look {
        ReadContent::Excerpt(excerpt) => return ShownText::Lines(excerpt),
        ReadContent::Whole(text) => text.text,
    };
    let is_ranged = window.start.is_some() || window.end.is_some();
    let is_large = text.len() > OUTLINE_BYTES && !is_ranged;
    if let Some(outline) = is_large.then(|| outline(name, &text)).flatten() {
        let lines = text.lines().count();
        return ShownText::Outline { lines, bytes: text.len(), text: outline };
    }
    ShownText::Lines(Excerpt::of(&text, window))
}

/// Appends an outline under its header.
pub(super) fn show_outline(
    text: &mut String,
    name: &str,
    lines: usize,
    bytes: usize,
    outline: &str,
) {
    text.push_str(&format!(
        "[File: {name} | Lines: {lines}]\n[The file has {}, so this is its outline. The outline is \
         a successful response: do not repeat the call. Read the lines you need with start_line \
         and end_line, or use grep.]\n{outline}",
        format_bytes(bytes as u64)
    ));
}

/// Appends a header and as many lines as fit into `room` bytes.
pub(super) fn show_lines(
    text: &mut String,
    name: &str,
    excerpt: &Excerpt,
    numbered: bool,
    room: usize,
) {
    let Excerpt { first_line: first, lines, total, is_total_exact: is_exact, has_more: more } =
        excerpt;
    let about = if *is_exact { format!("{total}") } else { format!("at least {total}") };
    text.push_str(&format!("[File: {name} | Lines: {about}]\n"));
    let after_end = usize::try_from(*first).is_ok_and(|first| first > *total);
    if lines.is_empty() && after_end && *total > 0 {
        text.push_str(&format!("[line {first} is after the end: there are {total} lines]\n"));
        return;
    }
    if room == 0 && !lines.is_empty() {
        text.push_str("[not shown: the other files have used up this call; read it in another]\n");
        return;
    }
    let begin = text.len();
    let mut shown = 0;
    for (number, line) in (*first..).zip(lines) {
        if text.len() - begin > room {
            break;
        }
        if numbered {
            push_number(text, number);
        }
        text.push_str(&line.text);
        if line.omitted_chars > 0 {
            text.push_str(&format!("…[+{} characters]", line.omitted_chars));
        }
        text.push('\n');
        shown += 1;
    }
    let next = first + shown;
    if *more || usize::try_from(shown).is_ok_and(|shown| shown < lines.len()) {
        text.push_str(&format!(
            "[showing lines {first}–{} of {about}; continue with start_line={next}]\n",
            next - 1
        ));
    }
    if *first < 0 && numbered {
        text.push_str("[The file is too large to count its lines: -1 is the last one.]\n");
    }
    if lines.iter().any(|line| line.omitted_chars > MAX_CUT_CHARS) {
        text.push_str("[A line is very long: use grep, or exec with cut -c, for parts of it.]\n");
    }
}

/// Appends `{number:>5}| ` in a fifth of the time that formatting takes.
fn push_number(text: &mut String, number: i64) {
    let mut digits = [b' '; 24];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    let mut put = |byte: u8| {
        at -= 1;
        digits[at] = byte;
    };
    loop {
        put(b'0' + u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        put(b'-');
    }
    let begin = at.min(digits.len() - 5);
    text.push_str(std::str::from_utf8(&digits[begin..]).unwrap_or_default());
    text.push_str("| ");
}

pub(super) fn describe_binary(name: &str, binary: &BinaryFile) -> String {
    let bytes: Vec<_> = binary.head.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[File: {name} | {}]\nFirst bytes: {}\n", binary_kind(binary), bytes.join(" "))
}

/// `binary, 12 KB, PNG 640×480`.
pub(super) fn binary_kind(binary: &BinaryFile) -> String {
    let mut text = format!("binary, {}", format_bytes(binary.size));
    if let Some(kind) = &binary.kind {
        text.push_str(&format!(", {}", kind.name));
        if let Some((width, height)) = kind.size {
            text.push_str(&format!(" {width}×{height}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_as_formatting_aligns_them() {
        for number in [0, 1, -1, 9_999, 99_999, 100_000, -9_999, -99_999, i64::MAX, i64::MIN] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, format!("{number:>5}| "));
        }
    }
}
