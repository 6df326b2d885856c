//! `web_search`: what each service is sent, what the model reads of its answer, which searches require permission, and
//! that nothing but a list of results is taken for one.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::attempt;
use turnwright_testing::raw_server::RawServer;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

const KEY: &str = "sk-search-0123456789abcdef";
const TOOL: &str = "web_search";

fn answer(stream: &mut TcpStream, head: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
}

/// A service that gives this answer to each request.
fn service(head: &str, body: &Value) -> RawServer {
    let head = format!("{head}\r\ncontent-type: application/json");
    let body = body.to_string();
    RawServer::reading(move |_, _, stream| answer(stream, &head, &body))
}

fn searching(name: &str, server: &RawServer) -> TestAgentBuilder {
    searching_with(name, server, "")
}

/// An agent with a service and further settings of `[web]`.
fn searching_with(name: &str, server: &RawServer, further: &str) -> TestAgentBuilder {
    let settings = format!(
        "[web]\nsearch = '{name}'\nsearch_url = 'http://{}/api'\nsearch_key_env = 'MY_SEARCH_KEY'\n{further}",
        server.host()
    );
    let builder = TestAgent::builder().own_file("config/config.toml", &settings);
    builder.variable("MY_SEARCH_KEY", KEY)
}

fn query() -> Value {
    json!({ "query": "rust  async" })
}

const URL: &str = "https://rust-lang.github.io/async-book/";
const TITLE: &str = "Async in Rust";

/// A service, the answer of its API, and the request: its method, its header with the key, and its fields.
type Service = (&'static str, Value, &'static str, String, Value);

fn bearer() -> String {
    format!("authorization: Bearer {KEY}")
}

fn plain(words: &str, count: &str) -> Value {
    json!({ words: "rust async", count: 8 })
}

fn search_engines() -> Vec<Service> {
    vec![
        (
            "searxng",
            json!({ "query": "rust async", "number_of_results": 0, "results": [
                { "url": URL, "title": TITLE, "content": "The book", "engine": "brave", "engines": ["brave"],
                  "score": 1.0, "category": "general", "publishedDate": "2026-01-02T00:00:00" } ],
                "answers": [], "corrections": [], "infoboxes": [], "suggestions": [],
                "unresponsive_engines": [["google", "CAPTCHA"]] }),
            "GET",
            "accept: application/json".to_owned(),
            json!({ "format": "json", "q": "rust+async" }),
        ),
        (
            "brave",
            json!({ "type": "search", "query": { "original": "rust async" }, "web": { "type": "search",
                "results": [{ "title": TITLE, "url": URL, "is_source_local": false, "description": "The book",
                "page_age": "2026-01-02T00:00:00", "language": "en" }], "family_friendly": true } }),
            "GET",
            format!("x-subscription-token: {KEY}"),
            json!({ "text_decorations": "false", "q": "rust+async", "count": "8" }),
        ),
        (
            "tavily",
            json!({ "query": "rust async", "follow_up_questions": null, "answer": null, "images": [],
                "results": [{ "url": URL, "title": TITLE, "content": "The book", "score": 0.9,
                "raw_content": null }], "response_time": 1.1, "request_id": "r" }),
            "POST",
            bearer(),
            plain("query", "max_results"),
        ),
        (
            "exa",
            json!({ "requestId": "r", "resolvedSearchType": "neural", "results": [{ "id": URL, "title": TITLE,
                "url": URL, "publishedDate": "2026-01-02", "author": "x", "highlights": ["The book"],
                "highlightScores": [0.4] }], "costDollars": { "total": 0.005 } }),
            "POST",
            format!("x-api-key: {KEY}"),
            json!({ "query": "rust async", "numResults": 8, "contents": { "highlights": true } }),
        ),
        (
            "perplexity",
            json!({ "id": "r", "results": [{ "title": TITLE, "url": URL, "snippet": "The book",
                "date": "2026-01-02", "last_updated": "2026-02-02" }] }),
            "POST",
            bearer(),
            plain("query", "max_results"),
        ),
        (
            "serper",
            json!({ "searchParameters": { "q": "rust async", "type": "search" }, "organic": [{ "title": TITLE,
                "link": URL, "snippet": "The book", "date": "2026-01-02", "position": 1 }], "credits": 1 }),
            "POST",
            format!("x-api-key: {KEY}"),
            plain("q", "num"),
        ),
    ]
}

