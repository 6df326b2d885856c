//! The limits of a turn and a session: the settings of `[limits]` and the flag `--budget`.

use std::num::{NonZeroU32, NonZeroU64};

use serde::Deserialize;

use crate::table::{SettingType, settings};
use crate::{Config, ConfigError, SettingsSnapshot};

settings! {
    /// `[limits]`.
    #[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
    #[serde(default)]
    pub section LimitsSection {
        pub stop_loops: Option<bool> { default: true }
            "Whether a model that makes the same calls with the same results again and again is stopped.",
            "whether a model that keeps making the same calls with the same results is told so, and then you are \
             asked; `true`";
        turn_tokens: Option<NonZeroU64> { examples: [2_000_000] } wrong ["limits.turn_tokens = 0"]
            "The most tokens of one turn, of all its requests and answers together.",
            "tokens of all requests and answers of a turn together, as counted by the server";
        turn_cost: Option<f64> => wrong_limit { examples: [2.5] }
            "The most US dollars of one turn, if the price of the model is known.",
            "US dollars of a turn, as reported by the server, or else computed from the model's `price`; with \
             neither, an answer does not count, and a notice says so";
        turn_minutes: Option<NonZeroU32> { examples: [60] }
            "The most minutes of one turn.",
            "minutes that a turn runs, including time spent waiting for you";
        session_requests: Option<NonZeroU64> { examples: [1000] }
            "The most requests of a session.",
            "requests to the model; `max_turn_requests` limits those of one turn, not counting its helpers'";
        session_tokens: Option<NonZeroU64> { examples: [20_000_000] }
            "The most tokens of a session.",
            "as `turn_tokens`, for a session";
        session_cost: Option<f64> => wrong_limit { examples: [10.0] } wrong ["limits.session_cost = -1"]
            "The most US dollars of a session, if the price of the model is known.",
            "as `turn_cost`, for a session";
        session_minutes: Option<NonZeroU32> { examples: [600] }
            "The most minutes of a session in which a turn runs.",
            "minutes in which a turn runs, including time spent waiting for you";
    }
}

impl LimitsSection {
    /// The limits that are set, by the names of their settings.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let entries = self.entries("").into_iter();
        entries.filter_map(|(_, row, number)| Some((row.key, number?.parse().ok()?)))
    }
}

/// The names of the limits, as opposed to the switches.
fn limit_names() -> impl Iterator<Item = &'static str> {
    let limits = LimitsSection::ROWS.iter().filter(|row| (row.type_schema)()["type"] != "boolean");
    limits.map(|row| row.key)
}

fn wrong_limit(key: &str, number: &(impl Copy + Into<f64>)) -> Option<String> {
    let number: f64 = (*number).into();
    (!is_limit(number)).then(|| format!("`{key}` is {number}, expected a number above 0"))
}

/// Reads `NAME=NUMBER` of the flag.
pub fn parse_limit(text: &str) -> Result<(String, f64), ConfigError> {
    let (name, number) = text.split_once('=').unwrap_or((text, ""));
    let is_known = limit_names().any(|known| known == name) || name == "max_turn_requests";
    if !is_known {
        let known = limit_names().collect::<Vec<_>>().join(", ");
        return Err(ConfigError::new(format!("known limits are max_turn_requests, {known}")));
    }
    match number.trim().parse() {
        Ok(number) if is_limit(number) => Ok((name.to_owned(), number)),
        _ => Err(ConfigError::new(format!("expected {name}=NUMBER with a number above 0"))),
    }
}

fn is_limit(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

impl SettingsSnapshot<'_> {
    /// The limits of turns and sessions, each by the name of its setting. The last one of a name counts: a flag takes
    /// precedence over the file.
    pub fn limits(&self) -> Vec<(String, f64)> {
        let numbers = self.values.limits.numbers().filter(|limit| is_limit(limit.1));
        let of_file = numbers.map(|(name, number)| (name.to_owned(), number));
        of_file.chain(self.config.flags.limits.iter().cloned()).collect()
    }
}

impl Config {
    /// The limit of requests in one turn that the flag sets.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    pub(crate) fn requests_flag(&self) -> Option<u32> {
        let found = self.flags.limits.iter().rev().find(|limit| limit.0 == "max_turn_requests");
        found.map(|limit| (limit.1 as u32).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_names_a_setting_and_a_number() {
        for (text, expected) in [
            ("turn_tokens=500000", Ok(("turn_tokens", 500_000.0))),
            ("session_cost=2.5", Ok(("session_cost", 2.5))),
            ("max_turn_requests=7", Ok(("max_turn_requests", 7.0))),
            ("turn_tokens", Err("expected turn_tokens=NUMBER")),
            ("turn_cost=-1", Err("a number above 0")),
            ("turn_cost=inf", Err("a number above 0")),
            ("stop_loops=1", Err("known limits are max_turn_requests, turn_tokens,")),
            ("cost=1", Err("known limits are")),
        ] {
            match (parse_limit(text), expected) {
                (Ok((name, number)), Ok(expected)) => {
                    assert_eq!((name.as_str(), number), expected, "{text}");
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{text}: {error}");
                }
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
