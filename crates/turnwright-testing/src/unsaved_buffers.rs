//! An editor with unsaved changes: it shows its buffers to the agent and handles the texts that the
//! agent writes.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::replies::{calls, says};
use crate::{TestAgent, Transport, cards};

/// What an editor does with a text that the agent writes.
#[derive(Clone, Copy, PartialEq)]
pub enum SaveBehavior {
    /// Keeps the text in its buffer.
    Keeps,
    /// Saves the text with the line ends of the file.
    Saves,
    /// Saves the bytes unchanged, but shows only line feeds.
    SavesRaw,
    /// Formats the text: removes blanks at line ends.
    Formats,
    /// Shows the lines without the end of the last one, and saves the bytes unchanged.
    Joins,
    /// Saves each line with an end of its own, also an empty one behind the last line end.
    EndsLines,
    /// Has not opened the file, and answers with an error.
    FileNotOpen,
}

/// An editor with unsaved changes, and its agent.
pub struct BufferEditor<T: Transport> {
    pub agent: TestAgent<T>,
    pub behavior: SaveBehavior,
    /// The unsaved texts by path.
    pub buffers: HashMap<PathBuf, String>,
    /// The file requests of the agent since the last tool call: the method, and the text of a
    /// write.
    pub file_requests: Vec<(String, Option<String>)>,
}

impl<T: Transport> BufferEditor<T> {
    /// Creates an editor that shows and writes files.
    pub fn new(behavior: SaveBehavior) -> BufferEditor<T> {
        BufferEditor::with_capability(behavior, true)
    }

    /// Creates an editor that shows files, and also writes them if `writes` is true.
    pub fn with_capability(behavior: SaveBehavior, writes: bool) -> BufferEditor<T> {
        let fs = json!({ "readTextFile": true, "writeTextFile": writes });
        let builder = TestAgent::builder().capabilities(json!({ "fs": fs }));
        let agent = builder.permission("allow_once").start();
        BufferEditor { agent, behavior, buffers: HashMap::new(), file_requests: Vec::new() }
    }

    /// Writes the file `f`, and discards the unsaved texts.
    #[must_use]
    pub fn file(mut self, bytes: &[u8]) -> BufferEditor<T> {
        fs::write(self.agent.path("f"), bytes).unwrap();
        self.buffers.clear();
        self
    }

    /// Sets an unsaved text for the file `f`.
    #[must_use]
    pub fn unsaved(mut self, text: &str) -> BufferEditor<T> {
        self.buffers.insert(self.agent.path("f"), text.to_owned());
        self
    }

    /// Runs a turn with one call, and returns the result that the model received.
    pub fn call(&mut self, name: &str, arguments: &Value) -> String {
        self.agent.model().push(calls(name, arguments)).unwrap();
        self.agent.model().push(says("Done.")).unwrap();
        self.prompt("go");
        cards::check(&self.agent);
        let last = self.agent.model().requests().len() - 1;
        cards::results(&self.agent, last).pop().unwrap()
    }

    /// Runs a turn with a prompt.
    pub fn prompt(&mut self, text: &str) {
        self.file_requests.clear();
        let id = self.agent.prompt(text);
        loop {
            let is_file_request =
                |it: &Value| it["method"].as_str().is_some_and(|it| it.starts_with("fs/"));
            let is_end = |it: &Value| it.get("method").is_none() && it["id"] == id;
            let message =
                self.agent.wait_for("a file request or the answer to the prompt", |message| {
                    is_file_request(message) || is_end(message)
                });
            if is_end(&message) {
                break;
            }
            if self.behavior == SaveBehavior::FileNotOpen {
                self.file_requests.push((message["method"].as_str().unwrap().to_owned(), None));
                self.agent.refuse(&message, -32002, "Resource not found");
                continue;
            }
            let answer = self.answer(&message);
            self.agent.respond(&message, &answer);
        }
    }

    /// Runs a turn with a call of `read_file`.
    pub fn read(&mut self) -> String {
        self.call("read_file", &json!({ "path": "f" }))
    }

    /// Runs a turn with a call of `write_file`.
    pub fn write(&mut self, content: &str) -> String {
        self.call("write_file", &json!({ "path": "f", "content": content }))
    }

    /// Runs a turn with a call of `edit_file`.
    pub fn edit(&mut self, old: &str, new: &str) -> String {
        let edits = json!([{ "old_text": old, "new_text": new }]);
        self.call("edit_file", &json!({ "path": "f", "edits": edits }))
    }

    /// Handles a file request of the agent, and returns the answer.
    fn answer(&mut self, message: &Value) -> Value {
        let path = PathBuf::from(message["params"]["path"].as_str().unwrap());
        let method = message["method"].as_str().unwrap().to_owned();
        let content = message["params"]["content"].as_str().map(str::to_owned);
        self.file_requests.push((method, content.clone()));
        let Some(content) = content else {
            let saved = || fs::read(&path).map(|it| String::from_utf8_lossy(&it).into_owned());
            let text = self.buffers.get(&path).cloned().or_else(|| saved().ok());
            let text = text.unwrap_or_default().replace("\r\n", "\n");
            let joined = text.strip_suffix('\n').filter(|_| self.behavior == SaveBehavior::Joins);
            return json!({ "content": joined.unwrap_or(&text) });
        };
        if let Some(buffer) = self.buffers.get_mut(&path) {
            buffer.clone_from(&content);
        }
        match self.behavior {
            SaveBehavior::Keeps => drop(self.buffers.insert(path, content)),
            SaveBehavior::SavesRaw | SaveBehavior::Joins => fs::write(&path, content).unwrap(),
            SaveBehavior::EndsLines => {
                let has_crlf = fs::read(&path).is_ok_and(|bytes| bytes.contains(&b'\r'));
                let end = if has_crlf { "\r\n" } else { "\n" };
                let lines =
                    content.split('\n').map(|line| line.trim_end_matches('\r').to_owned() + end);
                fs::write(&path, lines.collect::<String>()).unwrap();
            }
            SaveBehavior::Saves => {
                let has_crlf = fs::read(&path).unwrap().contains(&b'\r');
                let text = content.replace("\r\n", "\n");
                let text = if has_crlf { text.replace('\n', "\r\n") } else { text };
                fs::write(&path, text).unwrap();
            }
            SaveBehavior::Formats => {
                let lines = content.lines().map(|it| format!("{}\n", it.trim_end()));
                fs::write(&path, lines.collect::<String>()).unwrap();
            }
            SaveBehavior::FileNotOpen => {}
        }
        json!(null)
    }

    /// Returns the bytes of the file `f` on disk.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.agent.path("f")).unwrap()
    }

    /// Returns the texts that the agent has written since the last tool call.
    pub fn writes(&self) -> Vec<&str> {
        self.file_requests.iter().filter_map(|it| it.1.as_deref()).collect()
    }
}
