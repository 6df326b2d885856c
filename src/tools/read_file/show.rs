//! What was found, as the model reads it.

use super::outline::outline;
use turnwright_workspace::files::{Binary, Excerpt, Look, Window};

/// The most lines of one file.
const MOST_LINES: usize = 2_000;
/// The most characters of one line.
const LONGEST_LINE: usize = 2_000;
/// The most bytes of one call.
pub(super) const MOST_BYTES: usize = 50 * 1024;
/// Larger files are shown by their outline when no lines are asked for.
const LARGE: usize = 100 * 1024;
/// A line of which so much is missing is no line to be read.
const HUGE: usize = 20_000;

/// The lines that one call may show of one file.
pub(super) fn window((start, end): (Option<i64>, Option<i64>)) -> Window {
    Window { start, end, lines: MOST_LINES, width: LONGEST_LINE, bytes: MOST_BYTES }
}

/// What is shown of a text.
#[derive(Debug)]
pub(super) enum Shown {
    Lines(Excerpt),
    Outline { lines: usize, bytes: usize, text: String },
}

/// The part of a text that is shown. For large texts this takes its time.
pub(super) fn choose(name: &str, look: Look, window: &Window) -> Shown {
    let text = match look {
        Look::Part(excerpt) => return Shown::Lines(excerpt),
        Look::Whole(text) => text.text,
    };
    let is_ranged = window.start.is_some() || window.end.is_some();
    let is_large = text.len() > LARGE && !is_ranged;
    if let Some(outline) = is_large.then(|| outline(name, &text)).flatten() {
        let lines = text.lines().count();
        return Shown::Outline { lines, bytes: text.len(), text: outline };
    }
    Shown::Lines(Excerpt::of(&text, window))
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
        size(bytes as u64)
    ));
}

/// Appends a header and lines, as far as there is room.
pub(super) fn show_lines(
    text: &mut String,
    name: &str,
    excerpt: &Excerpt,
    numbered: bool,
    room: usize,
) {
    let Excerpt { first, lines, total, is_exact, more } = excerpt;
    let about = if *is_exact { format!("{total}") } else { format!("at least {total}") };
    text.push_str(&format!("[File: {name} | Lines: {about}]\n"));
    let after_end = usize::try_from(*first).is_ok_and(|it| it > *total);
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
            text.push_str(&format!("{number:>5}| "));
        }
        text.push_str(&line.text);
        if line.cut > 0 {
            text.push_str(&format!("…[+{} characters]", line.cut));
        }
        text.push('\n');
        shown += 1;
    }
    let next = first + shown;
    if *more || usize::try_from(shown).is_ok_and(|it| it < lines.len()) {
        text.push_str(&format!(
            "[showing lines {first}–{} of {about}; continue with start_line={next}]\n",
            next - 1
        ));
    }
    if *first < 0 && numbered {
        text.push_str("[The file is too large to count its lines: -1 is the last one.]\n");
    }
    if lines.iter().any(|it| it.cut > HUGE) {
        text.push_str("[A line is very long: use grep, or exec with cut -c, for parts of it.]\n");
    }
}

/// What a file is that is no text.
pub(super) fn binary(name: &str, binary: &Binary) -> String {
    let bytes: Vec<_> = binary.head.iter().map(|it| format!("{it:02x}")).collect();
    format!("[File: {name} | {}]\nFirst bytes: {}\n", sort(binary), bytes.join(" "))
}

/// `binary, 12 KB, PNG 640×480`.
pub(super) fn sort(binary: &Binary) -> String {
    let mut text = format!("binary, {}", size(binary.size));
    if let Some(kind) = &binary.kind {
        text.push_str(&format!(", {}", kind.name));
        if let Some((width, height)) = kind.size {
            text.push_str(&format!(" {width}×{height}"));
        }
    }
    text
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => format!("{} GB", bytes.div_ceil(1_000_000_000)),
    }
}
