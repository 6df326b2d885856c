//! `turnwright policy`: the rules that hold in a project, what they say about a command, and how
//! the user changes their own.

use std::collections::BTreeMap;
use std::io::{self, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::config::Config;
use turnwright_types::effect::{Effect, RemoteCall, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::{
    ALLOWED_ONCE, Audit, AuditEntry, AuditEvent, Book, BookEntry, Grants, Law, Mode, Page, Pattern,
    Rule, Scope, Tier, Verdict, decide, explain, pattern_of, word,
};
use crate::session::stand;
use turnwright_policy::shell;
use crate::tools::line_effects;
use crate::trust::Trust;

/// How often a command has to be allowed by hand before a rule for it is suggested.
const OFTEN: usize = 3;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The project (default: this folder)
    #[arg(long, global = true, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The rules that hold in this project, each with whose it is
    #[command(after_help = "Example: turnwright policy list --json")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// What would be thought of a command, part by part, and why
    #[command(after_help = "Example: turnwright policy check \"cargo test 2>&1 | tail\"\n\
                            Exit status: 0 if it would run, 1 if you would be asked, 2 if it \
                            would be refused, 3 if that cannot be told.")]
    Check {
        /// The command line, or a tool of a server as in mcp(server/tool)
        command: String,
        /// The mode of the session (default: the one that sessions begin in)
        #[arg(long, value_parser = mode)]
        mode: Option<Mode>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow something in this project without a question
    #[command(after_help = "Example: turnwright policy allow \"exec(cargo test)\"")]
    Allow {
        /// Such as exec(cargo test), edit(/docs/**), fetch(domain:docs.rs), mcp(notes/search)
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
    /// Forbid something in this project
    #[command(after_help = "Example: turnwright policy deny \"exec(git push)\"")]
    Deny {
        /// Such as exec(git push), edit(/vendor/**)
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
    },
    /// Take rules of this project out again
    #[command(after_help = "Example: turnwright policy revoke 3f9a1c")]
    Revoke {
        /// As `turnwright policy list` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Rules for what you keep allowing by hand
    #[command(after_help = "Example: turnwright policy suggest")]
    Suggest,
}

fn mode(id: &str) -> Result<Mode, String> {
    let known = || format!("one of {}", Mode::ALL.map(Mode::id).join(", "));
    Mode::parse(id).ok_or_else(known)
}

/// The project with all that holds there.
struct Place {
    roots: Roots,
    law: Law,
    book: Book,
    mode: Mode,
}

/// Does what was asked for; what cannot be told or done ends with 3.
pub(super) fn run(options: Options, config: &Config) -> ExitCode {
    let done = Place::find(options.dir, config).and_then(|place| match options.action {
        Action::List { json } => place.list(json),
        Action::Check { command, mode, json } => place.check(&command, mode, json),
        Action::Allow { rules } => place.add(Tier::Allow, &rules),
        Action::Deny { rules } => place.add(Tier::Deny, &rules),
        Action::Revoke { ids } => place.revoke(&ids),
        Action::Suggest => place.suggest(&Audit::lines(&config.paths.state)),
    });
    done.unwrap_or_else(|why| {
        drop(writeln!(stderr(), "turnwright policy: {why}"));
        ExitCode::from(3)
    })
}

impl Place {
    fn find(dir: Option<PathBuf>, config: &Config) -> Result<Place, String> {
        let dir = std::path::absolute(dir.unwrap_or_else(|| PathBuf::from(".")));
        let roots =
            dir.and_then(|it| Roots::new(&it)).map_err(|it| format!("the project: {it}"))?;
        let law = stand(config, &Trust::new(&config.paths.state), &roots).law;
        let book = Book::of(&config.paths.state, roots.real_cwd());
        let mode = config.mode().and_then(|it| Mode::parse(&it)).unwrap_or_default();
        Ok(Place { roots, law, book, mode })
    }

    fn list(&self, as_json: bool) -> Result<ExitCode, String> {
        let page = self.book.read();
        let others: Vec<_> = self.law.rules.iter().filter(|it| !is_kept(&page, it)).collect();
        let text = if as_json {
            let kept = page.entries.iter().map(entry_json);
            let rules: Vec<_> = kept.chain(others.into_iter().map(rule_json)).collect();
            let project = self.roots.real_cwd();
            let all = json!({ "project": project, "rules": rules, "trouble": page.trouble });
            format!("{all:#}\n")
        } else {
            let none = page.entries.is_empty() && others.is_empty();
            let none = if none { "There are no rules for this project.\n" } else { "" };
            let kept = page.entries.iter().map(entry_line);
            let rows: String = kept.chain(others.into_iter().map(rule_line)).collect();
            let trouble = page.trouble.map(|it| format!("! {it}\n")).unwrap_or_default();
            format!("{none}{rows}{trouble}")
        };
        say(&text)
    }

    fn check(&self, command: &str, mode: Option<Mode>, as_json: bool) -> Result<ExitCode, String> {
        let mode = mode.unwrap_or(self.mode);
        let effects = tool_call(command).unwrap_or_else(|| line_effects(command, &self.roots));
        let decision = decide(&self.law, mode, &Grants::default(), &effects);
        let verdict = decision.verdict();
        let parts = explain(&self.law, mode, &effects, &decision);
        let text = if as_json {
            let part = |it: &turnwright_policy::permission::Explained| {
                let verdict = word(it.verdict);
                json!({ "what": it.what, "verdict": verdict, "why": it.why, "rule": it.rule })
            };
            let parts: Vec<_> = parts.iter().map(part).collect();
            let sandbox = self.law.can_confine;
            let all = json!({ "command": command, "mode": mode.id(), "verdict": word(verdict),
                "parts": parts, "sandbox": sandbox });
            format!("{all:#}\n")
        } else {
            let width = parts.iter().map(|it| it.what.chars().count()).max().unwrap_or(0).min(60);
            let line = |it: &turnwright_policy::permission::Explained| {
                format!("  {:5}  {:width$}  {}\n", word(it.verdict), it.what, it.why)
            };
            let parts: String = parts.iter().map(line).collect();
            format!("{} (mode {})\n{parts}", word(verdict), mode.id())
        };
        say(&text)?;
        Ok(ExitCode::from(match verdict {
            Verdict::Allow => 0,
            Verdict::Ask => 1,
            Verdict::Deny => 2,
        }))
    }

    fn add(&self, tier: Tier, rules: &[String]) -> Result<ExitCode, String> {
        let parse = |text: &String| match Pattern::parse(text, tier) {
            Ok(pattern) => Ok((tier, pattern)),
            Err(why) => Err(format!("{} is no rule: {why}", visible_line(text))),
        };
        let rules = rules.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let added = self.book.add(&rules, "turnwright policy").map_err(|it| it.to_string())?;
        say(&added.iter().map(entry_line).collect::<String>())
    }

    fn revoke(&self, ids: &[String]) -> Result<ExitCode, String> {
        let gone = self.book.revoke(ids).map_err(|it| it.to_string())?;
        let lines: Vec<_> =
            gone.iter().map(|it| format!("no longer: {}", entry_line(it))).collect();
        say(&lines.concat())?;
        let missing: Vec<_> = ids
            .iter()
            .filter(|id| gone.iter().all(|it| it.id != **id))
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(format!("there is no rule {} in this project", missing.join(", ")))
    }

    fn suggest(&self, lines: &[AuditEntry]) -> Result<ExitCode, String> {
        let mut found: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        for line in lines {
            let is_ours = line.project == self.roots.real_cwd() && line.event == AuditEvent::Asked;
            let is_yes = line.answer.as_deref() == Some(ALLOWED_ONCE);
            if !is_ours || !is_yes {
                continue;
            }
            if let Some(command) = &line.command {
                for pattern in self.patterns(command) {
                    found.entry(pattern).or_insert((0, command)).0 += 1;
                }
            }
            let is_new =
                |it: &&String| self.law.rules.iter().all(|rule| rule.pattern.to_string() != **it);
            if let Some(rule) = line.rule.as_ref().filter(is_new) {
                let what = line.effects.first().map_or("", String::as_str);
                found.entry(rule.clone()).or_insert((0, what)).0 += 1;
            }
        }
        found.retain(|_, (count, _)| *count >= OFTEN);
        if found.is_empty() {
            return say("There is nothing that you have allowed by hand again and again here.\n");
        }
        let mut text = String::new();
        for (pattern, (count, command)) in &found {
            let command = visible_line(command);
            text.push_str(&format!("# allowed by hand {count} times, such as: {command}\n"));
            let value = Value::String(pattern.clone());
            text.push_str(&format!("[[rule]]\neffect = \"allow\"\nwhen = {value}\n\n"));
        }
        text.push_str("# For this project alone:\n");
        for pattern in found.keys() {
            let quoted = pattern.replace('\'', "'\\''");
            text.push_str(&format!("# turnwright policy allow '{quoted}'\n"));
        }
        say(&text)
    }

    /// The patterns of a command that nothing allows yet.
    fn patterns(&self, command: &str) -> Vec<String> {
        let script = shell::read(command, self.law.dialect);
        if script.doubt.is_some() {
            return Vec::new();
        }
        let mut patterns: Vec<_> = script
            .commands
            .iter()
            .filter(|it| !shell::nature(it).only_reads)
            .filter_map(pattern_of)
            .filter(|pattern| self.law.rules.iter().all(|it| it.pattern != *pattern))
            .map(|it| it.to_string())
            .collect();
        patterns.sort();
        patterns.dedup();
        patterns
    }
}

/// The call of a server's tool, if it is written as a rule for one: `mcp(server/tool)`.
fn tool_call(text: &str) -> Option<Vec<Effect>> {
    let Pattern::Mcp { server, tool } = Pattern::parse(text, Tier::Allow).ok()? else {
        return None;
    };
    Some(vec![Effect::Remote(Box::new(RemoteCall {
        server,
        tool: tool?,
        identity: String::new(),
        content: String::new(),
        claims_to_read: false,
        change: None,
    }))])
}

/// Whether a rule is one of the book's, which has more to say about it.
fn is_kept(page: &Page, rule: &Rule) -> bool {
    let same =
        |it: &BookEntry| Tier::from(it.tier) == rule.tier && it.rule == rule.pattern.to_string();
    rule.scope == Scope::Local && page.entries.iter().any(same)
}

fn entry_json(entry: &BookEntry) -> Value {
    json!({ "tier": entry.tier, "rule": entry.rule, "scope": Scope::Local.word(), "id": entry.id,
        "at": entry.at, "origin": entry.origin })
}

fn rule_json(rule: &Rule) -> Value {
    json!({ "tier": rule.tier.word(), "rule": rule.pattern.to_string(),
        "scope": rule.scope.word(), "why": rule.why })
}

fn entry_line(entry: &BookEntry) -> String {
    let (rule, origin) = (visible_line(&entry.rule), visible_line(&entry.origin));
    let tier = Tier::from(entry.tier).word();
    format!("{tier:5}  {rule}  local {}  {}  {origin}\n", entry.id, entry.at)
}

fn rule_line(rule: &Rule) -> String {
    let why = rule.why.as_ref().map(|it| format!("  {it}")).unwrap_or_default();
    let line = format!("{:5}  {}  {}{why}", rule.tier.word(), rule.pattern, rule.scope.word());
    format!("{}\n", visible_line(&line))
}

#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> Result<ExitCode, String> {
    let said: io::Result<()> = stdout().write_all(text.as_bytes());
    said.map(|()| ExitCode::SUCCESS).map_err(|it| it.to_string())
}
