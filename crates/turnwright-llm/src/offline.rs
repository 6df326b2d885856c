//! The built-in model: compiled in, deterministic, without network. It is not a language model; it
//! understands a few plain requests and drives the real tools through real turns.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    Delta, DeltaBatch, EndReason, LlmError, Model, Reply, ReplyCall, ReplyStream, Request,
};
use turnwright_types::message::{
    Arguments, Message, PromptPart, ProviderState, ToolMessage, UserMessage,
};
use turnwright_types::text;

/// The delay between two words, which makes streaming visible.
const WORD_DELAY: Duration = Duration::from_millis(8);

/// The built-in model. It has no settings.
#[derive(Debug, Default)]
pub struct OfflineModel;

impl Model for OfflineModel {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn open_stream<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async { Ok(Box::new(scripted_reply(request)) as Box<dyn ReplyStream>) })
    }
}

/// The words still to be sent, and the call that ends the reply.
struct ScriptedReply {
    words: VecDeque<String>,
    call: Option<(&'static str, Value)>,
}

impl ReplyStream for ScriptedReply {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async move {
            if !self.words.is_empty() {
                tokio::time::sleep(WORD_DELAY).await;
                if let Some(word) = self.words.pop_front() {
                    batch.push_text(&word);
                }
                return Ok(None);
            }
            let calls = self.call.take().map(|(name, arguments)| {
                batch.deltas.push(Delta::CallNamed { slot: 0, name: name.to_owned() });
                ReplyCall {
                    slot: 0,
                    provider_id: String::new(),
                    name: name.to_owned(),
                    arguments: Arguments::Object(arguments),
                    extra: None,
                }
            });
            Ok(Some(Reply {
                end: EndReason::Complete,
                calls: calls.into_iter().collect(),
                has_lost_calls: false,
                usage: None,
                cost: None,
                served: String::new(),
                provider_state: ProviderState::default(),
            }))
        })
    }
}

/// The reply to a request that the user has not typed, which asks for a summary, a proof or more work.
const NOT_TYPED: &str = "I am no language model: I can neither prove my work nor summarise it.";

/// Depends on the conversation alone: the same conversation gets the same reply.
fn scripted_reply(request: &Request) -> ScriptedReply {
    let mut result = None;
    let mut prompt = None;
    for message in request.messages.iter().rev() {
        match message.as_ref() {
            Message::User(user) => {
                prompt = Some(user_text(user));
                break;
            }
            Message::Tool(tool) => result = result.or(Some(tool)),
            Message::Assistant(_) => {}
        }
    }
    let intent = Intent::parse(prompt.as_deref().unwrap_or_default());
    let call = intent.call().filter(|_| result.is_none());
    let text = match result {
        _ if prompt.as_deref() == Some("") => NOT_TYPED.to_owned(),
        Some(result) => intent.report(result),
        None if call.is_some() => intent.announcement(),
        None => HELP.to_owned(),
    };
    ScriptedReply { words: split_words(&text), call }
}

