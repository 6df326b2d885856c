//! Parts of texts that end between characters, and short forms of texts. Lengths are in characters unless they are said
//! to be in bytes. Neither are the columns of a terminal: a combining mark counts, and a wide character counts once.
//! Sizes are put into words here, too, percent-encoding is decoded, and JSON is measured and made readable.

use std::borrow::Cow;

use serde_json::Value;

use crate::redact;

// `str::floor_char_boundary` and its counterpart need Rust 1.91, which is newer than the version that `Cargo.toml` declares.

/// Returns the last place between characters that is not behind this byte.
pub fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}

/// Returns the first place between characters that is not before this byte.
pub fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|place| text.is_char_boundary(*place)).unwrap_or(text.len())
}

/// Returns the beginning of a text, of at most `most` bytes.
pub fn prefix(text: &str, most: usize) -> &str {
    &text[..floor(text, most)]
}

/// Returns the end of a text, of at most `most` bytes.
pub fn suffix(text: &str, most: usize) -> &str {
    &text[ceil(text, text.len().saturating_sub(most))..]
}

/// Returns the first characters of a text.
pub fn first_chars(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Returns the last characters of a text.
pub fn last_chars(text: &str, most: usize) -> &str {
    let after = text.char_indices().nth_back(most).map(|(at, char)| at + char.len_utf8());
    &text[after.unwrap_or(0)..]
}

/// Cuts off what follows the first characters.
pub fn cut(text: impl Into<String>, most: usize) -> String {
    clip_with(text, most, "")
}

/// Puts an ellipsis in place of what follows the first characters.
pub fn clip(text: impl Into<String>, most: usize) -> String {
    clip_with(text, most, "…")
}

/// Like [`clip`], but the ellipsis is one of the characters.
pub fn clip_within(text: impl Into<String>, most: usize) -> String {
    let text = text.into();
    let fits = first_chars(&text, most).len() == text.len();
    if fits { text } else { clip(text, most.saturating_sub(1)) }
}

/// Puts a mark in place of what follows the first characters.
pub fn clip_with(text: impl Into<String>, most: usize, mark: &str) -> String {
    let text = text.into();
    let kept = first_chars(&text, most).len();
    replace_rest(text, kept, mark)
}

/// Puts a mark in place of what follows the first `most` bytes.
pub fn clip_bytes(text: impl Into<String>, most: usize, mark: &str) -> String {
    let text = text.into();
    let kept = prefix(&text, most).len();
    replace_rest(text, kept, mark)
}

fn replace_rest(mut text: String, kept: usize, mark: &str) -> String {
    if kept < text.len() {
        text.truncate(kept);
        text.push_str(mark);
    }
    text
}

/// Puts a note in place of the middle of a text of more than `most` bytes. Two thirds of them are of its beginning.
pub fn clip_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let start = prefix(text, most / 3 * 2);
    let end = suffix(text, most / 3);
    let left_out = text.len() - start.len() - end.len();
    format!("{start}\n[… {left_out} bytes are left out here …]\n{end}")
}

