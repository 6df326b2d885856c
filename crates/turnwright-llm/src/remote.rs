//! A model behind an HTTP endpoint, in either protocol.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::exchange::{Protocol, RenderedTools, ReplyContext, RequestStyle};
use super::http::{Endpoint, ReplyBody};
use super::local_server::LocalServer;
use super::model_list::closest_names;
use super::quirks::{LeakedCallHandling, QuirkPatch, Quirks};
use super::{
    DEFAULT_ASSUMED_WINDOW, DEFAULT_SILENCE_LIMIT, DeltaBatch, ErrorKind, LlmError, Modalities,
    Model, ModelProfile, ModelSettings, Price, ReasoningEffort, Reply, ReplyStream, Request, chat,
    responses,
};
use crate::http::request_body::{PrefixCache, RequestBody};
use crate::quirks::learned_quirks::LearnedQuirks;
use crate::reply::{HttpReplyStream, ReadyReply, ReplyAssembler};
use crate::schema::with_safe_names;
use turnwright_types::message::ToolSpecs;

/// How often one request is adapted after the server has refused something in it.
const MAX_ADAPTATIONS: usize = 4;

/// How long an error message waits for the list of similar model names.
const HINT_TIMEOUT: Duration = Duration::from_secs(3);
/// The tokens of a long answer.
const LONG_ANSWER: u64 = 16_384;

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct RemoteModel {
    protocol: Protocol,
    endpoint: Arc<Endpoint>,
    settings: ModelSettings,
    /// Marks the model's replies: the host and the model.
    origin: Arc<str>,
    learned_quirks: Arc<LearnedQuirks>,
    /// One for each protocol, without and with names of arguments of any characters.
    prefix_caches: [PrefixCache; 4],
    local_server: OnceLock<LocalServer>,
    /// Set once the local server was asked for its window before the first request.
    asked_at_start: tokio::sync::OnceCell<()>,
    /// The first list that the server gave, perhaps requested only for the window.
    first_list: tokio::sync::OnceCell<Result<Vec<String>, LlmError>>,
    has_given_first_list: AtomicBool,
    sends_finish_reasons: Arc<AtomicBool>,
    /// How many requests the local server works on at the same time; 0 if it has not said so.
    slots: AtomicU32,
    /// A bit for each effort that the model has rejected.
    rejected_efforts: AtomicU8,
}

impl RemoteModel {
    pub fn new(protocol: Protocol, endpoint: Endpoint, settings: ModelSettings) -> RemoteModel {
        let quirks = Quirks::lookup(&endpoint.host(), &settings.model).with(settings.overrides);
        let shared = Arc::new(endpoint.with_key_header(quirks.key));
        RemoteModel::with_endpoint(protocol, shared, settings)
    }

    fn with_endpoint(
        protocol: Protocol,
        endpoint: Arc<Endpoint>,
        settings: ModelSettings,
    ) -> RemoteModel {
        let origin = format!("{}/{}", endpoint.host(), settings.model).into();
        let mut table = QuirkPatch::lookup(&endpoint.host(), &settings.model);
        table.responses = table.responses.filter(|_| !settings.has_named_api);
        let learned_quirks = Arc::new(LearnedQuirks::new(
            table,
            settings.profile.clone(),
            settings.overrides,
            settings.save_profile.clone(),
        ));
        RemoteModel {
            protocol,
            endpoint,
            settings,
            origin,
            learned_quirks,
            prefix_caches: <[PrefixCache; 4]>::default(),
            local_server: OnceLock::new(),
            asked_at_start: tokio::sync::OnceCell::new(),
            first_list: tokio::sync::OnceCell::new(),
            has_given_first_list: AtomicBool::new(false),
            sends_finish_reasons: Arc::default(),
            slots: AtomicU32::new(0),
            rejected_efforts: AtomicU8::new(0),
        }
    }

    /// The protocol of requests with these quirks.
    fn protocol(&self, quirks: &Quirks) -> Protocol {
        if quirks.responses { Protocol::Responses } else { self.protocol }
    }

    /// The cache for requests with these quirks.
    fn prefix_cache(&self, quirks: &Quirks) -> &PrefixCache {
        &self.prefix_caches[self.protocol(quirks) as usize + 2 * usize::from(quirks.names)]
    }

