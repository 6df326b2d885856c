//! Usage and cost (R-TURN-9): the gauge shows how full the context window is after the last
//! request, never the sum of the requests of a turn. The cost is that of the whole session.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use turnwright_testing::raw_server::{RawServer, text_stream, wait_for_the_end, write_stream};

use crate::agent::{TestAgent, eventually};
use crate::provider::{Answer, Provider, calls, configured, has_result, plain, says};

/// Returns the updates of the gauge, which shows the use of the context window.
fn gauges(agent: &TestAgent) -> Vec<Value> {
    agent.updates_of("usage_update")
}

/// Returns an answer with text, followed by these chunks.
fn with_chunks(chunks: &[Value]) -> Answer {
    let words = json!({ "choices": [{ "index": 0, "delta": { "content": "Hi." } }] });
    Answer::Events([&[words], chunks].concat())
}

fn finish() -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })
}

fn usage(usage: &Value) -> Value {
    json!({ "choices": [], "usage": usage })
}

/// Runs a turn with these chunks, and returns the used and the cached tokens that the gauge shows.
fn shown(chunks: Vec<Value>) -> (Value, Value) {
    let provider = Provider::answering(move |_| with_chunks(&chunks));
    let section = provider.section("p", "[providers.p.model.m]\nwindow = 10000");
    let mut agent = configured(&format!("model = 'p/m'\n{section}")).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let gauge = gauges(&agent).pop().unwrap_or_else(|| panic!("{:?}", agent.updates()));
    assert_eq!(gauge["size"], 10_000);
    assert_eq!(gauge.get("cost"), None, "the price is unknown");
    (gauge["used"].clone(), gauge["_meta"]["turnwright/cachedTokens"].clone())
}

