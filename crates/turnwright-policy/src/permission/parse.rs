//! The text of a rule → the rule. Pure.

use url::Host;

use super::glob::Glob;
use super::rule::{Pattern, Rule, Scope, Tier, with_port};
use super::words;

/// Bytes of one rule.
const LONGEST: usize = 4096;

/// The tools that a rule can be about.
pub(super) const TOOLS: [&str; 7] = ["exec", "read", "edit", "fetch", "mcp", "skill", "agent"];

impl Rule {
    /// A rule from its text, as in `exec(cargo test)`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, tier: Tier, scope: Scope) -> Result<Rule, String> {
        let pattern = Pattern::parse(text, tier)?;
        Ok(Rule { tier, pattern, scope, why: None })
    }
}

impl Pattern {
    /// A pattern from its text. What it is for matters: a ban does not care for the case of paths.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, tier: Tier) -> Result<Pattern, String> {
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
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
            return Err(format!("there is no such tool; there are {}", TOOLS.join(", ")));
        }
        match spec {
            None => Ok(every(tool)),
            Some("") => Err(format!("nothing stands in it; `{tool}` alone means everything")),
            Some(spec) => one(tool, spec, tier),
        }
    }
}

/// Everything of a tool.
pub(super) fn every(tool: &str) -> Pattern {
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

fn one(tool: &str, spec: &str, tier: Tier) -> Result<Pattern, String> {
    let any_case = tier != Tier::Allow;
    match tool {
        "exec" => exec(spec),
        "read" => Ok(Pattern::Read(Glob::parse(spec, any_case)?)),
        "edit" => Ok(Pattern::Edit(Glob::parse(spec, any_case)?)),
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
    let (words, is_open) = words::parse(spec)?;
    if exact && (is_open || words.is_empty()) {
        return Err("after `=` stand all words of the command, and no `*`".to_owned());
    }
    if words.first().is_some_and(String::is_empty) {
        return Err("no program has an empty name".to_owned());
    }
    Ok(Pattern::Exec { words, exact })
}

fn fetch(spec: &str) -> Result<Pattern, String> {
    let domain = spec.strip_prefix("domain:").ok_or("it is written `fetch(domain:HOST)`")?.trim();
    if domain == "*" {
        return Ok(Pattern::Fetch("*".to_owned()));
    }
    let (star, rest) = domain.strip_prefix("*.").map_or(("", domain), |it| ("*.", it));
    let (host, port) = with_port(rest);
    let host = host.trim_end_matches('.');
    let host = Host::parse(host).ok().filter(|_| !rest.contains('*'));
    let host = host.ok_or("that is no host")?;
    let port = port.map(|it| format!(":{it}")).unwrap_or_default();
    Ok(Pattern::Fetch(format!("{star}{host}{port}")))
}

fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(|it| it.is_control() || it == '/') {
        return Err("a name is missing or holds what no name holds".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_understood_can_be_written_and_read_again() {
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
            let pattern = Pattern::parse(text, Tier::Allow).unwrap();
            assert_eq!(pattern.to_string(), expected);
            assert_eq!(Pattern::parse(expected, Tier::Allow).unwrap(), pattern, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_no_rule() {
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
            assert!(Pattern::parse(text, Tier::Deny).is_err(), "{text}");
        }
        assert!(Pattern::parse(&format!("exec({})", "x".repeat(5000)), Tier::Deny).is_err());
    }
}
