//! The client of a session that is served over a network: the connection may be lost, and another client may
//! take over.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::PROMPT_KEYS_PER_CONNECTION;
use super::journal::Journal;
use crate::session::Replayed;
use turnwright_types::client::{
    BufferError, Client, ClientConnection, EditorBuffers, ElicitationModes, FormOutcome,
    HelperView, PermissionAnswer, PermissionRequest, ServerForm, StartedHelper, TerminalExit,
    UserQuestion, UserReply,
};
use turnwright_types::effect::{CallContent, fenced};
use turnwright_types::ids::CallId;
use turnwright_types::message::PromptPart;
use turnwright_types::update::{CallUpdate, PromptKey, TerminalDelta, ToolCallStatus, Update};

/// The client that a session has now, with its buffers if it offers any.
#[derive(Clone)]
pub(in crate::acp) struct CurrentClient {
    pub(in crate::acp) client: Arc<dyn Client>,
    pub(in crate::acp) buffers: Option<Arc<dyn EditorBuffers>>,
    /// The keys of the prompts of its connection.
    pub(in crate::acp) own_prompts: Range<PromptKey>,
}

impl CurrentClient {
    /// Sends an update. A client that does not follow prompts shows its own as soon as they are typed; the
    /// words of a prompt that another connection has sent are new to it.
    fn update(&self, update: Update, turn_without_prompt: Option<PromptKey>) {
        match update {
            Update::UserMessage { prompt, message, parts } if !self.client.follows_prompts() => {
                let Some(key) = prompt.or(turn_without_prompt) else { return };
                if self.own_prompts.contains(&key) {
                    return;
                }
                for part in parts.into_iter().filter(|part| !matches!(part, PromptPart::Context(_)))
                {
                    self.client.update(Update::UserChunk { message: message.clone(), part });
                }
            }
            Update::CallUpdate(mut update) if !self.client.draws_terminals() => {
                if update.terminal.is_none() {
                    show_output_as_text(&mut update);
                    self.client.update(Update::CallUpdate(update));
                }
            }
            update => self.client.update(update),
        }
    }
}

/// The client does not draw the terminal that the card shows. It was begun for the client before.
fn show_output_as_text(update: &mut CallUpdate) {
    let Some(content) = &mut update.content else { return };
    let before = content.len();
    content.retain(|block| !matches!(block, CallContent::Terminal(_)));
    if content.len() == before {
        return;
    }
    let output = update.raw_output.as_ref().and_then(|raw| raw["output"].as_str());
    content.extend(output.map(|text| CallContent::Text(fenced(text))));
}

/// Passes everything to the client that the session has now. While it has none, updates are noted and
/// questions wait.
pub(in crate::acp) struct RemoteClient {
    /// The folders of the session. Whoever takes it over must name the same.
    pub(super) cwd: PathBuf,
    pub(super) folders: Vec<PathBuf>,
    /// Its lock also keeps updates in order while a client takes over.
    // Held only to note an update and to queue it.
    state: watch::Sender<RemoteState>,
}

#[derive(Default)]
struct RemoteState {
    client: Option<CurrentClient>,
    journal: Journal,
    /// The calls whose commands go on in the background, in terminals that we draw.
    jobs: Vec<CallId>,
    /// True if nothing but answers to helpers in the background is left of the turn.
    has_open_questions: bool,
}

impl RemoteState {
    fn note_job(&mut self, update: &Update) {
        match update {
            Update::CallUpdate(call) => {
                let terminal = call.terminal.as_ref().filter(|terminal| terminal.goes_on);
                self.jobs.extend(terminal.map(|_| call.id.clone()));
            }
            Update::TerminalEnded { call, .. } => self.jobs.retain(|job| job != call),
            _ => {}
        }
    }
}

/// Repeats that the command of a call goes on, for a client that lists the work in the background.
fn still_runs(job: &CallId) -> Update {
    let mut update = CallUpdate::new(job.clone(), ToolCallStatus::InProgress);
    let exit = Some(TerminalExit::default());
    update.terminal = Some(TerminalDelta { exit, goes_on: true, ..TerminalDelta::default() });
    update.into()
}

