//! `agent`: gives a task to a helper, which works on it in a conversation of its own. The turn runs the helpers;
//! the session's set of them knows their types, those in the background, and the tokens that were used.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::arguments::{ArgumentRole, ShownArgument};
use super::{CallPlan, CallSite, OfferContext, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_types::client::{Client, HelperView, StartedHelper};
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line, shorten_title};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{TokenUsage, ToolSpec};
use turnwright_types::text;
use turnwright_types::update::Update;
use turnwright_workspace::helper_types::HelperType;
use turnwright_workspace::skills::slug;

/// The name of the tool.
pub(crate) const AGENT_TOOL: &str = "agent";
/// The longest prompt of a helper, in bytes.
const MAX_PROMPT_BYTES: usize = 64 * 1024;
/// The type of a helper if the model names none.
const DEFAULT_TYPE: &str = "general";

/// The most helpers of a session that work at the same time; others wait.
const MAX_WORKING: u8 = 4;
/// The most helpers in the background, working or waiting.
const MAX_IN_BACKGROUND: usize = 16;
/// The most notices that are kept for the user.
const MAX_NOTICES: usize = 20;

/// The tools of the type `explore`.
const EXPLORE_TOOLS: &[&str] =
    &["read_file", "list_dir", "find_files", "grep", "web_fetch", "web_search"];
const EXPLORE: &str = "Only find out and report; you cannot change anything.";

/// Give a task to a helper. It knows only the prompt; you get its answer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Agent {
    /// A few words for the user
    #[serde(default, alias = "title")]
    description: String,
    /// The whole task, with all that it has to know
    #[serde(alias = "task")]
    prompt: String,
    /// explore (reads only) or general
    #[serde(rename = "type", alias = "subagent_type", alias = "agent")]
    kind: Option<String>,
    /// Do not wait
    #[serde(alias = "run_in_background")]
    background: Option<bool>,
}

impl Agent {
    fn kind(&self) -> &str {
        self.kind.as_deref().map(str::trim).filter(|kind| !kind.is_empty()).unwrap_or(DEFAULT_TYPE)
    }

    /// The task in one line.
    fn title(&self) -> String {
        let texts = [self.description.trim(), self.prompt.trim()];
        let text = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        shorten_title(escape_hidden_line(text::first_line(text)))
    }
}

/// Returns true if a call with these arguments starts a helper with a tool for which `is_edit` returns true.
pub(crate) fn may_edit(
    arguments: &Value,
    helpers: &HelperSet,
    is_edit: impl Fn(&str) -> bool,
) -> bool {
    let args = serde_json::from_value::<Agent>(arguments.clone()).ok();
    let kind = args.and_then(|args| helpers.find_type(args.kind()).ok());
    kind.is_some_and(|kind| kind.tools.is_none_or(|tools| tools.iter().any(|tool| is_edit(tool))))
}

impl Tool for Agent {
    const NAME: &'static str = AGENT_TOOL;
    const KIND: ToolKind = ToolKind::Think;
    const PENDING_TITLE: &'static str = "Helper";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] =
        &[ShownArgument { name: "description", role: ArgumentRole::Name }];
    const RUNS_CALLS: bool = true;
    type Preview = ();

    fn is_offered(offer: &OfferContext) -> bool {
        offer.helpers.is_some()
    }

    fn adapt_spec(spec: &mut ToolSpec, offer: &OfferContext) {
        let own = offer.helpers.as_deref().unwrap_or_default();
        if let Some(Value::String(text)) =
            spec.parameters.pointer_mut("/properties/type/description")
        {
            text.extend(own.iter().map(|line| format!("; {line}")));
        }
    }

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        // The helper's own calls are judged one by one.
        CallPlan::in_session(view(self))
    }

    async fn run(self, (): (), _: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(runner) = ctx.helpers.clone() else {
            return Err("There are no helpers here. Do the task yourself.".into());
        };
        if self.prompt.trim().is_empty() || self.prompt.len() > MAX_PROMPT_BYTES {
            return Err(format!(
                "`prompt` must have 1 to {MAX_PROMPT_BYTES} bytes. No helper was started."
            )
            .into());
        }
        let kind = ctx.env.helpers.find_type(self.kind()).map_err(|known| {
            let name = escape_hidden_line(self.kind());
            format!("There is no helper `{name}`. No helper was started. There are: {known}.")
        })?;
        let view = view(&self);
        let title = self.title();
        let in_background = self.background.unwrap_or(false);
        let task = HelperTask { kind, title, view, prompt: self.prompt, in_background };
        Ok(runner.run(task, ctx).await)
    }
}

