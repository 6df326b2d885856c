//! Searches the web with a service that the user's settings name. A service that is throttled, refuses or fails gives an
//! error, and never an empty list of results. No redirect is followed, because the request has the key and the query.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use url::Url;

use super::address_guard::HostAccess;
use super::{
    FetchError, FetchedBody, WebFetcher, host_and_port, is_loopback, parse_url, request_failed,
};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::patience::timeout;
use turnwright_types::secret::Secret;
use turnwright_types::text;

/// The most bytes of an answer. The largest ones of these services have some hundred kilobytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// The most results that are taken; the services are asked for as many. SearXNG takes no number.
const MAX_RESULTS: usize = 8;
const MAX_TITLE_CHARS: usize = 200;
const MAX_EXCERPT_CHARS: usize = 400;

/// The status of an answer to too many searches, after which a search is repeated once.
const TOO_MANY: u16 = 429;
/// Words about credit that is spent.
const SPENT: [&str; 3] = ["enough credits", "insufficient balance", "insufficient_quota"];
/// Some plans allow one search in a second, and models like to ask for several at once.
const RATE_PAUSE: Duration = Duration::from_millis(1_100);
/// Lets one search at a time wait for its repetition, so that not all of them come at once again.
static REPETITION: Semaphore = Semaphore::const_new(1);

/// The names that the services have for the date and the excerpt of a result, the best first.
const DATE: &[&str] = &["date", "publishedDate", "page_age", "publish_date"];
const EXCERPT: &[&str] = &["highlights", "snippet", "description", "summary", "content", "text"];

/// The places of the pages that a model cites, in the Responses API and in Chat Completions, and of those that it has
/// only seen. `*` stands for each element of a list.
const CITATIONS: &[&str] = &[
    "output/*/content/*/annotations/*",
    "choices/*/message/annotations/*/url_citation",
    "output/*/action/sources/*",
];
/// The places of the model's words.
const MODEL_WORDS: &[&str] = &["output/*/content/*/text", "choices/*/message/content"];
/// The time that a model has to search and to answer.
const MODEL_PATIENCE: Duration = Duration::from_secs(90);

/// All services. The last five belong to providers of models.
static BACKENDS: LazyLock<Vec<SearchBackend>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("search_backends.json")).unwrap_or_default()
});

/// A service that searches the web: what it is sent, and where the results are in its answer.
#[derive(Debug, Deserialize)]
struct SearchBackend {
    name: String,
    /// The address of its API; empty if it runs on a server of the user's own, and needs no key.
    #[serde(default)]
    address: String,
    /// The header of the key, if it is not `authorization`.
    key_header: Option<String>,
    /// The fields are the query of a GET, as opposed to the body of a POST.
    #[serde(default)]
    is_get: bool,
    /// The fields of a request, with `WORDS` for the words and `MODEL` for the model.
    request: Map<String, Value>,
    /// The place of the results in the answer.
    #[serde(default)]
    list: String,
    /// The model that usually searches, if one does. The pages that it cites are the results.
    model: Option<String>,
}

impl SearchBackend {
    /// Reads the results in an answer.
    ///
    /// # Errors
    /// If the answer does not say for certain that there are none.
    fn results(&self, answer: &Value) -> Result<Vec<String>, String> {
        let name = &self.name;
        if self.model.is_some() {
            // Without citations, the model may not have searched at all.
            let cited = Some(cited_pages(answer)).filter(|pages| !pages.is_empty());
            return cited.ok_or_else(|| format!("{name} has cited no page"));
        }
        let list = answer.pointer(&self.list).and_then(Value::as_array);
        let found = list.into_iter().flatten().filter_map(read_result);
        let results: Vec<_> = found.take(MAX_RESULTS).collect();
        // The search engines that SearXNG asks.
        let silent = answer["unresponsive_engines"].as_array().filter(|all| !all.is_empty());
        match list {
            _ if !results.is_empty() => Ok(results),
            Some(_) if silent.is_some() => Err(format!(
                "{name} found nothing, because some of its search engines did not answer"
            )),
            Some(list) if list.is_empty() && answer["error"].is_null() => Ok(results),
            // It leaves out a list without entries.
            None if name == "brave" && answer["type"] == "search" => Ok(results),
            _ => Err(format!("{name} answered with something other than results")),
        }
    }
}

/// Puts the words and the model into a part of a request.
fn fill(part: &mut Value, words: &str, model: &str) {
    match part {
        Value::String(text) if *text == "MODEL" => model.clone_into(text),
        Value::String(text) => *text = text.replace("WORDS", words),
        Value::Array(list) => list.iter_mut().for_each(|inner| fill(inner, words, model)),
        Value::Object(fields) => fields.values_mut().for_each(|inner| fill(inner, words, model)),
        _ => {}
    }
}

