//! `web_fetch`: one page of the network as text, a part at a time. Its words are those of
//! strangers, and are marked so.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target, short_title, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_policy::permission::Pass;
use turnwright_workspace::web::{self, Fetched, Page, floor};

/// Bytes of a page that the model gets at once.
const MOST_BYTES: usize = 30 * 1024;
/// Bytes of it that the card shows.
const ON_CARD: usize = 2 * 1024;
/// Bytes of what stands on the page of an error.
const EXCERPT: usize = 1_000;

#[derive(Debug)]
pub(super) struct WebFetch;

/// Fetch a page from the web. HTML becomes Markdown; a long page comes in parts of 30 KB.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// http or https address
    #[serde(alias = "uri", alias = "link")]
    url: String,
    /// Where to continue, as the last part said
    #[serde(default)]
    offset: Option<u64>,
    /// Leave HTML as it is (default false)
    #[serde(default)]
    raw: Option<bool>,
}

impl Tool for WebFetch {
    const NAME: &'static str = "web_fetch";
    const KIND: Kind = Kind::Fetch;
    const VERB: &'static str = "Fetch";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn view(&self, args: &Args, _: &[Target], _: &Roots) -> CallView {
        let place = match web::parse(&args.url) {
            Ok(url) => {
                let path = url.path().trim_end_matches('/');
                format!("{}{path}", web::effect_host(&url))
            }
            Err(_) => args.url.clone(),
        };
        let title = short_title(format!("Fetch {}", visible_line(place.trim())));
        CallView { title, kind: Self::KIND, locations: Vec::new() }
    }

    /// None for an address that cannot be fetched: there is nothing to ask about.
    fn effects(&self, args: &Args, _: &[Target]) -> Vec<Effect> {
        let url = web::parse(&args.url);
        url.iter().map(|it| Effect::Fetch { host: web::effect_host(it) }).collect()
    }

    /// What is refused anyway is not asked about; the question shows the whole address, because
    /// it tells its host something.
    async fn look(
        &self,
        args: &Args,
        _: &[Target],
        ctx: &ToolCtx,
    ) -> Result<((), Vec<Content>), String> {
        let url = web::parse(&args.url)?;
        ctx.bench.commons.web.check(&url).map_err(|error| failure(&error))?;
        Ok(((), vec![Content::Text(visible_line(url.as_str()))]))
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let url = match web::parse(&args.url) {
            Ok(url) => url,
            Err(reason) => return Outcome::failed(reason),
        };
        let host = web::effect_host(&url);
        if !pass.effects().contains(&Effect::Fetch { host }) {
            return Outcome::failed("This host was not asked about. Nothing was fetched.");
        }
        let (raw, address) = (args.raw.unwrap_or(false), url.to_string());
        let offset = usize::try_from(args.offset.unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(page) = ctx.bench.pages.get(&address, raw).filter(|_| offset > 0) {
            return part(&page, offset);
        }
        let fetching = ctx.bench.commons.web.fetch(url);
        let fetched = match ctx.cancel.run_until_cancelled(fetching).await {
            Some(Ok(fetched)) => fetched,
            Some(Err(error)) => return Outcome::failed(failure(&error)),
            None => return Outcome::failed("cancelled by the user"),
        };
        if let Some(target) = &fetched.redirect {
            return elsewhere(&fetched, target);
        }
        let commons = Arc::clone(&ctx.bench.commons);
        let unfolding = async {
            let _turn = commons.web.unfolding().await;
            tokio::task::spawn_blocking(move || web::unfold(&fetched, raw)).await
        };
        let page = match ctx.cancel.run_until_cancelled(unfolding).await {
            Some(Ok(page)) => Arc::new(page),
            Some(Err(error)) => return Outcome::failed(error.to_string()),
            None => return Outcome::failed("cancelled by the user"),
        };
        if !(200..300).contains(&page.status) {
            return bad_status(&page);
        }
        ctx.bench.pages.keep(&address, raw, &page);
        part(&page, offset)
    }
}

fn failure(error: &web::FetchError) -> String {
    format!("Nothing was fetched: {error}.")
}

fn head(page: &Page) -> String {
    let size = page.text.len();
    let cut = if page.cut { ", its beginning only" } else { "" };
    let kind = visible_line(&page.kind);
    format!("[{} | {} | {kind} | {size} bytes of text{cut}]\n", page.url, page.status)
}

