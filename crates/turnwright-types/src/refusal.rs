//! Why a tool call was not executed, said once for the model and once for the user.

/// The reason why a tool call was not executed. The model gets instructions on what to do instead, the user a short statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRefusal {
    /// The result of the call that the model reads.
    pub for_model: String,
    /// What the call's card shows.
    pub for_user: String,
}

impl ToolRefusal {
    pub fn new(for_model: impl Into<String>, for_user: impl Into<String>) -> ToolRefusal {
        ToolRefusal { for_model: for_model.into(), for_user: for_user.into() }
    }
}

/// The same text serves both.
impl From<String> for ToolRefusal {
    fn from(text: String) -> ToolRefusal {
        ToolRefusal { for_model: text.clone(), for_user: text }
    }
}

impl From<&str> for ToolRefusal {
    fn from(text: &str) -> ToolRefusal {
        ToolRefusal::from(text.to_owned())
    }
}