/// The services of providers of models.
fn services_of_providers() -> Vec<Service> {
    vec![
        (
            "deepseek",
            json!({ "results": [{ "title": TITLE, "url": URL, "snippet": "The book", "summary": "x",
                "content": "y", "date": "2026-01-02", "site_name": "Rust" }] }),
            "POST",
            bearer(),
            plain("query", "count"),
        ),
        (
            "zai",
            json!({ "id": "r", "created": 1, "request_id": "r", "search_intent": [], "search_result": [{
                "title": TITLE, "content": "The book", "link": URL, "media": "Rust", "icon": "", "refer": "1",
                "publish_date": "2026-01-02" }] }),
            "POST",
            bearer(),
            json!({ "search_engine": "search-prime", "search_query": "rust async", "count": 8 }),
        ),
        (
            "ollama",
            json!({ "results": [{ "title": TITLE, "url": URL, "content": "The book" }] }),
            "POST",
            bearer(),
            plain("query", "max_results"),
        ),
    ]
}

#[test]
fn each_service_is_asked_as_its_api_wants_and_its_results_are_read() {
    let services = search_engines().into_iter().chain(services_of_providers());
    for (name, body, method, header, fields) in services {
        let server = service("200 OK", &body);
        let (agent, result) = cards::run(searching(name, &server), TOOL, &query());
        let start = format!(
            "[results of {name} for \"rust async\"]\n<untrusted source=\"{name}\">\n\
             1. Async in Rust\n   https://rust-lang.github.io/async-book/\n"
        );
        assert!(result.starts_with(&start), "{result}");
        assert!(result.ends_with("   The book\n</untrusted>\n"), "{result}");
        assert_eq!(
            result.contains("   2026-01-02"),
            !["tavily", "ollama"].contains(&name),
            "{result}"
        );
        let request = server.requests().remove(0);
        let (line, rest) = request.split_once("\r\n").unwrap();
        assert!(rest.contains(&format!("{header}\r\n")), "{request}");
        if method == "POST" {
            assert_eq!((line, server.body(0)), ("POST /api HTTP/1.1", fields));
        } else {
            let place = if name == "searxng" { "/api/search?" } else { "/api?" };
            assert!(line.starts_with(&format!("GET {place}")), "{line}");
            for (field, value) in fields.as_object().unwrap() {
                let pair = format!("{field}={}", value.as_str().unwrap());
                assert!(line.contains(&pair), "{pair}: {line}");
            }
        }
        let card = cards::card(&agent, 0);
        assert_eq!(card["title"], "Search \"rust async\" on the web");
        assert_eq!(card["kind"], "fetch");
        assert!(!result.contains(KEY) && !card.to_string().contains(KEY), "{card}");
    }
}

/// An answer of the Responses API, with two citations of a page and another page that was only seen.
fn answer_of_responses() -> Value {
    let tagged = format!("{URL}?utm_source=openai");
    let citation = json!({ "type": "url_citation", "start_index": 9, "end_index": 30, "title": TITLE,
        "url": tagged });
    let text = format!("Pages:\n\nThe book ([rust-lang.github.io]({tagged}))");
    let sources = json!([{ "type": "url", "url": URL }, { "type": "api", "name": "oai-time" },
        { "type": "url", "url": "https://docs.rs/tokio" }]);
    json!({ "id": "resp_1", "status": "completed", "error": null, "output": [
        { "type": "reasoning", "id": "rs_1", "summary": [] },
        { "type": "web_search_call", "id": "ws_1", "status": "completed",
          "action": { "type": "search", "query": "rust async", "sources": sources } },
        { "type": "message", "id": "msg_1", "role": "assistant", "content": [{ "type": "output_text",
          "text": text, "annotations": [citation.clone(), citation] }] },
    ] })
}

/// An answer of Chat Completions, with the excerpt of the page that it cites.
fn answer_of_chat() -> Value {
    json!({ "id": "gen-1", "choices": [{ "finish_reason": "stop", "message": { "role": "assistant",
        "content": format!("It is [here]({URL})."), "annotations": [{ "type": "url_citation",
        "url_citation": { "url": URL, "title": TITLE, "content": "The book", "start_index": 0,
        "end_index": 5 } }] } }], "usage": { "server_tool_use": { "web_search_requests": 1 } } })
}