/// Joins the first of these texts with commas, and says how many more there are.
pub fn join_first(texts: &[String], most: usize) -> String {
    let first = texts[..texts.len().min(most)].join(", ");
    match texts.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A number with its noun, whose plural is made with `s`: `1 rule`, `2 rules`.
pub fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Puts a text onto one line, with single blanks between its words.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text without keys, and with all characters escaped that have a meaning in Markdown. An underscore within
/// a word has none.
pub fn escape_markdown(text: &str) -> String {
    // A key with backslashes in it would not be found any more.
    let clean = redact::text(text);
    let mut escaped = String::with_capacity(clean.len());
    let mut before = None;
    let mut rest = clean.chars().peekable();
    while let Some(char) = rest.next() {
        let is_within_word = char == '_'
            && before.is_some_and(char::is_alphanumeric)
            && rest.peek().is_some_and(|next| next.is_alphanumeric());
        if "\\`*_[]<>#|~!&".contains(char) && !is_within_word {
            escaped.push('\\');
        }
        escaped.push(char);
        before = Some(char);
    }
    escaped
}

/// Returns the text with a backslash in front of each special character.
pub fn with_backslashes(text: &str, special: &str) -> String {
    text.chars()
        .flat_map(|char| special.contains(char).then_some('\\').into_iter().chain([char]))
        .collect()
}

/// Returns the first line of a text that is not blank. White space at its end belongs to it only if more lines follow.
pub fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// Returns the text up to the end of its last complete line.
pub fn whole_lines(text: &str) -> &str {
    &text[..text.rfind('\n').map_or(0, |end| end + 1)]
}

/// Adds a line to a text, whose last line ends there if it has not ended yet.
pub fn add_line(text: &mut String, line: &str) {
    text.push_str(if text.ends_with('\n') { "" } else { "\n" });
    text.push_str(line);
}

/// Returns the lines within a fence of Markdown, if the text is nothing but one block of code.
pub fn unfenced(text: &str) -> Option<&str> {
    let fenced = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    let (tag, code) = fenced.split_once('\n')?;
    (!tag.contains([' ', '`']) && !code.contains("```")).then_some(code)
}

/// Returns the entries of a list that has one a line. Empty lines and comments, which begin with `#`, are none.
pub fn list_entries(list: &str) -> impl Iterator<Item = &str> + Clone {
    list.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Returns true if a text contains one of the phrases in such a list.
pub fn has_listed(text: &str, list: &str) -> bool {
    list_entries(list).any(|phrase| text.contains(phrase))
}

/// Returns how many bytes at the end of a text may be the beginning of a mark that the text does not contain.
pub fn begun_mark_len(text: &str, marks: &[&str]) -> usize {
    let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or_default();
    let end = suffix(text, longest);
    let mut starts = end.char_indices().map(|(at, _)| &end[at..]);
    let begun = starts.find(|start| marks.iter().any(|mark| mark.starts_with(start)));
    begun.map_or(0, str::len)
}

/// Returns what follows a beginning that the text has in ASCII letters of any case.
pub fn strip_prefix_ignore_case<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(beginning.len())?;
    start.eq_ignore_ascii_case(beginning).then_some(rest)
}

/// Returns what stands before an end that the text has in ASCII letters of any case.
pub fn strip_suffix_ignore_case<'a>(text: &'a str, ending: &str) -> Option<&'a str> {
    let (rest, end) = text.split_at_checked(text.len().checked_sub(ending.len())?)?;
    end.eq_ignore_ascii_case(ending).then_some(rest)
}

/// Returns true if a text matches a pattern in which `*` stands for any characters. Takes at most the product of both
/// lengths.
pub fn fits_wildcard(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // Matching each part as early as possible leaves the most text for the following parts.
    for part in middle.split('*') {
        let Some((_, behind)) = left.split_once(part) else { return false };
        left = behind;
    }
    left.ends_with(end)
}

/// Returns the length of the longest run of backticks. A longer run encloses the text as code in Markdown.
pub fn longest_backtick_run(text: &str) -> usize {
    if !text.contains('`') {
        return 0;
    }
    text.split(|char| char != '`').map(str::len).max().unwrap_or_default()
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The approximate length of a value as JSON, in bytes.
pub fn json_len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_len(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| key.len() + json_len(field) + 4).sum::<usize>() + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

/// Formats a number of bytes in a readable unit, rounded to a tenth: `12 bytes`, `1.5 KiB`, `3 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let tenths_of = |unit: u64| (u128::from(bytes) * 10 + u128::from(unit / 2)) / u128::from(unit);
    let (tenths, name) = match bytes {
        0..1_024 => return format!("{bytes} bytes"),
        _ if tenths_of(KIB) < 10_240 => (tenths_of(KIB), "KiB"),
        _ if tenths_of(MIB) < 10_240 => (tenths_of(MIB), "MiB"),
        _ => (tenths_of(GIB), "GiB"),
    };
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

/// Decodes `%20` and the like once. The result need not be UTF-8.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    percent_encoding::percent_decode(text).collect()
}

/// Replaces unpaired surrogates in JSON such as `\ud83d`, which a Rust string cannot hold, with `\ufffd`.
/// They come from programs that cut text in UTF-16 units (quirk C.4 #24). If texts go on in later JSON, `half` keeps
/// the end of one for the beginning of the next; otherwise it is `None`. JSON without surrogates is not copied.
pub fn repair_surrogates<'a>(json: &'a str, half: &mut Option<String>) -> Cow<'a, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut result = String::with_capacity(json.len());
    let mut rest = 0;
    while let Some(at) = json[rest..].find('\\').map(|offset| rest + offset) {
        result.push_str(&json[rest..at]);
        rest = at + 6;
        let length = match (escaped_unit(json, at), escaped_unit(json, rest)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xDC00), _) if half.is_some() && json[rest..].starts_with('"') => {
                *half = Some(json[at..rest].to_owned());
                continue;
            }
            (Some(0xDC00..0xE000), _)
                if result.ends_with('"') && half.as_ref().is_some_and(|high| !high.is_empty()) =>
            {
                result.push_str(&half.replace(String::new()).unwrap_or_default());
                6
            }
            (Some(0xD800..0xE000), _) => {
                result.push_str("\\ufffd");
                continue;
            }
            (Some(_), _) => 6,
            // A one-character escape, perhaps `\\\\`: the next escape starts after it.
            (None, _) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        result.push_str(&json[at..at + length]);
        rest = at + length;
    }
    result.push_str(&json[rest..]);
    Cow::Owned(result)
}

