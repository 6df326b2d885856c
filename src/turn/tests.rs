//! Tests of whole turns.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::fixture::{ScriptedReply, TurnFixture, turn_fixture};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::tools::{CallPlan, CallSite, Previewed, Tool, ToolAnswer, ToolCtx, tool};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, ResolvedPath, ToolKind};
use turnwright_types::update::Update;

/// A call that panics in the step that its argument names.
#[derive(Debug, Deserialize, JsonSchema)]
struct PanickingCall {
    #[serde(default)]
    step: String,
}

impl PanickingCall {
    fn panic_at(&self, step: &str) {
        assert_ne!(self.step, step, "a bug");
    }
}

impl Tool for PanickingCall {
    const NAME: &'static str = "broken";
    const KIND: ToolKind = ToolKind::Other;
    const PENDING_TITLE: &'static str = "Break";
    type Preview = ();

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        self.panic_at("plan");
        let title = Self::PENDING_TITLE.to_owned();
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn preview(&self, _: &[ResolvedPath], _: &ToolCtx) -> Previewed<()> {
        self.panic_at("look");
        Ok(((), Vec::new()))
    }

    async fn run(self, (): (), _: &Pass, _: &ToolCtx) -> ToolAnswer {
        panic!("a bug")
    }
}

impl TurnFixture {
    pub(super) fn turn(&self, history: History) -> Turn {
        Turn::new(self.conversation.clone(), history, UserMessage::text("go"), self.cancel.clone())
    }
}

/// The kinds of the messages after the prompt.
fn shape(history: &History) -> Vec<&'static str> {
    let words = history.messages.iter().skip(1).map(|message| match message.as_ref() {
        Message::User(_) => "user",
        // The note in place of an answer.
        Message::Assistant(answer) if answer.text.starts_with("[Stopped here") => "stopped",
        Message::Assistant(_) => "assistant",
        Message::Tool(result) if result.ok => "ok",
        Message::Tool(_) => "failed",
    });
    words.collect()
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    for step in ["plan", "look", "run"] {
        let calls = vec![("broken", json!({ "step": step })), ("list_dir", json!({}))];
        let fixture =
            turn_fixture(vec![ScriptedReply::Calls(calls)], false, Some(tool::<PanickingCall>()));
        let done = fixture.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(StopReason::EndTurn)), "{step}");
        assert_eq!(shape(&done.history), ["assistant", "failed", "ok", "assistant"], "{step}");
        assert_eq!(fixture.client.final_statuses().len(), 2, "{step}");
        let Message::Tool(failed) = done.history.messages[2].as_ref() else { panic!("no result") };
        assert!(failed.text.contains("crashed"), "{step}: {}", failed.text);
    }
}

#[tokio::test]
async fn a_turn_that_dies_leaves_no_card_open() {
    let fixture = turn_fixture(vec![ScriptedReply::HalfCall("exec")], false, None);
    let running = AssertUnwindSafe(fixture.turn(History::default()).run());
    assert!(running.catch_unwind().await.is_err(), "it lives");
    assert_eq!(fixture.client.final_statuses(), ["call-3 Failed"]);
}

