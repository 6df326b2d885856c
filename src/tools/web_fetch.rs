//! `web_fetch`: fetches a web page as text, a part at a time. The text is untrusted and marked so.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::arguments::{ShownArgument, URL};
use super::{CallPlan, CallSite, Previewed, Tool, ToolAnswer, ToolCtx, ToolEnv, ToolOutcome};
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;
#[cfg(unix)]
use turnwright_guard::command_network;
use turnwright_policy::permission::Pass;
use turnwright_sandbox::SessionNetwork;
use turnwright_types::effect::{
    CallContent, CallView, Effect, ResolvedPath, ToolKind, escape_hidden_line, shorten_title,
};
use turnwright_types::text;
#[cfg(unix)]
use turnwright_workspace::temp_folder::PrivateTempFolder;
use turnwright_workspace::web::{self, FetchedBody, WebPage};

/// The model gets at most this many bytes of a page at once.
const MAX_PART_BYTES: usize = 30 * 1024;
const MAX_CARD_BYTES: usize = 2 * 1024;
/// The most bytes of an error page that are shown.
const MAX_ERROR_EXCERPT: usize = 1_000;

/// The text for the model about a page without text.
const NEEDS_SCRIPTS: &str = "[the page makes its text with scripts, which are not run; raw=true shows its \
                             HTML, which may name the data or an API]\n";

/// Fetch a web page as Markdown, in parts of 30 KB.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WebFetch {
    #[serde(alias = "uri", alias = "link")]
    url: String,
    /// As the last part says
    offset: Option<u64>,
    /// Keep HTML
    raw: Option<bool>,
    /// True for a server that a command of the session has started; set by [`Tool::plan`].
    #[serde(skip)]
    is_of_session: bool,
}

impl Tool for WebFetch {
    const NAME: &'static str = "web_fetch";
    const KIND: ToolKind = ToolKind::Fetch;
    const PENDING_TITLE: &'static str = "Fetch";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[URL];
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    /// Has no effects for an address that cannot be fetched, because then there is nothing to ask about. A server that
    /// the user has allowed at this address runs on the machine; nothing leaves the sandbox on the way to a server of
    /// the session.
    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let env = site.env;
        let view = view(self);
        let Ok(url) = web::parse_url(&self.url) else {
            self.is_of_session = false;
            return CallPlan { view, effects: Vec::new() };
        };
        self.is_of_session = web::is_loopback(&url)
            && env.shared.process.web.check(&url).is_err()
            && env.shared.network.if_used().is_some();
        if self.is_of_session {
            return CallPlan::in_session(view);
        }
        CallPlan { view, effects: vec![Effect::Fetch { host: web::permission_host(&url) }] }
    }

    /// Addresses that are refused anyway fail here, before a question. The question shows the whole
    /// address, because the address itself tells the host something.
    async fn preview(&self, _: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        let url = web::parse_url(&self.url)?;
        if !self.is_of_session {
            ctx.env.shared.process.web.check(&url).map_err(|error| fetch_failure(&error))?;
        }
        Ok(((), vec![CallContent::Text(escape_hidden_line(url.as_str()))]))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let url = web::parse_url(&self.url)?;
        let host = web::permission_host(&url);
        let needed = if self.is_of_session { Effect::SessionState } else { Effect::Fetch { host } };
        if !pass.effects().contains(&needed) {
            return Err("This host was not asked about. Nothing was fetched.".into());
        }
        let raw = self.raw.unwrap_or(false);
        let address = url.to_string();
        let offset = usize::try_from(self.offset.unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(page) = ctx.env.pages.get(&address, raw).filter(|_| offset > 0) {
            return page_part(&page, offset);
        }
        let fetcher = &ctx.env.shared.process.web;
        let fetching = async {
            match ctx.env.shared.network.if_used().filter(|_| self.is_of_session) {
                Some(network) => fetch_from_session(&ctx.env, network, url).await,
                None => fetcher.fetch(url).await.map_err(|error| fetch_failure(&error)),
            }
        };
        let fetched = ctx.until_cancelled(fetching).await??;
        if let Some(target) = &fetched.redirect {
            return Ok(redirect_outcome(&fetched, target));
        }
        let unfolding = async {
            let _turn = fetcher.conversion_permit().await;
            spawn_blocking(move || web::to_page(&fetched, raw)).await
        };
        let unfolded = ctx.until_cancelled(unfolding).await?;
        let page = Arc::new(unfolded.map_err(|error| error.to_string())?);
        if !(200..300).contains(&page.status) {
            return Ok(bad_status_outcome(&page, fetcher.proxy_of(&page.url)));
        }
        ctx.env.pages.insert(&address, raw, &page);
        page_part(&page, offset)
    }
}