/// The text that the user typed.
fn user_text(user: &UserMessage) -> String {
    let texts = user.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Splits after each space and, for scripts without spaces, after every few characters.
fn split_words(text: &str) -> VecDeque<String> {
    let mut words = VecDeque::new();
    let mut word = String::new();
    for char in text.chars() {
        word.push(char);
        if char.is_whitespace() || (!char.is_ascii() && word.chars().count() >= 3) {
            words.push_back(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push_back(word);
    }
    words
}

/// The text of a result without its header and line numbers, at most `limit` lines.
fn result_lines(result: &ToolMessage, limit: usize) -> Vec<&str> {
    result
        .text
        .lines()
        .filter(|line| !line.starts_with("[File: "))
        .map(without_line_number)
        .filter(|line| !line.trim().is_empty())
        .take(limit)
        .collect()
}

fn without_line_number(line: &str) -> &str {
    match line.split_once("| ") {
        Some((number, rest)) if number.trim().parse::<u64>().is_ok() => rest,
        _ => line,
    }
}

const HELP: &str = "I am the offline model that is built into turnwright. I am not a \
language model: I understand only a few plain requests, such as `read README.md`, `list src`, \
`search for TODO`, `find *.rs`, `write notes.txt: hello`, \
`replace hello with goodbye in notes.txt`, `fetch https://example.org`, `run ls -la` and `plan: first, second`. To talk to \
a real model, set OPENAI_API_KEY (for another provider OPENAI_BASE_URL too, and \
TURNWRIGHT_MODEL), or run `turnwright login`, and start the agent again.";

/// The user's presumed intent. Plain requests in English and Chinese become tool calls, and their results a sentence or
/// two.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    Read { path: String },
    List { path: String },
    Search { what: String },
    Find { glob: String },
    Write { path: String, content: String },
    Replace { path: String, old: String, new: String },
    Fetch { url: String },
    Run { command: String },
    Plan { steps: Vec<String> },
    Unclear,
}

/// The openings of each request, longest first where one is a prefix of another.
const READ: &[&str] =
    &["read ", "show ", "open ", "cat ", "读取", "阅读", "读一下", "读", "查看", "打开"];
const LIST: &[&str] = &["list ", "ls ", "列出", "列一下"];
const SEARCH: &[&str] = &["search for ", "search ", "grep ", "搜索", "搜一下"];
const FIND: &[&str] = &["find files ", "find ", "查找文件", "查找"];
const REPLACE: &[&str] = &["replace ", "替换"];
const FETCH: &[&str] = &["fetch ", "抓取"];
const WRITE: &[&str] = &["write ", "create ", "写入", "写", "创建"];
const RUN: &[&str] = &["run ", "execute ", "运行", "执行"];
const PLAN: &[&str] = &["plan:", "plan ", "计划：", "计划:", "计划", "规划"];

impl Intent {
    fn parse(prompt: &str) -> Intent {
        let prompt = prompt.trim();
        let first_line = text::first_line(prompt).trim();
        let line = first_line
            .trim_start_matches("please ")
            .trim_start_matches("Please ")
            .trim_start_matches('请');
        if let Some(rest) = strip_opening(line, READ) {
            return Intent::Read { path: first_word(rest, &["the file ", "文件"]) };
        }
        if line.eq_ignore_ascii_case("list") || line.eq_ignore_ascii_case("ls") {
            return Intent::List { path: ".".to_owned() };
        }
        if let Some(rest) = strip_opening(line, LIST) {
            return Intent::List { path: folder_to_list(rest) };
        }
        if let Some(rest) = strip_opening(line, SEARCH) {
            return Intent::Search { what: unquote(rest).to_owned() };
        }
        if let Some(rest) = strip_opening(line, FIND) {
            return Intent::find(unquote(rest));
        }
        if let Some(replace) = strip_opening(line, REPLACE).and_then(Intent::replace) {
            return replace;
        }
        if let Some(rest) = strip_opening(line, FETCH) {
            return Intent::Fetch { url: first_word(rest, &["the page "]) };
        }
        if strip_opening(line, WRITE).is_some() {
            // The content may span several lines, so the whole prompt is used.
            let whole = strip_opening(prompt, WRITE).unwrap_or_default();
            if let Some((path, content)) = whole.split_once([':', '：']) {
                let path = first_word(path, &["the file ", "to ", "文件"]);
                let content = content.strip_prefix([' ', '\n']).unwrap_or(content);
                return Intent::Write { path, content: format!("{}\n", content.trim_end()) };
            }
        }
        if let Some(rest) = strip_opening(line, RUN) {
            return Intent::Run { command: unquote(rest).to_owned() };
        }
        if let Some(rest) = strip_opening(line, PLAN) {
            let steps: Vec<String> = rest
                .split([',', ';', '，', '；', '、'])
                .map(|step| step.trim().to_owned())
                .filter(|step| !step.is_empty() && step != "…")
                .collect();
            if !steps.is_empty() {
                return Intent::Plan { steps };
            }
        }
        Intent::Unclear
    }

    /// A word with a wildcard or a path separator is a file name; anything else is searched for in
    /// files.
    fn find(what: &str) -> Intent {
        let is_name = !what.contains(' ') && what.contains(['*', '?', '.', '/']);
        if is_name {
            Intent::Find { glob: what.to_owned() }
        } else {
            Intent::Search { what: what.to_owned() }
        }
    }

    /// Parses `A with B in FILE`.
    fn replace(rest: &str) -> Option<Intent> {
        let (change, path) = rest.rsplit_once(" in ")?;
        let (old, new) = change.split_once(" with ")?;
        let path = first_word(path, &["the file "]);
        Some(Intent::Replace { path, old: unquote(old).to_owned(), new: unquote(new).to_owned() })
    }

    fn call(&self) -> Option<(&'static str, Value)> {
        match self {
            Intent::Read { path } => Some(("read_file", json!({ "path": path }))),
            Intent::List { path } => Some(("list_dir", json!({ "path": path }))),
            Intent::Search { what } => Some(("grep", json!({ "pattern": what, "literal": true }))),
            Intent::Find { glob } => Some(("find_files", json!({ "glob": glob }))),
            Intent::Replace { path, old, new } => {
                let arguments = json!({ "path": path, "old_string": old, "new_string": new });
                Some(("edit_file", arguments))
            }
            Intent::Fetch { url } => Some(("web_fetch", json!({ "url": url }))),
            Intent::Write { path, content } => {
                Some(("write_file", json!({ "path": path, "content": content })))
            }
            Intent::Run { command } => Some(("exec", json!({ "command": command }))),
            Intent::Plan { steps } => {
                let entries: Vec<_> = steps
                    .iter()
                    .enumerate()
                    .map(|(position, step)| {
                        let status = if position == 0 { "in_progress" } else { "pending" };
                        json!({ "content": step, "status": status })
                    })
                    .collect();
                Some(("plan", json!({ "entries": entries })))
            }
            Intent::Unclear => None,
        }
    }

    fn announcement(&self) -> String {
        match self {
            Intent::Read { path } => format!("I will read `{path}`. "),
            Intent::List { path } => format!("I will list `{path}`. "),
            Intent::Search { what } => format!("I will search for `{what}`. "),
            Intent::Find { glob } => format!("I will look for files like `{glob}`. "),
            Intent::Replace { path, .. } => format!("I will edit `{path}`. "),
            Intent::Fetch { url } => format!("I will fetch {url}. "),
            Intent::Write { path, .. } => format!("I will write `{path}`. "),
            Intent::Run { command } => format!("I will run `{command}`. "),
            Intent::Plan { .. } => "Here is the plan. ".to_owned(),
            Intent::Unclear => String::new(),
        }
    }

    fn report(&self, result: &ToolMessage) -> String {
        if !result.ok {
            return format!("That did not work: {}", result.text.trim());
        }
        match self {
            Intent::Read { path } => {
                let body = result_lines(result, 400);
                let total = result
                    .text
                    .lines()
                    .next()
                    .and_then(|line| line.rsplit_once("Lines: "))
                    .and_then(|(_, rest)| rest.strip_suffix(']'))
                    .unwrap_or("some");
                let unit = if total == "1" { "line" } else { "lines" };
                format!(
                    "`{path}` has {total} {unit}. I am no language model and cannot judge it, but \
                     this is how it begins:\n\n{}",
                    quote(&body)
                )
            }
            Intent::List { path } => {
                format!("This is in `{path}`:\n\n```\n{}\n```", result_lines(result, 40).join("\n"))
            }
            Intent::Search { .. }
            | Intent::Find { .. }
            | Intent::Fetch { .. }
            | Intent::Run { .. } => {
                format!("Done. The output:\n\n```\n{}\n```", result_lines(result, 40).join("\n"))
            }
            Intent::Write { path, .. } | Intent::Replace { path, .. } => {
                format!("`{path}` is written.")
            }
            Intent::Plan { steps } => format!("It has {} steps.", steps.len()),
            Intent::Unclear => HELP.to_owned(),
        }
    }
}

/// The first heading and the paragraph below it, as a Markdown quotation.
fn quote(lines: &[&str]) -> String {
    let heading = lines.iter().find(|line| line.starts_with('#')).copied();
    let prose = lines.iter().filter(|line| !line.starts_with(['#', '[', '!', '<', '`', '|', '-']));
    let mut chosen: Vec<_> = heading.into_iter().chain(prose.take(4).copied()).collect();
    if chosen.is_empty() {
        chosen.extend(lines.iter().take(5).copied());
    }
    chosen.iter().flat_map(|line| ["> ", line, "\n"]).collect()
}

fn strip_opening<'a>(line: &'a str, openings: &[&str]) -> Option<&'a str> {
    openings.iter().find_map(|opening| text::strip_prefix_ignore_case(line, opening)).map(str::trim)
}

