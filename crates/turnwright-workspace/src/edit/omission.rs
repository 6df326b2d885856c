//! Detects placeholders for omitted lines, such as `// ... existing code ...`: writing them to a
//! file would lose those lines. So would a text that was copied from a cut result of `read_file`.
//! Also detects the end of a tool call behind the text that it carries.

use std::collections::HashSet;

use turnwright_types::text;

const COMMENT_MARKS: &[&str] =
    &["//", "/*", "*/", "<!--", "-->", "{/*", "*/}", "#", "--", ";", "%", "\"\"\"", "'''", "*"];

/// Words for what is omitted.
const OMITTED_THINGS: &str = include_str!("omitted_things.txt");
/// Words that say that something stays as it is.
const OMISSION_WORDS: &str = include_str!("omission_words.txt");
/// Words that say so only behind dots, as in `// ... other methods ...`.
const WORDS_BEHIND_DOTS: [&str; 3] = ["other", "full", "changes"];
/// Words that are ignored.
const FILLER_WORDS: &str = include_str!("filler_words.txt");

/// The beginnings of tags that follow the end of an argument.
const CALL_TAGS: &[&str] = &["</invoke>", "</tool_call>", "<parameter"];

/// Why such a line is not written, as a phrase that follows it.
pub const REFUSAL: &str = "stands for lines that were left out, which would be lost, or is the end of your call. Send \
                           the whole text and nothing else, or change fewer lines.";

/// Finds the first line of `new`, counted from 1, that is a placeholder or was cut off, or else the one where the call
/// ends that carries `new` in this argument. A line that `old` contains as well does not count.
pub fn find_placeholder(new: &str, old: &str, argument: &str) -> Option<usize> {
    let mut known = HashSet::new();
    // Code in a new text may leave lines out, unless all of the text is in a fence.
    let may_have_examples = old.is_empty() || argument != "content";
    let mut is_example = false;
    for (index, line) in new.lines().enumerate() {
        is_example ^= may_have_examples && index > 0 && line.trim_start().starts_with("```");
        if (is_example || !is_placeholder(line)) && !is_cut_off(line.trim(), old) {
            continue;
        }
        let line = line.trim();
        if !known.contains(line) && !old.contains(line) {
            return Some(index + 1);
        }
        known.insert(line);
    }
    find_end_of_call(new, old, argument)
}

/// Returns true if `read_file` has shown `old`, or a line of it, up to this mark. Both must fit exactly, because texts
/// may quote such marks.
fn is_cut_off(line: &str, old: &str) -> bool {
    if line.starts_with("[showing lines ") && line.contains("; continue with start_line=") {
        return line.contains(&format!(" of {};", old.lines().count()));
    }
    let cut = line.strip_suffix(" characters]").and_then(|line| line.rsplit_once("…[+"));
    cut.is_some_and(|(shown, count)| {
        let mut rests = old.lines().filter_map(|line| line.trim_start().strip_prefix(shown));
        rests.any(|rest| rest.chars().count().to_string() == count)
    })
}

/// Finds the line with the tag that ends an argument, if only the rest of a call follows. Some models write it behind
/// the text. It is part of the file if the tag is also elsewhere, there or in `old`.
fn find_end_of_call(new: &str, old: &str, argument: &str) -> Option<usize> {
    let tag = format!("</{argument}>");
    let opening = format!("<{argument}");
    let (text, rest) = new.split_once(tag.as_str())?;
    let next_word = rest.split_whitespace().next();
    let is_end = next_word.is_none_or(|word| CALL_TAGS.contains(&word));
    let is_own = text.contains(&opening) || old.contains(&opening) || old.contains(&tag);
    (is_end && !is_own).then(|| text.matches('\n').count() + 1)
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
    let inner = words.trim_matches(|c: char| "()[]{}<>: ".contains(c));
    let bare = inner.trim_matches(|c: char| "….()[]{}<>: ".contains(c));
    let has_dots = words.contains('…') || words.contains("...");
    if bare.is_empty() {
        // Three dots alone are code in some languages, but a placeholder in a comment.
        let is_only_dots = words.chars().all(|c| c == '…' || c == '.');
        return has_dots && is_only_dots && (is_comment || words == "…");
    }
    let is_behind_dots = inner.starts_with(['…', '.']);
    let is_framed = is_behind_dots && inner.ends_with(['…', '.']);
    let may_be_prose = is_comment || has_dots && (is_framed || !is_code(words));
    may_be_prose && describes_omission(bare, has_dots, is_comment && is_behind_dots)
}

/// Returns true for a line such as `{...rest}`, `return original(...args);` or `def rest(self): ...`, and for a label
/// such as `Loading previous messages...`.
fn is_code(words: &str) -> bool {
    let chars: Vec<_> = words.replace("...", "…").chars().collect();
    chars.windows(2).any(|pair| match *pair {
        ['…', behind] => behind.is_alphanumeric() || "_$(".contains(behind),
        [before, '…' | '('] => before.is_alphanumeric(),
        _ => false,
    })
}

