//! Model servers that cannot be reached or that refuse a request (R-TURN-12): the prompt fails with
//! an error that says what to do, never with a false `end_turn`, and the session goes on. Errors
//! within an answer are in `trouble_stream`, and unusual bytes are in `trouble_bytes`.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::cancellation::{assert_valid, cancel_and_go_on, go_on, next_reply};
use turnwright_testing::mcp_http_stub::answer;
use turnwright_testing::model_failures::{KEY, failure};
use turnwright_testing::raw_server::{RawServer, text_stream, write_stream};
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{TestAgent, eventually, says};

/// Returns a reply that is a plain response.
fn status(status: u16, body: &Value) -> Value {
    json!([{ "status": status, "body": body }])
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

#[test]
fn r_turn_12_an_unreachable_model_server_is_reported_as_such() {
    // No server listens on this port, and the system does not give it to a server of another test.
    let url = "http://127.0.0.1:9/v1";
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", url).start();
    let error = failure(&mut agent, "network", None);
    let expected = "Nothing answers at 127.0.0.1:9. Is the server running?";
    assert_eq!(message(&error), expected, "{error}");
    // While the agent was waiting, it told the user why.
    assert!(agent.thoughts().contains("Trying again"), "{}", agent.thoughts());
    assert_eq!(agent.text(), "");
}

#[test]
fn r_turn_12_the_agent_waits_for_a_model_server_that_starts_late() {
    let port = turnwright_testing::closed_port();
    let url = format!("http://127.0.0.1:{port}/v1");
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &url).start();
    let id = agent.prompt("one");
    agent.wait_for_update("agent_thought_chunk");
    let scenario = Scenario::from_value(json!({ "replies": [says("Here I am.")] })).unwrap();
    let _server = Server::start(scenario, port).unwrap();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.text(), "Here I am.");
}

#[test]
fn r_turn_12_a_server_that_has_answered_is_waited_for_beyond_four_attempts_and_the_user_may_cancel()
{
    let port = turnwright_testing::closed_port();
    let url = format!("http://127.0.0.1:{port}/v1");
    let scenario = |replies: Value| Scenario::from_value(json!({ "replies": replies })).unwrap();
    let server = Server::start(scenario(json!([says("One.")])), port).unwrap();
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &url).start();
    assert_eq!(agent.turn("one"), "end_turn");
    drop(server);
    let id = agent.prompt("two");
    while !agent.thoughts().contains("Trying again in 9 s.")
        && !agent.thoughts().contains("Trying again in 8 s.")
        && !agent.thoughts().contains("Trying again in 7 s.")
    {
        agent.wait_for_update("agent_thought_chunk");
    }
    assert!(agent.thoughts().contains("Nothing answers at"), "{}", agent.thoughts());
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let _server = Server::start(scenario(json!([says("Three.")])), port).unwrap();
    assert_eq!(agent.turn("three"), "end_turn");
    assert_eq!(agent.text(), "One.Three.");
}

#[test]
fn r_turn_12_a_request_is_repeated_if_the_connection_closes_without_a_response() {
    let refuses = json!([{ "refuse": true }]);
    let mut agent = TestAgent::builder().model(json!([refuses, says("Now.")])).start();
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.text(), "Now.");
}

#[test]
fn r_turn_12_a_refused_key_is_an_authentication_error_that_does_not_show_the_key() {
    for code in [401, 403] {
        let body = json!({ "error": { "message": format!("Incorrect API key provided: {KEY}.\nGo\taway.") } });
        let mut agent =
            TestAgent::builder().model(json!([status(code, &body), next_reply()])).start();
        let error = failure(&mut agent, "auth", Some(code));
        assert!(message(&error).contains("Incorrect API key provided"), "{error}");
        assert!(message(&error).contains("Check the key in OPENAI_API_KEY"), "{error}");
        assert!(message(&error).contains("turnwright login"), "{error}");
        assert_eq!(agent.model().requests().len(), 1, "the request must not be repeated");
        go_on(&mut agent);
    }
}