/// The values at a place of an answer, where `*` stands for each element of a list.
fn values_at<'a>(answer: &'a Value, place: &str) -> Vec<&'a Value> {
    place.split('/').fold(vec![answer], |values, step| {
        let each = values.into_iter();
        match step {
            "*" => each.filter_map(Value::as_array).flatten().collect(),
            field => each.filter_map(|value| value.get(field)).collect(),
        }
    })
}

/// Reads the pages that a model cites, each once. If a citation has no excerpt, the model's line about the page is one.
fn cited_pages(answer: &Value) -> Vec<String> {
    let words = MODEL_WORDS.iter().flat_map(|place| values_at(answer, place));
    let lines: Vec<_> = words.filter_map(Value::as_str).flat_map(str::lines).collect();
    let mut known = HashSet::new();
    let mut pages = Vec::new();
    for citation in CITATIONS.iter().flat_map(|place| values_at(answer, place)) {
        let Some(cited) = citation["url"].as_str() else { continue };
        let untagged = cited.strip_suffix("utm_source=openai");
        let address = untagged.map_or(cited, |start| start.trim_end_matches(['?', '&']));
        if pages.len() == MAX_RESULTS || parse_url(address).is_err() || !known.insert(address) {
            continue;
        }
        let mut page = citation.clone();
        page["url"] = address.into();
        if line(&page, EXCERPT, MAX_EXCERPT_CHARS).is_none() {
            page["content"] = lines.iter().find(|line| line.contains(cited)).copied().into();
        }
        pages.extend(read_result(&page));
    }
    pages
}

