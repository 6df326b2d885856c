//! Parses the text of rules, and says what is wrong with it. The words of `exec` rules have a syntax of their own, and
//! match commands. Pure.

use url::Host;

use super::super::glob::Glob;
use super::{Pattern, Rule, RuleAction, Scope, split_port};
use crate::shell::{SimpleCommand, Word, WordList, is_in, is_message_option};

/// The maximum length of one rule in bytes.
const MAX_RULE_BYTES: usize = 4096;
/// Words that are no part of a command, unless they are quoted.
const OPERATORS: WordList = "&& || |";

/// The tools that a rule can be about.
pub(super) const TOOLS: [&str; 8] =
    ["exec", "read", "edit", "fetch", "search", "mcp", "skill", "agent"];

impl Rule {
    /// Parses a rule such as `exec(cargo test)`.
    ///
    /// # Errors
    /// The error says what is wrong with the text, after the rule and a colon.
    pub fn parse(text: &str, action: RuleAction, scope: Scope) -> Result<Rule, String> {
        Ok(Rule::new(action, Pattern::parse(text, action)?, scope))
    }
}

impl Pattern {
    /// Parses a pattern such as `exec(cargo test)`. In a rule that denies or asks, paths are
    /// case-insensitive.
    ///
    /// # Errors
    /// The error says what is wrong with the text, after the rule and a colon.
    pub fn parse(text: &str, action: RuleAction) -> Result<Pattern, String> {
        if text.len() > MAX_RULE_BYTES {
            return Err(format!("it is longer than {MAX_RULE_BYTES} bytes"));
        }
        let text = text.trim();
        let (tool, spec) = match text.split_once('(') {
            Some((tool, rest)) => {
                let spec = rest.strip_suffix(')').ok_or("it does not end with `)`")?;
                (tool, Some(spec.trim()))
            }
            None => (text, None),
        };
        if !TOOLS.contains(&tool) {
            return Err(format!("unknown tool; the tools are {}", TOOLS.join(", ")));
        }
        match spec {
            None => Ok(pattern_for_all(tool)),
            Some("") => Err(format!("the brackets are empty; `{tool}` alone means everything")),
            Some(spec) => parse_spec(tool, spec, action),
        }
    }
}

/// The pattern that matches everything that a tool does.
pub(super) fn pattern_for_all(tool: &str) -> Pattern {
    match tool {
        "exec" => Pattern::Exec { words: Vec::new(), exact: false },
        "read" => Pattern::Read(Glob::everything()),
        "edit" => Pattern::Edit(Glob::everything()),
        "fetch" => Pattern::Fetch("*".to_owned()),
        "search" => Pattern::Search("*".to_owned()),
        "skill" => Pattern::Skill("*".to_owned()),
        "agent" => Pattern::Agent("*".to_owned()),
        _ => Pattern::Mcp { server: "*".to_owned(), tool: None },
    }
}

fn parse_spec(tool: &str, spec: &str, action: RuleAction) -> Result<Pattern, String> {
    let ignore_case = action != RuleAction::Allow;
    match tool {
        "exec" => exec(spec),
        "read" => Ok(Pattern::Read(Glob::parse(spec, ignore_case)?)),
        "edit" => Ok(Pattern::Edit(Glob::parse(spec, ignore_case)?)),
        "fetch" => fetch(spec),
        "search" => Ok(Pattern::Search(name(spec)?)),
        "skill" => Ok(Pattern::Skill(name(spec)?)),
        "agent" => Ok(Pattern::Agent(name(spec)?)),
        _ => match spec.split_once('/') {
            Some((server, tool)) => {
                Ok(Pattern::Mcp { server: name(server)?, tool: Some(name(tool)?) })
            }
            None => Ok(Pattern::Mcp { server: name(spec)?, tool: None }),
        },
    }
}