/// The token of a gateway that another program renews, or a login while the session is open.
#[test]
fn a_key_that_was_replaced_is_read_again_when_the_old_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "token-of-today-0123").unwrap();
    let server = RawServer::reading(|_, request, stream| {
        if request.contains("Bearer token-of-tomorrow-4567") {
            return write_stream(stream, &text_stream("Hello."));
        }
        answer(stream, "401 Unauthorized", "", "The token has expired.");
    });
    let settings = format!(
        "model = 'p/m'\n[providers.p]\nbase_url = '{}'\nkey_file = '{}'\n",
        server.base_url(),
        key.display()
    );
    let asked = || server.requests().iter().filter(|request| request.contains("/chat/")).count();
    let mut agent = crate::provider::configured(&settings).start();
    let error = failure(&mut agent, "auth", Some(401));
    assert!(message(&error).contains("The token has expired"), "{error}");
    assert_eq!(asked(), 1, "the same key is not sent again");
    std::fs::write(&key, "token-of-tomorrow-4567").unwrap();
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(agent.text(), "Hello.");
    assert_eq!(asked(), 3);
}

/// LiteLLM's answers without a database and to those who send no key.
#[test]
fn a_gateway_that_only_stumbles_over_a_key_is_told_as_a_matter_of_the_key() {
    let body = json!({ "error": { "message": "No connected db.", "type": "no_db_connection", "code": "400" } });
    let mut agent = TestAgent::builder().model(json!([status(400, &body), next_reply()])).start();
    let error = failure(&mut agent, "auth", Some(400));
    assert!(message(&error).contains("Check the key in OPENAI_API_KEY"), "{error}");

    let server = RawServer::start(|_, stream| {
        let text = "Internal Server Error";
        let head = format!("HTTP/1.1 500 Error\r\nContent-Length: {}\r\n\r\n", text.len());
        stream.write_all((head + text).as_bytes()).ok();
    });
    let settings = format!("model = 'p/m'\n[providers.p]\nbase_url = '{}'\n", server.base_url());
    let mut agent = crate::provider::configured(&settings).start();
    let error = failure(&mut agent, "auth", Some(500));
    assert!(message(&error).contains("No key is sent"), "{error}");
    let asked = server.requests().iter().filter(|it| it.contains("/chat/")).count();
    assert_eq!(asked, 1, "the request must not be repeated");
}

