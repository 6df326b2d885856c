//! Rules about commands are made of words: how they are written, and what they match. Pure.

use crate::shell::{Simple, Word};

/// Words of one rule. Each is a bit of a number when a ban is looked for.
pub(super) const MOST_WORDS: usize = 32;

/// Whether a command begins with these words. One that gets more words than are known is nothing
/// exactly.
pub(super) fn begins(words: &[String], exact: bool, command: &Simple) -> bool {
    let mut argv = command.argv();
    let begins = words.iter().all(|word| argv.next() == Some(word.as_str()));
    begins && !(exact && (argv.next().is_some() || command.is_open))
}

/// Whether a command is, or may turn out to be, one of these: options may stand before a word, each
/// with a value, patterns may become a word, and words that nobody knows may be any.
pub(super) fn may_be(words: &[String], exact: bool, command: &Simple) -> bool {
    let Some((program, words)) = words.split_first() else { return true };
    let Some((first, arguments)) = command.words.split_first() else { return false };
    if !is_program(program, &first.text) {
        return false;
    }
    if exact {
        let fits = arguments.iter().zip(words).all(|(it, word)| is_word(word, it));
        let (many, wanted) = (arguments.len(), words.len());
        return fits && (many == wanted || many < wanted && command.is_open);
    }
    if words.is_empty() {
        return true;
    }
    // Bit n: n words have been seen; in `after`, and what comes may be the value of an option.
    let (mut plain, mut after) = (1_u64, 0_u64);
    for argument in arguments {
        let both = plain | after;
        let fitting = words.iter().enumerate().filter(|(_, word)| is_word(word, argument));
        let found = fitting.fold(0, |bits, (place, _)| bits | (both & 1 << place) << 1);
        if found & 1 << words.len() != 0 {
            return true;
        }
        let is_option = argument.text.starts_with('-');
        (plain, after) = if is_option { (0, both | found) } else { (after | found, 0) };
    }
    command.is_open && (plain | after) != 0
}

/// By its name alone, wherever it lies.
fn is_program(wanted: &str, named: &str) -> bool {
    fn name(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }
    wanted == named || name(wanted).eq_ignore_ascii_case(name(named))
}

/// Whether a word is this one, or a pattern that some file's name could turn into it.
fn is_word(wanted: &str, word: &Word) -> bool {
    if wanted == word.text || !word.is_glob {
        return wanted == word.text;
    }
    let wild = ['*', '?', '['];
    let begin = word.text.split(wild).next().unwrap_or_default();
    let end = word.text.rsplit(['*', '?', ']']).next().unwrap_or_default();
    wanted.starts_with(begin) && wanted.ends_with(end)
}

/// The words of a rule, and whether the last one was a `*` of its own, which only says that more
/// may follow.
///
/// # Errors
/// What is wrong with them.
pub(super) fn parse(text: &str) -> Result<(Vec<String>, bool), String> {
    let mut words: Vec<(String, bool)> = Vec::new();
    let mut word: Option<(String, bool)> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let (text, is_wild) = word.get_or_insert_default();
        match char {
            '\'' | '"' => quotation(char, &mut chars, text)?,
            '\\' => text.push(chars.next().ok_or("it ends with a backslash")?),
            char => {
                *is_wild |= char == '*';
                text.push(char);
            }
        }
    }
    words.extend(word);
    let is_open = words.pop_if(|it| it.1 && it.0 == "*").is_some();
    if let Some((word, _)) = words.iter().find(|it| it.1) {
        return Err(format!(
            "`{word}`: a `*` stands at the end and is a word of its own; one that is meant stands \
             in quotes"
        ));
    }
    if words.len() > MOST_WORDS || words.iter().any(|it| it.0.chars().any(char::is_control)) {
        return Err(format!("more than {MOST_WORDS} words, or a control character"));
    }
    Ok((words.into_iter().map(|it| it.0).collect(), is_open))
}

fn quotation(
    quote: char,
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), String> {
    loop {
        match chars.next().ok_or("a quote is not closed")? {
            char if char == quote => return Ok(()),
            '\\' if quote == '"' => word.push(chars.next().ok_or("a quote is not closed")?),
            char => word.push(char),
        }
    }
}