fn exec(spec: &str) -> Result<Pattern, String> {
    let (exact, spec) = spec.strip_prefix('=').map_or((false, spec), |rest| (true, rest));
    let (words, has_star) = parse_words(spec)?;
    if exact && (has_star || words.is_empty()) {
        return Err("`=` must be followed by all words of the command, without `*`".into());
    }
    if words.first().is_some_and(String::is_empty) {
        return Err("the name of the program is empty".into());
    }
    // Such a rule would never match. An exact one, or one with quotes, may have these words as arguments.
    let program = words.first().map_or("", String::as_str);
    let mark = program.find(['/', '\\', '=']);
    let mut parts = spec.split_whitespace().filter(|part| is_in(OPERATORS, part));
    let is_line = !exact && parts.any(|part| words.iter().any(|word| word == part));
    let sets_variable = mark.is_some_and(|at| at > 0 && program[at..].starts_with('='));
    if sets_variable || is_line || mark.is_none() && program.contains(' ') {
        return Err("it must be one command that begins with the name of a program".into());
    }
    Ok(Pattern::Exec { words, exact })
}

fn fetch(spec: &str) -> Result<Pattern, String> {
    let domain =
        spec.strip_prefix("domain:").ok_or("it must have the form `fetch(domain:HOST)`")?.trim();
    if domain == "*" {
        return Ok(Pattern::Fetch("*".to_owned()));
    }
    let (wildcard, rest) = domain.strip_prefix("*.").map_or(("", domain), |rest| ("*.", rest));
    let (host, port) = split_port(rest);
    let host = Host::parse(host.trim_end_matches('.'))
        .ok()
        .filter(|_| !rest.contains('*'))
        .ok_or("not a valid host")?;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(Pattern::Fetch(format!("{wildcard}{host}{port}")))
}

fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(|char| char.is_control() || char == '/') {
        return Err("a name is empty or contains `/` or a control character".into());
    }
    Ok(text.to_owned())
}

/// The maximum number of words in one rule. `may_match` needs a bit for each.
pub(in crate::permission) const MAX_WORDS: usize = 32;
/// The number of bits for them.
const MAX_STATES: usize = 64;
/// Programs whose options may follow their operands, the first of which is no subcommand.
const WITHOUT_SUBCOMMANDS: WordList =
    "chgrp chmod chown cp curl find ln mv rm rsync scp sed shred tar wget";
/// The names that npm takes for `install`.
const NPM_INSTALL: WordList = "add i in ins inst insta instal isnt isnta isntal isntall";
/// The most short options in one word. Longer words are names, as in `find -delete`.
const MAX_SHORT_OPTIONS: usize = 4;

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
    // A program that nobody knows, as in `$x push` and `gi? push`, counts only if the subcommand itself is there.
    let subcommand = words.first().filter(|word| !word.starts_with('-'));
    let may_become = subcommand.is_some_and(|word| command.argv().any(|text| text == word))
        && may_become_program(program, first);
    if !may_become && !is_same_program(program, &first.text) {
        return false;
    }
    if exact {
        let fits = arguments.iter().zip(words).all(|(argument, word)| may_be_word(word, argument));
        let missing = words.len().checked_sub(arguments.len());
        return fits && missing.is_some_and(|count| count == 0 || command.has_unknown_args);
    }
    if words.is_empty() {
        return true;
    }
    let words: Vec<Word> = words.iter().map(Word::plain).collect();
    let has_subcommands =
        !WITHOUT_SUBCOMMANDS.split(' ').any(|known| is_same_program(known, program));
    follow_each_other(&words, arguments, has_subcommands, command.has_unknown_args) || {
        let words = separate_options(program, &words);
        let arguments = separate_options(program, arguments);
        follow_each_other(&words, &arguments, has_subcommands, command.has_unknown_args)
    }
}

/// True if a command may match these words, alone or with wrappers that were taken off: `ls` of `nohup sh -c ls` is
/// also `sh -c ls`. Only the names of wrappers are known, and that a shell had the option `-c`.
pub(super) fn may_match_whole(words: &[String], exact: bool, command: &SimpleCommand) -> bool {
    if command.wrappers.is_empty() {
        return may_match(words, exact, command);
    }
    let mut whole = command.clone();
    may_match(words, exact, command)
        || command.wrappers.iter().rev().take(MAX_WORDS).any(|name| {
            let added = [Some(name.as_str()), is_in("bash dash sh", name).then_some("-c")];
            whole.words.splice(0..0, added.into_iter().flatten().map(Word::plain));
            may_match(words, exact, &whole)
        })
}

