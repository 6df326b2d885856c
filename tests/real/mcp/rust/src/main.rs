//! A server with rmcp, which tests/real/mcp/drive.mjs has the agent call.
//!
//!     turnwright-real-mcp stdio     over stdio, in all versions of the protocol that rmcp knows
//!     turnwright-real-mcp modern    over stdio, only in the version without a handshake
//!     turnwright-real-mcp http      over streamable HTTP at the address that it prints

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::task_manager::{TaskManager, TaskOptions};
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

/// The resource whose text a tool changes.
const MEMO: &str = "memo://today";

/// A server. Its clones share their state.
#[derive(Clone)]
struct Server {
    /// True if it speaks only the version without a handshake.
    is_modern: bool,
    memo: Arc<watch::Sender<String>>,
    is_subscribed: Arc<AtomicBool>,
    /// The number of walks that ended early.
    ended_early: Arc<AtomicU32>,
    tasks: TaskManager,
}

/// Counts a walk that is not over when this is dropped.
struct Walk<'a> {
    ended_early: &'a AtomicU32,
    is_over: bool,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.ended_early.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn internal(error: impl Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn with_text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn tool(name: &'static str, description: &'static str, properties: Value) -> Tool {
    let schema = json!({ "type": "object", "properties": properties });
    Tool::new(name, description, object(schema))
}

impl Server {
    fn new(is_modern: bool) -> Server {
        Server {
            is_modern,
            memo: Arc::new(watch::Sender::new("Buy milk.".to_owned())),
            is_subscribed: Arc::default(),
            ended_early: Arc::default(),
            tasks: TaskManager::new(),
        }
    }

    /// Takes steps, and reports each of them as progress.
    async fn walk(
        &self,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let steps = arguments["steps"].as_u64().unwrap_or(1);
        let mut walk = Walk { ended_early: &self.ended_early, is_over: false };
        for step in 1..=steps {
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, step as f64)
                    .with_total(steps as f64)
                    .with_message(format!("Step {step}"));
                context.peer.notify_progress(progress).await.map_err(internal)?;
            }
            tokio::select! {
                () = context.ct.cancelled() => return Ok("ended early".to_owned()),
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
        walk.is_over = true;
        Ok(format!("walked {steps} steps"))
    }

    async fn write_memo(
        &self,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let text = arguments["text"].as_str().unwrap_or_default();
        self.memo.send_replace(text.to_owned());
        // Without a handshake, `listen` tells of it.
        if self.is_subscribed.load(Ordering::SeqCst) {
            let updated = ResourceUpdatedNotificationParam::new(MEMO);
            context.peer.notify_resource_updated(updated).await.map_err(internal)?;
        }
        Ok("written".to_owned())
    }

    /// Asks the user for a name: with a request, or, without a handshake, with the result.
    async fn greet(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let schema = json!({
            "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
        });
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Who are you?".to_owned(),
            requested_schema: serde_json::from_value(schema).map_err(internal)?,
        };
        let answered = request.input_responses.as_ref().and_then(|answers| answers.get("name"));
        let answer: ElicitResult = match answered {
            Some(answer) => serde_json::from_value(answer.clone()).map_err(internal)?,
            None if self.is_modern => {
                let asked = InputRequest::Elicitation(ElicitRequest::new(question));
                let all = InputRequests::from([("name".to_owned(), asked)]);
                return Ok(InputRequiredResult::new(Some(all), Some("asked".to_owned())).into());
            }
            None => context.peer.create_elicitation(question).await.map_err(internal)?,
        };
        let content = answer.content.unwrap_or_default();
        let name = content["name"].as_str().unwrap_or("nobody");
        Ok(with_text(format!("Hello, {name}!")).into())
    }

    /// Adds two numbers, as a task if the client knows tasks.
    fn add(&self, arguments: &Value, context: &RequestContext<RoleServer>) -> CallToolResponse {
        let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
        let has_tasks = context.client_capabilities().is_some_and(|all| all.supports_tasks());
        if !has_tasks {
            return with_text(format!("{sum} at once")).into();
        }
        let options = TaskOptions::default().with_poll_interval_ms(100);
        let task = self.tasks.spawn(options, move |_| {
            Box::pin(async move {
                sleep(Duration::from_millis(300)).await;
                Ok(with_text(format!("{sum} as a task")))
            })
        });
        CreateTaskResult::new(task).into()
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tasks()
            .build();
        let about = Implementation::new("real", "1.0.0");
        let info = ServerConfig::new(capabilities).with_server_info(about);
        if self.is_modern {
            // Otherwise rmcp would still agree to a handshake.
            info.with_protocol_version(ProtocolVersion::V_2026_07_28)
        } else {
            info
        }
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        if self.is_modern {
            Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
        } else {
            Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let number = json!({ "type": "integer" });
        let weather = json!({ "type": "object", "required": ["city", "degrees"],
            "properties": { "city": { "type": "string" }, "degrees": number } });
        let city = json!({ "city": { "type": "string" } });
        Ok(ListToolsResult::with_all_items(vec![
            tool("weather", "The weather of a city.", city)
                .with_raw_output_schema(Arc::new(object(weather))),
            tool("walk", "Takes steps.", json!({ "steps": number })),
            tool("ended_early", "How many walks ended early.", json!({})),
            tool("write_memo", "Changes the memo.", json!({ "text": { "type": "string" } })),
            tool("greet", "Greets the user.", json!({})),
            tool("add", "Adds.", json!({ "a": number, "b": number })),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let text = match request.name.as_ref() {
            "weather" => {
                let weather = json!({ "city": arguments["city"], "degrees": 21 });
                return Ok(CallToolResult::structured(weather).into());
            }
            "walk" => self.walk(&arguments, &context).await?,
            "ended_early" => format!("{} ended early", self.ended_early.load(Ordering::SeqCst)),
            "write_memo" => self.write_memo(&arguments, &context).await?,
            "greet" => return self.greet(request, &context).await,
            "add" => return Ok(self.add(&arguments, &context)),
            name => return Err(ErrorData::invalid_params(format!("no tool {name}"), None)),
        };
        Ok(with_text(text).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(MEMO, "the memo of today")]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("memo://{day}", "the memo of a day");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match request.uri.strip_prefix("memo://") {
            Some("today") => self.memo.borrow().clone(),
            Some(day) => format!("Nothing on {day}."),
            None => return Err(ErrorData::resource_not_found("there is no such memo", None)),
        };
        let contents = ResourceContents::text(text, request.uri.clone());
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.is_subscribed.fetch_or(request.uri == MEMO, Ordering::SeqCst);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.is_subscribed.fetch_and(request.uri != MEMO, Ordering::SeqCst);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut memo = self.memo.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = memo.changed() => {
                    changed.map_err(internal)?;
                    context.sink().notify_resource_updated(MEMO).await.map_err(internal)?;
                }
            }
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let who = PromptArgument::new("who").with_required(true);
        let hello = Prompt::new("hello", Some("Has the model say hello."), Some(vec![who]));
        Ok(ListPromptsResult::with_all_items(vec![hello]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let who = arguments["who"].as_str().unwrap_or("nobody");
        let message = PromptMessage::new_text(Role::User, format!("Please say hello to {who}."));
        Ok(GetPromptResult::new(vec![message]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let known = match request.r#ref {
            Reference::Prompt(_) => ["Ada", "Grace"],
            _ => ["today", "tomorrow"],
        };
        let begun = &request.argument.value;
        let values = known.iter().filter(|value| value.starts_with(begun.as_str()));
        let values = values.map(|value| (*value).to_owned()).collect();
        let completion = CompletionInfo::with_all_values(values).map_err(internal)?;
        Ok(CompleteResult::new(completion))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

async fn serve_http() -> Result<(), Box<dyn Error>> {
    let server = Server::new(false);
    let service = TowerToHyperService::new(StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        Default::default(),
    ));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            let serving = Builder::new(TokioExecutor::default());
            if let Err(error) = serving.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let transport = std::env::args().nth(1).unwrap_or_default();
    if transport == "http" {
        return serve_http().await;
    }
    let service = Server::new(transport == "modern").serve(stdio()).await?;
    service.waiting().await?;
    Ok(())
}
