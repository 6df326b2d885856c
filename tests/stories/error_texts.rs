//! The results that the model receives when something has gone wrong. Each names the cause, and how
//! the model can continue.

use std::fs;

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// Runs one more turn with one call, and returns the result that the model received.
fn result_of(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

fn edit(old: &str) -> Value {
    json!({ "path": "src/a.rs", "edits": [{ "old_text": old, "new_text": "new" }] })
}

const SOURCE: &str = "fn a() {\n    return x;\n}\n\nfn b() {\n    return y;\n}\n\nfn c() {\n    \
                      return x;\n}\n";

fn source() -> TestAgentBuilder {
    TestAgent::builder().file("src/a.rs", SOURCE)
}

#[test]
fn a_file_changed_by_somebody_else_is_reported_with_the_changed_lines() {
    let mut agent = source().permission("allow_once").start();
    result_of(&mut agent, "read_file", &json!({ "path": "src/a.rs" }));
    fs::write(agent.path("src/a.rs"), SOURCE.replace("return y", "return 7")).unwrap();
    let expected = "src/a.rs changed on disk since you read it (changed lines: 6). Nothing was \
                    written. Read it again.";
    let edited = result_of(&mut agent, "edit_file", &edit("    return y;\n"));
    assert!(edited.starts_with(expected), "{edited}");
    let written = json!({ "path": "src/a.rs", "content": "fn new() {}\n" });
    assert_eq!(result_of(&mut agent, "write_file", &written), expected);
    assert!(agent.read("src/a.rs").contains("return 7"));
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn the_model_is_told_not_to_work_around_a_rejected_call() {
    let replies = json!([calls("exec", &json!({ "command": "touch x" })), says("Then not.")]);
    let mut agent = source().model(replies).permission("reject_once").start();
    let result = cards::turn(&mut agent);
    assert!(result.starts_with("The user rejected this call. Do not repeat it or work around it"));
    assert!(result.contains("choose another way"), "{result}");
    assert!(!agent.path("x").exists());
}

#[test]
fn the_model_is_told_how_to_send_less_after_a_call_was_cut_off() {
    let cut = json!([call("write_file", &json!("{\"path\": \"x\", \"content\": \"half")),
        { "finish": "length" }]);
    let mut agent = source().model(json!([cut, says("Then less.")])).start();
    let result = cards::turn(&mut agent);
    assert!(result.contains("cut off at the output limit"), "{result}");
    assert!(result.contains("append"), "the result does not say how to continue: {result}");
    assert!(!agent.path("x").exists());
}
