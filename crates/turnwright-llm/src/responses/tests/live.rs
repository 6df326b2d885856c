//! Whole conversations with a small server on loopback, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::expand;
use crate::http::Endpoint;
use crate::{
    Delta, DeltaBatch, EndReason, LlmError, Model, ModelSettings, Protocol, ReasoningEffort,
    RemoteModel, Reply, Request,
};
use tokio::task::spawn_blocking;
use turnwright_types::message::{AssistantMessage, Message, ToolCall, ToolMessage, UserMessage};

/// The server's behaviour for one request.
enum ScriptedResponse {
    /// Responds with a stream in shorthand.
    Stream(&'static str),
    /// Responds with a status and a body.
    Status(u16, &'static str),
    /// Starts a stream and reports when the client disconnects.
    Hang,
}

/// Starts a server that follows the script, one step per request, and sends the requests to the
/// receiver.
fn serve(script: Vec<ScriptedResponse>) -> (RemoteModel, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/openai/v1/", listener.local_addr().unwrap());
    let (requests, received) = channel();
    std::thread::spawn(move || {
        for response in script {
            let (mut stream, _) = listener.accept().unwrap();
            requests.send(read_request(&stream)).unwrap();
            match response {
                ScriptedResponse::Stream(script) => answer(&mut stream, 200, &expand(script)),
                ScriptedResponse::Status(status, body) => answer(&mut stream, status, body),
                ScriptedResponse::Hang => {
                    answer(&mut stream, 200, &expand("output_text.delta {\"delta\":\"Well\"}"));
                    while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
                    requests.send(("gone".to_owned(), Value::Null)).unwrap();
                }
            }
        }
    });
    let endpoint = Endpoint::new(&base, Some("sk-secret".into())).unwrap();
    let model = RemoteModel::new(Protocol::Responses, endpoint, ModelSettings::named("gpt-5"));
    (model, received)
}

/// The head and the body of a request.
fn read_request(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).unwrap();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

fn answer(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
}

fn request(messages: &[Arc<Message>]) -> Request {
    Request {
        system: "Be brief.".into(),
        messages: messages.to_vec(),
        tools: Arc::default(),
        effort: ReasoningEffort::Low,
        has_media: true,
    }
}

fn prompt(text: &str) -> Arc<Message> {
    Arc::new(Message::User(UserMessage::text(text)))
}

async fn ask(model: &RemoteModel, messages: &[Arc<Message>]) -> Result<(String, Reply), LlmError> {
    let request = request(messages);
    let mut stream = model.open_stream(&request).await?;
    let mut batch = DeltaBatch::default();
    let reply = loop {
        if let Some(reply) = stream.next(&mut batch).await? {
            break reply;
        }
    };
    let words = batch.deltas.iter().filter_map(|delta| match delta {
        Delta::Text(words) => Some(words.as_str()),
        _ => None,
    });
    Ok((words.collect(), reply))
}

/// The reply and the results of its calls as messages of the history.
fn to_history(text: &str, reply: &Reply) -> Vec<Arc<Message>> {
    let calls: Vec<_> = reply
        .calls
        .iter()
        .map(|call| ToolCall {
            id: call.provider_id.as_str().into(),
            provider_id: call.provider_id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            extra: call.extra.clone(),
        })
        .collect();
    let results: Vec<_> = calls
        .iter()
        .map(|call| {
            Message::Tool(ToolMessage {
                call: call.id.clone(),
                provider_id: call.provider_id.clone(),
                name: call.name.clone(),
                text: "1: a".to_owned(),
                ok: true,
                images: Vec::new(),
            })
        })
        .collect();
    let answer = Message::Assistant(AssistantMessage {
        id: "m".into(),
        text: text.to_owned(),
        thought: String::new(),
        calls,
        interrupted: false,
        provider_state: reply.provider_state.clone(),
    });
    std::iter::once(answer).chain(results).map(Arc::new).collect()
}

#[tokio::test]
async fn reasoning_is_sent_back_in_its_place() {
    let (model, received) = serve(vec![
        ScriptedResponse::Stream(
            r#"
            whole 0 {"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}
            output_text.delta {"output_index":1,"delta":"I look."}
            added 2 {"id":"fc_1","type":"function_call","call_id":"call_1","name":"read_file"}
            function_call_arguments.delta {"output_index":2,"delta":"{\"path\":\"a\"}"}
            completed {"status":"completed","usage":{"input_tokens":5,"output_tokens":6}}
            "#,
        ),
        ScriptedResponse::Stream("output_text.delta {\"delta\":\"It says a.\"}\ncompleted {}"),
    ]);
    let mut history = vec![prompt("Read a")];
    let (text, reply) = ask(&model, &history).await.unwrap();
    assert_eq!((text.as_str(), reply.calls.len()), ("I look.", 1));
    assert_eq!(reply.usage.unwrap().input, 5);
    history.extend(to_history(&text, &reply));
    let (text, reply) = ask(&model, &history).await.unwrap();
    assert_eq!((text.as_str(), reply.end), ("It says a.", EndReason::Complete));

    let (head, body) = received.recv().unwrap();
    assert!(head.starts_with("POST /openai/v1/responses HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer sk-secret"), "{head}");
    assert_eq!(body["reasoning"], json!({ "effort": "low", "summary": "auto" }));
    assert_eq!(body["store"], false);
    let (_, body) = received.recv().unwrap();
    let input = body["input"].as_array().unwrap();
    let kinds: Vec<_> = input.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let expected = ["message", "reasoning", "message", "function_call", "function_call_output"];
    assert_eq!(kinds, expected);
    assert_eq!(
        input[1],
        json!({ "type": "reasoning", "summary": [], "encrypted_content": "gAAA" })
    );
    assert_eq!(input[3]["call_id"], input[4]["call_id"]);
    assert_eq!(input[4]["output"], "1: a");
}

#[tokio::test]
async fn a_refusal_says_why() {
    let (model, _received) = serve(vec![ScriptedResponse::Stream(
        r#"
        refusal.delta {"delta":"No."}
        completed {"status":"completed"}
        "#,
    )]);
    let (_, reply) = ask(&model, &[prompt("Bad")]).await.unwrap();
    assert_eq!(reply.end, EndReason::Refused("No.".to_owned()));
}

#[tokio::test]
async fn an_error_response_is_reported_without_the_key() {
    let body = r#"{"error":{"message":"Wrong key sk-secret.","code":"invalid_api_key"}}"#;
    let (model, _received) = serve(vec![ScriptedResponse::Status(401, body)]);
    let error = ask(&model, &[prompt("Hi")]).await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert!(error.to_string().contains("Wrong key [key]."), "{error}");
}

#[tokio::test]
async fn dropping_the_stream_aborts_the_request() {
    let (model, received) = serve(vec![ScriptedResponse::Hang]);
    let request = request(&[prompt("Hi")]);
    let mut stream = model.open_stream(&request).await.unwrap();
    let mut batch = DeltaBatch::default();
    while batch.deltas.is_empty() {
        assert_eq!(stream.next(&mut batch).await.unwrap(), None);
    }
    drop(stream);
    let gone = spawn_blocking(move || received.into_iter().nth(1)).await.unwrap();
    assert_eq!(gone.unwrap().0, "gone");
}
