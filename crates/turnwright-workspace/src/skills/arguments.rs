//! Substitutes arguments in the text of a skill or a custom command: `$ARGUMENTS` is all of them, `$1` the first word.

/// After this many bytes nothing more is substituted, because a text may use its arguments a
/// thousand times.
const MAX_BYTES: usize = 128 * 1024;

/// Substitutes the arguments. If the text does not use them, they are appended.
pub(crate) fn substitute(text: &str, args: &str) -> String {
    let args = args.trim();
    if args.is_empty() {
        // Without arguments `$1` may belong to a shell command.
        return text.replace("$ARGUMENTS", "");
    }
    let words: Vec<_> = args.split_whitespace().collect();
    let mut filled = String::with_capacity(text.len() + args.len());
    let mut rest = text;
    let mut is_used = false;
    while filled.len() < MAX_BYTES
        && let Some(at) = rest.find('$')
    {
        filled.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        let digit = tail.chars().next().and_then(|it| it.to_digit(10)).filter(|it| *it > 0);
        let is_number = tail.chars().nth(1).is_none_or(|it| !it.is_ascii_digit());
        if let Some(after) = tail.strip_prefix("ARGUMENTS") {
            filled.push_str(args);
            (rest, is_used) = (after, true);
        } else if let Some(digit) = digit.filter(|_| is_number) {
            filled.push_str(words.get(digit as usize - 1).copied().unwrap_or_default());
            (rest, is_used) = (&tail[1..], true);
        } else {
            filled.push('$');
            rest = tail;
        }
    }
    filled.push_str(rest);
    if !is_used {
        filled.push_str(&format!("\n\nArguments: {args}"));
    }
    filled
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
        ];
        for (text, args, expected) in table {
            assert_eq!(substitute(text, args), expected, "{text}");
        }
    }

    #[test]
    fn repeated_arguments_are_bounded() {
        let filled = substitute(&"$ARGUMENTS".repeat(6_000), &"x".repeat(4_000));
        assert!(filled.starts_with("xxx") && filled.len() < 2 * MAX_BYTES, "{}", filled.len());
    }
}