    fn rendered_tools(&self, specs: &ToolSpecs, quirks: &Quirks) -> Arc<RenderedTools> {
        self.prefix_cache(quirks).lock().tools(specs, || {
            let mut shown = Arc::clone(specs);
            if !quirks.names {
                let safe = specs.iter().map(|spec| Arc::new(with_safe_names(spec)));
                shown = Arc::new(safe.collect());
            }
            let rendered = match self.protocol(quirks) {
                Protocol::Chat => RenderedTools::new(&shown, chat::render_tool),
                Protocol::Responses => RenderedTools::new(&shown, responses::render_tool),
            };
            RenderedTools { specs: Arc::clone(specs), ..rendered }
        })
    }

    /// The limit of an answer in tokens. A long one leaves room in the window: some servers add it to the request.
    fn output_limit(&self, quirks: &Quirks) -> Option<u64> {
        let window = self.window().unwrap_or_else(|| self.assumed_window());
        self.settings.max_output.or(quirks.long.then_some(LONG_ANSWER.min(window / 4)))
    }

    /// The body that would be sent now.
    pub(super) fn render_body(&self, request: &Request) -> Vec<u8> {
        self.render(&self.learned_quirks.quirks(), request).to_vec()
    }

    fn render(&self, quirks: &Quirks, request: &Request) -> RequestBody {
        let tools = self.rendered_tools(&request.tools, quirks);
        let style = RequestStyle {
            model: &self.settings.model,
            origin: &self.origin,
            quirks,
            aliases: &tools.aliases,
            tools: &tools.json,
            max_output: self.output_limit(quirks),
            extra_body: &self.settings.extra_body,
        };
        let prefix_cache = self.prefix_cache(quirks);
        match self.protocol(quirks) {
            Protocol::Chat => chat::render(prefix_cache, &style, request),
            Protocol::Responses => responses::render(prefix_cache, &style, request),
        }
    }

    fn reply_context(&self, tools: Arc<RenderedTools>) -> ReplyContext {
        ReplyContext {
            host: self.endpoint.host(),
            key_advice: self.endpoint.key_advice.clone(),
            secrets: self.endpoint.secrets.clone(),
            origin: Arc::clone(&self.origin),
            quirks: self.learned_quirks.quirks(),
            max_output: self.max_output(),
            window: self.window(),
            tools: (!tools.specs.is_empty()).then_some(tools),
            sends_finish_reasons: Arc::clone(&self.sends_finish_reasons),
        }
    }

    /// Sends the request, and adapts and resends it as long as the server names what it rejects.
    /// Adaptations that helped are recorded. Returns the protocol of the answer with it.
    async fn post(&self, request: &Request) -> Result<(Protocol, ReplyBody), LlmError> {
        let mut tried = Vec::new();
        let mut adaptation = QuirkPatch::NONE;
        let mut refusal = None;
        loop {
            // A concurrent request may have learned something meanwhile.
            let quirks = self.learned_quirks.quirks_with(adaptation);
            let protocol = self.protocol(&quirks);
            let body = self.render(&quirks, request);
            let headers = wanted_headers(&self.endpoint.host(), &quirks, request);
            let failure = match self.endpoint.post(protocol.path(), body, &headers).await {
                Ok(body) => {
                    self.learned_quirks.record_if_new(adaptation);
                    self.learned_quirks.has_accepted.store(true, Ordering::Relaxed);
                    return Ok((protocol, body));
                }
                Err(failure) => failure,
            };
            tried.push(quirks);
            let error = match refusal.take() {
                // A gateway may not have the protocol that its provider asks for.
                Some(first) if protocol != self.protocol && lacks_protocol(&failure) => {
                    adaptation = QuirkPatch::NONE;
                    first
                }
                _ => failure,
            };
            match self.learn(&error, &tried, adaptation, request) {
                Some(more) => adaptation = adaptation.merge(more),
                None => return Err(error),
            }
            refusal = Some(error);
        }
    }