fn view(args: &Agent) -> CallView {
    let title = format!("{}: {}", escape_hidden_line(args.kind()), args.title());
    CallView::new(shorten_title(title), Agent::KIND)
}

/// The task of a helper.
#[derive(Clone, Debug)]
pub struct HelperTask {
    pub kind: HelperType,
    /// The task in a few words.
    pub title: String,
    /// The card of the call.
    pub view: CallView,
    pub prompt: String,
    /// The call returns at once, and the model is told when the helper is done.
    pub in_background: bool,
}

/// Runs helpers for the tool `agent`. A turn implements it for its calls.
pub trait HelperRunner: Debug + Send + Sync {
    /// Runs a helper to its end and returns its answer, or starts it in the background.
    fn run(&self, task: HelperTask, ctx: &ToolCtx) -> BoxFuture<'static, ToolOutcome>;
}

/// The helpers of a session. The default has none and starts none, as in a helper itself.
pub struct HelperSet {
    /// One line for each type that users have defined; `None` if no helper may be started.
    catalogue: Option<Arc<[String]>>,
    types: Vec<HelperType>,
    slots: Arc<Semaphore>,
    tracker: TaskTracker,
    stop: CancellationToken,
    // Held only to look at a few values, and while an update is queued.
    state: Mutex<HelperSetState>,
}

#[derive(Default)]
struct HelperSetState {
    /// Cancels the helpers that are in the background now.
    background: Option<CancellationToken>,
    /// The helpers that wait or work, by their sessions.
    running: HashMap<SessionId, RunningHelper>,
    /// Texts for the model about helpers that have ended.
    news: Vec<String>,
    /// Notices for the user about them.
    notices: Vec<String>,
    /// The tokens of all requests of this conversation.
    usage: TokenUsage,
    /// The running turn, in which the user can be asked, and the open questions.
    turn: Option<(CancellationToken, TaskTracker)>,
}

/// A helper that waits or works.
struct RunningHelper {
    started: StartedHelper,
    /// Cancels only this helper.
    cancel: CancellationToken,
    /// The number of its open questions.
    questions: u32,
    /// Its conversation in the client, if that shows it.
    shown: Option<Box<dyn HelperView>>,
}

/// Lets a helper in the background ask the user. The running turn does not end before this is dropped.
#[derive(Debug)]
pub(crate) struct QuestionTurn {
    /// Cancelled with the turn.
    pub(crate) cancel: CancellationToken,
    _open: TaskTrackerToken,
}

impl Default for HelperSet {
    fn default() -> HelperSet {
        HelperSet {
            catalogue: None,
            types: Vec::new(),
            slots: Arc::new(Semaphore::new(MAX_WORKING.into())),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            state: Mutex::default(),
        }
    }
}

impl HelperSet {
    /// The helpers of a session whose users have defined these types. They come before the built-in ones
    /// of the same name.
    pub fn new(types: Vec<HelperType>) -> HelperSet {
        let lines = types.iter().map(|kind| format!("{}: {}", kind.name, kind.description));
        let catalogue = Some(lines.collect());
        HelperSet { catalogue, types, ..HelperSet::default() }
    }

    /// One line for each type that users have defined; `None` if the model cannot start helpers.
    pub fn catalogue(&self) -> Option<Arc<[String]>> {
        self.catalogue.clone()
    }

    /// The type with this name. It may be written with capitals and blanks, or be `general-purpose`, as other agents
    /// call the general type.
    ///
    /// # Errors
    /// The known names, if it is none of them.
    fn find_type(&self, name: &str) -> Result<HelperType, String> {
        let built_in =
            [built_in("explore", Some(EXPLORE_TOOLS), EXPLORE), built_in("general", None, "")];
        let types = self.types.iter().chain(&built_in);
        let wanted = slug(name).unwrap_or_default();
        let general = (wanted == "general-purpose").then_some(DEFAULT_TYPE);
        let mut sought = [wanted.as_str()].into_iter().chain(general);
        let found = sought.find_map(|name| types.clone().find(|kind| kind.name == name)).cloned();
        found.ok_or_else(|| types.map(|kind| kind.name.as_str()).collect::<Vec<_>>().join(", "))
    }