/// The corpus of recorded streams has the other dialects.
#[test]
fn what_comes_from_the_cache_is_a_part_of_what_the_gauge_shows() {
    let with = |mut usage: Value, input: u64| {
        usage["prompt_tokens"] = json!(input);
        usage["completion_tokens"] = json!(20);
        usage
    };
    let openai = json!({ "prompt_tokens_details": { "cached_tokens": 60 } });
    let within = json!({ "cache_read_input_tokens": 60 });
    let apart = json!({ "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30 });
    for (name, counted) in [
        ("OpenAI", with(openai, 100)),
        ("Anthropic behind a gateway", with(apart, 10)),
        ("a gateway that counts as OpenAI does", with(within, 100)),
    ] {
        assert_eq!(shown(vec![finish(), usage(&counted)]), (json!(120), json!(60)), "{name}");
    }
}

/// Starts a provider that answers a turn with two requests, of 1000 and of 1500 tokens.
fn two_requests() -> Provider {
    Provider::answering(|body| {
        let is_last = has_result(body);
        let counted = if is_last {
            json!({ "prompt_tokens": 1400, "completion_tokens": 100,
                    "prompt_tokens_details": { "cached_tokens": 1000 } })
        } else {
            json!({ "prompt_tokens": 900, "completion_tokens": 100 })
        };
        if is_last {
            return with_chunks(&[finish(), usage(&counted)]);
        }
        let Answer::Events(mut events) = calls("list_dir", &json!({})) else { return says("") };
        events.push(usage(&counted));
        Answer::Events(events)
    })
}

#[test]
fn r_turn_9_usage_is_that_of_the_last_request_and_the_cost_is_that_of_the_session() {
    let provider = two_requests();
    let price = "[providers.p.model.m]\nwindow = 10000\n\
                 price = { input = 2.0, cached = 0.5, output = 10.0 }";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", price));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("go"), "end_turn");
    // The costs in millionths are 900 × 2 + 100 × 10, and then 400 × 2 + 1000 × 0.5 + 100 × 10.
    let all = gauges(&agent);
    let used: Vec<_> = all.iter().map(|it| it["used"].as_u64().unwrap()).collect();
    assert_eq!(used, [1000, 1500]);
    assert_cost(&all[0], 0.0028);
    assert_cost(&all[1], 0.0051);
    assert_eq!(agent.turn("/clear"), "end_turn");
    assert_eq!(agent.turn("go on"), "end_turn");
    assert_cost(&gauges(&agent)[3], 0.0102);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_cost(&gauges(&agent)[0], 0.0028);
}

#[test]
fn r_turn_9_the_answer_to_a_prompt_has_the_tokens_of_its_requests_and_of_no_others() {
    let provider = Provider::answering(|body| {
        let details = json!({ "reasoning_tokens": 30 });
        let counted = json!({ "prompt_tokens": 900, "completion_tokens": 100,
            "prompt_tokens_details": { "cached_tokens": 500 }, "completion_tokens_details": details });
        if has_result(body) || !body.to_string().contains("list_dir") {
            return with_chunks(&[finish(), usage(&counted)]);
        }
        let Answer::Events(mut events) = calls("list_dir", &json!({})) else { return says("") };
        events.push(usage(&counted));
        Answer::Events(events)
    });
    let mut agent = configured(&format!("model = 'p/m'\n{}", provider.section("p", ""))).start();
    let used = |requests: u64| {
        json!({ "totalTokens": 1000 * requests, "inputTokens": 900 * requests,
            "outputTokens": 100 * requests, "cachedReadTokens": 500 * requests,
            "thoughtTokens": 30 * requests })
    };
    for (prompt, expected) in [("go", used(2)), ("go on", used(1)), ("/status", Value::Null)] {
        let id = agent.prompt(prompt);
        let answer = agent.answer_to(&id);
        assert_eq!(answer["result"]["usage"], expected, "{prompt}: {answer}");
    }
}

#[test]
fn the_cost_of_an_answer_that_fails_counts_too() {
    let counted = json!({ "prompt_tokens": 1000, "completion_tokens": 100 });
    let provider = Provider::answering(move |body| {
        let all = body.to_string();
        let is_thought = !all.contains("was only reasoning");
        let field = if is_thought { "reasoning_content" } else { "content" };
        let words = json!({ "choices": [{ "index": 0, "delta": { field: "Hm." } }] });
        Answer::Events(vec![words, finish(), usage(&counted)])
    });
    let price = "[providers.p.model.m]\nprice = { input = 2.0, output = 10.0 }";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", price));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 2);
    assert_cost(&gauges(&agent)[0], 0.006);
    assert_eq!(agent.turn("/cost"), "end_turn");
    assert!(agent.text().contains("Cost: $0.0060"), "{}", agent.text());
    let counts = json!({ "choices": [], "usage": { "prompt_tokens": 9, "cost": 0.25 } });
    let cut = json!([{ "raw": format!("data: {counts}\n\n") }, { "cut": true }]);
    let mut agent = TestAgent::builder().model(json!([cut, [{ "text": "Now." }]])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), "Now.");
    assert_cost(&gauges(&agent)[0], 0.25);
}

fn assert_cost(gauge: &Value, expected: f64) {
    assert_eq!(gauge["cost"]["currency"], "USD", "{gauge}");
    let amount = gauge["cost"]["amount"].as_f64().unwrap();
    assert!((amount - expected).abs() < 1e-9, "the cost is {amount}, not {expected}");
}

/// The gauge, `/cost` and the stored session agree, whatever the price would make of the tokens.
#[test]
fn the_cost_that_the_server_reports_wins_over_the_estimate() {
    let price = "[providers.p.model.m]\nprice = { input = 2.0, output = 10.0 }";
    for (reported, expected) in [(json!(0.25), 0.25), (json!(0), 0.0), (json!(-1), 0.003)] {
        let counted = json!({ "prompt_tokens": 1000, "completion_tokens": 100, "cost": reported });
        let provider = Provider::answering(move |_| with_chunks(&[finish(), usage(&counted)]));
        let settings = format!("model = 'p/m'\n{}", provider.section("p", price));
        let mut agent = configured(&settings).start();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_cost(&gauges(&agent)[0], expected);
        assert_eq!(agent.turn("/cost"), "end_turn");
        let text = agent.text();
        assert!(text.contains(&format!("Cost: ${expected:.4}")), "{reported}: {text}");
    }
}

#[test]
fn the_cost_is_reported_without_token_counts_and_outside_of_them_too() {
    let beside = |cost: Value| json!({ "choices": [], "cost": cost });
    let vercel = json!({ "choices": [], "provider_metadata": { "gateway": { "cost": "0.25" } } });
    for chunk in [usage(&json!({ "cost": 0.25 })), beside(json!("0.25")), vercel] {
        let provider = Provider::answering(move |_| with_chunks(&[finish(), chunk.clone()]));
        let mut agent =
            configured(&format!("model = 'p/m'\n{}", provider.section("p", ""))).start();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_cost(&gauges(&agent)[0], 0.25);
    }
}

/// LiteLLM tells the cost of an answer that is not streamed in a header.
#[test]
fn the_cost_in_a_header_counts() {
    let server = RawServer::start(|_, stream| {
        let message = json!({ "role": "assistant", "content": "Hello." });
        let body =
            json!({ "choices": [{ "message": message, "finish_reason": "stop" }] }).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-LiteLLM-Response-Cost: 0.25\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).ok();
    });
    let settings = format!("model = 'p/m'\n[providers.p]\nbase_url = '{}'\n", server.base_url());
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_cost(&gauges(&agent)[0], 0.25);
}