/// Returns true if the words say only that something is unchanged.
fn describes_omission(words: &str, has_dots: bool, is_behind_dots: bool) -> bool {
    let mut lower = words.to_lowercase();
    if !lower.is_ascii() {
        // Some languages have no blanks between words.
        let lists = [OMITTED_THINGS, OMISSION_WORDS, FILLER_WORDS].into_iter();
        for word in lists.flat_map(text::list_entries).filter(|word| !word.is_ascii()) {
            lower = lower.replace(word, &format!(" {word} "));
        }
    }
    let mut names_thing = false;
    let mut states = 0;
    let mut unknown = 0;
    for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let is_thing = text::list_entries(OMITTED_THINGS).any(|thing| thing == word);
        let is_state = text::list_entries(OMISSION_WORDS).any(|state| state == word)
            || is_behind_dots && WORDS_BEHIND_DOTS.contains(&word);
        names_thing |= is_thing;
        states += usize::from(is_state);
        if !is_thing && !is_state && !text::list_entries(FILLER_WORDS).any(|filler| filler == word)
        {
            // A character of Chinese is about half a word.
            unknown += if word.is_ascii() { 1 } else { word.chars().count().div_ceil(2) };
        }
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
            "(rest of methods ...)",
            "...existing code...",
            "[…unchanged…]",
            "// ...existing code",
            "// ... other methods ...",
            "// (...no changes around here)",
            "/* ... full function ... */",
            "// 其他代码保持不变",
            "# ... 其余方法不变 ...",
            "……省略其余代码……",
            "// ... 既存のコード ...",
            "// 나머지 코드는 동일",
            "# ... остальной код ...",
        ] {
            assert_eq!(
                find_placeholder(&format!("fn a() {{\n{line}\n}}"), "fn a() {}", "content"),
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
            "{...rest}",
            "...rest,",
            "...(rest as Props),",
            "...existing, ...original,",
            "return original(...args);",
            "items = append(existing, rest...)",
            "def rest(self): ...",
            "Loading previous messages...",
            "加载其他内容…",
            "// Other methods",
            "// 其他方法",
            "// 省略代码块的语言标记",
            "// 保持与其他代码一致",
        ] {
            assert_eq!(find_placeholder(line, "", "content"), None, "{line}");
        }
    }

    #[test]
    fn an_example_in_a_new_text_may_leave_lines_out() {
        let text = "# Use\n\n```js\nf();\n// ...\n# ... existing settings ...\n```\n";
        assert_eq!(find_placeholder(text, "", "content"), None);
        assert_eq!(find_placeholder(text, "# Use\n", "new_string"), None);
        assert_eq!(find_placeholder(text, "# Use\n", "content"), Some(5));
        assert_eq!(find_placeholder(&format!("{text}\n// ...\n"), "", "content"), Some(9));
        assert_eq!(find_placeholder("```js\nf();\n// ...\n```\n", "", "content"), Some(3));
    }

    #[test]
    fn a_tag_that_ends_the_call_is_no_line_of_a_file() {
        for new in [
            "print(1)\n</content>\n",
            "print(1)\n\t</content>\n</invoke>\n",
            "print(1)\n1</content>",
            "a\n</content>\n<parameter name=\"b\">c</parameter>",
        ] {
            assert_eq!(find_placeholder(new, "print(0)\n", "content"), Some(2), "{new}");
            assert_eq!(find_placeholder(new, "", "new_string"), None, "{new}");
        }
        for (new, old) in [
            ("<content>\na\n</content>", ""),
            ("a\n</content>", "<content type=\"text\">\n"),
            ("b\n</content>", "a\n</content>\n"),
            ("`</content>` is left behind by some models:\n\na\n</content>", ""),
            ("</content>\n</body>\n</html>", ""),
            ("// Ends with </content>\nfn a() {}", ""),
            ("s = \"</content>\"", ""),
            ("a\n</x:content>\n</invoke>", ""),
        ] {
            assert_eq!(find_placeholder(new, old, "content"), None, "{new}");
        }
    }

    #[test]
    fn what_is_shown_in_place_of_the_rest_of_a_file_is_no_line_of_it() {
        let old = "a\n  let b = \"123\";\nc\n";
        for (line, expected) in [
            ("  let b = \"1…[+4 characters]", Some(2)),
            ("let b = \"1…[+4 characters]", Some(2)),
            ("[showing lines 1–2 of 3; continue with start_line=3]", Some(2)),
            // Quoted from another file.
            ("  let b = \"1…[+5 characters]", None),
            ("let c = \"1…[+4 characters]", None),
            ("format!(\"…[+{left} characters]", None),
            ("[showing lines 1–2000 of 5000; continue with start_line=2001]", None),
            ("[showing lines of the file]", None),
        ] {
            let new = format!("a\n{line}\n");
            assert_eq!(find_placeholder(&new, old, "content"), expected, "{line}");
            assert_eq!(find_placeholder(&new, "", "content"), None, "{line}");
            assert_eq!(find_placeholder(&new, &format!("{old}{line}"), "content"), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_was_there_is_none() {
        assert_eq!(find_placeholder("a\n// ...\n", "b\n    // ...\n", "content"), None);
    }
}
