//! `history`: what the tools have done before, in this session or in all that are kept.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Location, Place, Target, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_types::ids::SessionId;
use turnwright_policy::permission::Pass;
use turnwright_store::CallStatus;
use turnwright_store::history::{Done, Page, Query, calls};

/// Rows unless said otherwise, and at most.
const USUAL: usize = 20;
const MOST: usize = 100;
/// Characters of a line.
const LONGEST_LINE: usize = 160;

#[derive(Debug)]
pub(super) struct History;

/// Look up earlier tool calls and their results, the newest first.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Words in arguments, result or prompt
    #[serde(default)]
    query: String,
    /// `current` (default), or `all` sessions
    #[serde(default)]
    session: Sessions,
    /// Only this tool
    #[serde(default)]
    tool: String,
    /// Only `ok` or only `failed` calls
    #[serde(default)]
    status: String,
    /// Rows (default 20, at most 100)
    limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Sessions {
    #[default]
    Current,
    All,
}

impl Tool for History {
    const NAME: &'static str = "history";
    const KIND: Kind = Kind::Search;
    const VERB: &'static str = "History";
    const READS: bool = true;
    type Args = Args;
    type Seen = ();

    fn paths(&self, args: &Args, bench: &Bench) -> Vec<PathBuf> {
        match args.session {
            Sessions::Current => Vec::new(),
            Sessions::All => vec![bench.commons.folders.state.clone()],
        }
    }

    fn view(&self, args: &Args, places: &[Target], roots: &Roots) -> CallView {
        let what = [&args.query, &args.tool, &args.status].into_iter().find(|it| !it.is_empty());
        let what: String = what.map_or("all", |it| it).chars().take(80).collect();
        let of_all = if args.session == Sessions::All { " in all sessions" } else { "" };
        let location = |it| Location { path: roots.shown(it), line: None };
        CallView {
            title: format!("History: \"{}\"{of_all}", visible_line(&what)),
            kind: Self::KIND,
            locations: places.iter().map(location).collect(),
        }
    }

    fn effects(&self, _: &Args, places: &[Target]) -> Vec<Effect> {
        // What other sessions have done is the user's and no part of this project, wherever our
        // own folder lies.
        let outside = |it: &Target| Target { path: it.path.clone(), place: Place::Outside };
        match places.first() {
            Some(place) => vec![Effect::Read(outside(place))],
            None => vec![Effect::Session],
        }
    }

    async fn run(&self, args: Args, (): (), pass: &Pass, ctx: &ToolCtx) -> Outcome {
        let may_all = matches!(pass.effects().first(), Some(Effect::Read(_)));
        if args.session == Sessions::All && !may_all {
            return Outcome::failed("There is no permission to look into other sessions.");
        }
        if !matches!(args.status.as_str(), "" | "ok" | "failed") {
            return Outcome::failed("`status` is ok or failed.");
        }
        let log = &ctx.bench.log;
        let Some(store) = log.store() else {
            return Outcome::failed("Nothing is kept of this session.");
        };
        // What has just ended is on its way.
        log.flush().written().await;
        let query = query(&args, &ctx.bench.session);
        let found = store.read(move |connection| calls(connection, &query)).await;
        let page = match found {
            Ok(page) => page,
            Err(error) => return Outcome::failed(error.to_string()),
        };
        let text = told(&args, &page);
        Outcome {
            ok: true,
            content: vec![Content::Text(text.clone())],
            text,
            view: None,
            raw: json!({ "rows": page.rows.len() }),
            images: Vec::new(),
        }
    }
}

fn query(args: &Args, session: &SessionId) -> Query {
    let statuses = match args.status.as_str() {
        "ok" => vec![CallStatus::Success],
        "failed" => vec![CallStatus::Error],
        // Not this very call.
        _ => vec![CallStatus::Success, CallStatus::Error],
    };
    Query {
        session: (args.session == Sessions::Current).then(|| session.clone()),
        tool: Some(args.tool.clone()).filter(|it| !it.is_empty()),
        statuses,
        words: args.query.clone(),
        limit: args.limit.map_or(USUAL, |it| it as usize).clamp(1, MOST),
        ..Query::default()
    }
}

