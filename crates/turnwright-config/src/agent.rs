//! `[agent]`: what the model is told of itself. `[goal]`: how long it works towards a goal, and which model judges
//! that.

use std::num::NonZeroU32;

use serde::Deserialize;

use crate::environment::SURROUNDINGS_VARIABLE;
use crate::table::settings;
use crate::wrong_values::{wrong_name, wrong_tools};
use turnwright_types::work_settings::{DEFAULT_GOAL_TURNS, ToolChoice};

settings! {
    /// `[agent]`: the agent's name, and instructions in addition to the built-in ones.
    #[derive(Clone, Debug, Deserialize)]
    #[serde(default)]
    pub section AgentSection {
        pub name: Option<String> => wrong_name { examples: ["Ada"] } wrong [r#"agent.name = """#]
            "The name under which the agent answers.",
            "the name that the agent goes by instead of turnwright: one line of at most 100 characters";
        pub system_prompt: Option<String> { examples: ["Answer in one sentence where one is enough."] }
            "Instructions that follow the built-in ones in each request.",
            "instructions that follow the built-in ones in each request. Use this to say who the agent is, and \
             `AGENTS.md` in the configuration folder to say how it should work";
        pub(crate) surroundings: bool = true { variable: SURROUNDINGS_VARIABLE }
            "Whether the model is told of the machine, its programs and the project's commands.",
            "whether the model is told of the machine, its programs and the project's commands; `true`. In the \
             variable, `1` or `0`";
        pub(crate) tools: Option<String> => wrong_tools {
            words: (ToolChoice::NAMES),
            default: "auto",
        } wrong [r#"agent.tools = "some""#]
            "The tools that the model is offered: auto offers few to a small model.",
            "the tools that the model is offered: `auto` (default: few for a small model), `all` or `few`";
        pub(crate) hints: bool = true {}
            "Whether the model gets a hint where its calls lead nowhere.",
            "whether the model gets a hint where its calls lead nowhere; `true`";
        pub(crate) offer_notes: bool = true {}
            "Whether notes are offered at the end of a turn.",
            "whether notes are offered at the end of a turn; `true`";
    }
}

settings! {
    /// `[goal]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub(crate) section GoalSection {
        pub(crate) model: Option<String> { examples: ["openai/gpt-5.4-mini"] }
            "The model that judges whether a goal is reached; that of the session if not set.",
            "the model that judges whether a goal is reached, named as in `model`; that of the session if not set";
        pub(crate) turns: Option<NonZeroU32> { default: DEFAULT_GOAL_TURNS }
            "The most slices of work towards a goal.",
            "the most slices of work towards a goal; 20";
    }
}

/// The longest name of the agent.
const MAX_NAME_CHARS: usize = 100;

impl AgentSection {
    /// The name, unless it cannot be one.
    pub fn usable_name(&self) -> Option<&str> {
        self.name.as_deref().map(str::trim).filter(|name| is_agent_name(name))
    }
}

/// Returns true if the agent can go by this name.
pub(crate) fn is_agent_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.chars().any(char::is_control)
}
