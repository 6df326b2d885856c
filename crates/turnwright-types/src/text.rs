//! Parts of texts that end between characters, and short forms of texts for people.

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

/// Puts an ellipsis in place of what follows the first characters.
pub fn clip(text: impl Into<String>, most: usize) -> String {
    let mut text = text.into();
    let kept = first_chars(&text, most).len();
    if kept < text.len() {
        text.truncate(kept);
        text.push('…');
    }
    text
}

/// Like [`clip`], but the ellipsis is one of the characters.
pub fn clip_within(text: impl Into<String>, most: usize) -> String {
    let text = text.into();
    let fits = first_chars(&text, most).len() == text.len();
    if fits { text } else { clip(text, most.saturating_sub(1)) }
}

/// Puts a text onto one line, with single blanks between its words.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_part_of_so_many_characters_counts_them() {
        for (text, most, beginning, end) in [
            ("", 0, "", ""),
            ("", 3, "", ""),
            ("é😀", 0, "", ""),
            ("aé😀", 1, "a", "😀"),
            ("aé😀", 2, "aé", "é😀"),
            ("aé😀", 3, "aé😀", "aé😀"),
            ("aé😀", usize::MAX, "aé😀", "aé😀"),
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
            ("aé😀", 2, "aé…", "a…"),
            ("aé😀", 3, "aé😀", "aé😀"),
        ] {
            assert_eq!(
                (clip(text, most), clip_within(text, most)),
                (clipped.into(), within.into())
            );
        }
        assert_eq!(one_line(" a\n\tb  c\u{2003}d "), "a b c d");
    }
}
