//! Pictures and recordings (R-INIT-12, R-TURN-11): advertised if the model takes them, sent in
//! their place, and told about, never failed on, where it does not.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::TestAgent;
use crate::provider::{
    Answer, Provider, calls, configured, has_result, notices, open, refuses, says, set,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nnot much of a picture";
const SEES: &str = "models = ['eye', 'blind']\n[providers.p.model.eye]\nquirks = { images = true }";

fn settings(provider: &Provider, model: &str) -> String {
    format!("model = 'p/{model}'\n{}", provider.section("p", SEES))
}

fn image(data: &str) -> Value {
    json!({ "type": "image", "data": data, "mimeType": "image/png" })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Sends a prompt of these blocks; returns its answer.
fn send(agent: &mut TestAgent, blocks: &[Value]) -> Value {
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    agent.call("session/prompt", &params)
}

/// The content of the last prompt in a request.
fn last_prompt(body: &Value) -> Value {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().rfind(|it| it["role"] == "user").unwrap()["content"].clone()
}

fn pictures(body: &Value) -> usize {
    body.to_string().matches("\"image_url\":{").count()
}

/// Whether images and audio are advertised.
fn advertised(agent: crate::agent::TestAgentBuilder) -> (Value, Value) {
    let mut agent = agent.spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let capabilities = &answer["result"]["agentCapabilities"]["promptCapabilities"];
    (capabilities["image"].clone(), capabilities["audio"].clone())
}

#[test]
fn r_init_12_what_the_configured_model_takes_is_advertised() {
    for (model, quirks, expected) in [
        ("unknown", "", (false, false)),
        ("unknown", "quirks = { images = true, audio = true }", (true, true)),
        ("gpt-4o", "", (true, false)),
        ("gpt-4o", "quirks = { images = false }", (false, false)),
        ("o3-mini", "", (false, false)),
        ("gpt-4o-audio-preview", "", (true, true)),
        ("gpt-4o-audio-preview", "api = 'responses'", (true, false)),
    ] {
        let settings = format!(
            "model = 'p/{model}'\n[providers.p]\nbase_url = 'http://127.0.0.1:9/v1'\n{quirks}"
        );
        let expected = (json!(expected.0), json!(expected.1));
        assert_eq!(advertised(configured(&settings)), expected, "{model} {quirks}");
    }
}

#[test]
fn r_init_12_an_image_is_sent_between_the_texts_that_it_stands_between() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    let blocks = [text("Compare"), image("AAAA"), text("and"), image("BBBB")];
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    let content = last_prompt(&provider.asked()[0]);
    let part = |it: &Value| match it["type"].as_str().unwrap() {
        "text" => it["text"].as_str().unwrap().split("\n\n<context>").next().unwrap().to_owned(),
        _ => it["image_url"]["url"].as_str().unwrap().to_owned(),
    };
    let parts: Vec<_> = content.as_array().unwrap().iter().map(part).collect();
    let url = |data: &str| format!("data:image/png;base64,{data}");
    assert_eq!(parts, ["Compare", &url("AAAA"), "and", &url("BBBB"), ""]);
    assert_eq!(notices(&agent), "");
}

#[test]
fn r_turn_11_a_model_that_was_chosen_later_decides_what_is_taken() {
    let provider = Provider::of(&["eye", "blind"]);
    let mut agent = configured(&settings(&provider, "blind")).start();
    let blocks = [text("Look"), image("AAAA")];
    assert_eq!(send(&mut agent, &blocks)["error"]["code"], -32602);
    set(&mut agent, "model", "p/eye");
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    assert_eq!(provider.asked().len(), 1);
    assert_eq!(pictures(&provider.asked()[0]), 1);
}

#[test]
fn a_model_that_sees_nothing_gets_a_note_in_the_place_and_the_user_is_told() {
    let provider = Provider::of(&["eye", "blind"]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    assert_eq!(send(&mut agent, &[text("One"), image("AAAA")])["result"]["stopReason"], "end_turn");
    set(&mut agent, "model", "p/blind");
    assert_eq!(send(&mut agent, &[text("Two"), image("BBBB")])["result"]["stopReason"], "end_turn");
    let body = &provider.asked()[1];
    assert_eq!(pictures(body), 0, "{body}");
    assert_eq!(body.to_string().matches("image omitted (image/png)").count(), 2, "{body}");
    assert!(notices(&agent).contains("p/blind does not accept images"), "{}", notices(&agent));
    // The first picture is not lost.
    set(&mut agent, "model", "p/eye");
    assert_eq!(agent.turn("Three"), "end_turn");
    assert_eq!(pictures(&provider.asked()[2]), 2);
}

#[test]
fn a_server_that_refuses_pictures_is_asked_without_them_and_everybody_is_told() {
    for (status, message) in [
        (400, "messages[1]: unknown variant `image_url`, expected `text`"),
        (400, "'messages.1' : for 'role:user' : 'messages.1.content' : value must be a string"),
        (404, "No endpoints found that support image input"),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
    ] {
        let provider = Provider::answering(move |body| match pictures(body) {
            0 => says("I see nothing."),
            _ => Answer::Refuses(status, message.to_owned()),
        });
        let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", ""));
        let mut agent = configured(&settings).start();
        let blocks = [text("Look"), image("AAAA")];
        let answer = send(&mut agent, &blocks);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{status} {message}: {answer}");
        assert_eq!(provider.asked().len(), 2);
        let told = "p/gpt-4o does not accept images";
        assert_eq!(notices(&agent).matches(told).count(), 1, "{}", notices(&agent));
        // The next session knows.
        agent.session = agent.new_session();
        assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
        assert_eq!(provider.asked().len(), 3);
        assert!(provider.asked()[2].to_string().contains("image omitted"));
        assert_eq!(notices(&agent).matches(told).count(), 1, "{}", notices(&agent));
    }
}

#[test]
fn what_a_server_has_refused_is_not_advertised_by_the_next_process_unless_the_user_wishes_it() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => refuses("unknown variant `image_url`"),
    });
    let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    send(&mut agent, &[text("Look"), image("AAAA")]);
    let home = agent.home().to_owned();
    agent.close();
    let next = || TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home.to_str().unwrap());
    assert_eq!(advertised(next()), (json!(false), json!(false)));
    let wish = provider.section("p", "quirks = { images = true }");
    std::fs::write(home.join("config/config.toml"), format!("model = 'p/gpt-4o'\n{wish}")).unwrap();
    assert_eq!(advertised(next()), (json!(true), json!(false)));
}

