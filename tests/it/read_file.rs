//! `read_file` reads parts of a huge file without loading all of it into memory.

use std::fs;

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::process_report::peak_memory;

use crate::agent::TestAgent;

#[test]
fn both_ends_and_the_middle_of_a_huge_log_are_read_in_little_memory() {
    let mut agent = TestAgent::builder().start();
    let mut log = std::io::BufWriter::new(fs::File::create(agent.path("log")).unwrap());
    let line = "x".repeat(989);
    for number in 0..200_000 {
        std::io::Write::write_all(&mut log, format!("{number:09} {line}\n").as_bytes()).unwrap();
    }
    drop(log);
    let all = [
        json!({ "path": "log", "end_line": 2, "show_line_numbers": false }),
        json!({ "path": "log", "start_line": 150_000, "end_line": 150_001 }),
        json!({ "path": "log", "start_line": -2 }),
        json!({ "path": "log", "start_line": 300_000 }),
        json!({ "path": "log" }),
    ];
    let results = cards::run_each(&mut agent, "read_file", &all);
    let header = "[File: log | Lines: at least ";
    assert!(results[0].starts_with(header) && results[0].contains("\n000000001 xx"));
    assert!(results[1].contains("\n150000| 000149999 xx"), "{}", results[1]);
    assert!(results[2].contains("\n   -2| 000199998 xx"), "{}", results[2]);
    assert!(results[2].contains("\n   -1| 000199999 xx"), "{}", results[2]);
    let expected =
        "[File: log | Lines: 200000]\n[line 300000 is after the end: there are 200000 lines]\n";
    assert_eq!(results[3], expected);
    assert!(results[4].contains("continue with start_line="), "{}", results[4].len());
    let peak = peak_memory(agent.pid());
    assert!(peak < 100 << 20, "{peak} bytes");
}