    /// Waits until one more helper may work. Its server works on `served` requests at the same time. The permit is
    /// held while the helper works.
    pub(crate) async fn slot(&self, served: Option<u32>) -> Option<OwnedSemaphorePermit> {
        let most = u32::from(MAX_WORKING);
        // The fewer requests the server works on, the more places one helper takes.
        let places = most.div_ceil(served.unwrap_or(most).clamp(1, most));
        Arc::clone(&self.slots).acquire_many_owned(places).await.ok()
    }

    /// Runs a helper in the background; `work` gets the token that cancels it. Returns false if there are
    /// too many.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> bool {
        if self.tracker.len() >= MAX_IN_BACKGROUND || self.stop.is_cancelled() {
            return false;
        }
        let mut state = self.state.lock();
        let cancel = state.background.get_or_insert_with(|| self.stop.child_token()).clone();
        drop(state);
        self.tracker.spawn(work(cancel));
        true
    }

    /// Ends the helpers in the background.
    pub fn cancel_background(&self) {
        let background = self.state.lock().background.take();
        if let Some(background) = background {
            background.cancel();
        }
    }

    /// Lets the user see and cancel a helper, until it is removed.
    pub(crate) fn add(
        &self,
        started: StartedHelper,
        cancel: CancellationToken,
        client: &dyn Client,
    ) {
        let shown = client.show_helper(&started);
        let session = started.session.clone();
        let helper = RunningHelper { started, cancel, questions: 0, shown };
        self.state.lock().running.insert(session, helper);
    }

    /// Shows the helpers in a client that takes over the session.
    pub(crate) fn show_in(&self, client: &dyn Client) {
        for helper in self.state.lock().running.values_mut() {
            helper.shown = client.show_helper(&helper.started);
            if let Some(shown) = helper.shown.as_ref().filter(|_| helper.questions > 0) {
                shown.set_waiting(true);
            }
        }
    }

    /// Sends an update of the conversation of a helper, if the client shows that.
    pub(crate) fn show(&self, session: &SessionId, update: &Update) {
        let mut state = self.state.lock();
        let helper = state.running.get_mut(session);
        if let Some(shown) = helper.and_then(|helper| helper.shown.as_mut()) {
            shown.update(update.clone());
        }
    }

    /// Notes that a helper has asked the user something, or that a question is no longer open. The helper
    /// waits for the user while any question is open.
    pub(crate) fn count_question(&self, session: &SessionId, is_open: bool) {
        let mut state = self.state.lock();
        let Some(helper) = state.running.get_mut(session) else { return };
        let others = helper.questions - u32::from(!is_open);
        helper.questions = others + u32::from(is_open);
        if let Some(shown) = helper.shown.as_ref().filter(|_| others == 0) {
            shown.set_waiting(is_open);
        }
    }

    /// The titles of the helpers that wait or work in the background, sorted.
    pub(crate) fn in_background(&self) -> Vec<String> {
        let state = self.state.lock();
        let helpers = state.running.values().filter(|helper| helper.started.in_background);
        let mut titles: Vec<_> = helpers.map(|helper| helper.started.title.clone()).collect();
        titles.sort();
        titles
    }

    /// Notes that a helper has ended. Returns its conversation in the client.
    pub(crate) fn remove(&self, session: &SessionId) -> Option<Box<dyn HelperView>> {
        self.state.lock().running.remove(session)?.shown
    }

    /// Cancels a helper and nothing else. Returns false if there is none with this session.
    pub(crate) fn cancel(&self, session: &SessionId) -> bool {
        let found = self.state.lock().running.get(session).map(|helper| helper.cancel.clone());
        // Code that waits for the token may look something up.
        found.inspect(CancellationToken::cancel).is_some()
    }

    /// Tells all helpers in the background to end, at once. The future waits until they have ended.
    pub fn close(&self) -> impl Future<Output = ()> {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait()
    }

    /// Lets helpers in the background ask the user while this turn runs. Outside a turn a client does not
    /// expect a question, and some never answer one.
    pub(crate) fn open_questions(&self, turn: &CancellationToken) {
        self.state.lock().turn = Some((turn.clone(), TaskTracker::new()));
    }

    /// Waits until no question is open, and permits no further one. The client is told if one is open, unless it is
    /// withdrawn with the turn.
    pub(crate) async fn close_questions(&self, client: &dyn Client) {
        let turn = self.state.lock().turn.take();
        if let Some((cancel, open)) = turn {
            open.close();
            if !open.is_empty() && !cancel.is_cancelled() {
                client.report_open_questions();
            }
            open.wait().await;
        }
    }

    /// Takes part in the running turn to ask the user; `None` if there is none.
    pub(crate) fn join_turn(&self) -> Option<QuestionTurn> {
        let state = self.state.lock();
        let (cancel, open) = state.turn.as_ref()?;
        Some(QuestionTurn { cancel: cancel.clone(), _open: open.token() })
    }

    /// Records how a helper in the background has ended, for the model. Once the session
    /// ends, only answers are recorded.
    pub(crate) fn add_news(&self, news: String, is_answer: bool) {
        if is_answer || !self.stop.is_cancelled() {
            self.state.lock().news.push(news);
        }
    }

    /// Keeps a notice of a helper in the background for the user.
    pub(crate) fn add_notice(&self, notice: String) {
        let mut state = self.state.lock();
        if state.notices.len() < MAX_NOTICES {
            state.notices.push(notice);
        }
    }

    /// The texts for the model and the notices for the user about helpers in the background, each once.
    pub(crate) fn take_news(&self) -> (String, Vec<String>) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.news).concat(), std::mem::take(&mut state.notices))
    }

    /// Counts a request of this conversation.
    pub(crate) fn count_tokens(&self, usage: TokenUsage) {
        self.state.lock().usage += usage;
    }

    /// The tokens of all requests of this conversation.
    pub(crate) fn tokens(&self) -> u64 {
        self.state.lock().usage.total()
    }
}

