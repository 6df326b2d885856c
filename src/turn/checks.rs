//! Checks: commands of the user or of the project's files, such as `cargo check`, that run before the first edit of a
//! turn and again when the model would end it. The model is told what is new in their output.

mod news;

use std::time::Duration;

use tokio::task::spawn_blocking;

use super::found_checks::{FoundCheck, check_book};
use super::own_calls::{CommandEnd, Consent, OwnCommand};
use super::proof::Ledger;
use super::{Turn, TurnStep};
use crate::tools::{self, AGENT_TOOL, AnyTool};
use turnwright_policy::permission::Mode;
use turnwright_types::effect::{ToolKind, escape_hidden, escape_hidden_line, fenced};
use turnwright_types::message::{Arguments, StopReason, ToolCall, within_context};
use turnwright_types::shell_script::Check;

use news::{Baseline, check_run, find_news};

/// How long one check may run.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The same for the first run of a found check before an edit, which nobody may have asked for.
const FIRST_TIME_LIMIT: Duration = Duration::from_secs(20);
/// The same for a found check about which the user may be asked.
const ASKED_TIME_LIMIT: Duration = Duration::from_secs(600);
/// The exit status with which a shell says that there is no such program.
const NOT_FOUND: i32 = 127;
/// The time of a run in words.
const BEFORE: &str = "before the first edit";
const AFTER: &str = "after the edits";
/// How often in one turn the model is told about the checks' output, so that this ends.
const MAX_ROUNDS: u32 = 3;

/// The state of a turn's checks, and of the proof of its work.
#[derive(Debug, Default)]
pub(super) struct TurnChecks {
    pub(super) ledger: Ledger,
    /// The checks, once the turn is about to edit something.
    all: Option<Vec<TurnCheck>>,
    /// True if a file was edited since the checks ran last.
    is_due: bool,
    rounds: u32,
    /// True if the checks that are slow have run.
    has_run_slow: bool,
    /// True if checks were found that cannot run, because there is no sandbox.
    has_unusable: bool,
    /// How often the model was told what language servers say of its edits.
    pub(super) reviews: u32,
}

impl TurnChecks {
    /// Those of a turn that begins after this number of changes of files.
    pub(super) fn new(known_changes: u64) -> TurnChecks {
        TurnChecks { ledger: Ledger::new(known_changes), ..TurnChecks::default() }
    }
}

/// Returns true if tools of this kind edit files.
pub(super) fn edits_files(kind: Option<ToolKind>) -> bool {
    matches!(kind, Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move))
}

/// A check of a turn.
#[derive(Clone, Debug)]
struct TurnCheck {
    check: Check,
    /// Set if a file of the project names it.
    found: Option<FoundCheck>,
    /// The run that the later ones are compared with. Without one, all lines may be old.
    before: Option<Baseline>,
}

impl TurnCheck {
    fn of_settings(check: &Check) -> TurnCheck {
        TurnCheck { check: check.clone(), found: None, before: None }
    }

    fn of_project(found: FoundCheck) -> TurnCheck {
        let before = found.green_lines.as_deref().map(Baseline::of_success);
        TurnCheck { check: found.check(), found: Some(found), before }
    }

    fn is_slow(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.is_slow)
    }

    fn title(&self, when: &str) -> String {
        let Check { name, command, .. } = &self.check;
        let marker = self.found.as_ref().map(|found| escape_hidden_line(&found.marker));
        let origin = marker.map(|marker| format!(", found by {marker}")).unwrap_or_default();
        format!("Check {}{origin} ({when}): {}", escape_hidden_line(name), escape_hidden(command))
    }
}

impl Turn {
    /// Runs the checks before the first edit of the turn, for comparison.
    pub(super) async fn check_before_edits(&mut self, calls: &[ToolCall]) {
        let configured = self.conversation.checks.get();
        // In plan mode no edit is made.
        let is_needed = self.checks.all.is_none()
            && (!configured.is_empty() || self.conversation.work.find_checks)
            && self.conversation.mode().get() != Mode::Plan
            && calls.iter().any(|call| self.may_edit(call));
        if !is_needed {
            return;
        }
        let mut found = self.found_checks(&configured).await;
        if !self.conversation.rules().get().can_confine {
            self.checks.has_unusable = !found.is_empty();
            found.clear();
        }
        let mut all: Vec<_> = configured.iter().map(TurnCheck::of_settings).collect();
        all.extend(found.into_iter().map(TurnCheck::of_project));
        let mut usable = Vec::new();
        let mut has_slow = false;
        for mut check in all {
            if let Some(found) = &mut check.found {
                // Where one takes too long, the next one would, too.
                found.is_slow |= has_slow && !found.is_measured;
            }
            if !check.is_slow() {
                match self.run_check(&check, BEFORE).await {
                    CommandEnd::Ran(outcome) => {
                        check.before = Some(Baseline::of(&check_run(&outcome)));
                    }
                    CommandEnd::TooSlow => {
                        has_slow = true;
                        let Some(found) = &mut check.found else { continue };
                        found.is_slow = true;
                    }
                    CommandEnd::NotRun(_) => continue,
                }
            }
            usable.push(check);
        }
        self.checks.all = Some(usable);
        self.ignore_own_changes();
    }