/// True if arguments begin with these words, between which options with values may stand. An option that follows
/// another word of the rule may also follow operands: `git push --force` means `git push origin --force`, too. Without
/// subcommands, so may any: `rm -rf` means `rm x -rf`. Behind operands, variables and globs are no options.
fn follow_each_other(
    words: &[Word],
    arguments: &[Word],
    has_subcommands: bool,
    has_unknown_args: bool,
) -> bool {
    if words.len() >= MAX_STATES {
        return false;
    }
    let later = words.iter().enumerate().skip(usize::from(has_subcommands));
    let options = later.filter(|(_, word)| is_option(word) && word.text != "--");
    let may_wait = options.fold(0_u64, |bits, (index, _)| bits | 1 << index);
    // The states of an automaton: bit n means that n words have been matched. In `after_option`,
    // the next argument may be the value of an option.
    let mut plain = 1_u64;
    let mut after_option = 0_u64;
    let mut waiting = 0_u64;
    let mut before = "";
    for argument in arguments {
        let all = plain | after_option;
        let matching = words.iter().enumerate().filter(|(index, word)| {
            let bit = 1_u64 << *index;
            let is_message = is_option(word) && is_message_option(before);
            (all | waiting) & bit != 0 && is_word(&word.text, &argument.text)
                || all & bit != 0 && !is_message && may_be_word(&word.text, argument)
        });
        let found = matching.fold(0_u64, |bits, (index, _)| bits | 1 << (index + 1));
        waiting |= all & may_wait;
        before = &argument.text;
        if found & 1 << words.len() != 0 {
            return true;
        }
        (plain, after_option) =
            if is_option(argument) { (0, all | found) } else { (after_option | found, 0) };
    }
    has_unknown_args && (plain | after_option) != 0
}

fn is_option(word: &Word) -> bool {
    word.text.starts_with('-')
}

/// True if an argument is this word, or an option of this name that is shortened or has a value: `--forc`, `--force=x`.
/// `--save` is another one than `--save-dev`, and `--force=false` takes it back.
fn is_word(wanted: &str, argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or(argument);
    let is_long = name.len() > 2 && name.starts_with("--") && !argument.ends_with("=false");
    let is_start = wanted.strip_prefix(name).is_some_and(|rest| !rest.starts_with('-'));
    wanted == argument || is_long && is_start && !wanted.contains('=')
}

/// The words with each short option as a word of its own, and options that follow each other sorted, so that `-rf` is
/// the same as `-fr` and `-v -r -f`.
fn separate_options(program: &str, words: &[Word]) -> Vec<Word> {
    let mut separate = Vec::with_capacity(words.len());
    for run in words.chunk_by(|word, next| is_option(word) && is_option(next)) {
        let mut options: Vec<Word> =
            run.iter().flat_map(|word| short_options(word, program)).collect();
        // A message follows its option.
        options.sort_by_cached_key(|word| (is_message_option(&word.text), word.text.clone()));
        separate.append(&mut options);
    }
    separate
}

/// The short options of a word, or the word itself. Those of `rm` and git, and the commands of npm, have other names.
fn short_options(word: &Word, program: &str) -> Vec<Word> {
    let is_rm = is_same_program("rm", program);
    let text = match word.text.as_str() {
        text if is_rm && is_word("--recursive", text) => "-r",
        text if (is_rm || is_same_program("git", program)) && is_word("--force", text) => "-f",
        text if is_word("--no-verify", text) && is_same_program("git", program) => "-n",
        text if is_in(NPM_INSTALL, text) && is_same_program("npm", program) => "install",
        text => text,
    };
    let letters = text.strip_prefix('-').unwrap_or_default();
    let are_short = (1..=MAX_SHORT_OPTIONS).contains(&letters.len())
        && letters.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !are_short {
        return vec![Word { text: text.to_owned(), is_glob: word.is_glob }];
    }
    let options = letters.chars().map(|letter| if is_rm && letter == 'R' { 'r' } else { letter });
    options.map(|letter| Word::plain(format!("-{letter}"))).collect()
}

