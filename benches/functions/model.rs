//! Measures the model layer against time budgets: assembling a streamed reply and rendering a long
//! conversation. Divan does not support budgets, so these benchmarks measure time themselves. Each
//! figure is the fastest of several rounds, because other load can only slow a round down.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright::internals::{OfferContext, ToolIndex, Toolbox, built_in};
use turnwright_llm::internals::{assemble_reply, render_body};
use turnwright_llm::{
    Endpoint, LlmError, ModelSettings, Protocol, ReasoningEffort, RemoteModel, Request,
};
use turnwright_types::message::{
    Arguments, AssistantMessage, Message, ProviderState, ToolCall, ToolMessage, UserMessage,
};

use crate::READ;
use crate::table::{Table, ms, us};

/// The number of deltas of a reply.
const DELTA_COUNT: usize = 2_000;
/// The number of messages in the long conversation.
const MESSAGE_COUNT: usize = 1_000;
/// The number of rounds of each measurement.
const ROUNDS: usize = 15;

/// Runs all measurements of the model layer.
pub(crate) fn measure() -> Result<(), LlmError> {
    let mut table = Table::begin("the model layer");
    assemble_text(&mut table)?;
    assemble_arguments(&mut table)?;
    render_requests(&mut table)?;
    table.end();
    Ok(())
}

/// Assembling text and reasoning, one delta per event.
fn assemble_text(table: &mut Table) -> Result<(), LlmError> {
    let (chat, responses) = (Protocol::Chat, Protocol::Responses);
    let unopened = |number: usize| match number {
        1_000 => text_chunk("</think>Well"),
        _ => text_chunk(&word(number)),
    };
    let tagged =
        |number: usize| if number == 0 { text_chunk("<think>Hm") } else { unopened(number) };
    let answers = [
        ("chat: text", chat, "m", stream(|it| text_chunk(&word(it)))),
        ("chat: reasoning", chat, "m", stream(|it| reasoning_chunk(&word(it)))),
        (
            "chat: text of a model that leaks calls",
            chat,
            "qwen3",
            stream(|it| text_chunk(&word(it))),
        ),
        (
            "chat: text with opening marks",
            chat,
            "qwen3",
            stream(|it| text_chunk(&text_with_marks(it))),
        ),
        ("chat: reasoning in tags", chat, "qwen3", stream(tagged)),
        ("chat: reasoning without an opening tag", chat, "qwq", stream(unopened)),
        ("responses: text", responses, "m", stream(|it| responses_delta("output_text", &word(it)))),
        (
            "responses: reasoning",
            responses,
            "m",
            stream(|it| responses_delta("reasoning_summary_text", &word(it))),
        ),
    ];
    for (name, protocol, model, stream) in answers {
        let took = time(ROUNDS, || read(protocol, model, &stream))?;
        table.row(&format!("{name}, a delta"), us(took) / count(DELTA_COUNT), "µs", 3.0);
    }
    Ok(())
}

/// Makes the event for a piece of arguments.
type ArgumentsEvent<'a> = &'a dyn Fn(&str) -> Value;

/// Assembling the arguments of a call that writes a file, in short pieces.
fn assemble_arguments(table: &mut Table) -> Result<(), LlmError> {
    let (chat, responses) = (Protocol::Chat, Protocol::Responses);
    let plain = |text: &str| arguments_chunk(text, false);
    let named = |text: &str| arguments_chunk(text, true);
    let responses_delta_event = |text: &str| responses_delta("function_call_arguments", text);
    let ways: [(&str, Protocol, usize, ArgumentsEvent<'_>); 4] = [
        ("chat, 16 bytes a delta", chat, 16, &plain),
        ("chat, 100 bytes a delta", chat, 100, &plain),
        ("chat, the name with each delta", chat, 16, &named),
        ("responses, 16 bytes a delta", responses, 16, &responses_delta_event),
    ];
    for (name, protocol, size, delta) in ways {
        let mut took = [Duration::ZERO; 2];
        let mut deltas = 0;
        for (took, megabytes) in took.iter_mut().zip([1, 4]) {
            let text = write_file_arguments(megabytes * 1_000_000);
            let pieces: Vec<_> =
                text.as_bytes().chunks(size).map(String::from_utf8_lossy).collect();
            let stream = events(pieces.iter().map(|it| delta(it)));
            deltas = pieces.len();
            *took = time(7, || read(protocol, "m", &stream))?;
        }
        table.note(&format!("1 MB of arguments: {name}"), ms(took[0]), "ms");
        table.row("… 4 MB, a delta", us(took[1]) / count(deltas), "µs", 3.0);
        table.row("… 4 MB compared with 1 MB", ms(took[1]) / ms(took[0]), "×", 6.0);
    }
    Ok(())
}

/// Rendering a request late in a conversation.
fn render_requests(table: &mut Table) -> Result<(), LlmError> {
    let tools =
        Toolbox::new(Arc::new(ToolIndex::new(built_in()))).specs(&OfferContext::default(), None);
    let request = |count: usize| Request {
        system: "You are a coding agent.".into(),
        messages: conversation(count),
        tools: Arc::clone(&tools),
        effort: ReasoningEffort::Default,
        has_media: false,
    };
    let whole = request(MESSAGE_COUNT);
    // Shares the messages, because cached prefixes are found by the messages' addresses.
    let earlier =
        Request { messages: whole.messages[..MESSAGE_COUNT - 2].to_vec(), ..whole.clone() };
    for (name, protocol, host, model) in [
        ("chat", Protocol::Chat, "host", "m"),
        ("chat, nine-character identifiers", Protocol::Chat, "host", "mistral-large"),
        ("chat, numbered identifiers", Protocol::Chat, "host", "kimi-k2-thinking"),
        ("chat, cache marks", Protocol::Chat, "openrouter.ai", "anthropic/claude-sonnet-4"),
        ("responses", Protocol::Responses, "host", "gpt-5"),
    ] {
        let remote = || -> Result<RemoteModel, LlmError> {
            let endpoint = Endpoint::new(&format!("https://{host}/v1"), None)?;
            let settings = ModelSettings { model: model.to_owned(), ..ModelSettings::default() };
            Ok(RemoteModel::new(protocol, endpoint, settings))
        };
        let (mut cold, mut warm) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let new = remote()?;
            cold = cold.min(once(|| render_body(&new, &whole)));
            let used = remote()?;
            drop(render_body(&used, &earlier));
            warm = warm.min(once(|| render_body(&used, &whole)));
        }
        table.row(&format!("1 000 messages: {name}, cold"), ms(cold), "ms", 5.0);
        table.row("… warm, two of them new", ms(warm), "ms", 5.0);
    }
    let endpoint = Endpoint::new("https://host/v1", None)?;
    let settings = ModelSettings { model: "m".to_owned(), ..ModelSettings::default() };
    let remote = RemoteModel::new(Protocol::Chat, endpoint, settings);
    let bytes = render_body(&remote, &whole).len();
    table.note("… bytes of such a request", count(bytes) / 1024.0, "KiB");
    Ok(())
}

