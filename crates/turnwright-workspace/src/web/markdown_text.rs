//! The marks of Markdown: what has to be escaped, and how code, items and spaces are written.

use std::borrow::Cow;

/// Makes one space of each run of white space.
pub(super) fn compress_whitespace(text: &str) -> String {
    let mut compressed = String::with_capacity(text.len());
    for character in text.chars() {
        if !character.is_ascii_whitespace() {
            compressed.push(character);
        } else if !compressed.ends_with(' ') {
            compressed.push(' ');
        }
    }
    compressed
}

/// Escapes what would be a mark. At the start of a line there are more of them.
pub(super) fn escape(text: &str, is_line_start: bool) -> Cow<'_, str> {
    let at_start = if is_line_start { escaped_at_start(text) } else { None };
    let is_mark = |it: char| matches!(it, '\\' | '*' | '_' | '`' | '[' | ']' | '<');
    if at_start.is_none() && !text.contains(is_mark) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for (at, character) in text.char_indices() {
        let is_escaped = match character {
            '<' => is_tag(&text[at + 1..]),
            _ => is_mark(character) || at_start == Some(at),
        };
        if is_escaped {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    Cow::Owned(escaped)
}

/// Where the mark is that makes a line a heading, a quote, an item or a fence.
fn escaped_at_start(text: &str) -> Option<usize> {
    let after = |it: char| text.trim_start_matches(it);
    match text.chars().next()? {
        '=' | '~' | '>' => Some(0),
        '-' if after('-').starts_with(' ') && text.starts_with("- ") => Some(0),
        '+' if text.starts_with("+ ") => Some(0),
        '#' if after('#').starts_with(' ') => Some(0),
        '0'..='9' => {
            let rest = text.trim_start_matches(|it: char| it.is_ascii_digit());
            rest.starts_with(". ").then(|| text.len() - rest.len())
        }
        _ => None,
    }
}

/// True if a `<` before this begins a tag, a comment or the like.
fn is_tag(rest: &str) -> bool {
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    rest.starts_with(|it: char| it.is_ascii_alphabetic() || it == '!' || it == '?')
}

/// Indents all lines but the first.
pub(super) fn indent(text: &str, width: usize) -> String {
    let margin = " ".repeat(width);
    let mut indented = String::with_capacity(text.len() + 8 * width);
    for (index, line) in text.lines().map(|it| it.trim_end_matches([' ', '\t', '\r'])).enumerate() {
        if index > 0 {
            indented.push('\n');
            indented.push_str(if line.is_empty() { "" } else { &margin });
        }
        indented.push_str(line);
    }
    indented
}

pub(super) fn inline_code(content: &str) -> String {
    let text = compress_whitespace(content);
    let text = text.trim_matches(' ');
    if text.is_empty() {
        return String::new();
    }
    let marks = "`".repeat(longest_run(text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{marks}{space}{text}{space}{marks}")
}

pub(super) fn code_fence(program: &str, language: &str) -> String {
    if program.trim().is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(program).max(2) + 1);
    format!("\n\n{fence}{language}\n{program}\n{fence}\n\n")
}

/// The length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or_default()
}