    /// The next patch on top of `adaptation`: one that changes the request into one that has not
    /// been refused yet.
    fn learn(
        &self,
        error: &LlmError,
        tried: &[Quirks],
        adaptation: QuirkPatch,
        request: &Request,
    ) -> Option<QuirkPatch> {
        let refused = tried.last().filter(|_| tried.len() <= MAX_ADAPTATIONS)?;
        let mut candidates = self.learned_quirks.candidate_patches(error, refused, request.media());
        // The key may be for the usual protocol alone. A server that has answered may only be in trouble.
        let has_answered = self.learned_quirks.has_accepted.load(Ordering::Relaxed);
        let is_passing = has_answered && error.kind() != ErrorKind::Auth;
        if !is_passing && self.protocol(refused) != self.protocol && lacks_protocol(error) {
            candidates.push(QuirkPatch::NONE.responses(false));
        }
        // A limit that nobody has set must cost no answer: the request may fit without it.
        if refused.long && matches!(error.status(), Some(400 | 413 | 422)) {
            candidates.push(QuirkPatch::NONE.long(false));
        }
        let before = self.render(refused, request).to_vec();
        candidates.into_iter().find(|patch| {
            let quirks = self.learned_quirks.quirks_with(adaptation.merge(*patch));
            !tried.contains(&quirks) && self.render(&quirks, request).to_vec() != before
        })
    }

    /// Sends the request once without an effort, whoever has set it, and without signed thoughts. `None` if it
    /// cannot be rendered so.
    async fn post_without_reasoning(
        &self,
        request: &Request,
    ) -> Option<Result<(Protocol, ReplyBody), LlmError>> {
        let without_thoughts = QuirkPatch::NONE.details(false).encrypted(false);
        let quirks = self.learned_quirks.quirks().with(without_thoughts);
        let protocol = self.protocol(&quirks);
        let body = self.render(&quirks, request).to_vec();
        let mut fields: Map<String, Value> = serde_json::from_slice(&body).ok()?;
        fields.retain(|name, _| {
            !["reasoning_effort", "reasoning", "thinking"].contains(&name.as_str())
        });
        let mut body = RequestBody::default();
        body.append(Value::from(fields).to_string().into_bytes());
        let headers = wanted_headers(&self.endpoint.host(), &quirks, request);
        let answered = self.endpoint.post(protocol.path(), body, &headers).await;
        Some(answered.map(|body| (protocol, body)))
    }

    async fn fetch_model_names(&self) -> Result<Vec<String>, LlmError> {
        let models = self.endpoint.list_models().await?;
        let listed = models.iter().find(|model| model.name == self.settings.model);
        if let Some(server) = listed.and_then(|model| model.server) {
            self.local_server.get_or_init(|| server);
        }
        if let Some(model) = listed {
            self.learned_quirks.record_listed(model.price, model.takes_files);
        }
        // The server's own list is more reliable than the built-in table.
        if let Some(window) = listed.and_then(|model| model.window)
            && self.window().is_none_or(|known| window < known)
        {
            self.learned_quirks.record_window(window);
        }
        self.ask_server(self.local_server()).await;
        Ok(models.into_iter().map(|model| model.name).collect())
    }

    /// The local server, if it is one that says how it was started.
    fn local_server(&self) -> Option<LocalServer> {
        let known = self.local_server.get().copied();
        known.or_else(|| LocalServer::from_port(self.endpoint.port()))
    }

    /// Asks a local server for its window, which counts unless the user has set one, and its slots.
    async fn ask_server(&self, server: Option<LocalServer>) {
        let Some(server) = server else { return };
        let (window, slots) = server.facts(&self.endpoint, &self.settings.model).await;
        if let Some(slots) = slots {
            self.slots.store(slots, Ordering::Relaxed);
        }
        if let Some(window) = window.filter(|_| self.settings.window.is_none()) {
            self.learned_quirks.record_window(window);
            self.local_server.get_or_init(|| server);
        }
    }

    /// Asks the server that usually has this port, once, before the first request: the window decides which
    /// tools the request has.
    async fn ask_server_at_start(&self) {
        let port = self.endpoint.port();
        let probable = self.local_server().or_else(|| LocalServer::probably_at(port));
        self.asked_at_start.get_or_init(|| self.ask_server(probable)).await;
    }

    /// Asks for the list of models if it may name a window that matters to the first request. Public servers
    /// have well-known models with their usual windows.
    async fn list_for_window(&self) {
        let is_usual = self.settings.usual_window.is_some() && self.endpoint.is_encrypted();
        let is_needless = is_usual || self.settings.was_listed || self.settings.listing_disabled;
        if self.told_window().is_none() && !is_needless {
            self.first_list.get_or_init(|| self.fetch_model_names()).await.as_ref().ok();
        }
    }

