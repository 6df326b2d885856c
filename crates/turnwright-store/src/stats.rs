//! Counts the work of stored sessions by week and model, for statistics and for the trials of an evaluation. Older
//! sessions have no facts about their turns, so as much as possible is counted from the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::read::{time_from_millis, to_millis};
use crate::turn_facts::{ProofWord, TurnFacts};
use turnwright_types::timestamp::rfc3339;

const DAY: u64 = 24 * 60 * 60;
/// The first of January 1970 was a Thursday, so this moves the start of a week to Monday.
const MONDAY_SHIFT: u64 = 3;

/// One row for each turn with requests, in which the last request says what the model was.
const TURNS: &str = "
WITH spent AS (
  SELECT usage.session, usage.turn, count(*) AS requests, sum(input) AS input, sum(cached) AS cached,
    sum(output) AS output, sum(usage.cost) AS cost, min(at) AS at, max(usage.id) AS last_id
  FROM usage JOIN sessions ON sessions.key = usage.session
  WHERE usage.at >= ?1 AND usage.at >= sessions.created_at
  GROUP BY usage.session, usage.turn
), called AS (
  SELECT calls.session, calls.turn, count(*) AS calls, sum(status = 'error') AS failed,
    sum(tool_name = 'read_file') AS reads, sum(tool_name IN ('edit_file', 'write_file', 'apply_patch')) AS edits,
    sum(tool_name IN ('edit_file', 'write_file', 'apply_patch') AND status = 'error') AS failed_edits,
    sum(result LIKE '%[You have made this call%') AS loops
  FROM calls JOIN sessions ON sessions.key = calls.session
  WHERE asked_at >= ?1 AND asked_at >= sessions.created_at
  GROUP BY calls.session, calls.turn
)
SELECT spent.at, usage.model, usage.served, spent.session, sessions.helper_of IS NULL, turns.facts,
  spent.requests, spent.input, spent.cached, spent.output, spent.cost,
  coalesce(called.calls, 0), coalesce(called.failed, 0), coalesce(called.reads, 0), coalesce(called.edits, 0),
  coalesce(called.failed_edits, 0), coalesce(called.loops, 0)
FROM spent JOIN usage ON usage.id = spent.last_id JOIN sessions ON sessions.key = spent.session
LEFT JOIN turns ON turns.session = spent.session AND turns.number = spent.turn
LEFT JOIN called ON called.session = spent.session AND called.turn = spent.turn
ORDER BY spent.at, spent.session, spent.turn";

/// Work in numbers. Helpers count, but for the number of turns and of those that were proven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkCounts {
    pub turns: u64,
    pub requests: u64,
    /// Tokens, with those from the server's cache.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    /// US dollars, as far as they are known.
    pub cost: Option<f64>,
    pub calls: u64,
    pub failed_calls: u64,
    /// Calls that read files.
    pub reads: u64,
    /// Calls that change files.
    pub edits: u64,
    pub failed_edits: u64,
    /// The number of times that the model was told that it repeats itself.
    pub loops: u64,
    /// The turns of which it is known if they were proven.
    pub judged_turns: u64,
    /// The turns that ended with a check or a test that passed.
    pub proven_turns: u64,
}

impl WorkCounts {
    pub fn add(&mut self, other: &WorkCounts) {
        self.turns += other.turns;
        self.requests += other.requests;
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        if let Some(cost) = other.cost {
            *self.cost.get_or_insert_default() += cost;
        }
        self.calls += other.calls;
        self.failed_calls += other.failed_calls;
        self.reads += other.reads;
        self.edits += other.edits;
        self.failed_edits += other.failed_edits;
        self.loops += other.loops;
        self.judged_turns += other.judged_turns;
        self.proven_turns += other.proven_turns;
    }
}

/// The work of a model in a week.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeekOfWork {
    /// The day on which the week begins: Monday, in UTC.
    pub week: String,
    /// The model as it was asked for.
    pub model: String,
    /// The model as the server named it, where it did.
    pub served: BTreeSet<String>,
    /// The number of sessions.
    pub tasks: u64,
    pub counts: WorkCounts,
}

/// Counts the work of all sessions since a time, by week and model, in the order of both.
pub fn weeks_of_work(
    connection: &Connection,
    since: SystemTime,
) -> Result<Vec<WeekOfWork>, StoreError> {
    let mut weeks: BTreeMap<(u64, String), WeekOfWork> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut query = connection.prepare(TURNS)?;
    let mut rows = query.query(params![to_millis(since)])?;
    while let Some(row) = rows.next()? {
        let week = week_of(time_from_millis(row.get(0)?));
        let model: String = row.get(1)?;
        let session: i64 = row.get(3)?;
        let is_task = row.get::<_, bool>(4)?;
        let found = weeks.entry((week, model.clone())).or_insert_with(|| WeekOfWork {
            week: rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(week))[..10].to_owned(),
            model: model.clone(),
            served: BTreeSet::new(),
            tasks: 0,
            counts: WorkCounts::default(),
        });
        found.served.extend(row.get::<_, Option<String>>(2)?);
        found.tasks += u64::from(is_task && seen.insert((week, model, session)));
        found.counts.add(&counts_of_turn(row, is_task)?);
    }
    Ok(weeks.into_values().collect())
}

