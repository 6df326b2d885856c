//! Tests of sessions: every prompt is answered, whatever happens to its turn.

mod restored;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::actor::SessionActor;
use super::announcements::Announcements;
use super::open::Opening;
use super::open::lifecycle::{CancelFlag, Lifecycle};
use super::servers::ServerLaunch;
use super::{
    ClientSide, MAILBOX_CAPACITY, Modalities, SessionHandle, SessionHost, SessionOrigin,
    WantedSession, preview, settings,
};
use crate::completion::Completion;
use crate::error::Error;
use crate::turn::fixture::{ScriptedReply, TurnFixture, turn_fixture};
use turnwright_config::{Config, EnvironmentVariables, Flags, Paths, UserFile};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{PromptEnd, StopReason, UserMessage};

struct TestSession {
    handle: SessionHandle,
    next: u64,
}

fn host(fixture: &TurnFixture) -> Arc<SessionHost> {
    // Nothing is stored: the store has no folder.
    let paths = Paths::below("nowhere");
    let config = Config::new(
        EnvironmentVariables::default(),
        Flags::default(),
        UserFile::at_default_path(&paths),
        paths,
    );
    Arc::new(SessionHost::new(config, fixture.cancel.clone()))
}

fn session(fixture: &TurnFixture) -> TestSession {
    let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
    let cancelling = CancelFlag::default();
    let host = host(fixture);
    let announcements = Announcements::new(
        Vec::new(),
        Modalities::default(),
        settings::all(&host, &fixture.conversation),
    );
    let stop = fixture.cancel.clone();
    let lifecycle = Lifecycle::new(stop.clone(), cancelling.clone(), None);
    let actor = SessionActor::new(
        Arc::clone(&host),
        fixture.conversation.clone(),
        announcements,
        lifecycle,
    );
    let start_after = CancellationToken::new();
    let cancel = CancellationToken::new();
    start_after.cancel();
    let opening = Opening::new(inbox, cancelling.clone(), stop, start_after, cancel.clone());
    let servers = ServerLaunch::default();
    let opened = Completion::new(drop);
    host.spawn(opening.start_and_run(actor, SessionOrigin::New, None, servers, opened));
    TestSession { handle: SessionHandle { mailbox, cancelling, opening: cancel }, next: 0 }
}

impl TestSession {
    fn prompt(&mut self, text: &str) -> oneshot::Receiver<Result<StopReason, Error>> {
        let (sender, receiver) = oneshot::channel();
        self.next += 1;
        let done = Completion::new(move |result: Result<PromptEnd, Error>| {
            sender.send(result.map(|end| end.stop)).ok();
        });
        self.handle.prompt(self.next, UserMessage::text(text), done);
        receiver
    }
}

#[tokio::test]
async fn a_turn_that_panics_is_answered_and_the_session_goes_on() {
    let fixture = turn_fixture(
        vec![ScriptedReply::Text("One."), ScriptedReply::Panic, ScriptedReply::Text("Three.")],
        false,
        None,
    );
    let mut session = session(&fixture);
    assert_eq!(session.prompt("1").await.unwrap().unwrap(), StopReason::EndTurn);
    let error = session.prompt("2").await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Internal { .. }), "{error}");
    assert_eq!(session.prompt("3").await.unwrap().unwrap(), StopReason::EndTurn);
}

/// Looking at the options of a session may take for ever, for example in a folder that never answers.
#[tokio::test]
async fn looking_at_options_ends_with_its_request_and_with_the_process() {
    for process_ends in [true, false] {
        let fixture = turn_fixture(Vec::new(), false, None);
        let host = host(&fixture);
        let cancel = CancellationToken::new();
        let ended = if process_ends { &fixture.cancel } else { &cancel };
        ended.cancel();
        let wanted = WantedSession {
            id: SessionId::random(),
            cwd: "/".into(),
            folders: Vec::new(),
            servers: Vec::new(),
            options: None,
            settings: Vec::new(),
            origin: SessionOrigin::New,
        };
        let client = ClientSide {
            client: Arc::clone(fixture.conversation.client()),
            buffers: None,
            terminals: None,
        };
        let (sender, receiver) = oneshot::channel();
        let done = Completion::new(move |result: Result<_, Error>| {
            sender.send(result.map(drop)).ok();
        });
        preview(&host, wanted, client, cancel.clone(), done);
        assert!(matches!(receiver.await.unwrap(), Err(Error::Cancelled)));
    }
}

#[tokio::test]
async fn a_flood_of_cancels_and_prompts_answers_each_prompt() {
    let fixture = turn_fixture(vec![ScriptedReply::Hang], false, None);
    let mut session = session(&fixture);
    let mut answers = Vec::new();
    for _ in 0..500 {
        answers.push(session.prompt("x"));
        session.handle.cancel();
        session.handle.cancel();
    }
    let mut cancelled = 0;
    for answer in answers {
        // A prompt that found no place in the mailbox has lost its sender. In the connection that
        // is a reply, which answers on drop.
        cancelled += usize::from(matches!(answer.await, Ok(Ok(StopReason::Cancelled))));
    }
    assert!(cancelled > 0);
    fixture.cancel.cancel();
}
