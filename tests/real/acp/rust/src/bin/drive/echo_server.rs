//! An MCP server of the client's, which the agent reaches over ACP: its only tool gives back its argument.

use agent_client_protocol::mcp_server::{
    McpOutcome, McpRequest, McpRequestContext, McpServer, McpService,
};
use agent_client_protocol::{Agent, BoxFuture, Error, NullRun};
use serde_json::{Value, json};

struct EchoService;

pub fn echo_server() -> McpServer<Agent, NullRun> {
    McpServer::new_service("lent", EchoService, NullRun)
}

impl McpService<Agent> for EchoService {
    fn execute(
        &self,
        request: McpRequest,
        _context: McpRequestContext<Agent>,
    ) -> BoxFuture<'static, Result<McpOutcome, Error>> {
        Box::pin(async move { answer(&request).map(McpOutcome::Result) })
    }
}

fn answer(request: &McpRequest) -> Result<Value, Error> {
    let fresh = json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private" });
    let mut result = match request.method.as_str() {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "lent", "version": "1.0.0" },
        }),
        "tools/list" => json!({ "tools": [{
            "name": "echo",
            "description": "Gives back the message.",
            "inputSchema": { "type": "object", "properties": { "message": { "type": "string" } } },
        }] }),
        "tools/call" => {
            let message =
                request.params.as_ref().and_then(|it| it["arguments"]["message"].as_str());
            let text = format!("echo: {}", message.unwrap_or_default());
            json!({ "content": [{ "type": "text", "text": text }] })
        }
        method => return Err(Error::method_not_found().data(method)),
    };
    for (key, value) in fresh.as_object().into_iter().flatten() {
        result[key] = value.clone();
    }
    Ok(result)
}