#[test]
fn a_model_that_searches_gives_the_pages_that_it_cites() {
    let excerpt = format!("The book ([rust-lang.github.io]({URL}?utm_source=openai))");
    let rest_of_openai = format!("   {excerpt}\n2. https://docs.rs/tokio\n");
    for (name, body, further, model, tool, rest) in [
        (
            "openai",
            answer_of_responses(),
            "",
            "gpt-5.4-mini",
            "web_search",
            rest_of_openai.as_str(),
        ),
        (
            "openrouter",
            answer_of_chat(),
            "search_model = 'a/small'\n",
            "a/small",
            "openrouter:web_search",
            "   The book\n",
        ),
    ] {
        let server = service("200 OK", &body);
        let (_, result) = cards::run(searching_with(name, &server, further), TOOL, &query());
        let expected = format!(
            "[results of {name} for \"rust async\"]\n<untrusted source=\"{name}\">\n\
             1. {TITLE}\n   {URL}\n{rest}</untrusted>\n"
        );
        assert_eq!(result, expected);
        assert!(server.requests()[0].contains(&format!("{}\r\n", bearer())), "{name}");
        let sent = server.body(0);
        assert_eq!((&sent["model"], &sent["tools"][0]["type"]), (&json!(model), &json!(tool)));
        let words = sent.pointer("/messages/0/content").unwrap_or(&sent["input"]);
        assert!(words.as_str().unwrap().ends_with(": rust async"), "{words}");
    }
}

#[test]
fn a_model_that_has_not_searched_is_an_error() {
    let unfounded = json!({ "choices": [{ "message": { "content": "I know it." } }] });
    let late = json!({ "error": { "code": 402, "message": "no credit" }, "choices": [] });
    for (head, body, expected) in [
        ("200 OK", unfounded, "openrouter has cited no page."),
        ("200 OK", late, "openrouter has no searches left for this key or its plan (status 402)."),
        (
            "404 Not Found",
            json!({}),
            "openrouter refuses the query or the model; `web.search_model` can name another model (status 404).",
        ),
        (
            "429 Too Many Requests",
            json!({}),
            "openrouter has had too many requests, or no credit is left for this key (status 429).",
        ),
    ] {
        let server = service(head, &body);
        let (_, result) = cards::run(searching("openrouter", &server), TOOL, &query());
        let failure = format!("The search has failed: {expected}");
        assert!(result.contains(&failure) && !result.contains("no results"), "{result}");
    }
}