#[test]
fn r_turn_12_the_key_is_removed_from_errors_of_every_form() {
    let texts = [
        json!(format!("plain {KEY} text")),
        json!({ "detail": [{ "msg": format!("bad header: Bearer {KEY}") }] }),
        json!([{ "error": { "message": format!("\"{KEY}\"") } }]),
        json!(format!("<html><title>Denied for {KEY}</title></html>")),
        json!({ "unknown": KEY }),
    ];
    for body in texts {
        let mut agent =
            TestAgent::builder().model(json!([status(401, &body), next_reply()])).start();
        let error = failure(&mut agent, "auth", Some(401));
        assert!(message(&error).contains("[key]"), "{error}");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_the_key_is_removed_from_an_error_inside_an_answer() {
    let text = format!("unsupported value {KEY}");
    let replies = [
        json!([{ "error": { "message": text } }]),
        json!([{ "text": "a" }, { "error": text }]),
        json!([{ "raw": format!("event: error\ndata: {text}\n\n") }]),
        json!([{ "raw": format!("error: {{\"message\":\"{text}\"}}\n\n") }]),
        json!([{ "status": 200, "body": { "error": { "message": text } } }]),
    ];
    for reply in replies {
        let mut agent = TestAgent::builder().model(json!([reply, next_reply()])).start();
        let error = failure(&mut agent, "bad_request", None);
        assert!(message(&error).contains("unsupported value [key]"), "{error}");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_no_part_of_the_key_is_left_where_a_long_error_is_cut() {
    // Errors are cut after 500 characters, which is in the middle of the key.
    let text = format!("unsupported {} {KEY}", "x".repeat(478));
    let error = json!({ "error": { "message": text } });
    for reply in [status(401, &error), json!([{ "data": error }])] {
        let mut agent = TestAgent::builder().model(json!([reply, next_reply()])).start();
        let id = agent.prompt("one");
        let answer = agent.answer_to(&id);
        let shown = message(&answer["error"]);
        assert!(shown.contains("xxx") && !shown.contains("sk-"), "{shown}");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_an_unknown_model_or_path_says_what_to_check() {
    let body = json!({ "error": { "message": "The model `scripted` does not exist" } });
    let mut agent = TestAgent::builder().model(json!([status(404, &body), next_reply()])).start();
    let error = failure(&mut agent, "model_not_found", Some(404));
    assert!(message(&error).contains("The model `scripted` does not exist"), "{error}");
    assert!(message(&error).contains("Check the model name"), "{error}");
    // The agent may also have requested the list of models.
    let requests = agent.model().requests();
    let chat_requests = requests.iter().filter(|it| it.path.ends_with("/chat/completions")).count();
    assert_eq!(chat_requests, 1, "the request must not be repeated");
    go_on(&mut agent);
}

#[test]
fn r_turn_12_a_prompt_that_has_failed_is_not_joined_to_the_next_prompt() {
    let error = json!({ "error": { "message": "No." } });
    let mut agent = TestAgent::builder().model(json!([status(400, &error), next_reply()])).start();
    failure(&mut agent, "bad_request", Some(400));
    go_on(&mut agent);
    assert_eq!(
        agent.model_transcript(1),
        ["user one", "assistant [Stopped here: the turn failed.]", "user and now?"]
    );
}

#[test]
fn r_turn_12_a_permanent_error_is_not_retried() {
    let quota = json!({ "error": { "message": "You exceeded your current quota.",
        "type": "insufficient_quota", "code": "insufficient_quota" } });
    let plain = json!({ "error": { "message": "No." } });
    for (code, body, kind) in [
        (429, &quota, "quota"),
        (402, &plain, "quota"),
        (400, &plain, "bad_request"),
        (422, &plain, "bad_request"),
    ] {
        let mut agent =
            TestAgent::builder().model(json!([status(code, body), next_reply()])).start();
        failure(&mut agent, kind, Some(code));
        assert_eq!(
            agent.model().requests().len(),
            1,
            "the request must not be repeated after {code}"
        );
        assert_eq!(agent.thoughts(), "");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_busy_provider_is_asked_again_after_the_time_that_it_names() {
    let busy = json!([{ "status": 429, "headers": { "Retry-After": "1" },
        "body": { "error": { "message": "Rate limit reached." } } }]);
    let mut agent = TestAgent::builder().model(json!([busy, says("Now."), next_reply()])).start();
    // Before the prompt: the pause may have begun long before the notice is read here.
    let started = Instant::now();
    let id = agent.prompt("one");
    let notice = agent.wait_for_update("agent_thought_chunk")["content"]["text"].clone();
    let notice = notice.as_str().unwrap();
    assert!(notice.contains("Rate limit reached"), "{notice}");
    assert!(notice.contains("Trying again in 1 s"), "{notice}");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_millis(800), "the request was repeated after {elapsed:?}");
    assert_eq!(agent.text(), "Now.");
    go_on(&mut agent);
    // A notice is for the user. The model does not receive it.
    assert_eq!(agent.model_transcript(2), ["user one", "assistant Now.", "user and now?"]);
}

#[test]
fn r_turn_12_a_long_wait_is_counted_down_and_can_be_cancelled() {
    // Only the text of the error says how long to wait.
    let busy = json!([{ "status": 429, "body": { "error": {
        "message": "Rate limit reached. Please try again in 15s." } } }]);
    let mut agent = TestAgent::builder().model(json!([busy, next_reply()])).start();
    let id = agent.prompt("one");
    let next_notice = |agent: &mut TestAgent| {
        let update = agent.wait_for_update("agent_thought_chunk");
        update["content"]["text"].as_str().unwrap().to_owned()
    };
    let first = next_notice(&mut agent);
    assert!(first.contains("Trying again in 15 s"), "{first}");
    assert_eq!(next_notice(&mut agent).trim(), "10 s left.");
    cancel_and_go_on(&mut agent, &id);
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn r_turn_6_a_window_that_nothing_makes_room_in_ends_the_turn_and_its_size_is_learned() {
    let full = json!({ "error": { "code": "context_length_exceeded", "message":
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens." } });
    let usage = json!([{ "text": "Hi." },
        { "usage": { "prompt_tokens": 50, "completion_tokens": 5 } }]);
    // The prompt is refused, and once more with shorter instructions.
    let mut script = vec![status(400, &full); 2];
    script.extend([usage, next_reply()]);
    let mut agent = TestAgent::builder()
        .model(json!(script))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "128000")
        .start();
    assert_eq!(agent.turn("one"), "max_tokens");
    assert!(agent.text().contains("does not fit into the model's window"), "{}", agent.text());
    assert_eq!(agent.turn("/clear"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.model_transcript(2), ["user two"]);
    let gauges = agent.updates_of("usage_update");
    let gauges: Vec<_> = gauges.iter().map(|it| (&it["used"], &it["size"])).collect();
    assert_eq!(gauges.last(), Some(&(&json!(55), &json!(4096))));
    assert!(gauges.iter().any(|it| it.0 == it.1), "{gauges:?}");
    go_on(&mut agent);
}

#[test]
fn r_turn_6_an_empty_answer_to_a_prompt_as_long_as_the_window_means_a_full_window() {
    let nothing = json!([{ "raw": "data: [DONE]\n\n" }, { "end": "eof" }]);
    let script = json!([nothing, says("Done."), next_reply()]);
    let mut agent =
        TestAgent::builder().model(script).variable("TURNWRIGHT_CONTEXT_WINDOW", "6000").start();
    assert_eq!(agent.turn(&"word ".repeat(6_000)), "end_turn");
    assert_eq!(agent.text(), "Done.");
    assert_eq!(agent.model().requests().len(), 2);
    go_on(&mut agent);
}

#[test]
fn r_turn_7_the_refusal_of_a_filter_is_shown_and_the_session_stays_usable() {
    let filter = json!({ "error": { "code": "data_inspection_failed",
        "message": "Input data may contain inappropriate content." } });
    let mut agent = TestAgent::builder().model(json!([status(400, &filter), next_reply()])).start();
    assert_eq!(agent.turn("one"), "refusal");
    assert_eq!(agent.text(), "Input data may contain inappropriate content.");
    go_on(&mut agent);
    assert_eq!(agent.model_transcript(1), ["user and now?"]);
}

#[test]
fn a_server_that_cuts_the_prompt_is_reported_once() {
    let usage = json!([{ "text": "Hm." }, { "usage": { "prompt_tokens": 4_000 } }]);
    let mut agent = TestAgent::builder().model(json!([usage, usage, usage, usage])).start();
    assert_eq!(agent.turn(&"word ".repeat(20_000)), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.turn("three"), "end_turn");
    assert_eq!(agent.thoughts().matches("seems to have cut the prompt").count(), 1);
}

#[test]
fn r_turn_12_a_wait_that_is_too_long_is_an_error_at_once() {
    let busy = json!([{ "status": 429, "headers": { "Retry-After": "3600" },
        "body": { "error": { "message": "Come back in an hour." } } }]);
    let mut agent = TestAgent::builder().model(json!([busy, next_reply()])).start();
    let error = failure(&mut agent, "rate_limit", Some(429));
    assert_eq!(error["data"]["retryAfter"], 3600);
    assert!(message(&error).contains("Come back in an hour. Prompt again in 60 min"), "{error}");
    go_on(&mut agent);
}

#[test]
fn r_turn_12_a_request_is_repeated_after_a_server_error() {
    let body = json!({ "error": "Overloaded" });
    for code in [500, 503, 529] {
        let stumbles = status(code, &body);
        let mut agent =
            TestAgent::builder().model(json!([stumbles, says("Now."), next_reply()])).start();
        assert_eq!(agent.turn("one"), "end_turn", "{code}");
        assert_eq!(agent.text(), "Now.");
        assert!(agent.thoughts().contains(&code.to_string()), "{}", agent.thoughts());
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_redirect_is_not_followed_because_it_would_send_the_key() {
    let thief = RawServer::start(|_, stream| write_stream(stream, &text_stream("Thanks!")));
    for code in [301, 302, 307, 308] {
        let location = format!("{}/chat/completions", thief.base_url());
        let reply = json!([{ "status": code, "headers": { "Location": location } }]);
        let mut agent = TestAgent::builder().model(json!([reply, next_reply()])).start();
        let error = failure(&mut agent, "url_not_found", Some(code));
        assert!(message(&error).contains(&thief.host()), "{error}");
        go_on(&mut agent);
    }
    assert_eq!(thief.requests(), [""; 0]);
}

#[test]
fn a_base_url_without_its_version_works_and_the_user_is_told_once() {
    const EMPTY: &str = "HTTP/1.1 404 No\r\nconnection: close\r\n\r\n";
    const PAGE: &str = "HTTP/1.1 404 No\r\n\
        content-type: text/html\r\nconnection: close\r\n\r\n<html><title>No</title></html>";
    for (path, missing) in [("", EMPTY), ("", PAGE), ("/api", PAGE), ("/openai/vision", EMPTY)] {
        let server = RawServer::reading(move |_, request, stream| {
            if request.starts_with(&format!("POST {path}/v1/chat/completions ")) {
                write_stream(stream, &text_stream("Hello."));
            } else {
                stream.write_all(missing.as_bytes()).unwrap();
            }
        });
        let whole_url = format!("http://{}{path}/v1", server.host());
        let url = format!("http://{}{path}/", server.host());
        let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &url).start();
        assert_eq!(
            (agent.turn("one"), agent.turn("two")),
            ("end_turn".to_owned(), "end_turn".to_owned())
        );
        let notice = format!("The base URL lacks `/v1`, so {whole_url} is used.");
        assert_eq!(agent.thoughts().matches(&notice).count(), 1, "{}", agent.thoughts());
        let posts = server.requests().into_iter().filter(|it| it.starts_with("POST "));
        let paths: Vec<_> = posts.map(|it| it.split(' ').nth(1).unwrap().to_owned()).collect();
        let bare = format!("{path}/chat/completions");
        let whole = format!("{path}/v1/chat/completions");
        assert_eq!(paths, [bare, whole.clone(), whole], "the path that works is remembered");
    }
}

#[test]
fn a_list_of_models_that_is_asked_for_at_the_same_time_does_not_change_where_the_api_is() {
    let released = Arc::new(AtomicBool::new(false));
    let server = RawServer::with_models({
        let released = Arc::clone(&released);
        move |_, request, stream| {
            if request.starts_with("POST /v1/chat/completions ") {
                return write_stream(stream, &text_stream("Hello."));
            }
            if request.starts_with("GET /v1/models ") {
                eventually("the test to go on", || released.load(Ordering::Relaxed));
            }
            stream.write_all(b"HTTP/1.1 404 No\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    let url = format!("http://{}/", server.host());
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &url).start();
    server.wait_for_requests(2);
    assert_eq!(agent.turn("one"), "end_turn");
    released.store(true, Ordering::Relaxed);
    eventually("all requests are answered", || server.has_finished(4));
    assert_eq!(agent.turn("two"), "end_turn");
    let requests = server.requests();
    let paths: Vec<_> = requests.iter().map(|it| it.split(' ').nth(1).unwrap()).collect();
    let (bare, whole) = ("/chat/completions", "/v1/chat/completions");
    assert_eq!(paths, ["/models", "/v1/models", bare, whole, whole]);
}

#[test]
fn r_turn_12_a_server_without_the_api_is_asked_twice_and_its_first_error_counts() {
    let server = RawServer::reading(|_, request, stream| {
        let number = if request.starts_with("POST /v1/") { "second" } else { "first" };
        let body = format!("HTTP/1.1 404 No\r\nconnection: close\r\n\r\nThe {number} 404");
        stream.write_all(body.as_bytes()).unwrap();
    });
    let url = format!("http://{}", server.host());
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &url).start();
    let error = failure(&mut agent, "url_not_found", Some(404));
    assert!(message(&error).contains("The first 404. Check the base URL"), "{error}");
    assert!(!agent.thoughts().contains("/v1"), "{}", agent.thoughts());
    let elsewhere = format!("http://{}/v2/api", server.host());
    let mut agent = TestAgent::builder().variable("OPENAI_BASE_URL", &elsewhere).start();
    failure(&mut agent, "url_not_found", Some(404));
    let paths: Vec<_> = server
        .requests()
        .iter()
        .filter(|it| it.starts_with("POST "))
        .map(|it| it.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/chat/completions", "/v1/chat/completions", "/v2/api/chat/completions"]);
}

#[test]
fn r_turn_12_a_model_that_falls_silent_is_an_error_that_names_the_setting() {
    for (said, steps) in [
        ("", json!([{ "stall_headers_ms": 60_000 }, { "text": "Too late." }])),
        ("Well", json!([{ "text": "Well" }, { "hang": true }])),
    ] {
        let mut agent = TestAgent::builder()
            .own_file("config/config.toml", "silence_seconds = 1")
            .model(json!([steps, next_reply()]))
            .start();
        let error = failure(&mut agent, "network", None);
        assert!(message(&error).contains("sent nothing for 1 s"), "{error}");
        assert!(message(&error).contains("set `silence_seconds`"), "{error}");
        assert_eq!(agent.text(), said);
        assert_eq!(agent.model().requests().len(), 1, "the request must not be repeated");
        go_on(&mut agent);
    }
}

#[test]
fn r_turn_12_a_failed_turn_leaves_a_history_that_servers_accept() {
    let body = json!({ "error": "No." });
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .model(json!([
            crate::agent::calls("read_file", &json!({ "path": "a.txt" })),
            status(400, &body),
            next_reply()
        ]))
        .start();
    failure(&mut agent, "bad_request", Some(400));
    go_on(&mut agent);
    let body = agent.model_request(2);
    assert_valid(&body);
    let messages = body["messages"].to_string();
    assert!(messages.contains("alpha") && messages.contains("one"), "{messages}");
}
