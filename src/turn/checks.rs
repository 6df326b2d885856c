//! Checks: commands of the user, such as `cargo check`, that run before the first edit of a turn and again
//! when the model would end it. The model is told what is new in their output.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SharedGrants, Turn, TurnStep};
use crate::tools::{self, AGENT_TOOL, AnyTool};
use crate::turn::calls::records::abridged_arguments;
use crate::turn::calls::runner::refused;
use turnwright_policy::permission::Mode;
use turnwright_store::{Audience, CallOutcome, Entry};
use turnwright_types::effect::{CallView, ToolKind, escape_hidden, fenced};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    Arguments, AssistantMessage, Message, StopReason, ToolCall, within_context,
};
use turnwright_types::patience::sleep_until;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::shell_script::Check;
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;

/// How long one check may run.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// How often in one turn the model is told about the checks' output, so that this ends.
const MAX_ROUNDS: u32 = 3;
/// The most lines of one report.
const MAX_LINES: usize = 20;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 400;

/// The words with which build tools begin lines about their progress, which differ from run to run.
const PROGRESS: &[&str] = &[
    "Adding",
    "Blocking",
    "Building",
    "Checking",
    "Compiling",
    "Dirty",
    "Documenting",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Locking",
    "Running",
    "Updating",
];
/// Parts of words that mark a line as a problem if the check has succeeded.
const PROBLEM_WORDS: &[&str] = &["error", "fail", "panic", "warning"];

/// The state of a turn's checks.
#[derive(Debug, Default)]
pub(super) struct TurnChecks {
    /// Each check with its run before the first edit.
    before: Option<Vec<(Check, CheckRun)>>,
    /// True if a file was edited since the checks ran last.
    is_due: bool,
    rounds: u32,
}

impl Turn {
    /// Runs the checks before the first edit of the turn, for comparison.
    pub(super) async fn check_before_edits(&mut self, calls: &[ToolCall]) {
        let checks = self.conversation.checks.get();
        // In plan mode no edit is made.
        let is_needed = !checks.is_empty()
            && self.checks.before.is_none()
            && self.conversation.mode().get() != Mode::Plan
            && calls.iter().any(|call| self.is_edit(&call.name) || self.edits_otherwise(call));
        if !is_needed {
            return;
        }
        let mut before = Vec::new();
        for check in checks.iter() {
            if let Some(run) = self.run_check(check, "before the first edit").await {
                before.push((check.clone(), run));
            }
        }
        self.checks.before = Some(before);
        // Changes that the checks have made are no edits.
        self.conversation.env.shared.checkpoint.take_changes();
    }

    /// Notes whether these calls, which have run, have edited a file.
    pub(super) fn note_edits(&mut self) {
        if self.checks.before.is_none() {
            return;
        }
        let mut newest = self.history.messages.iter().rev();
        let mut results = newest.clone().map_while(|message| message.as_tool());
        let answer = newest.find_map(|message| message.as_assistant());
        let calls = answer.map(|answer| answer.calls.as_slice()).unwrap_or_default();
        // A helper that has failed may have edited something before.
        let has_edited = results.any(|result| {
            result.ok && self.is_edit(&result.name)
                || calls.iter().any(|call| call.id == result.call && self.edits_otherwise(call))
        });
        self.checks.is_due |= has_edited;
    }

    /// True if a call starts a helper that may edit, or is a command line that stands for a patch.
    fn edits_otherwise(&self, call: &ToolCall) -> bool {
        let Arguments::Object(arguments) = &call.arguments else { return false };
        let Ok(tool) = self.conversation.tools.find(&call.name) else { return false };
        if tools::patch_call(tool.name(), arguments).is_some() {
            return true;
        }
        let helpers = &self.conversation.env.helpers;
        tool.name() == AGENT_TOOL && tools::may_edit(arguments, helpers, |name| self.is_edit(name))
    }