    async fn list_model_names(&self) -> Result<Vec<String>, LlmError> {
        if self.has_given_first_list.swap(true, Ordering::Relaxed) {
            return self.fetch_model_names().await;
        }
        self.first_list.get_or_init(|| self.fetch_model_names()).await.clone()
    }

    /// Adds the names of similar models to an error about an unknown one.
    async fn with_name_suggestions(&self, mut error: LlmError) -> LlmError {
        if self.settings.listing_disabled {
            return error;
        }
        let listed = tokio::time::timeout(HINT_TIMEOUT, self.endpoint.list_models()).await;
        let names: Vec<_> =
            listed.into_iter().flatten().flatten().map(|model| model.name).collect();
        let mut suggestions = closest_names(&self.settings.model, &names);
        // A server that lists the model but refuses it means something else.
        suggestions.retain(|name| *name != self.settings.model);
        if let LlmError::Status { message, .. } = &mut error
            && !suggestions.is_empty()
        {
            let names: Vec<_> = suggestions.iter().map(|name| self.qualified_name(name)).collect();
            let all = names.join(", ");
            *message = format!("{}. Did you mean {all}?", message.trim_end_matches('.'));
        }
        error
    }

    async fn start_reply(&self, request: &Request) -> Result<Box<dyn ReplyStream>, LlmError> {
        let response = loop {
            let effort = self.accepted_effort(request.effort);
            let response = if effort == request.effort {
                self.post(request).await
            } else {
                self.post(&Request { effort, ..request.clone() }).await
            };
            match response {
                Err(error) if effort != ReasoningEffort::Default && error.is_effort_rejection() => {
                    self.rejected_efforts.fetch_or(1 << effort as u8, Ordering::Relaxed);
                }
                Err(error) if error.lacks_thought() => {
                    break self.post_without_reasoning(request).await.unwrap_or(Err(error));
                }
                response => break response,
            }
        };
        let tools = self.rendered_tools(&request.tools, &self.learned_quirks.quirks());
        let (protocol, body) = match response {
            Ok(answered) => answered,
            Err(error) if error.kind() == ErrorKind::ModelNotFound => {
                return Err(self.with_name_suggestions(error).await);
            }
            Err(error) => return recover_failed_generation(error, self.reply_context(tools)),
        };
        let context = self.reply_context(tools);
        let inner: Box<dyn ReplyStream> = match protocol {
            Protocol::Chat => {
                Box::new(HttpReplyStream::new(body, chat::ChatAssembler::new(context)))
            }
            Protocol::Responses => {
                Box::new(HttpReplyStream::new(body, responses::ResponsesAssembler::new(context)))
            }
        };
        Ok(Box::new(LearningStream {
            inner,
            learned_quirks: Arc::clone(&self.learned_quirks),
            quirks: self.learned_quirks.quirks(),
            media: request.media(),
            has_started: false,
        }))
    }
}

/// The headers that a host wants with a request. Copilot refuses images that no header announces, and counts each
/// request as a prompt unless it is told otherwise. xAI finds the machine with the cache by a name of the conversation.
fn wanted_headers(host: &str, quirks: &Quirks, request: &Request) -> Vec<(&'static str, String)> {
    let is_copilot = host.ends_with(".githubcopilot.com");
    let has_images = is_copilot && quirks.images && request.media().images;
    let goes_on = request.messages.last().is_some_and(|last| last.as_tool().is_some());
    let wanted = [
        has_images.then(|| ("copilot-vision-request", "true".to_owned())),
        (is_copilot && goes_on).then(|| ("x-initiator", "agent".to_owned())),
        (host == "api.x.ai").then(|| ("x-grok-conv-id", chat::cache_key(request))),
    ];
    wanted.into_iter().flatten().collect()
}

/// Returns true if a server that has accepted the key refuses another protocol as such.
fn lacks_protocol(error: &LlmError) -> bool {
    let kinds = [ErrorKind::UrlNotFound, ErrorKind::ModelNotFound, ErrorKind::Auth];
    kinds.contains(&error.kind()) || error.status() == Some(501)
}

/// Learns from the first error of a reply, because some servers refuse a request within the stream.
struct LearningStream {
    inner: Box<dyn ReplyStream>,
    learned_quirks: Arc<LearnedQuirks>,
    /// The quirks and the media of the request.
    quirks: Quirks,
    media: Modalities,
    /// A reply that has started is not a refusal.
    has_started: bool,
}

