//! Selects the calls that a handler runs for: by the matcher of its group, and by its own condition.

use regex_automata::meta::{Config, Regex};
use serde_json::Value;

use turnwright_types::text::fits_wildcard;

/// The most bytes of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

/// The matcher of a group of handlers.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    /// The matcher as written in the file.
    pub(crate) text: String,
    /// The regular expression, which matches a part of a name; `None` for everything and for a list of exact names.
    pattern: Option<Box<Regex>>,
}

impl Matcher {
    /// Parses a matcher.
    ///
    /// # Errors
    /// Returns the reason if the text is not a valid regular expression.
    pub(crate) fn parse(text: String) -> Result<Matcher, String> {
        let is_list = text.chars().all(|char| char.is_alphanumeric() || "_- ,|".contains(char));
        if is_list || text.trim() == "*" {
            return Ok(Matcher { text, pattern: None });
        }
        let config = Config::new()
            .nfa_size_limit(Some(MAX_PATTERN_BYTES))
            .onepass_size_limit(Some(MAX_PATTERN_BYTES))
            .dfa_size_limit(Some(MAX_PATTERN_BYTES))
            .hybrid_cache_capacity(MAX_PATTERN_BYTES);
        let compiled = Regex::builder().configure(config).build(text.trim());
        let regex = compiled.map_err(|error| error.to_string())?;
        Ok(Matcher { text, pattern: Some(Box::new(regex)) })
    }

    /// Returns true if one of the names matches. An event without names fits every matcher.
    pub(crate) fn fits(&self, names: &[String]) -> bool {
        let text = self.text.trim();
        let mut listed = text.split([',', '|']).map(str::trim);
        match &self.pattern {
            _ if names.is_empty() || matches!(text, "" | "*") => true,
            Some(regex) => names.iter().any(|name| regex.is_match(name.as_str())),
            None => listed.any(|wanted| names.iter().any(|name| name == wanted)),
        }
    }

    /// Returns true if the matcher fits none of these names because it is no matcher: it has one in other letters or
    /// within a rule, or a blank, which no name has.
    pub(crate) fn is_mistaken(&self, names: &[String]) -> bool {
        let mut words = self.text.split(|char: char| !char.is_alphanumeric() && char != '_');
        let is_near = words.any(|word| names.iter().any(|name| name.eq_ignore_ascii_case(word)))
            || self.text.split([',', '|']).any(|part| part.trim().contains(' '));
        is_near && !self.fits(names) && !self.text.contains("mcp")
    }
}

/// The condition of a handler, such as `Bash(git push *)`. Conditions only avoid needless runs, so in doubt one holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    tool: String,
    pattern: Option<String>,
}

/// The fields of an input that a pattern is compared with.
const COMPARED_FIELDS: [&str; 5] = ["command", "file_path", "path", "url", "pattern"];
/// Keywords of the shell behind which a command follows.
const KEYWORDS: [&str; 8] = ["!", "do", "elif", "else", "if", "then", "until", "while"];
/// Programs that run the command that follows them, behind options and other words or in quotes.
const RUNNERS: &str = "ash aws-vault bash builtin bun bundle bunx busybox caffeinate chronic chroot chrt command \
                       conda coproc cross-env csh dash devbox direnv doas doppler dotenv dotenvx entr env eval exec \
                       fakeroot find firejail fish flock hatch hyperfine ionice ksh mise nice nix nix-shell nohup npm \
                       npx op parallel pdm pipenv pixi pkexec pnpm poetry runuser rustup rye script setsid sg sh \
                       stdbuf strace su sudo systemd-run taskset time timeout tmux trap unbuffer unshare uv volta \
                       watch watchexec xargs xvfb-run yarn zsh";
/// The most words of a part of a line at which a command may begin.
const MAX_BEGINNINGS: usize = 32;