fn view(args: &WebFetch) -> CallView {
    let place = match web::parse_url(&args.url) {
        Ok(url) => {
            let path = url.path().trim_end_matches('/');
            format!("{}{path}", web::permission_host(&url))
        }
        Err(_) => args.url.clone(),
    };
    let title = shorten_title(format!("Fetch {}", escape_hidden_line(place.trim())));
    CallView::new(title, WebFetch::KIND)
}

/// Fetches a page from a server that a command of the session has started.
#[cfg(unix)]
async fn fetch_from_session(
    env: &ToolEnv,
    network: Arc<SessionNetwork>,
    url: Url,
) -> Result<FetchedBody, String> {
    let port = url.port_or_known_default().unwrap_or_default();
    if let Err(error) = command_network::connect(&network, port).await {
        return Err(format!(
            "Nothing was fetched: no command of this session answers at port {port} ({}). Is the server running?",
            turnwright_types::error_text::io_error_text(&error)
        ));
    }
    let created = spawn_blocking(PrivateTempFolder::create).await;
    let folder = created
        .map_err(std::io::Error::other)
        .and_then(|created| created)
        .map_err(|error| system_failure(&error))?;
    let socket = folder.path().join("connections");
    let listener = UnixListener::bind(&socket).map_err(|error| system_failure(&error))?;
    let connections = async {
        // They end with the page.
        let mut open = tokio::task::JoinSet::new();
        while let Ok((outer, _)) = listener.accept().await {
            open.spawn(command_network::pass_on(outer, Arc::clone(&network), port));
        }
    };
    tokio::select! {
        fetched = env.shared.process.web.fetch_through(url, &socket) => {
            fetched.map_err(|error| fetch_failure(&error))
        }
        () = connections => Err("Nothing was fetched: no connection could be made.".to_owned()),
    }
}

#[cfg(unix)]
fn system_failure(error: &std::io::Error) -> String {
    format!("Nothing was fetched: {}.", turnwright_types::error_text::io_error_text(error))
}

/// There are no such servers on this system.
#[cfg(not(unix))]
async fn fetch_from_session(
    env: &ToolEnv,
    _: Arc<SessionNetwork>,
    url: Url,
) -> Result<FetchedBody, String> {
    env.shared.process.web.fetch(url).await.map_err(|error| fetch_failure(&error))
}

fn fetch_failure(error: &web::FetchError) -> String {
    format!("Nothing was fetched: {error}.")
}

fn page_header(page: &WebPage) -> String {
    let size = page.text.len();
    let cut = if page.is_truncated { ", its beginning only" } else { "" };
    let kind = escape_hidden_line(&page.media_type);
    format!("[{} | {} | {kind} | {size} bytes of text{cut}]\n", page.url, page.status)
}

/// The part of a page that begins at `offset`.
fn page_part(page: &WebPage, offset: usize) -> ToolAnswer {
    let text = &page.text;
    if offset > 0 && offset >= text.len() {
        return Err(format!(
            "offset {offset} is after the end: {} has {} bytes of text.",
            page.url,
            text.len()
        )
        .into());
    }
    let start = text::floor(text, offset);
    let end = line_end(text, start);
    let shown = &text[start..end];
    let mut answer = page_header(page);
    answer.push_str(&web::wrap_untrusted(&page.url, shown));
    if page.needs_scripts {
        answer.push_str(NEEDS_SCRIPTS);
    }
    if end < text.len() {
        answer.push_str(&format!("[continue with offset={end}]\n"));
    } else if page.is_truncated {
        answer.push_str("[the rest is too large and was not kept]\n");
    }
    let mut raw = json!({ "status": page.status, "type": page.media_type, "bytes": page.bytes });
    if let Some(title) = &page.title {
        raw["title"] = title.as_str().into();
    }
    let content = vec![CallContent::Text(text::clip_bytes(shown, MAX_CARD_BYTES, "…"))];
    Ok(ToolOutcome::done(answer, content, raw))
}