fn told(args: &Args, page: &Page<Done>) -> String {
    let mut words: Vec<_> =
        args.query.to_lowercase().split_whitespace().map(str::to_owned).collect();
    // The words as they were written are the best place, if they stand so anywhere.
    words.insert(0, args.query.trim().to_lowercase());
    let all = args.session == Sessions::All;
    let mut text: String = page.rows.iter().map(|it| row(it, &words, all)).collect();
    if text.is_empty() {
        text.push_str("Nothing found.\n");
    }
    if page.next.is_some() {
        text.push_str("[older rows left out: a longer `query`, or a larger `limit`]\n");
    }
    if page.is_cut {
        text.push_str("[not all long results were searched]\n");
    }
    text
}

/// A row in three lines.
fn row(row: &Done, words: &[String], with_session: bool) -> String {
    let session = if with_session { format!("{}/", row.session) } else { String::new() };
    let status = if row.error.is_none() { "ok" } else { "failed" };
    let time = httpdate::fmt_http_date(row.at);
    let time = time.get(5..25).unwrap_or_default();
    let result = row.result.as_deref().or(row.error.as_deref());
    format!(
        "{session}{} {time} {} {status} {}\n  {}\n  → {}\n",
        row.call,
        row.tool,
        length(row.duration_ms.unwrap_or_default()),
        line(&row.arguments, words),
        line(result.unwrap_or_default(), words)
    )
}

fn length(millis: f64) -> String {
    if millis < 1_000.0 { format!("{millis:.0} ms") } else { format!("{:.1} s", millis / 1_000.0) }
}

/// The line that holds what is looked for, or else the first that says something.
fn line(text: &str, words: &[String]) -> String {
    let holds = |line: &str, word: &String| !word.is_empty() && line.to_lowercase().contains(word);
    let line = words.iter().find_map(|word| text.lines().find(|it| holds(it, word)));
    let line = line.or_else(|| text.lines().find(|it| !it.trim().is_empty()));
    let line = visible_line(line.unwrap_or_default().trim());
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn done(number: u32, result: &str, is_error: bool) -> Done {
        Done {
            id: number.into(),
            session: "other".into(),
            title: None,
            turn: 1,
            message: "msg-1".into(),
            call: format!("call-{number}").into(),
            tool: "exec".to_owned(),
            arguments: format!("{{\"number\":{number}}}"),
            result: (!is_error).then(|| result.to_owned()),
            error: is_error.then(|| result.to_owned()),
            status: CallStatus::Success,
            duration_ms: Some(f64::from(number) * 600.0),
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(number.into()),
            user_message: "do it".to_owned(),
        }
    }

    #[test]
    fn a_row_says_when_how_long_and_where_the_words_stand() {
        let args = |it: serde_json::Value| serde_json::from_value::<Args>(it).unwrap();
        let mut rows = vec![done(2, "one\nMigration failed\nthree", true), done(1, "\n\na", false)];
        let page = |rows: &[Done]| Page { rows: rows.to_vec(), next: None, is_cut: false };
        let text = told(&args(json!({ "query": "migration" })), &page(&rows));
        let first = "call-2 01 Jan 1970 00:00:02 exec failed 1.2 s\n  {\"number\":2}\n  → Migration \
                     failed\n";
        let second = "call-1 01 Jan 1970 00:00:01 exec ok 600 ms\n  {\"number\":1}\n  → a\n";
        assert_eq!(text, format!("{first}{second}"));
        rows.remove(0);
        let text = told(&args(json!({ "session": "all" })), &page(&rows));
        assert_eq!(text, format!("other/{second}"));
        assert_eq!(told(&args(json!({})), &page(&[])), "Nothing found.\n");
    }
}