#[test]
fn without_a_price_for_cached_tokens_all_input_costs_the_same() {
    let provider = two_requests();
    let price = "[providers.p.model.gpt-4o]\nprice = { input = 1.0, output = 0.0 }";
    let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", price));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let last = gauges(&agent).pop().unwrap();
    assert_eq!(last["size"], 128_000);
    assert_cost(&last, 0.0023);
}

#[test]
fn r_turn_9_a_window_is_assumed_until_an_overflow_names_it() {
    let provider = Provider::answering(|body| {
        let body = body.to_string();
        if body.contains("too much") && !body.contains("ummary") {
            let message = "This model's maximum context length is 4096 tokens. However, you \
                           requested 5000 tokens.";
            return crate::provider::refuses(message);
        }
        with_chunks(&[finish(), usage(&json!({ "prompt_tokens": 100, "completion_tokens": 20 }))])
    });
    let settings = format!("model = 'p/m'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let assumed = gauges(&agent).pop().unwrap();
    assert_eq!((&assumed["used"], &assumed["size"]), (&json!(120), &json!(128_000)));
    assert_eq!(agent.turn("too much"), "end_turn");
    let last = gauges(&agent).pop().unwrap();
    assert_eq!((&last["used"], &last["size"]), (&json!(120), &json!(4096)));
}

#[test]
fn a_change_of_the_model_changes_the_window_with_the_next_request() {
    let counted = json!({ "prompt_tokens": 100, "completion_tokens": 20 });
    let provider = Provider::answering(move |_| with_chunks(&[finish(), usage(&counted)]));
    let models = "models = ['a', 'b', 'c']\n[providers.p.model.a]\nwindow = 3000\n\
                  [providers.p.model.b]\nwindow = 4000";
    let settings = format!("model = 'p/a'\n{}", provider.section("p", models));
    let mut agent = configured(&settings).start();
    for model in ["p/a", "p/b", "p/c"] {
        crate::provider::set(&mut agent, "model", model);
        assert_eq!(agent.turn("hi"), "end_turn");
    }
    let sizes: Vec<_> = gauges(&agent).iter().map(|it| it["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [3000, 4000, 128_000]);
}

/// Starts a server of this owner, with a model that could hold 262 144 tokens. It says at `path` what it has loaded.
fn local_server(
    owner: &'static str,
    path: &'static str,
    loaded: impl Fn() -> Value + Send + Sync + 'static,
) -> RawServer {
    RawServer::with_models(move |_, request, stream| {
        let model = json!({ "id": "qwen3", "object": "model", "owned_by": owner });
        if request.contains(path) {
            plain(stream, 200, &loaded());
        } else if request.contains("/models ") {
            plain(stream, 200, &json!({ "object": "list", "data": [model] }));
        } else {
            write_stream(stream, &text_stream("Hello."));
        }
    })
}

#[test]
fn the_window_of_a_local_server_is_the_one_that_it_was_started_with() {
    let ollama = json!({ "models": [{ "name": "qwen3:latest", "context_length": 8_192 }] });
    let lm_studio = json!({ "data": [
        { "id": "qwen3", "max_context_length": 262_144, "loaded_context_length": 8_192 }
    ] });
    for (owner, path, loaded) in
        [("library", "/api/ps ", ollama), ("organization_owner", "/api/v0/models ", lm_studio)]
    {
        let server = local_server(owner, path, move || loaded.clone());
        let address = server.base_url();
        let settings = format!("model = 'p/qwen3'\n[providers.p]\nbase_url = '{address}'");
        let mut agent = configured(&settings).start();
        eventually("the server is asked", || {
            server.requests().iter().any(|request| request.contains(path))
        });
        eventually("its size is shown", || {
            assert_eq!(agent.turn("hi"), "end_turn");
            gauges(&agent).pop().is_some_and(|gauge| gauge["size"] == 8_192)
        });
    }
}

/// An editor may keep the agent for weeks.
#[test]
fn the_window_of_a_local_server_that_was_started_anew_is_noticed() {
    let window = Arc::new(AtomicU64::new(8_192));
    let loaded = Arc::clone(&window);
    let server = local_server("library", "/api/ps ", move || {
        let window = loaded.load(Ordering::Relaxed);
        json!({ "models": [{ "name": "qwen3:latest", "context_length": window }] })
    });
    let settings = format!("model = 'p/qwen3'\n[providers.p]\nbase_url = '{}'", server.base_url());
    let mut agent = configured(&settings).start();
    for size in [8_192, 16_384] {
        window.store(size, Ordering::Relaxed);
        eventually("its size is shown", || {
            assert_eq!(agent.turn("hi"), "end_turn");
            gauges(&agent).pop().is_some_and(|gauge| gauge["size"] == size)
        });
    }
}

/// The list is still loading when the prompt comes.
#[test]
fn the_window_that_the_server_lists_is_that_of_the_first_turn() {
    for (model, fields) in [
        ("m", json!({ "max_input_tokens": 50_000 })),
        ("m", json!({ "model_info": { "max_input_tokens": 50_000 } })),
        ("gpt-4o", json!({ "max_model_len": 50_000 })),
    ] {
        let server = RawServer::with_models(move |_, request, stream| {
            if request.contains("/models ") {
                std::thread::sleep(std::time::Duration::from_millis(300));
                let mut listed = fields.clone();
                listed["id"] = json!(model);
                plain(stream, 200, &json!({ "data": [listed] }));
            } else {
                write_stream(stream, &text_stream("Hello."));
            }
        });
        let address = server.base_url();
        let settings = format!("model = 'p/{model}'\n[providers.p]\nbase_url = '{address}'");
        let mut agent = configured(&settings).start();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(gauges(&agent)[0]["size"], 50_000, "{model}");
    }
}

#[test]
fn a_list_of_models_that_never_comes_does_not_keep_the_first_turn() {
    let server = RawServer::with_models(|_, request, stream| {
        if request.contains("/models ") {
            wait_for_the_end(stream);
        } else {
            write_stream(stream, &text_stream("Hello."));
        }
    });
    let settings = format!("model = 'p/m'\n[providers.p]\nbase_url = '{}'", server.base_url());
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(gauges(&agent)[0]["size"], 128_000);
}

#[test]
fn the_cost_is_that_of_the_prices_that_the_provider_lists() {
    let server = RawServer::with_models(|_, request, stream| {
        if request.contains("/models ") {
            let pricing = json!({ "prompt": "0.000002", "completion": "0.00001" });
            plain(stream, 200, &json!({ "data": [{ "id": "m", "pricing": pricing }] }));
            return;
        }
        let usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 100 });
        let event = json!({ "choices": [], "usage": usage });
        let text = text_stream("Hello.").replace("data: [DONE]", "");
        write_stream(stream, &format!("{text}data: {event}\n\ndata: [DONE]\n\n"));
    });
    let settings = format!("model = 'p/m'\n[providers.p]\nbase_url = '{}'", server.base_url());
    let mut agent = configured(&settings).start();
    eventually("the models are listed", || {
        server.requests().iter().any(|it| it.contains("/models "))
    });
    eventually("the cost is shown", || {
        assert_eq!(agent.turn("hi"), "end_turn");
        gauges(&agent).pop().is_some_and(|it| it["cost"]["amount"].as_f64() > Some(0.0))
    });
    let shown = gauges(&agent);
    let costs: Vec<_> = shown.iter().filter_map(|it| it["cost"]["amount"].as_f64()).collect();
    assert!((costs[0] - 0.003).abs() < 1e-9, "{shown:?}");
}

#[test]
fn a_loaded_session_shows_the_gauge_again_also_if_the_window_is_assumed() {
    let chunks = [finish(), usage(&json!({ "prompt_tokens": 900, "completion_tokens": 80 }))];
    let provider = Provider::answering(move |_| with_chunks(&chunks));
    let section = provider.section("p", "");
    let mut agent = configured(&format!("model = 'p/m'\n{section}")).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let before = gauges(&agent);
    let last = before.last().unwrap().clone();
    assert_eq!(last["used"], 980);
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(gauges(&agent)[before.len()..], [last]);
}
