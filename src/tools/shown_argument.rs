//! The arguments of a tool that the card of a call shows while they are still being streamed.

/// An argument that the card shows before the call is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownArgument {
    /// The name in the tool's schema.
    pub name: &'static str,
    pub role: ArgumentRole,
}

/// The role of an argument on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentRole {
    /// The command line is the whole title.
    Command,
    /// The path is the object of the title, and the card's location.
    Path,
    /// The pattern is quoted in the title, before the path in which it is searched.
    Pattern,
    /// The URL is the object of the title, without its scheme.
    Url,
    /// Something else that is the object of the title.
    Name,
    /// The content of a file is shown as it arrives.
    NewContent,
    /// The text that replaces [`ArgumentRole::OldText`] is shown as it arrives.
    NewText,
    /// The patch is shown as it arrives.
    Patch,
    /// The text that an edit replaces.
    OldText,
}

impl ArgumentRole {
    /// Returns true if the value becomes a part of the title as soon as it is complete.
    pub fn is_title(self) -> bool {
        use ArgumentRole::{Command, Name, Path, Pattern, Url};
        matches!(self, Command | Path | Pattern | Url | Name)
    }

    /// Returns true if the value may be long and is shown as it arrives.
    pub fn is_long(self) -> bool {
        matches!(self, ArgumentRole::NewContent | ArgumentRole::NewText | ArgumentRole::Patch)
    }
}

const fn shown(name: &'static str, role: ArgumentRole) -> ShownArgument {
    ShownArgument { name, role }
}

pub(super) const COMMAND: ShownArgument = shown("command", ArgumentRole::Command);
pub(super) const PATH: ShownArgument = shown("path", ArgumentRole::Path);
pub(super) const PATTERN: ShownArgument = shown("pattern", ArgumentRole::Pattern);
pub(super) const URL: ShownArgument = shown("url", ArgumentRole::Url);
pub(super) const GLOB: ShownArgument = shown("glob", ArgumentRole::Name);
pub(super) const NAME: ShownArgument = shown("name", ArgumentRole::Name);
pub(super) const CONTENT: ShownArgument = shown("content", ArgumentRole::NewContent);
pub(super) const NEW_TEXT: ShownArgument = shown("new_text", ArgumentRole::NewText);
pub(super) const OLD_TEXT: ShownArgument = shown("old_text", ArgumentRole::OldText);
pub(super) const PATCH: ShownArgument = shown("patch", ArgumentRole::Patch);

/// The usual meaning of arguments with these names, for the tools of MCP servers.
pub(crate) const COMMON_ARGUMENTS: &[ShownArgument] =
    &[PATH, COMMAND, PATTERN, URL, GLOB, NAME, CONTENT, NEW_TEXT, PATCH, OLD_TEXT];