    pub(super) fn is_edit(&self, name: &str) -> bool {
        let kind = self.conversation.tools.find(name).ok().and_then(|tool| tool.kind());
        matches!(kind, Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move))
    }

    /// Returns true if the checks have to run before the turn ends: the model has edited files and says that it is
    /// done.
    pub(super) fn must_check(&mut self) -> bool {
        // Commands edit files, too, and so do helpers in the background. That is not known before, so they
        // count only if the checks ran before another edit of the turn.
        self.checks.is_due |= self.conversation.env.shared.checkpoint.take_changes();
        let answer = self.history.messages.last().and_then(|message| message.as_assistant());
        let is_done = answer.is_some_and(|answer| answer.calls.is_empty());
        let has_any = self.checks.before.as_ref().is_some_and(|runs| !runs.is_empty());
        self.checks.is_due && has_any && is_done && !self.cancel.is_cancelled()
    }

    /// Runs the checks. If they say something new, the model is told and the turn goes on.
    pub(super) async fn check_after_edits(&mut self) -> TurnStep {
        self.checks.is_due = false;
        let before = self.checks.before.clone().unwrap_or_default();
        let mut report = String::new();
        let mut names = Vec::new();
        for (check, before) in &before {
            let Some(now) = self.run_check(check, "after the edits").await else { continue };
            if let Some(news) = find_news(before, &now) {
                let name = &check.name;
                let command = escape_hidden(&check.command);
                let end = &now.end;
                let news = fenced(&news);
                report.push_str(&format!("\n`{name}` ({command}, {end}):\n{news}\n"));
                names.push(format!("`{name}`"));
            }
        }
        self.conversation.env.shared.checkpoint.take_changes();
        let end = TurnStep::End(Ok(StopReason::EndTurn));
        if names.is_empty() || self.cancel.is_cancelled() {
            return end;
        }
        let names = names.join(", ");
        self.checks.rounds += 1;
        if self.checks.rounds > MAX_ROUNDS || self.budget.take_request().is_err() {
            self.conversation.notify(format!(
                "{names} still says something new, and the turn ends all the same."
            ));
            return end;
        }
        self.conversation.notify(format!("{names} says something new. The model is told."));
        let mut context = format!(
            "The user's checks were run after your edits. This is new since the turn began; correct \
             what your edits have caused, or say why it stays:\n{report}"
        );
        turnwright_types::redact::redact_in_place(&mut context);
        self.push_context(within_context(&context));
        TurnStep::Sample
    }

    /// Runs a check as a call of ours with a card, which the model's conversation does not have. Returns
    /// `None` if it did not run to its end.
    async fn run_check(&mut self, check: &Check, when: &str) -> Option<CheckRun> {
        let tool = self.conversation.tools.find(COMMAND_TOOL).ok()?;
        let id = CallId::from(format!("call-{}", self.history.mint()));
        // The limit is ours, so that no check goes on in the background.
        let arguments = json!({ "command": check.command, "timeout": TIME_LIMIT.as_secs() * 2 });
        let title = format!("Check {} ({when}): {}", check.name, escape_hidden(&check.command));
        let view = CallView::new(title, ToolKind::Execute);
        self.log_check(&id, &arguments);
        self.cards.open(&id, COMMAND_TOOL.to_owned(), view.clone());
        self.cards.show_arguments(&id, abridged_arguments(&arguments));
        let mut outcome = self.run_as_call(&id, tool, arguments, &view).await;
        // A check that never ran is shown as failed, also after a cancel.
        outcome.is_cancelled &= outcome.has_run();
        let stored = outcome.to_stored(COMMAND_TOOL, Some(&view));
        if outcome.has_run() {
            self.cards.finish(stored.final_update(&id));
            return (!self.cancel.is_cancelled()).then(|| check_run(&outcome));
        }
        self.conversation.log().finish_call(&id, stored).written().await;
        self.cards.finish(outcome.final_update(&id));
        None
    }

    async fn run_as_call(
        &self,
        id: &CallId,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        view: &CallView,
    ) -> CallOutcome {
        let conversation = &self.conversation;
        let cancel = self.cancel.child_token();
        let runner = conversation.runner(SharedGrants::default());
        let running = async {
            let ctx = runner.ctx(id.clone(), cancel.child_token(), cancel.clone());
            let (mut pending, ticket) = runner.enqueue(tool, arguments, ctx).await?;
            // The user has written this command into the settings, so it is allowed exactly as it is.
            // Rules that deny it or ask about it apply all the same. Without a sandbox the user is asked:
            // a check may run what the model has written.
            if conversation.rules().get().can_confine {
                for effect in &pending.plan.effects {
                    runner.grants.lock().allow_exactly(effect.clone());
                }
            }
            pending.view = Some(view.clone());
            Ok(runner.clone().run(pending, ticket).await)
        };
        let mut running = std::pin::pin!(running);
        let ended = tokio::select! {
            biased;
            ended = &mut running => ended,
            () = sleep_until(Instant::now() + TIME_LIMIT) => {
                cancel.cancel();
                running.await.ok();
                let why = format!("Stopped: a check may run {} s", TIME_LIMIT.as_secs());
                Err(ToolRefusal::new(&why, &why))
            }
        };
        ended.unwrap_or_else(|why| refused(why, Vec::new()))
    }

    /// Logs the call as one that only the user sees.
    fn log_check(&mut self, id: &CallId, arguments: &Value) {
        let call = ToolCall::new(id.clone(), id.to_string(), COMMAND_TOOL, arguments.clone());
        let message_id = self.history.mint_message_id();
        let answer = AssistantMessage::new(message_id.clone(), "", vec![call]);
        self.conversation.log().add_entry(Entry::Message {
            id: message_id,
            message: Arc::new(Message::Assistant(answer)),
            audience: Audience::User,
        });
    }
}

