//! `turnwright policy`: lists the permission rules of a project, explains their verdict on a command,
//! and adds or removes the user's own rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::sessions::project_roots;
use crate::{CliResult, write_stdout};
use turnwright_config::Config;
use turnwright_config::effective_policy::resolve_policy;
use turnwright_config::trust::TrustStore;
use turnwright_guard::command::command_line_effects;
use turnwright_policy::permission::{
    ALLOW_ONCE_ANSWER, AuditEntry, AuditEvent, Explanation, Grants, JudgedCall, Mode, Pattern,
    PolicyRules, ProjectRuleStore, Rule, RuleAction, Scope, StoredRule, Verdict, decide,
    suggest_pattern, verdict_name,
};
use turnwright_policy::shell;
use turnwright_types::effect::{Effect, RemoteCall, escape_hidden_line};
use turnwright_workspace::files::Roots;

/// How often a command must have been allowed by hand before a rule for it is suggested.
const SUGGEST_AFTER: usize = 3;

/// A project and its permission rules.
#[derive(Debug)]
pub struct ProjectPolicy {
    roots: Roots,
    policy: PolicyRules,
    store: ProjectRuleStore,
    mode: Mode,
}

impl ProjectPolicy {
    /// Loads the rules of this project, or of the one in the current folder.
    pub fn load(dir: Option<PathBuf>, config: &Config) -> CliResult<ProjectPolicy> {
        let roots = project_roots(&dir.unwrap_or_else(|| PathBuf::from(".")))?;
        let settings = config.snapshot();
        let trust = TrustStore::new(&config.paths.state);
        let policy = resolve_policy(&settings, &trust, &roots).rules;
        let store = ProjectRuleStore::new(&config.paths.state, roots.real_cwd());
        let mode = settings.mode();
        Ok(ProjectPolicy { roots, policy, store, mode })
    }

