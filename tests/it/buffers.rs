//! An editor with unsaved changes beside a command, which sees the disk.

use serde_json::json;
use turnwright_testing::unsaved_buffers::{self, SaveBehavior};

use crate::agent::AgentTransport;

type BufferEditor = unsaved_buffers::BufferEditor<AgentTransport>;

#[test]
fn who_sees_the_disk_says_what_the_editor_has_not_saved() {
    let mut editor =
        BufferEditor::new(SaveBehavior::Saves).file(b"old words\n").unsaved("new words\n");
    let command = json!({ "command": "cat f" });
    assert!(!editor.call("exec", &command).contains("unsaved"), "nobody has looked yet");
    editor.read();
    let note = "[unsaved changes in the editor, which";
    let told = editor.call("exec", &command);
    assert!(told.ends_with(&format!("old words\n{note} commands do not see: f]\n")), "{told}");
    let told = editor.call("grep", &json!({ "pattern": "new words" }));
    assert!(told.contains(&format!("{note} a search does not see: f]")), "{told}");
    editor = editor.file(b"saved\n");
    editor.read();
    assert!(!editor.call("exec", &command).contains("unsaved"));
}
