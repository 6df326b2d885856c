//! One tool of a server, as a turn sees it: judged like any other, run over the connection.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, JsonObject, Tool};
use serde_json::Value;

use super::elicit::Caller;
use super::server::Server;
use crate::checkpoint::Foreseen;
use crate::effect::{CallView, Content, Effect, Kind, RemoteCall, short_title, visible_line};
use crate::files::Roots;
use crate::message::ToolSpec;
use crate::permission::Pass;
use crate::tools::{AnyTool, Bench, Offer, Outcome, Prepared, ToolCtx};

/// A tool.
#[derive(Debug)]
pub(super) struct RemoteTool {
    /// The function's name, for the model.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    pub(super) tool: Tool,
}

impl RemoteTool {
    /// One that the model knows by that name.
    pub(super) fn new(name: String, server: Arc<Server>, tool: Tool) -> RemoteTool {
        RemoteTool { name, server, tool }
    }
}

impl RemoteTool {
    fn claims_to_read(&self) -> bool {
        self.tool.annotations.as_ref().and_then(|it| it.read_only_hint).unwrap_or(false)
    }
}

impl AnyTool for RemoteTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn reads(&self) -> bool {
        // What a server says of itself counts for nothing.
        false
    }

    fn spec(&self, _: &Offer) -> Option<Arc<ToolSpec>> {
        // Made when it is told: of many tools most never are.
        Some(Arc::new(ToolSpec {
            name: self.name.clone().into(),
            description: self.tool.description.as_deref().unwrap_or_default().to_owned(),
            parameters: Value::Object(self.tool.input_schema.as_ref().clone()),
        }))
    }

    fn lender(&self) -> Option<&str> {
        Some(&self.server.spec.name)
    }

    fn title(&self) -> Option<&str> {
        let annotated = || self.tool.annotations.as_ref()?.title.as_deref();
        self.tool.title.as_deref().or_else(annotated).or(Some(&self.tool.name))
    }

    fn first_view(&self) -> Option<CallView> {
        let title = format!("{}: {}", self.server.spec.name, self.tool.name);
        let title = short_title(visible_line(&title));
        Some(CallView { title, kind: Kind::Other, locations: Vec::new() })
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn Prepared>, String> {
        match args {
            Value::Object(arguments) => Ok(Box::new(Call { tool: self, arguments })),
            Value::Null => Ok(Box::new(Call { tool: self, arguments: JsonObject::new() })),
            _ => Err("The arguments must be an object.".to_owned()),
        }
    }
}

struct Call {
    tool: Arc<RemoteTool>,
    arguments: JsonObject,
}

impl Prepared for Call {
    fn locate(&mut self, _: &Bench) {}

    fn view(&self, _: &Roots) -> CallView {
        self.tool.first_view().unwrap_or_else(|| CallView {
            title: self.tool.name.clone(),
            kind: Kind::Other,
            locations: Vec::new(),
        })
    }

    fn effects(&self) -> Vec<Effect> {
        vec![Effect::Remote(Box::new(RemoteCall {
            server: self.tool.server.spec.name.clone(),
            tool: self.tool.tool.name.clone().into_owned(),
            claims_to_read: self.tool.claims_to_read(),
            change: None,
        }))]
    }

    fn look<'a>(&'a mut self, _: &'a ToolCtx) -> BoxFuture<'a, Result<Vec<Content>, String>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn foresees(&self) -> Vec<Foreseen<'_>> {
        Vec::new()
    }

    fn run<'a>(self: Box<Self>, _: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, Outcome> {
        async move { ctx.cancel.run_until_cancelled(self.call(ctx)).await.unwrap_or_else(cancelled) }
            .boxed()
    }
}

fn cancelled() -> Outcome {
    Outcome::failed("Cancelled by the user. The server was told; it may have done a part of it.")
}

impl Call {
    async fn call(self: Box<Self>, ctx: &ToolCtx) -> Outcome {
        let server = &self.tool.server;
        let client = Arc::clone(&ctx.bench.client);
        let _calling = server.callers.enter(Caller {
            call: ctx.call.clone(),
            client,
            cancel: ctx.cancel.clone(),
        });
        let (peer, connection) = match server.peer().await {
            Ok(found) => found,
            Err(why) => return Outcome::failed(why),
        };
        let params =
            CallToolRequestParams::new(self.tool.tool.name.clone()).with_arguments(self.arguments);
        let limit = server.spec.limits.call;
        match tokio::time::timeout(limit, peer.call_tool(params)).await {
            Ok(Ok(result)) => {
                let text: Vec<_> = result
                    .content
                    .iter()
                    .filter_map(|it| Some(it.as_text()?.text.as_str()))
                    .collect();
                let text = text.join("\n");
                let ok = result.is_error != Some(true);
                Outcome {
                    ok,
                    view: None,
                    content: vec![Content::Text(text.clone())],
                    raw: serde_json::to_value(&result).unwrap_or_default(),
                    text,
                    images: Vec::new(),
                }
            }
            Ok(Err(ServiceError::TransportClosed | ServiceError::TransportSend(_))) => {
                Outcome::failed(server.lost(connection).await)
            }
            Ok(Err(error)) => Outcome::failed(format!("The server answered: {error}")),
            Err(_) => Outcome::failed(format!("No answer within {} s.", limit.as_secs())),
        }
    }
}
