//! A model behind an endpoint, in either protocol.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::http::{Body, Endpoint};
use super::lessons::Lessons;
use super::list::near;
use super::manner::{Manner, Speaker, Tools};
use super::prefix::Prefixes;
use super::quirks::{Leaked, Patch, Quirks};
use super::reader::Assemble;
use super::stream::{Said, Stream};
use super::{
    Batch, Effort, Kind, Learned, LlmError, Model, Price, Reply, ReplyStream, Request, Senses,
    Settings, chat, responses,
};
use turnwright_types::message::Specs;

/// How often one request is changed because the server has refused something in it.
const LESSONS_A_REQUEST: usize = 4;

/// How long an error waits for the names that may have been meant.
const HINTING: Duration = Duration::from_secs(3);

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Chat completions, which nearly all do.
    Chat,
    /// OpenAI's Responses.
    Responses,
}

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct Remote {
    protocol: Protocol,
    endpoint: Arc<Endpoint>,
    settings: Settings,
    /// What its answers are marked with: this model at this host.
    origin: Arc<str>,
    lessons: Arc<Lessons>,
    prefixes: Prefixes,
    // Both are std mutexes: held to copy a few bytes.
    /// The efforts that it does not have.
    lacks: Mutex<Vec<Effort>>,
    tools: Mutex<Option<Arc<Tools>>>,
}

impl Remote {
    /// A model at an endpoint.
    pub fn new(protocol: Protocol, endpoint: Endpoint, settings: Settings) -> Remote {
        let quirks = Quirks::of(&endpoint.host(), &settings.model).with(settings.wishes);
        Remote::at(protocol, Arc::new(endpoint.with_key_in(quirks.key)), settings)
    }

    fn at(protocol: Protocol, endpoint: Arc<Endpoint>, settings: Settings) -> Remote {
        let origin = format!("{}/{}", endpoint.host(), settings.model).into();
        let lessons = Arc::new(settings.lessons(&endpoint.host()));
        Remote {
            protocol,
            endpoint,
            settings,
            origin,
            lessons,
            prefixes: Prefixes::default(),
            lacks: Mutex::default(),
            tools: Mutex::default(),
        }
    }

