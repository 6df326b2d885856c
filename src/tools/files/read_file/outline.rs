//! The outline of a source file or a Markdown document: its definitions or headings with their line
//! numbers.

use turnwright_types::text;

const MAX_LINES: usize = 200;
/// A shorter outline is useless.
const MIN_LINES: usize = 3;
/// Lines are cut after this many characters.
const MAX_LINE_CHARS: usize = 120;
/// Definitions that are indented more are details.
const MAX_INDENT: usize = 8;

/// Words that may precede a definition's keyword.
const MODIFIERS: &[&str] = &[
    "pub",
    "export",
    "default",
    "async",
    "unsafe",
    "extern",
    "public",
    "private",
    "protected",
    "internal",
    "static",
    "final",
    "abstract",
    "sealed",
    "override",
    "open",
    "inline",
    "partial",
    "declare",
];

/// Keywords that begin a definition.
const DEFINITION_KEYWORDS: &[&str] = &[
    "fn",
    "class",
    "struct",
    "enum",
    "impl",
    "trait",
    "def",
    "func",
    "fun",
    "function",
    "interface",
    "type",
    "module",
    "mod",
    "namespace",
    "object",
    "record",
    "union",
    "macro_rules!",
    "package",
    "protocol",
    "extension",
    "defmodule",
    "defp",
    "sub",
];

/// The outline of a text with its line numbers; `None` if it is too short to be useful.
pub(super) fn outline(name: &str, text: &str) -> Option<String> {
    let extension =
        name.rsplit_once('.').map(|(_, extension)| extension.to_lowercase()).unwrap_or_default();
    let is_prose = ["md", "markdown", "mdx"].contains(&extension.as_str());
    let listed = (1..)
        .zip(text.lines())
        .filter(|(_, line)| if is_prose { is_heading(line) } else { is_definition(line) });
    let mut found: Vec<(usize, &str)> = listed.collect();
    if found.len() > MAX_LINES && !is_prose {
        found.retain(|(_, line)| !line.starts_with([' ', '\t']));
    }
    if found.len() < MIN_LINES {
        return None;
    }
    let mut outline = String::new();
    for (number, line) in found.iter().take(MAX_LINES) {
        let line = text::first_chars(line, MAX_LINE_CHARS).trim_end();
        outline.push_str(&format!("{number:>5}| {line}\n"));
    }
    if found.len() > MAX_LINES {
        outline.push_str(&format!("[and {} more]\n", found.len() - MAX_LINES));
    }
    Some(outline)
}

fn is_heading(line: &str) -> bool {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with(' ')
}

fn is_definition(line: &str) -> bool {
    let code = line.trim_start();
    if line.len() - code.len() > MAX_INDENT {
        return false;
    }
    let mut words = code.split([' ', '<', '{']).filter(|word| !word.is_empty());
    let first = words.find(|word| !is_modifier(word)).unwrap_or_default();
    // `const fn` is a definition, a constant is not.
    let keyword = if first == "const" { words.next().unwrap_or_default() } else { first };
    let name = words.next().unwrap_or_default();
    DEFINITION_KEYWORDS.contains(&keyword)
        && name.starts_with(|letter: char| letter.is_alphanumeric() || "_$'&*(".contains(letter))
}

fn is_modifier(word: &str) -> bool {
    // As in `pub(crate) fn` and `extern "C" fn`.
    MODIFIERS.contains(&word) || word.ends_with(')') || word.starts_with('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_in_many_languages() {
        let table = [
            "pub fn a() {",
            "pub(crate) async fn a() {",
            "    const fn a() {",
            "impl<T> A for B {",
            "export default class A {",
            "class A:",
            "    def a(self):",
            "async def a():",
            "func (a *A) b() {",
            "func a() {",
            "function a() {",
            "export interface A {",
            "type A = B",
            "public static final class A {",
            "pub unsafe extern \"C\" fn a() {",
            "mod tests {",
            "struct A;",
        ];
        for line in table {
            assert!(is_definition(line), "{line}");
        }
        let others = [
            "",
            "// fn a",
            "let fn_a = 1;",
            "                    fn deep() {",
            "classify(a)",
            "# class",
            "const A: u8 = 1;",
            "functional programming",
            "return class_of(a)",
            "type(a)",
        ];
        for line in others {
            assert!(!is_definition(line), "{line}");
        }
    }

    #[test]
    fn an_outline_has_the_numbers_of_the_lines_and_an_end() {
        let text = "# A\n\ntext\n## B\n#no\n### C\n";
        assert_eq!(outline("a.md", text).unwrap(), "    1| # A\n    4| ## B\n    6| ### C\n");
        assert_eq!(outline("a.log", text), None);
        let many = "fn a() {}\n    fn b() {}\n".repeat(300);
        let outline = outline("a.rs", &many).unwrap();
        assert_eq!(outline.lines().count(), 201);
        assert!(!outline.contains("fn b") && outline.ends_with("[and 100 more]\n"), "{outline}");
    }
}