    /// Takes the changes that the checks have made for no edits.
    pub(super) fn ignore_own_changes(&mut self) {
        let checkpoint = &self.conversation.env.shared.checkpoint;
        checkpoint.take_changes();
        self.checks.ledger.sync_changes(checkpoint.change_count());
    }

    /// Returns true if a check of the project is known that has not run since the last edit.
    pub(super) fn has_unrun_check(&self) -> bool {
        match &self.checks.all {
            Some(all) => self.checks.is_due && !all.is_empty() || self.checks.has_unusable,
            // Commands have edited files, which is not known before.
            None => !self.conversation.checks.get().is_empty(),
        }
    }

    /// Notes that a call of this tool has ended, which may have edited a file. A helper that has failed may have done
    /// that before.
    pub(super) fn note_edit(&mut self, tool: &dyn AnyTool, call: &ToolCall, ok: bool) {
        self.checks.is_due |= self.has_edited(tool, call, ok);
    }

    /// Returns true if a call edits files when it succeeds.
    fn may_edit(&self, call: &ToolCall) -> bool {
        let tool = self.conversation.tools.find(&call.name);
        tool.is_ok_and(|tool| self.has_edited(tool.as_ref(), call, true))
    }

    /// True if a call of this tool is an edit that succeeds, starts a helper that may edit, or is a command line that
    /// stands for a patch.
    fn has_edited(&self, tool: &dyn AnyTool, call: &ToolCall, ok: bool) -> bool {
        if ok && edits_files(tool.kind()) {
            return true;
        }
        let Arguments::Object(arguments) = &call.arguments else { return false };
        if tools::patch_call(tool.name(), arguments).is_some() {
            return true;
        }
        let helpers = &self.conversation.env.helpers;
        tool.name() == AGENT_TOOL && tools::may_edit(arguments, helpers, |name| self.is_edit(name))
    }

    /// Returns true if the tool of this name edits files.
    pub(super) fn is_edit(&self, name: &str) -> bool {
        self.conversation.tools.find(name).is_ok_and(|tool| edits_files(tool.kind()))
    }

    /// Returns true if the checks have to run before the turn ends: the model has edited files and says that it is
    /// done.
    pub(super) fn must_check(&mut self) -> bool {
        // Commands edit files, too, and so do helpers in the background. That is not known before, so they
        // count only if the checks ran before another edit of the turn.
        self.checks.is_due |= self.conversation.env.shared.checkpoint.take_changes();
        let answer = self.history.messages.last().and_then(|message| message.as_assistant());
        let is_done = answer.is_some_and(|answer| answer.calls.is_empty());
        let has_any = self.checks.all.as_ref().is_some_and(|all| !all.is_empty());
        self.checks.is_due && has_any && is_done && !self.cancel.is_cancelled()
    }

