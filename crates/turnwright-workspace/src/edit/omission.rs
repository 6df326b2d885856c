//! Detects placeholders for omitted lines, such as `// ... existing code ...`: writing them to a
//! file would lose those lines. So would a text that was copied from a cut result of `read_file`.
//! Also detects the end of a tool call behind the text that it carries.

use std::collections::HashSet;

use turnwright_types::text;

const COMMENT_MARKS: &[&str] =
    &["//", "/*", "*/", "<!--", "-->", "{/*", "*/}", "#", "--", ";", "%", "\"\"\"", "'''", "*"];
/// The beginnings of lines that describe code or are headings and lists: they omit something only with dots.
const DOC_MARKS: &[&str] = &["///", "//!", "/**", "*", "##", "\"\"\"", "'''"];
/// A line with dots that has one of these inside, and is no comment, is code.
const CODE_MARKS: [char; 9] = [',', ':', ';', '=', '"', '\'', '&', '`', '('];

/// The words of such lines, each with its kind.
const OMISSION_WORDS: &str = include_str!("omission_words.txt");

/// The beginnings of tags that follow the end of an argument.
const CALL_TAGS: &[&str] = &["</invoke>", "</tool_call>", "<parameter"];

/// Why such a line is not written, as a phrase that follows it.
pub const REFUSAL: &str = "stands for lines that were left out, which would be lost, or is the end of your call. Send \
                           the whole text and nothing else, or change fewer lines.";

/// Finds the first line of `new`, counted from 1, that is a placeholder or was cut off, or else the one where the call
/// ends that carries `new` in this argument. A line that `old` contains as well does not count.
pub fn find_placeholder(new: &str, old: &str, argument: &str) -> Option<usize> {
    let mut known = HashSet::new();
    // Code in a new text may leave lines out, unless all of the text is in a fence or only an end of one is there.
    let may_have_examples = (old.is_empty() || argument != "content")
        && !new.starts_with("```")
        && new.matches("```").count().is_multiple_of(2);
    let mut is_example = false;
    for (index, line) in new.lines().enumerate() {
        is_example ^= may_have_examples && line.trim_start().starts_with("```");
        if (is_example || !is_placeholder(line)) && !is_cut_off(line.trim(), old) {
            continue;
        }
        let line = line.trim();
        if known.insert(line) && !old.contains(line) {
            return Some(index + 1);
        }
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
    let line = line.trim();
    let dotted = line.replace("...", "…");
    let mut words = dotted.as_str();
    let mut is_comment = false;
    while let Some(rest) = COMMENT_MARKS.iter().find_map(|mark| words.strip_prefix(mark)) {
        (words, is_comment) = (rest.trim_start(), true);
    }
    while let Some(rest) = COMMENT_MARKS.iter().find_map(|mark| words.strip_suffix(mark)) {
        words = rest.trim_end();
    }
    let inner = words.trim_matches(|c: char| "()[]{}<>: ".contains(c));
    let bare = inner.trim_matches(|c: char| "….()[]{}<>: ".contains(c));
    let has_dots = words.contains('…');
    if bare.is_empty() {
        // Three dots alone are code in some languages, but a placeholder in a comment.
        return has_dots && words.chars().all(|c| "….".contains(c)) && (is_comment || line == "…");
    }
    let behind_dots = inner.strip_prefix('…');
    let is_framed = behind_dots.is_some() && inner.ends_with('…');
    // `...(rest as Props)`, and a prompt of Python with an indented line.
    let is_spread = behind_dots.is_some_and(|rest| rest.len() != rest.trim_start().len() + 1);
    let is_code = !bare.contains(' ') || bare.contains('…') || inner.contains(CODE_MARKS);
    let is_prose = has_dots && (is_framed || !is_spread && !is_code);
    let is_doc = DOC_MARKS.iter().any(|mark| line.starts_with(mark));
    let may_omit = if is_comment { has_dots || !is_doc } else { is_prose };
    may_omit && describes_omission(bare, has_dots, behind_dots.is_some())
}

/// Returns true if the words say only that something is unchanged.
fn describes_omission(words: &str, has_dots: bool, is_behind_dots: bool) -> bool {
    let mut lower = words.to_lowercase();
    let known = text::list_entries(OMISSION_WORDS).filter_map(|entry| entry.split_once(' '));
    // Some languages have no blanks between words.
    for (word, _) in known.clone().filter(|(word, _)| !word.is_ascii()) {
        lower = lower.replace(word, &format!(" {word} "));
    }
    let mut names_thing = false;
    let mut states = 0;
    let mut unknown = Vec::new();
    for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let kind = known.clone().find(|(entry, _)| *entry == word).map_or("", |(_, kind)| kind);
        let is_state = kind == "state" || is_behind_dots && kind == "behind-dots";
        names_thing |= kind == "thing";
        states += usize::from(is_state);
        // A character of Chinese is about half a word.
        let length = word.chars().filter(|c| !c.is_ascii()).count().div_ceil(2).max(1);
        if kind != "filler" {
            unknown.push(if is_state || kind == "thing" { 0 } else { length });
        }
    }
    // `Waiting for remaining jobs...` begins and ends with something else.
    let is_about_it = is_behind_dots || [unknown.first(), unknown.last()].contains(&Some(&0));
    // They may include a name, as in `rest of parse_args unchanged`.
    let most_unknown = usize::from(has_dots || states > 1) * 2;
    let says_enough = states > 0 && (has_dots || names_thing || states > 1);
    says_enough && is_about_it && unknown.iter().sum::<usize>() <= most_unknown
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
            "[Rest of the code remains the same...]",
            "# Constructor remains the same...",
            "/// ... existing docs ...",
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
            "rest: str = ...",
            "class Existing: ...",
            "Rest&&... rest) {",
            "...     return previous",
            "\"Remaining ...\",",
            "Loading previous messages...",
            "// Waiting for remaining jobs...",
            "## Existing Implementation",
            "* Remaining lines",
            "**Original text:**",
            "/// The remaining text.",
            "/** Original content */",
            "\"\"\"The rest of the file.\"\"\"",
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
        assert_eq!(find_placeholder("f();\n```\n// ...\n", "a\n", "new_string"), Some(3));
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
