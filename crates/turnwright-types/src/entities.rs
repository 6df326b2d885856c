//! Reads a text in which a model has written characters as HTML does, such as `&amp;`.

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
}