impl Condition {
    /// Parses a condition; `None` if the text does not have the form of a permission rule.
    pub(crate) fn parse(text: &str) -> Option<Condition> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?)),
            None => (text, None),
        };
        let is_name = !tool.is_empty() && !tool.contains(char::is_whitespace);
        let pattern = pattern.filter(|pattern| !pattern.is_empty() && *pattern != "*");
        is_name.then(|| Condition { tool: tool.to_owned(), pattern: pattern.map(str::to_owned) })
    }

    /// Returns false for several rules in one text, such as `Bash(a) or Bash(b)`, which would never hold.
    pub(crate) fn is_one_rule(&self) -> bool {
        let parts = self.pattern.as_ref().and_then(|pattern| pattern.split_once(')'));
        !self.tool.contains(['|', ',', '!']) && parts.is_none_or(|(_, rest)| !rest.contains('('))
    }

    /// Returns true if the condition holds for a call with one of these names and this input.
    pub(crate) fn holds(&self, names: &[String], input: &Value) -> bool {
        if !names.iter().any(|name| fits_wildcard(name, &self.tool)) {
            return false;
        }
        let Some(pattern) = &self.pattern else { return true };
        let pattern = pattern
            .strip_prefix("domain:")
            .map_or_else(|| pattern.replace(":*", " *"), |domain| format!("*{domain}*"));
        let mut texts =
            COMPARED_FIELDS.iter().filter_map(|field| input.get(field)?.as_str()).peekable();
        texts.peek().is_none() || texts.any(|text| fits_command(text, &pattern))
    }
}

/// Returns true if a variable or a substitution names the program of one of the commands of a line.
fn has_unknown_program(line: &str) -> bool {
    line.split([';', '&', '|', '\n']).any(|command| {
        let mut words = command.split_whitespace().skip_while(|word| is_before_command(word));
        words.next().is_some_and(|word| word.trim_start_matches('"').starts_with(['$', '`']))
    })
}

/// Returns true if a command line, or one of the commands in it, matches, or if that is not clear.
fn fits_command(line: &str, pattern: &str) -> bool {
    let line = &line.replace("\\\n", "");
    if has_unknown_program(line) {
        return true;
    }
    let parts = line.split(|char: char| ";&|\n(){}`".contains(char));
    let commands = parts.clone().flat_map(commands_in);
    let written = std::iter::once(line.as_str()).chain(parts).map(|part| part.trim().to_owned());
    written.chain(commands).filter(|text| !text.is_empty()).any(|text| {
        fits_wildcard(&text, pattern)
            || fits_wildcard(&text, &format!("*/{}", pattern.trim_start_matches(['/', '.'])))
            || pattern.strip_suffix(" *").is_some_and(|words| text == words)
    })
}

/// Returns the commands that a part of a line may be, without quotes and with single blanks: the part without the
/// assignments and keywords before it. What follows a program that runs other programs may begin with any word.
fn commands_in(part: &str) -> Vec<String> {
    let plain = part.replace(['"', '\'', '\\'], "");
    let all: Vec<_> = plain.split_whitespace().collect();
    let before = all.iter().take_while(|word| is_before_command(word)).count();
    let words = &all[before..];
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    // A value in quotes may have several words, and the target of a redirection may be one.
    let is_redirected = words.first().is_some_and(|word| word.contains(['<', '>']));
    let is_unclear = is_redirected
        || RUNNERS.split_whitespace().any(|runner| runner == program)
        || before > 0 && part.contains(['"', '\'']);
    let most = if is_unclear { MAX_BEGINNINGS } else { 1 };
    let commands = (0..words.len().min(most)).map(|first| &words[first..]);
    let forms = commands.flat_map(|command| {
        let short = [(1, 1), (2, 1), (2, 2)].map(|widths| without_options(command, widths));
        std::iter::once(command.join(" ")).chain(short)
    });
    forms.collect()
}

/// Returns a command without the options in front of its subcommand, such as those of `git -C x push`: with so many words
/// for an option of one letter, and for any other.
fn without_options(command: &[&str], (letter, long): (usize, usize)) -> String {
    let (program, rest) = command.split_at(1);
    let mut at = 0;
    while let Some(option) = rest.get(at).filter(|word| word.starts_with('-')) {
        at += if option.len() == 2 { letter } else { long };
    }
    [program, rest.get(at..).unwrap_or_default()].concat().join(" ")
}

