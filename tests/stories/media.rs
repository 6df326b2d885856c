//! Images, PDF files and audio (R-INIT-12, R-TURN-11): images and audio are advertised if the model accepts
//! them, and sent in their position. For a model that does not accept them, they are replaced by a note, and
//! the user gets a notice. A PDF file is only sent to a model that is known to take files.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::TestAgent;
use crate::provider::{
    Answer, List, Provider, calls, configured, has_result, notices, open, refuses, says, set,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nnot much of a picture";
/// The signature of PNG and a zero.
const PNG_BASE64: &str = "iVBORw0KGgoA";
const SEES: &str = "models = ['eye', 'blind']\n[providers.p.model.eye]\nquirks = { images = true }\n\
                    [providers.p.model.blind]\nquirks = { images = false }";

fn settings(provider: &Provider, model: &str) -> String {
    format!("model = 'p/{model}'\n{}", provider.section("p", SEES))
}

/// A PNG that ends with these four characters of base64.
fn image(end: &str) -> Value {
    json!({ "type": "image", "data": format!("{PNG_BASE64}{end}"), "mimeType": "image/png" })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Sends a prompt with these blocks, and returns its answer.
fn send(agent: &mut TestAgent, blocks: &[Value]) -> Value {
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    agent.call("session/prompt", &params)
}

/// Returns the content of the last prompt in a request.
fn last_prompt(body: &Value) -> Value {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().rfind(|it| it["role"] == "user").unwrap()["content"].clone()
}

fn pictures(body: &Value) -> usize {
    body.to_string().matches("\"image_url\":{").count()
}

/// Returns whether images and whether audio are advertised.
fn advertised(agent: crate::agent::TestAgentBuilder) -> (Value, Value) {
    let mut agent = agent.spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let capabilities = &answer["result"]["agentCapabilities"]["promptCapabilities"];
    (capabilities["image"].clone(), capabilities["audio"].clone())
}

#[test]
fn r_init_12_the_media_that_the_configured_model_accepts_are_advertised() {
    for (model, quirks, expected) in [
        ("unknown", "", (true, false)),
        ("deepseek-chat", "", (false, false)),
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
fn r_init_12_an_image_is_sent_in_its_position_between_the_texts() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    let blocks = [text("Compare"), image("AAAA"), text("and"), image("BBBB")];
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    let content = last_prompt(&provider.chat_requests()[0]);
    let part = |block: &Value| match block["type"].as_str().unwrap() {
        "text" => block["text"].as_str().unwrap().split("\n\n<context>").next().unwrap().to_owned(),
        _ => block["image_url"]["url"].as_str().unwrap().to_owned(),
    };
    let parts: Vec<_> = content.as_array().unwrap().iter().map(part).collect();
    let url = |end: &str| format!("data:image/png;base64,{PNG_BASE64}{end}");
    assert_eq!(parts, ["Compare", &url("AAAA"), "and", &url("BBBB"), ""]);
    assert_eq!(notices(&agent), "");
}

#[test]
fn r_turn_11_what_is_no_picture_is_refused_in_words_and_a_wrong_label_does_not_matter() {
    let provider = Provider::of(&["eye"]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    for (mime, data, expected) in [
        ("image/png", "", "its data is not base64"),
        ("image/png", "iVBO(w0K", "its data is not base64"),
        ("image/png", "AAAA", "its data is in no known format, such as PNG, JPEG, GIF or WebP"),
    ] {
        let block = json!({ "type": "image", "data": data, "mimeType": mime });
        let answer = send(&mut agent, &[text("Look"), block]);
        assert_eq!(answer["error"]["code"], -32602, "{mime} {data}: {answer}");
        let told = format!("An image of the prompt cannot be used: {expected}");
        assert!(answer["error"].to_string().contains(&told), "{mime} {data}: {answer}");
    }
    for (mime, data, expected) in [
        ("image/jpg", "/9j/4AAQ", "data:image/jpeg;base64,/9j/4AAQ"),
        ("image/png", "/9j/4AAQ", "data:image/jpeg;base64,/9j/4AAQ"),
        ("text/plain", "R0lGODlh", "data:image/gif;base64,R0lGODlh"),
        ("image/png", "iVBORw0K\nGgo", "data:image/png;base64,iVBORw0KGgo="),
        ("image/jpeg", "_9j_4AAQ", "data:image/jpeg;base64,/9j/4AAQ"),
        ("", "data:image/png;base64,R0lGODlh", "data:image/gif;base64,R0lGODlh"),
        ("image/heic", "AAAAGGZ0eXBoZWlj", "data:image/heic;base64,AAAAGGZ0eXBoZWlj"),
    ] {
        let block = json!({ "type": "image", "data": data, "mimeType": mime });
        assert_eq!(send(&mut agent, &[block])["result"]["stopReason"], "end_turn", "{data}");
        let request = provider.chat_requests().pop().unwrap().to_string();
        assert!(request.contains(expected), "{data}: {request}");
    }
    assert_eq!(provider.chat_requests().len(), 7, "what is refused is not sent");
}

#[test]
fn a_picture_of_which_the_client_only_says_where_it_is_is_a_link() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    for (uri, expected) in [
        ("file:///shots/a.png", "[picture](/shots/a.png)"),
        ("https://example.com/a.png", "[picture](https://example.com/a.png)"),
    ] {
        let block = json!({ "type": "image", "data": "", "mimeType": "image/png", "uri": uri });
        let answer = send(&mut agent, &[text("Look"), block]);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let request = provider.chat_requests().pop().unwrap().to_string();
        assert!(request.contains(expected), "{request}");
    }
}

#[test]
fn an_attached_picture_is_shown_to_a_model_that_takes_pictures() {
    let provider = Provider::of(&["eye", "blind"]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    let attached = |blob: &str| {
        let uri = "file:///ws/shot.png";
        json!({ "type": "resource", "resource": { "uri": uri, "blob": blob } })
    };
    let words = attached("cG9ydCA9IDgwODAK");
    let blocks = [text("Look"), attached(&format!("{PNG_BASE64}AAAA")), attached("AAAA"), words];
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    let body = provider.chat_requests()[0].clone();
    assert_eq!(pictures(&body), 1, "{body}");
    assert!(body.to_string().contains("/ws/shot.png"), "{body}");
    assert!(body.to_string().contains("port = 8080"), "{body}");
    assert_eq!(body.to_string().matches("[binary content, unknown type").count(), 1, "{body}");
    let mut agent = configured(&settings(&provider, "blind")).start();
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    let body = provider.chat_requests()[1].clone();
    assert_eq!(pictures(&body), 0, "{body}");
    assert!(body.to_string().contains("image omitted (image/png)"), "{body}");
}

#[test]
fn a_picture_in_svg_is_read_as_text_by_any_model() {
    let provider = Provider::of(&["eye", "blind"]);
    for model in ["eye", "blind"] {
        let mut agent = configured(&settings(&provider, model)).start();
        let uri = "file:///ws/logo.svg";
        let data = "PHN2Zz48Y2lyY2xlLz48L3N2Zz4=";
        let svg = json!({ "type": "image", "mimeType": "image/svg+xml", "data": data, "uri": uri });
        let answer = send(&mut agent, &[text("Look"), svg]);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let read = last_prompt(&provider.chat_requests().pop().unwrap()).to_string();
        assert!(read.contains("/ws/logo.svg") && read.contains("<svg><circle/></svg>"), "{read}");
    }
}

#[test]
fn r_turn_11_the_currently_chosen_model_decides_which_media_are_accepted() {
    let provider = Provider::of(&["eye", "blind"]);
    let mut agent = configured(&settings(&provider, "blind")).start();
    let blocks = [text("Look"), image("AAAA")];
    assert_eq!(send(&mut agent, &blocks)["error"]["code"], -32602);
    set(&mut agent, "model", "p/eye");
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    assert_eq!(provider.chat_requests().len(), 1);
    assert_eq!(pictures(&provider.chat_requests()[0]), 1);
}

#[test]
fn a_model_without_vision_gets_a_note_instead_of_an_image_and_the_user_a_notice() {
    let provider = Provider::of(&["eye", "blind"]);
    let mut agent = configured(&settings(&provider, "eye")).start();
    assert_eq!(send(&mut agent, &[text("One"), image("AAAA")])["result"]["stopReason"], "end_turn");
    set(&mut agent, "model", "p/blind");
    assert_eq!(send(&mut agent, &[text("Two"), image("BBBB")])["result"]["stopReason"], "end_turn");
    let body = &provider.chat_requests()[1];
    assert_eq!(pictures(body), 0, "{body}");
    assert_eq!(body.to_string().matches("image omitted (image/png)").count(), 2, "{body}");
    assert!(notices(&agent).contains("p/blind does not accept images"), "{}", notices(&agent));
    // The first image is still in the history.
    set(&mut agent, "model", "p/eye");
    assert_eq!(agent.turn("Three"), "end_turn");
    assert_eq!(pictures(&provider.chat_requests()[2]), 2);
}

#[test]
fn a_request_that_is_refused_for_its_images_is_sent_without_them() {
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
        assert_eq!(provider.chat_requests().len(), 2);
        let notice = "p/gpt-4o does not accept images";
        assert_eq!(notices(&agent).matches(notice).count(), 1, "{}", notices(&agent));
        // The next session does not send images to this model.
        agent.session = agent.new_session();
        assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
        assert_eq!(provider.chat_requests().len(), 3);
        assert!(provider.chat_requests()[2].to_string().contains("image omitted"));
        assert_eq!(notices(&agent).matches(notice).count(), 1, "{}", notices(&agent));
    }
}

#[test]
fn an_image_that_an_unknown_model_refuses_in_unknown_words_costs_only_the_image() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => Answer::Refuses(422, "the request could not be understood".to_owned()),
    });
    let settings = format!("model = 'p/my-own'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let answer = send(&mut agent, &[text("Look"), image("AAAA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(notices(&agent).contains("p/my-own does not accept images"), "{}", notices(&agent));
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 3);
    assert_eq!(pictures(&provider.chat_requests()[2]), 0);
}

