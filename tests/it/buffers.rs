//! Unsaved changes in the editor: commands and searches read the disk, so their results mention files
//! whose content in the editor differs.

use serde_json::json;
use turnwright_testing::command_lines::cat;
use turnwright_testing::unsaved_buffers::{self, SaveBehavior};

use crate::agent::AgentTransport;

type BufferEditor = unsaved_buffers::BufferEditor<AgentTransport>;

#[test]
fn results_from_disk_mention_unsaved_changes_in_the_editor() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Saves).file(b"old words\n").unsaved("new words\n");
    let command = json!({ "command": cat("f") });
    assert!(
        !editor.call("exec", &command).contains("unsaved"),
        "the agent mentions unsaved changes of a file that it has not read"
    );
    editor.read();
    let note = "[unsaved changes in the editor, which";
    let result = editor.call("exec", &command);
    assert!(result.ends_with(&format!("old words\n{note} commands do not see: f]\n")), "{result}");
    let result = editor.call("grep", &json!({ "pattern": "new words" }));
    assert!(result.contains(&format!("{note} a search does not see: f]")), "{result}");
    editor = editor.file(b"saved\n");
    editor.read();
    assert!(!editor.call("exec", &command).contains("unsaved"));
}
