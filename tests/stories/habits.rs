//! Habits that models and people have from other systems: paths and devices of Windows, characters written as in
//! HTML, and the slash of an input method.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Runs one more turn with one call, and returns the result of the call.
fn again(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

#[test]
#[cfg(unix)]
fn a_path_as_on_windows_means_the_file_in_the_folder() {
    let mut agent =
        TestAgent::builder().file("src/main.rs", "fn main() {}\n").permission("allow_once").start();
    let read = again(&mut agent, "read_file", &json!({ "path": "src\\main.rs" }));
    assert!(read.contains("1| fn main() {}"), "{read}");
    let edit = json!({ "path": ".\\src\\main.rs", "old_text": "{}", "new_text": "{ }" });
    again(&mut agent, "edit_file", &edit);
    assert_eq!(agent.read("src/main.rs"), "fn main() { }\n");
    let new = json!({ "path": "src\\new\\a.rs", "content": "a\n" });
    let written = again(&mut agent, "write_file", &new);
    assert!(written.starts_with("Created src/new/a.rs"), "{written}");
    let found = again(&mut agent, "find_files", &json!({ "glob": "src\\**\\*.rs" }));
    assert!(found.contains("src/main.rs\nsrc/new/a.rs"), "{found}");
    assert_eq!(std::fs::read_dir(agent.workspace()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn a_command_that_discards_output_as_on_windows_makes_no_file() {
    let mut agent = TestAgent::builder().permission("allow_once").start();
    for command in ["ls 2>nul", "ls > NUL 2>&1", "cd . && ls >./nul"] {
        let result = again(&mut agent, "exec", &json!({ "command": command }));
        assert!(result.starts_with("Nothing was run: here `nul` would be a file."), "{result}");
    }
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
#[cfg(unix)]
fn a_command_with_entities_of_html_is_shown_and_judged_as_it_is_meant() {
    let mut agent = TestAgent::builder().permission("reject_once").start();
    let coded = "touch a &amp;&amp; echo &quot;x&quot; &gt; b";
    again(&mut agent, "exec", &json!({ "command": coded }));
    let asked = agent.log.iter().find(|it| it["method"] == "session/request_permission").unwrap();
    assert_eq!(asked["params"]["toolCall"]["title"], "touch a && echo \"x\" > b");
    // Quoted text is meant as it is.
    let result = again(&mut agent, "exec", &json!({ "command": "echo '&lt;b&gt; &amp;'" }));
    assert!(result.contains("&lt;b&gt; &amp;"), "{result}");
}

#[test]
fn a_word_for_the_working_folder_in_front_of_a_path_is_left_out_and_said() {
    let builder = TestAgent::builder().file("a.py", "x = 1\n").file("src/b.py", "y = 2\n");
    let mut agent = builder.permission("allow_once").start();
    let read = again(&mut agent, "read_file", &json!({ "path": "project/a.py" }));
    assert!(read.contains("[File: a.py | Lines: 1]\n    1| x = 1\n"), "{read}");
    let note = "[project/a.py was taken for a.py: paths are relative to the working folder.]";
    assert!(read.contains(note), "{read}");
    let edit = json!({ "path": "workspace/src/b.py", "old_string": "2", "new_string": "3" });
    let edited = again(&mut agent, "edit_file", &edit);
    assert!(edited.starts_with("Applied 1 edit to src/b.py"), "{edited}");
    assert_eq!(agent.read("src/b.py"), "y = 3\n");
    // A new folder may be meant.
    again(&mut agent, "write_file", &json!({ "path": "app/a.py", "content": "z = 4\n" }));
    assert_eq!(agent.read("app/a.py"), "z = 4\n");
    assert_eq!(agent.read("a.py"), "x = 1\n");
}

#[test]
fn a_slash_of_an_input_method_and_other_letters_run_the_command() {
    let mut agent = TestAgent::builder()
        .file(".turnwright/commands/部署.md", "部署到 $1\n")
        .file(".claude/commands/My Tool.md", "Mine.\n")
        .model(json!([says("One."), says("Two."), says("Three.")]))
        .start();
    for typed in ["／help", "、help", "/HELP"] {
        assert_eq!(agent.turn(typed), "end_turn");
        assert!(agent.text().contains("* `/部署` – 部署到 $1 (project)"), "{}", agent.text());
    }
    for (number, typed, text) in
        [(0, "／部署　生产", "部署到 生产"), (1, "/my-tool", "Mine."), (2, "/MY-tool", "Mine.")]
    {
        assert_eq!(agent.turn(typed), "end_turn");
        let messages = agent.model_request(number)["messages"].to_string();
        assert!(messages.contains(text), "{typed}: {messages}");
    }
}
