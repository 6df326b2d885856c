//! The client as a session sees it: updates, questions and open files, in the words of the wire.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::caps::ClientCaps;
use super::inquire;
use super::terminals::Shown;
use super::to_wire;
use super::wire::schema::{
    ReadTextFileRequest, SessionId, SessionNotification, WriteTextFileRequest,
};
use turnwright_types::client::{
    Answer, BufferError, Buffers, ChoiceKind, Client, Filled, Form, Inquiry, Question, Reply,
};
use turnwright_types::ids;
use turnwright_rpc::{Peer, RequestFailed};
use turnwright_types::update::Update;

/// A person may be away for long; a day is as good as never.
const ASKING: Duration = Duration::from_secs(24 * 60 * 60);
/// An editor that serves a file does so at once.
const READING: Duration = Duration::from_secs(5);
/// An editor may show the change to the user first.
const WRITING: Duration = Duration::from_secs(60);

/// The client's codes for a file that does not exist, and for a method that it only claims to
/// have: either way the disk is what is left.
const NOT_FOUND: i32 = -32002;
const NO_SUCH_METHOD: i32 = -32601;

/// The client of one session.
#[derive(Debug)]
pub(super) struct AcpClient {
    pub(super) peer: Peer,
    pub(super) session: SessionId,
    pub(super) caps: ClientCaps,
    cwd: PathBuf,
    pub(super) shown: Shown,
    /// The user has one question before them at a time, of whatever sort.
    questions: Semaphore,
}

impl AcpClient {
    pub(super) fn new(
        peer: Peer,
        session: &ids::SessionId,
        caps: ClientCaps,
        cwd: PathBuf,
    ) -> AcpClient {
        let session = SessionId::new(session.to_arc());
        let questions = Semaphore::new(1);
        AcpClient { peer, session, caps, cwd, shown: Shown::default(), questions }
    }
}

impl Client for AcpClient {
    fn update(&self, update: Update) {
        let free = self.shown.look(&update);
        let update = to_wire::update(update, self.caps, &self.cwd);
        let params = SessionNotification::new(self.session.clone(), update);
        self.peer.outbox().notify("session/update", &params);
        for terminal in free {
            self.give_back(&terminal);
        }
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.peer.outbox().room())
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            let Ok(_turn) = self.questions.acquire().await else { return Answer::Cancelled };
            let offered: Vec<_> = question.choices.iter().map(|it| it.kind).collect();
            let params = to_wire::question(self.session.clone(), question);
            match self.peer.request("session/request_permission", &params, ASKING).await {
                Ok(result) => answer(&result, &offered),
                Err(error) => Answer::Unclear(error.to_string()),
            }
        })
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, Reply> {
        Box::pin(async {
            let Ok(_turn) = self.questions.acquire().await else { return Reply::Cancelled };
            let (session, has_forms) = (self.session.clone(), self.caps.forms);
            inquire::inquire(&self.peer, session, has_forms, inquiry, ASKING).await
        })
    }

    fn has_forms(&self) -> bool {
        self.caps.forms
    }

    fn fill(&self, form: Form) -> BoxFuture<'_, Filled> {
        Box::pin(async {
            if !self.caps.forms {
                return Filled::Declined;
            }
            let Ok(_turn) = self.questions.acquire().await else { return Filled::Cancelled };
            inquire::fill(&self.peer, self.session.clone(), form, ASKING).await
        })
    }
}

/// Only the exact form of an offered yes is a yes (R-PERM-6).
pub(super) fn answer(result: &RawValue, offered: &[ChoiceKind]) -> Answer {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match text("/outcome/outcome") {
        Some("cancelled") => Answer::Cancelled,
        Some("selected") => {
            let id = text("/outcome/optionId").unwrap_or_default();
            let chosen = offered.iter().find(|it| to_wire::option_id(**it) == id);
            chosen.map_or_else(
                || Answer::Unclear("the client chose an option that was not offered".to_owned()),
                |it| Answer::Chosen(*it),
            )
        }
        _ => Answer::Unclear("the client's answer could not be understood".to_owned()),
    }
}

impl Buffers for AcpClient {
    fn can_read(&self) -> bool {
        self.caps.read
    }

    fn can_write(&self) -> bool {
        self.caps.write
    }

    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>> {
        Box::pin(async move {
            // Always the whole file: some clients get `line` and `limit` wrong.
            let params = ReadTextFileRequest::new(self.session.clone(), path);
            let result = self.peer.request("fs/read_text_file", &params, READING).await;
            let value: Value =
                serde_json::from_str(result.map_err(|it| explain(&it))?.get()).unwrap_or_default();
            match value {
                Value::String(text) => Ok(text),
                other => other
                    .get("content")
                    .and_then(Value::as_str)
                    .map(str::to_owned)
                    .ok_or_else(|| BufferError::Refused("it sent no content".to_owned())),
            }
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), BufferError>> {
        Box::pin(async move {
            let params = WriteTextFileRequest::new(self.session.clone(), path, text);
            let result = self.peer.request("fs/write_text_file", &params, WRITING).await;
            match serde_json::from_str(result.map_err(|it| explain(&it))?.get()) {
                // One client reports a failed write as a text.
                Ok(Value::String(text)) if !text.is_empty() => Err(BufferError::Refused(text)),
                _ => Ok(()),
            }
        })
    }
}

fn explain(error: &RequestFailed) -> BufferError {
    let RequestFailed::Refused(error) = error else { return BufferError::Silent };
    if matches!(error.code, NOT_FOUND | NO_SUCH_METHOD) {
        return BufferError::NotFound;
    }
    // What a client wants to be done instead stands in its data.
    let more = error.data.as_ref().filter(|it| !it.is_null()).map(ToString::to_string);
    let text = [Some(error.message.clone()), more].into_iter().flatten().collect::<Vec<_>>();
    BufferError::Refused(text.join(" "))
}
