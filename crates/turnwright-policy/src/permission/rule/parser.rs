//! Parses the text of rules, and says what is wrong with it. Pure.

use url::Host;

use super::super::glob::Glob;
use super::command_words::MAX_WORDS;
use super::{Pattern, Rule, RuleAction, Scope, command_words, split_port};

/// The maximum length of one rule in bytes.
const MAX_RULE_BYTES: usize = 4096;

/// The tools that a rule can be about.
pub(super) const TOOLS: [&str; 7] = ["exec", "read", "edit", "fetch", "mcp", "skill", "agent"];

impl Rule {
    /// Parses a rule such as `exec(cargo test)`.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn parse(text: &str, action: RuleAction, scope: Scope) -> Result<Rule, RuleError> {
        Ok(Rule::new(action, Pattern::parse(text, action)?, scope))
    }
}

impl Pattern {
    /// Parses a pattern such as `exec(cargo test)`. In a rule that denies or asks, paths are
    /// case-insensitive.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn parse(text: &str, action: RuleAction) -> Result<Pattern, RuleError> {
        if text.len() > MAX_RULE_BYTES {
            return Err(RuleError::TooLong);
        }
        let text = text.trim();
        let (tool, spec) = match text.split_once('(') {
            Some((tool, rest)) => {
                let spec = rest.strip_suffix(')').ok_or(RuleError::UnclosedBracket)?;
                (tool, Some(spec.trim()))
            }
            None => (text, None),
        };
        if !TOOLS.contains(&tool) {
            return Err(RuleError::UnknownTool);
        }
        match spec {
            None => Ok(pattern_for_all(tool)),
            Some("") => Err(RuleError::EmptyBrackets(tool.to_owned())),
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
        "skill" => Pattern::Skill("*".to_owned()),
        "agent" => Pattern::Agent("*".to_owned()),
        _ => Pattern::Mcp { server: "*".to_owned(), tool: None },
    }
}

