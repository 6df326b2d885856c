//! One tool of a server, as a turn sees it: judged like any other, run over the connection.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, JsonObject};
use serde_json::Value;

use super::call::{Asker, Trouble};
use super::elicit::Caller;
use super::listed::Listed;
use super::server::Server;
use super::{call, shown};
use crate::checkpoint::Foreseen;
use crate::effect::{CallView, Content, Effect, RemoteCall, short_title, visible_line};
use crate::exec::Jobs;
use crate::files::Roots;
use crate::message::ToolSpec;
use crate::permission::Pass;
use crate::tools::{AnyTool, Bench, Offer, Outcome, Prepared, ToolCtx, mended};

/// Characters of an argument that stand in a title.
const HINT: usize = 40;
/// Arguments that an error names.
const MOST_NAMED: usize = 12;

/// A tool.
#[derive(Debug)]
pub(super) struct RemoteTool {
    /// The function's name, for the model.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    pub(super) listed: Arc<Listed>,
}

impl RemoteTool {
    /// One that the model knows by that name.
    pub(super) fn new(name: String, server: Arc<Server>, listed: Arc<Listed>) -> RemoteTool {
        RemoteTool { name, server, listed }
    }

    fn view(&self, hint: Option<&str>) -> CallView {
        let mut title = format!("{}: {}", self.server.spec.name, self.listed.tool.name);
        if let Some(hint) = hint {
            title.push_str(&format!(" ({hint})"));
        }
        let title = short_title(visible_line(&title));
        CallView { title, kind: self.listed.kind(), locations: Vec::new() }
    }

    /// What is wrong with arguments, for the model, after what can be meant in one way only was put
    /// right.
    fn check(&self, arguments: &mut JsonObject) -> Result<(), String> {
        let check = &self.listed.arguments;
        let given = Value::Object(arguments.clone());
        if check.complaint(&given).is_none() {
            return Ok(());
        }
        let given = mended(given, &self.listed.parameters);
        let complaint = check.complaint(&given);
        if let (None, Value::Object(mended)) = (&complaint, given) {
            *arguments = mended;
            return Ok(());
        }
        let complaint = complaint.unwrap_or_default();
        Err(format!(
            "Invalid arguments for {}: {complaint}. The server was not called. {}",
            self.name,
            self.names()
        ))
    }

    /// The arguments that there are.
    fn names(&self) -> String {
        let parameters = &self.listed.parameters;
        let Some(properties) = parameters["properties"].as_object() else { return String::new() };
        let required = parameters["required"].as_array();
        let is_required =
            |name: &String| required.is_some_and(|it| it.iter().any(|it| it == name.as_str()));
        let name =
            |it: &String| format!("{it}{}", if is_required(it) { " (required)" } else { "" });
        let mut names: Vec<_> = properties.keys().take(MOST_NAMED).map(name).collect();
        if properties.len() > MOST_NAMED {
            names.push("…".to_owned());
        }
        if names.is_empty() {
            "It takes none.".to_owned()
        } else {
            format!("It takes: {}.", names.join(", "))
        }
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
            description: self.listed.description.clone(),
            parameters: self.listed.parameters.clone(),
        }))
    }

    fn lender(&self) -> Option<&str> {
        Some(&self.server.spec.name)
    }

    fn title(&self) -> Option<&str> {
        let annotated = || self.listed.tool.annotations.as_ref()?.title.as_deref();
        let tool = &self.listed.tool;
        tool.title.as_deref().or_else(annotated).or(Some(&tool.name))
    }

    fn first_view(&self) -> Option<CallView> {
        Some(self.view(None))
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn Prepared>, String> {
        let arguments = match args {
            Value::Object(arguments) => arguments,
            Value::Null => JsonObject::new(),
            // All of them, written as a text.
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(arguments)) => arguments,
                _ => return Err("The arguments must be an object.".to_owned()),
            },
            _ => return Err("The arguments must be an object.".to_owned()),
        };
        Ok(Box::new(Call { tool: self, arguments, checked: None }))
    }
}

struct Call {
    tool: Arc<RemoteTool>,
    arguments: JsonObject,
    /// What is wrong with the arguments, once they were looked at.
    checked: Option<Result<(), String>>,
}

impl Prepared for Call {
    fn locate(&mut self, _: &Bench) {
        if self.checked.is_none() {
            self.checked = Some(self.tool.check(&mut self.arguments));
        }
    }

    fn view(&self, _: &Roots) -> CallView {
        self.tool.view(hint(&self.arguments).as_deref())
    }

    fn effects(&self) -> Vec<Effect> {
        vec![Effect::Remote(Box::new(RemoteCall {
            server: self.tool.server.spec.name.clone(),
            tool: self.tool.listed.tool.name.clone().into_owned(),
            claims_to_read: self.tool.listed.claims_to_read(),
            change: None,
        }))]
    }

    fn look<'a>(&'a mut self, _: &'a ToolCtx) -> BoxFuture<'a, Result<Vec<Content>, String>> {
        let claims = self.tool.listed.claims();
        let content = claims.map(Content::Text).into_iter().collect();
        std::future::ready(self.checked.clone().unwrap_or(Ok(())).map(|()| content)).boxed()
    }

    fn foresees(&self) -> Vec<Foreseen<'_>> {
        Vec::new()
    }

    fn run<'a>(self: Box<Self>, _: Pass, ctx: &'a ToolCtx) -> BoxFuture<'a, Outcome> {
        self.call(ctx).boxed()
    }
}

impl Call {
    async fn call(self: Box<Self>, ctx: &ToolCtx) -> Outcome {
        let (server, listed) = (&self.tool.server, Arc::clone(&self.tool.listed));
        let client = Arc::clone(&ctx.bench.client);
        let caller = Caller { call: ctx.call.clone(), client, cancel: ctx.cancel.clone() };
        let _calling = server.callers.enter(caller);
        let (peer, connection) = match server.peer().await {
            Ok(found) => found,
            Err(why) => return Outcome::failed(why),
        };
        let params =
            CallToolRequestParams::new(listed.tool.name.clone()).with_arguments(self.arguments);
        let asker = Asker { server: &server.spec.name, roots: server.roots() };
        let progress = &server.state().progress;
        let calling = call::call(&peer, progress, params, server.spec.limits, asker, ctx);
        let answer = match calling.await {
            Ok(answer) => answer,
            Err(Trouble::Told(why)) => return Outcome::failed(why),
            Err(Trouble::Lost) => return Outcome::failed(server.lost(connection).await),
        };
        let folder = Jobs::folder(&ctx.bench.commons.folders.state, &ctx.bench.session);
        let file = folder.join(format!("{}.txt", file_name(ctx.call.as_str())));
        let showing = tokio::task::spawn_blocking(move || {
            shown::outcome(answer, listed.results.as_ref(), &file)
        });
        showing.await.unwrap_or_else(|error| Outcome::failed(error.to_string()))
    }
}

/// What a call is about, in a few words: its first short text.
fn hint(arguments: &JsonObject) -> Option<String> {
    let texts = arguments.values().filter_map(Value::as_str).map(str::trim);
    let first = texts.into_iter().find(|it| !it.is_empty())?;
    let mut hint = visible_line(first);
    if let Some((end, _)) = hint.char_indices().nth(HINT) {
        hint.truncate(end);
        hint.push('…');
    }
    Some(hint)
}

/// The name of a call as one of a file.
fn file_name(call: &str) -> String {
    let fits = |it: &char| it.is_ascii_alphanumeric() || *it == '-' || *it == '_';
    let name: String = call.chars().filter(fits).take(80).collect();
    format!("mcp-{name}")
}