#[tokio::test]
async fn a_cancel_while_a_question_is_open_settles_every_call() {
    let calls = vec![
        ("write_file", json!({ "path": "a", "content": "x" })),
        ("exec", json!({ "command": "true" })),
    ];
    let fixture = turn_fixture(vec![ScriptedReply::Calls(calls)], true, None);
    let cancel = fixture.cancel.clone();
    let later = async {
        fixture.client.stuck.notified().await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(fixture.turn(History::default()).run(), later);
    assert!(matches!(done.result, Ok(StopReason::Cancelled)));
    assert_eq!(shape(&done.history), ["assistant", "failed", "failed", "stopped"]);
    assert_eq!(fixture.client.final_statuses(), ["call-3 Cancelled", "call-4 Cancelled"]);
}

/// Runs a turn with this reply for a client that stops reading once the model is asked, and cancels
/// it.
async fn cancelled_while_nobody_reads(play: ScriptedReply) -> (TurnFixture, FinishedTurn) {
    let fixture = turn_fixture(vec![play], false, None);
    *fixture.client.capacity_left.lock() = Some(1);
    let cancel = fixture.cancel.clone();
    let later = async {
        fixture.client.stuck.notified().await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(fixture.turn(History::default()).run(), later);
    (fixture, done)
}

#[tokio::test(start_paused = true)]
async fn words_that_wait_for_the_client_are_not_lost_by_a_cancel() {
    let (fixture, done) = cancelled_while_nobody_reads(ScriptedReply::Text("Here I am.")).await;
    assert_eq!(shape(&done.history), ["assistant"]);
    let updates = fixture.client.updates.lock();
    assert!(
        updates.iter().any(|update| matches!(update, Update::AgentText { .. })),
        "only the model knows"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_no_next_call() {
    let call = ScriptedReply::Calls(vec![("list_dir", json!({}))]);
    let (_, done) = cancelled_while_nobody_reads(call).await;
    assert_eq!(shape(&done.history), ["assistant", "failed", "stopped"]);
}

/// True once the disk of a [`HangingCall`] does not hang any more.
static IS_ALIVE: AtomicBool = AtomicBool::new(false);
/// Notified when that disk begins to hang.
static HANGS: Notify = Notify::const_new();

/// A call whose paths are on a disk that hangs.
#[derive(Debug, Deserialize, JsonSchema)]
struct HangingCall {}

impl Tool for HangingCall {
    const NAME: &'static str = "stuck";
    const KIND: ToolKind = ToolKind::Other;
    const PENDING_TITLE: &'static str = "Wait";
    type Preview = ();

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        HANGS.notify_one();
        while !IS_ALIVE.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let title = Self::PENDING_TITLE.to_owned();
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, _: &ToolCtx) -> ToolAnswer {
        Err("It must not run.".into())
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_disk_that_has_died() {
    let fixture = turn_fixture(
        vec![ScriptedReply::Calls(vec![("stuck", json!({}))])],
        false,
        Some(tool::<HangingCall>()),
    );
    let cancel = fixture.cancel.clone();
    let later = async {
        HANGS.notified().await;
        cancel.cancel();
    };
    let turn =
        tokio::time::timeout(Duration::from_secs(60), fixture.turn(History::default()).run());
    let (done, ()) = tokio::join!(turn, later);
    IS_ALIVE.store(true, Ordering::Relaxed);
    let done = done.expect("the cancel waits");
    assert!(matches!(done.result, Ok(StopReason::Cancelled)));
    assert_eq!(shape(&done.history), ["assistant", "failed", "stopped"]);
    assert_eq!(fixture.client.final_statuses().len(), 1);
}

thread_local! {
    /// How often each stage of a call has run on this thread.
    static STAGES: RefCell<BTreeMap<String, usize>> = RefCell::default();
}

/// Counts the events that the stages of a call emit.
struct StageCounter;

impl<S: tracing::Subscriber> Layer<S> for StageCounter {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let stage = event.metadata().target().to_owned();
        STAGES.with_borrow_mut(|stages| *stages.entry(stage).or_default() += 1);
    }
}

#[tokio::test]
async fn an_asked_command_is_parsed_once_planned_twice_and_judged_twice() {
    // The subscriber of a single thread can miss events while other tests run.
    let subscriber = tracing_subscriber::registry().with(StageCounter);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let command =
        if cfg!(windows) { "echo a> made && type made" } else { "touch made && cat made" };
    let call = ("exec", json!({ "command": command }));
    let fixture = turn_fixture(vec![ScriptedReply::Calls(vec![call])], false, None);
    let done = fixture.turn(History::default()).run().await;
    assert_eq!(shape(&done.history), ["assistant", "ok", "assistant"]);
    let stages = STAGES.take();
    let count = |stage: &str| stages.get(&format!("turnwright::{stage}")).copied().unwrap_or(0);
    // After the call, both commands of the line are parsed to learn whether they prove the work.
    assert_eq!((count("parse"), count("plan"), count("judge")), (1 + 2, 2, 2), "{stages:?}");
}

#[tokio::test]
async fn the_model_is_told_within_a_turn_that_it_is_another_day() {
    let calls = ScriptedReply::Calls(vec![("list_dir", serde_json::json!({}))]);
    let fixture = turn_fixture(vec![calls, ScriptedReply::Text("Done.")], false, None);
    let mut history = History::default();
    let told = PromptPart::Context("Date: Thu, 01 Jan 1970\nDone.".to_owned());
    history.push(Message::User(UserMessage::new(vec![told])));
    let done = fixture.turn(history).run().await;
    let is_date = |message: &&Arc<Message>| match message.as_ref() {
        Message::User(told) => told.render().contains("Date: ") && !told.render().contains("1970"),
        _ => false,
    };
    assert_eq!(done.history.messages.iter().filter(is_date).count(), 1);
}