fn check_run(outcome: &CallOutcome) -> CheckRun {
    let text = |name: &str| outcome.raw_output[name].as_str().unwrap_or_default().to_owned();
    CheckRun { output: text("output"), is_success: outcome.is_success, end: text("ended") }
}

/// The output of one run of a check, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CheckRun {
    output: String,
    is_success: bool,
    /// How it ended, as in `exit status 101`.
    end: String,
}

/// The new lines of the second run, at most twenty; `None` if nothing is new.
fn find_news(before: &CheckRun, now: &CheckRun) -> Option<String> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for line in before.output.lines() {
        *known.entry(without_numbers(line)).or_default() += 1;
    }
    let mut new = Vec::new();
    for line in now.output.lines() {
        let is_told = match known.get_mut(&without_numbers(line)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if !is_told && !is_noise(line) && (!now.is_success || is_problem(line)) {
            new.push(line);
        }
    }
    if new.is_empty() {
        let fails_only_now = before.is_success && !now.is_success;
        return fails_only_now.then(|| "(it fails now, and says nothing about why)".to_owned());
    }
    let more = new.len().saturating_sub(MAX_LINES);
    // The last line is needed to say that there is more.
    new.truncate(if more > 0 { MAX_LINES - 1 } else { MAX_LINES });
    let mut text: Vec<String> =
        new.iter().map(|line| text::cut(line.trim_end(), MAX_LINE_CHARS)).collect();
    if more > 0 {
        text.push(format!("… and {} more new lines", more + 1));
    }
    Some(text.join("\n"))
}