/// Reads a result: its title, address, date and excerpt in a line each. One without an address that can be fetched is
/// none.
fn read_result(entry: &Value) -> Option<String> {
    let address = entry["url"].as_str().or_else(|| entry["link"].as_str())?;
    let lines = [
        line(entry, &["title"], MAX_TITLE_CHARS),
        Some(parse_url(address).ok()?.to_string()),
        line(entry, DATE, MAX_TITLE_CHARS),
        line(entry, EXCERPT, MAX_EXCERPT_CHARS),
    ];
    Some(lines.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

/// The first of these fields that has words, in one line.
fn line(entry: &Value, names: &[&str], most: usize) -> Option<String> {
    names.iter().find_map(|name| {
        let list = entry[*name].as_array().map_or(&[][..], Vec::as_slice);
        let parts = list.iter().chain([&entry[*name]]).filter_map(Value::as_str);
        let words = text::one_line(&parts.collect::<Vec<_>>().join(" … "));
        (!words.is_empty()).then(|| text::clip(escape_hidden_line(&words), most))
    })
}

/// The names of the services.
pub fn search_names() -> Vec<&'static str> {
    BACKENDS.iter().map(|backend| backend.name.as_str()).collect()
}

/// A service as the user's settings name it.
#[derive(Clone, Debug)]
pub struct SearchService {
    backend: &'static SearchBackend,
    url: Url,
    pub key: Option<Secret>,
    /// The model that searches, if it is not the usual one.
    pub model: Option<String>,
}

impl SearchService {
    /// The service of this name at its usual address, or at the one that the settings have. `None` if there is no such
    /// service, or it has no address.
    pub fn new(name: &str, address: Option<&str>) -> Option<SearchService> {
        let backend = BACKENDS.iter().find(|backend| backend.name == name)?;
        let mut url = parse_url(address.unwrap_or(&backend.address)).ok()?;
        if backend.address.is_empty() {
            let page = url.path().trim_end_matches('/').trim_end_matches("/search");
            let path = format!("{page}/search");
            url.set_path(&path);
        }
        Some(SearchService { backend, url, key: None, model: None })
    }

    pub fn name(&self) -> &'static str {
        &self.backend.name
    }

    /// The host that learns what is searched for.
    pub fn host(&self) -> String {
        host_and_port(&self.url)
    }

    pub fn needs_key(&self) -> bool {
        !self.backend.address.is_empty()
    }

    /// Asks the service. Returns the results, of several lines each, which are a stranger's words. Cancel safe.
    ///
    /// # Errors
    /// Why there are none, as the end of a sentence.
    pub async fn search(&self, web: &WebFetcher, words: &str) -> Result<Vec<String>, String> {
        self.check_key()?;
        let is_model = self.backend.model.is_some();
        let limit = if is_model { MODEL_PATIENCE } else { web.limits.total };
        let asking = async {
            let first = web.ask_service(self, words).await?;
            if first.status != TOO_MANY {
                return Ok(first);
            }
            {
                let _turn = REPETITION.acquire().await;
                sleep(RATE_PAUSE).await;
            }
            web.ask_service(self, words).await
        };
        let answered = timeout(limit, asking).await;
        let answer = answered.unwrap_or(Err(FetchError::Timeout { host: self.host(), limit }));
        let body = answer.map_err(|error| match error {
            FetchError::Blocked { host, what } => {
                format!("{host} leads to {what} address, to which nothing is sent")
            }
            other => other.to_string(),
        })?;
        if body.status != 200 {
            return Err(self.refusal(body.status, &body.bytes));
        }
        if body.is_truncated || body.bytes.len() > MAX_ANSWER_BYTES {
            return Err(format!("{} has sent more than {MAX_ANSWER_BYTES} bytes", self.name()));
        }
        let answer: Value = serde_json::from_slice(&body.bytes).map_err(|_| {
            format!("{} did not answer with JSON; is {} its API?", self.name(), self.host())
        })?;
        // OpenRouter reports what fails once it has begun to answer in the body only.
        let code = answer["error"]["code"].as_u64().filter(|_| is_model);
        let failed = code.and_then(|code| u16::try_from(code).ok());
        failed.map_or_else(|| self.backend.results(&answer), |code| Err(self.refusal(code, &[])))
    }

    /// Checks what can be checked of the key before anything is sent.
    pub fn check_key(&self) -> Result<(), String> {
        let why = match &self.key {
            None if self.needs_key() => "needs a key; `turnwright login search` stores one",
            Some(_) if self.url.scheme() == "http" && !is_loopback(&self.url) => {
                "gets its key only with encryption; `web.search_url` must begin with https"
            }
            _ => return Ok(()),
        };
        Err(format!("{} {why}", self.name()))
    }

    /// Says what an answer with another status than 200 means.
    fn refusal(&self, status: u16, body: &[u8]) -> String {
        let said = String::from_utf8_lossy(body).to_lowercase();
        let is_spent = SPENT.iter().any(|words| said.contains(words));
        let why = match status {
            // Serper has 400 for this, Perplexity 401 and z.ai 429.
            _ if is_spent || matches!(status, 402 | 432 | 433) => {
                "has no searches left for this key or its plan"
            }
            // Brave.
            422 if said.contains("subscription_token") => "refuses the key",
            403 if !self.needs_key() => {
                "does not answer with JSON: add `json` to `search.formats` in its settings.yml"
            }
            401 | 403 => "refuses the key",
            400 | 404 if self.backend.model.is_some() => {
                "refuses the query or the model; `web.search_model` can name another model"
            }
            TOO_MANY if self.backend.model.is_some() => {
                "has had too many requests, or no credit is left for this key"
            }
            202 | TOO_MANY => "has had too many searches",
            400 | 413 | 414 | 422 => "refuses this query; a shorter one may help",
            300..400 => "redirects to another address, which is not followed",
            _ => "has failed",
        };
        format!("{} {why} (status {status})", self.name())
    }
}

