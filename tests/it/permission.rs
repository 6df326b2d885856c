//! Permission requests for commands (R-PERM): a command runs only after it is allowed, and answers are
//! remembered for as long as the chosen option says.

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::command_lines::touch;
use turnwright_testing::questions::{ask, last_result};

use crate::agent::{TestAgent, runs, says};

#[test]
fn r_perm_3_a_late_answer_counts_and_the_agent_responds_meanwhile() {
    let mut agent = TestAgent::builder().start();
    let (id, question) = ask(&mut agent, runs(&touch("mark")));
    std::thread::sleep(std::time::Duration::from_secs(2));
    agent.sync();
    assert!(!agent.path("mark").exists());
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert!(agent.path("mark").exists());
}

#[test]
fn r_perm_5_reject_always_is_remembered_for_the_session() {
    let mut agent = TestAgent::builder().start();
    let (id, question) = ask(&mut agent, runs(&touch("mark")));
    agent.choose(&question, "reject_always");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.model().push(runs(&touch("mark"))).unwrap();
    agent.model().push(says("All right.")).unwrap();
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(cards::questions(&agent), 1);
    assert!(last_result(&agent).contains("whole session"), "{}", last_result(&agent));
    assert!(!agent.path("mark").exists());
    // Another command still asks.
    let (id, question) = ask(&mut agent, runs(&touch("other")));
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(agent.path("other").exists());
    cards::check(&agent);
}

#[test]
fn r_perm_6_an_unclear_answer_is_not_remembered() {
    let mut agent = TestAgent::builder().start();
    for answer in ["zzz", "allow_once"] {
        let (id, question) = ask(&mut agent, runs(&touch("mark")));
        agent.choose(&question, answer);
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
    assert!(agent.path("mark").exists());
}

#[test]
fn r_perm_8_immediate_answers_are_not_lost() {
    let replies: Vec<_> = (0..20)
        .map(|number| runs(&format!("echo {number} >> log")))
        .chain([says("Done.")])
        .collect();
    let mut agent = TestAgent::builder().model(json!(replies)).permission("allow_once").start();
    assert_eq!(agent.turn("count"), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("log").lines().count(), 20);
    assert_eq!(cards::questions(&agent), 20);
}