#[test]
fn refused_images_are_not_advertised_by_the_next_process_unless_the_user_sets_it() {
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
fn images_that_a_setting_allows_but_the_server_refuses_are_left_out() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => refuses("unknown variant `image_url`"),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let answer = send(&mut agent, &[text("Look"), image("AAAA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(notices(&agent).contains("could not use an image"), "{}", notices(&agent));
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 3);
}

#[test]
fn an_unusable_image_is_left_out_and_the_next_image_is_sent() {
    let provider = Provider::answering(|body| {
        let is_broken = body.to_string().contains("GgoABROK");
        if is_broken {
            refuses("Invalid 'messages[1].content[1].image_url.url'. Expected a base64-encoded URL")
        } else {
            says("Yes.")
        }
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let answer = send(&mut agent, &[text("Look"), image("BROK")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(provider.chat_requests()[1].to_string().contains("image left out"));
    assert!(notices(&agent).contains("could not use an image"), "{}", notices(&agent));
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(
        send(&mut agent, &[text("This"), image("GOOD")])["result"]["stopReason"],
        "end_turn"
    );
    assert_eq!(provider.chat_requests().len(), 4);
    assert_eq!(pictures(&provider.chat_requests()[3]), 1);
    assert_eq!(agent.thoughts().matches("could not use").count(), 1);
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("And after a restart?"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 5, "it was refused once more");
}

/// Returns which of the images, by the characters that they end with, are in a request.
fn images_in<'a>(body: &Value, ends: &[&'a str]) -> Vec<&'a str> {
    let body = body.to_string();
    ends.iter().copied().filter(|end| body.contains(&format!("{PNG_BASE64}{end}"))).collect()
}

#[test]
fn of_several_images_only_the_refused_one_is_left_out() {
    let ends = ["OLDA", "BROK", "NEWA", "NEWB"];
    for order in [["BROK", "NEWA", "NEWB"], ["NEWA", "BROK", "NEWB"], ["NEWA", "NEWB", "BROK"]] {
        let provider = Provider::answering(move |body| match images_in(body, &ends) {
            sent if sent.contains(&"BROK") => refuses("Could not process image"),
            _ => says("Yes."),
        });
        let mut agent = configured(&settings(&provider, "eye")).start();
        send(&mut agent, &[text("Before"), image("OLDA")]);
        let blocks: Vec<_> = [text("Look")].into_iter().chain(order.map(image)).collect();
        assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
        let sound = ["OLDA", "NEWA", "NEWB"];
        let sent = |number: usize| images_in(&provider.chat_requests()[number], &ends);
        let last = provider.chat_requests().len() - 1;
        assert_eq!(sent(last), sound, "{order:?}");
        assert!(last <= 4, "{last} requests");
        assert!(notices(&agent).contains("so it was left out. (Could not process image)"));
        assert_eq!(agent.turn("And now?"), "end_turn");
        assert_eq!(sent(last + 1), sound, "{order:?}");
        let session = agent.session.clone();
        agent.restart();
        agent.load(&session);
        assert_eq!(agent.turn("And after a restart?"), "end_turn");
        assert_eq!(sent(last + 2), sound, "{order:?}");
    }
}

#[test]
fn images_are_left_out_if_a_server_that_gives_no_reason_then_accepts_the_request() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => refuses("Invalid request."),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let answer = send(&mut agent, &[text("Look"), image("AAAA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let told = notices(&agent);
    assert!(told.contains("so it was left out. (Invalid request.)"), "{told}");
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 3);

    let provider = Provider::answering(|body| {
        let is_refused = body.to_string().contains("Provoke");
        if is_refused { refuses("Invalid request.") } else { says("Yes.") }
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    send(&mut agent, &[text("Look"), image("AAAA")]);
    send(&mut agent, &[text("Provoke"), image("BBBB")]);
    let sent: Vec<_> = provider.chat_requests().iter().map(pictures).collect();
    assert_eq!(sent, [1, 2, 1, 0], "the image of this prompt is suspected first");
    assert!(!notices(&agent).contains("left out"), "{}", notices(&agent));
    set(&mut agent, "model", "p/blind");
    send(&mut agent, &[text("Provoke")]);
    assert_eq!(provider.chat_requests().len(), 5, "images that are not sent are not suspected");
}

#[test]
fn of_more_images_than_the_server_takes_the_oldest_are_left_out() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 | 1 => says("Yes."),
        _ => refuses("At most 1 image(s) may be provided in one request."),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    send(&mut agent, &[text("One"), image("OLDA")]);
    let answer = send(&mut agent, &[text("Two"), image("NEWA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let requests = provider.chat_requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(images_in(&requests[2], &["OLDA", "NEWA"]), ["NEWA"]);
}

#[test]
fn of_too_many_images_for_large_ones_the_oldest_are_left_out() {
    let provider = Provider::answering(|body| match pictures(body) {
        0..=20 => says("Yes."),
        _ => refuses(
            "messages.1.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed \
             size for many-image requests: 2000 pixels",
        ),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let many: Vec<_> = (0..20).map(|number| image(&format!("MA{number:02}"))).collect();
    send(&mut agent, &many);
    let answer = send(&mut agent, &[text("And this?"), image("NEWA")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let last = provider.chat_requests().pop().unwrap();
    assert_eq!(pictures(&last), 20);
    assert_eq!(images_in(&last, &["MA00", "MA01", "NEWA"]), ["MA01", "NEWA"]);
}

#[test]
fn a_server_that_refuses_every_image_gets_none_after_a_few_attempts() {
    let provider = Provider::answering(|body| match pictures(body) {
        0 => says("I see nothing."),
        _ => refuses("Could not process image"),
    });
    let mut agent = configured(&settings(&provider, "eye")).start();
    let ends = ["AAAA", "AAAB", "AAAC", "AAAD", "AAAE", "AAAF"];
    let blocks: Vec<_> = [text("Look")].into_iter().chain(ends.map(image)).collect();
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    assert_eq!(provider.chat_requests().len(), 6, "four are tried one by one");
    assert_eq!(agent.turn("And now?"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 7);
}

/// Runs a turn in which the model reads a file. Returns the agent, whose first call has a card.
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
fn an_image_file_is_shown_on_the_card_and_to_a_model_with_vision() {
    let provider = reader("a.png");
    let agent = read(&provider, "eye", "a.png", PNG);
    let body = &provider.chat_requests()[1];
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
fn an_image_file_is_described_to_a_model_without_vision() {
    let provider = reader("a.png");
    let agent = read(&provider, "blind", "a.png", PNG);
    let body = &provider.chat_requests()[1];
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
fn a_file_that_is_too_large_or_not_an_image_is_not_sent_as_an_image() {
    let huge = [PNG, &vec![0; 6 * 1024 * 1024]].concat();
    for (bytes, expected) in [
        (b"just words\n".as_slice(), "    1| just words"),
        (b"\0\x01\x02\x03".as_slice(), "a.png | binary, 4 bytes]"),
        (huge.as_slice(), "is an image of more than 5 MiB"),
    ] {
        let provider = reader("a.png");
        let agent = read(&provider, "eye", "a.png", bytes);
        let body = &provider.chat_requests()[1];
        assert_eq!(pictures(body), 0);
        let result = body["messages"][3]["content"].as_str().unwrap().to_owned();
        assert!(result.contains(expected), "{result}");
        let status = if expected.starts_with("is ") { "failed" } else { "completed" };
        assert_eq!(cards::card(&agent, 0)["status"], status);
    }
}

#[test]
fn audio_is_sent_to_a_model_that_accepts_it() {
    let provider = Provider::of(&[]);
    let section = provider.section("p", "quirks = { images = false, audio = true }");
    let mut agent = configured(&format!("model = 'p/ear'\n{section}")).initialize();
    open(&mut agent);
    let audio = json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/mpeg" });
    assert_eq!(send(&mut agent, &[text("Listen"), audio])["result"]["stopReason"], "end_turn");
    let content = last_prompt(&provider.chat_requests()[0]);
    assert_eq!(content[1]["input_audio"], json!({ "data": "AAAA", "format": "mp3" }), "{content}");
    assert_eq!(send(&mut agent, &[image("AAAA")])["error"]["code"], -32602);
}

#[test]
fn a_refusal_of_images_within_a_stream_is_handled_as_well() {
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
    let count = notices(&agent).matches("p/gpt-4o does not accept images").count();
    assert_eq!(count, 1, "{}", notices(&agent));
}

/// The beginning of a PDF.
const PDF_BASE64: &str = "JVBERi0xLjcK";

/// An attached PDF that ends with these four characters of base64.
fn pdf(end: &str) -> Value {
    let blob = format!("{PDF_BASE64}{end}");
    json!({ "type": "resource", "resource": { "uri": "file:///ws/a.pdf", "blob": blob } })
}

fn files(body: &Value) -> usize {
    body.to_string().matches("\"file_data\":\"data:application/pdf;base64,").count()
}

fn with_quirks(provider: &Provider, quirks: &str) -> TestAgent {
    configured(&format!("model = 'p/m'\n{}", provider.section("p", quirks))).start()
}

#[test]
fn an_attached_pdf_is_sent_to_a_model_that_takes_files_and_named_to_any_other() {
    for (quirks, expected) in [("quirks = { files = true }", 1), ("", 0)] {
        let provider = Provider::of(&["m"]);
        let mut agent = with_quirks(&provider, quirks);
        let answer = send(&mut agent, &[text("Read"), pdf("AAAA")]);
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        let body = provider.chat_requests().pop().unwrap();
        assert_eq!(files(&body), expected, "{body}");
        assert!(body.to_string().contains("/ws/a.pdf"), "{body}");
        assert!(!body.to_string().contains("PDF omitted"), "{body}");
        assert_eq!(notices(&agent), "");
        let session = agent.session.clone();
        agent.restart();
        agent.load(&session);
        let shown = agent.updates_of("user_message_chunk");
        let has_file = shown.iter().any(|update| update["content"]["resource"]["blob"].is_string());
        assert_eq!(has_file, expected == 1, "{shown:?}");
        assert_eq!(agent.turn("And now?"), "end_turn");
        assert_eq!(files(&provider.chat_requests()[1]), expected);
    }
}

#[test]
fn the_fifth_pdf_of_a_prompt_is_only_named() {
    let provider = Provider::of(&["m"]);
    let mut agent = with_quirks(&provider, "quirks = { files = true }");
    let blocks: Vec<_> = ["AAAA", "AAAB", "AAAC", "AAAD", "AAAE"].map(pdf).into();
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    let body = &provider.chat_requests()[0];
    assert_eq!(files(body), 4, "{body}");
    assert_eq!(body.to_string().matches("[a document; ").count(), 5, "{body}");
}

#[test]
fn a_request_that_is_refused_for_its_files_is_sent_without_them() {
    let kinds = json!({ "input_modalities": ["text", "image", "file"] });
    let list = json!({ "data": [{ "id": "m", "architecture": kinds }] });
    for (status, message) in [
        (400, "Invalid value: file. Supported values are: 'text','image_url' and 'video'."),
        (404, "No endpoints found that support file input"),
        (500, "Unknown part type: file"),
    ] {
        let provider = Provider::start(List::Whole(list.clone()), move |body| match files(body) {
            0 => says("I see nothing."),
            _ => Answer::Refuses(status, message.to_owned()),
        });
        let mut agent = with_quirks(&provider, "");
        // The list is requested before the first answer.
        assert_eq!(agent.turn("hi"), "end_turn");
        let answer = send(&mut agent, &[text("Read"), pdf("AAAA")]);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{status} {message}: {answer}");
        let requests = provider.chat_requests();
        assert_eq!(requests.len(), 3, "{status} {message}");
        assert_eq!((files(&requests[1]), files(&requests[2])), (1, 0), "{message}");
        assert!(requests[2].to_string().contains("PDF omitted (application/pdf)"), "{message}");
        let notice = "p/m does not accept PDF files; they were left out.";
        assert_eq!(notices(&agent).matches(notice).count(), 1, "{}", notices(&agent));
        // It is remembered.
        assert_eq!(send(&mut agent, &[pdf("AAAB")])["result"]["stopReason"], "end_turn");
        let requests = provider.chat_requests();
        assert_eq!((requests.len(), files(&requests[3])), (4, 0), "{message}");
    }
}

#[test]
fn files_that_a_setting_allows_but_the_server_refuses_are_left_out_and_images_stay() {
    for message in ["Unknown part type: file", "the request could not be understood"] {
        let provider = Provider::answering(move |body| match files(body) {
            0 => says("I see nothing."),
            _ => refuses(message),
        });
        let mut agent = with_quirks(&provider, "quirks = { files = true, images = true }");
        let answer = send(&mut agent, &[text("Look"), image("AAAA"), pdf("AAAA")]);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let told = notices(&agent);
        assert!(told.contains("could not use an image or PDF file, so it was left out."), "{told}");
        let session = agent.session.clone();
        agent.restart();
        agent.load(&session);
        assert_eq!(agent.turn("And after a restart?"), "end_turn");
        let requests = provider.chat_requests();
        assert_eq!(requests.len(), 3, "{message}");
        for request in &requests[1..] {
            assert_eq!((files(request), pictures(request)), (0, 1), "{request}");
            assert!(request.to_string().contains("[PDF left out: "), "{request}");
        }
    }
}

#[test]
fn of_several_files_only_the_refused_one_is_left_out() {
    let provider = Provider::answering(|body| {
        let is_broken = body.to_string().contains("LjcKBROK");
        if is_broken { refuses("Could not process PDF") } else { says("Yes.") }
    });
    let mut agent = with_quirks(&provider, "quirks = { files = true }");
    let answer = send(&mut agent, &[text("Read"), pdf("GOOD"), pdf("BROK")]);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(notices(&agent).contains("so it was left out. (Could not process PDF)"));
    assert_eq!(agent.turn("And now?"), "end_turn");
    let last = provider.chat_requests().pop().unwrap().to_string();
    assert!(last.contains("LjcKGOOD") && !last.contains("LjcKBROK"), "{last}");
}

#[test]
fn a_refusal_for_another_reason_leaves_no_file_out() {
    let provider = Provider::answering(|body| {
        let is_refused = body.to_string().contains("Provoke");
        if is_refused { refuses("the request could not be understood") } else { says("Yes.") }
    });
    let mut agent = with_quirks(&provider, "quirks = { files = true }");
    send(&mut agent, &[text("Read"), pdf("AAAA")]);
    send(&mut agent, &[text("Provoke")]);
    let requests = provider.chat_requests();
    let sent: Vec<_> = requests.iter().map(files).collect();
    assert_eq!(sent, [1, 1, 0], "it was tried without the file");
    assert!(!notices(&agent).contains("left out"), "{}", notices(&agent));
}