/// The folder of a request such as `the files in src`; this one, if it names none.
fn folder_to_list(rest: &str) -> String {
    let fillers = ["all ", "the ", "folder ", "文件夹", "目录", "files ", "in ", "of "];
    let path = first_word(rest, &fillers);
    match path.as_str() {
        "" | "here" | "this" | "files" | "文件" => ".".to_owned(),
        _ => path,
    }
}

/// The first word, quoted or not, without fillers and final punctuation.
fn first_word(text: &str, fillers: &[&str]) -> String {
    let mut text = text.trim();
    for filler in fillers {
        text = text.strip_prefix(filler).unwrap_or(text).trim();
    }
    for quote in ['"', '\'', '`'] {
        if let Some((word, _)) = text.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return word.to_owned();
        }
    }
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | '，' | '。' | '；'));
    let word = &text[..end.unwrap_or(text.len())];
    match word {
        "." | ".." => word.to_owned(),
        _ => word.trim_end_matches(['.', '?', '!']).to_owned(),
    }
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\'', '`'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ReasoningEffort;

    #[track_caller]
    fn check(prompt: &str, expected: &str) {
        let call = Intent::parse(prompt).call();
        let got =
            call.map_or("nothing".to_owned(), |(name, arguments)| format!("{name} {arguments}"));
        assert_eq!(got, expected, "{prompt}");
    }

    #[test]
    fn a_request_that_nobody_has_typed_is_answered_whatever_it_asks_for() {
        let context = PromptPart::Context("Prove your work: run a.txt".to_owned());
        let request = Request {
            system: "".into(),
            messages: vec![Arc::new(Message::User(UserMessage::new(vec![context])))],
            tools: Arc::default(),
            effort: ReasoningEffort::Default,
            has_media: false,
        };
        let reply = scripted_reply(&request);
        let words: String = reply.words.into_iter().collect();
        assert_eq!((words.as_str(), reply.call.is_none()), (NOT_TYPED, true));
        assert!(NOT_TYPED.contains("prove") && NOT_TYPED.contains("summarise"), "{NOT_TYPED}");
    }

    #[test]
    fn plain_requests_become_calls() {
        check(
            "Read README.md and tell me what this project is",
            r#"read_file {"path":"README.md"}"#,
        );
        check("please read the file 'my notes.md'", r#"read_file {"path":"my notes.md"}"#);
        check("读取 README.md，并告诉我这是什么", r#"read_file {"path":"README.md"}"#);
        check("list src", r#"list_dir {"path":"src"}"#);
        check("List files", r#"list_dir {"path":"."}"#);
        for here in [
            "list the files here",
            "list the files",
            "list all files",
            "list files in this folder",
            "list the files in this project.",
            "ls",
            "列出文件",
        ] {
            check(here, r#"list_dir {"path":"."}"#);
        }
        for src in ["list the folder src", "list the files in src", "list files of src"] {
            check(src, r#"list_dir {"path":"src"}"#);
        }
        check("list files.d", r#"list_dir {"path":"files.d"}"#);
        check("list 'the files'", r#"list_dir {"path":"the files"}"#);
        check("列出 src", r#"list_dir {"path":"src"}"#);
        check("run ls -la", r#"exec {"command":"ls -la"}"#);
        check("运行 ls -la", r#"exec {"command":"ls -la"}"#);
        check("search for it's", r#"grep {"pattern":"it's","literal":true}"#);
        check("find *.rs", r#"find_files {"glob":"*.rs"}"#);
        check("find the answer", r#"grep {"pattern":"the answer","literal":true}"#);
        check(
            "replace hello with 'good bye' in notes.txt",
            r#"edit_file {"path":"notes.txt","old_string":"hello","new_string":"good bye"}"#,
        );
        check("fetch https://example.org/a", r#"web_fetch {"url":"https://example.org/a"}"#);
        check(
            "write notes.txt: hello\nworld",
            r#"write_file {"path":"notes.txt","content":"hello\nworld\n"}"#,
        );
        check(
            "plan: look, act",
            r#"plan {"entries":[{"content":"look","status":"in_progress"},{"content":"act","status":"pending"}]}"#,
        );
        check("What is the meaning of life?", "nothing");
        check("", "nothing");
        check("write a poem", "nothing");
    }
}
