//! The `history` tool finds earlier tool calls of the session, commands included.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

#[test]
fn history_finds_earlier_calls_by_text_tool_and_status() {
    let builder = TestAgent::builder().file("a.txt", "1\n").file("b.txt", "2\n");
    let mut agent = builder.permission("allow_once").start();
    let mut call = |name: &str, arguments: &Value| {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent)
    };
    call("read_file", &json!({ "path": "a.txt" }));
    call("read_file", &json!({ "path": "none.txt" }));
    call("exec", &json!({ "command": "echo migration-7" }));
    let result = call("history", &json!({ "query": "migration-7" }));
    assert!(result.contains("exec") && result.contains("echo migration-7"), "{result}");
    assert!(!result.contains("a.txt"), "{result}");
    let result = call("history", &json!({ "tool": "read_file", "status": "failed" }));
    assert!(result.contains("none.txt") && !result.contains("\"a.txt"), "{result}");
    let result = call("history", &json!({ "tool": "read_file", "limit": 1 }));
    assert!(
        result.contains("none.txt") && !result.contains("\"a.txt"),
        "the newest call is not the first: {result}"
    );
}