impl RemoteClient {
    pub(in crate::acp) fn new(
        client: CurrentClient,
        cwd: PathBuf,
        folders: Vec<PathBuf>,
    ) -> RemoteClient {
        let state = RemoteState { client: Some(client), ..RemoteState::default() };
        RemoteClient { cwd, folders, state: watch::Sender::new(state) }
    }

    /// The connection of the client is lost. Its questions are asked again of the next one, if this is
    /// called before they fail.
    pub(in crate::acp) fn detach(&self) {
        self.state.send_modify(|state| {
            state.client = None;
            state.journal.mark_told();
        });
    }

    /// Makes this the client from now on. After a replay it gets what was not stored when
    /// the store was read, otherwise what the previous client was not told.
    pub(in crate::acp) fn attach(&self, client: CurrentClient, replayed: &Replayed, replay: bool) {
        self.state.send_modify(|state| {
            // Sent before the first state, which lists this work.
            for job in state.jobs.iter().filter(|_| client.client.follows_prompts()) {
                client.client.update(still_runs(job));
            }
            if let Some(prompt) = replayed.running {
                client.update(Update::TurnBegan(prompt), None);
            }
            for (turn, update) in state.journal.updates(replay.then_some(replayed)) {
                client.update(update, turn);
            }
            if replayed.running.is_none() {
                state.journal = Journal::default();
            } else if state.has_open_questions {
                client.client.report_open_questions();
            }
            state.client = Some(client);
        });
    }

    /// The turn of this prompt has ended, and everything that it has told is stored. Without a client it is
    /// kept: one that is taking over may have read the store before.
    pub(in crate::acp) fn forget_turn(&self, prompt: PromptKey) {
        self.change(|state| {
            if state.client.is_some() {
                state.journal.forget(prompt);
            }
        });
    }

    /// The session has been opened, and what was told until now is stored.
    pub(in crate::acp) fn forget_opening(&self) {
        self.change(|state| state.journal = Journal::default());
    }

    /// Changes the state. Nobody who waits for another client is woken.
    fn change(&self, change: impl FnOnce(&mut RemoteState)) {
        self.state.send_if_modified(|state| {
            change(state);
            false
        });
    }

    fn current(&self) -> Option<CurrentClient> {
        self.state.borrow().client.clone()
    }

    fn buffers(&self) -> Option<Arc<dyn EditorBuffers>> {
        self.current()?.buffers
    }

    /// The buffers of a client that is gone are gone with it. What it has refused before stays refused.
    fn unless_lost<T>(&self, result: Result<T, BufferError>) -> Result<T, BufferError> {
        match result {
            Err(BufferError::TimedOut) if self.state.borrow().client.is_none() => {
                Err(BufferError::NotFound)
            }
            result => result,
        }
    }