    fn tools(&self, specs: &Specs) -> Arc<Tools> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        match tools.as_ref() {
            Some(made) if Arc::ptr_eq(&made.specs, specs) => Arc::clone(made),
            _ => {
                let render = match self.protocol {
                    Protocol::Chat => chat::render_tools,
                    Protocol::Responses => responses::render_tools,
                };
                // Conversations were written with the names of the other ones.
                self.prefixes.forget();
                Arc::clone(tools.insert(Arc::new(Tools::new(specs, render))))
            }
        }
    }

    /// What would be sent now.
    pub(super) fn body(&self, request: &Request) -> Vec<u8> {
        self.render(&self.tools(&request.tools), &self.lessons.quirks(), request)
    }

    fn render(&self, tools: &Tools, quirks: &Quirks, request: &Request) -> Vec<u8> {
        let manner = Manner {
            model: &self.settings.model,
            origin: &self.origin,
            quirks,
            aliases: &tools.aliases,
            tools: &tools.json,
            max_output: self.settings.max_output,
            body: &self.settings.body,
        };
        match self.protocol {
            Protocol::Chat => chat::render(&self.prefixes, &manner, request),
            Protocol::Responses => responses::render(&self.prefixes, &manner, request),
        }
    }

    fn speaker(&self, tools: Arc<Tools>) -> Speaker {
        Speaker {
            host: self.endpoint.host(),
            secret: self.endpoint.secret(),
            origin: Arc::clone(&self.origin),
            quirks: self.lessons.quirks(),
            tools: (!tools.specs.is_empty()).then_some(tools),
        }
    }

    /// Asks, and asks in another way as long as the server names what it does not like. What has
    /// helped is remembered.
    async fn post(&self, path: &str, tools: &Tools, request: &Request) -> Result<Body, LlmError> {
        let mut tried = Vec::new();
        let mut lesson = Patch::NONE;
        loop {
            // Another request may have taught us something meanwhile.
            let quirks = self.lessons.quirks_after(lesson);
            let body = self.render(tools, &quirks, request);
            let error = match self.endpoint.post(path, body).await {
                Ok(body) => {
                    self.lessons.keep(lesson);
                    return Ok(body);
                }
                Err(error) => error,
            };
            tried.push(quirks);
            match self.learn(&error, tools, &tried, lesson, request) {
                Some(more) => lesson = lesson.and(more),
                None => return Err(error),
            }
        }
    }

    /// What a refusal teaches over `lesson`, if the same conversation, asked anew, is a request
    /// that has not been refused yet.
    fn learn(
        &self,
        error: &LlmError,
        tools: &Tools,
        tried: &[Quirks],
        lesson: Patch,
        request: &Request,
    ) -> Option<Patch> {
        let refused = tried.last().filter(|_| tried.len() <= LESSONS_A_REQUEST)?;
        let candidates = self.lessons.candidates(error, refused, request.media());
        if candidates.is_empty() {
            return None;
        }
        let before = self.render(tools, refused, request);
        candidates.into_iter().find(|patch| {
            let quirks = self.lessons.quirks_after(lesson.and(*patch));
            !tried.contains(&quirks) && self.render(tools, &quirks, request) != before
        })
    }

    /// Remembers an effort that it does not have.
    fn do_without(&self, effort: Effort) {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner).push(effort);
    }

    async fn list_models(&self) -> Result<Vec<String>, LlmError> {
        let models = self.endpoint.models().await?;
        let own = models.iter().find(|it| it.name == self.settings.model);
        // What a server says about itself is better than what is known of the model elsewhere.
        if let Some(window) = own.and_then(|it| it.window)
            && self.window().is_none_or(|it| window < it)
        {
            self.lessons.hear_window(window);
        }
        Ok(models.into_iter().map(|it| it.name).collect())
    }

    /// The error for a name that the server does not know, with those that may have been meant.
    async fn hint(&self, mut error: LlmError) -> LlmError {
        if self.settings.asks_nothing {
            return error;
        }
        let listed = tokio::time::timeout(HINTING, self.endpoint.models()).await;
        let names: Vec<_> = listed.into_iter().flatten().flatten().map(|it| it.name).collect();
        let mut meant = near(&self.settings.model, &names);
        // A server that lists it and refuses it means something else.
        meant.retain(|it| *it != self.settings.model);
        if let LlmError::Status { message, .. } = &mut error
            && !meant.is_empty()
        {
            let all: Vec<_> = meant.iter().map(|it| self.full_name(it)).collect();
            let all = all.join(", ");
            *message = format!("{}. Did you mean {all}?", message.trim_end_matches('.'));
        }
        error
    }

    async fn start(&self, request: &Request) -> Result<Box<dyn ReplyStream>, LlmError> {
        let tools = self.tools(&request.tools);
        let path = match self.protocol {
            Protocol::Chat => "/chat/completions",
            Protocol::Responses => "/responses",
        };
        let modest = || Request { effort: Effort::Default, ..request.clone() };
        let answer = if self.lacks(request.effort) {
            self.post(path, &tools, &modest()).await
        } else {
            self.post(path, &tools, request).await
        };
        let answer = match answer {
            Err(error) if request.effort != Effort::Default && error.refuses_effort() => {
                self.do_without(request.effort);
                self.post(path, &tools, &modest()).await
            }
            answer => answer,
        };
        let body = match answer {
            Ok(body) => body,
            Err(error) if error.kind() == Kind::ModelNotFound => {
                return Err(self.hint(error).await);
            }
            Err(error) => return rescue(error, self.speaker(tools)),
        };
        let speaker = self.speaker(tools);
        let inner: Box<dyn ReplyStream> = match self.protocol {
            Protocol::Chat => Box::new(Stream::new(body, chat::Assembler::new(speaker))),
            Protocol::Responses => Box::new(Stream::new(body, responses::Assembler::new(speaker))),
        };
        let (lessons, quirks) = (Arc::clone(&self.lessons), self.lessons.quirks());
        Ok(Box::new(Attentive {
            inner,
            lessons,
            quirks,
            media: request.media(),
            has_spoken: false,
        }))
    }
}