/// The id of the first session.
pub fn first_session(connection: &Connection) -> Result<Option<String>, StoreError> {
    let query = "SELECT id FROM sessions WHERE helper_of IS NULL ORDER BY key LIMIT 1";
    Ok(connection.query_row(query, [], |row| row.get(0)).optional()?)
}

/// The seconds from the epoch to the Monday before.
fn week_of(time: SystemTime) -> u64 {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let days = seconds / DAY;
    (days - (days + MONDAY_SHIFT) % 7) * DAY
}

fn counts_of_turn(row: &Row<'_>, is_task: bool) -> Result<WorkCounts, StoreError> {
    let stored = row.get::<_, Option<String>>(5)?;
    let told: u64 = row.get(16)?;
    // A newer version may have written another form.
    let facts: Option<TurnFacts> = stored.and_then(|text| serde_json::from_str(&text).ok());
    let is_proven = facts.as_ref().is_some_and(|facts| facts.proof == ProofWord::Green);
    Ok(WorkCounts {
        turns: u64::from(is_task),
        requests: row.get(6)?,
        input: row.get(7)?,
        cached: row.get(8)?,
        output: row.get(9)?,
        cost: row.get(10)?,
        calls: row.get(11)?,
        failed_calls: row.get(12)?,
        reads: row.get(13)?,
        edits: row.get(14)?,
        failed_edits: row.get(15)?,
        loops: facts.as_ref().map_or(told, |facts| u64::from(facts.loops)),
        judged_turns: u64::from(is_task && facts.is_some()),
        proven_turns: u64::from(is_task && is_proven),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::open_in_memory;

    /// 2 November 2026, a Monday, in days from the epoch.
    const MONDAY: u64 = 20_759;

    #[test]
    fn a_week_begins_on_monday() {
        for (day, expected) in [
            (MONDAY, MONDAY),
            (MONDAY + 6, MONDAY),
            (MONDAY + 7, MONDAY + 7),
            (MONDAY - 1, MONDAY - 7),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY + 3_600);
            assert_eq!(week_of(time), expected * DAY, "{day}");
        }
    }

    #[test]
    fn a_session_that_was_made_by_hand_is_counted() {
        let connection = open_in_memory().unwrap();
        let begun = MONDAY * DAY * 1_000;
        connection
            .execute_batch(&format!(
                "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/w', {begun}, {begun});
                 INSERT INTO sessions (key, id, cwd, created_at, updated_at, helper_of)
                   VALUES (2, 'h', '/w', {begun}, {begun}, 's');
                 INSERT INTO turns (session, number, kind, begun_at, facts) VALUES
                   (1, 1, 'prompt', {begun}, NULL), (1, 2, 'prompt', {begun}, '{{\"proof\":\"green\",\"loops\":2}}'),
                   (2, 1, 'prompt', {begun}, NULL);
                 INSERT INTO usage (session, turn, at, model, input, output, cached, cost, served) VALUES
                   (1, 1, {begun}, 'm', 100, 10, 40, 0.5, 'm-2026'), (1, 2, {begun}, 'm', 100, 10, 40, NULL, NULL),
                   (2, 1, {begun}, 'm', 1, 1, 1, NULL, NULL), (1, 3, {begun} - 1, 'm', 9, 9, 9, NULL, NULL);
                 INSERT INTO calls (session, call, seq, position, turn, message_id, tool_name, arguments, status, result,
                   asked_at) VALUES
                   (1, 'a', 1, 0, 1, 'x', 'read_file', '{{}}', 'success', '[You have made this call 3 times]', {begun}),
                   (1, 'b', 1, 1, 1, 'x', 'edit_file', '{{}}', 'error', NULL, {begun}),
                   (1, 'c', 2, 0, 2, 'x', 'write_file', '{{}}', 'success', NULL, {begun}),
                   (2, 'd', 1, 0, 1, 'x', 'read_file', '{{}}', 'success', NULL, {begun});"
            ))
            .unwrap();
        let weeks = weeks_of_work(&connection, SystemTime::UNIX_EPOCH).unwrap();
        let [week] = &weeks[..] else { panic!("{weeks:?}") };
        assert_eq!((&*week.week, week.tasks, &*week.model), ("2026-11-02", 1, "m"));
        assert_eq!(week.served.len(), 1);
        let expected = WorkCounts {
            turns: 2,
            requests: 3,
            input: 201,
            cached: 81,
            output: 21,
            cost: Some(0.5),
            calls: 4,
            failed_calls: 1,
            reads: 2,
            edits: 2,
            failed_edits: 1,
            loops: 3,
            judged_turns: 1,
            proven_turns: 1,
        };
        assert_eq!(week.counts, expected);
        assert_eq!(first_session(&connection).unwrap().as_deref(), Some("s"));
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs((MONDAY + 1) * DAY);
        assert!(weeks_of_work(&connection, later).unwrap().is_empty());
    }
}
