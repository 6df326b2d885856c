//! The words of `exec` rules: their syntax and how they match commands. Pure.

use super::parser::RuleError;
use crate::shell::{SimpleCommand, Word};

/// The maximum number of words in one rule. `may_match` needs a bit for each.
pub(in crate::permission) const MAX_WORDS: usize = 32;

/// True if a command begins with these words or, if `exact`, consists of them. A command with
/// unknown further arguments matches no exact rule.
pub(in crate::permission) fn starts_with(
    words: &[String],
    exact: bool,
    command: &SimpleCommand,
) -> bool {
    let mut argv = command.argv();
    let has_prefix = words.iter().all(|word| argv.next() == Some(word.as_str()));
    has_prefix && !(exact && (argv.next().is_some() || command.has_unknown_args))
}

/// True if a command may match these words when it runs. It is meant for rules that deny or ask, so
/// it errs on the side of matching: options with a value may precede each word, globs may expand to
/// a word, and unknown arguments may be any words.
pub(super) fn may_match(words: &[String], exact: bool, command: &SimpleCommand) -> bool {
    let Some((program, words)) = words.split_first() else { return true };
    let Some((first, arguments)) = command.words.split_first() else { return false };
    if !is_same_program(program, &first.text) {
        return false;
    }
    if exact {
        let fits = arguments.iter().zip(words).all(|(argument, word)| may_be_word(word, argument));
        let given = arguments.len();
        let wanted = words.len();
        return fits && (given == wanted || given < wanted && command.has_unknown_args);
    }
    if words.is_empty() {
        return true;
    }
    // The states of an automaton: bit n means that n words have been matched. In `after_option`,
    // the next argument may be the value of an option.
    let mut plain = 1_u64;
    let mut after_option = 0_u64;
    for argument in arguments {
        let all = plain | after_option;
        let matching = words.iter().enumerate().filter(|(_, word)| may_be_word(word, argument));
        let found = matching.fold(0, |bits, (index, _)| bits | (all & 1 << index) << 1);
        if found & 1 << words.len() != 0 {
            return true;
        }
        let is_option = argument.text.starts_with('-');
        (plain, after_option) =
            if is_option { (0, all | found) } else { (after_option | found, 0) };
    }
    command.has_unknown_args && (plain | after_option) != 0
}

/// Compares names without folders and case.
fn is_same_program(wanted: &str, given: &str) -> bool {
    fn name(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }
    wanted == given || name(wanted).eq_ignore_ascii_case(name(given))
}

/// True if a word is the wanted one, or a glob or a variable that could expand to it.
fn may_be_word(wanted: &str, word: &Word) -> bool {
    let has_variable = word.text.contains('$');
    if wanted == word.text || !word.is_glob && !has_variable {
        return wanted == word.text;
    }
    let wildcards = ['*', '?', '[', '$'];
    let start = word.text.split(wildcards).next().unwrap_or_default();
    // It does not matter where the name of a variable ends: too much is matched rather than too little.
    let end = if has_variable {
        ""
    } else {
        word.text.rsplit(['*', '?', ']']).next().unwrap_or_default()
    };
    wanted.starts_with(start) && wanted.ends_with(end)
}

/// Parses the words of a rule. Also returns whether they end with a separate `*`, which only says
/// that more words may follow.
///
/// # Errors
/// If the text is not valid.
pub(in crate::permission) fn parse(text: &str) -> Result<(Vec<String>, bool), RuleError> {
    let mut words: Vec<(String, bool)> = Vec::new();
    let mut word: Option<(String, bool)> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let (text, has_star) = word.get_or_insert_default();
        match char {
            '\'' | '"' => quoted_part(char, &mut chars, text)?,
            '\\' => text.push(chars.next().ok_or(RuleError::FinalBackslash)?),
            char => {
                *has_star |= char == '*';
                text.push(char);
            }
        }
    }
    words.extend(word);
    let has_more = words.pop_if(|word| word.1 && word.0 == "*").is_some();
    if let Some((word, _)) = words.iter().find(|word| word.1) {
        return Err(RuleError::MisplacedStar(word.clone()));
    }
    if words.len() > MAX_WORDS || words.iter().any(|word| word.0.chars().any(char::is_control)) {
        return Err(RuleError::InvalidWords);
    }
    Ok((words.into_iter().map(|word| word.0).collect(), has_more))
}

