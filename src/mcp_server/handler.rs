//! Answers the client: which tools there are, and what comes of a call. What it cannot mean is an
//! error of the protocol; what did not work out is a result, because a model reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CustomRequest, CustomResult,
    ErrorCode, Implementation, InputRequest, InputRequiredResult, JsonObject, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter,
    Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Options;
use super::desk::{Caller, Desk, Round, Way, answer, elicitation};
use super::limits::{Limits, TooMany};
use super::offer::{PAGE, Shelf};
use super::reply::{refusal, result};
use turnwright_types::client::Question;
use turnwright_workspace::files::Roots;
use turnwright_types::ids::SessionId;
use turnwright_rpc::Outbox;
use crate::session::Host;
use crate::turn::Errands;

/// How long a client may take to say which folders its user works in.
const ROOTS_PATIENCE: Duration = Duration::from_secs(5);
/// Folders that a client may name.
const MOST_ROOTS: usize = 64;
/// Questions that may wait for another round.
const MOST_OPEN: usize = 16;
/// The key of our question among those of a result.
const QUESTION: &str = "permission";
/// Methods that we have: whoever calls one in another form has made a mistake in its parameters.
const KNOWN: &[&str] = &["initialize", "server/discover", "ping", "tools/list", "tools/call"];

/// The server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Handler(Arc<Inner>);

struct Inner {
    host: Arc<Host>,
    options: Options,
    shelf: Shelf,
    desk: Arc<Desk>,
    limits: Limits,
    /// Who runs the calls; made for the first of them, when the client can say which folders.
    // A std mutex: held to copy a pointer.
    errands: std::sync::Mutex<Option<Arc<Errands>>>,
    /// One call at a time makes it.
    making: Semaphore,
    /// Questions that wait for another round, by their state.
    // A std mutex: held to look at a short list.
    open: std::sync::Mutex<Vec<(String, Open)>>,
}

/// A question that waits for another round, and the call that it is about.
struct Open {
    name: String,
    arguments: Option<JsonObject>,
    question: Question,
}

impl Handler {
    pub(super) fn new(host: Arc<Host>, options: Options, outbox: Outbox) -> Handler {
        Handler(Arc::new(Inner {
            host,
            options,
            shelf: Shelf::new(),
            desk: Arc::new(Desk::new(outbox)),
            limits: Limits::default(),
            errands: std::sync::Mutex::default(),
            making: Semaphore::new(1),
            open: std::sync::Mutex::default(),
        }))
    }

    /// Ends all commands and waits until they are dead.
    pub(super) async fn close(&self) {
        let errands = self.runner().take();
        if let Some(errands) = errands {
            errands.bench().jobs.close().await;
        }
    }

    /// Who runs calls.
    async fn errands(&self, peer: &Peer<RoleServer>) -> Result<Arc<Errands>, String> {
        let _making = self.0.making.acquire().await;
        if let Some(errands) = self.runner().clone() {
            return Ok(errands);
        }
        let folders = match self.0.options.roots.as_slice() {
            [] => roots_of(peer).await,
            roots => roots.to_vec(),
        };
        let inner = Arc::clone(&self.0);
        // Rules are read from small files.
        let made = tokio::task::spawn_blocking(move || {
            let roots = roots(&folders, &inner.options.cwd)?;
            let client = Arc::clone(&inner.desk);
            Ok::<_, String>(inner.host.errands(roots, client, inner.options.mode))
        });
        let (errands, notices) = made.await.map_err(|it| it.to_string())??;
        for notice in notices {
            tracing::warn!("{notice}");
        }
        let errands = Arc::new(errands);
        *self.runner() = Some(Arc::clone(&errands));
        Ok(errands)
    }