/// The UTF-16 unit that is escaped at this place.
fn escaped_unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_is_not_counted_in_the_plural() {
        assert_eq!(
            [0, 1, 2].map(|number| counted(number, "rule")),
            ["0 rules", "1 rule", "2 rules"]
        );
    }

    #[test]
    fn halves_of_a_character_are_joined_across_events() {
        let mut half = Some(String::new());
        for (json, expected) in [
            (r#"{"a":"x\ud83d","b":""}"#, r#"{"a":"x","b":""}"#),
            (r#"{"a":"\uDE00y\ude00"}"#, r#"{"a":"\ud83d\uDE00y\ufffd"}"#),
            (r#"{"a":"\ude00","b":"\\ud83d"}"#, r#"{"a":"\ufffd","b":"\\ud83d"}"#),
        ] {
            assert_eq!(repair_surrogates(json, &mut half), expected);
        }
        assert_eq!(repair_surrogates(r#""x\ud83d""#, &mut None), r#""x\ufffd""#);
        assert!(matches!(repair_surrogates(r#""\u4f60""#, &mut half), Cow::Borrowed(_)));
    }

    #[test]
    fn comments_and_empty_lines_are_no_entries() {
        let list = "# Fruit.\nquince\n\na medlar # ripe\r\n# Nuts.\nwalnut";
        assert_eq!(list_entries(list).collect::<Vec<_>>(), ["quince", "a medlar # ripe", "walnut"]);
        assert_eq!(list_entries("quince").collect::<Vec<_>>(), ["quince"]);
        assert_eq!(list_entries("").next(), None);
        assert!(has_listed("a ripe walnut", list) && !has_listed("ripe", list));
    }

    #[test]
    fn escaping_hides_no_key_from_the_search_for_keys() {
        redact::register_keys(["xyz8Q~AbC_-123dEf45".to_owned()]).unwrap();
        let escaped = escape_markdown("*sent* xyz8Q~AbC_-123dEf45");
        assert!(escaped.starts_with("\\*sent\\* "), "{escaped}");
        assert!(!escaped.replace('\\', "").contains("xyz8Q"), "{escaped}");
    }

    /// Texts with characters of one to four bytes, a combining mark, and characters of two columns.
    const SAMPLES: [&str; 9] =
        ["", "a", "é", "語", "😀", "aé語😀", "😀語éa", "e\u{301}e\u{301}", "\u{301}👩\u{200d}💻語"];

    /// Every sample with every limit up to one more than its length.
    fn with_each_limit() -> impl Iterator<Item = (&'static str, usize)> {
        SAMPLES.into_iter().flat_map(|text| (0..=text.len() + 1).map(move |most| (text, most)))
    }

    #[test]
    fn a_part_of_so_many_bytes_ends_between_characters() {
        for (text, most, beginning, end) in [
            ("", 0, "", ""),
            ("", 5, "", ""),
            ("abc", 0, "", ""),
            ("abc", 2, "ab", "bc"),
            ("abc", 3, "abc", "abc"),
            ("abc", usize::MAX, "abc", "abc"),
            ("aé😀é", 1, "a", ""),
            ("aé😀é", 2, "a", "é"),
            ("aé😀é", 3, "aé", "é"),
            ("aé😀é", 6, "aé", "😀é"),
            ("aé😀é", 7, "aé😀", "😀é"),
            ("aé😀é", 8, "aé😀", "é😀é"),
            ("aé😀é", 9, "aé😀é", "aé😀é"),
        ] {
            assert_eq!((prefix(text, most), suffix(text, most)), (beginning, end), "{text} {most}");
        }
        let places = |find: fn(&str, usize) -> usize| [0, 1, 2, 3, 9].map(|at| find("aé", at));
        assert_eq!(places(floor), [0, 1, 1, 3, 3]);
        assert_eq!(places(ceil), [0, 1, 3, 3, 3]);
    }

    #[test]
    fn a_part_is_as_long_as_its_limit_allows() {
        for (text, most) in with_each_limit() {
            let beginning = prefix(text, most);
            let end = suffix(text, most);
            assert!(text.starts_with(beginning) && beginning.len() <= most, "{text} {most}");
            assert!(text.ends_with(end) && end.len() <= most, "{text} {most}");
            let next = text[beginning.len()..].chars().next();
            assert!(next.is_none_or(|char| beginning.len() + char.len_utf8() > most), "{text}");
            let previous = text[..text.len() - end.len()].chars().next_back();
            assert!(previous.is_none_or(|char| end.len() + char.len_utf8() > most), "{text}");

            let first: String = text.chars().take(most).collect();
            assert_eq!(first_chars(text, most), first, "{text} {most}");
            let skipped = text.chars().count().saturating_sub(most);
            let last: String = text.chars().skip(skipped).collect();
            assert_eq!(last_chars(text, most), last, "{text} {most}");
        }
    }

    #[test]
    fn a_part_of_so_many_characters_counts_them() {
        for (text, most, beginning, end) in [
            ("", 0, "", ""),
            ("", 3, "", ""),
            ("é😀", 0, "", ""),
            ("aé😀", 1, "a", "😀"),
            ("aé😀", 2, "aé", "é😀"),
            ("aé😀", 3, "aé😀", "aé😀"),
            ("aé😀", usize::MAX, "aé😀", "aé😀"),
            // A combining mark counts, and a character of two columns is one.
            ("e\u{301}語", 1, "e", "語"),
            ("e\u{301}語", 2, "e\u{301}", "\u{301}語"),
        ] {
            let parts = (first_chars(text, most), last_chars(text, most));
            assert_eq!(parts, (beginning, end), "{text} {most}");
        }
    }

    #[test]
    fn an_ellipsis_stands_for_what_is_left_out() {
        for (text, most, clipped, within) in [
            ("", 0, "", ""),
            ("é", 0, "…", "…"),
            ("é", 1, "é", "é"),
            ("éa", 1, "é…", "…"),
            ("aé😀", 2, "aé…", "a…"),
            ("aé😀", 3, "aé😀", "aé😀"),
            ("aé😀", usize::MAX, "aé😀", "aé😀"),
            ("e\u{301}語", 1, "e…", "…"),
            ("e\u{301}語", 2, "e\u{301}…", "e…"),
        ] {
            assert_eq!(clip(text, most), clipped, "{text} {most}");
            assert_eq!(clip_within(text, most), within, "{text} {most}");
        }
        for (text, most) in with_each_limit() {
            let within = clip_within(text, most);
            assert!(within.chars().count() <= most.max(1), "{text} {most}");
            assert_eq!(within == text, text.chars().count() <= most, "{text} {most}");
        }
    }

    #[test]
    fn a_mark_stands_for_what_is_left_out() {
        for (text, most, cut_text, by_chars, by_bytes) in [
            ("", 0, "", "", ""),
            ("é", 0, "", " [...]", " [...]"),
            ("é", 1, "é", "é", " [...]"),
            ("é", 2, "é", "é", "é"),
            ("a語b", 1, "a", "a [...]", "a [...]"),
            ("a語b", 3, "a語b", "a語b", "a [...]"),
            ("a語b", 4, "a語b", "a語b", "a語 [...]"),
            ("a語b", 5, "a語b", "a語b", "a語b"),
            ("a語b", usize::MAX, "a語b", "a語b", "a語b"),
        ] {
            assert_eq!(cut(text, most), cut_text, "{text} {most}");
            assert_eq!(clip_with(text, most, " [...]"), by_chars, "{text} {most}");
            assert_eq!(clip_bytes(text, most, " [...]"), by_bytes, "{text} {most}");
        }
    }

    #[test]
    fn a_note_stands_for_the_middle() {
        for (text, most, clipped) in [
            ("", 0, ""),
            ("a", 0, "\n[… 1 bytes are left out here …]\n"),
            ("ab", 1, "\n[… 2 bytes are left out here …]\n"),
            ("abcde", 5, "abcde"),
            ("abcdef", 5, "ab\n[… 3 bytes are left out here …]\nf"),
            ("éééé", 6, "éé\n[… 2 bytes are left out here …]\né"),
            ("語語語語", 11, "語語\n[… 3 bytes are left out here …]\n語"),
            ("語語語語", 12, "語語語語"),
            ("😀😀", 7, "😀\n[… 4 bytes are left out here …]\n"),
            ("e\u{301}e\u{301}", 5, "e\n[… 5 bytes are left out here …]\n"),
        ] {
            assert_eq!(clip_middle(text, most), clipped, "{text} {most}");
        }
    }

    #[test]
    fn one_line_has_single_blanks_between_its_words() {
        for (text, line) in [
            ("", ""),
            (" \n", ""),
            ("a", "a"),
            (" a\n\tb  c\u{2003}d ", "a b c d"),
            ("é\r\n語\u{2028}e\u{301}", "é 語 e\u{301}"),
        ] {
            assert_eq!(one_line(text), line);
        }
    }

    #[test]
    fn the_first_line_is_not_blank_and_whole_lines_end() {
        for (text, first, whole) in [
            ("", "", ""),
            ("\n", "", "\n"),
            (" \r\n\t", "", " \r\n"),
            ("a", "a", ""),
            (" é ", "é", ""),
            ("語\n", "語", "語\n"),
            ("\n\n a b \r\n😀", "a b ", "\n\n a b \r\n"),
            ("a\rb\n\ne\u{301}", "a\rb", "a\rb\n\n"),
        ] {
            assert_eq!(first_line(text), first, "{text:?}");
            assert_eq!(whole_lines(text), whole, "{text:?}");
        }
    }

    #[test]
    fn the_longest_beginning_of_a_mark_counts() {
        for (text, marks, begun) in [
            ("", &["</a>"][..], ""),
            ("a<", &[][..], ""),
            ("a", &[""][..], ""),
            ("a", &["</a>"][..], ""),
            ("a<", &["</a>"][..], "<"),
            ("a</a", &["</a>"][..], "</a"),
            ("<<", &["<<<b"][..], "<<"),
            ("a</a", &["a>", "</a>"][..], "</a"),
            ("é◁/é", &["◁/é▷", "éé"][..], "◁/é"),
            ("語", &["語😀", "a語"][..], "語"),
            ("e\u{301}", &["e\u{301}語"][..], "e\u{301}"),
        ] {
            assert_eq!(begun_mark_len(text, marks), begun.len(), "{text} {marks:?}");
        }
    }

    #[test]
    fn a_beginning_and_an_end_are_found_in_any_case() {
        for (text, part, after, before) in [
            ("", "", Some(""), Some("")),
            ("a", "", Some("a"), Some("a")),
            ("", "a", None, None),
            ("A", "a", Some(""), Some("")),
            ("aB bA", "AB", Some(" bA"), None),
            ("aB bA", "BA", None, Some("aB ")),
            ("É", "É", Some(""), Some("")),
            // Only ASCII letters have two cases, and a part ends between characters.
            ("É", "é", None, None),
            ("語a", "xx", None, None),
            ("a語", "xx", None, None),
            ("e\u{301}E\u{301}", "E\u{301}", Some("E\u{301}"), Some("e\u{301}")),
        ] {
            assert_eq!(strip_prefix_ignore_case(text, part), after, "{text} {part}");
            assert_eq!(strip_suffix_ignore_case(text, part), before, "{text} {part}");
        }
    }

    #[test]
    fn a_wildcard_stands_for_any_characters() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abcd", "abc", false),
            ("abc", "a*c", true),
            ("ac", "a*c", true),
            ("acb", "a*c", false),
            ("a/b/c.rs", "a/**.rs", true),
            ("ab", "ab*b", false),
            ("", "*", true),
            ("aXbXc", "a*b*c", true),
            ("acb", "a*b*c", false),
            ("語a語", "*a*", true),
        ] {
            assert_eq!(fits_wildcard(text, pattern), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn the_longest_run_of_backticks_counts() {
        for (text, length) in [("", 0), ("é語", 0), ("`", 1), ("a`b``c`", 2), ("```\n``語", 3)] {
            assert_eq!(longest_backtick_run(text), length, "{text}");
        }
    }

    #[test]
    fn json_is_measured_about_as_long_as_it_is_written() {
        for (value, length) in [
            (json!("abc"), 5),
            (json!([null, true, 12]), 20),
            (json!({ "a": ["b", false] }), 19),
            (json!({}), 2),
        ] {
            let written = value.to_string().len();
            assert_eq!(json_len(&value), length);
            assert!((written..=written * 2).contains(&length), "{value}");
        }
    }

    #[test]
    fn a_size_is_rounded_to_the_nearest_tenth() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1 KiB"),
            (1_500, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            ((12 << 20) + 2, "12 MiB"),
            (1 << 30, "1 GiB"),
            ((1 << 30) + (1 << 29), "1.5 GiB"),
            (1 << 50, "1048576 GiB"),
            (u64::MAX, "17179869184 GiB"),
        ] {
            assert_eq!(format_bytes(bytes), expected);
        }
    }
}
