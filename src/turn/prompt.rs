//! The parts of a request besides the history: the system prompt, and the description of the project and its folders.

pub(super) mod project_context;

use std::sync::Arc;
use std::time::SystemTime;

use crate::turn::room::handoff::context_parts;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::History;
use turnwright_types::timestamp::local_day;
use turnwright_workspace::files::Roots;

pub(crate) use project_context::{
    PROJECT_READ_TIMEOUT, custom_commands, describe_notes, describe_skills, project_sources,
};

/// The built-in system prompt. It is always the same bytes, so that it can be cached; everything that
/// changes is sent with the user's messages.
pub(crate) const SYSTEM_PROMPT: &str = include_str!("prompt/system.md");
/// The prefix of the context line with the date.
pub(super) const DATE_PREFIX: &str = "Date: ";
/// The prefix of the context line with the working folder. It is not called the project: models then write paths that
/// begin with this word.
const FOLDER_PREFIX: &str = "Working folder: ";
/// Our name at the beginning of the system prompt.
const OUR_NAME: &str = "turnwright";
/// The parts of the system prompt that need a person, each with the one in its place if nobody watches.
const ALONE: [(&str, &str); 2] = [
    ("; ask or choose another way.", "; choose another way."),
    (
        "- If you are not sure what is wanted, ask.\n",
        "\
- Nobody can answer: do not ask. Choose the most reasonable reading, and say at the end what you assumed.
- Commands in the background may end with your answer: wait for those whose results matter.
- Start nothing that waits for a person; give flags such as -y or --no-input.
",
    ),
];

/// The system prompt for an agent with another name and further instructions, if the user has set any. `is_alone` is
/// true if nobody can answer a question.
pub(crate) fn system_prompt(name: Option<&str>, further: Option<&str>, is_alone: bool) -> Arc<str> {
    let mut prompt = SYSTEM_PROMPT.replacen(OUR_NAME, name.unwrap_or(OUR_NAME), 1);
    if is_alone {
        for (usual, alone) in ALONE {
            prompt = prompt.replacen(usual, alone, 1);
        }
    }
    if let Some(further) = further.map(str::trim).filter(|text| !text.is_empty()) {
        prompt.push_str(&format!("\n{further}\n"));
    }
    prompt.into()
}

/// The folders of a session, for the model.
pub(crate) fn folder_lines(roots: &Roots) -> String {
    let cwd = escape_hidden_line(&roots.cwd().to_string_lossy());
    let mut text = format!("{FOLDER_PREFIX}{cwd} (write paths relative to it)\n");
    for folder in roots.additional_folders() {
        let folder = escape_hidden_line(&folder.to_string_lossy());
        text.push_str(&format!("Another folder of the project: {folder}\n"));
    }
    text
}

/// The lines that tell the model at the beginning of a conversation where it works.
pub(crate) fn environment_lines(roots: &Roots) -> String {
    format!("{}System: {}\n{}", folder_lines(roots), std::env::consts::OS, date_line())
}

/// The line that tells the model the date of the user's clock.
pub(crate) fn date_line() -> String {
    format!("{DATE_PREFIX}{}\n", local_day(SystemTime::now()))
}

/// The line about the date if the conversation says last that it is another one.
pub(crate) fn new_date_line(history: &History) -> Option<String> {
    let contexts = history.messages.iter().rev().flat_map(|message| context_parts(message));
    let mut told = contexts.flat_map(str::lines).filter(|line| line.starts_with(DATE_PREFIX));
    let line = date_line();
    (told.next()? != line.trim_end()).then_some(line)
}

/// Returns an identifier that no other call of the conversation has. The model's own is kept if
/// possible: some models fail when their identifiers come back changed.
pub(super) fn unique_provider_id(history: &History, wanted: &str, ours: &str) -> String {
    let is_taken = |id: &str| {
        let answers = history.messages.iter().filter_map(|message| message.as_assistant());
        answers.flat_map(|answer| &answer.calls).any(|call| call.provider_id == id)
    };
    if !wanted.is_empty() && !is_taken(wanted) {
        return wanted.to_owned();
    }
    // The model may have used an identifier of our form.
    let more = (1..).map(|number| format!("{ours}-{number}"));
    let mut free = std::iter::once(ours.to_owned()).chain(more).filter(|id| !is_taken(id));
    free.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::{AssistantMessage, Message, ToolCall};

    #[test]
    fn a_name_stands_in_place_of_ours_and_further_instructions_follow() {
        assert_eq!(&*system_prompt(None, Some(" \n"), false), SYSTEM_PROMPT);
        let prompt = system_prompt(Some("Ada"), Some("Be brief."), false);
        assert!(prompt.starts_with("You are Ada, a coding agent"), "{prompt}");
        assert!(prompt.ends_with("\n\nBe brief.\n") && !prompt.contains(OUR_NAME), "{prompt}");
    }

    #[test]
    fn alone_the_model_is_told_that_nobody_answers_instead_of_to_ask() {
        let prompt = system_prompt(None, Some("Be brief."), true);
        assert!(!prompt.contains("If you are not sure") && !prompt.contains("; ask"), "{prompt}");
        assert!(prompt.contains("\n- Nobody can answer: do not ask."), "{prompt}");
        assert!(prompt.ends_with("--no-input.\n\nBe brief.\n"), "{prompt}");
    }

    #[test]
    fn an_identifier_of_ours_is_not_one_of_the_model_s_either() {
        let mut history = History::default();
        let call = ToolCall::new("1", "call-7", "read_file", serde_json::json!({}));
        history.push(Message::Assistant(AssistantMessage::new("m", "", vec![call])));
        assert_ne!(unique_provider_id(&history, "", "call-7"), "call-7");
    }
}
