//! The proxies of the environment: what goes through them, and what never does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

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

#[test]
fn a_proxy_that_refuses_the_password_is_not_asked_again() {
    let proxy = RawServer::with_models(|_, _, stream| {
        answer(stream, "407 Proxy Authentication Required", "", "");
    });
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", "https://models.invalid/v1")
        .variable("TURNWRIGHT_MODEL", "m")
        .variable("https_proxy", &format!("http://me:old-password@{}", proxy.host()))
        .start();
    let id = agent.prompt("go");
    let answer = agent.wait_for("the answer", |line| line["id"] == id);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("the proxy wants a name and a password"), "{message}");
    assert!(message.contains("Check the proxy variables"), "{message}");
    let log = format!("{:?}", agent.log);
    assert!(!log.contains("rying again") && !log.contains("old-password"), "{log}");
}

/// Plays a SOCKS 5 proxy that is asked to connect to a host by its name, and then plays that host.
fn play_socks(stream: &mut TcpStream) {
    let mut greeting = [0; 3];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, [5, 1, 0], "version 5, one method, no login");
    stream.write_all(&[5, 0]).unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], [5, 1, 0, 3], "version 5, connect, a name");
    let mut place = vec![0; usize::from(head[4]) + 2];
    stream.read_exact(&mut place).unwrap();
    assert_eq!(place, b"models.invalid\x1f\x40");
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    // The request has more than this.
    stream.read_exact(&mut [0; 16]).unwrap();
    answer(stream, "403 Forbidden", "", "Behind SOCKS.");
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    std::io::copy(stream, &mut std::io::sink()).ok();
}

#[test]
fn a_socks_proxy_is_used_and_looks_names_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for accepted in listener.incoming() {
            let mut stream = accepted.unwrap();
            std::thread::spawn(move || play_socks(&mut stream));
        }
    });
    for scheme in ["socks5h", "socks"] {
        let mut agent = TestAgent::unconfigured()
            .variable("OPENAI_BASE_URL", "http://models.invalid:8000/v1")
            .variable("TURNWRIGHT_MODEL", "m")
            .variable("ALL_PROXY", &format!("{scheme}://{host}"))
            .start();
        let id = agent.prompt("go");
        let answer = agent.wait_for("the answer", |line| line["id"] == id);
        let message = answer["error"]["message"].as_str().unwrap();
        let expected = format!("answered 403 (through the proxy {host}): Behind SOCKS");
        assert!(message.contains(&expected), "{message}");
    }
}