fn once<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

/// The fastest of several rounds.
fn time<T>(
    rounds: usize,
    mut work: impl FnMut() -> Result<T, LlmError>,
) -> Result<Duration, LlmError> {
    let mut fastest = Duration::MAX;
    for _ in 0..rounds {
        let started = Instant::now();
        black_box(work()?);
        fastest = fastest.min(started.elapsed());
    }
    Ok(fastest)
}

fn read(protocol: Protocol, model: &str, stream: &str) -> Result<usize, LlmError> {
    let tools = ["read_file", "write_file", "exec"].map(str::to_owned);
    assemble_reply(protocol, model, &tools, black_box(stream).as_bytes().chunks(READ))
}

fn stream(delta: impl Fn(usize) -> Value) -> String {
    events((0..DELTA_COUNT).map(delta))
}

/// A complete stream. Each protocol ignores the end events of the other.
fn events(deltas: impl Iterator<Item = Value>) -> String {
    let last = [text_chunk("Good."), responses_delta("output_text", "Good.")];
    let mut stream = String::new();
    for delta in deltas.chain(last) {
        stream.push_str(&format!("data: {delta}\n\n"));
    }
    stream + "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
}

fn word(number: usize) -> String {
    format!(" word {number}")
}

/// Text that starts like calls.
fn text_with_marks(number: usize) -> String {
    format!(" a <{number}> [{number}]")
}

fn text_chunk(text: &str) -> Value {
    chunk(&json!({ "content": text }))
}

fn reasoning_chunk(text: &str) -> Value {
    chunk(&json!({ "content": null, "reasoning_content": text }))
}

fn arguments_chunk(text: &str, is_named: bool) -> Value {
    let name = is_named.then_some("write_file");
    let function = json!({ "name": name, "arguments": text });
    chunk(&json!({ "tool_calls": [{ "index": 0, "type": "function", "function": function }] }))
}

fn chunk(delta: &Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }]
    })
}

fn responses_delta(what: &str, text: &str) -> Value {
    json!({
        "type": format!("response.{what}.delta"), "item_id": "item_1", "output_index": 0,
        "content_index": 0, "delta": text, "sequence_number": 7
    })
}

/// Arguments of about this many bytes: code, with braces and quotes.
fn write_file_arguments(bytes: usize) -> String {
    let line = "fn f(x: &str) { if x == \"a\" { g() } }\n\n";
    json!({ "path": "src/main.rs", "content": line.repeat(bytes / line.len()) }).to_string()
}

/// Prompts, each followed by a call, its result and a reply.
fn conversation(count: usize) -> Vec<Arc<Message>> {
    (0..count).map(|it| Arc::new(message(it))).collect()
}

fn message(number: usize) -> Message {
    let id = format!("call-{}", number / 4);
    let provider_id = format!("call_{:024}", number / 4);
    let line = "let value = some_function(argument, another_argument)?;\n";
    match number % 4 {
        0 => Message::User(UserMessage::text(line.repeat(4))),
        1 => {
            let arguments = json!({ "path": "src/main.rs", "content": line.repeat(4) });
            let arguments = Arguments::Object(arguments);
            let (name, id) = ("write_file".to_owned(), id.into());
            let call = ToolCall { id, provider_id, name, arguments, extra: None };
            answer(line.repeat(6), line.repeat(10), vec![call])
        }
        2 => Message::Tool(ToolMessage {
            call: id.into(),
            provider_id,
            name: "write_file".to_owned(),
            text: line.repeat(40),
            ok: true,
            images: Vec::new(),
        }),
        _ => answer(line.repeat(12), String::new(), Vec::new()),
    }
}

fn answer(text: String, thought: String, calls: Vec<ToolCall>) -> Message {
    let field = Some("reasoning_content".to_owned());
    let echo = ProviderState { origin: "host/kimi-k2-thinking".into(), field, blobs: Vec::new() };
    Message::Assistant(AssistantMessage {
        id: "msg-1".into(),
        text,
        thought,
        calls,
        interrupted: false,
        provider_state: echo,
    })
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
