//! The fixture that tests of turns and sessions share: a model that plays a script in memory, and a
//! client that records its updates. Everything else is real.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::submissions::Submissions;
use super::{
    CancellableCalls, Conversation, SharedGrants, SharedModelSelection, SharedSpending, Told,
};
use crate::error::Error;
use crate::tools::{AnyTool, SharedValue, ToolEnv, ToolIndex, Toolbox, built_in};
use turnwright_llm::{
    Delta, DeltaBatch, EndReason, ErrorKind, LlmError, Model, ReasoningEffort, Reply, ReplyCall,
    ReplyStream, Request,
};
use turnwright_store::{SessionLog, SessionRow, Store};
use turnwright_types::client::{
    ChoiceKind, Client, PermissionAnswer, PermissionRequest, UserQuestion, UserReply,
};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Arguments, ProviderState};
use turnwright_types::update::Update;
use turnwright_types::work_settings::WorkSettings;
use turnwright_workspace::files::{Files, Roots};

#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Text(&'static str),
    Calls(Vec<(&'static str, serde_json::Value)>),
    /// Fails with 503 after this time.
    FailAfter(Duration),
    /// Sends these words, each after this time.
    Slow(Duration, &'static [&'static str]),
    Panic,
    /// Sends the name of a tool, then panics.
    HalfCall(&'static str),
    /// Starts and never sends anything.
    Hang,
}

#[derive(Debug, Default)]
struct ScriptedModel(Mutex<VecDeque<ScriptedReply>>);

impl std::fmt::Debug for ScriptedReply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScriptedReply")
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &'static str {
        "script"
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn open_stream<'a>(
        &'a self,
        _: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        let reply = self.0.lock().pop_front().unwrap_or(ScriptedReply::Text("Nothing more."));
        async move {
            match reply {
                ScriptedReply::FailAfter(delay) => {
                    tokio::time::sleep(delay).await;
                    Err(unavailable())
                }
                ScriptedReply::Panic => panic!("the script says so"),
                reply => Ok(Box::new(ScriptedStream { reply, due: None }) as Box<dyn ReplyStream>),
            }
        }
        .boxed()
    }
}

fn unavailable() -> LlmError {
    LlmError::Status {
        host: "script".into(),
        status: 503,
        proxy: None,
        message: "no".to_owned(),
        retry_after: None,
        kind: ErrorKind::Unavailable,
        key_advice: None,
        failed_generation: None,
    }
}

struct ScriptedStream {
    reply: ScriptedReply,
    /// When the next word of a slow reply arrives.
    due: Option<Instant>,
}

impl ReplyStream for ScriptedStream {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        async move {
            if matches!(self.reply, ScriptedReply::Hang) {
                return std::future::pending().await;
            }
            if let ScriptedReply::Slow(delay, [word, words @ ..]) = self.reply {
                sleep_until(*self.due.get_or_insert_with(|| Instant::now() + delay)).await;
                batch.push_text(word);
                self.due = None;
                self.reply = ScriptedReply::Slow(delay, words);
                return Ok(None);
            }
            let calls = match std::mem::replace(&mut self.reply, ScriptedReply::Calls(Vec::new())) {
                ScriptedReply::Text(text) => {
                    batch.push_text(text);
                    Vec::new()
                }
                ScriptedReply::Calls(calls) => calls,
                ScriptedReply::HalfCall(name) => {
                    batch.deltas.push(Delta::CallNamed { slot: 0, name: name.to_owned() });
                    self.reply = ScriptedReply::Panic;
                    return Ok(None);
                }
                ScriptedReply::Panic => panic!("the script says so"),
                ScriptedReply::FailAfter(_) | ScriptedReply::Hang | ScriptedReply::Slow(..) => {
                    Vec::new()
                }
            };
            let call = |(slot, (name, arguments)): (usize, (&str, serde_json::Value))| {
                batch.deltas.push(Delta::CallNamed { slot, name: name.to_owned() });
                let arguments = Arguments::Object(arguments);
                ReplyCall {
                    extra: None,
                    slot,
                    provider_id: format!("p{slot}"),
                    name: name.to_owned(),
                    arguments,
                }
            };
            let calls = calls.into_iter().enumerate().map(call).collect();
            Ok(Some(Reply {
                end: EndReason::Complete,
                calls,
                has_lost_calls: false,
                usage: None,
                cost: None,
                served: String::new(),
                provider_state: ProviderState::default(),
            }))
        }
        .boxed()
    }
}

