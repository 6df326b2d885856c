//! `[agent]`: what the model is told of itself.

use serde::Deserialize;

use crate::table::settings;
use crate::wrong_values::wrong_name;

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
