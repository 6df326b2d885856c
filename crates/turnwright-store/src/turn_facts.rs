//! The work of a turn in numbers. They are stored with its end, for statistics over many turns.

use serde::{Deserialize, Serialize};

/// The work of a turn in numbers. Its calls are counted from their own table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnFacts {
    /// The number of times that the model was told that it repeats itself.
    pub loops: u32,
    /// The verdict of the last run of a check or a test.
    pub proof: ProofWord,
    /// True if the model was asked for a proof before the turn ended.
    pub was_closed: bool,
}

/// The strength of the proof of a turn's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofWord {
    /// Nothing was run.
    #[default]
    None,
    /// Something was run that says little.
    Thin,
    /// A check or a test has failed.
    Red,
    /// A check or a test has succeeded.
    Green,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_names_are_these_and_missing_ones_are_nothing() {
        let facts = TurnFacts { loops: 2, proof: ProofWord::Thin, ..TurnFacts::default() };
        let text = serde_json::to_string(&facts).unwrap();
        let expected = r#"{"loops":2,"proof":"thin","was_closed":false}"#;
        assert_eq!(text, expected);
        // Older versions have stored more numbers.
        for stored in ["{}", r#"{"reads":1,"failed_calls":2}"#] {
            assert_eq!(serde_json::from_str::<TurnFacts>(stored).unwrap(), TurnFacts::default());
        }
    }
}