#[test]
fn a_wish_that_the_server_does_not_fulfil_costs_the_pictures_and_not_the_session() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => refuses("unknown variant `image_url`"),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let answer = send(&mut agent, &[text("Look"), image("AAAA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(notices(&agent).contains("could not use an image"), "{}", notices(&agent));
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(provider.asked().len(), 3);
}

#[test]
fn a_picture_that_the_server_cannot_use_is_left_out_and_says_nothing_about_the_next_one() {
    let provider = Provider::answering(|body| {
        let is_broken = body.to_string().contains("base64,BROKEN");
        if is_broken {
            refuses("Invalid 'messages[1].content[1].image_url.url'. Expected a base64-encoded URL")
        } else {
            says("Yes.")
        }
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let answer = send(&mut agent, &[text("Look"), image("BROKEN")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(provider.asked()[1].to_string().contains("image left out"));
    assert!(notices(&agent).contains("could not use an image"), "{}", notices(&agent));
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(
        send(&mut agent, &[text("This"), image("GOOD")])["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(provider.asked().len(), 4);
    assert_eq!(pictures(&provider.asked()[3]), 1);
    assert_eq!(agent.thoughts().matches("could not use").count(), 1);
}

/// Has the model read a file; returns the agent, whose first call has a card.
fn read(provider: &Provider, model: &str, name: &str, bytes: &[u8]) -> TestAgent {
    let mut agent = configured(&settings(provider, model)).start();
    std::fs::write(agent.path(name), bytes).unwrap();
    assert_eq!(agent.turn("Read it"), "end_turn");
    agent
}

fn reader(name: &'static str) -> Provider {
    Provider::answering(move |body| {
        if has_result(body) { says("Read.") } else { calls("read_file", &json!({ "path": name })) }
    })
}

#[test]
fn a_picture_that_is_read_is_shown_on_the_card_and_to_a_model_that_sees() {
    let provider = reader("a.png");
    let agent = read(&provider, "eye", "a.png", PNG);
    let body = &provider.asked()[1];
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(messages[3]["content"], format!("[File: a.png | image/png, {} bytes]\n", PNG.len()));
    let url = messages[4]["content"][1]["image_url"]["url"].as_str().unwrap();
    assert!(url.starts_with("data:image/png;base64,iVBORw0KGg"), "{url}");
    let shown = &cards::card(&agent, 0)["content"][0]["content"];
    assert_eq!((&shown["type"], &shown["mimeType"]), (&json!("image"), &json!("image/png")));
}

#[test]
fn a_picture_that_is_read_is_named_to_a_model_that_does_not_see() {
    let provider = reader("a.png");
    let agent = read(&provider, "blind", "a.png", PNG);
    let body = &provider.asked()[1];
    assert_eq!(pictures(body), 0);
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 4, "{body}");
    let result = messages[3]["content"].as_str().unwrap();
    assert!(result.contains("a.png | image/png"), "{result}");
    assert!(
        result.contains("image omitted (image/png): this model does not accept image input"),
        "{result}"
    );
    assert_eq!(cards::card(&agent, 0)["content"][0]["content"]["type"], "image");
}

#[test]
fn what_is_too_large_or_no_picture_at_all_is_not_sent_as_one() {
    let huge = [PNG, &vec![0; 6 * 1024 * 1024]].concat();
    for (bytes, expected) in [
        (b"just words\n".as_slice(), "    1| just words"),
        (b"\0\x01\x02\x03".as_slice(), "a.png | binary, 4 bytes]"),
        (huge.as_slice(), "is an image of more than 5 MiB"),
    ] {
        let provider = reader("a.png");
        let agent = read(&provider, "eye", "a.png", bytes);
        let body = &provider.asked()[1];
        assert_eq!(pictures(body), 0);
        let result = body["messages"][3]["content"].as_str().unwrap().to_owned();
        assert!(result.contains(expected), "{result}");
        let status = if expected.starts_with("is ") { "failed" } else { "completed" };
        assert_eq!(cards::card(&agent, 0)["status"], status);
    }
}

#[test]
fn a_recording_goes_to_a_model_that_hears() {
    let provider = Provider::of(&[]);
    let section = provider.section("p", "quirks = { audio = true }");
    let mut agent = configured(&format!("model = 'p/ear'\n{section}")).initialize();
    open(&mut agent);
    let audio = json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/mpeg" });
    assert_eq!(send(&mut agent, &[text("Listen"), audio])["result"]["stopReason"], "end_turn");
    let content = last_prompt(&provider.asked()[0]);
    assert_eq!(content[1]["input_audio"], json!({ "data": "AAAA", "format": "mp3" }), "{content}");
    assert_eq!(send(&mut agent, &[image("AAAA")])["error"]["code"], -32602);
}

#[test]
fn a_refusal_of_pictures_that_comes_within_a_stream_is_understood_and_told_as_well() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => Answer::Events(vec![json!({ "error": {
            "code": 400, "message": "image input is not supported by this model"
        } })]),
    });
    let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let answer = send(&mut agent, &[text("Look"), image("AAAA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let told = notices(&agent).matches("p/gpt-4o does not accept images").count();
    assert_eq!(told, 1, "{}", notices(&agent));
}
