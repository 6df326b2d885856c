//! Strict mocks of seven providers: real HTTP servers on loopback that refuse what the provider
//! refuses, with its status, its shape of an error and its words, and that answer in its dialect.
//! What a provider refuses and how it speaks is in the file of its name.

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

use crate::scripted_model::http;
pub use rules::{Rules, Wrong};
pub use script::{Answer, Call};
pub use speech::Speech;

/// All of them, in the order of the specification.
pub static ALL: [&Provider; 7] = [
    &deepseek::PROVIDER,
    &kimi::PROVIDER,
    &glm::PROVIDER,
    &minimax::PROVIDER,
    &gemini::PROVIDER,
    &mistral::PROVIDER,
    &groq::PROVIDER,
];

/// What makes a provider.
pub struct Provider {
    pub name: &'static str,
    /// The model's name, by which alone a client can recognise it.
    pub model: &'static str,
    /// What can be said about a request with a table.
    pub rules: Rules,
    /// What else it refuses, given what it has said before.
    pub also: fn(&Value, &[Answer]) -> Result<(), Wrong>,
    /// What it takes although the model suffers from it.
    pub harms: fn(&Value, &[Answer]) -> Vec<String>,
    /// Status and body of a refusal.
    pub refuse: fn(&Wrong) -> (u16, Value),
    /// The identifier of a call, given how many of its own calls came before and how many the
    /// whole conversation has.
    pub mint: fn(usize, usize) -> String,
    /// What goes wrong once although the request is good.
    pub stumble: fn(&Answer) -> Option<Response>,
    /// The answer as it streams it.
    pub speak: fn(&Value, &Answer) -> Speech,
}

/// What the server sends.
pub enum Response {
    Plain(u16, Value),
    Stream(Speech),
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What was wrong, the same word for the same thing.
    pub about: String,
    /// The body of the answer.
    pub body: String,
}

/// A running mock. Its threads end with their connections.
pub struct Mock {
    pub provider: &'static Provider,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    requests: Vec<Value>,
    refusals: Vec<Refusal>,
    harms: Vec<String>,
    answers: Vec<Answer>,
    has_stumbled: bool,
}

impl Mock {
    pub fn start(provider: &'static Provider) -> Mock {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                // An error means that the client has gone away, which is its right.
                std::thread::spawn(move || serve(&stream?, provider, &state));
            }
        });
        Mock { provider, address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The body of each chat request so far, refused or not.
    pub fn requests(&self) -> Vec<Value> {
        self.lock().requests.clone()
    }

    pub fn refusals(&self) -> Vec<Refusal> {
        self.lock().refusals.clone()
    }

    /// What was taken although the model suffers from it.
    pub fn harms(&self) -> Vec<String> {
        self.lock().harms.clone()
    }

    /// What there is to complain about: the same thing refused twice, a harm.
    pub fn complaints(&self) -> Vec<String> {
        let state = self.lock();
        let is_again = |(at, it): &(usize, &Refusal)| {
            state.refusals[..*at].iter().any(|before| before.about == it.about)
        };
        let again = state.refusals.iter().enumerate().filter(is_again);
        let again = again.map(|(_, it)| format!("refused again, {}: {}", it.about, it.body));
        again.chain(state.harms.iter().cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn serve(stream: &TcpStream, provider: &Provider, state: &Mutex<State>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((method, request)) = http::read_request(&mut reader)? {
        let response = match (method.as_str(), request.path.as_str()) {
            ("POST", "/v1/chat/completions") => {
                state.lock().unwrap().respond(provider, &request.body)
            }
            ("GET", "/v1/models") => {
                let model = json!({ "id": provider.model, "object": "model" });
                Response::Plain(200, json!({ "object": "list", "data": [model] }))
            }
            _ => Response::Plain(404, json!({ "error": { "message": "Not found" } })),
        };
        send(stream, &response)?;
    }
    Ok(())
}

fn send(mut stream: &TcpStream, response: &Response) -> io::Result<()> {
    let speech = match response {
        Response::Plain(status, body) => {
            return stream.write_all(&http::json_answer(*status, body));
        }
        Response::Stream(speech) => speech,
    };
    stream.write_all(http::STREAM_HEAD)?;
    for event in &speech.said {
        stream.write_all(&http::chunk(event))?;
    }
    if speech.hangs {
        // Until the client goes away.
        stream.read_to_end(&mut Vec::new())?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    // In one write, for a client may rightly close the connection when it sees `[DONE]`.
    let mut end = http::chunk(&speech.end.concat());
    end.extend(http::LAST_CHUNK);
    stream.write_all(&end)
}

impl State {
    fn respond(&mut self, provider: &Provider, body: &Value) -> Response {
        self.requests.push(body.clone());
        let checked = rules::check(provider, body);
        if let Err(wrong) = checked.and_then(|()| (provider.also)(body, &self.answers)) {
            let (status, error) = (provider.refuse)(&wrong);
            self.refusals.push(Refusal { about: wrong.about(), body: error.to_string() });
            return Response::Plain(status, error);
        }
        for harm in (provider.harms)(body, &self.answers) {
            // Once: what has gone wrong stays wrong in all later requests.
            if !self.harms.contains(&harm) {
                self.harms.push(harm);
            }
        }
        let answer = script::answer(provider, body, &self.answers);
        if !self.has_stumbled
            && let Some(stumble) = (provider.stumble)(&answer)
        {
            self.has_stumbled = true;
            return stumble;
        }
        let speech = (provider.speak)(body, &answer);
        self.answers.push(answer);
        Response::Stream(speech)
    }
}
