//! `history`: what the tools have done before, in this session or in all of this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Outcome, Tool, ToolCtx};
use crate::effect::{CallView, Content, Effect, Kind, Location, Place, Target, visible_line};
use crate::files::Roots;
use crate::ids::SessionId;
use crate::permission::Pass;
use crate::record::{Record, Row};

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
    /// `current` (default), or `all` sessions of this process
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
        let bench = Arc::clone(&ctx.bench);
        // A long record takes its time to be searched.
        let found = tokio::task::spawn_blocking(move || {
            search(&args, &bench.session, &bench.commons.record)
        })
        .await;
        let Ok((text, count)) = found else { return Outcome::failed("The search has died.") };
        Outcome {
            ok: true,
            content: vec![Content::Text(text.clone())],
            text,
            view: None,
            raw: json!({ "rows": count }),
            images: Vec::new(),
        }
    }
}

fn search(args: &Args, session: &SessionId, record: &Record) -> (String, usize) {
    let query = args.query.trim().to_lowercase();
    let fits = |row: &Row| {
        (args.session == Sessions::All || row.session == *session)
            && (args.tool.is_empty() || row.tool == args.tool)
            && (args.status.is_empty() || row.ok == (args.status == "ok"))
    };
    let limit = args.limit.map_or(USUAL, |it| it as usize).clamp(1, MOST);
    // The words are looked for in a copy: who adds a row does not wait for that.
    let most = if query.is_empty() { limit + 1 } else { usize::MAX };
    let rows = record.newest(most, fits);
    let says = |it: &str| it.to_lowercase().contains(&query);
    let mut found: Vec<_> = rows
        .into_iter()
        .filter(|it| says(&it.arguments) || says(&it.result) || says(&it.prompt) || says(&it.tool))
        .take(limit + 1)
        .collect();
    if found.is_empty() {
        return ("Nothing found. This process knows only what its own sessions did.".to_owned(), 0);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let all = args.session == Sessions::All;
    let mut text: String = found.iter().map(|it| told(it, &query, all)).collect();
    if more {
        text.push_str("[older rows left out: a longer `query`, or a larger `limit`]\n");
    }
    (text, found.len())
}

/// A row in three lines.
fn told(row: &Row, query: &str, with_session: bool) -> String {
    let session = if with_session { format!("{}/", row.session) } else { String::new() };
    let status = if row.ok { "ok" } else { "failed" };
    let time = httpdate::fmt_http_date(row.at);
    let time = time.get(5..25).unwrap_or_default();
    format!(
        "{session}{} {time} {} {status} {}\n  {}\n  → {}\n",
        row.call,
        row.tool,
        length(row.took),
        line(&row.arguments, query),
        line(&row.result, query)
    )
}

fn length(took: Duration) -> String {
    match took.as_millis() {
        it @ 0..1_000 => format!("{it} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

/// The line that holds what is looked for, or else the first that says something.
fn line(text: &str, query: &str) -> String {
    let holds = |it: &&str| !query.is_empty() && it.to_lowercase().contains(query);
    let line = text.lines().find(holds);
    let line = line.or_else(|| text.lines().find(|it| !it.trim().is_empty()));
    let line = visible_line(line.unwrap_or_default().trim());
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::ids::CallId;

    fn row(session: &str, number: u64, tool: &str, ok: bool, result: &str) -> Row {
        Row {
            session: SessionId::from(session),
            call: CallId::from(format!("call-{number}")),
            tool: tool.to_owned(),
            arguments: format!("{{\"number\":{number}}}"),
            result: result.to_owned(),
            ok,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(number),
            took: Duration::from_millis(600 * number),
            prompt: "do it".to_owned(),
        }
    }

    fn ask(args: serde_json::Value) -> Vec<String> {
        let record = Record::default();
        for it in [
            row("other", 1, "exec", true, "theirs"),
            row("this", 2, "exec", false, "one\nMigration failed\nthree"),
            row("this", 3, "read_file", true, "\n\ntext"),
        ] {
            record.add(it);
        }
        let args: Args = serde_json::from_value(args).unwrap();
        search(&args, &SessionId::from("this"), &record).0.lines().map(str::to_owned).collect()
    }

    #[test]
    fn rows_come_newest_first_and_only_those_that_were_asked_for() {
        let second = [
            "call-2 01 Jan 1970 00:00:02 exec failed 1.2 s",
            "  {\"number\":2}",
            "  → Migration failed",
        ];
        assert_eq!(ask(json!({ "query": "migration" })), second);
        assert_eq!(ask(json!({ "status": "failed" }))[0], second[0]);
        assert_eq!(ask(json!({ "tool": "exec" }))[2], "  → one");
        let all = ask(json!({}));
        assert_eq!((all.len(), all[2].as_str()), (6, "  → text"));
        assert!(all[0].starts_with("call-3"), "{all:?}");
        let all = ask(json!({ "session": "all" }));
        assert_eq!(all[6], "other/call-1 01 Jan 1970 00:00:01 exec ok 600 ms");
        let one = ask(json!({ "limit": 1 }));
        assert!(one.len() == 4 && one[3].starts_with("[older rows"), "{one:?}");
        assert!(ask(json!({ "query": "theirs" }))[0].starts_with("Nothing found."));
    }
}