/// Compares names without folders and case.
fn is_same_program(wanted: &str, given: &str) -> bool {
    wanted == given || base_name(wanted).eq_ignore_ascii_case(base_name(given))
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// True if a program is the output of another, or a glob or a variable that could expand to the wanted one. A variable
/// in capitals is named after its program: `$NPM`, `${DOCKER:-docker}`.
fn may_become_program(wanted: &str, given: &Word) -> bool {
    let base = base_name(&given.text);
    // The slash may be within the braces: `${GIT:-/usr/bin/git}`.
    let is_inside = base.contains('}') && !base.contains('{');
    let text = if is_inside { given.text.clone() } else { base.to_owned() };
    let word = Word { text, is_glob: given.is_glob };
    let variable = word.text.strip_prefix('$').unwrap_or_default().trim_start_matches('{');
    let is_other = variable.starts_with(|char: char| char.is_ascii_uppercase())
        && !variable.to_ascii_lowercase().contains(base_name(wanted));
    word.text.is_empty() || !is_other && may_be_word(base_name(wanted), &word)
}

/// True if a word is the wanted one, or a glob or a variable that could expand to it.
fn may_be_word(wanted: &str, word: &Word) -> bool {
    let has_variable = word.text.contains('$');
    if wanted == word.text || !word.is_glob && !has_variable {
        return wanted == word.text;
    }
    let wildcards = ['*', '?', '[', '$'];
    let start = word.text.split(wildcards).next().unwrap_or_default();
    // It does not matter where the name of a variable ends: too much is matched rather than too little. No name has a
    // slash, and no glob finds one that it does not have.
    let last = word.text.rsplit(['*', '?', ']', '}', ')', '$']).next().unwrap_or_default();
    let end = if has_variable { last.find('/').map_or("", |at| &last[at..]) } else { last };
    let may_fit = has_variable
        || word.text.contains("**")
        || wanted.matches('/').count() <= word.text.matches('/').count();
    may_fit && wanted.starts_with(start) && wanted.ends_with(end)
}

/// Parses the words of a rule. Also returns whether they end with a separate `*`, which only says
/// that more words may follow.
///
/// # Errors
/// If the text is not valid.
fn parse_words(text: &str) -> Result<(Vec<String>, bool), String> {
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
            '\\' => text.push(chars.next().ok_or("it ends with a backslash")?),
            char => {
                *has_star |= char == '*';
                text.push(char);
            }
        }
    }
    words.extend(word);
    let has_more = words.pop_if(|word| word.1 && word.0 == "*").is_some();
    if let Some((word, _)) = words.iter().find(|word| word.1) {
        return Err(format!(
            "`{word}`: `*` must be a separate word at the end; quote it to match it literally"
        ));
    }
    if words.len() > MAX_WORDS || words.iter().any(|word| word.0.chars().any(char::is_control)) {
        return Err(format!("it has more than {MAX_WORDS} words, or a control character"));
    }
    Ok((words.into_iter().map(|word| word.0).collect(), has_more))
}

fn quoted_part(
    quote: char,
    chars: &mut std::str::Chars<'_>,
    word: &mut String,
) -> Result<(), String> {
    const UNCLOSED: &str = "a quote is not closed";
    loop {
        match chars.next().ok_or(UNCLOSED)? {
            char if char == quote => return Ok(()),
            '\\' if quote == '"' => word.push(chars.next().ok_or(UNCLOSED)?),
            char => word.push(char),
        }
    }
}

