//! Handles the MCP requests of the client. A malformed request is a protocol error; a failed call is a
//! result, because a model reads it.

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

use super::McpServerOptions;
use super::call_limits::{CallLimits, LimitExceeded};
use super::call_result::{call_result, error_result};
use super::client_calls::{
    AskMethod, ClientCall, ClientCalls, QuestionRound, elicitation, parse_answer,
};
use super::offered_tools::{OfferedTools, PAGE_SIZE};
use crate::session::SessionHost;
use crate::turn::StandaloneCalls;
use turnwright_rpc::Outbox;
use turnwright_types::client::PermissionRequest;
use turnwright_types::ids::SessionId;
use turnwright_workspace::files::Roots;

/// How long a client may take to list its roots.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of roots of a client; further ones are ignored.
const MAX_ROOTS: usize = 64;
/// Maximum number of questions that wait for the next round of their call. The oldest is dropped.
const MAX_PENDING_QUESTIONS: usize = 16;
/// The key of our question among the input requests of a result.
const PERMISSION_KEY: &str = "permission";
/// Methods that we implement: if one arrives as a custom request, its parameters are malformed.
const KNOWN_METHODS: &[&str] =
    &["initialize", "server/discover", "ping", "tools/list", "tools/call"];

/// The MCP server. Cheap to clone.
#[derive(Clone)]
pub(super) struct McpHandler(Arc<HandlerInner>);

struct HandlerInner {
    host: Arc<SessionHost>,
    options: McpServerOptions,
    tools: OfferedTools,
    calls: Arc<ClientCalls>,
    limits: CallLimits,
    /// Runs the calls. Created for the first call, when the client can list its roots.
    // Held only to copy a pointer.
    runner: parking_lot::Mutex<Option<Arc<StandaloneCalls>>>,
    /// One permit: only one call at a time creates the runner.
    creating_runner: Semaphore,
    /// Questions that wait for the next round of their call, by `requestState`.
    // Held only to search a short list.
    pending_questions: parking_lot::Mutex<Vec<(String, PendingQuestion)>>,
}

/// A question that waits for the next round of its call.
struct PendingQuestion {
    name: String,
    arguments: Option<JsonObject>,
    question: PermissionRequest,
}

impl McpHandler {
    pub(super) fn new(
        host: Arc<SessionHost>,
        options: McpServerOptions,
        outbox: Outbox,
    ) -> McpHandler {
        McpHandler(Arc::new(HandlerInner {
            host,
            options,
            tools: OfferedTools::new(),
            calls: Arc::new(ClientCalls::new(outbox)),
            limits: CallLimits::default(),
            runner: parking_lot::Mutex::default(),
            creating_runner: Semaphore::new(1),
            pending_questions: parking_lot::Mutex::default(),
        }))
    }

    /// Ends all running commands and waits for their end.
    pub(super) async fn close(&self) {
        let runner = self.lock_runner().take();
        if let Some(runner) = runner {
            runner.env().jobs.close().await;
        }
    }

    /// Returns the runner of calls, and creates it if there is none.
    async fn runner(&self, peer: &Peer<RoleServer>) -> Result<Arc<StandaloneCalls>, String> {
        let _permit = self.0.creating_runner.acquire().await;
        if let Some(runner) = self.lock_runner().clone() {
            return Ok(runner);
        }
        let folders = match self.0.options.roots.as_slice() {
            [] => client_roots(peer).await,
            roots => roots.to_vec(),
        };
        let inner = Arc::clone(&self.0);
        // Creating the runner reads rule files.
        let created = tokio::task::spawn_blocking(move || {
            let roots = checked_roots(&folders, &inner.options.cwd)?;
            let client = Arc::clone(&inner.calls);
            Ok::<_, String>(inner.host.standalone_calls(roots, client, inner.options.mode))
        });
        let (runner, notices) = created.await.map_err(|it| it.to_string())??;
        for notice in notices {
            tracing::warn!("{notice}");
        }
        let runner = Arc::new(runner);
        *self.lock_runner() = Some(Arc::clone(&runner));
        Ok(runner)
    }