impl WebFetcher {
    /// Sends a query to a service.
    async fn ask_service(
        &self,
        service: &SearchService,
        words: &str,
    ) -> Result<FetchedBody, FetchError> {
        let backend = service.backend;
        let mut url = service.url.clone();
        // An address in the settings may be of any network, as a host that the user has allowed.
        let is_usual = url.as_str() == backend.address;
        let access = if is_usual { HostAccess::Public } else { HostAccess::Any };
        let built = self.get_or_build_client(access).await;
        let client = built.map_err(|reason| request_failed(&url, reason))?;
        let mut fields = Value::Object(backend.request.clone());
        let model = service.model.as_deref().or(backend.model.as_deref());
        fill(&mut fields, words, model.unwrap_or_default());
        let mut request = if backend.is_get {
            for (name, value) in fields.as_object().into_iter().flatten() {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                url.query_pairs_mut().append_pair(name, &shown);
            }
            client.get(url.clone())
        } else {
            let body = fields.to_string();
            client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body)
        };
        if let Some(key) = &service.key {
            request = match &backend.key_header {
                Some(name) => request.header(name.as_str(), key.expose()),
                None => request.bearer_auth(key.expose()),
            };
        }
        let sent = request.header(ACCEPT, "application/json").send().await;
        // The address has the query, and may have a key.
        let response = sent.map_err(|error| self.classify_error(&url, &error.without_url()))?;
        self.read_body(url, response).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backend_of(name: &str) -> &'static SearchBackend {
        SearchService::new(name, Some("https://a.example/")).unwrap().backend
    }

    #[test]
    fn only_results_that_can_be_fetched_are_left() {
        let answer = json!({ "results": [
            { "url": "https://docs.rs/a", "title": " A\n\u{202e}title ", "highlights": ["one", "two"],
              "text": "x", "publishedDate": "2026-10-02" },
            { "url": "javascript:alert(1)", "title": "no" },
            { "url": "https://me:word@docs.rs/", "title": "no" },
            { "url": format!("https://docs.rs/{}", "x".repeat(9_000)), "title": "no" },
            { "title": "no" },
            { "link": "http://b.docs.rs/", "title": "", "text": "é".repeat(1_000) },
            { "url": "https://docs.rs/alone" },
        ] });
        let results = backend_of("exa").results(&answer).unwrap();
        assert_eq!(results[0], "A \\u{202e}title\nhttps://docs.rs/a\n2026-10-02\none … two");
        assert!(results[1].starts_with("http://b.docs.rs/\né") && results.len() == 3);
        assert!(results[1].chars().count() < MAX_EXCERPT_CHARS + 30, "{}", results[1]);
        let odd = json!({ "url": null, "link": "https://docs.rs/n", "title": 7, "date": {},
                          "snippet": ["x", 3] });
        assert_eq!(read_result(&odd).as_deref(), Some("https://docs.rs/n\nx"));
        assert_eq!(read_result(&json!("https://docs.rs/n")), None);
    }

    #[test]
    fn only_a_list_without_entries_means_that_nothing_was_found() {
        let silent = json!({ "results": [], "unresponsive_engines": [["google", "CAPTCHA"]] });
        for (name, answer, expected) in [
            ("tavily", json!({ "results": [] }), ""),
            ("tavily", json!({ "results": [], "error": null }), ""),
            ("brave", json!({ "type": "search", "query": {} }), ""),
            ("brave", json!({ "type": "ErrorResponse" }), "something other than results"),
            ("tavily", json!({ "results": [], "error": "busy" }), "something other than results"),
            ("tavily", json!({ "detail": { "error": "no" } }), "something other than results"),
            ("tavily", json!({ "results": "none" }), "something other than results"),
            ("zai", json!({ "code": 1211, "msg": "no" }), "something other than results"),
            ("serper", json!([]), "something other than results"),
            ("exa", json!({ "results": [{ "id": 1 }] }), "something other than results"),
            ("searxng", silent, "search engines did not answer"),
            ("searxng", json!({ "results": [], "unresponsive_engines": [] }), ""),
        ] {
            match backend_of(name).results(&answer) {
                Ok(results) => assert!(results.is_empty() && expected.is_empty(), "{answer}"),
                Err(why) => {
                    assert!(!expected.is_empty() && why.ends_with(expected), "{name}: {why}");
                    assert!(why.starts_with(name), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_wrong_key_and_spent_credit_are_recognised_behind_other_statuses() {
        let spent = "has no searches left for this key or its plan";
        for (name, status, body, expected) in [
            (
                "brave",
                422,
                r#"{"error":{"code":"SUBSCRIPTION_TOKEN_INVALID","status":422}}"#,
                "refuses the key",
            ),
            (
                "brave",
                422,
                r#"{"error":{"code":"VALIDATION"}}"#,
                "refuses this query; a shorter one may help",
            ),
            ("serper", 400, r#"{"message":"Not enough credits","statusCode":400}"#, spent),
            ("perplexity", 401, r#"{"error":{"type":"insufficient_quota","code":401}}"#, spent),
            ("zai", 429, r#"{"error":{"code":"1113","message":"Insufficient balance"}}"#, spent),
            ("zai", 429, r#"{"error":{"code":"1302"}}"#, "has had too many searches"),
        ] {
            let service = SearchService::new(name, None).unwrap();
            let refusal = service.refusal(status, body.as_bytes());
            assert_eq!(refusal, format!("{name} {expected} (status {status})"));
        }
    }

    #[test]
    fn the_address_of_searxng_is_that_of_its_page() {
        let address = |text: &str| Some(SearchService::new("searxng", Some(text))?.url.to_string());
        for text in ["", "/", "/search", "/search/"] {
            let page = format!("http://box:8080{text}");
            assert_eq!(address(&page).as_deref(), Some("http://box:8080/search"), "{page}");
        }
        assert_eq!(
            address("https://a.example/sx/").as_deref(),
            Some("https://a.example/sx/search")
        );
        assert_eq!(address("http://me:word@box/"), None);
        assert!(SearchService::new("searxng", None).is_none());
        assert!(SearchService::new("google", Some("http://box/")).is_none());
    }
}
