//! What the model layer costs, beside its budgets: an answer is put together while it streams,
//! and a long conversation is written anew for each request. Divan has no budgets, so these have
//! clocks of their own. Each figure is the fastest of some rounds: what else runs on the machine
//! can only make one slower.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_llm::inside::{assemble, body};
use turnwright_llm::{Effort, Endpoint, LlmError, Protocol, Remote, Request, Settings};
use turnwright_types::message::{
    Arguments, AssistantMessage, Echo, Message, ToolCall, ToolMessage, UserMessage,
};
use turnwright::tools::{Lent, Offer, Registry, Toolbox, built_in};

use crate::READ;
use crate::table::{Table, ms, us};

/// Deltas of an answer in words.
const DELTAS: usize = 2_000;
/// Messages of the long conversation.
const MESSAGES: usize = 1_000;
/// How often each thing is done.
const ROUNDS: usize = 15;

/// All of it.
pub(crate) fn measure() -> Result<(), LlmError> {
    let mut table = Table::begin("the model layer");
    words(&mut table)?;
    arguments(&mut table)?;
    rendering(&mut table)?;
    table.end();
    Ok(())
}

/// An answer of one delta an event.
fn words(table: &mut Table) -> Result<(), LlmError> {
    let (chat, responses) = (Protocol::Chat, Protocol::Responses);
    let thinking = |number: usize| match number {
        1_000 => said("</think>Well"),
        _ => said(&word(number)),
    };
    let tagged = |number: usize| if number == 0 { said("<think>Hm") } else { thinking(number) };
    let answers = [
        ("chat: words", chat, "m", stream(|it| said(&word(it)))),
        ("chat: a thought", chat, "m", stream(|it| thought(&word(it)))),
        ("chat: words of a model that leaks", chat, "qwen3", stream(|it| said(&word(it)))),
        ("chat: words that open marks", chat, "qwen3", stream(|it| said(&marked(it)))),
        ("chat: a thought among the words", chat, "qwen3", stream(tagged)),
        ("chat: an unopened thought", chat, "qwq", stream(thinking)),
        ("responses: words", responses, "m", stream(|it| uttered("output_text", &word(it)))),
        (
            "responses: a thought",
            responses,
            "m",
            stream(|it| uttered("reasoning_summary_text", &word(it))),
        ),
    ];
    for (name, protocol, model, stream) in answers {
        let took = time(ROUNDS, || read(protocol, model, &stream))?;
        table.row(&format!("{name}, a delta"), us(took) / count(DELTAS), "µs", 3.0);
    }
    Ok(())
}

/// How a piece of arguments is sent.
type Delta<'a> = &'a dyn Fn(&str) -> Value;

