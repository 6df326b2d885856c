//! The reason why a tool call was not executed, once for the model and once for the user.

use crate::text;

/// The reason why a tool call was not executed. The model gets instructions on what to do instead, the user a short statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRefusal {
    /// The result of the call that the model reads.
    pub for_model: String,
    /// The text on the call's card.
    pub for_user: String,
}

impl ToolRefusal {
    pub fn new(for_model: impl Into<String>, for_user: impl Into<String>) -> ToolRefusal {
        ToolRefusal { for_model: for_model.into(), for_user: for_user.into() }
    }

    /// The user has answered no.
    pub fn rejected() -> ToolRefusal {
        ToolRefusal::new(
            "The user rejected this call. Do not repeat it or work around it: ask, or choose another \
             way.",
            "Rejected",
        )
    }

    /// The user has cancelled the call.
    pub fn cancelled(for_model: impl Into<String>) -> ToolRefusal {
        ToolRefusal::new(for_model, "Cancelled")
    }
}

/// A failure. The user reads the first sentence, which says what has happened; what follows tells the
/// model what to do.
impl<T: Into<String>> From<T> for ToolRefusal {
    fn from(text: T) -> ToolRefusal {
        let for_model = text.into();
        ToolRefusal { for_user: failure(&for_model), for_model }
    }
}

/// The text of a card for a failure that was described to the model.
pub fn failure(for_model: &str) -> String {
    let line = text::first_line(for_model);
    let sentence = line.split_once(". ").map_or(line, |(sentence, _)| sentence);
    format!("Failed: {}", sentence.trim_end_matches(['.', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_reads_what_has_happened_and_not_what_the_model_is_to_do() {
        for (for_model, for_user) in [
            ("a.txt does not exist. Nothing was read. Use find_files.", "a.txt does not exist"),
            ("exec needs a `command`.", "exec needs a `command`"),
            ("1 of 2 edits does not fit:\n2: not found", "1 of 2 edits does not fit"),
        ] {
            assert_eq!(ToolRefusal::from(for_model).for_user, format!("Failed: {for_user}"));
            assert_eq!(ToolRefusal::from(for_model).for_model, for_model);
        }
    }
}