/// The part of a page that begins at `offset`.
fn part(page: &Page, offset: usize) -> Outcome {
    let text = &page.text;
    if offset > 0 && offset >= text.len() {
        return Outcome::failed(format!(
            "offset {offset} is after the end: {} has {} bytes of text.",
            page.url,
            text.len()
        ));
    }
    let start = floor(text, offset);
    let end = line_end(text, start);
    let shown = &text[start..end];
    let mut answer = head(page);
    answer.push_str(&web::wrap(&page.url, shown));
    if end < text.len() {
        answer.push_str(&format!("[continue with offset={end}]\n"));
    } else if page.cut {
        answer.push_str("[the rest is too large and was not kept]\n");
    }
    let mut raw = json!({ "status": page.status, "type": page.kind, "bytes": page.bytes });
    if let Some(title) = &page.title {
        raw["title"] = title.as_str().into();
    }
    let content = vec![Content::Text(shortened(shown, ON_CARD))];
    Outcome { ok: true, text: answer, view: None, content, raw, images: Vec::new() }
}

fn bad_status(page: &Page) -> Outcome {
    let excerpt = web::wrap(&page.url, &shortened(&page.text, EXCERPT));
    let text =
        format!("[{} | {}] The server did not give the page.\n{excerpt}", page.url, page.status);
    let raw = json!({ "error": format!("status {}", page.status), "status": page.status });
    let content = vec![Content::Text(text.clone())];
    Outcome { ok: false, text, view: None, content, raw, images: Vec::new() }
}

/// Another host is another question.
fn elsewhere(fetched: &Fetched, target: &str) -> Outcome {
    let text = format!(
        "[{} | {}] It redirects to another host, which was not followed: {target}\n\
         Fetch that address if it is where you want to go.",
        fetched.url, fetched.status
    );
    let raw = json!({ "status": fetched.status, "redirect": target });
    let content = vec![Content::Text(visible_line(&text).replace("\\n", "\n"))];
    Outcome { ok: true, text, view: None, content, raw, images: Vec::new() }
}

/// Where a part that begins at `start` ends: after a line, if there is one that is not too long.
fn line_end(text: &str, start: usize) -> usize {
    let most = floor(text, start.saturating_add(MOST_BYTES));
    if most == text.len() {
        return most;
    }
    let line = text[start..most].rfind('\n').map(|it| start + it + 1);
    line.filter(|it| it - start > MOST_BYTES / 2).unwrap_or(most)
}

fn shortened(text: &str, most: usize) -> String {
    match floor(text, most) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::LONGEST_TITLE;

    fn page(text: &str) -> Page {
        Page {
            url: "https://a.example/".to_owned(),
            status: 200,
            kind: "text/plain".to_owned(),
            title: None,
            text: text.to_owned(),
            bytes: text.len(),
            cut: false,
        }
    }

    #[test]
    fn the_parts_of_a_page_are_the_page() {
        for text in ["line\n".repeat(20_000), "é".repeat(50_000), "x".to_owned(), String::new()] {
            let (page, mut offset, mut all) = (page(&text), 0, String::new());
            loop {
                let outcome = part(&page, offset);
                assert!(outcome.ok && outcome.text.len() < MOST_BYTES + 500);
                let (_, rest) = outcome.text.split_once(">\n").unwrap();
                let (shown, rest) = rest.split_once("</untrusted>\n").unwrap();
                all.push_str(shown);
                let Some(next) = rest.strip_prefix("[continue with offset=") else { break };
                offset = next.trim_end_matches("]\n").parse().unwrap();
            }
            assert_eq!(all.replace('\n', ""), text.replace('\n', ""));
        }
        assert!(!part(&page("x"), 1).ok);
        assert!(part(&page(&"line\n".repeat(20_000)), 0).text.contains("offset=30720]"));
    }

    #[test]
    fn a_title_is_host_and_path_in_one_short_line() {
        let title = |url: &str| {
            let args = Args { url: url.to_owned(), offset: None, raw: None };
            let home = std::path::Path::new("/");
            WebFetch.view(&args, &[], &Roots::new(home).unwrap()).title
        };
        assert_eq!(title("https://docs.rs/tokio/?q=1#x"), "Fetch docs.rs/tokio");
        assert_eq!(title("http://localhost:3000/"), "Fetch localhost:3000");
        assert_eq!(title("file:///etc/\n\u{202e}x"), "Fetch file:///etc/\\n\\u{202e}x");
        let long = title(&format!("https://a.example/{}", "é".repeat(300)));
        assert_eq!(long.chars().count(), LONGEST_TITLE);
    }
}
