//! Detects placeholders for omitted lines, such as `// ... existing code ...`: writing them to a
//! file would lose those lines. Also detects marks that models copy from results of `read_file`, and the
//! end of a tool call in the text that it carries.

use std::collections::HashSet;

use turnwright_types::text;

const COMMENT_MARKS: &[&str] =
    &["//", "/*", "*/", "<!--", "-->", "{/*", "*/}", "#", "--", ";", "%", "\"\"\"", "'''", "*"];

/// Words for what is omitted.
const OMITTED_THINGS: &str = include_str!("omitted_things.txt");

/// Words that say that something stays as it is.
const OMISSION_WORDS: &[&str] =
    &["existing", "rest", "remaining", "unchanged", "same", "previous", "omitted", "original"];

/// Words that are ignored.
const FILLER_WORDS: &[&str] = &[
    "of", "the", "as", "is", "are", "before", "here", "this", "your", "all", "other", "above",
    "below", "for", "brevity", "remains", "remain", "stays", "stay", "goes", "and", "from", "in",
];

/// The names of tags that end a tool call. Some models write them behind the text that the call carries.
const CALL_TAGS: &[&str] = &["content", "new_string", "parameter", "invoke", "tool_call"];

/// Why such a line is not written, as a phrase that follows its end.
pub const REFUSAL: &str = "stands for lines that were left out, which would be lost, or is the end of your call. Send \
                           the whole text and nothing else, or change fewer lines.";

/// Finds the first line of `new`, counted from 1, that is a placeholder, or ends with a mark of `read_file` or a tag of
/// the call. A line that `old` contains as well does not count.
pub fn find_placeholder(new: &str, old: &str) -> Option<usize> {
    let mut known = HashSet::new();
    for (index, line) in new.lines().enumerate() {
        let words = line.trim();
        let is_foreign = is_placeholder(line) || is_cut_off(words) || ends_call(words, new, old);
        if known.contains(words) || !is_foreign {
            continue;
        }
        if !old.contains(words) {
            return Some(index + 1);
        }
        known.insert(words);
    }
    None
}

/// Returns true if a line tells where `read_file` has cut off a line or a file.
fn is_cut_off(line: &str) -> bool {
    let cut = line.strip_suffix(" characters]").and_then(|line| line.rsplit_once("…[+"));
    cut.is_some_and(|(_, count)| count.chars().all(char::is_numeric))
        || line.starts_with("[showing lines ") && line.contains("; continue with start_line=")
}

/// Returns true if a line ends with a tag of the call, and neither text has one that it closes.
fn ends_call(line: &str, new: &str, old: &str) -> bool {
    let tag = line.strip_suffix('>').and_then(|line| line.rsplit_once("</"));
    tag.is_some_and(|(_, name)| {
        CALL_TAGS.contains(&name.rsplit(':').next().unwrap_or_default())
            && [new, old].iter().all(|text| !text.contains(&format!("<{name}")))
    })
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
    let lower = words.to_lowercase();
    let mut names_thing = false;
    let mut states = 0;
    let mut unknown = 0;
    for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let is_thing = text::list_entries(OMITTED_THINGS).any(|thing| thing == word);
        let is_state = OMISSION_WORDS.contains(&word);
        names_thing |= is_thing;
        states += usize::from(is_state);
        unknown += usize::from(!is_thing && !is_state && !FILLER_WORDS.contains(&word));
    }
    // They may include a name, as in `rest of parse_args unchanged`.
    let most_unknown = usize::from(has_dots || states > 1) * 2;
    states > 0 && unknown <= most_unknown && (has_dots || names_thing || states > 1)
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
    fn a_tag_that_ends_the_call_is_no_line_of_a_file() {
        for (new, old, expected) in [
            ("print(1)\n</content>\n", "", Some(2)),
            ("print(1)</content>", "", Some(1)),
            ("a\n</new_string>\n</invoke>", "b", Some(2)),
            ("a\n  </x:parameter>\n", "", Some(2)),
            ("a\n</content>\n<parameter name=\"b\">c</parameter>", "", Some(2)),
            ("<content>\na\n</content>", "", None),
            ("a\n</content>", "<content type=\"text\">\n", None),
            ("a\n</content>", "b\n</content>\n", None),
            ("s = \"</content>\"", "", None),
            ("`</invoke>`", "", None),
            ("</p>", "", None),
        ] {
            assert_eq!(find_placeholder(new, old), expected, "{new}");
        }
    }

    #[test]
    fn what_is_shown_in_place_of_the_rest_of_a_file_is_no_line_of_it() {
        for (line, expected) in [
            ("let a = \"xxx…[+1003 characters]", Some(2)),
            ("[showing lines 1–2000 of 5000; continue with start_line=2001]", Some(2)),
            ("format!(\"…[+{left} characters]\")", None),
            ("[showing lines of the file]", None),
        ] {
            assert_eq!(find_placeholder(&format!("a\n{line}\n"), ""), expected, "{line}");
            assert_eq!(find_placeholder(&format!("a\n{line}\n"), line), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_was_there_is_none() {
        assert_eq!(find_placeholder("a\n// ...\n", "b\n    // ...\n"), None);
    }
}