/// An answer whose errors teach, too: some servers refuse a request within the stream.
struct Attentive {
    inner: Box<dyn ReplyStream>,
    lessons: Arc<Lessons>,
    /// How it was asked for, and what the request held.
    quirks: Quirks,
    media: Senses,
    /// What has begun to answer has not refused.
    has_spoken: bool,
}

impl ReplyStream for Attentive {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async {
            let outcome = self.inner.next(batch).await;
            let has_spoken = std::mem::replace(&mut self.has_spoken, true);
            match outcome {
                Err(error) if !has_spoken => Err(self.learn(error)),
                Ok(None) if batch.deltas.is_empty() => {
                    self.has_spoken = has_spoken;
                    Ok(None)
                }
                outcome => outcome,
            }
        })
    }
}

impl Attentive {
    /// Hears a refusal; if it teaches something, the request is worth making once more.
    fn learn(&self, mut error: LlmError) -> LlmError {
        let candidates = self.lessons.candidates(&error, &self.quirks, self.media);
        if let Some(patch) = candidates.first()
            && self.lessons.may_learn_in_stream()
            && let LlmError::InStream { kind, retry_after, .. } = &mut error
        {
            self.lessons.keep(*patch);
            *kind = Kind::Unavailable;
            *retry_after = None;
        }
        error
    }
}

/// The answer that a server could not read and has sent back with its error, if it can be read
/// (quirk C.1 #23); else the error.
fn rescue(error: LlmError, speaker: Speaker) -> Result<Box<dyn ReplyStream>, LlmError> {
    let Some(text) = error.leaked() else { return Err(error) };
    let mut assembler = chat::Assembler::new(speaker);
    let mut batch = Batch::default();
    if !assembler.rescue(text, &mut batch) {
        return Err(error);
    }
    let reply = assembler.finish(&mut batch)?;
    Ok(Box::new(Said::new(batch, reply)))
}

impl Model for Remote {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn window(&self) -> Option<u64> {
        self.lessons.window().or(self.settings.window)
    }

    fn learned_window(&self, tokens: u64) {
        self.lessons.hear_window(tokens);
    }

    fn learned(&self) -> Learned {
        self.lessons.learned()
    }

    fn teach(&self, patch: Patch) {
        self.lessons.teach(patch);
    }

    fn trial(&self, patch: Patch) -> Option<Box<dyn Model>> {
        let mut learned = self.lessons.learned();
        learned.quirks = learned.quirks.and(patch);
        let settings = Settings { learned, notebook: None, ..self.settings.clone() };
        Some(Box::new(Remote::at(self.protocol, Arc::clone(&self.endpoint), settings)))
    }

    fn price(&self) -> Option<Price> {
        self.settings.price
    }

    fn senses(&self) -> Senses {
        let quirks = self.lessons.quirks();
        // The Responses API has no place for recordings.
        Senses { images: quirks.images, audio: quirks.audio && self.protocol == Protocol::Chat }
    }

    fn is_nudged(&self) -> bool {
        match self.lessons.quirks().leaked {
            Leaked::Off => false,
            Leaked::Nudge => true,
            // Only in chat completions are leaked calls looked for.
            Leaked::Parse => self.protocol == Protocol::Responses,
        }
    }

    fn takes_patches(&self) -> bool {
        self.lessons.quirks().patches
    }

    fn is_watched(&self) -> bool {
        self.lessons.quirks().loops
    }

    fn lacks(&self, effort: Effort) -> bool {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner).contains(&effort)
    }

    fn has_effort(&self) -> bool {
        self.lessons.quirks().has_effort()
    }

    fn provider(&self) -> String {
        self.endpoint.base()
    }

    fn full_name(&self, model: &str) -> String {
        let provider = self.settings.provider.as_ref();
        provider.map_or_else(|| model.to_owned(), |it| format!("{it}/{model}"))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<String>, LlmError>> {
        Box::pin(self.list_models())
    }

    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.endpoint.warm_up())
    }

    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(self.start(request))
    }
}