/// Returns true for a keyword of the shell behind which a command follows, and for an assignment.
fn is_before_command(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name.trim_end_matches('+'));
    let is_name = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    KEYWORDS.contains(&word) || !name.is_empty() && is_name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_plain_matcher_is_a_list_of_names_and_any_other_an_unanchored_pattern() {
        for (matcher, name, expected) in [
            ("", "Bash", true),
            ("*", "Bash", true),
            ("Bash", "Bash", true),
            ("Bash", "BashOutput", false),
            ("bash", "Bash", false),
            ("Edit|Write", "Write", true),
            ("Edit, Write", "Write", true),
            ("Edit|Write", "MultiEdit", false),
            ("Edit.*", "MultiEdit", true),
            ("^Edit$", "MultiEdit", false),
            ("mcp__notes", "mcp__notes__search", false),
            ("mcp__notes__.*", "mcp__notes__search", true),
            ("Web.*|Bash", "WebFetch", true),
        ] {
            let parsed = Matcher::parse(matcher.to_owned()).unwrap();
            assert_eq!(parsed.fits(&names(&[name])), expected, "{matcher} {name}");
        }
        for pattern in ["(Edit", "a{1000}{1000}{1000}"] {
            assert!(Matcher::parse(pattern.to_owned()).is_err());
        }
        let task = Matcher::parse("Task".to_owned()).unwrap();
        assert!(task.fits(&names(&["Agent", "Task"])) && task.fits(&[]));
    }

    #[test]
    fn a_condition_holds_for_each_command_of_a_line() {
        for (condition, input, expected) in [
            ("Bash", json!({ "command": "ls" }), true),
            ("Bash(*)", json!({ "command": "ls" }), true),
            ("Bash(git push *)", json!({ "command": "git push origin" }), true),
            ("Bash(git push *)", json!({ "command": "git push" }), true),
            ("Bash(git push:*)", json!({ "command": "git push -f" }), true),
            ("Bash(git push *)", json!({ "command": "cd x && git push -f" }), true),
            ("Bash(git push *)", json!({ "command": "x=$(git push -f)" }), true),
            ("Bash(git push *)", json!({ "command": "FOO=1 git push" }), true),
            ("Bash(git push *)", json!({ "command": "A='b c' D=$E git  push x" }), true),
            ("Bash(git push *)", json!({ "command": "if true; then git push; fi" }), true),
            ("Bash(git push *)", json!({ "command": "sudo -u me git push" }), true),
            ("Bash(git push *)", json!({ "command": "timeout 5 /usr/bin/env git push" }), true),
            ("Bash(git push *)", json!({ "command": "bash -c \"git push -f\"" }), true),
            ("Bash(git push *)", json!({ "command": "$TOOL git push" }), true),
            ("Bash(git push *)", json!({ "command": "ls; \"$(which git)\" push" }), true),
            ("Bash(git push *)", json!({ "command": "find . -name x -exec git push {} +" }), true),
            ("Bash(git push *)", json!({ "command": "time -p git push" }), true),
            ("Bash(git push *)", json!({ "command": "> log git push x" }), true),
            ("Bash(git push *)", json!({ "command": "2>log git push x" }), true),
            ("Bash(git push *)", json!({ "command": "git -C ../other push" }), true),
            ("Bash(git push *)", json!({ "command": "git --no-pager -c a=b push -f" }), true),
            ("Bash(git push *)", json!({ "command": "git --git-dir x push" }), true),
            ("Bash(git push *)", json!({ "command": "git \\\n  push origin" }), true),
            ("Bash(git push *)", json!({ "command": "git pu\\\nsh origin" }), true),
            ("Bash(git push *)", json!({ "command": "uv run git push" }), true),
            ("Bash(git push *)", json!({ "command": "mise exec -- git -C x push" }), true),
            ("Bash(git push *)", json!({ "command": "npx -c 'git push'" }), true),
            ("Bash(kubectl delete *)", json!({ "command": "kubectl -n x delete pod y" }), true),
            ("Bash(git push *)", json!({ "command": "git -C x" }), false),
            ("Bash(git push *)", json!({ "command": "git log -n push" }), false),
            ("Bash(git push *)", json!({ "command": "echo $(date) $X ${Y}" }), false),
            ("Bash(git push *)", json!({ "command": "grep 'git push' README.md" }), false),
            ("Bash(git push *)", json!({ "command": "git status" }), false),
            ("Edit(src/**)", json!({ "file_path": "/ws/src/a/b.rs" }), false),
            ("B*(ls)", json!({ "command": "ls" }), true),
            ("Bash(ls)", json!({ "odd": 1 }), true),
        ] {
            let parsed = Condition::parse(condition).unwrap();
            assert_eq!(parsed.holds(&names(&["Bash"]), &input), expected, "{condition} {input}");
        }
        let edit = Condition::parse("Edit(src/**)").unwrap();
        let input = json!({ "file_path": "/ws/src/a/b.rs" });
        assert!(edit.holds(&names(&["Edit"]), &input));
        assert_eq!(Condition::parse("Bash(git"), None);
        assert_eq!(Condition::parse("two words"), None);
    }
}
