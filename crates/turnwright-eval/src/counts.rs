//! The table of `turnwright stats`: the work of stored sessions, by week and model.

use crate::statistics::whole;
use crate::table::{UNKNOWN, aligned, count, known, money, percent};
use turnwright_store::stats::{WeekOfWork, WorkCounts};
use turnwright_types::effect::escape_hidden_line;

const HEADINGS: &str =
    "week of,model,tasks,turns,reads/edit,failed edits,loops,proven,input,cached,output,cost";

/// The table for people.
pub fn text(weeks: &[WeekOfWork]) -> String {
    if weeks.is_empty() {
        return "No stored session has asked a model in this time.\n".to_owned();
    }
    let mut rows: Vec<Vec<_>> = vec![HEADINGS.split(',').map(str::to_owned).collect()];
    rows.extend(weeks.iter().map(row));
    aligned(&rows)
}

fn row(week: &WeekOfWork) -> Vec<String> {
    let WorkCounts { reads, edits, failed_edits, judged_turns, proven_turns, .. } = week.counts;
    let proven = match judged_turns {
        0 => UNKNOWN.to_owned(),
        all => format!("{proven_turns}/{all}"),
    };
    let served: Vec<_> = week.served.iter().filter(|name| **name != week.model).cloned().collect();
    let mut model = week.model.clone();
    if !served.is_empty() {
        model += &format!(" ({})", served.join(", "));
    }
    vec![
        week.week.clone(),
        escape_hidden_line(&model),
        week.tasks.to_string(),
        week.counts.turns.to_string(),
        known(share(reads, edits), |reads| format!("{reads:.1}")),
        percent(share(failed_edits, edits)),
        week.counts.loops.to_string(),
        proven,
        count(Some(whole(week.counts.input))),
        count(Some(whole(week.counts.cached))),
        count(Some(whole(week.counts.output))),
        money(week.counts.cost),
    ]
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| whole(part) / whole(all))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_week_is_a_row_and_what_is_not_known_is_said() {
        let counts = WorkCounts {
            turns: 7,
            reads: 30,
            edits: 10,
            failed_edits: 2,
            loops: 1,
            input: 1_200_000,
            ..WorkCounts::default()
        };
        let week = WeekOfWork {
            week: "2026-11-02".to_owned(),
            model: "m".to_owned(),
            served: BTreeSet::from(["m-2026".to_owned()]),
            tasks: 3,
            counts,
        };
        let table = text(std::slice::from_ref(&week));
        let words: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = "2026-11-02 m (m-2026) 3 7 3.0 20 % 1 – 1.20 M 0 0 –";
        assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn no_sessions_are_a_sentence() {
        assert!(text(&[]).starts_with("No stored session"));
    }
}
