//! Detects placeholders for omitted lines, such as `// ... existing code ...`: writing them to a
//! file would lose those lines.

use std::collections::HashSet;

const COMMENT_MARKS: &[&str] =
    &["//", "/*", "*/", "<!--", "-->", "{/*", "*/}", "#", "--", ";", "%", "\"\"\"", "'''", "*"];

/// Words for what is omitted.
const OMITTED_THINGS: &[&str] = &[
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

/// Words that say that something stays as it is.
const OMISSION_WORDS: &[&str] =
    &["existing", "rest", "remaining", "unchanged", "same", "previous", "omitted", "original"];

/// Words that are ignored.
const FILLER_WORDS: &[&str] = &[
    "of", "the", "as", "is", "are", "before", "here", "this", "your", "all", "other", "above",
    "below", "for", "brevity", "remains", "remain", "stays", "stay", "goes", "and", "from", "in",
];

/// Finds the first line of `new`, counted from 1, that is a placeholder. A line that `old`
/// contains, too, is none.
pub fn find_placeholder<'t>(new: &'t str, old: &str) -> Option<usize> {
    let mut known = HashSet::new();
    let mut is_new = |line: &'t str| {
        let line = line.trim();
        !(known.contains(line) || old.contains(line) && known.insert(line))
    };
    new.lines().position(|line| is_placeholder(line) && is_new(line)).map(|index| index + 1)
}

fn is_placeholder(line: &str) -> bool {
    // A longer line is prose.
    if line.len() > 120 {
        return false;
    }
    let mut words = line.trim();
    let mut is_comment = false;
    while let Some(rest) = COMMENT_MARKS.iter().find_map(|mark| words.strip_prefix(mark)) {
        (words, is_comment) = (rest.trim_start(), true);
    }
    while let Some(rest) = COMMENT_MARKS.iter().find_map(|mark| words.strip_suffix(mark)) {
        words = rest.trim_end();
    }
    let bare = words.trim_matches(|c: char| "….()[]{}<>: ".contains(c));
    let has_dots = words.contains('…') || words.contains("...");
    if bare.is_empty() {
        // Three dots alone are code in some languages, but a placeholder in a comment.
        let is_only_dots = words.chars().all(|c| c == '…' || c == '.');
        return has_dots && is_only_dots && (is_comment || words == "…");
    }
    (is_comment || has_dots) && describes_omission(bare, has_dots)
}

/// Returns true if the words say only that something is unchanged.
fn describes_omission(words: &str, has_dots: bool) -> bool {
    let words = words.to_lowercase();
    let words: Vec<_> =
        words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let known = |word: &&str| {
        [OMITTED_THINGS, OMISSION_WORDS, FILLER_WORDS].iter().any(|list| list.contains(word))
    };
    let unknown = words.iter().filter(|word| !known(word)).count();
    let states = words.iter().filter(|word| OMISSION_WORDS.contains(word)).count();
    // They may include a name, as in `rest of parse_args unchanged`.
    let most_unknown = usize::from(has_dots || states > 1) * 2;
    has(OMISSION_WORDS)
        && unknown <= most_unknown
        && (has_dots || has(OMITTED_THINGS) || states > 1)
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
            assert_eq!(
                find_placeholder(&format!("fn a() {{\n{line}\n}}"), "fn a() {}"),
                Some(2),
                "{line}"
            );
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
            assert_eq!(find_placeholder(line, ""), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_was_there_is_none() {
        assert_eq!(find_placeholder("a\n// ...\n", "b\n    // ...\n"), None);
    }
}
