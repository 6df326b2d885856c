//! Escape sequences and invisible characters from the model, files and commands do not reach the client
//! in titles or texts, where a terminal would obey them.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, says};

/// A text that clears the screen, sets the title and reverses the direction of writing.
const EVIL: &str = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}1m\u{202e}gpj.\u{2066}b\u{200b}\u{7f}";

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("text").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|it| texts(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| texts(it, found)),
        _ => {}
    }
}

#[test]
fn titles_and_texts_contain_no_control_characters() {
    let mut agent = TestAgent::builder()
        .file("evil.txt", &format!("found {EVIL}\n"))
        .model(json!([
            [
                { "thought": EVIL },
                { "text": EVIL },
                call("exec", &json!({ "command": format!("cat evil.txt; : {EVIL}") })),
                call("read_file", &json!({ "path": EVIL })),
                call("write_file", &json!({ "path": EVIL, "content": "x" })),
                call("edit_file", &json!({ "path": format!("{EVIL}x"), "edits": [] })),
                call("list_dir", &json!({ "path": EVIL })),
                call("find_files", &json!({ "glob": EVIL })),
                call("grep", &json!({ "pattern": EVIL })),
                call("grep", &json!({ "pattern": "found" })),
                call("move_path", &json!({ "from": "evil.txt", "to": format!("{EVIL}/y") })),
                call("delete_path", &json!({ "path": format!("{EVIL}/y") })),
                call("web_fetch", &json!({ "url": format!("http://{EVIL}/") })),
                call("memory", &json!({ "action": "read", "name": EVIL })),
                call("skill", &json!({ "name": EVIL })),
                call("apply_patch", &json!({ "patch": format!("*** Begin Patch\n*** Delete File: \
                      {EVIL}\n*** End Patch") })),
                call("plan", &json!({ "entries": [{ "content": EVIL, "status": "pending" }] })),
                call(EVIL, &json!({}))
            ],
            says("Done."),
            // The step of the plan is open, so the model is asked once more.
            says("Done.")
        ]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let mut titles = 0;
    for message in agent.log.iter().filter(|it| it["method"].is_string()) {
        let params = &message["params"];
        for part in [&params["update"], &params["toolCall"]] {
            let Some(title) = part["title"].as_str() else { continue };
            titles += 1;
            let is_hidden = |character: char| {
                character.is_control() && character != '\n'
                    || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}')
            };
            assert!(!title.contains(is_hidden), "{title:?}");
        }
        let mut found = Vec::new();
        texts(params, &mut found);
        for text in found {
            let is_escape = |it: char| it.is_control() && it != '\n' && it != '\t';
            assert!(!text.contains(is_escape), "{text:?} in {message}");
        }
    }
    // Each call but the plan has one. Questions have more, except on Windows, where no file has such a name.
    assert!(titles > if cfg!(windows) { 17 } else { 20 }, "{titles}");
}
