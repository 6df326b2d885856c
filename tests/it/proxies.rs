//! The proxies of the environment: what goes through them, and what never does.

use serde_json::json;
use turnwright_testing::mcp_http_stub::{McpHttpStub, answer};
use turnwright_testing::raw_server::RawServer;

use crate::agent::{TestAgent, calls, says};

/// A proxy that refuses everything, as one of a company does.
fn refusing_proxy() -> RawServer {
    RawServer::with_models(|_, _, stream| answer(stream, "403 Forbidden", "", "Blocked by policy."))
}

#[test]
fn nothing_on_this_machine_is_asked_through_a_proxy() {
    let proxy = refusing_proxy();
    let stub = McpHttpStub::good();
    let local = stub.url().replace("127.0.0.1", "localhost");
    let server = json!({ "type": "http", "name": "far", "url": local, "headers": [] });
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__far__echo", &json!({ "text": "hi" })), says("done")]))
        .permission("allow_once")
        .server_as(server)
        .variable("HTTP_PROXY", &format!("http://{}", proxy.host()))
        .variable("ALL_PROXY", &format!("http://{}", proxy.host()))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains(r#"{"text":"hi"}"#), "{result}");
    assert_eq!(proxy.requests(), [""; 0], "the proxy got what is none of its business");
}

#[test]
fn a_status_names_the_proxy_and_the_advice_about_it_works() {
    let proxy = refusing_proxy();
    let host = proxy.host();
    let message = |no_proxy: &str| {
        let mut agent = TestAgent::unconfigured()
            .variable("OPENAI_BASE_URL", "http://models.invalid:8000/v1")
            .variable("TURNWRIGHT_MODEL", "m")
            .variable("http_proxy", &format!("http://me:pa55-of-a-proxy@{host}"))
            .variable("no_proxy", no_proxy)
            .start();
        let id = agent.prompt("go");
        let answer = agent.wait_for("the answer", |it| it["id"] == id);
        let log = format!("{:?}", agent.log);
        assert!(!log.contains("pa55"), "{log}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    let refused = message("other.example");
    let named =
        format!("models.invalid:8000 answered 403 (through the proxy {host}): Blocked by policy");
    assert!(refused.contains(&named), "{refused}");
    assert!(refused.contains("If the proxy refuses it"), "{refused}");
    assert!(!proxy.requests().is_empty());
    let asked = proxy.requests().len();
    // The name cannot be looked up, so whoever is asked directly is not found.
    for entry in ["models.invalid:8000", "*.invalid", ".invalid", "x, *"] {
        let direct = message(entry);
        assert!(direct.contains("models.invalid:8000 was not found"), "{entry}: {direct}");
    }
    assert_eq!(proxy.requests().len(), asked);
}
