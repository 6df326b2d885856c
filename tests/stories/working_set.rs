//! Stories about a model that needs several files at the same time, in a window that hardly has room for them.

use serde_json::{Value, json};

use crate::agent::TestAgent;
use crate::provider::{Provider, calls, configured, counted, is_summary_request, text, tokens};

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
        counted(tokens(body), answer)
    })
}

fn agent(provider: &Provider, window: u64, files: usize, width: usize) -> TestAgent {
    let model = format!("models = ['m']\n[providers.p.model.m]\nwindow = {window}");
    let mut builder = configured(&format!("model = 'p/m'\n{}", provider.section("p", &model)));
    for file in 0..files {
        builder = builder.file(&format!("f{file}.txt"), &content(file, width));
    }
    builder.start()
}

/// Has the model compare so many files, which it needs together.
fn compare(window: u64, files: usize, width: usize) -> (TestAgent, Provider) {
    let provider = reader(files);
    let mut agent = agent(&provider, window, files, width);
    assert_eq!(agent.turn("Compare all the files."), "end_turn");
    (agent, provider)
}

/// A part of what the user is told if the files do not fit into the window.
const CROWDED: &str = "does not fit into its window";

#[test]
fn three_files_that_fit_into_a_small_window_are_read_once() {
    let (agent, provider) = compare(16_000, 3, 50);
    let requests = provider.chat_requests();
    assert_eq!(agent.text(), "All are seen.");
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().map(tokens).sum::<u64>() < 25_000);
}

#[test]
fn what_hardly_fits_is_read_twice_at_most_and_the_session_is_the_same_when_it_is_loaded() {
    for (window, files, width) in [(16_000, 4, 50), (128_000, 8, 300)] {
        let (mut agent, provider) = compare(window, files, width);
        let requests = provider.chat_requests();
        assert_eq!(agent.text(), "All are seen.");
        assert!(requests.len() <= 2 * files + 1, "{}", requests.len());
        assert!(!requests.iter().any(is_summary_request));
        assert!(!agent.thoughts().contains(CROWDED), "{}", agent.thoughts());
        let session = agent.session.clone();
        agent.restart();
        agent.load(&session);
        assert_eq!(agent.turn("And now?"), "end_turn");
        let before = requests.last().unwrap()["messages"].as_array().unwrap();
        let after = provider.chat_requests().pop().unwrap();
        assert_eq!(&after["messages"].as_array().unwrap()[..before.len()], before);
    }
}

#[test]
fn what_does_not_fit_ends_with_a_question_and_a_word_to_the_user() {
    let (agent, provider) = compare(16_000, 7, 50);
    assert!(agent.text().contains("had only results that it had before"), "{}", agent.text());
    assert_eq!(agent.thoughts().matches(CROWDED).count(), 1, "{}", agent.thoughts());
    assert!(provider.chat_requests().len() < 45, "{}", provider.chat_requests().len());
}