/// The arguments of a call that writes a file, in short pieces.
fn arguments(table: &mut Table) -> Result<(), LlmError> {
    let (chat, responses) = (Protocol::Chat, Protocol::Responses);
    let plain = |text: &str| called(text, false);
    let named = |text: &str| called(text, true);
    let given = |text: &str| uttered("function_call_arguments", text);
    let ways: [(&str, Protocol, usize, Delta<'_>); 4] = [
        ("chat, 16 bytes a delta", chat, 16, &plain),
        ("chat, 100 bytes a delta", chat, 100, &plain),
        ("chat, the name with each delta", chat, 16, &named),
        ("responses, 16 bytes a delta", responses, 16, &given),
    ];
    for (name, protocol, size, delta) in ways {
        let mut took = [Duration::ZERO; 2];
        let mut deltas = 0;
        for (took, megabytes) in took.iter_mut().zip([1, 4]) {
            let text = file(megabytes * 1_000_000);
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

/// The body of a request late in a conversation.
fn rendering(table: &mut Table) -> Result<(), LlmError> {
    let tools = Toolbox::new(Arc::new(Registry::new(built_in())), Lent::default())
        .specs(&Offer::default(), None);
    let request = |count: usize| Request {
        system: "You are a coding agent.".into(),
        messages: conversation(count),
        tools: Arc::clone(&tools),
        effort: Effort::Default,
        has_media: false,
    };
    let whole = request(MESSAGES);
    // The same messages: what is remembered is found by where they are.
    let begun = Request { messages: whole.messages[..MESSAGES - 2].to_vec(), ..whole.clone() };
    for (name, protocol, host, model) in [
        ("chat", Protocol::Chat, "host", "m"),
        ("chat, identifiers of nine", Protocol::Chat, "host", "mistral-large"),
        ("chat, numbered identifiers", Protocol::Chat, "host", "kimi-k2-thinking"),
        ("chat, cache marks", Protocol::Chat, "openrouter.ai", "anthropic/claude-sonnet-4"),
        ("responses", Protocol::Responses, "host", "gpt-5"),
    ] {
        let remote = || -> Result<Remote, LlmError> {
            let endpoint = Endpoint::new(&format!("https://{host}/v1"), None)?;
            Ok(Remote::new(protocol, endpoint, Settings::named(model)))
        };
        let (mut cold, mut warm) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let new = remote()?;
            cold = cold.min(once(|| body(&new, &whole)));
            let used = remote()?;
            drop(body(&used, &begun));
            warm = warm.min(once(|| body(&used, &whole)));
        }
        table.row(&format!("1 000 messages: {name}, cold"), ms(cold), "ms", 5.0);
        table.row("… warm, two of them new", ms(warm), "ms", 5.0);
    }
    let endpoint = Endpoint::new("https://host/v1", None)?;
    let remote = Remote::new(Protocol::Chat, endpoint, Settings::named("m"));
    let bytes = body(&remote, &whole).len();
    table.note("… bytes of such a request", count(bytes) / 1024.0, "KiB");
    Ok(())
}

fn once<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

/// The fastest of some rounds.
fn time<T>(
    rounds: usize,
    mut work: impl FnMut() -> Result<T, LlmError>,
) -> Result<Duration, LlmError> {
    let mut fastest = Duration::MAX;
    for _ in 0..rounds {
        let begun = Instant::now();
        black_box(work()?);
        fastest = fastest.min(begun.elapsed());
    }
    Ok(fastest)
}

fn read(protocol: Protocol, model: &str, stream: &str) -> Result<usize, LlmError> {
    let tools = ["read_file", "write_file", "exec"].map(str::to_owned);
    assemble(protocol, model, &tools, black_box(stream).as_bytes().chunks(READ))
}

fn stream(delta: impl Fn(usize) -> Value) -> String {
    events((0..DELTAS).map(delta))
}

/// A whole answer. Each protocol skips the end of the other.
fn events(deltas: impl Iterator<Item = Value>) -> String {
    let last = [said("Good."), uttered("output_text", "Good.")];
    let mut stream = String::new();
    for delta in deltas.chain(last) {
        stream.push_str(&format!("data: {delta}\n\n"));
    }
    stream + "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
}

fn word(number: usize) -> String {
    format!(" word {number}")
}

/// Words that begin like calls.
fn marked(number: usize) -> String {
    format!(" a <{number}> [{number}]")
}

fn said(text: &str) -> Value {
    chunk(&json!({ "content": text }))
}

fn thought(text: &str) -> Value {
    chunk(&json!({ "content": null, "reasoning_content": text }))
}

fn called(text: &str, is_named: bool) -> Value {
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

fn uttered(what: &str, text: &str) -> Value {
    json!({
        "type": format!("response.{what}.delta"), "item_id": "item_1", "output_index": 0,
        "content_index": 0, "delta": text, "sequence_number": 7
    })
}

/// Arguments of about that many bytes: code, with its braces and quotes.
fn file(bytes: usize) -> String {
    let line = "fn f(x: &str) { if x == \"a\" { g() } }\n\n";
    json!({ "path": "src/main.rs", "content": line.repeat(bytes / line.len()) }).to_string()
}

/// Prompts, each with a call, its result and an answer.
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
    let echo = Echo { origin: "host/kimi-k2-thinking".into(), field, blobs: Vec::new() };
    Message::Assistant(AssistantMessage {
        id: "msg-1".into(),
        text,
        thought,
        calls,
        interrupted: false,
        echo,
    })
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