    /// Asks the client. A question that is lost with its connection is asked again of the next one.
    async fn ask<Q: Clone, T>(
        &self,
        question: Q,
        ask: for<'a> fn(&'a (dyn Client + 'static), Q) -> BoxFuture<'a, T>,
    ) -> T {
        let mut state = self.state.subscribe();
        loop {
            let client = state.borrow_and_update().client.clone();
            let Some(CurrentClient { client, .. }) = client else {
                // It fails only without a sender, which `self` is.
                state.changed().await.ok();
                continue;
            };
            tokio::select! {
                biased;
                _ = state.changed() => {}
                answer = ask(client.as_ref(), question.clone()) => return answer,
            }
        }
    }
}

impl Client for RemoteClient {
    fn update(&self, update: Update) {
        self.change(|state| {
            state.note_job(&update);
            state.has_open_questions &= !matches!(update, Update::TurnBegan(_));
            let turn = state.journal.turn_without_prompt();
            state.journal.note(&update, state.client.is_some());
            if let Some(client) = &state.client {
                client.update(update, turn);
            }
        });
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut state = self.state.subscribe();
            let current = state
                .wait_for(|state| state.client.is_some() || !state.journal.is_full())
                .await
                // It fails only without a sender, which `self` is.
                .ok()
                .and_then(|state| state.client.clone());
            if let Some(CurrentClient { client, .. }) = current {
                client.wait_for_capacity().await;
            }
        })
    }

    /// A client of version 2 may take over.
    fn follows_prompts(&self) -> bool {
        true
    }

    fn connection(&self) -> Option<ClientConnection> {
        let current = self.current()?;
        let number = current.own_prompts.start / PROMPT_KEYS_PER_CONNECTION;
        Some(ClientConnection { number, is_v2: current.client.follows_prompts() })
    }

    /// A command that begins without a client is shown as text, which every client shows.
    fn draws_terminals(&self) -> bool {
        self.current().is_some_and(|current| current.client.draws_terminals())
    }

    fn shows_suggestions(&self) -> bool {
        self.current().is_some_and(|current| current.client.shows_suggestions())
    }

    fn report_open_questions(&self) {
        self.change(|state| {
            state.has_open_questions = true;
            if let Some(current) = &state.client {
                current.client.report_open_questions();
            }
        });
    }

    fn request_permission(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(self.ask(request, Client::request_permission))
    }

    fn ask_user(&self, question: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(self.ask(question, Client::ask_user))
    }

    fn show_helper(&self, helper: &StartedHelper) -> Option<Box<dyn HelperView>> {
        self.current()?.client.show_helper(helper)
    }

    fn elicitation_modes(&self) -> ElicitationModes {
        self.current().map(|current| current.client.elicitation_modes()).unwrap_or_default()
    }

    fn show_form(&self, form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        Box::pin(self.ask(form, Client::show_form))
    }
}

impl EditorBuffers for RemoteClient {
    fn can_read(&self) -> bool {
        self.buffers().is_some_and(|buffers| buffers.can_read())
    }