/// A word as a rule has it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |it: char| !it.is_whitespace() && !['\'', '"', '\\', '*'].contains(&it);
    if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words with blanks between them; one that ends with `~` is a pattern of the shell without it,
    /// and `…` at the end stands for words that nobody knows.
    fn command(text: &str) -> Simple {
        let (text, is_open) = text.strip_suffix(" …").map_or((text, false), |it| (it, true));
        let word = |it: &str| match it.strip_suffix('~') {
            Some(glob) => Word { text: glob.to_owned(), is_glob: true },
            None => Word { text: it.to_owned(), is_glob: false },
        };
        let words = text.split_whitespace().map(word).collect();
        Simple { words, is_open, ..Simple::default() }
    }

    #[test]
    fn a_permission_means_its_words_and_what_follows() {
        let table = [
            (
                "git status",
                "git status; git status -s; git status …",
                "git; git statusx; git -C x status; /bin/git status; Git status",
            ),
            ("git status *", "git status; git status -s", "git statusx"),
            ("=git status", "git status", "git status -s; git status …"),
            ("npm run 'a b'", "", "npm run a b"),
        ];
        for (rule, meant, other) in table {
            let (exact, text) = rule.strip_prefix('=').map_or((false, rule), |it| (true, it));
            let (words, _) = parse(text).unwrap();
            let matches = |it: &str| begins(&words, exact, &command(it));
            assert!(meant.split("; ").filter(|it| !it.is_empty()).all(matches), "{rule}");
            assert!(!other.split("; ").any(matches), "{rule}");
        }
    }

    #[test]
    fn a_ban_means_also_what_may_turn_out_to_be_its_words() {
        let table = [
            ("rm", "rm x; /bin/rm x; ./rm; RM x; rm; rm …", "rmdir x; git rm"),
            ("/bin/rm", "rm x; /usr/bin/rm", "rmdir"),
            (
                "git push",
                "git push; git push -f; git -C dir push; git --no-pager push; git -c a=b -C d push; \
                 git p*~; git *~; git …; git -C …; /usr/bin/git push",
                "git; git commit -m push; git status push; git -C dir log push; git a*~; git add …",
            ),
            (
                "git remote add",
                "git -C remote remote add; git remote -v add",
                "git remote; git add",
            ),
            ("rm -rf", "rm -rf x; rm -v -rf x; rm -v x -rf", "rm x -rf; rm -r x"),
            (
                "=git push",
                "git push; git …; git push …",
                "git push -f; git -C d push; git; git log …",
            ),
            ("*", "anything at all; a", ""),
        ];
        for (rule, meant, other) in table {
            let (exact, text) = rule.strip_prefix('=').map_or((false, rule), |it| (true, it));
            let (words, _) = parse(text).unwrap();
            let matches = |it: &&str| may_be(&words, exact, &command(it));
            for it in meant.split("; ") {
                assert!(matches(&it), "{rule}: {it}");
            }
            for it in other.split("; ").filter(|it| !it.is_empty()) {
                assert!(!matches(&it), "{rule}: {it}");
            }
        }
    }

    #[test]
    fn a_long_command_takes_no_time_to_compare() {
        let words: Vec<_> = vec!["-a".to_owned(); MOST_WORDS - 1];
        let words = [vec!["x".to_owned()], words, vec!["end".to_owned()]].concat();
        let line = format!("x {}", "-a ".repeat(10_000));
        assert!(!may_be(&words[..MOST_WORDS], false, &command(&line.replace("-a", "-b"))));
        assert!(may_be(&words[..MOST_WORDS], false, &command(&line)));
    }

    #[test]
    fn words_are_read_as_a_shell_reads_them_and_written_so_that_they_are_read_again() {
        let table: &[(&str, &[&str])] = &[
            ("cargo test", &["cargo", "test"]),
            ("  cargo\ttest  * ", &["cargo", "test"]),
            ("npm run 'a b' \"c \\\" d\" e\\ f ''", &["npm", "run", "a b", "c \" d", "e f", ""]),
            ("grep '*' a\"*\"b", &["grep", "*", "a*b"]),
            ("echo it\\'s", &["echo", "it's"]),
        ];
        for (text, expected) in table {
            let (words, _) = parse(text).unwrap();
            assert_eq!(words, *expected, "{text}");
            let written: Vec<_> = words.iter().map(|it| quoted(it)).collect();
            assert_eq!(parse(&written.join(" ")).unwrap().0, words, "{written:?}");
        }
        for wrong in ["npm run test:*", "a * b", "'open", "\"open", "end\\"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