    /// Lists the effective rules and who set them. Those in the store have their id and origin.
    pub fn list(&self, as_json: bool) -> CliResult<ExitCode> {
        let page = self.store.load();
        let others: Vec<_> = self.policy.rules.iter().filter(|rule| !page.contains(rule)).collect();
        let text = if as_json {
            let stored = page.entries.iter().map(entry_json);
            let rules: Vec<_> = stored.chain(others.into_iter().map(rule_json)).collect();
            let project = self.roots.real_cwd();
            let all = json!({ "project": project, "rules": rules, "trouble": page.problem });
            format!("{all:#}\n")
        } else {
            let is_empty = page.entries.is_empty() && others.is_empty();
            let none = if is_empty { "No rules for this project.\n" } else { "" };
            let stored = page.entries.iter().map(entry_line);
            let rows: String = stored.chain(others.into_iter().map(rule_line)).collect();
            let trouble = page.problem.map(|problem| format!("! {problem}\n")).unwrap_or_default();
            format!("{none}{rows}{trouble}")
        };
        write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Explains the verdict on a command, part by part.
    ///
    /// The status is 0 if it would run, 1 if the user would be asked, 2 if it would be refused.
    pub fn check(&self, command: &str, mode: Option<Mode>, as_json: bool) -> CliResult<ExitCode> {
        let mode = mode.unwrap_or(self.mode);
        let effects = parse_mcp_call(command)
            .unwrap_or_else(|| command_line_effects(command, &self.roots, &self.policy));
        let decision = decide(&self.policy, mode, &Grants::default(), &effects);
        let verdict = decision.verdict();
        let call =
            JudgedCall { policy: &self.policy, mode, effects: &effects, decision: &decision };
        let parts = call.explain();
        let is_run = verdict != Verdict::Deny && matches!(effects.first(), Some(Effect::Exec(_)));
        let confinement = is_run.then(|| call.describe_confinement());
        let text = if as_json {
            let parts: Vec<_> = parts.iter().map(explanation_json).collect();
            let sandbox = self.policy.can_confine;
            let all = json!({ "command": command, "mode": mode.id(), "verdict": verdict_name(verdict),
                "parts": parts, "sandbox": sandbox, "confinement": confinement });
            format!("{all:#}\n")
        } else {
            let width =
                parts.iter().map(|part| part.subject.chars().count()).max().unwrap_or(0).min(60);
            let lines = parts.iter().map(|Explanation { subject, verdict, reason, .. }| {
                format!("  {:5}  {subject:width$}  {reason}\n", verdict_name(*verdict))
            });
            let parts: String = lines.collect();
            let confinement = confinement.map(|line| format!("  {line}\n")).unwrap_or_default();
            format!("{} (mode {})\n{parts}{confinement}", verdict_name(verdict), mode.id())
        };
        write_stdout(&text)?;
        Ok(ExitCode::from(match verdict {
            Verdict::Allow => 0,
            Verdict::Ask => 1,
            Verdict::Deny => 2,
        }))
    }

    /// Adds rules for this project.
    pub fn add(&self, action: RuleAction, rules: &[String]) -> CliResult<ExitCode> {
        let parsed = rules.iter().map(|text| match Pattern::parse(text, action) {
            Ok(pattern) => Ok((action, pattern)),
            Err(why) => Err(format!("invalid rule {}: {why}", escape_hidden_line(text))),
        });
        let rules = parsed.collect::<Result<Vec<_>, _>>()?;
        let added =
            self.store.add(&rules, "turnwright policy").map_err(|error| error.to_string())?;
        write_stdout(&added.iter().map(entry_line).collect::<String>())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Removes the rules with these ids.
    pub fn revoke(&self, ids: &[String]) -> CliResult<ExitCode> {
        let gone = self.store.revoke(ids).map_err(|error| error.to_string())?;
        let lines: Vec<_> =
            gone.iter().map(|entry| format!("Removed: {}", entry_line(entry))).collect();
        write_stdout(&lines.concat())?;
        let missing: Vec<_> = ids
            .iter()
            .filter(|id| gone.iter().all(|entry| entry.id != **id))
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(format!("no rule {} in this project", missing.join(", ")).into())
    }

    /// Suggests rules for commands that were often allowed by hand, from these lines of the audit log.
    pub fn suggest(&self, lines: &[AuditEntry]) -> CliResult<ExitCode> {
        let mut found: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        for line in lines {
            let is_ours = line.project == self.roots.real_cwd() && line.event == AuditEvent::Asked;
            let is_yes = line.answer.as_deref() == Some(ALLOW_ONCE_ANSWER);
            if !is_ours || !is_yes {
                continue;
            }
            if let Some(command) = &line.command {
                for pattern in self.new_patterns(command) {
                    found.entry(pattern).or_insert((0, command)).0 += 1;
                }
            }
            let new_rule = line.rule.as_ref().filter(|text| {
                self.policy.rules.iter().all(|rule| rule.pattern.to_string() != **text)
            });
            if let Some(rule) = new_rule {
                let what = line.effects.first().map_or("", String::as_str);
                found.entry(rule.clone()).or_insert((0, what)).0 += 1;
            }
        }
        found.retain(|_, (count, _)| *count >= SUGGEST_AFTER);
        if found.is_empty() {
            write_stdout("No suggestions yet.\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for (pattern, (count, command)) in &found {
            let command = escape_hidden_line(command);
            text.push_str(&format!("# allowed by hand {count} times, for example: {command}\n"));
            let value = Value::String(pattern.clone());
            text.push_str(&format!("[[rule]]\neffect = \"allow\"\nwhen = {value}\n\n"));
        }
        text.push_str("# For this project only:\n");
        for pattern in found.keys() {
            let quoted = pattern.replace('\'', "'\\''");
            text.push_str(&format!("# turnwright policy allow '{quoted}'\n"));
        }
        write_stdout(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Allow patterns for the parts of a command that no rule allows yet.
    fn new_patterns(&self, command: &str) -> BTreeSet<String> {
        let script = shell::parse(command, self.policy.dialect);
        if script.ambiguity.is_some() {
            return BTreeSet::new();
        }
        script
            .commands
            .iter()
            .filter(|command| !shell::classify(command).is_read_only)
            .filter_map(suggest_pattern)
            .filter(|pattern| self.policy.rules.iter().all(|rule| rule.pattern != *pattern))
            .map(|pattern| pattern.to_string())
            .collect()
    }
}

fn explanation_json(part: &Explanation) -> Value {
    let verdict = verdict_name(part.verdict);
    json!({ "what": part.subject, "verdict": verdict, "why": part.reason, "rule": part.rule })
}

/// Parses `mcp(server/tool)` as a call of that tool.
fn parse_mcp_call(text: &str) -> Option<Vec<Effect>> {
    let Pattern::Mcp { server, tool } = Pattern::parse(text, RuleAction::Allow).ok()? else {
        return None;
    };
    Some(vec![Effect::Remote(Box::new(RemoteCall {
        server,
        tool: tool?,
        server_digest: String::new(),
        tool_digest: String::new(),
        claims_read_only: false,
        change_since_approval: None,
    }))])
}

fn entry_json(entry: &StoredRule) -> Value {
    json!({ "tier": entry.action, "rule": entry.rule, "scope": Scope::Local.as_str(), "id": entry.id,
        "at": entry.at, "origin": entry.origin })
}

fn rule_json(rule: &Rule) -> Value {
    json!({ "tier": rule.action.as_str(), "rule": rule.pattern.to_string(),
        "scope": rule.scope.as_str(), "why": rule.why })
}

fn entry_line(entry: &StoredRule) -> String {
    let rule = escape_hidden_line(&entry.rule);
    let origin = escape_hidden_line(&entry.origin);
    let tier = entry.action.as_str();
    format!("{tier:5}  {rule}  local {}  {}  {origin}\n", entry.id, entry.at)
}

fn rule_line(rule: &Rule) -> String {
    let why = rule.why.as_ref().map(|why| format!("  {why}")).unwrap_or_default();
    let line =
        format!("{:5}  {}  {}{why}", rule.action.as_str(), rule.pattern, rule.scope.as_str());
    format!("{}\n", escape_hidden_line(&line))
}