    /// Runs the checks. If they say something new, the model is told and the turn goes on.
    pub(super) async fn check_after_edits(&mut self) -> TurnStep {
        self.checks.is_due = false;
        // Slow ones run once, and not after one that takes too long.
        let mut skips_slow = std::mem::replace(&mut self.checks.has_run_slow, true);
        let mut report = String::new();
        let mut names = Vec::new();
        for check in self.checks.all.clone().unwrap_or_default() {
            if check.is_slow() && skips_slow {
                continue;
            }
            let now = match self.run_check(&check, AFTER).await {
                CommandEnd::Ran(outcome) => check_run(&outcome),
                CommandEnd::TooSlow => {
                    skips_slow = true;
                    continue;
                }
                CommandEnd::NotRun(_) => continue,
            };
            let news = find_news(check.before.as_ref().unwrap_or(&Baseline::default()), &now);
            // A check that has failed all along says nothing about the edits.
            if now.is_success || news.is_some() {
                self.checks.ledger.note_check(&check.check.command, now.is_success);
            }
            if let Some(news) = news {
                let name = escape_hidden_line(&check.check.name);
                let command = escape_hidden(&check.check.command);
                let end = &now.end;
                let age = if check.before.is_none() { ", may be older than this turn" } else { "" };
                let news = fenced(&news);
                report.push_str(&format!("\n`{name}` ({command}, {end}{age}):\n{news}\n"));
                // Several that were found may have one name.
                let shown = if check.found.is_some() { command } else { name };
                names.push(format!("`{shown}`"));
            }
        }
        self.ignore_own_changes();
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
            "Checks were run after your edits. This is new since the turn began; correct what your \
             edits have caused, or say why it stays:\n{report}"
        );
        turnwright_types::redact::redact_in_place(&mut context);
        self.push_context(within_context(&context));
        TurnStep::Sample
    }

    /// Runs a check as a command of ours.
    async fn run_check(&mut self, check: &TurnCheck, when: &str) -> CommandEnd {
        let limit = self.time_limit(check, when);
        let is_found = check.found.is_some();
        let rejected = self.rejected_count();
        let command = OwnCommand {
            line: check.check.command.clone(),
            title: check.title(when),
            limit,
            consent: if is_found { Consent::Asked } else { Consent::Given },
        };
        let end = self.run_own_command(command).await;
        if !is_found || self.cancel.is_cancelled() {
            return end;
        }
        // Nobody has refused it if nobody was there.
        let is_refused = self.rejected_count() > rejected && !self.conversation.work.alone;
        self.note_found_run(&check.check.command, end, limit, is_refused).await
    }

    fn time_limit(&self, check: &TurnCheck, when: &str) -> Duration {
        let Some(found) = &check.found else { return TIME_LIMIT };
        let may_ask = !matches!(self.conversation.mode().get(), Mode::Auto | Mode::Full);
        if may_ask && !self.conversation.work.alone {
            ASKED_TIME_LIMIT
        } else if when == BEFORE && !found.is_measured {
            FIRST_TIME_LIMIT
        } else {
            TIME_LIMIT
        }
    }

    /// The number of calls that the user has rejected for the session.
    fn rejected_count(&self) -> usize {
        self.conversation.grants.lock().rejected_effects().count()
    }

    /// Keeps what the run of a found check has shown. Returns its end, which is none if there is no such program.
    async fn note_found_run(
        &self,
        command: &str,
        end: CommandEnd,
        limit: Duration,
        is_refused: bool,
    ) -> CommandEnd {
        let command = command.to_owned();
        let run = match &end {
            CommandEnd::Ran(outcome) if outcome.raw_output["exitCode"] != NOT_FOUND => {
                let lines = outcome.is_success.then(|| check_run(outcome).hashes().collect());
                Some((outcome.duration.unwrap_or(limit), lines))
            }
            // Every limit is longer than what counts as slow.
            CommandEnd::TooSlow => Some((limit, None)),
            _ => None,
        };
        let has_run = run.is_some();
        if !has_run {
            self.conversation.told.drop_check(&command);
        }
        if let Some(book) = check_book(&self.conversation.env) {
            let noting = spawn_blocking(move || match run {
                Some((took, lines)) => book.note_run(&command, took, lines),
                None if is_refused => book.refuse(&command),
                None => {}
            });
            noting.await.ok();
        }
        if has_run { end } else { CommandEnd::NotRun(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;
    use tokio::time::Instant;

    use super::super::fixture::{ScriptedReply, turn_fixture};
    use super::*;
    use crate::tools::{
        CallPlan, CallSite, Tool, ToolAnswer, ToolCtx, ToolIndex, ToolOutcome, Toolbox, tool,
    };
    use turnwright_policy::permission::Pass;
    use turnwright_types::effect::CallView;
    use turnwright_types::message::History;
    use turnwright_types::update::COMMAND_TOOL;

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
        let check = Check { name: "slow".to_owned(), command: "sleep 999".to_owned() };
        fixture.conversation.checks.set(vec![check]);
        let begun = Instant::now();
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)));
        assert_eq!(begun.elapsed().as_secs(), TIME_LIMIT.as_secs());
        let updates = format!("{:?}", fixture.client.updates.lock());
        assert!(updates.contains("Stopped: a check may run 120 s"), "{updates}");
        assert_eq!(fixture.client.final_statuses().len(), 3);
    }
}
