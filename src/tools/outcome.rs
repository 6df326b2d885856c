//! The answers of tools: for the model and for the user, who sees a part on the card and in the raw output; and
//! their form as JSON, in which they can be kept and given again.

use serde::Deserialize;
use serde_json::{Value, json};

use turnwright_types::effect::{CallContent, CallView, FileFate, ToolKind, fenced};
use turnwright_types::message::Media;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// True if the call did what was asked.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// Replaces the view of the call, now that its result is known.
    pub view: Option<CallView>,
    /// The content of the card.
    pub content: Vec<CallContent>,
    /// The result as a few JSON fields, for clients that show nothing else. [`raw_output`] adds the
    /// text unless a field holds the result.
    pub raw: Value,
    /// Pictures, for models that accept them.
    pub images: Vec<Media>,
}

/// The end of a call that ran: the outcome, or why it failed. The user reads the first sentence of a reason.
pub(crate) type ToolAnswer = Result<ToolOutcome, ToolRefusal>;

impl ToolOutcome {
    /// A call that did what was asked.
    pub(crate) fn done(
        text: impl Into<String>,
        content: Vec<CallContent>,
        raw: Value,
    ) -> ToolOutcome {
        ToolOutcome { ok: true, text: text.into(), view: None, content, raw, images: Vec::new() }
    }

    /// The same, with a card that shows the text for the model.
    pub(super) fn done_as_shown(text: String, raw: Value) -> ToolOutcome {
        let content = vec![CallContent::Text(text.clone())];
        ToolOutcome::done(text, content, raw)
    }

    /// A call that has failed or was not executed. Of a text for the model the user reads the first sentence.
    pub fn failed(reason: impl Into<ToolRefusal>) -> ToolOutcome {
        let ToolRefusal { for_model, for_user } = reason.into();
        ToolOutcome {
            ok: false,
            view: None,
            content: vec![CallContent::Text(for_user.clone())],
            raw: json!({ "message": for_user }),
            text: for_model,
            images: Vec::new(),
        }
    }

    /// Adds a line for the model.
    pub(crate) fn add_line(&mut self, line: &str) {
        self.text.push_str(if self.text.ends_with('\n') { "" } else { "\n" });
        self.text.push_str(line);
    }

    /// Adds a line for the model and the user.
    pub fn append_note(&mut self, note: String) {
        self.add_line(&note);
        self.content.push(CallContent::Text(note));
    }
}

pub(crate) fn outcome_json(outcome: &ToolOutcome) -> Value {
    json!({
        "ok": outcome.ok,
        "text": outcome.text,
        "view": outcome.view,
        "content": contents_json(&outcome.content),
        "raw": outcome.raw,
        "images": outcome.images,
    })
}

pub(crate) fn read_outcome(value: &Value) -> ToolOutcome {
    ToolOutcome {
        ok: value["ok"] == true,
        text: text(&value["text"]),
        view: Some(&value["view"]).filter(|view| view.is_object()).map(read_view),
        content: read_contents(&value["content"]),
        raw: value["raw"].clone(),
        images: Vec::deserialize(&value["images"]).unwrap_or_default(),
    }
}

pub(crate) fn preview_json(preview: &Result<Vec<CallContent>, ToolRefusal>) -> Value {
    match preview {
        Ok(content) => json!({ "content": contents_json(content) }),
        Err(ToolRefusal { for_model, for_user }) => {
            json!({ "refusal": { "for_model": for_model, "for_user": for_user } })
        }
    }
}

pub(crate) fn read_preview(value: &Value) -> Result<Vec<CallContent>, ToolRefusal> {
    match value.get("refusal") {
        Some(refusal) => {
            Err(ToolRefusal::new(text(&refusal["for_model"]), text(&refusal["for_user"])))
        }
        None => Ok(read_contents(&value["content"])),
    }
}

fn contents_json(contents: &[CallContent]) -> Value {
    contents.iter().map(content_json).collect()
}

fn content_json(content: &CallContent) -> Value {
    match content {
        CallContent::Text(_) | CallContent::Terminal(_) => json!(content),
        CallContent::Image(media) => json!(media),
        CallContent::Diff { path, old, new, fate } => {
            let mut diff = json!({ "path": path, "old": old, "new": new });
            match fate {
                FileFate::Kept => {}
                FileFate::Deleted => diff["deleted"] = true.into(),
                FileFate::MovedFrom(before) => diff["moved_from"] = json!(before),
            }
            diff
        }
    }
}

