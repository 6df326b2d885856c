//! The context of the model besides the user's words: the instructions, the project, its folders.

pub(super) mod context;
pub(super) mod first_prompt;
pub(super) mod folder_instructions;
