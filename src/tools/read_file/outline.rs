//! The outline of a source file or a Markdown document: what is defined in which line.

/// Lines of an outline.
const MOST_LINES: usize = 200;
/// Fewer say nothing about a file.
const FEWEST_LINES: usize = 3;
/// Characters of a line.
const WIDTH: usize = 120;
/// Deeper definitions are details.
const DEEPEST: usize = 8;

/// Words that may stand before what is defined.
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

/// Words that define something.
const WORDS: &[&str] = &[
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

/// The outline of a text, numbered as its lines are; `None` where there is none worth showing.
pub(super) fn outline(name: &str, text: &str) -> Option<String> {
    let extension = name.rsplit_once('.').map(|it| it.1.to_lowercase()).unwrap_or_default();
    let is_prose = ["md", "markdown", "mdx"].contains(&extension.as_str());
    let counts = |line: &str| if is_prose { heading(line) } else { defines(line) };
    let mut found: Vec<(usize, &str)> = (1..).zip(text.lines()).filter(|it| counts(it.1)).collect();
    if found.len() > MOST_LINES && !is_prose {
        found.retain(|it| !it.1.starts_with([' ', '\t']));
    }
    if found.len() < FEWEST_LINES {
        return None;
    }
    let mut outline = String::new();
    for (number, line) in found.iter().take(MOST_LINES) {
        let end = line.char_indices().nth(WIDTH).map_or(line.len(), |it| it.0);
        outline.push_str(&format!("{number:>5}| {}\n", line[..end].trim_end()));
    }
    if found.len() > MOST_LINES {
        outline.push_str(&format!("[and {} more]\n", found.len() - MOST_LINES));
    }
    Some(outline)
}

fn heading(line: &str) -> bool {
    let level = line.bytes().take_while(|it| *it == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with(' ')
}

fn defines(line: &str) -> bool {
    let code = line.trim_start();
    if line.len() - code.len() > DEEPEST {
        return false;
    }
    let mut words = code.split([' ', '<', '{']).filter(|it| !it.is_empty());
    let is_modifier = |it: &&str| {
        // As in `pub(crate) fn` and `extern "C" fn`.
        MODIFIERS.contains(it) || it.ends_with(')') || it.starts_with('"')
    };
    let first = words.find(|it| !is_modifier(it)).unwrap_or_default();
    // `const fn`, but no constants.
    let first = if first == "const" { words.next().unwrap_or_default() } else { first };
    let name = words.next().unwrap_or_default();
    WORDS.contains(&first)
        && name.starts_with(|it: char| it.is_alphanumeric() || "_$'&*(".contains(it))
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
            assert!(defines(line), "{line}");
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
            assert!(!defines(line), "{line}");
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