fn parse_spec(tool: &str, spec: &str, action: RuleAction) -> Result<Pattern, RuleError> {
    let ignore_case = action != RuleAction::Allow;
    match tool {
        "exec" => exec(spec),
        "read" => Ok(Pattern::Read(Glob::parse(spec, ignore_case)?)),
        "edit" => Ok(Pattern::Edit(Glob::parse(spec, ignore_case)?)),
        "fetch" => fetch(spec),
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

fn exec(spec: &str) -> Result<Pattern, RuleError> {
    let (exact, spec) = spec.strip_prefix('=').map_or((false, spec), |rest| (true, rest));
    let (words, has_star) = command_words::parse(spec)?;
    if exact && (has_star || words.is_empty()) {
        return Err(RuleError::IncompleteExactCommand);
    }
    if words.first().is_some_and(String::is_empty) {
        return Err(RuleError::EmptyProgram);
    }
    Ok(Pattern::Exec { words, exact })
}

fn fetch(spec: &str) -> Result<Pattern, RuleError> {
    let domain = spec.strip_prefix("domain:").ok_or(RuleError::NoDomain)?.trim();
    if domain == "*" {
        return Ok(Pattern::Fetch("*".to_owned()));
    }
    let (wildcard, rest) = domain.strip_prefix("*.").map_or(("", domain), |rest| ("*.", rest));
    let (host, port) = split_port(rest);
    let host = Host::parse(host.trim_end_matches('.'))
        .ok()
        .filter(|_| !rest.contains('*'))
        .ok_or(RuleError::InvalidHost)?;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(Pattern::Fetch(format!("{wildcard}{host}{port}")))
}

fn name(text: &str) -> Result<String, RuleError> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(|char| char.is_control() || char == '/') {
        return Err(RuleError::InvalidName);
    }
    Ok(text.to_owned())
}

/// An error in the text of a rule or a glob. The message stands after the rule and a colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule is too long.
    #[error("it is longer than {MAX_RULE_BYTES} bytes")]
    TooLong,
    /// The bracket after the tool is not closed, or something follows the closing bracket.
    #[error("it does not end with `)`")]
    UnclosedBracket,
    /// There is no such tool.
    #[error("unknown tool; the tools are {}", TOOLS.join(", "))]
    UnknownTool,
    /// The brackets after this tool are empty.
    #[error("the brackets are empty; `{0}` alone means everything")]
    EmptyBrackets(String),
    /// `=` is followed by something other than a complete command.
    #[error("`=` must be followed by all words of the command, without `*`")]
    IncompleteExactCommand,
    /// The first word of a command is empty.
    #[error("the name of the program is empty")]
    EmptyProgram,
    /// This word of a command contains a `*` but is not a lone `*` at the end.
    #[error("`{0}`: `*` must be a separate word at the end; quote it to match it literally")]
    MisplacedStar(String),
    /// A command has too many words, or one of them contains a control character.
    #[error("it has more than {MAX_WORDS} words, or a control character")]
    InvalidWords,
    /// A quote in a command is not closed.
    #[error("a quote is not closed")]
    UnclosedQuote,
    /// A command ends with a backslash that escapes nothing.
    #[error("it ends with a backslash")]
    FinalBackslash,
    /// A rule about hosts does not have the form `fetch(domain:HOST)`.
    #[error("it must have the form `fetch(domain:HOST)`")]
    NoDomain,
    /// The host is not valid.
    #[error("not a valid host")]
    InvalidHost,
    /// The name of a server, tool, skill or agent is not valid.
    #[error("a name is empty or contains `/` or a control character")]
    InvalidName,
    /// A glob contains a control character.
    #[error("it contains a control character")]
    ControlCharacter,
    /// A glob starts with `~`, `!` or, on Windows, a drive.
    #[error(
        "a glob must not start with `~`, `!` or a drive, except for `~/`, the home folder, and `//C:/`"
    )]
    InvalidGlobStart,
    /// A backslash in a glob precedes a letter or digit, as in a Windows path.
    #[error(
        "folders are separated by `/`, also on Windows; `\\` makes a wildcard an ordinary character"
    )]
    Backslash,
    /// A glob is empty.
    #[error("it is empty")]
    EmptyGlob,
    /// A glob can never match, because of one of its parts.
    #[error("a part is empty, `.` or `..`, which never matches")]
    UnmatchablePart,
    /// The wildcards of a glob cannot be parsed. Contains the reason.
    #[error("{0}")]
    InvalidGlob(String),
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
            ("read(/src/**)", "read(/src/**)"),
            ("read", "read"),
            ("edit(//**/.env)", "edit(//**/.env)"),
            ("fetch", "fetch"),
            ("fetch(domain:Docs.RS)", "fetch(domain:docs.rs)"),
            ("fetch(domain:*.rust-lang.org)", "fetch(domain:*.rust-lang.org)"),
            ("fetch(domain:localhost:3000)", "fetch(domain:localhost:3000)"),
            ("fetch(domain:[::1]:80)", "fetch(domain:[::1]:80)"),
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
        for (text, expected) in [
            (&*"x".repeat(4097), "it is longer than 4096 bytes"),
            ("exec(ls", "it does not end with `)`"),
            ("x", "unknown tool; the tools are exec, read, edit, fetch, mcp, skill, agent"),
            ("exec()", "the brackets are empty; `exec` alone means everything"),
            ("exec(=)", "`=` must be followed by all words of the command, without `*`"),
            ("exec('')", "the name of the program is empty"),
            ("exec(a* b)", star),
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
            let got = Pattern::parse(text, RuleAction::Allow).map_err(|error| error.to_string());
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
            "mcp(/x)",
            "mcp(a/b/c)",
            "skill(a/b)",
            "exec(\u{1b}[2K)",
        ] {
            assert!(Pattern::parse(text, RuleAction::Deny).is_err(), "{text}");
        }
        assert!(Pattern::parse(&format!("exec({})", "x".repeat(5000)), RuleAction::Deny).is_err());
    }
}
