//! The services that search the web: what each is sent, and how its answer is read. Does no I/O.

use serde_json::{Map, Value, json};
use url::Url;

use super::WebQuery;
use crate::web::parse_url;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

const MAX_URL_BYTES: usize = 2_000;
const MAX_TITLE_CHARS: usize = 200;
const MAX_EXCERPT_CHARS: usize = 400;
const MAX_DATE_CHARS: usize = 40;
/// The most search engines that an error names, and the most characters of their names.
const MAX_ENGINES: usize = 5;
const MAX_ENGINE_CHARS: usize = 300;

/// The names that the services have for the date and the excerpt of a result, the best first.
const DATE: &[&str] = &["date", "publishedDate", "page_age", "publish_date"];
const EXCERPT: &[&str] = &["highlights", "snippet", "description", "summary", "content", "text"];

/// A service that searches the web.
#[derive(Debug)]
pub struct SearchBackend {
    pub name: &'static str,
    /// The variable that usually holds its key; `None` if it has none.
    pub key_env: Option<&'static str>,
    /// The address of its API; `None` if it runs on a server of the user's own.
    pub(super) url: Option<&'static str>,
    /// The header of the key, and what precedes the key in it.
    pub(super) key_header: (&'static str, &'static str),
    /// The fields are the query of a GET, as opposed to the body of a POST.
    pub(super) is_get: bool,
    /// The fields for the words, for the number of results and for domains. One that it does not have is empty.
    fields: [&'static str; 3],
    /// Further fields as JSON.
    more: &'static str,
    /// The place of the results in the answer.
    list: &'static str,
}

/// All services. Those behind Serper belong to providers of models, and have the same key.
pub const SEARCH_BACKENDS: &[SearchBackend] = &[
    SearchBackend { key_env: None, url: None, ..post("searxng", "", "") }
        .get(r#"{"format":"json"}"#)
        .fields("q", "", ""),
    post("brave", "BRAVE_API_KEY", "https://api.search.brave.com/res/v1/web/search")
        .get(r#"{"text_decorations":false}"#)
        .key_header("x-subscription-token")
        .fields("q", "count", "")
        .list("/web/results"),
    post("tavily", "TAVILY_API_KEY", "https://api.tavily.com/search")
        .fields("query", "max_results", "include_domains"),
    post("exa", "EXA_API_KEY", "https://api.exa.ai/search")
        .more(r#"{"contents":{"highlights":true}}"#)
        .key_header("x-api-key")
        .fields("query", "numResults", "includeDomains"),
    post("perplexity", "PERPLEXITY_API_KEY", "https://api.perplexity.ai/search")
        .fields("query", "max_results", "search_domain_filter"),
    post("serper", "SERPER_API_KEY", "https://google.serper.dev/search")
        .key_header("x-api-key")
        .fields("q", "num", "")
        .list("/organic"),
    post("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1/tools/search")
        .fields("query", "count", ""),
    post("zai", "ZAI_API_KEY", "https://api.z.ai/api/paas/v4/web_search")
        .more(r#"{"search_engine":"search-prime"}"#)
        .fields("search_query", "count", "")
        .list("/search_result"),
    post("ollama", "OLLAMA_API_KEY", "https://ollama.com/api/web_search")
        .fields("query", "max_results", ""),
];

/// The service of this name.
pub fn search_backend(name: &str) -> Option<&'static SearchBackend> {
    SEARCH_BACKENDS.iter().find(|backend| backend.name == name)
}

/// A service that gets JSON, with the key in the usual header.
const fn post(name: &'static str, key_env: &'static str, url: &'static str) -> SearchBackend {
    SearchBackend {
        name,
        key_env: Some(key_env),
        url: Some(url),
        key_header: ("authorization", "Bearer "),
        is_get: false,
        fields: [""; 3],
        more: "{}",
        list: "/results",
    }
}

impl SearchBackend {
    const fn get(self, more: &'static str) -> SearchBackend {
        SearchBackend { is_get: true, more, ..self }
    }

    const fn more(self, more: &'static str) -> SearchBackend {
        SearchBackend { more, ..self }
    }

    const fn key_header(self, name: &'static str) -> SearchBackend {
        SearchBackend { key_header: (name, ""), ..self }
    }

    const fn fields(
        self,
        words: &'static str,
        count: &'static str,
        domains: &'static str,
    ) -> SearchBackend {
        SearchBackend { fields: [words, count, domains], ..self }
    }

    const fn list(self, list: &'static str) -> SearchBackend {
        SearchBackend { list, ..self }
    }

    /// The fields of the request. Where there is none for domains, the words name them.
    pub(super) fn request(&self, query: &WebQuery) -> Map<String, Value> {
        let [words, count, domains] = self.fields;
        let mut asked = query.words.clone();
        if domains.is_empty() && !query.domains.is_empty() {
            asked.push_str(&format!(" site:{}", query.domains.join(" OR site:")));
        }
        let mut fields: Map<String, Value> = serde_json::from_str(self.more).unwrap_or_default();
        let all = [
            (words, asked.into()),
            (count, query.count.into()),
            (domains, query.domains.clone().into()),
        ];
        let sent = all.into_iter().filter(|(name, value)| !name.is_empty() && *value != json!([]));
        fields.extend(sent.map(|(name, value)| (name.to_owned(), value)));
        fields
    }

    /// Reads the results in an answer.
    ///
    /// # Errors
    /// If the answer does not say for certain that there are none.
    pub(super) fn hits(&self, answer: &Value, query: &WebQuery) -> Result<Vec<WebHit>, String> {
        let list = answer.pointer(self.list).and_then(Value::as_array);
        let mut hits: Vec<_> = list.into_iter().flatten().filter_map(WebHit::read).collect();
        if hits.is_empty() {
            self.check_that_nothing_was_found(answer, list)?;
        }
        hits.retain(|hit| query.allows(&hit.url));
        hits.truncate(query.count);
        Ok(hits)
    }

    fn check_that_nothing_was_found(
        &self,
        answer: &Value,
        list: Option<&Vec<Value>>,
    ) -> Result<(), String> {
        let name = self.name;
        // SearXNG says so of the search engines that it asks.
        let mut silent = Vec::new();
        for engine in answer["unresponsive_engines"].as_array().into_iter().flatten() {
            let [engine, why] = [0_usize, 1].map(|index| engine[index].as_str().unwrap_or("?"));
            silent.push(format!("{engine} ({why})"));
        }
        if !silent.is_empty() {
            let shown = escape_hidden_line(&text::join_first(&silent, MAX_ENGINES));
            return Err(format!(
                "{name} has nothing, because search engines did not answer it: {}",
                text::clip(shown, MAX_ENGINE_CHARS)
            ));
        }
        match list {
            Some(list) if !list.is_empty() => {
                Err(format!("{name} has sent results in an unknown form"))
            }
            Some(_) if answer["error"].is_null() => Ok(()),
            // It leaves out a list without entries.
            None if name == "brave" && answer["type"] == "search" => Ok(()),
            _ => Err(format!("{name} has answered with an error in place of results")),
        }
    }
}

/// A result of a search. Its words are a stranger's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebHit {
    pub title: String,
    pub url: Url,
    pub date: Option<String>,
    pub excerpt: Option<String>,
}

impl WebHit {
    /// Reads a result. One without an address that can be fetched is none.
    fn read(entry: &Value) -> Option<WebHit> {
        let address = entry["url"].as_str().or_else(|| entry["link"].as_str())?;
        let url = parse_url(address).ok().filter(|url| url.as_str().len() <= MAX_URL_BYTES)?;
        let title = line(entry, &["title"], MAX_TITLE_CHARS);
        Some(WebHit {
            title: title.unwrap_or_else(|| url.host_str().unwrap_or_default().to_owned()),
            url,
            date: line(entry, DATE, MAX_DATE_CHARS),
            excerpt: line(entry, EXCERPT, MAX_EXCERPT_CHARS),
        })
    }
}

/// The first of these fields that has words, in one line.
fn line(entry: &Value, names: &[&str], most: usize) -> Option<String> {
    names.iter().find_map(|name| {
        let words = match &entry[*name] {
            Value::String(words) => text::one_line(words),
            Value::Array(parts) => {
                let parts: Vec<_> = parts.iter().filter_map(Value::as_str).collect();
                text::one_line(&parts.join(" … "))
            }
            _ => return None,
        };
        (!words.is_empty()).then(|| text::clip(escape_hidden_line(&words), most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(domains: &[&str]) -> WebQuery {
        let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
        WebQuery { words: "rust async".to_owned(), count: 3, domains }
    }

    #[test]
    fn each_service_gets_the_fields_of_its_api() {
        for (name, expected) in [
            ("searxng", json!({ "format": "json", "q": "rust async site:a.rs OR site:b.rs" })),
            (
                "brave",
                json!({ "text_decorations": false, "count": 3, "q": "rust async site:a.rs OR site:b.rs" }),
            ),
            (
                "tavily",
                json!({ "query": "rust async", "max_results": 3, "include_domains": ["a.rs", "b.rs"] }),
            ),
            (
                "exa",
                json!({ "contents": { "highlights": true }, "query": "rust async", "numResults": 3,
                    "includeDomains": ["a.rs", "b.rs"] }),
            ),
            (
                "perplexity",
                json!({ "query": "rust async", "max_results": 3, "search_domain_filter": ["a.rs", "b.rs"] }),
            ),
            ("serper", json!({ "q": "rust async site:a.rs OR site:b.rs", "num": 3 })),
            ("deepseek", json!({ "query": "rust async site:a.rs OR site:b.rs", "count": 3 })),
            (
                "zai",
                json!({ "search_engine": "search-prime", "count": 3,
                    "search_query": "rust async site:a.rs OR site:b.rs" }),
            ),
            ("ollama", json!({ "query": "rust async site:a.rs OR site:b.rs", "max_results": 3 })),
        ] {
            let backend = search_backend(name).unwrap();
            assert_eq!(Value::Object(backend.request(&query(&["a.rs", "b.rs"]))), expected, "{name}");
            let plain = Value::Object(backend.request(&query(&[]))).to_string();
            assert!(plain.contains("\"rust async\"") && !plain.contains("omain"), "{plain}");
        }
        assert_eq!(SEARCH_BACKENDS.len(), 9, "each service is in the table");
    }

    #[test]
    fn only_results_that_can_be_fetched_from_the_named_domains_are_left() {
        let exa = search_backend("exa").unwrap();
        let answer = json!({ "results": [
            { "url": "https://docs.rs/a", "title": " A\n\u{202e}title ", "highlights": ["one", "two"], "text": "x",
              "publishedDate": "2026-10-02" },
            { "url": "https://notdocs.rs/b" },
            { "url": "javascript:alert(1)", "title": "no" },
            { "url": "https://me:word@docs.rs/", "title": "no" },
            { "title": "no" },
            { "link": "http://b.docs.rs/", "title": "", "text": "é".repeat(1_000) },
            { "url": "https://docs.rs/c" },
            { "url": "https://docs.rs/one-too-many" },
        ] });
        let hits = exa.hits(&answer, &query(&["docs.rs"])).unwrap();
        let urls: Vec<_> = hits.iter().map(|hit| hit.url.as_str()).collect();
        assert_eq!(urls, ["https://docs.rs/a", "http://b.docs.rs/", "https://docs.rs/c"]);
        let first = WebHit {
            title: "A \\u{202e}title".to_owned(),
            url: Url::parse("https://docs.rs/a").unwrap(),
            date: Some("2026-10-02".to_owned()),
            excerpt: Some("one … two".to_owned()),
        };
        assert_eq!(hits[0], first);
        assert_eq!(hits[1].title, "b.docs.rs");
        assert!(hits[1].excerpt.as_ref().unwrap().chars().count() <= MAX_EXCERPT_CHARS + 1);
        assert_eq!(exa.hits(&answer, &query(&["nowhere.example"])), Ok(Vec::new()));
    }

    #[test]
    fn only_a_list_without_entries_means_that_nothing_was_found() {
        let silent = json!({ "results": [], "unresponsive_engines": [["google", "CAPTCHA"], [1]] });
        for (name, answer, expected) in [
            ("tavily", json!({ "results": [] }), ""),
            ("tavily", json!({ "results": [], "error": null }), ""),
            ("brave", json!({ "type": "search", "query": {} }), ""),
            ("brave", json!({ "type": "ErrorResponse" }), "with an error in place of results"),
            ("tavily", json!({ "results": [], "error": "busy" }), "with an error in place of results"),
            ("tavily", json!({ "detail": { "error": "no" } }), "with an error in place of results"),
            ("tavily", json!({ "results": "none" }), "with an error in place of results"),
            ("zai", json!({ "code": 1211, "msg": "no" }), "with an error in place of results"),
            ("serper", json!([]), "with an error in place of results"),
            ("exa", json!({ "results": [{ "id": 1 }] }), "results in an unknown form"),
            ("searxng", silent, "did not answer it: google (CAPTCHA), ? (?)"),
            ("searxng", json!({ "results": [], "unresponsive_engines": [] }), ""),
        ] {
            let found = search_backend(name).unwrap().hits(&answer, &query(&[]));
            match found {
                Ok(hits) => assert!(hits.is_empty() && expected.is_empty(), "{name}: {answer}"),
                Err(why) => {
                    assert!(!expected.is_empty() && why.ends_with(expected), "{name}: {why}");
                    assert!(why.starts_with(name), "{why}");
                }
            }
        }
    }
}
