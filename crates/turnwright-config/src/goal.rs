//! `[goal]`: how long the agent works towards a goal, and which model judges that.

use std::num::NonZeroU32;

use serde::Deserialize;

use crate::table::settings;
use turnwright_types::work_settings::DEFAULT_GOAL_TURNS;

settings! {
    /// `[goal]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub(crate) section GoalSection {
        pub(crate) model: Option<String> { examples: ["openai/gpt-5-mini"] }
            "The model that judges whether a goal is reached; that of the session if not set.",
            "the model that judges whether a goal is reached, named as in `model`; that of the session if not set";
        pub(crate) turns: Option<NonZeroU32> { default: DEFAULT_GOAL_TURNS }
            "The most slices of work towards a goal.",
            "the most slices of work towards a goal; 20";
    }
}
