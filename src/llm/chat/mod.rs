//! Chat completions, as OpenAI's API and its many relatives speak them.

mod arguments;
mod assemble;
mod details;
mod entries;
mod prefix;
mod request;
mod speech;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::http::{Endpoint, Secret};
use super::leaked::{self, LeakedCall};
use super::lessons::Lessons;
use super::names::Aliases;
use super::quirks::{Leaked, Quirks};
use super::reader::Assemble;
use super::stream::{Said, Stream};
use super::{Batch, LlmError, Model, Price, ReplyStream, Request, Senses, Settings, transcript};
use crate::message::ToolSpec;
use assemble::Assembler;
use prefix::Prefixes;
use request::Manner;

/// How often one request is changed because the server has refused something in it.
const LESSONS_A_REQUEST: usize = 4;

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct Chat {
    endpoint: Endpoint,
    settings: Settings,
    origin: Arc<str>,
    lessons: Lessons,
    prefixes: Prefixes,
    // A std mutex: held to copy a pointer.
    tools: Mutex<Option<Arc<Tools>>>,
}

/// The tools as they go out. Made once for all requests with the same ones.
#[derive(Debug)]
struct Tools {
    specs: Arc<Vec<ToolSpec>>,
    aliases: Aliases,
    json: Vec<u8>,
}

impl Tools {
    fn new(specs: &Arc<Vec<ToolSpec>>) -> Tools {
        let aliases = Aliases::new(specs.iter().map(|it| it.name.as_ref()));
        let json = request::render_tools(specs, &aliases);
        Tools { specs: Arc::clone(specs), aliases, json }
    }

    /// The calls at the end of a text.
    fn find_leaked(&self, text: &str) -> Option<(usize, Vec<LeakedCall>)> {
        let names = self.wire_names();
        let schemas = self.specs.iter().map(|it| &it.parameters);
        let declared: Vec<_> = names.iter().map(String::as_str).zip(schemas).collect();
        leaked::find(text, &declared)
    }

    /// The names that the model knows.
    fn wire_names(&self) -> Vec<String> {
        self.specs.iter().map(|it| self.aliases.to_wire(&it.name).into_owned()).collect()
    }
}

/// Who answers: what has to be known to understand it.
#[derive(Debug, Default)]
struct Speaker {
    host: String,
    secret: Secret,
    /// What the answer is to be marked with.
    origin: Arc<str>,
    quirks: Quirks,
    /// What it was offered to call; `None` if nothing.
    tools: Option<Arc<Tools>>,
}

impl Chat {
    /// A model at an endpoint.
    pub fn new(endpoint: Endpoint, settings: Settings) -> Chat {
        let origin = format!("{}/{}", endpoint.host(), settings.model).into();
        let lessons = settings.lessons(&endpoint.host());
        let (prefixes, tools) = (Prefixes::default(), Mutex::default());
        Chat { endpoint, settings, origin, lessons, prefixes, tools }
    }

    fn tools(&self, specs: &Arc<Vec<ToolSpec>>) -> Arc<Tools> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        match tools.as_ref() {
            Some(made) if Arc::ptr_eq(&made.specs, specs) => Arc::clone(made),
            _ => Arc::clone(tools.insert(Arc::new(Tools::new(specs)))),
        }
    }

    fn render(&self, tools: &Tools, request: &Request) -> Vec<u8> {
        let manner = Manner {
            model: &self.settings.model,
            origin: &self.origin,
            quirks: &self.lessons.quirks(),
            aliases: &tools.aliases,
            tools: &tools.json,
            max_output: self.settings.max_output,
            body: &self.settings.body,
        };
        request::render(&self.prefixes, &manner, request)
    }
}

impl Model for Chat {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn window(&self) -> Option<u64> {
        self.lessons.window().or(self.settings.window)
    }

    fn learned_window(&self, tokens: u64) {
        self.lessons.hear_window(tokens);
    }

    fn price(&self) -> Option<Price> {
        self.settings.price
    }

    fn senses(&self) -> Senses {
        let quirks = self.lessons.quirks();
        Senses { images: quirks.images, audio: quirks.audio }
    }

    fn is_nudged(&self) -> bool {
        self.lessons.quirks().leaked == Leaked::Nudge
    }

    fn has_effort(&self) -> bool {
        self.lessons.quirks().has_effort()
    }

    fn provider(&self) -> String {
        self.endpoint.base()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<String>, LlmError>> {
        Box::pin(self.endpoint.models(self.settings.provider.as_deref()))
    }

    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.endpoint.warm_up())
    }

    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(async {
            let tools = self.tools(&request.tools);
            let mut lessons = 0;
            let body = loop {
                let body = self.render(&tools, request);
                match self.endpoint.post("/chat/completions", body).await {
                    Err(error) if lessons < LESSONS_A_REQUEST && self.lessons.hear(&error) => {
                        lessons += 1;
                    }
                    outcome => break outcome,
                }
            };
            let speaker = Speaker {
                host: self.endpoint.host(),
                secret: self.endpoint.secret(),
                origin: Arc::clone(&self.origin),
                quirks: self.lessons.quirks(),
                tools: (!request.tools.is_empty()).then_some(tools),
            };
            let mut assembler = Assembler::new(speaker);
            let body = match body {
                Ok(body) => body,
                Err(error) => {
                    let mut batch = Batch::default();
                    if !error.leaked().is_some_and(|it| assembler.rescue(it, &mut batch)) {
                        return Err(error);
                    }
                    let reply = assembler.finish(&mut batch)?;
                    return Ok(Box::new(Said::new(batch, reply)) as Box<dyn ReplyStream>);
                }
            };
            Ok(Box::new(Stream::new(body, assembler)) as Box<dyn ReplyStream>)
        })
    }
}

/// What a recorded answer means, in words: for the wire corpus, the fuzzers and bug reports. How
/// it is cut into pieces changes nothing.
#[doc(hidden)]
pub fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    let spec = |name: &String| ToolSpec {
        name: name.clone().into(),
        description: String::new(),
        parameters: Value::Object(Map::new()),
    };
    let specs = Arc::new(tools.iter().map(spec).collect::<Vec<_>>());
    let tools = (!specs.is_empty()).then(|| Arc::new(Tools::new(&specs)));
    let quirks = Quirks::of("", model);
    let speaker = Speaker { host: "host".to_owned(), quirks, tools, ..Speaker::default() };
    transcript::transcribe(Assembler::new(speaker), pieces)
}
