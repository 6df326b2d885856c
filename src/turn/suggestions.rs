//! Prompts that the user may want to send next. They are made without the model, of what a turn has left open: a check
//! that fails, and steps of the plan.

use std::sync::Arc;

use super::Turn;
use turnwright_policy::shell;
use turnwright_store::read;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::{Arguments, Message};
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::{COMMAND_TOOL, PlanStatus};
use turnwright_workspace::exec::dialect;

/// The most suggestions after a turn.
const MAX_SUGGESTIONS: usize = 3;
/// The most characters of a suggestion.
const MAX_CHARS: usize = 200;

/// Programs that test, build or check a project.
const CHECKERS: &[&str] = &[
    "biome", "ctest", "eslint", "flake8", "golangci-lint", "jest", "make", "mocha", "mypy", "ninja",
    "phpstan", "phpunit", "pylint", "pyright", "pytest", "rspec", "rubocop", "ruff", "shellcheck",
    "tox", "tsc", "vitest",
];
/// Programs that do so if one of their next words says it.
const RUNNERS: &[&str] = &[
    "bazel", "bun", "bundle", "cargo", "cmake", "composer", "deno", "dotnet", "go", "gradle",
    "gradlew", "just", "meson", "mix", "mvn", "mvnw", "npm", "npx", "nx", "pnpm", "poetry", "python",
    "python3", "rake", "swift", "task", "turbo", "uv", "yarn", "zig",
];
/// Such words.
const TASKS: &[&str] = &[
    "--build", "build", "check", "clippy", "compile", "lint", "test", "tests", "typecheck", "verify",
    "vet",
];
/// How many words of a runner are looked at.
const TASK_WORDS: usize = 3;

impl Turn {
    /// The suggestions after this turn, the likeliest first; none for a client that does not show them.
    pub(super) async fn suggestions(&self) -> Vec<String> {
        if !self.conversation.client().shows_suggestions() {
            return Vec::new();
        }
        let messages = self.history.messages.get(self.prompt.first_message..).unwrap_or_default();
        let fix = failed_check(messages).map(|line| format!("Fix what fails: {line}"));
        let steps = self.open_steps().await.into_iter().map(|step| format!("Continue with: {step}"));
        fix.into_iter().chain(steps).take(MAX_SUGGESTIONS).map(|text| suggestion(&text)).collect()
    }

    /// The steps of the plan that are not done.
    async fn open_steps(&self) -> Vec<String> {
        let Some(store) = self.conversation.log().store().cloned() else { return Vec::new() };
        let session = self.conversation.env.session.clone();
        let reading = store.read(move |connection| {
            read::current_plan(connection, read::session_key(connection, &session)?)
        });
        let plan = reading.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the plan of the session could not be read");
            Vec::new()
        });
        let open = plan.into_iter().filter(|entry| entry.status != PlanStatus::Completed);
        open.map(|entry| entry.content).collect()
    }
}

/// One line without keys. They are removed first: half a key would not be found.
fn suggestion(text: &str) -> String {
    text::clip_within(escape_hidden_line(&text::one_line(&redact::text(text))), MAX_CHARS)
}

/// The line of the last check that a turn has run, if it has ended with a failure.
fn failed_check(messages: &[Arc<Message>]) -> Option<&str> {
    let mut results = messages.iter().rev().filter_map(|message| message.as_tool());
    let calls = messages.iter().filter_map(|message| message.as_assistant());
    let calls: Vec<_> = calls
        .flat_map(|answer| &answer.calls)
        .filter(|call| call.name == COMMAND_TOOL)
        .collect();
    results.find_map(|result| {
        let call = calls.iter().find(|call| call.id == result.call)?;
        let Arguments::Object(arguments) = &call.arguments else { return None };
        let line = arguments.get("command").or_else(|| arguments.get("cmd"))?.as_str()?;
        // A refused command has no exit code.
        let has_failed = !result.ok && result.text.starts_with("[exit ");
        (result.text.starts_with("[exit ") && is_check(line)).then_some((line, has_failed))
    })
    .and_then(|(line, has_failed)| has_failed.then_some(line))
}

/// Returns true if a command line tests, builds or checks the project.
fn is_check(line: &str) -> bool {
    shell::parse(line, dialect()).commands.iter().any(|command| {
        let program = command.program();
        let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
        let mut words = command.argv().skip(1).take(TASK_WORDS);
        let is_runner = RUNNERS.contains(&name);
        CHECKERS.contains(&name)
            || is_runner && words.any(|word| TASKS.contains(&word) || CHECKERS.contains(&word))
    })
}