fn quoted_part(
    quote: char,
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), RuleError> {
    loop {
        match chars.next().ok_or(RuleError::UnclosedQuote)? {
            char if char == quote => return Ok(()),
            '\\' if quote == '"' => word.push(chars.next().ok_or(RuleError::UnclosedQuote)?),
            char => word.push(char),
        }
    }
}

/// A word in the syntax of rules, quoted if necessary.
pub(in crate::permission) fn quoted(word: &str) -> String {
    let needs_quotes = word.is_empty()
        || word.starts_with('=')
        || word.contains(|char: char| char.is_whitespace() || "'\"\\*".contains(char));
    if !needs_quotes {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command of words separated by blanks. A word that ends with `~` is a glob without it, and
    /// `…` at the end stands for unknown arguments.
    fn command(text: &str) -> SimpleCommand {
        let (text, has_unknown_args) =
            text.strip_suffix(" …").map_or((text, false), |text| (text, true));
        let word = |text: &str| match text.strip_suffix('~') {
            Some(glob) => Word { text: glob.to_owned(), is_glob: true },
            None => Word { text: text.to_owned(), is_glob: false },
        };
        let words = text.split_whitespace().map(word).collect();
        SimpleCommand { words, has_unknown_args, ..SimpleCommand::default() }
    }

    #[test]
    fn an_allow_rule_means_its_words_and_what_follows() {
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
            let (exact, text) = rule.strip_prefix('=').map_or((false, rule), |text| (true, text));
            let (words, _) = parse(text).unwrap();
            let matches = |line: &str| starts_with(&words, exact, &command(line));
            assert!(meant.split("; ").filter(|line| !line.is_empty()).all(matches), "{rule}");
            assert!(!other.split("; ").any(matches), "{rule}");
        }
    }

    #[test]
    fn a_deny_rule_also_means_what_may_turn_out_to_be_its_words() {
        let table = [
            ("rm", "rm x; /bin/rm x; ./rm; RM x; rm; rm …", "rmdir x; git rm"),
            ("/bin/rm", "rm x; /usr/bin/rm", "rmdir"),
            (
                "git push",
                "git push; git push -f; git -C dir push; git --no-pager push; git -c a=b -C d push; \
                 git p*~; git *~; git …; git -C …; /usr/bin/git push; git $x; git -C a $x; git p$x; git $()",
                "git; git commit -m push; git status push; git -C dir log push; git a*~; git add …; git log $x; git a$x",
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
            let (exact, text) = rule.strip_prefix('=').map_or((false, rule), |text| (true, text));
            let (words, _) = parse(text).unwrap();
            let matches = |line: &&str| may_match(&words, exact, &command(line));
            for line in meant.split("; ") {
                assert!(matches(&line), "{rule}: {line}");
            }
            for line in other.split("; ").filter(|line| !line.is_empty()) {
                assert!(!matches(&line), "{rule}: {line}");
            }
        }
    }

    #[test]
    fn a_long_command_takes_no_time_to_compare() {
        let words: Vec<_> = vec!["-a".to_owned(); MAX_WORDS - 1];
        let words = [vec!["x".to_owned()], words, vec!["end".to_owned()]].concat();
        let line = format!("x {}", "-a ".repeat(10_000));
        assert!(!may_match(&words[..MAX_WORDS], false, &command(&line.replace("-a", "-b"))));
        assert!(may_match(&words[..MAX_WORDS], false, &command(&line)));
    }

    #[test]
    fn words_are_parsed_as_in_a_shell_and_round_trip() {
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
            let written: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            assert_eq!(parse(&written.join(" ")).unwrap().0, words, "{written:?}");
        }
        for wrong in ["npm run test:*", "a * b", "'open", "\"open", "end\\"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
