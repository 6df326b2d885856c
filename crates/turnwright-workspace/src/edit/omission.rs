//! Words that stand for lines that were left out: a model that writes them would lose those lines.

use std::collections::HashSet;

/// How comments begin and end.
const MARKS: &[&str] =
    &["//", "/*", "*/", "<!--", "-->", "{/*", "*/}", "#", "--", ";", "%", "\"\"\"", "'''", "*"];

/// What is left out.
const THINGS: &[&str] = &[
    "code",
    "file",
    "function",
    "method",
    "class",
    "module",
    "implementation",
    "content",
    "contents",
    "lines",
    "logic",
    "imports",
    "body",
    "section",
    "document",
    "tests",
    "text",
];

/// What it is said to be.
const STATES: &[&str] =
    &["existing", "rest", "remaining", "unchanged", "same", "previous", "omitted", "original"];

/// Words that make no difference.
const FILLERS: &[&str] = &[
    "of", "the", "as", "is", "are", "before", "here", "this", "your", "all", "other", "above",
    "below", "for", "brevity", "remains", "remain", "stays", "stay", "goes", "and", "from", "in",
];

/// Which line of `new`, counted from 1, stands for others that were left out. `old` is what was
/// there: a line that it has, too, is none.
pub fn find<'t>(new: &'t str, old: &str) -> Option<usize> {
    let mut known = HashSet::new();
    let mut is_new = |line: &'t str| {
        let line = line.trim();
        !(known.contains(line) || old.contains(line) && known.insert(line))
    };
    new.lines().position(|line| is_placeholder(line) && is_new(line)).map(|it| it + 1)
}

fn is_placeholder(line: &str) -> bool {
    // Prose may say the same in more words.
    if line.len() > 120 {
        return false;
    }
    let (mut words, mut is_comment) = (line.trim(), false);
    while let Some(rest) = MARKS.iter().find_map(|it| words.strip_prefix(it)) {
        (words, is_comment) = (rest.trim_start(), true);
    }
    while let Some(rest) = MARKS.iter().find_map(|it| words.strip_suffix(it)) {
        words = rest.trim_end();
    }
    let bare = words.trim_matches(|it: char| "….()[]{}<>: ".contains(it));
    let has_dots = words.contains('…') || words.contains("...");
    if bare.is_empty() {
        // Three dots alone are code in some languages; in a comment they are not.
        let is_only_dots = words.chars().all(|it| it == '…' || it == '.');
        return has_dots && is_only_dots && (is_comment || words == "…");
    }
    (is_comment || has_dots) && says_it(bare, has_dots)
}

/// Whether the words say that something is as it was and nothing else.
fn says_it(words: &str, has_dots: bool) -> bool {
    let words = words.to_lowercase();
    let words: Vec<_> =
        words.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty()).collect();
    let has = |list: &[&str]| words.iter().any(|it| list.contains(it));
    let known = |it: &&str| [THINGS, STATES, FILLERS].iter().any(|list| list.contains(it));
    let unknown = words.iter().filter(|it| !known(it)).count();
    let states = words.iter().filter(|it| STATES.contains(it)).count();
    // A name may stand among them, as in `rest of parse_args unchanged`.
    let most_unknown = usize::from(has_dots || states > 1) * 2;
    has(STATES) && unknown <= most_unknown && (has_dots || has(THINGS) || states > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_stands_for_others_is_seen() {
        for line in [
            "// ... existing code ...",
            "    // … existing code …",
            "# rest of code unchanged",
            "# ... rest of the file remains the same",
            "/* … */",
            "// ...",
            "# ...",
            "…",
            "<!-- rest of the content -->",
            "{/* ... existing imports ... */}",
            "-- remaining lines unchanged",
            "... (rest of function unchanged) ...",
            "// rest of parse_args unchanged",
            "/* existing code */",
            "// (unchanged code)",
        ] {
            assert_eq!(find(&format!("fn a() {{\n{line}\n}}"), "fn a() {}"), Some(2), "{line}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_none() {
        for line in [
            "...",
            "    ...",
            "return f(...args);",
            "let [first, ...rest] = list;",
            "// the rest of the arguments are passed to the child",
            "# Remaining time in seconds",
            "println!(\"...\");",
            "// wait for existing connections to close",
            "log(\"loading ...\")",
            "case 1...5: break",
            "",
            "// the same",
            "## Rest",
            "The rest of the code is in lib.rs.",
        ] {
            assert_eq!(find(line, ""), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_was_there_is_none() {
        assert_eq!(find("a\n// ...\n", "b\n    // ...\n"), None);
    }
}