impl ReplyStream for LearningStream {
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>> {
        Box::pin(async {
            let outcome = self.inner.next(batch).await;
            let has_started = std::mem::replace(&mut self.has_started, true);
            match outcome {
                Err(error) if !has_started => Err(self.learn(error)),
                Ok(None) if batch.deltas.is_empty() => {
                    self.has_started = has_started;
                    Ok(None)
                }
                outcome => outcome,
            }
        })
    }
}

impl LearningStream {
    /// Learns from a refusal; if that succeeds, the error becomes one that is retried at once.
    fn learn(&self, mut error: LlmError) -> LlmError {
        let candidates = self.learned_quirks.candidate_patches(&error, &self.quirks, self.media);
        // The server may lack another protocol, and only a request would show it.
        if let Some(patch) = candidates.iter().find(|patch| patch.responses.is_none())
            && self.learned_quirks.may_learn_from_stream()
            && let LlmError::InStream { kind, retry_after, .. } = &mut error
        {
            self.learned_quirks.record_if_new(*patch);
            *kind = ErrorKind::Unavailable;
            *retry_after = None;
        }
        error
    }
}

/// Parses the model output that the server failed to parse and sent back with its error (quirk C.1
/// #23). Returns the error if that fails.
fn recover_failed_generation(
    error: LlmError,
    context: ReplyContext,
) -> Result<Box<dyn ReplyStream>, LlmError> {
    let LlmError::Status { failed_generation: Some(text), .. } = &error else { return Err(error) };
    let mut assembler = chat::ChatAssembler::new(context);
    let mut batch = DeltaBatch::default();
    if !assembler.recover_failed_generation(text, &mut batch) {
        return Err(error);
    }
    let reply = assembler.finish(&mut batch)?;
    Ok(Box::new(ReadyReply::new(batch, reply)))
}

impl Model for RemoteModel {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn window(&self) -> Option<u64> {
        self.told_window().or_else(|| {
            // The model's maximum does not matter if the server decides.
            self.settings.usual_window.filter(|_| self.local_server().is_none())
        })
    }

    fn told_window(&self) -> Option<u64> {
        self.learned_quirks.window().or(self.settings.window)
    }

    fn concurrent_requests(&self) -> Option<u32> {
        Some(self.slots.load(Ordering::Relaxed)).filter(|slots| *slots > 0)
    }

