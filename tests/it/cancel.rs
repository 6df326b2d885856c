//! Cancels at many moments of a turn that runs tools and a command (R-CANCEL).

use std::time::{Duration, Instant};

use serde_json::json;
use turnwright_testing::cancellation::{
    NEXT, PROMPTLY, assert_cards_are_finished, assert_silence_after, assert_valid, next_reply,
};
use turnwright_testing::command_lines::then;

use crate::agent::TestAgent;

#[test]
fn r_cancel_7_cards_and_history_are_complete_after_cancels_at_thirty_moments() {
    // The timing varies between runs, so constant delays hit different moments, too.
    const DELAYS: [u64; 30] = [
        0, 1, 2, 3, 5, 7, 9, 12, 15, 18, 21, 25, 29, 34, 39, 45, 51, 58, 66, 74, 83, 93, 104, 116,
        129, 143, 158, 174, 191, 209,
    ];
    let work = json!({ "when": "work", "steps": [
        { "thought": "Hm. ", "chunks": 2, "every_ms": 2 },
        { "text": "I look at the file. ", "chunks": 10, "every_ms": 2 },
        { "call": { "name": "read_file", "arguments": { "path": "a.txt" }, "pieces": 3, "every_ms": 2 } },
        { "call": { "name": "read_file", "arguments": { "path": "b.txt" } } },
        { "call": { "name": "exec", "arguments": { "command": then("echo begun", "echo over") } } },
    ] });
    let mut agent = TestAgent::builder()
        .file("a.txt", "alpha\n")
        .model(json!([next_reply(), work]))
        .permission("allow_once")
        .start();
    // On a slow machine the turn comes to its command later.
    let later = (8..).map(|it| 1 << it);
    let mut has_run = false;
    for (round, delay) in DELAYS.into_iter().chain(later).enumerate() {
        if round >= DELAYS.len() && has_run {
            break;
        }
        // The model calls its tools over and over, so the turn does not end by itself.
        let id = agent.prompt(&format!("work {round}"));
        let moment = Instant::now() + Duration::from_millis(delay);
        if delay > 0 {
            agent.wait_for("the moment", |_| Instant::now() >= moment);
        }
        agent.cancel();
        let start = Instant::now();
        assert_eq!(agent.stop_reason(&id), "cancelled", "round {round}");
        assert!(start.elapsed() < PROMPTLY, "round {round}: {:?}", start.elapsed());
        agent.settle(Duration::from_millis(30));
        assert_cards_are_finished(&agent, &id);
        assert_silence_after(&agent, &id);
        assert_eq!(agent.turn(NEXT), "end_turn", "round {round}");
        assert_valid(&agent.model().requests().last().unwrap().body);
        let reached = |kind: &str| agent.updates().iter().any(|it| it["kind"] == kind);
        has_run = reached("read") && reached("execute");
        assert!(delay < 60_000, "all cancels came too early");
    }
}
