//! `/permissions` shows what is allowed in this session and project, and changes it.
//! The rules are those that `turnwright policy` shows.

use super::status::sandbox_state;
use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::error::Error;
use crate::turn::Conversation;
use tokio::task::spawn_blocking;
use turnwright_policy::permission::{
    Grants, Pattern, PolicyRules, ProjectRuleStore, Rule, RuleAction, RuleStoreError, Scope,
    StoredRule, describe_effect,
};
use turnwright_types::effect::{escape_hidden_line, fenced};
use turnwright_types::text;

const USAGE: &str = "`/permissions allow RULE` and `/permissions deny RULE` add a rule for this \
                     project, such as `exec(cargo test)`; `/permissions revoke ID` removes one; \
                     `/permissions keep` makes rules of the answers of this session, so that they last; \
                     `/permissions forget` clears them.";

const NO_STATE_FOLDER: &str = "There is no state folder, so rules cannot be saved.";

/// The most characters of an answer in the list. A command line may have 64 KiB.
const MAX_ROW_CHARS: usize = 200;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let CommandCall { arguments, cancel, .. } = call;
    let conversation = session.conversation.clone();
    if arguments == "forget" {
        *conversation.grants.lock() = Grants::default();
    }
    answer_later(session, message, async move {
        let keeps = arguments == "keep";
        let own_conversation = conversation.clone();
        let working = spawn_blocking(move || execute(&own_conversation, &arguments));
        Some(match cancel.run_until_cancelled(working).await? {
            Ok(Ok(text)) => {
                if keeps {
                    conversation.grants.lock().forget_kept();
                }
                text
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => format!("This failed: {error}."),
        })
    })
}

fn execute(conversation: &Conversation, arguments: &str) -> Result<String, Error> {
    let (verb, rest) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    Ok(match (verb, rest.trim()) {
        ("", _) => show(conversation),
        ("keep", "") => keep(conversation)?,
        ("forget", "") => "The answers of this session were cleared.".to_owned(),
        ("allow", rule) if !rule.is_empty() => add(conversation, RuleAction::Allow, rule)?,
        ("deny", rule) if !rule.is_empty() => add(conversation, RuleAction::Deny, rule)?,
        ("revoke", ids) if !ids.is_empty() => revoke(conversation, ids)?,
        _ => USAGE.to_owned(),
    })
}

/// The error for rules of the project that could not be changed.
fn not_changed(error: &RuleStoreError) -> Error {
    Error::InvalidState(format!("Nothing was changed: {error}."))
}

fn rule_store(conversation: &Conversation) -> Result<ProjectRuleStore, Error> {
    let state = &conversation.env.shared.process.folders.state;
    if !state.is_absolute() {
        return Err(Error::InvalidState(NO_STATE_FOLDER.to_owned()));
    }
    Ok(ProjectRuleStore::new(state, conversation.env.files.roots().real_cwd()))
}

fn add_rules(
    conversation: &Conversation,
    rules: &[(RuleAction, Pattern)],
    origin: &str,
) -> Result<Vec<StoredRule>, Error> {
    let added = rule_store(conversation)?.add(rules, origin);
    added.map_err(|error| not_changed(&error))
}

fn add(conversation: &Conversation, action: RuleAction, rule: &str) -> Result<String, Error> {
    let pattern = match Pattern::parse(rule.trim_matches('`'), action) {
        Ok(pattern) => pattern,
        Err(why) => return Ok(format!("{} is no rule: {why}.", escape_hidden_line(rule))),
    };
    let added = add_rules(conversation, &[(action, pattern.clone())], "/permissions")?;
    let mut rules = vec![Rule { action, pattern, scope: Scope::Local, why: None }];
    follow_links(conversation, &mut rules);
    conversation.rules().update(|policy| policy.rules.extend(rules));
    Ok(format!("Added for this project:\n{}", fenced(&added.iter().map(row).collect::<String>())))
}

/// Makes what was allowed for this session last for the project.
fn keep(conversation: &Conversation) -> Result<String, Error> {
    let grants = conversation.grants.lock().clone();
    if grants.project_rules().is_empty() {
        return Ok("No answer of this session can be kept for the project.".to_owned());
    }
    let mut kept = String::new();
    for (rule, origin) in grants.project_rules() {
        let rules = [(rule.action, rule.pattern.clone())];
        kept.extend(add_rules(conversation, &rules, origin)?.iter().map(row));
    }
    conversation.rules().update(|policy| {
        let rules = grants.project_rules().iter().map(|(rule, _)| rule.clone());
        let new: Vec<_> = rules.filter(|rule| !policy.rules.contains(rule)).collect();
        policy.rules.extend(new);
    });
    Ok(format!("Allowed in this project from now on:\n{}", fenced(&kept)))
}

