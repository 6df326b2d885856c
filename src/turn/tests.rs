//! The turn as a whole.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::stage::{Play, Stage, stage};
use std::sync::atomic::Ordering;

use super::*;
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use crate::tools::{Outcome, Tool, ToolCtx};

/// A tool that has a bug, in the step that its argument names.
#[derive(Debug)]
struct Broken;

/// Breaks.
#[derive(Debug, Deserialize, JsonSchema)]
struct Bug {
    #[serde(default)]
    step: String,
}

impl Bug {
    fn reach(&self, step: &str) {
        assert_ne!(self.step, step, "a bug");
    }
}

/// Takes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
struct NoArgs {}

impl Tool for Broken {
    const NAME: &'static str = "broken";
    const KIND: Kind = Kind::Other;
    const VERB: &'static str = "Break";
    type Args = Bug;
    type Seen = ();

    fn paths(&self, args: &Bug, _: &Bench) -> Vec<PathBuf> {
        args.reach("locate");
        Vec::new()
    }

    fn view(&self, args: &Bug, _: &[Target], _: &Roots) -> CallView {
        args.reach("view");
        CallView { title: Self::VERB.to_owned(), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, args: &Bug, _: &[Target]) -> Vec<Effect> {
        args.reach("effects");
        vec![Effect::Session]
    }

    async fn look(
        &self,
        args: &Bug,
        _: &[Target],
        _: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        args.reach("look");
        Ok(((), Vec::new()))
    }

    async fn run(&self, _: Bug, (): (), _: &Pass, _: &ToolCtx) -> Outcome {
        panic!("a bug")
    }
}

impl Stage {
    fn turn(&self, history: History) -> Turn {
        Turn::new(
            self.equipment.clone(),
            history,
            Grants::default(),
            UserMessage::text("go"),
            self.cancel.clone(),
        )
    }
}

/// The messages after the prompt, one word each.
fn shape(history: &History) -> Vec<&'static str> {
    let word = |it: &Arc<Message>| match it.as_ref() {
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::Tool(it) if it.ok => "ok",
        Message::Tool(_) => "failed",
    };
    history.messages.iter().skip(1).map(word).collect()
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    for step in ["locate", "view", "effects", "look", "run"] {
        let calls = vec![("broken", json!({ "step": step })), ("list_dir", json!({}))];
        let stage = stage(vec![Play::Calls(calls)], false, Some(Arc::new(Broken)));
        let done = stage.turn(History::default()).run().await;
        assert!(matches!(done.result, Ok(Stop::EndTurn)), "{step}");
        assert_eq!(shape(&done.history), ["assistant", "failed", "ok", "assistant"], "{step}");
        assert_eq!(stage.client.finals().len(), 2, "{step}");
        let Message::Tool(failed) = done.history.messages[2].as_ref() else { panic!("no result") };
        assert!(failed.text.contains("crashed"), "{step}: {}", failed.text);
    }
}

#[tokio::test]
async fn a_turn_that_dies_leaves_no_card_open() {
    let stage = stage(vec![Play::HalfCall("exec")], false, None);
    let running = AssertUnwindSafe(stage.turn(History::default()).run());
    assert!(running.catch_unwind().await.is_err(), "it lives");
    assert_eq!(stage.client.finals(), ["call-3 Failed"]);
}

