//! Substitutes arguments in the text of a skill or a custom command: `$ARGUMENTS` is all of them, `$1` the first word.

use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag};

/// After this many bytes nothing more is substituted, because a text may use its arguments a
/// thousand times.
const MAX_BYTES: usize = 128 * 1024;

/// Substitutes the arguments. If the text does not use them, they are appended. A `\` before a `$` keeps it.
/// In code, `$1` belongs to the code, and no shell has a variable `$ARGUMENTS`.
pub(crate) fn substitute(text: &str, args: &str) -> String {
    let args = args.trim();
    let words = split_words(args);
    let mut code = code_ranges(text).peekable();
    let mut filled = String::with_capacity(text.len() + args.len());
    let mut at = 0;
    let mut is_used = args.is_empty();
    while filled.len() < MAX_BYTES
        && let Some(next) = text[at..].find(['$', '\\'])
    {
        filled.push_str(&text[at..at + next]);
        at += next;
        while code.next_if(|range| range.end <= at).is_some() {}
        let is_code = code.peek().is_some_and(|range| range.contains(&at));
        let rest = &text[at..];
        let is_escape = !is_code && rest.starts_with('\\') && placeholder(&rest[1..]).is_some();
        match placeholder(rest) {
            Some((number, length)) if number.is_none() || !is_code && !args.is_empty() => {
                let word = number.map(|number| words.get(number - 1).copied().unwrap_or_default());
                filled.push_str(word.unwrap_or(args));
                at += length;
                is_used = true;
            }
            _ => {
                filled.push_str(if is_escape { "$" } else { &rest[..1] });
                at += if is_escape { 2 } else { 1 };
            }
        }
    }
    filled.push_str(&text[at..]);
    if !is_used {
        filled.push_str(&format!("\n\nArguments: {args}"));
    }
    filled
}

/// Where code is in Markdown, in order.
fn code_ranges(text: &str) -> impl Iterator<Item = Range<usize>> {
    let events = Parser::new(text).into_offset_iter();
    events.filter_map(|(event, range)| {
        matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))).then_some(range)
    })
}

/// The placeholder at the beginning of a text, with its length: the number of a word, or `None` for all. An
/// amount such as `$1.2M` is none.
fn placeholder(text: &str) -> Option<(Option<usize>, usize)> {
    let name = text.strip_prefix('$')?;
    if name.starts_with("ARGUMENTS") {
        return Some((None, "$ARGUMENTS".len()));
    }
    let mut following = name.bytes();
    let digit = following.next().filter(|byte| (b'1'..=b'9').contains(byte))?;
    let goes_on = match following.next() {
        Some(b'.' | b',') => following.next().is_some_and(|byte| byte.is_ascii_digit()),
        next => next.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
    };
    (!goes_on).then_some((Some(usize::from(digit - b'0')), 2))
}

/// The words of a text. Quotes group words.
fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = split_word(rest);
        words.push(word);
        rest = after;
    }
    words
}

/// Splits off the first word or quoted text. An unterminated quote is an ordinary character.
pub fn split_word(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some((word, after)) = inner.split_once(quote)
            && (after.is_empty() || after.starts_with(char::is_whitespace))
        {
            return (word, after.trim_start());
        }
    }
    let (word, after) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, after.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_put_where_the_text_wants_them() {
        let table = [
            ("Release $ARGUMENTS now", "v1 fast", "Release v1 fast now"),
            ("Release $1, $2 and $3.", "v1 fast", "Release v1, fast and ."),
            ("Release it", "v1", "Release it\n\nArguments: v1"),
            ("Release $ARGUMENTS", "", "Release "),
            ("awk '{print $1}'", "", "awk '{print $1}'"),
            ("$1 costs $10 or $", "x", "x costs $10 or $"),
            ("$ARGUMENTS", "$1 $ARGUMENTS", "$1 $ARGUMENTS"),
            ("é$1é", "ä", "éäé"),
            ("It costs $1.2M, $1,000 or $2M; $1.md", "x", "It costs $1.2M, $1,000 or $2M; x.md"),
            (r"Not \$1 but $1", "x", "Not $1 but x"),
            (r"\$ARGUMENTS, \$1 and \n", "", r"$ARGUMENTS, $1 and \n"),
            (r"\$ARGUMENTS", "x", "$ARGUMENTS\n\nArguments: x"),
            ("Run `awk '{print $1}'` on $1", "x", "Run `awk '{print $1}'` on x"),
            ("``a ` $1`` $1", "x", "``a ` $1`` x"),
            ("```sh\necho $1\n```\n$1", "x", "```sh\necho $1\n```\nx"),
            ("  ~~~\n$1", "x", "  ~~~\n$1\n\nArguments: x"),
            // No program has a variable of this name.
            ("`gh issue view $ARGUMENTS`", "7", "`gh issue view 7`"),
            ("a ` b $1 `` c", "x", "a ` b x `` c"),
            ("$1 and $2", "\"hello world\" 'b c'", "hello world and b c"),
            ("$1 and $2", "it's so", "it's and so"),
        ];
        for (text, args, expected) in table {
            assert_eq!(substitute(text, args), expected, "{text}");
        }
    }

    #[test]
    fn quotes_of_code_that_never_end_take_linear_time() {
        let text: String = (1..500).map(|count| "`".repeat(count) + " ").collect();
        assert!(substitute(&text, "x").ends_with("Arguments: x"));
    }

    #[test]
    fn repeated_arguments_are_bounded() {
        let filled = substitute(&"$ARGUMENTS".repeat(6_000), &"x".repeat(4_000));
        assert!(filled.starts_with("xxx") && filled.len() < 2 * MAX_BYTES, "{}", filled.len());
    }
}