    fn runner(&self) -> std::sync::MutexGuard<'_, Option<Arc<Errands>>> {
        self.0.errands.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How the user of that client can be asked, with the answer of an earlier round if this is the
    /// next one.
    fn way(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Way, ErrorData> {
        let asks = context.client_capabilities().is_some_and(|it| asks(&it));
        let is_modern = context
            .protocol_version()
            .is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        Ok(match (asks, is_modern) {
            (false, _) => Way::No,
            (true, false) => Way::Request(context.peer.clone()),
            (true, true) => Way::Rounds(Box::new(std::sync::Mutex::new(self.round(request)?))),
        })
    }

    /// What was asked before, if this is the next round of that call.
    fn round(&self, request: &CallToolRequestParams) -> Result<Round, ErrorData> {
        let Some(state) = &request.request_state else { return Ok(Round::default()) };
        let unknown = || {
            let text = "Unknown requestState: it was used, or is too old. Call again without it";
            ErrorData::invalid_params(text, None)
        };
        let mut open = self.open();
        let place = open.iter().position(|(it, _)| it == state).ok_or_else(unknown)?;
        let (_, before) = open.remove(place);
        if before.name != request.name || before.arguments != request.arguments {
            return Err(unknown());
        }
        let responses = request.input_responses.as_ref();
        let said = responses.and_then(|it| it.get(QUESTION)).cloned().unwrap_or_default();
        let answer = answer(&said, &before.question);
        Ok(Round { before: Some((before.question, answer)), now: None })
    }

    /// The result that has the client ask, and call again.
    async fn ask(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        question: Question,
    ) -> Option<InputRequiredResult> {
        let request = InputRequest::Elicitation(elicitation(&question).await?);
        let state = SessionId::random().as_str().to_owned();
        let mut open = self.open();
        if open.len() >= MOST_OPEN {
            open.remove(0);
        }
        open.push((state.clone(), Open { name: name.to_owned(), arguments, question }));
        let requests = [(QUESTION.to_owned(), request)].into_iter().collect();
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(String, Open)>> {
        self.0.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Whether a client can show a form to its user. An empty capability is that of older revisions,
/// which had nothing but forms.
fn asks(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// The folders that the client's user works in, if it says so.
#[expect(deprecated, reason = "roots are deprecated, and what clients have that are not new")]
async fn roots_of(peer: &Peer<RoleServer>) -> Vec<PathBuf> {
    if peer.peer_info().is_none_or(|it| it.capabilities.roots.is_none()) {
        return Vec::new();
    }
    let Ok(Ok(listed)) = tokio::time::timeout(ROOTS_PATIENCE, peer.list_roots()).await else {
        return Vec::new();
    };
    let path = |it: &str| url::Url::parse(it).ok()?.to_file_path().ok();
    listed.roots.iter().filter_map(|it| path(&it.uri)).take(MOST_ROOTS).collect()
}

fn roots(folders: &[PathBuf], cwd: &Path) -> Result<Roots, String> {
    let (first, more) = folders.split_first().map_or((cwd, folders), |(it, more)| (&**it, more));
    let cannot = |folder: &Path, why: &dyn std::fmt::Display| {
        format!(
            "The folder {} cannot be used: {why}. Say which folder the tools may work in with \
             `turnwright mcp-server --root DIR`.",
            folder.display()
        )
    };
    let mut roots = Roots::new(first).map_err(|it| cannot(first, &it))?;
    for folder in more {
        roots = roots.and(folder).map_err(|it| cannot(folder, &it))?;
    }
    // By whatever name: `/tmp/..` is the same, and so may a symlink be.
    if let Some(all) = roots.folders().find(|it| it.parent().is_none()) {
        return Err(cannot(all, &"it is the whole machine"));
    }
    Ok(roots)
}

fn too_many(why: &TooMany) -> ErrorData {
    let wait = u64::try_from(why.wait().as_millis()).unwrap_or(u64::MAX).max(1);
    ErrorData::new(ErrorCode(-32_000), why.to_string(), Some(json!({ "retryAfterMs": wait })))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("turnwright", env!("CARGO_PKG_VERSION"));
        info.with_instructions(
            "Tools for the files of a project and for commands. What they may do is decided by the \
             user's settings; a call that is refused says why. Paths may be relative to the first \
             folder. There is no undo.",
        )
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.shelf.page(request.and_then(|it| it.cursor).as_deref(), PAGE)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.shelf.told(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.0.shelf.find(&request.name) else {
            let text = format!("Unknown tool. There are: {}", self.0.shelf.names());
            return Err(ErrorData::invalid_params(text, None));
        };
        let _place = self.0.limits.take().map_err(|it| too_many(&it))?;
        let way = self.way(&request, &context)?;
        let errands = match self.errands(&context.peer).await {
            Ok(errands) => errands,
            Err(why) => return Ok(refusal(&why).into()),
        };
        let token = context.meta.get_progress_token();
        let begun = self.0.desk.begin(Caller { token, way, told: 0.into() });
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let cancel = context.ct.clone();
        let outcome = errands.run(begun.id.clone(), tool, arguments, cancel).await;
        if let Some(question) = begun.caller.question()
            && let Some(asked) = self.ask(&request.name, request.arguments, question).await
        {
            return Ok(asked.into());
        }
        Ok(result(outcome).into())
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if KNOWN.contains(&request.method.as_str()) {
            let text = format!("The parameters of {} cannot be understood", request.method);
            return Err(ErrorData::invalid_params(text, None));
        }
        let name: String = request.method.chars().take(100).collect();
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("Method not found: {}", name.escape_debug()),
            None,
        ))
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        if self.0.options.roots.is_empty() {
            // The next call asks which they are. Commands that go on were started elsewhere.
            self.close().await;
        }
    }
}