    fn refresh_window(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.ask_server(self.local_server()))
    }

    fn assumed_window(&self) -> u64 {
        self.settings.assumed_window.unwrap_or(DEFAULT_ASSUMED_WINDOW)
    }

    fn max_output(&self) -> Option<u64> {
        self.output_limit(&self.learned_quirks.quirks())
    }

    fn record_window(&self, tokens: u64) {
        self.learned_quirks.record_window(tokens);
    }

    fn profile(&self) -> ModelProfile {
        self.learned_quirks.profile()
    }

    fn record_quirks(&self, patch: QuirkPatch) -> bool {
        self.learned_quirks.record_quirks(patch)
    }

    fn with_trial_quirks(&self, patch: QuirkPatch) -> Option<Box<dyn Model>> {
        let mut profile = self.learned_quirks.profile();
        profile.quirks = profile.quirks.merge(patch);
        let settings = ModelSettings { profile, save_profile: None, ..self.settings.clone() };
        let endpoint = Arc::clone(&self.endpoint);
        Some(Box::new(RemoteModel::with_endpoint(self.protocol, endpoint, settings)))
    }

    fn price(&self) -> Option<Price> {
        self.settings.price.or_else(|| self.learned_quirks.price())
    }

    fn host(&self) -> String {
        self.endpoint.host()
    }

    fn silence_limit(&self) -> Duration {
        self.settings.silence_limit.unwrap_or(DEFAULT_SILENCE_LIMIT)
    }

    fn modalities(&self) -> Modalities {
        let quirks = self.learned_quirks.quirks();
        // The Responses API does not support audio.
        let is_chat = self.protocol(&quirks) == Protocol::Chat;
        Modalities { images: quirks.images, files: quirks.files, audio: quirks.audio && is_chat }
    }

    fn nudges_leaked_calls(&self) -> bool {
        // Calls that could be parsed are calls by now.
        self.learned_quirks.quirks().leaked != LeakedCallHandling::Off
    }

    fn prefers_apply_patch(&self) -> bool {
        self.learned_quirks.quirks().patches
    }

    fn accepted_effort(&self, wanted: ReasoningEffort) -> ReasoningEffort {
        let is_rejected = self.rejected_efforts.load(Ordering::Relaxed) & (1 << wanted as u8) != 0;
        match wanted {
            _ if !is_rejected => wanted,
            ReasoningEffort::ExtraHigh => self.accepted_effort(ReasoningEffort::High),
            _ => ReasoningEffort::Default,
        }
    }

    fn supports_effort(&self) -> bool {
        self.learned_quirks.quirks().supports_effort()
    }

    fn server_id(&self) -> String {
        self.endpoint.base_url()
    }

    fn qualified_name(&self, model: &str) -> String {
        let provider = self.settings.provider.as_ref();
        provider.map_or_else(|| model.to_owned(), |provider| format!("{provider}/{model}"))
    }

    fn corrected_base_url(&self) -> Option<String> {
        self.endpoint.corrected_base_url()
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, LlmError>> {
        Box::pin(self.list_model_names())
    }

    fn has_model_list(&self) -> bool {
        !self.settings.listing_disabled
    }

    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.endpoint.warm_up().await;
            self.ask_server_at_start().await;
        })
    }

    fn find_window(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.ask_server_at_start().await;
            self.list_for_window().await;
        })
    }

    fn open_stream<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>> {
        Box::pin(self.start_reply(request))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use turnwright_types::message::{
        Media, Message, PromptPart, ToolCall, ToolMessage, UserMessage,
    };

    #[test]
    fn a_protocol_that_the_user_has_named_is_not_that_of_the_table() {
        for (has_named_api, expected) in [(false, Protocol::Responses), (true, Protocol::Chat)] {
            let endpoint = Endpoint::new("https://api.x.ai/v1", None).unwrap();
            let model = "grok-4.6".to_owned();
            let settings = ModelSettings { model, has_named_api, ..ModelSettings::default() };
            let model = RemoteModel::new(Protocol::Chat, endpoint, settings);
            assert_eq!(model.protocol(&model.learned_quirks.quirks()), expected);
        }
    }

    fn request(last: Message) -> Request {
        Request {
            system: "".into(),
            messages: vec![Arc::new(Message::User(UserMessage::text("Hi."))), Arc::new(last)],
            tools: Arc::default(),
            effort: ReasoningEffort::Default,
            has_media: true,
        }
    }

    fn names(host: &str, last: Message) -> Vec<&'static str> {
        let headers = wanted_headers(host, &Quirks::default(), &request(last));
        headers.iter().map(|(name, _)| *name).collect()
    }

    /// pi#222, copilot-api#16.
    #[test]
    fn images_are_announced_to_copilot_alone() {
        let media = Media { mime: "image/png".to_owned(), data: "AA==".to_owned() };
        let image = Message::User(UserMessage::new(vec![PromptPart::Image(media)]));
        for (host, expected) in [
            ("api.githubcopilot.com", Some("copilot-vision-request")),
            ("api.business.githubcopilot.com", Some("copilot-vision-request")),
            ("githubcopilot.com.example", None),
        ] {
            assert_eq!(names(host, image.clone()).first().copied(), expected, "{host}");
        }
        let words = Message::User(UserMessage::text("Hi."));
        assert!(names("api.githubcopilot.com", words).is_empty());
    }

    #[test]
    fn a_request_that_goes_on_with_a_prompt_is_none_to_copilot() {
        let call = ToolCall::new("call", "p", "exec", json!({}));
        let result = Message::Tool(ToolMessage::new(&call, "out", true));
        assert_eq!(names("api.githubcopilot.com", result.clone()), ["x-initiator"]);
        assert!(names("localhost", result).is_empty());
    }

    #[test]
    fn a_conversation_keeps_its_name_at_xai() {
        let name = |words: &str| {
            let last = Message::User(UserMessage::text(words));
            wanted_headers("api.x.ai", &Quirks::default(), &request(last))
        };
        assert_eq!(name("one")[0].0, "x-grok-conv-id");
        assert_eq!(name("one"), name("two"));
    }
}
