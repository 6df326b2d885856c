//! `history`: looks up earlier tool calls of this session or of all stored ones.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CallPlan, CallSite, Tool, ToolAnswer, ToolCtx, ToolOutcome};
use turnwright_policy::permission::Pass;
use turnwright_store::CallStatus;
use turnwright_store::history::{CallRecord, HistoryPage, HistoryQuery, find_calls};
use turnwright_types::effect::{
    CallView, Effect, Location, PathScope, ResolvedPath, ToolKind, escape_hidden_line,
};
use turnwright_types::ids::SessionId;
use turnwright_types::text;
use turnwright_types::timestamp::local_time;

/// The number of rows: default and limit.
const DEFAULT_ROWS: usize = 20;
const MAX_ROWS: usize = 100;
/// At most this many characters of a line are shown.
const MAX_LINE_CHARS: usize = 160;

/// Look up earlier tool calls, newest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct History {
    /// Words of the call or its result
    query: String,
    session: HistoryScope,
    /// Only calls of this tool
    tool: String,
    /// ok or failed
    status: String,
    limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum HistoryScope {
    #[default]
    Current,
    All,
}

impl Tool for History {
    const NAME: &'static str = "history";
    const KIND: ToolKind = ToolKind::Search;
    const PENDING_TITLE: &'static str = "History";
    const IS_READ_ONLY: bool = true;
    type Preview = ();

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let filters = [&self.query, &self.tool, &self.status];
        let first = filters.into_iter().find(|filter| !filter.is_empty());
        let what = escape_hidden_line(text::first_chars(first.map_or("all", |filter| filter), 80));
        let mut view = CallView::new(format!("History: \"{what}\""), Self::KIND);
        if self.session == HistoryScope::Current {
            return CallPlan::in_session(view);
        }
        let place = site.resolve(site.env.shared.process.folders.state.clone());
        view.title.push_str(" in all sessions");
        view.locations.push(Location { path: site.roots().client_path(&place), line: None });
        // Other sessions are private to the user and not part of this project, even if our state
        // folder lies in it.
        CallPlan::reading(view, vec![ResolvedPath { scope: PathScope::Outside, ..place }])
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let may_all = matches!(pass.effects().first(), Some(Effect::Read(_)));
        if self.session == HistoryScope::All && !may_all {
            return Err("There is no permission to read other sessions.".into());
        }
        if !matches!(self.status.as_str(), "" | "ok" | "failed") {
            return Err("`status` is ok or failed.".into());
        }
        let log = &ctx.env.log;
        let Some(store) = log.store() else {
            return Err("This session is not stored.".into());
        };
        // Calls that have just ended may not be stored yet.
        log.flush().written().await;
        let query = query(&self, &ctx.env.session);
        let found = store.read(move |connection| find_calls(connection, &query)).await;
        let page = found.map_err(|error| error.to_string())?;
        let raw = json!({ "rows": page.rows.len() });
        Ok(ToolOutcome::done_as_shown(render(&self, &page), raw))
    }
}

fn query(args: &History, session: &SessionId) -> HistoryQuery {
    let statuses = match args.status.as_str() {
        "ok" => vec![CallStatus::Success],
        "failed" => vec![CallStatus::Error],
        // Without pending calls, of which this call is one.
        _ => vec![CallStatus::Success, CallStatus::Error],
    };
    HistoryQuery {
        session: (args.session == HistoryScope::Current).then(|| session.clone()),
        tool: Some(args.tool.clone()).filter(|tool| !tool.is_empty()),
        statuses,
        words: args.query.clone(),
        limit: args.limit.map_or(DEFAULT_ROWS, |limit| limit as usize).clamp(1, MAX_ROWS),
        ..HistoryQuery::default()
    }
}

fn render(args: &History, page: &HistoryPage<CallRecord>) -> String {
    let mut words: Vec<_> =
        args.query.to_lowercase().split_whitespace().map(str::to_owned).collect();
    // A line with the whole query is preferred to one with a single word of it.
    words.insert(0, args.query.trim().to_lowercase());
    let all = args.session == HistoryScope::All;
    let mut text: String = page.rows.iter().map(|row| render_row(row, &words, all)).collect();
    if text.is_empty() {
        text.push_str("Nothing found.\n");
    }
    if page.next.is_some() {
        text.push_str("[older rows left out: a longer `query`, or a larger `limit`]\n");
    }
    if page.is_truncated {
        text.push_str("[not all long results were searched]\n");
    }
    text
}

/// Renders a call in three lines.
fn render_row(row: &CallRecord, words: &[String], with_session: bool) -> String {
    let session = if with_session { format!("{}/", row.session) } else { String::new() };
    let status = if row.error.is_none() { "ok" } else { "failed" };
    let time = local_time(row.at);
    let result = row.result.as_deref().or(row.error.as_deref());
    // The session of a helper, in which its own calls are found.
    let task = row.spawn_task();
    let helper = task["session_id"].as_str().map(|id| format!(" helper {id}"));
    format!(
        "{session}{} {time} {} {status} {}{}\n  {}\n  → {}\n",
        row.call,
        row.tool,
        duration_text(row.duration_ms.unwrap_or_default()),
        helper.unwrap_or_default(),
        matching_line(&row.arguments, words),
        matching_line(result.unwrap_or_default(), words)
    )
}

fn duration_text(millis: f64) -> String {
    if millis < 1_000.0 { format!("{millis:.0} ms") } else { format!("{:.1} s", millis / 1_000.0) }
}

/// The first line that contains one of `words`, or else the first that is not blank.
fn matching_line(text: &str, words: &[String]) -> String {
    let mut words = words.iter().filter(|word| !word.is_empty());
    let matching = words
        .find_map(|word| text.lines().find(|line| line.to_lowercase().contains(word.as_str())));
    let line = matching.or_else(|| text.lines().find(|line| !line.trim().is_empty()));
    text::clip(escape_hidden_line(line.unwrap_or_default().trim()), MAX_LINE_CHARS)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn done(number: u32, result: &str, is_error: bool) -> CallRecord {
        CallRecord {
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
            spawn_task: None,
        }
    }

    #[test]
    fn a_row_shows_time_duration_and_the_matching_lines() {
        let args = |value: serde_json::Value| serde_json::from_value::<History>(value).unwrap();
        let mut rows = vec![done(2, "one\nMigration failed\nthree", true), done(1, "\n\na", false)];
        let page = |rows: &[CallRecord]| HistoryPage {
            rows: rows.to_vec(),
            next: None,
            is_truncated: false,
        };
        let text = render(&args(json!({ "query": "migration" })), &page(&rows));
        // As the model is told the date, and as commands show it.
        let [one, two] =
            [1, 2].map(|at| local_time(SystemTime::UNIX_EPOCH + Duration::from_secs(at)));
        let first =
            format!("call-2 {two} exec failed 1.2 s\n  {{\"number\":2}}\n  → Migration failed\n");
        let second = format!("call-1 {one} exec ok 600 ms\n  {{\"number\":1}}\n  → a\n");
        assert_eq!(text, format!("{first}{second}"));
        rows.remove(0);
        let text = render(&args(json!({ "session": "all" })), &page(&rows));
        assert_eq!(text, format!("other/{second}"));
        assert_eq!(render(&args(json!({})), &page(&[])), "Nothing found.\n");
    }
}
