//! A session on a stage: that every prompt is answered, whatever becomes of its turn.

mod kept;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::actor::{Actor, Told};
use super::{Beginning, Host, MAILBOX, Origin, Senses, SessionHandle, settings};
use crate::config::{Config, Flags, Paths, UserFile, Variables};
use crate::done::Done;
use crate::error::{Error, Kind};
use turnwright_types::message::{Stop, UserMessage};
use turnwright_policy::permission::Mode;
use crate::turn::stage::{Play, Stage, stage};

struct Session {
    handle: SessionHandle,
    next: u64,
}

fn session(stage: &Stage) -> Session {
    let (mailbox, inbox) = mpsc::channel(MAILBOX);
    let cancelling = Arc::new(AtomicBool::new(false));
    // Nothing is kept: the store has no folder.
    let paths = Paths::below("nowhere");
    let config =
        Config::new(Variables::default(), Flags::default(), UserFile::usual(&paths), paths);
    let host = Arc::new(Host::new(config, stage.cancel.clone()));
    let told = Told { notices: Vec::new(), shortcoming: false, offered: Senses::default() };
    let actor = Actor::new(
        Arc::clone(&host),
        stage.equipment.clone(),
        settings::all(&host, &stage.equipment),
        told,
        Arc::clone(&cancelling),
        stage.cancel.clone(),
    );
    let (after, cancel) = (CancellationToken::new(), CancellationToken::new());
    after.cancel();
    let opening = cancel.clone();
    let beginning = Beginning { origin: Origin::New, servers: Vec::new(), after, cancel };
    host.spawn(actor.run(inbox, beginning, Done::new(drop)));
    Session { handle: SessionHandle { mailbox, cancelling, opening }, next: 0 }
}

impl Session {
    fn prompt(&mut self, text: &str) -> oneshot::Receiver<Result<Stop, Error>> {
        let (sender, receiver) = oneshot::channel();
        self.next += 1;
        let done = Done::new(move |result| drop(sender.send(result)));
        self.handle.prompt(self.next, UserMessage::text(text), done);
        receiver
    }
}

#[tokio::test]
async fn a_turn_that_panics_is_answered_and_the_session_goes_on() {
    let stage = stage(vec![Play::Text("One."), Play::Panic, Play::Text("Three.")], false, None);
    let mut session = session(&stage);
    assert_eq!(session.prompt("1").await.unwrap().unwrap(), Stop::EndTurn);
    assert_eq!(session.prompt("2").await.unwrap().unwrap_err().kind(), Kind::Internal);
    assert_eq!(session.prompt("3").await.unwrap().unwrap(), Stop::EndTurn);
}

#[tokio::test]
async fn a_cancel_that_follows_its_prompt_at_once_still_counts() {
    let stage = stage(vec![Play::Text("Fine.")], false, None);
    let mut session = session(&stage);
    let answer = session.prompt("1");
    // The session has not even looked at the prompt yet; the model is never asked about it.
    session.handle.cancel();
    assert_eq!(answer.await.unwrap().unwrap(), Stop::Cancelled);
    assert_eq!(session.prompt("2").await.unwrap().unwrap(), Stop::EndTurn);
}

#[tokio::test]
async fn a_cancel_that_comes_before_its_prompt_is_not_remembered() {
    let stage = stage(vec![Play::Text("Fine.")], false, None);
    let mut session = session(&stage);
    session.handle.cancel();
    assert_eq!(session.prompt("1").await.unwrap().unwrap(), Stop::EndTurn);
}

#[tokio::test]
async fn a_flood_of_cancels_and_prompts_answers_each_prompt() {
    let stage = stage(vec![Play::Hang], false, None);
    let mut session = session(&stage);
    let mut answers = Vec::new();
    for _ in 0..500 {
        answers.push(session.prompt("x"));
        session.handle.cancel();
        session.handle.cancel();
    }
    let mut cancelled = 0;
    for answer in answers {
        // One that found no place in the mailbox has lost its sender, which in the connection
        // is a reply that answers on drop.
        cancelled += usize::from(matches!(answer.await, Ok(Ok(Stop::Cancelled))));
    }
    assert!(cancelled > 0);
    stage.cancel.cancel();
}

#[tokio::test]
async fn a_queue_has_an_end() {
    let stage = stage(vec![Play::Hang], false, None);
    let mut session = session(&stage);
    let mut answers: Vec<_> = (0..40).map(|_| session.prompt("x")).collect();
    let last = answers.pop().unwrap().await.unwrap();
    assert_eq!(last.unwrap_err().kind(), Kind::BadMoment);
    session.handle.cancel();
    let first = answers.remove(0).await.unwrap();
    assert_eq!(first.unwrap(), Stop::Cancelled);
}

#[tokio::test]
async fn a_mode_that_is_set_during_a_turn_counts_from_the_next_effect_on() {
    let write = || Play::Calls(vec![("write_file", json!({ "path": "a", "content": "x" }))]);
    let stage = stage(vec![write(), write()], false, None);
    let mut session = session(&stage);
    session.handle.set_mode(Mode::Plan, Done::new(drop));
    assert_eq!(session.prompt("1").await.unwrap().unwrap(), Stop::EndTurn);
    assert!(stage.client.finals().iter().all(|it| it.ends_with("Failed")));
}

#[tokio::test]
async fn closing_a_session_ends_its_turn() {
    let stage = stage(vec![Play::Hang], false, None);
    let mut session = session(&stage);
    let answer = session.prompt("1");
    drop(session);
    assert_eq!(answer.await.unwrap().unwrap(), Stop::Cancelled);
}
