//! The client of a session that is served over a network: the connection may be lost, and another client may
//! take over.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::journal::Journal;
use crate::session::Replayed;
use turnwright_types::client::{
    BufferError, Client, EditorBuffers, FormOutcome, HelperSession, HelperView, PermissionAnswer,
    PermissionRequest, ServerForm, UserQuestion, UserReply,
};
use turnwright_types::update::{PromptKey, Update};

/// The client that a session has now, with its buffers if it offers any.
#[derive(Clone)]
pub(in crate::acp) struct CurrentClient {
    pub(in crate::acp) client: Arc<dyn Client>,
    pub(in crate::acp) buffers: Option<Arc<dyn EditorBuffers>>,
}

/// Passes everything to the client that the session has now. While it has none, updates are noted and
/// questions wait.
pub(in crate::acp) struct RemoteClient {
    current: watch::Sender<Option<CurrentClient>>,
    /// Also keeps updates in order while a client takes over.
    // Held only to note an update and to queue it.
    journal: Mutex<Journal>,
}

impl RemoteClient {
    pub(in crate::acp) fn new(client: CurrentClient) -> RemoteClient {
        RemoteClient { current: watch::Sender::new(Some(client)), journal: Mutex::default() }
    }

    /// The connection of the client is lost. Its questions are asked again of the next one, if this is
    /// called before they fail.
    pub(in crate::acp) fn detach(&self) {
        self.current.send_replace(None);
        self.journal.lock().mark_told();
    }

    /// Makes this the client from now on. It has got a replay, or else it gets what the last one was not
    /// told.
    pub(in crate::acp) fn attach(&self, client: CurrentClient, replayed: &Replayed, replay: bool) {
        let journal = self.journal.lock();
        if let Some(prompt) = replayed.running {
            client.client.update(Update::TurnBegan(prompt));
        }
        for update in journal.updates(replay.then_some(replayed)) {
            client.client.update(update);
        }
        self.current.send_replace(Some(client));
    }

    /// The turn of this prompt has ended, and everything that it has told is stored.
    pub(in crate::acp) fn forget_turn(&self, prompt: PromptKey) {
        self.journal.lock().forget(prompt);
    }

    fn current(&self) -> Option<CurrentClient> {
        self.current.borrow().clone()
    }

    fn buffers(&self) -> Option<Arc<dyn EditorBuffers>> {
        self.current()?.buffers
    }

    /// A client that is gone has refused nothing: its buffers are gone with it.
    fn unless_lost<T>(&self, result: Result<T, BufferError>) -> Result<T, BufferError> {
        match result {
            Err(_) if self.current.borrow().is_none() => Err(BufferError::NotFound),
            result => result,
        }
    }

    /// Asks the client. A question that is lost with its connection is asked again of the next one.
    async fn ask<T>(&self, ask: impl Fn(Arc<dyn Client>) -> BoxFuture<'static, T>) -> T {
        let mut current = self.current.subscribe();
        loop {
            let client = current.borrow_and_update().clone();
            let Some(CurrentClient { client, .. }) = client else {
                // It fails only without a sender, which `self` is.
                drop(current.changed().await);
                continue;
            };
            tokio::select! {
                biased;
                _ = current.changed() => {}
                answer = ask(client) => return answer,
            }
        }
    }
}

impl Client for RemoteClient {
    fn update(&self, update: Update) {
        let mut journal = self.journal.lock();
        journal.note(&update);
        if let Some(CurrentClient { client, .. }) = self.current() {
            client.update(update);
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(CurrentClient { client, .. }) = self.current() {
                client.wait_for_capacity().await;
            }
        })
    }

    /// A client of version 2 may take over.
    fn follows_prompts(&self) -> bool {
        true
    }

    fn request_permission(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(self.ask(move |client| {
            let request = request.clone();
            Box::pin(async move { client.request_permission(request).await })
        }))
    }

    fn ask_user(&self, question: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(self.ask(move |client| {
            let question = question.clone();
            Box::pin(async move { client.ask_user(question).await })
        }))
    }

    fn show_helper(&self, helper: &HelperSession) -> Option<Box<dyn HelperView>> {
        self.current()?.client.show_helper(helper)
    }

    fn supports_forms(&self) -> bool {
        self.current().is_some_and(|it| it.client.supports_forms())
    }

    fn show_form(&self, form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        Box::pin(self.ask(move |client| {
            let form = form.clone();
            Box::pin(async move { client.show_form(form).await })
        }))
    }
}

impl EditorBuffers for RemoteClient {
    fn can_read(&self) -> bool {
        self.buffers().is_some_and(|it| it.can_read())
    }

    fn can_write(&self) -> bool {
        self.buffers().is_some_and(|it| it.can_write())
    }

    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>> {
        Box::pin(async move {
            match self.buffers() {
                Some(buffers) => {
                    let read = buffers.read(path).await;
                    self.unless_lost(read)
                }
                None => Err(BufferError::NotFound),
            }
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), BufferError>> {
        Box::pin(async move {
            match self.buffers() {
                Some(buffers) => {
                    let written = buffers.write(path, text).await;
                    self.unless_lost(written)
                }
                None => Err(BufferError::NotFound),
            }
        })
    }
}
