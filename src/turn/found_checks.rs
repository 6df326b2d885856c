//! Checks that nobody has set up: commands that the project's files name, such as `cargo check`. They are proposed as
//! ordinary calls. The book of the project knows which are refused and which are slow.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::checks::{Baseline, TIME_LIMIT, TurnCheck};
use super::{PROJECT_READ_TIMEOUT, Turn};
use crate::tools::ToolEnv;
use turnwright_policy::permission::{CheckBook, KnownCheck};
use turnwright_recording::outside::{AnswerKind, AnswerSource};
use turnwright_types::shell_script::Check;
use turnwright_workspace::markers::{FoundCommand, Purpose, find_commands};

/// The name under which a recording keeps the found checks.
const FOUND_CHECKS: &str = "found checks";
/// The most checks that are found, and the most of a turn together with those of the settings.
const MAX_FOUND: usize = 3;
const MAX_CHECKS: usize = 8;
/// A check that took longer runs only once in a turn, at its end.
const SLOW: Duration = Duration::from_secs(10);

impl Turn {
    /// Finds the checks of the project besides those of the settings.
    pub(super) async fn found_checks(&self, configured: &[Check]) -> Vec<TurnCheck> {
        if !self.conversation.work.find_checks || self.is_helper() {
            return Vec::new();
        }
        let answers = Arc::clone(&self.conversation.env.shared.process.outside);
        // A replay reads no files.
        let mut found = if answers.answer_source(FOUND_CHECKS) == AnswerSource::Recording {
            let recorded = answers.recorded_answer(AnswerKind::View, FOUND_CHECKS, &Value::Null);
            recorded.and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default()
        } else {
            let env = Arc::clone(&self.conversation.env);
            let configured = configured.to_vec();
            let finding = spawn_blocking(move || find(&env, &configured));
            let bounded = tokio::time::timeout(PROJECT_READ_TIMEOUT, finding);
            let read = self.cancel.run_until_cancelled(bounded).await;
            let found = read.and_then(Result::ok).and_then(Result::ok).unwrap_or_default();
            answers.record_answer(AnswerKind::View, FOUND_CHECKS, &Value::Null, &|| json!(found));
            found
        };
        found.retain(|check| !self.conversation.told.is_dropped_check(&check.command));
        found.truncate(MAX_CHECKS.saturating_sub(configured.len()));
        found
    }
}

/// The book of the session's project; `None` without a state folder.
pub(crate) fn check_book(env: &ToolEnv) -> Option<CheckBook> {
    let state = &env.shared.process.folders.state;
    state.is_absolute().then(|| CheckBook::new(state, env.files.roots().real_cwd()))
}

/// The commands that may be checks, those for tests last.
pub(crate) fn proposed_commands(env: &ToolEnv, configured: &[Check]) -> Vec<FoundCommand> {
    let environment = &env.shared.command_environment;
    let root = env.files.roots().real_cwd();
    let mut commands = find_commands(root, &|program| environment.has_program(program));
    commands.retain(|found| {
        found.purpose != Purpose::Build
            && configured.iter().all(|check| !is_same_check(&check.command, &found.command))
    });
    commands.sort_by_key(|found| found.purpose == Purpose::Test);
    commands
}

fn find(env: &ToolEnv, configured: &[Check]) -> Vec<TurnCheck> {
    let mut commands = proposed_commands(env, configured);
    let known = check_book(env).map(|book| book.load()).unwrap_or_default();
    commands.retain(|found| known.get(&found.command).is_none_or(is_usable));
    commands.truncate(MAX_FOUND);
    let found = commands.into_iter().map(|FoundCommand { command, marker, .. }| {
        let known = known.get(&command);
        let last = known.and_then(|known| known.last_ms).map(Duration::from_millis);
        let green_lines = known.and_then(|known| known.lines.as_ref());
        TurnCheck {
            name: program_of(&command).to_owned(),
            command,
            marker: Some(marker),
            is_slow: last.is_some_and(|took| took > SLOW),
            is_measured: last.is_some(),
            before: green_lines.map(|lines| Baseline::new(lines, true)),
        }
    });
    found.collect()
}

/// Returns true if the user has not refused a check and it does not always take too long.
fn is_usable(known: &KnownCheck) -> bool {
    !known.is_refused && known.last_ms.is_none_or(|took| Duration::from_millis(took) < TIME_LIMIT)
}

/// The words of a command line after those that lead to its folder. As in `npm run lint`, `run` only leads to what is
/// run.
fn words(command: &str) -> impl Iterator<Item = &str> {
    let command = command.rsplit("&& ").next().unwrap_or(command);
    command.split_whitespace().filter(|word| *word != "run")
}

fn program_of(command: &str) -> &str {
    words(command).next().unwrap_or_default()
}

/// Returns true if two command lines are about the same: their programs and first arguments are the same.
fn is_same_check(one: &str, other: &str) -> bool {
    words(one).take(2).eq(words(other).take(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_named_by_its_program_and_known_by_two_words() {
        for (line, name) in [("cargo check --all", "cargo"), ("cd web && npm run lint", "npm")] {
            assert_eq!(program_of(line), name);
        }
        assert!(is_same_check("cargo check", "cargo check --message-format short"));
        assert!(is_same_check("cd a && npm test", "npm test"));
        assert!(is_same_check("npm test", "npm run test"));
        assert!(!is_same_check("cargo test", "cargo check"));
        assert!(!is_same_check("npm run lint", "npm run test"));
    }
}