    fn lock_runner(&self) -> parking_lot::MutexGuard<'_, Option<Arc<StandaloneCalls>>> {
        self.0.runner.lock()
    }

    /// Decides how the client's user can be asked. Includes the answer of the previous round if this
    /// call is the next one.
    fn ask_method(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<AskMethod, ErrorData> {
        let supports_forms = context.client_capabilities().is_some_and(|it| supports_forms(&it));
        let has_multi_round_trip = context
            .protocol_version()
            .is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        Ok(match (supports_forms, has_multi_round_trip) {
            (false, _) => AskMethod::Unsupported,
            (true, false) => AskMethod::Request(context.peer.clone()),
            (true, true) => {
                AskMethod::MultiRoundTrip(Box::new(parking_lot::Mutex::new(self.round(request)?)))
            }
        })
    }

    /// Returns the question and answer of the previous round, if this call is the next one.
    fn round(&self, request: &CallToolRequestParams) -> Result<QuestionRound, ErrorData> {
        let Some(state) = &request.request_state else { return Ok(QuestionRound::default()) };
        let unknown = || {
            let text = "Unknown requestState: it was used, or is too old. Call again without it";
            ErrorData::invalid_params(text, None)
        };
        let mut pending = self.lock_pending_questions();
        let index = pending.iter().position(|(it, _)| it == state).ok_or_else(unknown)?;
        let (_, previous) = pending.remove(index);
        if previous.name != request.name || previous.arguments != request.arguments {
            return Err(unknown());
        }
        let responses = request.input_responses.as_ref();
        let response = responses.and_then(|it| it.get(PERMISSION_KEY)).cloned().unwrap_or_default();
        let answer = parse_answer(&response, &previous.question);
        Ok(QuestionRound { previous: Some((previous.question, answer)), pending: None })
    }

    /// Makes the result that lets the client ask its user and call again.
    async fn input_required(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        question: PermissionRequest,
    ) -> Option<InputRequiredResult> {
        let request = InputRequest::Elicitation(elicitation(&question).await?);
        let state = SessionId::random().as_str().to_owned();
        let mut pending = self.lock_pending_questions();
        if pending.len() >= MAX_PENDING_QUESTIONS {
            pending.remove(0);
        }
        pending
            .push((state.clone(), PendingQuestion { name: name.to_owned(), arguments, question }));
        let requests = [(PERMISSION_KEY.to_owned(), request)].into_iter().collect();
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }

    fn lock_pending_questions(
        &self,
    ) -> parking_lot::MutexGuard<'_, Vec<(String, PendingQuestion)>> {
        self.0.pending_questions.lock()
    }
}

/// True if the client can show a form to its user. An empty capability is that of older protocol
/// versions, which had nothing but forms.
fn supports_forms(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Requests the client's roots. Returns none if the client has no roots or does not answer in time.
#[expect(deprecated, reason = "roots are deprecated, but all older clients use them")]
async fn client_roots(peer: &Peer<RoleServer>) -> Vec<PathBuf> {
    if peer.peer_info().is_none_or(|it| it.capabilities.roots.is_none()) {
        return Vec::new();
    }
    let Ok(Ok(listed)) = tokio::time::timeout(ROOTS_TIMEOUT, peer.list_roots()).await else {
        return Vec::new();
    };
    let path = |it: &str| url::Url::parse(it).ok()?.to_file_path().ok();
    listed.roots.iter().filter_map(|it| path(&it.uri)).take(MAX_ROOTS).collect()
}

fn checked_roots(folders: &[PathBuf], cwd: &Path) -> Result<Roots, String> {
    let (first, more) = folders.split_first().map_or((cwd, folders), |(it, more)| (&**it, more));
    let cannot = |folder: &Path, why: &dyn std::fmt::Display| {
        format!(
            "The folder {} cannot be used: {why}. Name the folder that the tools may work in with \
             `turnwright mcp-server --root DIR`.",
            folder.display()
        )
    };
    let mut roots = Roots::new(first).map_err(|it| cannot(first, &it))?;
    for folder in more {
        roots = roots.with_folder(folder).map_err(|it| cannot(folder, &it))?;
    }
    // Checked on the resolved paths: `/tmp/..` or a symbolic link may name the root folder as well.
    if let Some(all) = roots.folders().find(|it| it.parent().is_none()) {
        return Err(cannot(all, &"it is the whole machine"));
    }
    Ok(roots)
}

fn limit_error(why: &LimitExceeded) -> ErrorData {
    let wait = u64::try_from(why.retry_after().as_millis()).unwrap_or(u64::MAX).max(1);
    ErrorData::new(ErrorCode(-32_000), why.to_string(), Some(json!({ "retryAfterMs": wait })))
}

impl ServerHandler for McpHandler {
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
        self.0.tools.page(request.and_then(|it| it.cursor).as_deref(), PAGE_SIZE)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.definition(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.0.tools.find(&request.name) else {
            let text = format!("Unknown tool. There are: {}", self.0.tools.names());
            return Err(ErrorData::invalid_params(text, None));
        };
        let _slot = self.0.limits.acquire().map_err(|it| limit_error(&it))?;
        let ask_method = self.ask_method(&request, &context)?;
        let runner = match self.runner(&context.peer).await {
            Ok(runner) => runner,
            Err(why) => return Ok(error_result(&why).into()),
        };
        let token = context.meta.get_progress_token();
        let guard =
            self.0.calls.register(ClientCall { token, ask_method, progress_count: 0.into() });
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let cancel = context.ct.clone();
        let outcome = runner.run(guard.id.clone(), tool, arguments, cancel).await;
        if let Some(question) = guard.call.take_pending_question()
            && let Some(input_required) =
                self.input_required(&request.name, request.arguments, question).await
        {
            return Ok(input_required.into());
        }
        Ok(call_result(outcome).into())
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if KNOWN_METHODS.contains(&request.method.as_str()) {
            let text = format!("Invalid parameters for {}", request.method);
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
            // The next call lists the roots again. Running commands were started under the old ones,
            // so they are ended.
            self.close().await;
        }
    }
}
