//! Strict mocks of seven providers: HTTP servers on loopback that refuse what the provider refuses, with
//! its status, error format and message, and that stream answers in its dialect. Each provider has a
//! file.

pub mod deepseek;
pub mod gemini;
pub mod glm;
pub mod groq;
pub mod kimi;
pub mod minimax;
pub mod mistral;
mod rules;
mod schema;
pub mod script;
mod speech;
mod tests;

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use turnwright_testing::scripted_model::http;

pub use rules::{RequestFault, RequestRules};
pub use script::{ScriptedAnswer, ScriptedCall};
pub use speech::ScriptedStream;

/// All mocked providers.
pub static ALL: [&ProviderDialect; 7] = [
    &deepseek::PROVIDER,
    &kimi::PROVIDER,
    &glm::PROVIDER,
    &minimax::PROVIDER,
    &gemini::PROVIDER,
    &mistral::PROVIDER,
    &groq::PROVIDER,
];

/// How a provider checks requests and formats answers.
pub struct ProviderDialect {
    pub name: &'static str,
    /// The name of the model, the only hint by which a client can recognise the provider.
    pub model: &'static str,
    /// The checks that a table can express.
    pub rules: RequestRules,
    /// Further checks of a request, given the answers so far.
    pub extra_check: fn(&Value, &[ScriptedAnswer]) -> Result<(), RequestFault>,
    /// Defects that the provider accepts although they degrade the model's answers.
    pub harms: fn(&Value, &[ScriptedAnswer]) -> Vec<String>,
    /// The status and body for a faulty request.
    pub error_response: fn(&RequestFault) -> (u16, Value),
    /// The id of a call, given the number of earlier calls by this provider and in the whole conversation.
    pub call_id: fn(usize, usize) -> String,
    /// A failure that happens once although the request is valid.
    pub transient_failure: fn(&ScriptedAnswer) -> Option<MockResponse>,
    /// The answer as a stream in the provider's dialect.
    pub stream_answer: fn(&Value, &ScriptedAnswer) -> ScriptedStream,
}

/// A response of the server.
pub enum MockResponse {
    Plain(u16, Value),
    Stream(ScriptedStream),
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The kind of fault: equal for equal faults.
    pub kind: String,
    /// The body of the answer.
    pub body: String,
}

/// A running mock server. Its threads end with their connections.
pub struct MockProvider {
    pub provider: &'static ProviderDialect,
    address: SocketAddr,
    state: Arc<Mutex<MockState>>,
}

#[derive(Default)]
struct MockState {
    requests: Vec<Value>,
    refusals: Vec<Refusal>,
    harms: Vec<String>,
    past_answers: Vec<ScriptedAnswer>,
    has_failed_once: bool,
}

impl MockProvider {
    pub fn start(provider: &'static ProviderDialect) -> MockProvider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<MockState>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                // An error means that the client has disconnected.
                std::thread::spawn(move || serve(&stream?, provider, &state));
            }
        });
        MockProvider { provider, address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the body of each chat request so far, refused or not.
    pub fn requests(&self) -> Vec<Value> {
        self.lock().requests.clone()
    }

    /// Returns everything that a client did wrong: faults that were refused before, and accepted
    /// defects.
    pub fn complaints(&self) -> Vec<String> {
        let state = self.lock();
        let is_again = |(at, refusal): &(usize, &Refusal)| {
            state.refusals[..*at].iter().any(|before| before.kind == refusal.kind)
        };
        let repeated = state.refusals.iter().enumerate().filter(is_again);
        let repeated = repeated.map(|(_, it)| format!("refused again, {}: {}", it.kind, it.body));
        repeated.chain(state.harms.iter().cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, MockState> {
        self.state.lock().unwrap()
    }
}

fn serve(
    stream: &TcpStream,
    provider: &ProviderDialect,
    state: &Mutex<MockState>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((method, request)) = http::read_request(&mut reader)? {
        let response = match (method.as_str(), request.path.as_str()) {
            ("POST", "/v1/chat/completions") => {
                state.lock().unwrap().respond(provider, &request.body)
            }
            ("GET", "/v1/models") => {
                let model = json!({ "id": provider.model, "object": "model" });
                MockResponse::Plain(200, json!({ "object": "list", "data": [model] }))
            }
            _ => MockResponse::Plain(404, json!({ "error": { "message": "Not found" } })),
        };
        send(stream, &response)?;
    }
    Ok(())
}

fn send(mut stream: &TcpStream, response: &MockResponse) -> io::Result<()> {
    let speech = match response {
        MockResponse::Plain(status, body) => {
            return stream.write_all(&http::json_answer(*status, body));
        }
        MockResponse::Stream(speech) => speech,
    };
    stream.write_all(http::STREAM_HEAD)?;
    for event in &speech.events {
        stream.write_all(&http::chunk(event))?;
    }
    if speech.hangs {
        // The response stays open until the client disconnects.
        stream.read_to_end(&mut Vec::new())?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    // The end is sent in one write, because a client may close the connection when it sees
    // `[DONE]`.
    let mut end = http::chunk(&speech.end.concat());
    end.extend(http::LAST_CHUNK);
    stream.write_all(&end)
}

impl MockState {
    fn respond(&mut self, provider: &ProviderDialect, body: &Value) -> MockResponse {
        self.requests.push(body.clone());
        let checked = rules::check(provider, body);
        if let Err(wrong) = checked.and_then(|()| (provider.extra_check)(body, &self.past_answers))
        {
            let (status, error) = (provider.error_response)(&wrong);
            self.refusals.push(Refusal { kind: wrong.kind(), body: error.to_string() });
            return MockResponse::Plain(status, error);
        }
        for harm in (provider.harms)(body, &self.past_answers) {
            // The defect is recorded once, because it recurs in all later requests of the
            // conversation.
            if !self.harms.contains(&harm) {
                self.harms.push(harm);
            }
        }
        let answer = script::answer(provider, body, &self.past_answers);
        if !self.has_failed_once
            && let Some(transient_failure) = (provider.transient_failure)(&answer)
        {
            self.has_failed_once = true;
            return transient_failure;
        }
        let speech = (provider.stream_answer)(body, &answer);
        self.past_answers.push(answer);
        MockResponse::Stream(speech)
    }
}