fn built_in(name: &str, tools: Option<&[&str]>, instructions: &str) -> HelperType {
    HelperType {
        name: name.to_owned(),
        tools: tools.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        instructions: instructions.to_owned(),
        ..HelperType::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_the_user_comes_before_the_built_in_one_of_its_name() {
        let own =
            |name: &str| HelperType { description: "mine".to_owned(), ..built_in(name, None, "") };
        let set = HelperSet::new(vec![own("explore"), own("reviewer")]);
        assert_eq!(set.find_type("explore").unwrap().description, "mine");
        assert_eq!(set.find_type("general").unwrap().description, "");
        for (written, name) in
            [("Explore", "explore"), ("Reviewer", "reviewer"), ("general-purpose", "general")]
        {
            assert_eq!(set.find_type(written).unwrap().name, name, "{written}");
        }
        let both = HelperSet::new(vec![own("general"), own("general-purpose")]);
        assert_eq!(both.find_type("general-purpose").unwrap().name, "general-purpose");
        assert_eq!(set.find_type("x").unwrap_err(), "explore, reviewer, explore, general");
        let tools = HelperSet::default().find_type("explore").unwrap().tools.unwrap();
        assert!(tools.iter().all(|tool| EXPLORE_TOOLS.contains(&tool.as_str())));
    }

    #[tokio::test]
    async fn a_cancel_ends_those_that_run_and_not_those_that_are_started_later() {
        let set = HelperSet::new(Vec::new());
        let first = CancellationToken::new();
        let second = CancellationToken::new();
        for token in [&first, &second] {
            let ended = token.clone();
            assert!(set.spawn(|cancel| async move {
                cancel.cancelled().await;
                ended.cancel();
            }));
            if token == &first {
                set.cancel_background();
                first.cancelled().await;
            }
        }
        assert!(!second.is_cancelled());
        set.close().await;
        assert!(second.is_cancelled() && !set.spawn(|_| async {}));
    }
}