fn read_contents(value: &Value) -> Vec<CallContent> {
    value.as_array().into_iter().flatten().map(read_content).collect()
}

fn read_content(value: &Value) -> CallContent {
    if let Ok(content) = CallContent::deserialize(value) {
        return content;
    }
    if let Ok(media) = Media::deserialize(value) {
        return CallContent::Image(media);
    }
    let old = value["old"].as_str().map(str::to_owned);
    let fate = match (&value["deleted"], value["moved_from"].as_str()) {
        (Value::Bool(true), _) => FileFate::Deleted,
        (_, Some(before)) => FileFate::MovedFrom(before.into()),
        (_, None) => FileFate::Kept,
    };
    let path = text(&value["path"]).into();
    CallContent::Diff { path, old, new: text(&value["new"]), fate }
}

pub(crate) fn read_view(value: &Value) -> CallView {
    CallView::deserialize(value).unwrap_or_else(|_| CallView::new("", ToolKind::Other))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The most bytes of a result that a card shows.
const MAX_BYTES: usize = 16 * 1024;
/// The fields of a raw output that hold the result.
const RESULT_FIELDS: [&str; 7] =
    ["answer", "content", "error", "message", "mode", "output", "result"];

/// The beginning of a result, cut at the end of a line.
pub(super) fn beginning(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let start = text::prefix(text, MAX_BYTES);
    let lines = text::whole_lines(start);
    let (shown, line_end) = if lines.is_empty() { (start, "\n") } else { (lines, "") };
    format!("{shown}{line_end}[… {} more bytes]\n", text.len() - shown.len())
}

/// The beginning of a result as the content of a card.
pub(super) fn card_content(text: &str) -> Vec<CallContent> {
    vec![CallContent::Text(fenced(&beginning(text)))]
}

/// The raw output of a call. Clients that show nothing else need the result in it, too.
pub(crate) fn raw_output(outcome: &ToolOutcome) -> Value {
    let mut raw = outcome.raw.clone();
    if let Value::Object(fields) = &mut raw
        && !RESULT_FIELDS.iter().any(|field| fields.contains_key(*field))
    {
        fields.insert("result".to_owned(), beginning(&outcome.text).into());
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::Location;
    use turnwright_types::ids::TerminalId;

    #[test]
    fn what_is_written_is_read_again() {
        let media = Media { mime: "image/png".to_owned(), data: "AA==".to_owned() };
        let diff = |fate| {
            let path = "/w/a".into();
            let new = "n".to_owned();
            CallContent::Diff { path, old: None, new, fate }
        };
        let outcome = ToolOutcome {
            ok: true,
            text: "done".to_owned(),
            view: Some(CallView {
                title: "Edit a".to_owned(),
                kind: ToolKind::Edit,
                locations: vec![Location { path: "/w/a".into(), line: Some(3) }],
            }),
            content: vec![
                CallContent::Text("t".to_owned()),
                diff(FileFate::Kept),
                diff(FileFate::Deleted),
                diff(FileFate::MovedFrom("/w/b".into())),
                CallContent::Image(media.clone()),
                CallContent::Terminal(TerminalId::from("t1")),
            ],
            raw: json!({ "exitCode": 0 }),
            images: vec![media],
        };
        assert_eq!(read_outcome(&outcome_json(&outcome)), outcome);
        let refusal = Err(ToolRefusal::new("model", "user"));
        assert_eq!(read_preview(&preview_json(&refusal)), refusal);
        let preview = Ok(outcome.content);
        assert_eq!(read_preview(&preview_json(&preview)), preview);
    }

    #[test]
    fn a_long_result_is_cut_at_the_end_of_a_line_and_says_so() {
        assert_eq!(beginning("a\nb"), "a\nb");
        let long = beginning(&"0123456789abcde\n".repeat(2_000));
        assert!(long.ends_with("0123456789abcde\n[… 15616 more bytes]\n"), "{long}");
        let line = beginning(&"é".repeat(10_000));
        assert!(line.ends_with("é\n[… 3616 more bytes]\n") && line.len() < MAX_BYTES + 30);
    }
}
