//! Stories about conversations that no longer fit into the model's window.

use serde_json::{Value, json};
use turnwright_testing::model_failures::failure;
use turnwright_testing::scripted_model::Recorded;

use crate::agent::{TestAgent, calls, says};
use crate::provider::{
    Answer, Provider, SUMMARY_REQUEST, configured, counted, is_summary_request, refuses, set, text,
    tokens,
};

/// The window that most stories set, in tokens.
const WINDOW: &str = "32000";

/// A prompt of about this many tokens.
fn long_prompt(start: &str, tokens: usize) -> String {
    format!("{start} {}", "word ".repeat(tokens * 4 / 5))
}

/// An answer after which a window of 32 000 tokens is nearly full.
fn nearly_full(text: &str) -> Value {
    json!([{ "text": text }, { "usage": { "prompt_tokens": 22_000, "completion_tokens": 9 } }])
}

/// A client that shows compactions.
fn with_compactions() -> Value {
    json!({ "session": { "compaction": {} } })
}

#[test]
fn a_full_window_is_compacted_before_the_next_request() {
    let script = json!([
        says("Understood."),
        nearly_full("Read it."),
        says("# Goal\nKeep b.txt as it is."),
        says("And on we go."),
    ]);
    let mut agent = TestAgent::builder()
        .model(script)
        .capabilities(with_compactions())
        .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
        .start();
    assert_eq!(agent.turn("Never touch b.txt."), "end_turn");
    assert_eq!(agent.turn(&long_prompt("Read this:", 18_000)), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    assert_eq!(agent.text(), "Understood.Read it.And on we go.");
    let requests: Vec<_> = agent.model().requests().into_iter().map(|it| it.body).collect();
    assert_eq!(requests.len(), 4);
    // The request for the summary begins with the bytes of the one before, so the provider has it
    // in its cache.
    assert!(is_summary_request(&requests[2]));
    let (before, after) = (&requests[1]["messages"], &requests[2]["messages"]);
    let before = before.as_array().unwrap();
    assert_eq!(&after.as_array().unwrap()[..before.len()], before);
    assert_eq!(requests[1]["tools"], requests[2]["tools"]);
    let last = text(&requests[3]);
    assert!(last.contains("Never touch b.txt.") && last.contains("Keep b.txt as it is."), "{last}");
    assert!(last.contains("Working folder: ") && last.contains("Go on."), "{last}");
    assert!(last.len() < 20_000, "{} bytes are left", last.len());
    let states = agent.updates_of("compaction_update");
    let words: Vec<_> = states.iter().map(|it| it["status"].as_str().unwrap()).collect();
    assert_eq!(words, ["in_progress", "completed"]);
    assert_eq!(states[1]["summary"][0]["text"], "# Goal\nKeep b.txt as it is.");
    let chunks = agent.updates_of("compaction_summary_chunk");
    let streamed: String =
        chunks.iter().map(|it| it["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, "# Goal\nKeep b.txt as it is.");
    assert!(chunks.iter().all(|it| it["compactionId"] == states[0]["compactionId"]));
}

#[test]
fn a_client_that_shows_no_compactions_gets_a_notice() {
    let script = json!([nearly_full("Read it."), says("A summary."), says("Done.")]);
    let mut agent =
        TestAgent::builder().model(script).variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW).start();
    assert_eq!(agent.turn(&long_prompt("Read this:", 18_000)), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    assert!(agent.updates_of("compaction_update").is_empty());
    assert!(agent.updates_of("compaction_summary_chunk").is_empty());
    let thoughts = agent.thoughts();
    assert_eq!(thoughts.matches("The conversation was compacted: about").count(), 1, "{thoughts}");
    assert!(!agent.text().contains("summary"), "{}", agent.text());
}

#[test]
fn a_compacted_conversation_is_loaded_whole_for_the_user_and_compacted_for_the_model() {
    let script = json!([
        says("One."),
        nearly_full("Two."),
        says("The summary."),
        says("Three."),
        says("Four.")
    ]);
    let mut agent = TestAgent::builder()
        .model(script)
        .capabilities(with_compactions())
        .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
        .start();
    assert_eq!(agent.turn("first words"), "end_turn");
    assert_eq!(agent.turn(&long_prompt("second words", 18_000)), "end_turn");
    assert_eq!(agent.turn("third words"), "end_turn");
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    let replayed: Vec<_> = agent
        .updates()
        .iter()
        .filter_map(|it| match it["sessionUpdate"].as_str()? {
            "user_message_chunk" | "agent_message_chunk" => {
                Some(it["content"]["text"].as_str()?.chars().take(12).collect::<String>())
            }
            "compaction_update" => Some(it["summary"][0]["text"].as_str()?.to_owned()),
            _ => None,
        })
        .collect();
    let expected =
        ["first words", "One.", "second words", "Two.", "third words", "The summary.", "Three."];
    assert_eq!(replayed, expected);
    let before = agent.model().requests().pop().unwrap().body;
    assert_eq!(agent.turn("fourth words"), "end_turn");
    let after = agent.model().requests().pop().unwrap().body;
    // What the model had before is the beginning of what it has now.
    let before = before["messages"].as_array().unwrap();
    assert_eq!(&after["messages"].as_array().unwrap()[..before.len()], before);
}

#[test]
fn compact_takes_a_wish_and_rewind_sees_through_it() {
    let script = json!([says("One."), says("Two."), says("Short."), says("Three.")]);
    let mut agent = TestAgent::builder().model(script).start();
    assert_eq!(agent.turn("alpha"), "end_turn");
    assert_eq!(agent.turn(&long_prompt("beta", 21_000)), "end_turn");
    assert_eq!(agent.turn("/compact the names of the files"), "end_turn");
    assert!(agent.text().contains("The model has a summary"), "{}", agent.text());
    let asked = text(&agent.model_request(2));
    assert!(asked.contains("to be kept above all: the names of the files"), "{asked}");
    assert_eq!(agent.turn("/rewind 1"), "end_turn");
    assert_eq!(agent.turn("gamma"), "end_turn");
    assert_eq!(agent.model_transcript(3), ["user alpha", "assistant One.", "user gamma"]);
}

/// An answer that ends because the window of 32 000 tokens is full.
fn full(text: &str) -> Value {
    let usage = json!({ "prompt_tokens": 22_000, "completion_tokens": 9_990 });
    json!([{ "text": text }, { "finish": "length" }, { "usage": usage }])
}

#[test]
fn an_answer_that_has_filled_the_window_goes_on_once_room_was_made() {
    let whole = "Understood.First half, second half.";
    let cut = "Understood.First half, second halfThe answer was cut off, because the model's window is \
               full. The conversation is compacted before the next request: say \"go on\".";
    for (second, stop, shown) in
        [(says(", second half."), "end_turn", whole), (full(", second half"), "max_tokens", cut)]
    {
        let script = json!([says("Understood."), full("First half"), says("# Goal"), second]);
        let mut agent = TestAgent::builder()
            .model(script)
            .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
            .start();
        assert_eq!(agent.turn("Never touch b.txt."), "end_turn");
        assert_eq!(agent.turn(&long_prompt("Read this:", 18_000)), stop);
        assert_eq!(agent.text(), shown);
        assert_eq!(agent.model().requests().len(), 4);
        assert!(is_summary_request(&agent.model_request(2)));
        let last = text(&agent.model_request(3));
        assert!(last.contains("It ended with:\\nFirst half"), "{last}");
        assert!(agent.thoughts().contains("Making room and continuing"), "{}", agent.thoughts());
    }
}

#[test]
fn there_may_be_nothing_to_compact() {
    let mut agent = TestAgent::builder().start();
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert!(agent.text().contains("nothing to compact"), "{}", agent.text());
    assert!(agent.model().requests().is_empty());
}

#[test]
fn a_cancelled_compaction_leaves_the_session_as_it_was() {
    let hanging = json!([{ "text": "# Goal" }, { "hang": true }]);
    let script = json!([says("One."), hanging, says("Two.")]);
    let mut agent = TestAgent::builder().model(script).capabilities(with_compactions()).start();
    assert_eq!(agent.turn("alpha"), "end_turn");
    let id = agent.prompt("/compact");
    agent.wait_for_update("compaction_summary_chunk");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let states = agent.updates_of("compaction_update");
    assert_eq!(states.last().unwrap()["status"], "cancelled");
    assert_eq!(agent.turn("beta"), "end_turn");
    assert_eq!(agent.model_transcript(2), ["user alpha", "assistant One.", "user beta"]);
}

#[test]
fn a_compaction_that_fails_changes_nothing_and_says_why() {
    let refused = json!([{ "status": 401, "body": { "error": "no such key" } }]);
    let script = json!([says("One."), refused, says("Two.")]);
    let mut agent = TestAgent::builder().model(script).capabilities(with_compactions()).start();
    assert_eq!(agent.turn("alpha"), "end_turn");
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert!(agent.text().contains("The conversation is as it was"), "{}", agent.text());
    let failed = agent.updates_of("compaction_update").pop().unwrap();
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"].as_str().unwrap().contains("no such key"), "{failed}");
    assert_eq!(agent.turn("beta"), "end_turn");
    assert_eq!(agent.model_transcript(2), ["user alpha", "assistant One.", "user beta"]);
}

#[test]
fn a_summary_that_is_cut_off_is_asked_for_once_more_with_fewer_words() {
    let cut = json!([{ "text": "# Goal\nKeep" }, { "finish": "length" }]);
    for (again, expected) in [
        (says("Keep b.txt as it is."), "Keep b.txt as it is."),
        (cut.clone(), "Keep\\n[The summary was cut off here.]"),
        // The first one is better than none.
        (says(""), "Keep\\n[The summary was cut off here.]"),
    ] {
        let script = json!([says("One."), cut, again, says("Two.")]);
        let mut agent = TestAgent::builder().model(script).capabilities(with_compactions()).start();
        for prompt in ["alpha", "/compact", "beta"] {
            assert_eq!(agent.turn(prompt), "end_turn", "{prompt}");
        }
        let requests = agent.model().requests();
        assert_eq!(requests.len(), 4);
        assert!(requests[1..3].iter().all(|request| is_summary_request(&request.body)));
        let last = text(&requests[3].body);
        assert!(last.contains(expected), "{last}");
        // The last update replaces what was shown of both.
        let shown = agent.updates_of("compaction_update").pop().unwrap()["summary"].to_string();
        assert!(shown.contains(expected) && shown.matches("Keep").count() == 1, "{shown}");
    }
}

/// What each server says about a request that is too long for a window of 32 000 tokens.
const DIALECTS: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 32000 tokens. However, your messages resulted in 35000 tokens."}}"#,
    ),
    (
        400,
        r#"{"error":{"type":"exceed_context_size_error","message":"the request exceeds the available context size","n_ctx":32000,"n_prompt_tokens":35000}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 35000 tokens > 32000 maximum"}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"This model's maximum context length is 32000 tokens. However, you requested 35000 tokens in the messages, Please reduce the length of the messages."}"#,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"The input token count (35000) exceeds the maximum number of tokens allowed (32000).","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        400,
        r#"{"error":"Trying to keep the first 35000 tokens when context the overflows. However, the model is loaded with context length of only 32000 tokens"}"#,
    ),
    (413, r#"{"error":{"message":"Request too large"}}"#),
    (
        422,
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32000. Given: 35000 `inputs` tokens","error_type":"validation"}"#,
    ),
    (400, r#"{"code":"1261","message":"Prompt exceeds max length"}"#),
    (
        400,
        r#"{"message":"Your input exceeds the context window of this model. Please adjust your input and try again."}"#,
    ),
];

#[test]
fn a_conversation_that_overflows_goes_on_in_every_dialect() {
    for (status, body) in DIALECTS {
        let body: Value = serde_json::from_str(body).unwrap();
        let usage = json!({ "usage": { "prompt_tokens": 29_000, "completion_tokens": 10 } });
        let script = json!([
            [{ "text": "One." }, usage],
            [{ "status": status, "body": body }],
            says("The summary."),
            says("Two."),
        ]);
        let mut agent = TestAgent::builder().model(script).start();
        assert_eq!(agent.turn(&long_prompt("Never touch b.txt.", 27_000)), "end_turn", "{body}");
        assert_eq!(agent.turn("Go on."), "end_turn", "{body}");
        assert_eq!(agent.text(), "One.Two.", "{body}");
        let requests = agent.model().requests();
        assert_eq!(requests.len(), 4, "{body}");
        assert!(is_summary_request(&requests[2].body), "{body}");
        assert_fits(&requests[2], 32_000);
        assert_fits(&requests[3], 24_000);
        let last = text(&requests[3].body);
        assert!(last.contains("Never touch b.txt.") && last.contains("Go on."), "{last}");
    }
}

#[test]
fn a_server_that_adds_the_longest_answer_to_a_request_refuses_only_one() {
    let is_refused = |body: &Value| tokens(body) + 16_000 > 32_000;
    let provider = Provider::answering(move |body| {
        let size = tokens(body);
        if is_refused(body) {
            return refuses(&format!(
                "This model's maximum context length is 32000 tokens. However, you requested {} tokens \
                 ({size} in the messages, 16000 in the completion).",
                size + 16_000
            ));
        }
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        counted(size, Answer::Says(text.to_owned()))
    });
    let model = "[providers.p.model.m]\nwindow = 32000\nmax_output = 16000";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", model));
    let mut agent = configured(&settings).start();
    for number in 0..16 {
        let prompt = long_prompt(&format!("Read part {number}:"), 2_000);
        assert_eq!(agent.turn(&prompt), "end_turn", "{number}");
    }
    let requests = provider.chat_requests();
    assert!(requests.iter().any(is_summary_request));
    assert_eq!(requests.iter().filter(|body| is_refused(body)).count(), 1);
}

/// A server may count messages or bytes, whose limit is reached long before the window is full.
#[test]
fn a_server_that_takes_few_messages_is_asked_for_a_summary_of_fewer() {
    let provider = Provider::answering(|body| {
        if body["messages"].as_array().map_or(0, Vec::len) > 20 {
            return refuses(
                "Invalid 'messages': array too long. Expected an array with maximum length 20.",
            );
        }
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        Answer::Says(text.to_owned())
    });
    let model = "[providers.p.model.m]\nwindow = 400000";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", model));
    let mut agent = configured(&settings).start();
    for number in 0..14 {
        let prompt = long_prompt(&format!("Read part {number}:"), 5_000);
        assert_eq!(agent.turn(&prompt), "end_turn", "{number}");
    }
    assert!(!agent.thoughts().contains("could not be summarised"), "{}", agent.thoughts());
    assert!(text(provider.chat_requests().last().unwrap()).contains("The summary."));
}

/// Asserts that a request has at most so many tokens of four bytes.
fn assert_fits(request: &Recorded, tokens: usize) {
    let length = request.body.to_string().len();
    assert!(length < tokens * 4, "{length} bytes are more than {tokens} tokens");
}

/// LM Studio answers nothing, or stops before the first word, if a prompt fills its window.
#[test]
fn without_a_word_in_a_window_of_unknown_size_the_conversation_is_summarised_once() {
    let cut = json!([{ "finish": "length" }]);
    let empty = json!([{ "finish": "stop" }]);
    for (wordless, stop) in [(vec![cut], Some("max_tokens")), (vec![empty; 3], None)] {
        let count = wordless.len();
        let first = long_prompt("Never touch b.txt.", 20_000);
        let script = [vec![says("One.")], wordless.clone(), vec![says("# Goal"), says("Two.")]];
        let mut agent = TestAgent::builder().model(json!(script.concat())).start();
        assert_eq!(agent.turn(&first), "end_turn");
        assert_eq!(agent.turn("Go on."), "end_turn");
        assert_eq!(agent.text(), "One.Two.");
        let requests = agent.model().requests();
        assert!(is_summary_request(&requests[1 + count].body));
        let last = text(&requests[2 + count].body);
        assert!(last.contains("Never touch b.txt.") && last.contains("Go on."), "{last}");
        assert!(last.len() < text(&requests[1].body).len(), "{} bytes", last.len());

        // It may have been something else.
        let last = wordless[..1].to_vec();
        let script = [vec![says("One.")], wordless, vec![says("# Goal")], last];
        let mut agent = TestAgent::builder().model(json!(script.concat())).start();
        assert_eq!(agent.turn(&first), "end_turn");
        let hint = match stop {
            Some(stop) => {
                assert_eq!(agent.turn("Go on."), stop);
                agent.text()
            }
            None => failure(&mut agent, "empty", None)["message"].to_string(),
        };
        assert!(hint.contains("its size is not known") && hint.contains("LM Studio"), "{hint}");
        assert_eq!(agent.model().requests().len(), 3 + count);
    }
}

#[test]
fn a_model_that_thinks_up_to_its_limit_does_not_end_the_turn_in_silence() {
    let thinks = json!([{ "thought": "Hm." }, { "finish": "length" }]);
    let mut agent = TestAgent::builder().model(json!([thinks])).start();
    assert_eq!(agent.turn("one"), "max_tokens");
    assert!(agent.text().contains("lower its reasoning effort"), "{}", agent.text());
}

#[test]
fn an_answer_that_overflows_in_its_middle_is_continued_after_the_summary() {
    let full = json!({ "error": { "code": "context_length_exceeded", "message":
        "This model's maximum context length is 32000 tokens." } });
    let script = json!([
        says("One."),
        [{ "text": "As I was say" }, full],
        says("The summary."),
        says("ing."),
    ]);
    let mut agent = TestAgent::builder().model(script).start();
    assert_eq!(agent.turn(&long_prompt("Never touch b.txt.", 27_000)), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    assert_eq!(agent.text(), "One.As I was saying.");
    let requests = agent.model().requests();
    assert!(is_summary_request(&requests[2].body));
    let last = requests[3].body["messages"].as_array().unwrap();
    assert_eq!(last[last.len() - 2]["content"], "As I was say");
    assert!(last[last.len() - 1].to_string().contains("do not repeat"), "{last:?}");
}

#[test]
fn a_summary_that_is_too_long_to_ask_for_is_asked_for_with_less_and_then_left_out() {
    let full = json!([{ "status": 400, "body": { "message":
        "Your input exceeds the context window of this model." } }]);
    let script = json!([says("One."), full, full, full, full, says("Two.")]);
    let mut agent = TestAgent::builder().model(script).capabilities(with_compactions()).start();
    assert_eq!(agent.turn(&long_prompt("Never touch b.txt.", 20_000)), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    assert_eq!(agent.text(), "One.Two.");
    let requests = agent.model().requests();
    let lengths: Vec<_> = requests[2..5].iter().map(|it| text(&it.body).len()).collect();
    assert!(lengths[0] > lengths[1] && lengths[1] > lengths[2], "{lengths:?}");
    let last = text(&requests[5].body);
    assert!(last.contains("Never touch b.txt.") && last.contains("was left out to make room"));
}

/// A text of about 900 tokens that does not repeat itself.
fn many_words() -> String {
    (0..600).map(|it| format!("w{it}")).collect::<Vec<_>>().join(" ")
}

/// Runs a turn of twelve long steps, each of which reads the lines from `first_line` on, in a window of
/// 16 000 tokens.
fn many_steps(first_line: fn(usize) -> usize) -> TestAgent {
    let line = format!("{}\n", "x".repeat(400));
    let mut script =
        vec![json!({ "when": SUMMARY_REQUEST, "steps": [{ "text": "Some were read." }] })];
    script.extend((1..=12).map(|it| {
        let arguments =
            json!({ "path": "big.txt", "start_line": first_line(it), "end_line": first_line(it) + 39 });
        json!([{ "text": many_words() },
            { "call": { "name": "read_file", "arguments": arguments } }])
    }));
    script.push(says("All read."));
    let mut agent = TestAgent::builder()
        .model(json!(script))
        .file("big.txt", &line.repeat(600))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "16000")
        .own_file("config/config.toml", "[agent]\ntools = \"all\"\n")
        .start();
    assert_eq!(agent.turn("Never touch b.txt. Read all of big.txt."), "end_turn");
    agent
}

#[test]
fn a_turn_of_many_steps_goes_on_after_each_compaction() {
    let agent = many_steps(|step| step * 40);
    assert!(agent.text().ends_with("All read."));
    let requests = agent.model().requests();
    assert!(requests.iter().any(|it| is_summary_request(&it.body)));
    assert!(requests.iter().any(|it| text(&it.body).contains("This result was left out")));
    for request in requests {
        assert!(text(&request.body).contains("Never touch b.txt."));
        assert_fits(&request, 16_000);
    }
}

#[test]
fn a_circle_is_seen_also_where_room_is_made_in_between() {
    let agent = many_steps(|_| 1);
    assert!(agent.text().contains("made the same call 5 times"), "{}", agent.text());
    let requests = agent.model().requests();
    assert!(requests.iter().any(|it| text(&it.body).contains("This result was left out")));
}

/// The models of a provider, of which the small one has a window of 32 000 tokens.
fn two_models(provider: &Provider) -> String {
    let models = "models = ['large', 'small']\n[providers.p.model.large]\nwindow = 200000\n\
                  [providers.p.model.small]\nwindow = 32000";
    format!("model = 'p/large'\n{}", provider.section("p", models))
}

#[test]
fn a_change_to_a_smaller_window_is_summarised_by_the_model_before_it() {
    let provider = Provider::answering(|body| {
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": "stop" });
        Answer::Events(vec![json!({ "choices": [choice] })])
    });
    let mut agent = configured(&two_models(&provider)).start();
    assert_eq!(agent.turn(&long_prompt("Never touch b.txt.", 60_000)), "end_turn");
    set(&mut agent, "model", "p/small");
    assert_eq!(agent.turn("Go on."), "end_turn");
    let requests = provider.chat_requests();
    let models: Vec<_> = requests.iter().map(|it| it["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["large", "large", "small"]);
    assert!(is_summary_request(&requests[1]) && requests[2].to_string().len() < 60_000);
    // The new model has answered, so it writes the next summary.
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(provider.chat_requests().pop().unwrap()["model"], "small");
}

#[test]
fn a_loaded_session_is_never_summarised_by_the_default_model_that_it_has_not_used() {
    let provider = Provider::answering(|body| {
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": "stop" });
        Answer::Events(vec![json!({ "choices": [choice] })])
    });
    let mut agent = configured(&two_models(&provider)).start();
    set(&mut agent, "model", "p/small");
    assert_eq!(agent.turn(&long_prompt("Never touch b.txt.", 15_000)), "end_turn");
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn(&long_prompt("And read this.", 15_000)), "end_turn");
    let requests = provider.chat_requests();
    assert!(requests.iter().any(is_summary_request));
    assert!(requests.iter().all(|it| it["model"] == "small"), "{}", requests[1]["model"]);
}

#[test]
fn a_server_that_cuts_requests_silently_gets_shorter_ones() {
    let provider = Provider::answering(|body| {
        let length = body["messages"].to_string().len() as u64;
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": "stop" });
        let usage = json!({ "prompt_tokens": (length / 4).min(8_100), "completion_tokens": 5 });
        Answer::Events(vec![json!({ "choices": [choice], "usage": usage })])
    });
    let settings = format!("model = 'p/m'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("Never touch b.txt."), "end_turn");
    assert_eq!(agent.turn(&long_prompt("Read this:", 40_000)), "end_turn");
    // One count proves nothing, and two that agree do.
    assert!(!agent.thoughts().contains("seems to have cut the prompt"));
    assert_eq!(agent.turn("Well?"), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    let last = provider.chat_requests().pop().unwrap();
    assert!(last["messages"].to_string().len() < 8_192 * 4, "{}", last.to_string().len());
    assert!(text(&last).contains("Never touch b.txt.") && text(&last).contains("Go on."));
    assert_eq!(agent.thoughts().matches("seems to have cut the prompt").count(), 1);
}

#[test]
fn ten_steps_begin_with_the_bytes_of_the_step_before() {
    let mut script: Vec<_> =
        (0..10).map(|it| calls("read_file", &json!({ "path": format!("{it}.txt") }))).collect();
    script.push(says("All read."));
    let mut builder = TestAgent::builder().model(json!(script));
    for number in 0..10 {
        builder = builder.file(&format!("{number}.txt"), "some text");
    }
    let mut agent = builder.start();
    assert_eq!(agent.turn("Read them all."), "end_turn");
    let requests = agent.model().requests();
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0].body, &pair[1].body);
        assert_eq!(before["tools"], after["tools"]);
        let before = before["messages"].as_array().unwrap();
        assert_eq!(&after["messages"].as_array().unwrap()[..before.len()], before);
    }
    assert_eq!(agent.turn("/context"), "end_turn");
    assert!(!agent.text().contains("read anew"), "{}", agent.text());
}

#[test]
fn context_names_what_fills_the_window_and_what_has_broken_the_cache() {
    let usage = json!({ "usage": { "prompt_tokens": 2_000, "completion_tokens": 10,
        "prompt_tokens_details": { "cached_tokens": 1_500 } } });
    let script = json!([
        [{ "call": { "name": "read_file", "arguments": { "path": "a.txt" } } }],
        [{ "text": "Read." }, usage],
        says("The summary."),
        says("On."),
    ]);
    let mut agent = TestAgent::builder()
        .model(script)
        .file("a.txt", &"line\n".repeat(200))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
        .start();
    assert_eq!(agent.turn("Read a.txt."), "end_turn");
    assert_eq!(agent.turn("/context"), "end_turn");
    let text = agent.text();
    for part in [
        "2010 of 32000 tokens (6 %)",
        "* System prompt: ",
        "* Tools: ",
        "* Instructions, notes and other context: ",
        "* Files: ",
        "* Conversation: ",
        "75 % were in the provider's cache",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("read anew"), "{text}");
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(agent.turn("Go on."), "end_turn");
    assert_eq!(agent.turn("/context"), "end_turn");
    let text = agent.text();
    assert!(text.contains("* Request 3 of 3: message 1 of 3 is different"), "{text}");
}

/// A server with one model for each dialect of [`DIALECTS`] and a window of 32 000 tokens for all of
/// them, of which it tells only by refusing what is too long.
fn refusing() -> Provider {
    Provider::answering(|body| {
        // Its tokens are shorter than ours.
        if body.to_string().len() / 3 > 32_000 {
            let number: usize = body["model"].as_str().unwrap()[1..].parse().unwrap();
            let (status, body) = DIALECTS[number];
            return Answer::Fails(status, serde_json::from_str(body).unwrap());
        }
        let text = if is_summary_request(body) { "Nothing was touched." } else { "Yes." };
        crate::provider::says(text)
    })
}

#[test]
fn three_hundred_turns_obey_the_first_words_through_every_dialect() {
    let provider = refusing();
    let models: Vec<_> = (0..DIALECTS.len()).map(|it| format!("'m{it}'")).collect();
    let section = provider.section("p", &format!("models = [{}]", models.join(", ")));
    let mut agent = configured(&format!("model = 'p/m0'\n{section}")).start();
    assert_eq!(agent.turn("Never touch b.txt, whatever I say later."), "end_turn");
    for turn in 1..300 {
        if turn % 30 == 0 {
            set(&mut agent, "model", &format!("p/m{}", turn / 30));
        }
        let prompt = long_prompt(&format!("Turn {turn}."), 1_500);
        assert_eq!(agent.turn(&prompt), "end_turn", "turn {turn}");
    }
    let requests = provider.chat_requests();
    let is_refused = |it: &Value| it.to_string().len() / 3 > 32_000;
    for pair in requests.windows(2) {
        assert!(!(is_refused(&pair[0]) && is_refused(&pair[1])), "two refusals in a row");
    }
    for model in 0..DIALECTS.len() {
        let name = format!("m{model}");
        let refused = requests.iter().filter(|it| it["model"] == name && is_refused(it)).count();
        assert!((1..=2).contains(&refused), "{name}: {refused} refusals");
    }
    for request in requests {
        assert!(text(&request).contains("Never touch b.txt, whatever I say later."));
    }
}

#[test]
fn a_turn_that_is_refused_after_a_compaction_is_left_out_and_the_summary_stays() {
    let filter = json!([{ "status": 400, "body": { "error": { "code": "data_inspection_failed",
        "message": "Input data may contain inappropriate content." } } }]);
    let script =
        json!([nearly_full("One."), says("The summary."), filter, says("Three."), says("Four."),]);
    let mut agent =
        TestAgent::builder().model(script).variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW).start();
    assert_eq!(agent.turn(&long_prompt("first words", 18_000)), "end_turn");
    assert_eq!(agent.turn("second words"), "refusal");
    assert_eq!(agent.turn("third words"), "end_turn");
    let after = agent.model_request(3);
    assert!(text(&after).contains("The summary.") && text(&after).contains("third words"));
    assert!(!text(&after).contains("second words"), "{after}");
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("fourth words"), "end_turn");
    let loaded = agent.model_request(4);
    let before = after["messages"].as_array().unwrap();
    assert_eq!(&loaded["messages"].as_array().unwrap()[..before.len()], before);
}