/// Records all updates. Answers each question with yes, or never if `never_answers` is set.
#[derive(Default)]
pub(crate) struct RecordingClient {
    pub(crate) updates: Mutex<Vec<Update>>,
    never_answers: bool,
    /// The time after which a question about a permission is answered; `None` for at once.
    pub(crate) answer_delay: Mutex<Option<Duration>>,
    /// Notified when a caller starts to wait for something that never comes.
    pub(crate) stuck: Notify,
    /// How often `wait_for_capacity` still returns at once; `None` for always.
    pub(crate) capacity_left: Mutex<Option<u32>>,
}

impl Client for RecordingClient {
    fn update(&self, update: Update) {
        self.updates.lock().push(update);
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        if let Some(left) = self.capacity_left.lock().as_mut() {
            if *left == 0 {
                self.stuck.notify_one();
                return std::future::pending().boxed();
            }
            *left -= 1;
        }
        std::future::ready(()).boxed()
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        std::future::ready(UserReply::Unsupported).boxed()
    }

    fn request_permission(&self, _: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        if self.never_answers {
            self.stuck.notify_one();
            return std::future::pending().boxed();
        }
        let delay = *self.answer_delay.lock();
        async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            PermissionAnswer::Chosen(ChoiceKind::AllowOnce)
        }
        .boxed()
    }
}

impl RecordingClient {
    /// The final status of each card, in the order of their arrival.
    pub(crate) fn final_statuses(&self) -> Vec<String> {
        let updates = self.updates.lock();
        let last = |update: &Update| match update {
            Update::CallUpdate(call) if call.status.is_final() => {
                Some(format!("{} {:?}", call.id, call.status))
            }
            _ => None,
        };
        updates.iter().filter_map(last).collect()
    }
}

/// The conversation of a turn and the client that it talks to.
pub(crate) struct TurnFixture {
    pub(crate) client: Arc<RecordingClient>,
    pub(crate) conversation: Conversation,
    pub(crate) cancel: CancellationToken,
    _workspace: tempfile::TempDir,
}

/// A fixture whose model sends these replies. `extra` is one more tool.
pub(crate) fn turn_fixture(
    replies: Vec<ScriptedReply>,
    never_answers: bool,
    extra: Option<Arc<dyn AnyTool>>,
) -> TurnFixture {
    let workspace = tempfile::tempdir().unwrap();
    let client = Arc::new(RecordingClient { never_answers, ..RecordingClient::default() });
    let mut tools = built_in();
    tools.extend(extra);
    let env = ToolEnv::new(
        Arc::default(),
        SessionId::from("fixture"),
        Files::new(Roots::new(workspace.path()).unwrap(), None),
        Arc::clone(&client) as Arc<dyn Client>,
        None,
    );
    let conversation = Conversation {
        system_prompt: crate::turn::prompt::SYSTEM_PROMPT.into(),
        selection: SharedModelSelection::new(
            Arc::new(ScriptedModel(Mutex::new(replies.into()))),
            ReasoningEffort::Default,
        ),
        tools: Arc::new(Toolbox::new(Arc::new(ToolIndex::new(tools)))),
        env: Arc::new(env),
        told: Told::default(),
        submissions: Submissions::default(),
        grants: SharedGrants::default(),
        checks: SharedValue::default(),
        max_requests: 10,
        work: Arc::new(WorkSettings { find_checks: false, ..WorkSettings::default() }),
        limits: super::SpendingLimits::new(true),
        spending: SharedSpending::default(),
        queue: Arc::default(),
        cancellable: CancellableCalls::default(),
        find_model: Arc::new(|_: &str| Err(Error::Cancelled)),
    };
    TurnFixture { client, conversation, cancel: CancellationToken::new(), _workspace: workspace }
}

/// A store in memory with one session, and the log of that session.
pub(crate) async fn store_with_session() -> (Store, SessionLog) {
    let store = Store::new(std::path::Path::new(""));
    let id = SessionId::from("fixture");
    let log = SessionLog::new(store.clone(), id.clone());
    log.create_session(SessionRow::new(id, "/w".into())).written().await;
    (store, log)
}
