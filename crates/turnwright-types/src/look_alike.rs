//! Names and texts that look the same although their characters differ: composed or not, with another
//! kind of blank, with characters that only differ in their form, or written as HTML does.

use std::borrow::Cow;

use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

use crate::effect::is_hidden_char;

/// The resemblance of two different names, the closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resemblance {
    /// They are canonically equivalent, such as `ü` and `u` with a diaeresis.
    Composition,
    /// They differ only in the kinds of their blanks, and in characters that nobody sees.
    Blanks,
    /// They have compatible characters, such as `（` and `(`, or other quotes and dashes, such as `’` and `'`.
    Form,
}

/// Returns the composed form (NFC) of a text.
pub fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    ComposingNormalizerBorrowed::new_nfc().normalize(text)
}

/// Returns the decomposed form of a text without differences in the form of its characters (NFKD).
pub fn compatible(text: &str) -> Cow<'_, str> {
    DecomposingNormalizerBorrowed::new_nfkd().normalize(text)
}

/// Returns the first character of a text with the marks that belong to it.
pub fn first_cluster(text: &str) -> &str {
    let mut rest = text.char_indices().skip(1);
    let end = rest.find(|(_, char)| !is_mark(*char)).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// True for a mark that belongs to the character before it, or a part of a Hangul syllable that has begun.
pub fn is_mark(char: char) -> bool {
    matches!(char, '\u{1160}'..='\u{11ff}')
        || !char.is_ascii() && CanonicalCombiningClassMapBorrowed::new().get_u8(char) != 0
}

/// Returns the composed form of a text with plain blanks and without invisible characters.
pub fn plain_blanks(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let plain = text.replace(is_invisible, "").replace(char::is_whitespace, " ");
    Cow::Owned(composed(&plain).into_owned())
}

/// Returns how two names resemble each other; `None` if they are equal or do not look alike.
pub fn resemblance(one: &str, other: &str) -> Option<Resemblance> {
    if one == other || one.is_ascii() && other.is_ascii() {
        return None;
    }
    if composed(one) == composed(other) {
        return Some(Resemblance::Composition);
    }
    let [one, other] = [one, other].map(plain_blanks);
    if one == other {
        return Some(Resemblance::Blanks);
    }
    let is_same = compatible(&one).chars().map(typed).eq(compatible(&other).chars().map(typed));
    is_same.then_some(Resemblance::Form)
}

/// Returns the character of a keyboard that stands for a typographic quote, dash or blank.
pub fn typed(char: char) -> char {
    match char {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        _ => char,
    }
}

/// Returns a text with ASCII characters in place of their full-width forms, which an input method writes. What else
/// looks alike, such as `²`, has a key of its own and stays.
pub fn narrow(text: &str) -> String {
    let narrowed = text.chars().map(|char| match char {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(char) - 0xfee0).unwrap_or(char),
        _ => char,
    });
    narrowed.collect()
}

/// Writes the characters beyond ASCII as `\u{…}`, so that names that look the same can be told apart.
pub fn with_code_points(name: &str) -> String {
    let written = name.chars().map(|char| match char {
        ' '..='~' => char.to_string(),
        _ => char.escape_unicode().to_string(),
    });
    written.collect()
}

/// True for a character that is not drawn, such as a joiner or a selector of an emoji's colours.
pub fn is_invisible(char: char) -> bool {
    matches!(char, '\u{fe00}'..='\u{fe0f}') || is_hidden_char(char) && !char.is_control()
}

/// Returns the text of a project's instructions without tag characters and variation selectors, in which a model could be
/// told something that people do not see. Emoji keep their selectors.
pub fn without_smuggled_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(can_hide_text, ""))
}

