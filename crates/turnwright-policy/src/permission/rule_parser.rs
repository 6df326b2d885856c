//! Parses the text of rules. Pure.

use url::Host;

use super::command_words;
use super::glob::Glob;
use super::rule::{Pattern, Rule, RuleAction, Scope, split_port};

/// The maximum length of one rule in bytes.
const MAX_RULE_BYTES: usize = 4096;

/// The tools that a rule can be about.
pub(super) const TOOLS: [&str; 7] = ["exec", "read", "edit", "fetch", "mcp", "skill", "agent"];

impl Rule {
    /// Parses a rule such as `exec(cargo test)`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str, action: RuleAction, scope: Scope) -> Result<Rule, String> {
        let pattern = Pattern::parse(text, action)?;
        Ok(Rule { action, pattern, scope, why: None })
    }
}

impl Pattern {
    /// Parses a pattern such as `exec(cargo test)`. In a rule that denies or asks, paths are
    /// case-insensitive.
    ///
    /// # Errors
    /// What is wrong with the text.
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
    let (exact, spec) = spec.strip_prefix('=').map_or((false, spec), |it| (true, it));
    let (words, has_star) = command_words::parse(spec)?;
    if exact && (has_star || words.is_empty()) {
        return Err("`=` must be followed by all words of the command, without `*`".to_owned());
    }
    if words.first().is_some_and(String::is_empty) {
        return Err("the name of the program is empty".to_owned());
    }
    Ok(Pattern::Exec { words, exact })
}

fn fetch(spec: &str) -> Result<Pattern, String> {
    let domain =
        spec.strip_prefix("domain:").ok_or("it must have the form `fetch(domain:HOST)`")?.trim();
    if domain == "*" {
        return Ok(Pattern::Fetch("*".to_owned()));
    }
    let (wildcard, rest) = domain.strip_prefix("*.").map_or(("", domain), |it| ("*.", it));
    let (host, port) = split_port(rest);
    let host = host.trim_end_matches('.');
    let host = Host::parse(host).ok().filter(|_| !rest.contains('*'));
    let host = host.ok_or("not a valid host")?;
    let port = port.map(|it| format!(":{it}")).unwrap_or_default();
    Ok(Pattern::Fetch(format!("{wildcard}{host}{port}")))
}

fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(|it| it.is_control() || it == '/') {
        return Err("a name is empty or contains `/` or a control character".to_owned());
    }
    Ok(text.to_owned())
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
