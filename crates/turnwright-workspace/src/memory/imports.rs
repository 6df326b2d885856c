//! Finds the files that instructions import: `@docs/style.md` in a line of text stands for that file. Pure.

/// The most imports of one file that are followed.
const MAX_IMPORTS: usize = 20;

/// The paths that a text imports, in their order. Code, in which `@` has other meanings, imports nothing.
pub(super) fn imported_paths(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut fence = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => imports_of_line(line, &mut found),
        }
    }
    found.truncate(MAX_IMPORTS);
    found
}

fn imports_of_line<'a>(line: &'a str, found: &mut Vec<&'a str>) {
    let mut is_code = true;
    let mut was_empty = false;
    for (index, part) in line.split('`').enumerate() {
        // Several backticks in a row begin or end code like one.
        is_code ^= !was_empty;
        was_empty = part.is_empty() && index > 0;
        if is_code {
            continue;
        }
        for word in part.split(ends_word) {
            let word = word.trim_start_matches(['(', '[', '*', '"']);
            let Some((before, path)) = word.split_once('@') else { continue };
            // Chinese and Japanese have no blanks between words, and addresses of mail no such letters.
            if before.ends_with(|char: char| char.is_ascii()) {
                continue;
            }
            let path = path
                .trim_end_matches(['.', ',', ';', ':', ')', ']', '*', '"', '!', '?'])
                .trim_end_matches(['）', '】', '」', '』', '》', '”', '’']);
            if !path.is_empty() && !path.starts_with(['/', '~']) && !found.contains(&path) {
                found.push(path);
            }
        }
    }
}

fn ends_word(char: char) -> bool {
    char.is_whitespace() || "，。；：、！？،؛؟".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_words_outside_of_code() {
        let table: [(&str, &[&str]); 12] = [
            ("请看@docs/规范.md。另见（@b.md）、“@c.md”", &["docs/规范.md", "b.md", "c.md"]),
            ("اقرأ @docs/a.md، ثم @b.md؟ mail@例子.cn", &["docs/a.md", "b.md"]),
            ("See @README.md and @docs/a.md.", &["README.md", "docs/a.md"]),
            ("@a.md\n- @b.md\n(@c.md), **@d.md**", &["a.md", "b.md", "c.md", "d.md"]),
            ("@a.md @a.md", &["a.md"]),
            ("mail me@example.com or ask @", &[]),
            ("`@types/node` and ``@x`` but @y", &["y"]),
            ("```\n@a\n~~~\n@b\n```\n@c", &["c"]),
            ("~~~\n@never closed", &[]),
            ("@/etc/passwd @~/.ssh/id_ed25519", &[]),
            ("@../up.md @./here.md", &["../up.md", "./here.md"]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(imported_paths(text), expected, "{text}");
        }
        let many: Vec<_> = (0..99).map(|number| format!("@{number}")).collect();
        assert_eq!(imported_paths(&many.join(" ")).len(), MAX_IMPORTS);
    }
}