fn revoke(conversation: &Conversation, ids: &str) -> Result<String, Error> {
    let ids: Vec<_> =
        ids.split([' ', ',']).map(str::to_owned).filter(|id| !id.is_empty()).collect();
    let store = rule_store(conversation)?;
    let removed = store.revoke(&ids).map_err(|error| not_changed(&error))?;
    reload(conversation, &store);
    Ok(match removed.as_slice() {
        [] => "There is no such rule.".to_owned(),
        removed => format!("Removed:\n{}", fenced(&removed.iter().map(row).collect::<String>())),
    })
}

/// Replaces the rules for this project in the current policy by those of the store.
fn reload(conversation: &Conversation, store: &ProjectRuleStore) {
    let mut stored = store.load().rules();
    follow_links(conversation, &mut stored);
    conversation.rules().update(|policy| {
        policy.rules.retain(|rule| rule.scope != Scope::Local);
        policy.rules.extend(stored);
    });
}

/// Makes rules also match the places to which symlinks in their paths lead, as at the session's start.
fn follow_links(conversation: &Conversation, rules: &mut [Rule]) {
    let policy = conversation.rules().get();
    let roots = conversation.env.files.roots();
    for rule in rules {
        rule.follow_links(&policy.bases, &|path| roots.resolve(path).path);
    }
}

fn show(conversation: &Conversation) -> String {
    let policy = conversation.rules().get();
    let mode = conversation.mode().get();
    let mut text = format!("* Mode: {} – {}\n", mode.name(), mode.description(policy.can_confine));
    text.push_str(&format!("* Sandbox: {}\n", sandbox_state(mode, policy.can_confine)));
    let stored = rule_store(conversation).map(|store| store.load()).unwrap_or_default();
    let answers = answer_rows(&conversation.grants.lock(), &policy);
    text.push_str(&section("Answers of this session", &answers));
    text.push_str(&section(
        "Rules for this project",
        &stored.entries.iter().map(row).collect::<String>(),
    ));
    let others = policy.rules.iter().filter(|rule| !stored.contains(rule));
    let rows: String = others.map(|rule| rule_row(rule) + "\n").collect();
    text.push_str(&section("Other rules", &rows));
    text.extend(stored.problem.as_ref().map(|problem| format!("\n⚠ {problem}\n")));
    format!("{text}\n{USAGE}")
}

/// A section of the list. Its rows are put into a code fence, because models have written parts of them.
fn section(title: &str, rows: &str) -> String {
    if rows.is_empty() {
        return format!("* {title}: none\n");
    }
    format!("\n{title}:\n{}\n", fenced(rows))
}

fn answer_rows(grants: &Grants, policy: &PolicyRules) -> String {
    let rules = grants.rules().iter().map(|rule| format!("allow  {}", rule.pattern));
    let exact = grants
        .exact_effects()
        .map(|effect| format!("allow  {}", describe_effect(effect, &policy.bases)));
    let access =
        grants.access().iter().map(|grant| format!("allow  {}", grant.describe(&policy.bases)));
    let all_commands =
        grants.allows_all_commands().then(|| "allow  all commands in the sandbox".to_owned());
    let rejected = grants
        .rejected_effects()
        .map(|effect| format!("reject {}", describe_effect(effect, &policy.bases)));
    let mut rows: Vec<_> = rules
        .chain(exact)
        .chain(access)
        .chain(all_commands)
        .chain(rejected)
        .map(|line| text::clip_within(escape_hidden_line(&line), MAX_ROW_CHARS))
        .collect();
    rows.sort();
    rows.join("\n")
}

fn row(entry: &StoredRule) -> String {
    let action = entry.action.as_str();
    let rule = escape_hidden_line(&entry.rule);
    let origin = escape_hidden_line(&entry.origin);
    format!("{}  {action:5}  {rule}  ({}, {origin})\n", entry.id, entry.at)
}

fn rule_row(rule: &Rule) -> String {
    let why = rule.why.as_ref().map(|why| format!("  ({why})")).unwrap_or_default();
    escape_hidden_line(&format!(
        "{:5}  {}  {}{why}",
        rule.action.as_str(),
        rule.pattern,
        rule.scope.as_str()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_policy::shell;
    use turnwright_types::effect::Effect;
    use turnwright_types::shell_script::ShellDialect;

    #[test]
    fn a_long_command_is_listed_by_its_beginning() {
        let line = format!("echo {}", "x".repeat(60_000));
        let mut grants = Grants::default();
        grants.allow_exactly(Effect::Exec(Box::new(shell::command(line, "/", ShellDialect::Bash))));
        let rows = answer_rows(&grants, &PolicyRules::default());
        assert!(rows.starts_with("allow  run echo xxx") && rows.ends_with('…'), "{rows}");
        assert_eq!(rows.chars().count(), MAX_ROW_CHARS);
    }
}
