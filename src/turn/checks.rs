//! Checks: commands of the user or of the project's files, such as `cargo check`, that run before the first edit of a
//! turn and again when the model would end it. The model is told what is new in their output. Those of the project's
//! files are proposed as ordinary calls; the book of the project knows which are refused and which are slow.

mod news;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::own_calls::{CommandEnd, Consent, output_of};
use super::proof::{Ledger, ran_nothing};
use super::{PROJECT_READ_TIMEOUT, Turn, TurnStep};
use crate::tools::{self, AGENT_TOOL, AnyTool, ToolEnv};
use turnwright_policy::permission::{CheckBook, KnownCheck, Mode};
use turnwright_types::effect::{ToolKind, escape_hidden, escape_hidden_line, fenced};
use turnwright_types::message::{Arguments, StopReason, ToolCall};
use turnwright_types::shell_script::Check;
use turnwright_workspace::markers::{FoundCommand, Purpose, find_commands};

use news::{Baseline, find_news, line_hashes};

/// The name under which a recording keeps the checks that were found.
const FOUND_CHECKS: &str = "found checks";
/// The most checks that are found, and the most of a turn together with those of the settings.
const MAX_FOUND: usize = 3;
const MAX_CHECKS: usize = 8;
/// A check that took longer runs only once in a turn, at its end.
const SLOW: Duration = Duration::from_secs(10);
/// How long one check may run.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The same for a found check before an edit. One that takes longer is left to the end.
const TIME_LIMIT_BEFORE: Duration = Duration::from_secs(20);
/// The exit status with which a shell says that there is no such program.
const NOT_FOUND: i32 = 127;
/// The time of a run in words.
const BEFORE: &str = "before the first edit";
const AFTER: &str = "after the edits";
/// The most times that the model is told about the checks' output in one turn, or one slice of the work on a goal.
const MAX_ROUNDS: u32 = 3;

/// The state of a turn's checks, and of the proof of its work.
#[derive(Debug, Default)]
pub(super) struct TurnChecks {
    pub(super) ledger: Ledger,
    /// The checks, once the turn is about to edit something.
    all: Option<Vec<TurnCheck>>,
    /// True if a file was edited since the checks ran last.
    is_due: bool,
    /// The number of times that the model was told about their output.
    pub(super) rounds: u32,
    /// True if the checks that are slow have run.
    has_run_slow: bool,
    /// True if checks were found that cannot run, because there is no sandbox.
    has_unusable: bool,
    /// The number of times that the model was told of errors that language servers found in its edits.
    pub(super) reviews: u32,
}

/// Returns true if tools of this kind edit files.
pub(super) fn edits_files(kind: Option<ToolKind>) -> bool {
    matches!(kind, Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move))
}

/// A check of a turn.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct TurnCheck {
    name: String,
    command: String,
    /// The file of the project that names it; `None` if the settings do.
    marker: Option<String>,
    /// True if it runs only once in a turn, at its end.
    is_slow: bool,
    /// The run that the later ones are compared with. Without one, all lines may be old.
    before: Option<Baseline>,
}

impl TurnCheck {
    fn of_settings(check: &Check) -> TurnCheck {
        let Check { name, command } = check.clone();
        TurnCheck { name, command, marker: None, is_slow: false, before: None }
    }

    fn title(&self, when: &str) -> String {
        let marker = self.marker.as_deref().map(escape_hidden_line);
        let origin = marker.map(|marker| format!(", found by {marker}")).unwrap_or_default();
        let name = escape_hidden_line(&self.name);
        format!("Check {name}{origin} ({when}): {}", escape_hidden(&self.command))
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
        all.extend(found);
        let mut usable = Vec::new();
        for mut check in all {
            if !check.is_slow {
                match self.run_check(&check, BEFORE).await {
                    CommandEnd::Ran(outcome) => {
                        let lines = line_hashes(output_of(&outcome));
                        check.before = Some(Baseline::new(&lines, outcome.is_success));
                    }
                    CommandEnd::TooSlow if check.marker.is_some() => check.is_slow = true,
                    CommandEnd::TooSlow | CommandEnd::NotRun(_) => continue,
                }
            }
            usable.push(check);
        }
        self.checks.all = Some(usable);
        self.ignore_own_changes();
    }