/// The line with every number replaced: an edit moves the lines below it, and times differ.
fn without_numbers(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for letter in line.trim().chars() {
        if !letter.is_ascii_digit() {
            text.push(letter);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}

fn is_noise(line: &str) -> bool {
    line.split_whitespace().next().is_none_or(|word| PROGRESS.contains(&word))
}

/// Returns true if a line of a check that has succeeded is about a problem: it has a place such as `a.rs:3`,
/// or says so.
fn is_problem(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let has_place = line
        .split(':')
        .skip(1)
        .any(|part| part.starts_with(|character: char| character.is_ascii_digit()));
    has_place || PROBLEM_WORDS.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use tokio::time::Instant;

    use super::super::fixture::{ScriptedReply, turn_fixture};
    use super::*;
    use crate::tools::{
        CallPlan, CallSite, Tool, ToolAnswer, ToolCtx, ToolIndex, ToolOutcome, Toolbox, tool,
    };
    use turnwright_policy::permission::Pass;
    use turnwright_types::message::History;
    use turnwright_types::shell_script::CheckOrigin;

    /// A command that only a cancel ends, or an edit.
    #[derive(Debug, Deserialize, JsonSchema)]
    struct TestCall<const IS_COMMAND: bool> {}

    impl<const IS_COMMAND: bool> Tool for TestCall<IS_COMMAND> {
        const NAME: &'static str = if IS_COMMAND { COMMAND_TOOL } else { "edit" };
        const KIND: ToolKind = if IS_COMMAND { ToolKind::Execute } else { ToolKind::Edit };
        const PENDING_TITLE: &'static str = "Test";
        type Preview = ();

        fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
            let title = Self::PENDING_TITLE.to_owned();
            CallPlan::in_session(CallView::new(title, Self::KIND))
        }

        async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
            if IS_COMMAND {
                ctx.cancel.cancelled().await;
            }
            Ok(ToolOutcome { ok: !IS_COMMAND, ..ToolOutcome::failed("ended") })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_never_ends_is_stopped_once_and_the_turn_goes_on() {
        let calls = || ScriptedReply::Calls(vec![("edit", json!({}))]);
        let replies = vec![calls(), calls(), ScriptedReply::Text("Done.")];
        let mut fixture = turn_fixture(replies, false, None);
        let index = ToolIndex::new(vec![tool::<TestCall<true>>(), tool::<TestCall<false>>()]);
        fixture.conversation.tools = Arc::new(Toolbox::new(Arc::new(index)));
        let check = Check {
            name: "slow".to_owned(),
            command: "sleep 999".to_owned(),
            origin: CheckOrigin::Settings,
        };
        fixture.conversation.checks.set(vec![check]);
        let begun = Instant::now();
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)));
        assert_eq!(begun.elapsed().as_secs(), TIME_LIMIT.as_secs());
        let updates = format!("{:?}", fixture.client.updates.lock());
        assert!(updates.contains("Stopped: a check may run 120 s"), "{updates}");
        assert_eq!(fixture.client.final_statuses().len(), 3);
    }

    fn run(output: &str, is_success: bool) -> CheckRun {
        CheckRun { output: output.to_owned(), is_success, end: String::new() }
    }

    #[test]
    fn only_what_is_new_is_told() {
        let old = "a.rs:3:5: warning: unused\nb.rs:7:1: error: bad\n";
        let table: &[(&str, bool, &str, bool, Option<&str>)] = &[
            ("", true, "", true, None),
            ("", true, "   Compiling x v0.1.0\n    Finished in 0.5s\nok\n", true, None),
            (old, false, "a.rs:13:5: warning: unused\nb.rs:17:1: error: bad\n", false, None),
            (old, false, "b.rs:7:1: error: bad\n", false, None),
            (old, false, &format!("{old}c.rs:1: error: new\n"), false, Some("c.rs:1: error: new")),
            ("", true, "c.rs:1:2: unused\n", true, Some("c.rs:1:2: unused")),
            ("", true, "warning: x\nfine\n", true, Some("warning: x")),
            ("", true, "Checking x\nodd\n", false, Some("odd")),
            ("x\n", true, "x\nx\n", false, Some("x")),
            ("x\n", true, "x\n", false, Some("(it fails now, and says nothing about why)")),
            ("x\n", false, "x\n", false, None),
        ];
        for (before, was_success, now, is_success, expected) in table {
            let found = find_news(&run(before, *was_success), &run(now, *is_success));
            assert_eq!(found.as_deref(), *expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn it_is_at_most_twenty_lines_of_bounded_length() {
        let lines = |count: usize| {
            let all: Vec<_> =
                (1..=count).map(|length| format!("error {}", "x".repeat(length))).collect();
            all.join(
                "
",
            )
        };
        let text = find_news(&CheckRun::default(), &run(&lines(20), false)).unwrap();
        assert_eq!(text.lines().count(), 20);
        let text = find_news(&CheckRun::default(), &run(&lines(1_000), false)).unwrap();
        assert_eq!(text.lines().count(), 20);
        assert!(text.ends_with("… and 981 more new lines"), "{text}");
        let long = find_news(&CheckRun::default(), &run(&"é".repeat(9_000), false)).unwrap();
        assert_eq!(long.chars().count(), MAX_LINE_CHARS);
    }
}
