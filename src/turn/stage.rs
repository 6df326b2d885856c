//! A stage for tests: a model that plays a script in memory and a client that writes down what
//! it hears. Everything else is real.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Equipment, SharedLaw, SharedMode, SharedThinker, ToldMode};
use turnwright_types::client::{Answer, ChoiceKind, Client, Display, Inquiry, Question, Reply as UserReply};
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{Files, Roots};
use turnwright_types::ids::SessionId;
use turnwright_llm::{
    Batch, Delta, Effort, End, Kind, LlmError, Model, Reply, ReplyCall, ReplyStream, Request,
};
use turnwright_types::message::{Arguments, Echo};
use crate::tools::{AnyTool, Bench, Commons, Lent, Registry, Toolbox, built_in};
use turnwright_store::{Log, SessionRow, Store};
use turnwright_types::update::{Status, Update};

/// One reply of the scripted model.
#[derive(Clone)]
pub(crate) enum Play {
    Text(&'static str),
    Calls(Vec<(&'static str, serde_json::Value)>),
    Fail(u16),
    Panic,
    /// Names a tool, then panics.
    HalfCall(&'static str),
    /// Begins and never goes on.
    Hang,
}

#[derive(Debug, Default)]
struct Script(Mutex<VecDeque<Play>>);

impl std::fmt::Debug for Play {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Play")
    }
}

impl Model for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn open<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        let play = self.0.lock().unwrap().pop_front().unwrap_or(Play::Text("Nothing more."));
        async move {
            match play {
                Play::Fail(status) => Err(LlmError::Status {
                    host: "script".to_owned(),
                    status,
                    message: "no".to_owned(),
                    retry_after: None,
                    kind: Kind::Unavailable,
                    leaked: None,
                }),
                Play::Panic => panic!("the script says so"),
                play => Ok(Box::new(Playing(play)) as Box<dyn ReplyStream>),
            }
        }
        .boxed()
    }
}

struct Playing(Play);

impl ReplyStream for Playing {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        async move {
            let calls = match std::mem::replace(&mut self.0, Play::Calls(Vec::new())) {
                Play::Text(text) => {
                    batch.text(text);
                    Vec::new()
                }
                Play::Hang => return std::future::pending().await,
                Play::Calls(calls) => calls,
                Play::HalfCall(name) => {
                    batch.deltas.push(Delta::CallNamed { slot: 0, name: name.to_owned() });
                    self.0 = Play::Panic;
                    return Ok(None);
                }
                Play::Panic => panic!("the script says so"),
                Play::Fail(_) => Vec::new(),
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
            Ok(Some(Reply { end: End::Complete, calls, usage: None, echo: Echo::default() }))
        }
        .boxed()
    }
}

/// Hears everything and says yes, or nothing at all.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) updates: Mutex<Vec<Update>>,
    silent: bool,
    /// Told when somebody waits for it in vain.
    pub(crate) stuck: Notify,
    /// How often it still has room; `None` for always.
    pub(crate) room_left: Mutex<Option<u32>>,
}

impl Client for Recorder {
    fn update(&self, update: Update) {
        self.updates.lock().unwrap().push(update);
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        if let Some(left) = self.room_left.lock().unwrap().as_mut() {
            if *left == 0 {
                self.stuck.notify_one();
                return std::future::pending().boxed();
            }
            *left -= 1;
        }
        std::future::ready(()).boxed()
    }

    fn inquire(&self, _: Inquiry) -> BoxFuture<'_, UserReply> {
        std::future::ready(UserReply::Impossible).boxed()
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Answer> {
        if self.silent {
            self.stuck.notify_one();
            return std::future::pending().boxed();
        }
        std::future::ready(Answer::Chosen(ChoiceKind::AllowOnce)).boxed()
    }
}

impl Recorder {
    /// The final status of each card, in the order of their coming.
    pub(crate) fn finals(&self) -> Vec<String> {
        let updates = self.updates.lock().unwrap();
        let last = |update: &Update| match update {
            Update::CallUpdate(it) if matches!(it.status, Status::Completed | Status::Failed) => {
                Some(format!("{} {:?}", it.id, it.status))
            }
            _ => None,
        };
        updates.iter().filter_map(last).collect()
    }
}

/// What a turn needs, and who watches.
pub(crate) struct Stage {
    pub(crate) client: Arc<Recorder>,
    pub(crate) equipment: Equipment,
    pub(crate) cancel: CancellationToken,
    _workspace: tempfile::TempDir,
}

/// A stage on which this script is played, with one more tool.
pub(crate) fn stage(plays: Vec<Play>, silent: bool, extra: Option<Arc<dyn AnyTool>>) -> Stage {
    let workspace = tempfile::tempdir().unwrap();
    let client = Arc::new(Recorder { silent, ..Recorder::default() });
    let mut tools = built_in();
    tools.extend(extra);
    let mode = SharedMode::default();
    let mut bench = Bench::new(
        SessionId::from("stage"),
        Files::new(Roots::new(workspace.path()).unwrap(), None),
        Environment::default(),
        Arc::clone(&client) as Arc<dyn Client>,
        Display::Text,
        Arc::new(Commons::default()),
    );
    bench.mode = mode.clone();
    let equipment = Equipment {
        thinker: SharedThinker::new(Arc::new(Script(Mutex::new(plays.into()))), Effort::Default),
        tools: Arc::new(Toolbox::new(Arc::new(Registry::new(tools)), Lent::default())),
        bench: Arc::new(bench),
        mode,
        told_mode: ToldMode::default(),
        law: SharedLaw::default(),
        max_requests: 10,
        knows_of_cuts: Arc::default(),
    };
    Stage { client, equipment, cancel: CancellationToken::new(), _workspace: workspace }
}

/// A store in memory with one session, and the log that writes that session.
pub(crate) async fn store_with_session() -> (Store, Log) {
    let (store, id) = (Store::in_memory(), SessionId::from("stage"));
    let log = Log::new(store.clone(), id.clone());
    log.create(SessionRow::new(id, "/w".into())).written().await;
    (store, log)
}