fn can_hide_text(char: char) -> bool {
    matches!(char, '\u{fe00}'..='\u{fe0d}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns an untrusted text without its invisible characters, in which instructions to a model could be hidden. A
/// joiner stays behind a character that is neither a blank nor ASCII: Persian, Hindi and emoji need it.
pub fn without_invisible(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for char in text.chars() {
        let may_join = matches!(char, '\u{200c}' | '\u{200d}')
            && seen.ends_with(|last: char| {
                !last.is_ascii() && !last.is_whitespace() && !is_hidden_char(last)
            });
        if may_join || !is_hidden_char(char) {
            seen.push(char);
        }
    }
    seen
}

/// The names behind the `&`, and the character that each stands for.
const ENTITIES: [(&str, char); 6] =
    [("amp;", '&'), ("lt;", '<'), ("gt;", '>'), ("quot;", '"'), ("apos;", '\''), ("#39;", '\'')];

/// Replaces one level of entities by their characters; `None` if there is none.
pub fn without_entities(text: &str) -> Option<String> {
    let mut parts = text.split('&');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let mut entities = ENTITIES.iter();
        let known = entities.find_map(|(name, char)| Some((*char, part.strip_prefix(*name)?)));
        let (char, rest) = known.unwrap_or(('&', part));
        plain.push(char);
        plain.push_str(rest);
    }
    (plain != text).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{escape_hidden_line, unescape_hidden_line};

    #[test]
    fn text_that_nobody_sees_is_left_out() {
        let words = "Use\u{e0041}\u{e0042} tabs\u{e0100}\u{fe03}. ❤\u{fe0f} x\u{200c}y";
        assert_eq!(without_smuggled_text(words), "Use tabs. ❤\u{fe0f} x\u{200c}y");
        assert_eq!(without_smuggled_text("Use tabs."), "Use tabs.");
    }

    #[test]
    fn joiners_stay_where_a_script_or_an_emoji_needs_them() {
        for (text, seen) in [
            ("می\u{200c}خواهم क्\u{200d}ष 👨\u{200d}👩 ❤\u{fe0f}\u{200d}🔥", None),
            ("a\u{200c}b\u{200d} \u{200d}<\u{3000}\u{200d}", Some("ab <\u{3000}")),
            ("é\u{200c}\u{200d}\u{200c}\u{200b}\u{202e}\u{e0041}x\t\n", Some("é\u{200c}x\t\n")),
        ] {
            assert_eq!(without_invisible(text), seen.unwrap_or(text), "{text}");
        }
    }

    #[test]
    fn only_full_width_forms_are_narrowed() {
        assert_eq!(narrow("！ｙＹ～　０.５²①ﬁ中y"), "!yY~　0.5²①ﬁ中y");
    }

    #[test]
    fn one_level_of_entities_is_read() {
        for (text, plain) in [
            ("cd x &amp;&amp; ls", Some("cd x && ls")),
            ("&lt;a href=&quot;x&quot;&gt; &#39;b&apos;", Some("<a href=\"x\"> 'b'")),
            ("&amp;lt;", Some("&lt;")),
            ("a && b &nbsp; &amp", None),
            ("", None),
        ] {
            assert_eq!(without_entities(text).as_deref(), plain, "{text}");
        }
    }

    #[test]
    fn names_that_look_the_same_resemble_each_other() {
        use Resemblance::{Blanks, Composition, Form};
        for (one, other, expected) in [
            ("\u{dc}bersicht.md", "U\u{308}bersicht.md", Some(Composition)),
            ("한국", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}", Some(Composition)),
            ("e\u{323}\u{302}", "\u{1ec7}", Some(Composition)),
            ("at 1.23 PM", "at 1.23\u{202f}PM", Some(Blanks)),
            ("a\u{a0}b", "a\u{202f}b", Some(Blanks)),
            ("a\u{200b}b", "ab", Some(Blanks)),
            ("❤\u{fe0f}.md", "❤.md", Some(Blanks)),
            ("（一）", "(一)", Some(Form)),
            ("ﬁle", "file", Some(Form)),
            ("می\u{200c}خواهم", "میخواهم", Some(Blanks)),
            ("x²", "x2", Some(Form)),
            ("d'e\u{301}cran à 1.png", "d’écran\u{a0}à 1.png", Some(Form)),
            ("non\u{2011}breaking.md", "non-breaking.md", Some(Form)),
            ("“a” – b", "\"a\" - b", Some(Form)),
            ("a", "a", None),
            ("a", "A", None),
            ("ä", "a", None),
            ("a b", "ab", None),
        ] {
            assert_eq!(resemblance(one, other), expected, "{one} {other}");
            assert_eq!(resemblance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn what_is_shown_escaped_can_be_read_back() {
        for name in ["👨\u{200d}👩.md", "soft\u{ad}.md", "a\nb\tc", "\u{202e}\\x", "\\\u{feff}"]
        {
            let shown = escape_hidden_line(name);
            assert_eq!(unescape_hidden_line(&shown).as_deref(), Some(name), "{shown}");
        }
        for name in ["plain", "a\\b", "\\u{", "\\u{110000}", "\\u{x}", "\\"] {
            assert_eq!(unescape_hidden_line(name), None, "{name}");
        }
        assert_eq!(with_code_points("U\u{308} ü"), "U\\u{308} \\u{fc}");
    }
}
