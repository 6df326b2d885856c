//! A proxy for the conductor, of this kind:
//!
//! - `greet` turns a prompt that says "Greet" into the greeting that the scenario knows, and passes everything
//!   else through.
//! - `polyfill` is the SDK's own proxy that gives MCP servers of type `acp` to the agent over HTTP, unless the
//!   agent takes them as they are.

use agent_client_protocol::{
    Agent, Client, ConnectTo as _, Error, Proxy, Stdio, on_receive_request, v1, v2,
};
use agent_client_protocol_polyfill::mcp_over_acp::McpOverAcpPolyfill;

#[tokio::main]
async fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("greet") => greet().await,
        Some("polyfill") => McpOverAcpPolyfill::http().connect_to(Stdio::new()).await,
        _ => Err(Error::invalid_params().data("usage: proxy greet|polyfill")),
    }
}

async fn greet() -> Result<(), Error> {
    let first = Proxy.v1().on_receive_request_from(
        Client,
        async |mut request: v1::schema::PromptRequest, responder, connection| {
            for block in &mut request.prompt {
                if let v1::schema::ContentBlock::Text(text) = block {
                    text.text = text.text.replace("Greet", "Say hello");
                }
            }
            connection.send_request_to(Agent, request).forward_response_to(responder)
        },
        on_receive_request!(),
    );
    let second = Proxy.v2().on_receive_request_from(
        Client,
        async |mut request: v2::schema::PromptRequest, responder, connection| {
            for block in &mut request.prompt {
                if let v2::schema::ContentBlock::Text(text) = block {
                    text.text = text.text.replace("Greet", "Say hello");
                }
            }
            connection.send_request_to(Agent, request).forward_response_to(responder)
        },
        on_receive_request!(),
    );
    Proxy.protocol_router().with_v1(first).with_v2(second).connect_to(Stdio::new()).await
}
