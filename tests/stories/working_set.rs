//! Stories about a model that needs several files at the same time, in a window that hardly has room for them.

use serde_json::{Value, json};

use crate::agent::TestAgent;
use crate::provider::{Answer, Provider, calls, configured};

/// The number of lines of each file.
const LINES: usize = 160;

/// The content of a file, of some 8 KB for each `width` of 50.
fn content(file: usize, width: usize) -> String {
    let line = |line: usize| {
        let start = format!("[f{file}-{line:03}] ");
        format!("{start}{}\n", "word ".repeat((width - start.len()) / 5))
    };
    (0..LINES).map(line).collect()
}

fn text(body: &Value) -> String {
    body["messages"].to_string()
}

fn is_summary_request(body: &Value) -> bool {
    text(body).contains("Write a summary that lets you go on")
}

/// What an honest server counts in a request.
fn tokens(body: &Value) -> u64 {
    (text(body).len() + body["tools"].to_string().len()) as u64 / 4
}

/// True if all lines of a file are in the conversation.
fn sees(body: &Value, file: usize) -> bool {
    let text = text(body);
    (0..LINES).all(|it| text.contains(&format!("[f{file}-{it:03}]")))
}

/// A model that answers as soon as it sees all of so many files, and until then reads the first that it does
/// not see.
fn reader(files: usize) -> Provider {
    Provider::answering(move |body| {
        let answer = if is_summary_request(body) {
            crate::provider::says("All files are needed together.")
        } else if let Some(missing) = (0..files).find(|it| !sees(body, *it)) {
            calls("read_file", &json!({ "path": format!("f{missing}.txt") }))
        } else {
            crate::provider::says("All are seen.")
        };
        counted(body, answer)
    })
}

fn counted(body: &Value, answer: Answer) -> Answer {
    let mut events = match answer {
        Answer::Says(text) => {
            let delta = json!({ "content": text });
            vec![json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": "stop" }] })]
        }
        Answer::Events(events) => events,
        other => return other,
    };
    let usage = json!({ "prompt_tokens": tokens(body), "completion_tokens": 20 });
    events.push(json!({ "choices": [], "usage": usage }));
    Answer::Events(events)
}

fn agent(provider: &Provider, window: u64, files: usize, width: usize) -> TestAgent {
    let model = format!("models = ['m']\n[providers.p.model.m]\nwindow = {window}");
    let mut builder = configured(&format!("model = 'p/m'\n{}", provider.section("p", &model)));
    for file in 0..files {
        builder = builder.file(&format!("f{file}.txt"), &content(file, width));
    }
    builder.start()
}

#[test]
fn measure() {
    for (window, files, width) in [(16_000, 3, 50), (128_000, 8, 300)] {
        let provider = reader(files);
        let mut agent = agent(&provider, window, files, width);
        let end = agent.turn("Compare all the files.");
        let requests = provider.chat_requests();
        let summaries = requests.iter().filter(|it| is_summary_request(it)).count();
        let all: u64 = requests.iter().map(tokens).sum();
        eprintln!(
            "window {window}, {files} files of {} bytes: {end}, {} requests ({summaries} summaries), {all} tokens; max {}; tools {}; sys {}; first {}",
            content(0, width).len(),
            requests.len(),
            requests.iter().map(tokens).max().unwrap(),
            requests[0]["tools"].to_string().len() / 4,
            requests[0]["messages"][0].to_string().len() / 4,
            tokens(&requests[0]),
        );
        eprintln!("{}", agent.thoughts());
        eprintln!("{}", agent.text());
    }
}
