//! The limits of a turn and a session: the settings of `[limits]` and the flag `--budget`.

use std::num::{NonZeroU32, NonZeroU64};

use serde::Deserialize;

use super::{Config, ConfigError};

/// The limits of turns and sessions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitSettings {
    /// True if a model that goes round in circles is stopped.
    pub stop_loops: bool,
    /// Each by the name of its setting; the last one of a name counts.
    pub numbers: Vec<(String, f64)>,
}

/// `[limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct LimitsSection {
    pub(super) stop_loops: Option<bool>,
    turn_tokens: Option<NonZeroU64>,
    turn_cost: Option<f64>,
    turn_minutes: Option<NonZeroU32>,
    session_requests: Option<NonZeroU64>,
    session_tokens: Option<NonZeroU64>,
    session_cost: Option<f64>,
    session_minutes: Option<NonZeroU32>,
}

pub(super) const LIMITS_KEYS: &[&str] = &[
    "stop_loops",
    "turn_tokens",
    "turn_cost",
    "turn_minutes",
    "session_requests",
    "session_tokens",
    "session_cost",
    "session_minutes",
];

impl LimitsSection {
    /// The limits that are set, by the names of their settings.
    #[expect(clippy::cast_precision_loss, reason = "no limit needs 52 bits")]
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            self.turn_tokens.map(|tokens| tokens.get() as f64),
            self.turn_cost,
            self.turn_minutes.map(|minutes| f64::from(minutes.get())),
            self.session_requests.map(|requests| requests.get() as f64),
            self.session_tokens.map(|tokens| tokens.get() as f64),
            self.session_cost,
            self.session_minutes.map(|minutes| f64::from(minutes.get())),
        ];
        let named = LIMITS_KEYS.iter().skip(1).zip(all);
        named.filter_map(|(name, amount)| Some((*name, amount?)))
    }

    /// The wrong values, a sentence each.
    pub(super) fn wrong_values(&self) -> impl Iterator<Item = String> {
        let wrong = self.numbers().filter(|limit| !is_limit(limit.1));
        wrong
            .map(|(name, number)| format!("`limits.{name}` is {number}, expected a number above 0"))
    }
}

/// Reads `NAME=NUMBER` of the flag.
pub(crate) fn parse_limit(text: &str) -> Result<(String, f64), ConfigError> {
    let (name, number) = text.split_once('=').unwrap_or((text, ""));
    let is_known = LIMITS_KEYS[1..].contains(&name) || name == "max_turn_requests";
    if !is_known {
        let known = LIMITS_KEYS[1..].join(", ");
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

impl Config {
    /// The limits of turns and sessions. A flag takes precedence over the file.
    pub(crate) fn limits(&self) -> LimitSettings {
        let section = self.file.load().map(|file| file.limits).unwrap_or_default();
        let of_file = section
            .numbers()
            .filter(|limit| is_limit(limit.1))
            .map(|(name, number)| (name.to_owned(), number));
        LimitSettings {
            stop_loops: section.stop_loops.unwrap_or(true),
            numbers: of_file.chain(self.flags.limits.iter().cloned()).collect(),
        }
    }

    /// The limit of requests in one turn that the flag sets.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    pub(super) fn requests_flag(&self) -> Option<u32> {
        let found = self.flags.limits.iter().rev().find(|limit| limit.0 == "max_turn_requests");
        found.map(|limit| (limit.1 as u32).max(1))
    }

    /// Returns true if a flag sets this limit.
    pub(super) fn has_limit_flag(&self, name: &str) -> bool {
        self.flags.limits.iter().any(|limit| limit.0 == name)
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