    /// Finds the checks of the project besides those of the settings.
    async fn found_checks(&self, configured: &[Check]) -> Vec<TurnCheck> {
        if !self.conversation.work.find_checks || self.is_helper() {
            return Vec::new();
        }
        let recorded: Option<Vec<TurnCheck>> = self.recorded_words(FOUND_CHECKS);
        let mut found = if let Some(found) = recorded {
            found
        } else {
            let env = Arc::clone(&self.conversation.env);
            let configured = configured.to_vec();
            let finding = spawn_blocking(move || find(&env, &configured));
            let bounded = tokio::time::timeout(PROJECT_READ_TIMEOUT, finding);
            let read = self.cancel.run_until_cancelled(bounded).await;
            let found = read.and_then(Result::ok).and_then(Result::ok).unwrap_or_default();
            self.record_words(FOUND_CHECKS, found)
        };
        let told = self.conversation.told.lock();
        found.retain(|check| !told.dropped_checks.contains(&check.command));
        found.truncate(MAX_CHECKS.saturating_sub(configured.len()));
        found
    }

    /// Takes the changes that the checks have made for no edits.
    pub(super) fn ignore_own_changes(&mut self) {
        let checkpoint = &self.conversation.env.shared.checkpoint;
        checkpoint.take_changes();
        self.checks.ledger.ignore_changes(checkpoint.change_count());
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
    fn is_edit(&self, name: &str) -> bool {
        self.conversation.tools.find(name).is_ok_and(|tool| edits_files(tool.kind()))
    }

    /// Returns true if the checks have to run before the turn ends: the model has edited files and says that it is
    /// done.
    pub(super) fn must_check(&mut self) -> bool {
        // Commands edit files, too, and so do helpers in the background. That is not known before, so they
        // count only if the checks ran before another edit of the turn.
        self.checks.is_due |= self.conversation.env.shared.checkpoint.take_changes();
        let is_done = self.final_answer().is_some();
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
            if check.is_slow && skips_slow {
                continue;
            }
            let outcome = match self.run_check(&check, AFTER).await {
                CommandEnd::Ran(outcome) => outcome,
                CommandEnd::TooSlow => {
                    skips_slow = true;
                    continue;
                }
                CommandEnd::NotRun(_) => continue,
            };
            let is_success = outcome.is_success;
            let news = find_news(check.before.as_ref(), output_of(&outcome), is_success);
            // A check that has failed all along says nothing about the edits, and neither does one of nothing.
            if news.is_some() || is_success && !ran_nothing(&check.command, output_of(&outcome)) {
                self.checks.ledger.note_check(&check.command, is_success);
            }
            if let Some(news) = news {
                let name = escape_hidden_line(&check.name);
                let command = escape_hidden(&check.command);
                let end = outcome.raw_output["ended"].as_str().unwrap_or_default();
                let age = if check.before.is_none() { ", may be older than this turn" } else { "" };
                let news = fenced(&news);
                report.push_str(&format!("\n`{name}` ({command}, {end}{age}):\n{news}\n"));
                // Several that were found may have one name.
                let shown = if check.marker.is_some() { command } else { name };
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
            self.conversation
                .notify(format!("{names} still says something new. The model is not told again."));
            return end;
        }
        self.conversation.notify(format!("{names} says something new. The model is told."));
        self.push_outside_context(&format!(
            "Checks were run after your edits. This is new since the turn began; correct what your \
             edits have caused, or say why it stays:\n{report}"
        ));
        TurnStep::Sample
    }

    /// Runs a check as a command of ours, and keeps what that has shown of a found one. Returns its end, which is none if
    /// there is no such program.
    async fn run_check(&mut self, check: &TurnCheck, when: &str) -> CommandEnd {
        let is_found = check.marker.is_some();
        let limit = if is_found && when == BEFORE { TIME_LIMIT_BEFORE } else { TIME_LIMIT };
        let rejected = self.rejected_count();
        let consent = if is_found { Consent::Asked } else { Consent::Given };
        let running = self.run_own_command(&check.command, check.title(when), limit, consent);
        let end = Box::pin(running).await;
        if !is_found || self.cancel.is_cancelled() {
            return end;
        }
        let mut shown = KnownCheck::default();
        let took = match &end {
            CommandEnd::Ran(outcome) if outcome.raw_output["exitCode"] != NOT_FOUND => {
                shown.lines = outcome.is_success.then(|| line_hashes(output_of(outcome)));
                Some(outcome.duration.unwrap_or(limit))
            }
            // Every limit is longer than what counts as slow.
            CommandEnd::TooSlow => Some(limit),
            _ => {
                // Nobody has refused it if nobody was there.
                shown.is_refused =
                    self.rejected_count() > rejected && !self.conversation.work.alone;
                self.conversation.told.lock().dropped_checks.insert(check.command.clone());
                None
            }
        };
        shown.last_ms = took.and_then(|took| u64::try_from(took.as_millis()).ok());
        if shown != KnownCheck::default()
            && let Some(book) = check_book(&self.conversation.env)
        {
            let command = check.command.clone();
            spawn_blocking(move || book.note(&command, shown)).await.ok();
        }
        if took.is_some() { end } else { CommandEnd::NotRun(String::new()) }
    }

    /// The number of calls that the user has rejected for the session.
    fn rejected_count(&self) -> usize {
        self.conversation.grants.lock().rejected_effects().count()
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
    use schemars::JsonSchema;
    use serde_json::json;
    use tokio::time::Instant;

    use super::super::fixture::{RecordingClient, ScriptedReply, turn_fixture};
    use super::*;
    use crate::tools::{
        CallPlan, CallSite, Tool, ToolAnswer, ToolCtx, ToolIndex, ToolOutcome, Toolbox, tool,
    };
    use turnwright_policy::permission::Pass;
    use turnwright_types::effect::{CallView, Effect};
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
            let view = CallView::new(Self::PENDING_TITLE.to_owned(), Self::KIND);
            if IS_COMMAND {
                // The user is asked about it.
                let effects = vec![Effect::Fetch { host: "example.com".to_owned() }];
                return CallPlan { view, effects };
            }
            CallPlan::in_session(view)
        }

        async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
            if IS_COMMAND {
                ctx.cancel.cancelled().await;
            }
            Ok(ToolOutcome { ok: !IS_COMMAND, ..ToolOutcome::failed("ended") })
        }
    }

    /// Runs a turn with two edits and a check that never ends. Returns its client and the seconds that it took.
    async fn slow_turn(answer_delay: Option<Duration>) -> (Arc<RecordingClient>, u64) {
        let calls = || ScriptedReply::Calls(vec![("edit", json!({}))]);
        let replies = vec![calls(), calls(), ScriptedReply::Text("Done.")];
        let mut fixture = turn_fixture(replies, false, None);
        *fixture.client.answer_delay.lock() = answer_delay;
        let index = ToolIndex::new(vec![tool::<TestCall<true>>(), tool::<TestCall<false>>()]);
        fixture.conversation.tools = Arc::new(Toolbox::new(Arc::new(index)));
        let check = Check { name: "slow".to_owned(), command: "sleep 999".to_owned() };
        fixture.conversation.checks.set(vec![check]);
        let begun = Instant::now();
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)));
        (Arc::clone(&fixture.client), begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_never_ends_is_stopped_once_and_the_turn_goes_on() {
        let (client, seconds) = slow_turn(None).await;
        assert_eq!(seconds, TIME_LIMIT.as_secs());
        let updates = format!("{:?}", client.updates.lock());
        assert!(updates.contains("Stopped: a check may run 120 s"), "{updates}");
        assert_eq!(client.final_statuses().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_question_is_not_that_of_the_check() {
        let (client, seconds) = slow_turn(Some(Duration::from_secs(500))).await;
        assert_eq!(seconds, 500 + TIME_LIMIT.as_secs());
        let updates = format!("{:?}", client.updates.lock());
        assert!(updates.contains("Stopped: a check may run 120 s"), "{updates}");
    }

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