    fn can_write(&self) -> bool {
        self.buffers().is_some_and(|buffers| buffers.can_write())
    }

    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>> {
        Box::pin(async move {
            let Some(buffers) = self.buffers() else { return Err(BufferError::NotFound) };
            let read = buffers.read(path).await;
            self.unless_lost(read)
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), BufferError>> {
        Box::pin(async move {
            let Some(buffers) = self.buffers() else { return Err(BufferError::NotFound) };
            let written = buffers.write(path, text).await;
            self.unless_lost(written)
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt;
    use parking_lot::Mutex;
    use turnwright_types::message::PromptPart;

    use super::*;

    /// Records what it is told.
    #[derive(Default)]
    struct ListeningClient {
        updates: Mutex<Vec<Update>>,
    }

    impl Client for ListeningClient {
        fn update(&self, update: Update) {
            self.updates.lock().push(update);
        }

        fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn request_permission(&self, _: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
            Box::pin(std::future::ready(PermissionAnswer::Cancelled))
        }

        fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
            Box::pin(std::future::ready(UserReply::Cancelled))
        }
    }

    fn text(text: &str) -> Update {
        Update::AgentText { message: text.into(), text: text.to_owned() }
    }

    fn prompt(message: &str) -> Update {
        let parts = vec![PromptPart::Text(message.to_owned()), PromptPart::Context("x".to_owned())];
        Update::UserMessage { prompt: None, message: message.into(), parts }
    }

    fn shown_prompt(message: &str) -> Update {
        let part = PromptPart::Text(message.to_owned());
        Update::UserChunk { message: message.into(), part }
    }

    fn remote(client: CurrentClient) -> RemoteClient {
        RemoteClient::new(client, PathBuf::new(), Vec::new())
    }

    /// A client of version 1 whose prompts have these keys.
    fn client(own_prompts: Range<PromptKey>) -> (Arc<ListeningClient>, CurrentClient) {
        let recording = Arc::new(ListeningClient::default());
        let client = Arc::clone(&recording) as Arc<dyn Client>;
        (recording, CurrentClient { client, buffers: None, own_prompts })
    }

    #[test]
    fn what_ends_while_a_client_takes_over_is_told_once() {
        let (_, first) = client(0..10);
        let remote = remote(first);
        remote.update(Update::TurnBegan(1));
        remote.detach();
        // The second client has read the store before this was there.
        remote.update(text("late"));
        remote.forget_turn(1);
        let (second, current) = client(10..20);
        remote.attach(current, &Replayed::default(), true);
        assert_eq!(*second.updates.lock(), [text("late")]);
        remote.detach();
        let (third, current) = client(20..30);
        remote.attach(current, &Replayed::default(), false);
        assert_eq!(*third.updates.lock(), []);
    }

    #[test]
    fn what_was_told_while_the_session_opened_is_not_told_again() {
        let (_, first) = client(0..10);
        let remote = remote(first);
        remote.detach();
        remote.update(text("stored"));
        remote.forget_opening();
        let (second, current) = client(10..20);
        remote.attach(current, &Replayed::default(), false);
        assert_eq!(*second.updates.lock(), []);
    }

    #[tokio::test]
    async fn a_turn_without_a_client_waits_when_too_much_is_not_stored() {
        let (_, first) = client(0..10);
        let remote = remote(first);
        remote.update(Update::TurnBegan(1));
        let mebibyte = "x".repeat(1024 * 1024);
        for _ in 0..5 {
            remote.update(Update::AgentText { message: "long".into(), text: mebibyte.clone() });
        }
        assert!(remote.wait_for_capacity().now_or_never().is_some(), "a client is there");
        remote.detach();
        let mut waiting = remote.wait_for_capacity();
        assert!((&mut waiting).now_or_never().is_none());
        let (second, current) = client(10..20);
        let replayed = Replayed { running: Some(1), ..Replayed::default() };
        remote.attach(current, &replayed, true);
        waiting.await;
        let told: usize = second
            .updates
            .lock()
            .iter()
            .map(|update| match update {
                Update::AgentText { text, .. } => text.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(told, 5 * mebibyte.len(), "nothing is lost");
    }

    #[test]
    fn a_refusal_outlives_the_client_that_gave_it() {
        let (_, first) = client(0..10);
        let remote = remote(first);
        let refused = || Err::<(), _>(BufferError::Refused("no".to_owned()));
        assert_eq!(
            remote.unless_lost(Err::<(), _>(BufferError::TimedOut)),
            Err(BufferError::TimedOut)
        );
        remote.detach();
        assert_eq!(remote.unless_lost(refused()), refused());
        assert_eq!(
            remote.unless_lost(Err::<(), _>(BufferError::TimedOut)),
            Err(BufferError::NotFound)
        );
    }

    #[test]
    fn a_client_is_shown_the_prompts_of_others_and_not_its_own() {
        let (first, current) = client(0..10);
        let remote = remote(current);
        remote.update(Update::TurnBegan(1));
        remote.update(prompt("own"));
        assert_eq!(*first.updates.lock(), [Update::TurnBegan(1)]);
        remote.detach();
        remote.update(Update::TurnBegan(2));
        remote.update(prompt("detached"));
        let (second, current) = client(10..20);
        let replayed = Replayed { running: Some(2), ..Replayed::default() };
        remote.attach(current, &replayed, false);
        for key in [3, 10] {
            remote.update(Update::TurnBegan(key));
            remote.update(prompt(&key.to_string()));
            // Words that are no prompt.
            remote.update(prompt("steer"));
        }
        let updates = second.updates.lock();
        let shown: Vec<_> = updates
            .iter()
            .filter(|update| !matches!(update, Update::TurnBegan(_)))
            .cloned()
            .collect();
        assert_eq!(shown, [shown_prompt("detached"), shown_prompt("3")]);
    }
}
