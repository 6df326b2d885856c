//! Counts the work of stored sessions by week and model, for statistics and for the trials of an evaluation. Older
//! sessions have no facts about their turns, so as much as possible is counted from the calls.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::Result;
use crate::read::to_millis;

/// A JSON object for each week and model, or one if `?2` is false. The last request of a turn says what its model was.
/// A newer version may have written facts in another form.
const WORK: &str = "
WITH spent AS (
  SELECT usage.session, usage.turn, count(*) AS requests, sum(input) AS input, sum(cached) AS cached,
    sum(output) AS output, sum(usage.cost) AS cost, min(at) AS at, max(usage.id) AS last_id
  FROM usage JOIN sessions ON sessions.key = usage.session
  WHERE usage.at >= ?1 AND usage.at >= sessions.created_at
  GROUP BY usage.session, usage.turn
), called AS (
  SELECT calls.session, calls.turn, sum(tool_name = 'read_file') AS reads,
    sum(tool_name IN ('edit_file', 'write_file', 'apply_patch')) AS edits,
    sum(tool_name IN ('edit_file', 'write_file', 'apply_patch') AND status = 'error') AS failed_edits,
    sum(result LIKE '%[You have made this call%') AS loops
  FROM calls JOIN sessions ON sessions.key = calls.session
  WHERE asked_at >= ?1 AND asked_at >= sessions.created_at
  GROUP BY calls.session, calls.turn
), worked AS (
  SELECT spent.*, reads, edits, failed_edits, loops, usage.model, usage.served,
    sessions.helper_of IS NULL AS is_task,
    date(spent.at / 1000, 'unixepoch', '-6 days', 'weekday 1') AS week,
    CASE WHEN json_valid(turns.facts) THEN turns.facts END AS facts
  FROM spent JOIN usage ON usage.id = spent.last_id JOIN sessions ON sessions.key = spent.session
  LEFT JOIN turns ON turns.session = spent.session AND turns.number = spent.turn
  LEFT JOIN called ON called.session = spent.session AND called.turn = spent.turn
)
SELECT json_object('week', week, 'model', model,
  'served', json_group_array(DISTINCT served) FILTER (WHERE served IS NOT NULL),
  'tasks', count(DISTINCT CASE WHEN is_task THEN session END),
  'counts', json_object('turns', sum(is_task), 'requests', sum(requests), 'input', sum(input), 'cached', sum(cached),
    'output', sum(output), 'cost', sum(cost), 'reads', coalesce(sum(reads), 0), 'edits', coalesce(sum(edits), 0),
    'failed_edits', coalesce(sum(failed_edits), 0),
    'loops', sum(CAST(coalesce(json_extract(facts, '$.loops'), loops, 0) AS INTEGER)),
    'judged_turns', sum(is_task AND facts IS NOT NULL),
    'proven_turns', coalesce(sum(is_task AND json_extract(facts, '$.proof') = 'green'), 0)))
FROM worked GROUP BY iif(?2, week, 0), iif(?2, model, 0) ORDER BY week, model";

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
    /// Calls that read files.
    pub reads: u64,
    /// Calls that change files.
    pub edits: u64,
    pub failed_edits: u64,
    /// The number of times that the model was told that it repeats itself.
    pub loops: u64,
    /// The turns for which it is known whether they were proven.
    pub judged_turns: u64,
    /// The turns that ended with a check or a test that passed.
    pub proven_turns: u64,
}

/// The work of a model in a week.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// Counts the work of all sessions since a time, by week and model, in the order of both. Without a time it is all
/// work, as if it were that of one week and model.
pub fn count_work(connection: &Connection, since: Option<SystemTime>) -> Result<Vec<WeekOfWork>> {
    let begin = to_millis(since.unwrap_or(SystemTime::UNIX_EPOCH));
    let mut query = connection.prepare(WORK)?;
    let rows = query.query_map(params![begin, since.is_some()], |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::database::open_in_memory;

    /// The seconds of a day, and of Monday, 2 November 2026.
    const DAY: u64 = 24 * 60 * 60;
    const MONDAY: u64 = 20_759 * DAY;

    #[test]
    fn a_week_begins_on_monday() {
        let connection = open_in_memory().unwrap();
        connection
            .execute_batch(
                "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/w', 0, 0)",
            )
            .unwrap();
        let days = [MONDAY - 1, MONDAY, MONDAY + 7 * DAY - 1, MONDAY + 7 * DAY];
        for (turn, seconds) in days.into_iter().enumerate() {
            let insert = "INSERT INTO usage (session, turn, at, model, input, output, cached) VALUES (1, ?, ?, 'm', 1, 1, 0)";
            connection.execute(insert, params![turn, seconds * 1_000]).unwrap();
        }
        let weeks = count_work(&connection, Some(SystemTime::UNIX_EPOCH)).unwrap();
        let found: Vec<_> = weeks.iter().map(|week| (&*week.week, week.counts.turns)).collect();
        assert_eq!(found, [("2026-10-26", 1), ("2026-11-02", 2), ("2026-11-09", 1)]);
    }

    #[test]
    fn a_session_that_was_made_by_hand_is_counted() {
        let connection = open_in_memory().unwrap();
        let begun = MONDAY * 1_000;
        connection
            .execute_batch(&format!(
                "INSERT INTO sessions (key, id, cwd, created_at, updated_at) VALUES (1, 's', '/w', {begun}, {begun});
                 INSERT INTO sessions (key, id, cwd, created_at, updated_at, helper_of)
                   VALUES (2, 'h', '/w', {begun}, {begun}, 's');
                 INSERT INTO turns (session, number, kind, begun_at, facts) VALUES
                   (1, 1, 'prompt', {begun}, NULL), (1, 2, 'prompt', {begun}, '{{\"proof\":\"green\",\"loops\":2}}'),
                   (2, 1, 'prompt', {begun}, '{{\"loops\":[\"many\"]}}');
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
        let weeks = count_work(&connection, Some(SystemTime::UNIX_EPOCH)).unwrap();
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
            reads: 2,
            edits: 2,
            failed_edits: 1,
            loops: 3,
            judged_turns: 1,
            proven_turns: 1,
        };
        assert_eq!(week.counts, expected);
        assert_eq!(count_work(&connection, None).unwrap(), weeks);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(MONDAY + DAY);
        assert!(count_work(&connection, Some(later)).unwrap().is_empty());
    }
}