fn bad_status_outcome(page: &WebPage, proxy: Option<String>) -> ToolOutcome {
    let start = text::clip_bytes(&page.text, MAX_ERROR_EXCERPT, "…");
    let excerpt = web::wrap_untrusted(&page.url, &start);
    let who =
        proxy.map_or("The server".to_owned(), |name| format!("The server, or the proxy {name},"));
    let text = format!("[{} | {}] {who} did not give the page.\n{excerpt}", page.url, page.status);
    let raw = json!({ "error": format!("status {}", page.status), "status": page.status });
    let content = vec![CallContent::Text(text.clone())];
    ToolOutcome { ok: false, text, view: None, content, raw, images: Vec::new() }
}

/// A redirect to another host is not followed, because it needs its own permission.
fn redirect_outcome(fetched: &FetchedBody, target: &str) -> ToolOutcome {
    let text = format!(
        "[{} | {}] It redirects to another host, which was not followed: {target}\n\
         Fetch that address if it is where you want to go.",
        fetched.url, fetched.status
    );
    let raw = json!({ "status": fetched.status, "redirect": target });
    let content = vec![CallContent::Text(escape_hidden_line(&text).replace("\\n", "\n"))];
    ToolOutcome::done(text, content, raw)
}

/// The end of a part that begins at `start`: after a line, unless that line is too long.
fn line_end(text: &str, start: usize) -> usize {
    let most = text::floor(text, start.saturating_add(MAX_PART_BYTES));
    if most == text.len() {
        return most;
    }
    let lines = text::whole_lines(&text[start..most]);
    if lines.len() > MAX_PART_BYTES / 2 { start + lines.len() } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::MAX_TITLE_CHARS;

    fn page(text: &str) -> WebPage {
        WebPage {
            url: "https://a.example/".to_owned(),
            status: 200,
            media_type: "text/plain".to_owned(),
            title: None,
            text: text.to_owned(),
            bytes: text.len(),
            is_truncated: false,
            needs_scripts: false,
        }
    }

    #[test]
    fn the_parts_of_a_page_are_the_page() {
        for text in ["line\n".repeat(20_000), "é".repeat(50_000), "x".to_owned(), String::new()] {
            let page = page(&text);
            let mut offset = 0;
            let mut all = String::new();
            loop {
                let outcome = page_part(&page, offset).unwrap();
                assert!(outcome.ok && outcome.text.len() < MAX_PART_BYTES + 500);
                let (_, rest) = outcome.text.split_once(">\n").unwrap();
                let (shown, rest) = rest.split_once("</untrusted>\n").unwrap();
                all.push_str(shown);
                let Some(next) = rest.strip_prefix("[continue with offset=") else { break };
                offset = next.trim_end_matches("]\n").parse().unwrap();
            }
            assert_eq!(all.replace('\n', ""), text.replace('\n', ""));
        }
        let app = WebPage { needs_scripts: true, ..page("Shop") };
        let shown = page_part(&app, 0).unwrap().text;
        assert!(
            shown.contains("Shop\n</untrusted>\n[the page makes its text with scripts"),
            "{shown}"
        );
        assert!(page_part(&page("x"), 1).is_err());
        let first = page_part(&page(&"line\n".repeat(20_000)), 0).unwrap();
        assert!(first.text.contains("offset=30720]"));
    }

    #[test]
    fn a_title_is_host_and_path_in_one_short_line() {
        let title = |url: &str| {
            let args =
                WebFetch { url: url.to_owned(), offset: None, raw: None, is_of_session: false };
            view(&args).title
        };
        assert_eq!(title("https://docs.rs/tokio/?q=1#x"), "Fetch docs.rs/tokio");
        assert_eq!(title("http://localhost:3000/"), "Fetch localhost:3000");
        assert_eq!(title("file:///etc/\n\u{202e}x"), "Fetch file:///etc/\\n\\u{202e}x");
        let long = title(&format!("https://a.example/{}", "é".repeat(300)));
        assert_eq!(long.chars().count(), MAX_TITLE_CHARS);
    }
}