#[tokio::test]
async fn a_cancel_while_a_question_is_open_settles_every_call() {
    let calls = vec![
        ("write_file", json!({ "path": "a", "content": "x" })),
        ("exec", json!({ "command": "true" })),
    ];
    let stage = stage(vec![Play::Calls(calls)], true, None);
    let cancel = stage.cancel.clone();
    let later = async {
        stage.client.stuck.notified().await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(stage.turn(History::default()).run(), later);
    assert!(matches!(done.result, Ok(Stop::Cancelled)));
    assert_eq!(shape(&done.history), ["assistant", "failed", "failed"]);
    assert_eq!(stage.client.finals(), ["call-3 Failed", "call-4 Failed"]);
}

#[tokio::test]
async fn a_cancel_before_the_first_word_leaves_only_the_prompt() {
    let stage = stage(vec![Play::Hang], false, None);
    let cancel = stage.cancel.clone();
    let later = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(stage.turn(History::default()).run(), later);
    assert!(matches!(done.result, Ok(Stop::Cancelled)));
    assert_eq!(shape(&done.history), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_model_is_asked_again_after_a_wait_that_the_user_sees() {
    let stage =
        stage(vec![Play::Fail(503), Play::Fail(503), Play::Text("Here I am.")], false, None);
    let done = stage.turn(History::default()).run().await;
    assert!(matches!(done.result, Ok(Stop::EndTurn)));
    let updates = stage.client.updates.lock().unwrap();
    let notices = updates.iter().filter(|it| matches!(it, Update::Notice(_))).count();
    assert_eq!(notices, 2);
}

#[tokio::test]
async fn the_limit_of_requests_ends_the_turn_with_every_call_answered() {
    let call = || Play::Calls(vec![("list_dir", json!({}))]);
    let mut stage = stage(vec![call(), call(), call(), call()], false, None);
    stage.equipment.max_requests = 2;
    let done = stage.turn(History::default()).run().await;
    assert!(matches!(done.result, Ok(Stop::MaxTurnRequests)));
    assert_eq!(shape(&done.history), ["assistant", "ok", "assistant", "failed"]);
}

/// Plays this for a client that stops reading once the model is asked, and cancels.
async fn cancelled_while_nobody_reads(play: Play) -> (Stage, Finished) {
    let stage = stage(vec![play], false, None);
    *stage.client.room_left.lock().unwrap() = Some(1);
    let cancel = stage.cancel.clone();
    let later = async {
        stage.client.stuck.notified().await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(stage.turn(History::default()).run(), later);
    (stage, done)
}

#[tokio::test(start_paused = true)]
async fn words_that_wait_for_the_client_are_not_lost_by_a_cancel() {
    let (stage, done) = cancelled_while_nobody_reads(Play::Text("Here I am.")).await;
    assert_eq!(shape(&done.history), ["assistant"]);
    let updates = stage.client.updates.lock().unwrap();
    assert!(updates.iter().any(|it| matches!(it, Update::Text { .. })), "only the model knows");
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_no_next_call() {
    let call = Play::Calls(vec![("list_dir", json!({}))]);
    let (_, done) = cancelled_while_nobody_reads(call).await;
    assert_eq!(shape(&done.history), ["assistant", "failed"]);
}

/// A tool whose paths lie on a disk that has died, until it is told that it lives again.
#[derive(Debug, Default)]
struct Stuck {
    alive: Arc<AtomicBool>,
}

impl Tool for Stuck {
    const NAME: &'static str = "stuck";
    const KIND: Kind = Kind::Other;
    const VERB: &'static str = "Wait";
    type Args = NoArgs;
    type Seen = ();

    fn paths(&self, _: &NoArgs, _: &Bench) -> Vec<PathBuf> {
        while !self.alive.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Vec::new()
    }

    fn view(&self, _: &NoArgs, _: &[Target], _: &Roots) -> CallView {
        CallView { title: Self::VERB.to_owned(), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &NoArgs, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, _: NoArgs, (): (), _: &Pass, _: &ToolCtx) -> Outcome {
        Outcome::failed("It must not run.")
    }
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_disk_that_has_died() {
    let tool = Stuck::default();
    let alive = Arc::clone(&tool.alive);
    let stage = stage(vec![Play::Calls(vec![("stuck", json!({}))])], false, Some(Arc::new(tool)));
    let cancel = stage.cancel.clone();
    let later = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cancel.cancel();
    };
    let turn = tokio::time::timeout(Duration::from_secs(5), stage.turn(History::default()).run());
    let (done, ()) = tokio::join!(turn, later);
    alive.store(true, Ordering::Relaxed);
    let done = done.expect("the cancel waits");
    assert!(matches!(done.result, Ok(Stop::Cancelled)));
    assert_eq!(shape(&done.history), ["assistant", "failed"]);
    assert_eq!(stage.client.finals().len(), 1);
}
