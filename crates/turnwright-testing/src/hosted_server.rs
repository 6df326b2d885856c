//! An MCP server that the test client hosts (MCP over ACP). The client answers its requests as they come, or
//! leaves them to the test.

use serde_json::{Value, json};

use crate::schema;
use crate::{TestAgent, Transport};

/// The method of the requests and notifications.
pub const METHOD: &str = "mcp/message";
/// The version of MCP without a handshake.
pub const VERSION: &str = "2026-07-28";

/// Answers a request, given its parameters, with the result of `mcp/message`. `None` leaves the request to
/// the test.
pub(crate) type HostedHandler = Box<dyn FnMut(&Value) -> Option<Value>>;

/// Returns the server in the format of `session/new`.
pub fn hosted_server(name: &str) -> Value {
    json!({ "type": "acp", "name": name, "serverId": format!("id-of-{name}") })
}

/// Answers as a well-behaved server with these tools, each of which returns its arguments.
pub fn answer_well(params: &Value, tools: &[&str]) -> Option<Value> {
    let meta = &params["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], VERSION, "{params}");
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object(), "{params}");
    let result = match params["method"].as_str().unwrap() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": [VERSION], "ttlMs": 0,
            "cacheScope": "private", "capabilities": { "tools": { "listChanged": true } },
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "hosted", "version": "3" } },
        }),
        "tools/list" => {
            let tool = |it: &&str| json!({ "name": it, "inputSchema": { "type": "object" } });
            json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": tools.iter().map(tool).collect::<Vec<_>>(),
            })
        }
        "tools/call" => {
            let text = params["params"]["arguments"].to_string();
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
        }
        _ => return None,
    };
    Some(json!({ "result": result }))
}

impl<T: Transport> TestAgent<T> {
    /// Has the server answer a request of the agent if it is one for it.
    pub(crate) fn answer_hosted(&mut self, message: &Value) {
        let is_for_server = message["method"] == METHOD && message.get("id").is_some();
        let Some(handler) = self.hosted.as_mut().filter(|_| is_for_server) else { return };
        if let Some(result) = handler(&message["params"]) {
            self.respond(message, &result);
        }
    }

    /// Waits for a request to a server that the client hosts.
    pub fn wait_for_hosted(&mut self, method: &str) -> Value {
        self.wait_for(method, |it| it["method"] == METHOD && it["params"]["method"] == method)
    }

    /// Returns the first request of this method to a server that the client hosts. It may already have been
    /// consumed.
    pub fn first_hosted(&mut self, method: &str) -> Value {
        match self.hosted_requests(method).first() {
            Some(request) => request.clone(),
            None => self.wait_for_hosted(method),
        }
    }

    /// Returns the requests to servers that the client hosts so far, by the methods of MCP.
    pub fn hosted_requests(&self, method: &str) -> Vec<Value> {
        let fits = |it: &&Value| it["method"] == METHOD && it["params"]["method"] == method;
        self.log.iter().filter(fits).cloned().collect()
    }

    /// Sends a notification that belongs to a request of the agent.
    pub fn notify_hosted(&mut self, request: &Value, method: &str, params: &Value) {
        let about = &request["params"];
        let sent = json!({
            "serverId": about["serverId"], "requestId": about["requestId"], "method": method,
            "params": params,
        });
        let message = json!({ "jsonrpc": "2.0", "method": METHOD, "params": sent });
        schema::check_version(self.protocol.version(None, &message), &message, None);
        self.send_line(&message.to_string());
    }

    /// Accepts a subscription to changes of a server's tools.
    pub fn acknowledge_hosted(&mut self, request: &Value) {
        let params = json!({
            "_meta": { "io.modelcontextprotocol/subscriptionId": request["params"]["requestId"] },
            "notifications": { "toolsListChanged": true },
        });
        self.notify_hosted(request, "notifications/subscriptions/acknowledged", &params);
    }

    /// Tells a subscriber that the tools have changed.
    pub fn change_hosted(&mut self, request: &Value) {
        let params = json!({
            "_meta": { "io.modelcontextprotocol/subscriptionId": request["params"]["requestId"] },
        });
        self.notify_hosted(request, "notifications/tools/list_changed", &params);
    }

    /// Waits until the agent has cancelled this request.
    pub fn wait_for_hosted_cancel(&mut self, request: &Value) {
        let is_cancel = |it: &Value| {
            it["method"] == "$/cancel_request" && it["params"]["requestId"] == request["id"]
        };
        if !self.log.iter().any(is_cancel) {
            self.wait_for("the cancel of a request", is_cancel);
        }
    }
}
