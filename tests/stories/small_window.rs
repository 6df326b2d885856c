//! Stories about models with a window of 4 096 tokens, as Ollama gives them unless it is told otherwise.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::TestAgent;
use crate::provider::{Answer, Provider, configured, counted, is_summary_request, says};

const WINDOW: u64 = 4_096;

/// What a server counts in a text. Small models have short tokens.
fn tokens(text: &str) -> u64 {
    text.len() as u64 * 10 / 34
}

/// A server with one model that answers by `answer` and refuses what does not fit into the window.
fn small(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Provider {
    Provider::answering(move |body| {
        let count = tokens(&body.to_string());
        if count >= WINDOW {
            return Answer::Refuses(
                400,
                format!("the request exceeds the available context size ({WINDOW}): {count}"),
            );
        }
        counted(count, answer(body))
    })
}

fn agent(provider: &Provider, files: &[(String, String)]) -> TestAgent {
    let model = format!("models = ['small']\n[providers.p.model.small]\nwindow = {WINDOW}");
    let mut builder = configured(&format!("model = 'p/small'\n{}", provider.section("p", &model)));
    for (name, content) in files {
        builder = builder.file(name, content);
    }
    builder.start()
}

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().unwrap()
}

fn last_text(body: &Value) -> &str {
    messages(body).last().unwrap()["content"].as_str().unwrap()
}

/// Reads the file that the prompt names, and then says what was read.
fn read_named_file(body: &Value) -> Answer {
    let last = messages(body).last().unwrap();
    if is_summary_request(body) {
        says("Some notes were read.")
    } else if last["role"] == "tool" {
        says("It is read.")
    } else {
        let path = last_text(body)
            .split_whitespace()
            .find(|it| Path::new(it).extension().is_some_and(|it| it == "txt"))
            .unwrap();
        crate::provider::calls("read_file", &json!({ "path": path }))
    }
}

#[test]
fn a_small_window_gets_the_tools_that_are_needed_most_and_the_user_is_told_once() {
    let provider = small(|body| match last_text(body) {
        text if text.starts_with("find") => {
            crate::provider::calls("find_files", &json!({ "pattern": "*.txt" }))
        }
        _ => says("Yes."),
    });
    let mut agent = agent(&provider, &[("a.txt".to_owned(), String::new())]);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.turn("find it"), "end_turn");
    let requests = provider.chat_requests();
    let tools = requests[0]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|it| it["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["grep", "list_dir", "read_file", "edit_file", "exec", "write_file"]);
    let told = agent.thoughts();
    assert_eq!(told.matches("has a window of only 4096 tokens").count(), 1, "{told}");
    // The others are there if the model knows of them.
    assert!(last_text(&requests[2]).contains("a.txt"), "{}", requests[2]);
}

#[test]
fn a_first_prompt_that_did_not_fit_does_not_stop_those_after_it() {
    let provider =
        small(|body| says(if is_summary_request(body) { "A log was sent." } else { "Yes." }));
    let mut agent = agent(&provider, &[]);
    let log = "an error in a log\n".repeat(2_000);
    // It does not fit, however long tokens are.
    assert!(log.len() as u64 / 8 > WINDOW);
    assert_eq!(agent.turn(&log), "max_tokens");
    assert!(agent.text().contains("This prompt alone"), "{}", agent.text());
    assert_eq!(agent.turn("Only this: an error"), "end_turn");
    assert!(agent.text().ends_with("Yes."), "{}", agent.text());
    let requests = provider.chat_requests();
    let last = requests.last().unwrap().to_string();
    assert!(last.contains("A log was sent."), "{last}");
}

#[test]
fn a_file_that_is_larger_than_the_window_is_read_in_part() {
    let provider = small(read_named_file);
    let lines: Vec<_> = (1..2_000).map(|it| format!("line {it}")).collect();
    let lines = lines.join("\n");
    let mut agent = agent(&provider, &[("long.txt".to_owned(), lines)]);
    assert_eq!(agent.turn("Never touch b.txt. Read long.txt now"), "end_turn");
    let requests = provider.chat_requests();
    assert_eq!(requests.len(), 2, "it is not summarised at once");
    let result = last_text(&requests[1]);
    assert!(result.contains("line 100") && result.contains("Ask for a smaller part"), "{result}");
    // What the model has had is what a loaded session has.
    assert_eq!(agent.turn("Read long.txt again"), "end_turn");
    assert!(provider.chat_requests().iter().all(|it| tokens(&it.to_string()) < WINDOW));
}

#[test]
fn twenty_calls_are_made_in_a_small_window_across_several_summaries() {
    let provider = small(read_named_file);
    let content = |number| format!("{} of note {number}\n", "word ".repeat(60));
    let files: Vec<_> = (0..20).map(|it| (format!("note-{it}.txt"), content(it))).collect();
    let mut agent = agent(&provider, &files);
    for number in 0..20 {
        let condition = if number == 0 { "The word of the day is PELICAN. " } else { "" };
        let prompt = format!("{condition}Read note-{number}.txt and say what it is about.");
        assert_eq!(agent.turn(&prompt), "end_turn");
    }
    let requests = provider.chat_requests();
    assert!(requests.iter().all(|it| tokens(&it.to_string()) < WINDOW), "one was refused");
    let summaries = requests.iter().filter(|it| is_summary_request(it)).count();
    assert!((2..=6).contains(&summaries), "{summaries} summaries");
    for request in &requests {
        assert!(request.to_string().contains("PELICAN"), "{request}");
    }
    let asked = requests.iter().find(|it| is_summary_request(it)).unwrap();
    let words = last_text(asked).split_once("At most ").unwrap().1.split_once(' ').unwrap().0;
    assert!((50..200).contains(&words.parse::<u64>().unwrap()), "{words} words");
}

#[test]
fn who_was_told_of_a_small_window_is_told_of_an_assumed_one_too() {
    let provider = Provider::answering(|_| says("Yes."));
    let models =
        format!("models = ['small', 'large']\n[providers.p.model.small]\nwindow = {WINDOW}");
    let settings = format!("model = 'p/small'\n{}", provider.section("p", &models));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.turn("/model p/large"), "end_turn");
    let long = "word ".repeat(80_000);
    for _ in 0..2 {
        assert_eq!(agent.turn(&long), "end_turn");
    }
    let told = agent.thoughts();
    for notice in ["has a window of only 4096 tokens", "can hold is not known"] {
        assert_eq!(told.matches(notice).count(), 1, "{notice}: {told}");
    }
}