#[test]
fn what_is_no_list_of_results_is_an_error_and_never_no_results() {
    let server = RawServer::reading(|_, request, stream| {
        let words = request.rsplit("\"query\":\"").next().unwrap();
        let json = "content-type: application/json";
        match words.split('"').next().unwrap() {
            "page" => answer(stream, "200 OK\r\ncontent-type: text/html", "<p>Are you human?</p>"),
            "error" => answer(stream, &format!("200 OK\r\n{json}"), r#"{"error":"no"}"#),
            "inwards" => answer(stream, "302 Found\r\nlocation: http://169.254.169.254/", ""),
            "endless" => {
                let head = format!("HTTP/1.1 200 OK\r\n{json}\r\nconnection: close\r\n\r\n[");
                stream.write_all(head.as_bytes()).unwrap();
                while stream.write_all(&[b' '; 4096]).is_ok() {}
            }
            "none" => answer(stream, &format!("200 OK\r\n{json}"), r#"{"results":[]}"#),
            status => answer(stream, &format!("{status} Status\r\n{json}"), r#"{"results":[]}"#),
        }
    });
    let mut agent = searching("exa", &server).model(json!([])).permission("allow_always").start();
    for (words, expected) in [
        ("page", "exa did not answer with JSON; is 127.0.0.1:"),
        ("error", "exa answered with something other than results."),
        ("inwards", "exa redirects to another address, which is not followed (status 302)."),
        ("429", "exa has had too many searches (status 429)."),
        ("endless", "exa has sent more than 1048576 bytes."),
        ("202", "exa has had too many searches (status 202)."),
        ("400", "exa refuses this query; a shorter one may help (status 400)."),
        ("401", "exa refuses the key (status 401)."),
        ("402", "exa has no searches left for this key or its plan (status 402)."),
        ("403", "exa refuses the key (status 403)."),
        ("433", "exa has no searches left for this key or its plan (status 433)."),
        ("500", "exa has failed (status 500)."),
    ] {
        let (_, result) = attempt(&mut agent, TOOL, &json!({ "query": words }));
        assert!(
            result.contains(&format!("The search has failed: {expected}")),
            "{words}: {result}"
        );
        assert!(!result.contains("no results"), "{result}");
    }
    let (_, result) = attempt(&mut agent, TOOL, &json!({ "query": "none" }));
    assert!(result.contains("[exa has no results for \"none\"]"), "{result}");
    // The one with too many searches was repeated once.
    assert_eq!(server.requests().len(), 14);
    let last = cards::ids(&agent).len() - 1;
    assert_eq!(cards::card(&agent, last)["status"], "completed");
    assert!((0..last).all(|number| cards::card(&agent, number)["status"] == "failed"));
    let forbidden = service("403 Forbidden", &json!({}));
    let (_, result) = cards::run(searching("searxng", &forbidden), TOOL, &query());
    assert!(result.contains("add `json` to `search.formats`"), "{result}");
}

#[test]
fn a_search_that_came_too_soon_is_repeated() {
    let server = RawServer::reading(|number, _, stream| {
        let status = if number == 0 { "429 Too Many Requests" } else { "200 OK" };
        let head = format!("{status}\r\ncontent-type: application/json");
        answer(stream, &head, &json!({ "results": [{ "url": URL, "title": TITLE }] }).to_string());
    });
    let (_, result) = cards::run(searching("exa", &server), TOOL, &query());
    assert!(result.contains(TITLE), "{result}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_service_is_asked_about_once_with_the_whole_query_in_plan_mode_too() {
    let server = service("200 OK", &json!({ "results": [] }));
    let builder = searching("tavily", &server).variable("TURNWRIGHT_MODE", "plan");
    let mut agent = builder.model(json!([])).start();
    agent.model().push(calls(TOOL, &query())).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let call = &question["params"]["toolCall"];
    assert_eq!(call["title"], "Search \"rust async\" on the web");
    let shown = cards::card_text(call);
    let place = format!("rust async\nsent to {} (tavily)", server.host());
    assert!(shown.contains(&place), "{shown}");
    assert_eq!(server.requests().len(), 0);
    let names: Vec<_> = cards::options(&question).into_iter().map(|option| option.1).collect();
    assert!(names.contains(&"Allow searches with tavily in this session".to_owned()), "{names:?}");
    agent.choose(&question, "allow_always");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::run_each(&mut agent, TOOL, &[json!({ "query": "other" })]);
    assert_eq!((cards::questions(&agent), server.requests().len()), (1, 2));
}

#[test]
fn a_rule_allows_or_denies_a_service() {
    let server = service("200 OK", &json!({ "results": [] }));
    for (rule, expected) in [("allow", "has no results"), ("deny", "search(exa)")] {
        let settings = format!(
            "[web]\nsearch = 'exa'\nsearch_url = 'http://{}/'\nsearch_key_env = 'MY_SEARCH_KEY'\n\
             [permissions]\n{rule} = ['search(exa)']\n",
            server.host()
        );
        let builder = TestAgent::builder().own_file("config/config.toml", &settings);
        let mut agent = builder.variable("MY_SEARCH_KEY", KEY).permission("reject_once").start();
        let (questions, result) = attempt(&mut agent, TOOL, &query());
        assert!(questions == 0 && result.contains(expected), "{result}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn searches_that_cannot_be_made_are_refused_without_a_question() {
    let server = service("200 OK", &json!({ "results": [] }));
    let mut agent = searching("exa", &server).model(json!([])).permission("allow_once").start();
    for (words, expected) in [
        (" ".to_owned(), "A query has 1 to 400 characters."),
        ("x".repeat(401), "A query has 1 to 400 characters."),
        (format!("who has {KEY}"), "Nothing was "),
    ] {
        let (questions, result) = attempt(&mut agent, TOOL, &json!({ "query": words }));
        assert!(questions == 0 && result.contains(expected), "{result}");
    }
    let settings = "[web]\nsearch = 'brave'\n";
    let mut agent = TestAgent::builder().own_file("config/config.toml", settings).start();
    let (questions, result) = attempt(&mut agent, TOOL, &query());
    assert!(questions == 0 && result.contains("turnwright login search"), "{result}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn without_a_service_there_is_no_such_tool() {
    let server = service("200 OK", &json!({ "results": [] }));
    for (builder, is_there) in [(searching("ollama", &server), true), (TestAgent::builder(), false)]
    {
        let mut agent = builder.model(json!([])).permission("allow_once").start();
        let (_, unknown) = attempt(&mut agent, "no_such_tool", &json!({}));
        assert_eq!(unknown.contains(TOOL), is_there, "{unknown}");
        assert_eq!(agent.offered_tools(0).contains(&TOOL.to_owned()), is_there);
        let (questions, result) = attempt(&mut agent, TOOL, &query());
        let expected = if is_there { "ollama has no results" } else { "There is no web_search" };
        assert!(questions == usize::from(is_there) && result.contains(expected), "{result}");
    }
}
