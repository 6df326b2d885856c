//! The user's `config.toml`: it selects a provider, and sends the key and the headers of that
//! provider to no other server. An invalid file does not keep the agent from starting.

use serde_json::{Value, json};
use turnwright_testing::raw_server::{RawServer, text_stream, write_stream};
use turnwright_testing::session_requests::opening_refusal;

use crate::agent::{TestAgent, TestAgentBuilder};

const FILE: &str = "config/config.toml";

/// Starts a server that answers every request with a greeting.
fn greeter() -> RawServer {
    RawServer::start(|_, stream| write_stream(stream, &text_stream("Hello.")))
}

fn unconfigured(file: &str) -> TestAgentBuilder {
    TestAgent::unconfigured().own_file(FILE, file)
}

/// Overwrites the configuration file while the agent runs.
fn write(agent: &TestAgent, text: &str) {
    std::fs::write(agent.home().join(FILE), text).unwrap();
}

#[test]
fn an_invalid_file_is_an_error_of_the_session_with_its_position_until_it_is_fixed() {
    let server = greeter();
    let mut agent = unconfigured("mode = 'ask'\nmodel = 7 # sk-secret\n").initialize();
    let message = opening_refusal(&mut agent);
    for part in ["config.toml", "line 2", "column 9"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("sk-secret"), "{message}");
    write(&agent, &format!("[providers.mine]\nbase_url = '{}'\nmodels = ['m']", server.base_url()));
    agent.session = agent.new_session();
    assert_eq!(agent.turn("hi"), "end_turn");
}

#[test]
fn a_key_that_is_missing_or_in_the_file_is_an_error_that_says_what_to_do() {
    for (file, expected) in [
        ("model = 'deepseek/deepseek-chat'", "DEEPSEEK_API_KEY"),
        ("model = 'x/m'\n[providers.x]\nbase_url = 'http://h/v1'\nkey_env = 'MY_X'", "MY_X"),
        ("model = 'x/m'\n[providers.x]\nbase_url = 'http://h/v1'\nkey = 'sk-inline'", "key_env"),
        ("model = 'azure/gpt'", "base_url"),
        ("model = 'ollama/m'\n[providers.ollama]\nheaders = { 'a b' = 'c' }", "`a b`"),
    ] {
        let mut agent = unconfigured(file).initialize();
        let message = opening_refusal(&mut agent);
        assert!(message.contains(expected) && !message.contains("sk-inline"), "{file}: {message}");
    }
}

fn choose(agent: &mut TestAgent, model: &str) -> Value {
    let params = json!({ "sessionId": agent.session, "configId": "model", "value": model });
    agent.call("session/set_config_option", &params)
}

#[test]
fn an_unknown_model_is_not_an_authentication_error() {
    let server = greeter();
    let file = format!("[providers.mine]\nbase_url = '{}'\nmodels = ['m']", server.base_url());
    let mut agent = unconfigured(&file).start();
    let answer = choose(&mut agent, "mien/m");
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// Settings with a model at this server, and what it and its provider add to each request.
fn with_request_fields(server: &RawServer, api: &str) -> String {
    format!(
        "model = 'mine/m'\nlist_models = false\n[providers.mine]\nbase_url = '{}'\napi = '{api}'\n\
         request = {{ temperature = 0.7, top_p = 0.9 }}\n[providers.mine.model.m]\nmax_output = 4096\n\
         request = {{ top_p = 1, extra = {{ seed = [7] }}, stream = false }}\n",
        server.base_url()
    )
}

#[test]
fn s4_13_request_fields_need_no_section_of_a_provider() {
    let server = greeter();
    let file = "model = 'm'\nlist_models = false\n[models]\nrequest = { temperature = 0.7, top_p = 0.9 }\n\
                [models.model.m]\nrequest = { top_p = 1 }\n[models.model.other]\nrequest = { top_p = 0 }\n";
    let mut agent = unconfigured(file)
        .variable("OPENAI_BASE_URL", &server.base_url())
        .variable("OPENAI_API_KEY", "sk-of-nobody")
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let body = server.body(0);
    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.7), &json!(1)), "{body}");
    // Those of a provider override those of all models, and those of the whole name all others.
    let file = with_request_fields(&server, "chat")
        + "[models]\nrequest = { temperature = 0, top_p = 0 }\n[models.model.'mine/m']\n\
           request = { seed = 3 }\n";
    let mut agent = unconfigured(&file).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let body = server.body(1);
    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.7), &json!(1)), "{body}");
    assert_eq!(body["seed"], 3, "{body}");
}

#[test]
fn s4_13_the_user_s_request_fields_are_sent_with_each_request_and_reserved_ones_are_not() {
    let server = greeter();
    let mut agent = unconfigured(&with_request_fields(&server, "chat")).start();
    for prompt in ["hi", "more"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    for number in [0, 1] {
        let body = server.body(number);
        assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.7), &json!(1)), "{body}");
        assert_eq!((&body["extra"], &body["stream"]), (&json!({ "seed": [7] }), &json!(true)));
        assert_eq!((&body["max_tokens"], &body["model"]), (&json!(4096), &json!("m")), "{body}");
    }
    let told = agent.updates().iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("contains `stream`, which the agent sets itself"), "{told}");
    let responses = RawServer::start(|_, stream| {
        let text =
            json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "Hi." });
        let end = json!({ "type": "response.completed", "response": { "status": "completed" } });
        write_stream(stream, &format!("data: {text}\n\ndata: {end}\n\n"));
    });
    let mut agent = unconfigured(&with_request_fields(&responses, "responses")).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let body = responses.body(0);
    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.7), &json!(1)), "{body}");
    assert_eq!((&body["stream"], &body["extra"]["seed"]), (&json!(true), &json!([7])), "{body}");
}