/// A word in the syntax of rules, quoted if necessary.
pub(in crate::permission) fn quoted(word: &str) -> String {
    let needs_quotes = word.is_empty()
        || word.starts_with('=')
        || is_in(OPERATORS, word)
        || word.contains(|char: char| char.is_whitespace() || "'\"\\*".contains(char));
    if needs_quotes { format!("'{}'", word.replace('\'', r"'\''")) } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_pattern_round_trips() {
        let table = [
            ("exec", "exec"),
            ("exec(*)", "exec"),
            ("exec(cargo test)", "exec(cargo test)"),
            (" exec( cargo  test * ) ", "exec(cargo test)"),
            ("exec(=git status)", "exec(=git status)"),
            ("exec(npm run 'a b')", "exec(npm run 'a b')"),
            ("exec(echo \"a)\")", "exec(echo a))"),
            ("exec('=x')", "exec('=x')"),
            ("exec('/my bin/x' a)", "exec('/my bin/x' a)"),
            ("exec(=awk -F | x=y)", "exec(=awk -F '|' x=y)"),
            ("exec(./a=b '|')", "exec(./a=b '|')"),
            ("read(/src/**)", "read(/src/**)"),
            ("read", "read"),
            ("edit(//**/.env)", "edit(//**/.env)"),
            ("fetch", "fetch"),
            ("fetch(domain:Docs.RS)", "fetch(domain:docs.rs)"),
            ("fetch(domain:*.rust-lang.org)", "fetch(domain:*.rust-lang.org)"),
            ("fetch(domain:localhost:3000)", "fetch(domain:localhost:3000)"),
            ("fetch(domain:[::1]:80)", "fetch(domain:[::1]:80)"),
            ("search", "search"),
            ("search(*)", "search"),
            ("search(brave)", "search(brave)"),
            ("mcp", "mcp(*)"),
            ("mcp(files)", "mcp(files)"),
            ("mcp(files/read)", "mcp(files/read)"),
            ("skill(review)", "skill(review)"),
            ("agent(tester)", "agent(tester)"),
        ];
        for (text, expected) in table {
            let pattern = Pattern::parse(text, RuleAction::Allow).unwrap();
            assert_eq!(pattern.to_string(), expected);
            assert_eq!(Pattern::parse(expected, RuleAction::Allow).unwrap(), pattern, "{text}");
        }
    }

    #[test]
    fn the_text_of_an_error_says_what_is_wrong() {
        let words = "it has more than 32 words, or a control character";
        let glob = "a glob must not start with `~`, `!` or a drive, except for `~/`, the home folder, and \
                    `//C:/`";
        let star = "`a*`: `*` must be a separate word at the end; quote it to match it literally";
        let one = "it must be one command that begins with the name of a program";
        for (text, expected) in [
            (&*"x".repeat(4097), "it is longer than 4096 bytes"),
            ("exec(ls", "it does not end with `)`"),
            ("x", "unknown tool; the tools are exec, read, edit, fetch, search, mcp, skill, agent"),
            ("exec()", "the brackets are empty; `exec` alone means everything"),
            ("exec(=)", "`=` must be followed by all words of the command, without `*`"),
            ("exec('')", "the name of the program is empty"),
            ("exec(a* b)", star),
            ("exec(git push && ls)", one),
            ("exec(curl x | sh)", one),
            ("exec(FOO=1 npm test)", one),
            ("exec('git push')", one),
            ("exec(a\u{1})", words),
            ("exec('a)", "a quote is not closed"),
            ("exec(a\\)", "it ends with a backslash"),
            ("fetch(x)", "it must have the form `fetch(domain:HOST)`"),
            ("fetch(domain:)", "not a valid host"),
            ("skill(a/b)", "a name is empty or contains `/` or a control character"),
            ("read(a\u{1})", "it contains a control character"),
            ("read(!a)", glob),
            ("read(../x)", "a part is empty, `.` or `..`, which never matches"),
            ("read([)", "unclosed character class; missing ']'"),
        ] {
            let got = Pattern::parse(text, RuleAction::Allow);
            assert_eq!(got, Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for text in [
            "",
            "exce(ls)",
            "Exec(ls)",
            "exec(",
            "exec()",
            "exec(ls",
            "exec(ls) x",
            "exec(=)",
            "exec(=ls *)",
            "exec('')",
            "exec(npm run test:*)",
            "exec(a * b)",
            "read(../x)",
            "read(src\\gen\\**)",
            "edit(C:\\Users\\me)",
            "read([)",
            "fetch(docs.rs)",
            "fetch(domain:)",
            "fetch(domain:a b)",
            "fetch(domain:*.*.rs)",
            "fetch(domain:http://x/)",
            "fetch(url:x)",
            "search()",
            "search(a/b)",
            "mcp(/x)",
            "mcp(a/b/c)",
            "skill(a/b)",
            "exec(\u{1b}[2K)",
        ] {
            assert!(Pattern::parse(text, RuleAction::Deny).is_err(), "{text}");
        }
        assert!(Pattern::parse(&format!("exec({})", "x".repeat(5000)), RuleAction::Deny).is_err());
    }

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
            let (words, _) = parse_words(text).unwrap();
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
                 git p*~; git *~; git …; git -C …; /usr/bin/git push; git $x; git -C a $x; git p$x; git $(); \
                 $x push; $x/git push; /bin/g?t~ push -f; ${GIT:-git} push",
                "git; git commit -m push; git status push; git -C dir log push; git a*~; git add …; git log $x; \
                 git a$x; $x pull; $x; g*~; /bin/c?t~ push; [~ push ]; hg push; $x $y; $x …; g*~ $y; $x pull push; \
                 $DOCKER push",
            ),
            (
                "git remote add",
                "git -C remote remote add; git remote -v add",
                "git remote; git add",
            ),
            (
                "rm -rf",
                "rm -rf x; rm -v -rf x; rm -v x -rf; rm -fr x; rm -rvf x; rm -Rf x; rm -f -v -r x; \
                 rm --recursive --force x; rm -r*~ x; rm …; rm x -rf; rm -f x -r",
                "rm -r x; rm -f x; rm -- x; rm --force x",
            ),
            (
                "git push --force",
                "git push --force; git push origin main --force; git -C d push -u origin --force; git push …; \
                 git push x -f; git push -4f x; git push --forc; git push x --fo main",
                "git push; git push origin; git commit --force; git push --force-with-lease; git push -4; \
                 git push origin $x; git push origin *~; git push --follow-tags",
            ),
            (
                "rm -rf /",
                "rm -rf /; rm --rec --f /; rm -rf $x; rm -rf $x/; rm -rf ${x:-/a}; rm -rf /*~",
                "rm -rf node_modules; rm -rf *~; rm -rf $x/build; rm -rf ${x}/b",
            ),
            (
                "git push -f",
                "git push -f; git push -uf origin; git push origin -f; git push x --force",
                "git push -u",
            ),
            ("x --a=b", "x --a=b", "x --a=c; x --a"),
            ("x --config", "x --config=a; x --conf a", "x --config-file a; x -c; x --config=false"),
            ("npm i --save-dev", "npm i --save-d x", "npm i --save x; $x --save-dev"),
            ("rm -r", "rm a -r", "$x -r a; [[~ $x == -r ]]"),
            (
                "git commit --amend",
                "git commit --amend; git commit -am x --amend; git commit $x; git commit -v $x",
                "git commit -m $(); git commit -sm $x; git commit -s -m $x; git commit --message $x",
            ),
            ("git reset --hard", "git reset HEAD~1 --hard; git reset -q --hard", "git reset HEAD"),
            ("git checkout --", "git checkout -- x; git checkout -q -- x", "git checkout x -- y"),
            ("git -c", "git -c a=b log; git -m -c", "git switch -c x; git log -c"),
            (
                "find -delete",
                "find -delete; find -L -delete; find . -name x -delete",
                "find -type d -empty -ls; find -delet",
            ),
            (
                "=git push",
                "git push; git …; git push …",
                "git push -f; git -C d push; git; git log …",
            ),
            ("*", "anything at all; a", ""),
        ];
        for (rule, meant, other) in table {
            let (exact, text) = rule.strip_prefix('=').map_or((false, rule), |text| (true, text));
            let (words, _) = parse_words(text).unwrap();
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
            let (words, _) = parse_words(text).unwrap();
            assert_eq!(words, *expected, "{text}");
            let written: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            assert_eq!(parse_words(&written.join(" ")).unwrap().0, words, "{written:?}");
        }
        for wrong in ["npm run test:*", "a * b", "'open", "\"open", "end\\"] {
            assert!(parse_words(wrong).is_err(), "{wrong}");
        }
    }
}
