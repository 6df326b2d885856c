//! The events at which hooks run, and how they differ.

use std::time::Duration;

/// Defines the events by their names.
macro_rules! events {
    ($($name:ident)+) => {
        /// A moment of a session at which hooks run. The names are those of Claude Code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HookEvent {
            $($name,)+
        }

        impl HookEvent {
            /// All events.
            pub const ALL: [HookEvent; 13] = [$(HookEvent::$name),+];

            /// Returns the name used in hook files and in the input of handlers.
            pub fn name(self) -> &'static str {
                match self {
                    $(HookEvent::$name => stringify!($name),)+
                }
            }
        }
    };
}

events! {
    PreToolUse PermissionRequest PostToolUse PostToolUseFailure UserPromptSubmit SessionStart
    SessionEnd Stop SubagentStart SubagentStop PreCompact PostCompact Notification
}

/// The time limit of a handler whose definition sets none.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The default time limit for prompt events, because the user is waiting.
const PROMPT_TIME_LIMIT: Duration = Duration::from_secs(30);
/// The upper bound for any handler's time limit at the end of a session.
pub(crate) const END_TIME_LIMIT: Duration = Duration::from_millis(1_500);

impl HookEvent {
    /// Returns the event with this name.
    pub fn parse(name: &str) -> Option<HookEvent> {
        HookEvent::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Returns true if the event is about a tool call, so that matchers are tested against the tool's name.
    pub fn is_about_tool(self) -> bool {
        use HookEvent::{PermissionRequest, PostToolUse, PostToolUseFailure, PreToolUse};
        matches!(self, PreToolUse | PermissionRequest | PostToolUse | PostToolUseFailure)
    }

    /// Returns true if a refusal keeps something from happening, so that handlers can guard it.
    pub(crate) fn is_guarded(self) -> bool {
        use HookEvent::{PermissionRequest, PreCompact, PreToolUse, UserPromptSubmit};
        matches!(self, PreToolUse | PermissionRequest | UserPromptSubmit | PreCompact)
    }

    /// Returns the time limit of a handler that asks for `wanted`.
    pub(crate) fn time_limit(self, wanted: Option<Duration>) -> Duration {
        match self {
            HookEvent::SessionEnd => wanted.unwrap_or(END_TIME_LIMIT).min(END_TIME_LIMIT),
            HookEvent::UserPromptSubmit => wanted.unwrap_or(PROMPT_TIME_LIMIT),
            _ => wanted.unwrap_or(TIME_LIMIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_found_by_its_name() {
        for event in HookEvent::ALL {
            assert_eq!(HookEvent::parse(event.name()), Some(event));
        }
        assert_eq!(HookEvent::parse("preToolUse"), None);
    }

    #[test]
    fn the_end_of_a_session_is_never_delayed_for_long() {
        let long = Some(Duration::from_secs(60));
        assert_eq!(HookEvent::SessionEnd.time_limit(long), END_TIME_LIMIT);
        assert_eq!(HookEvent::Stop.time_limit(long), Duration::from_secs(60));
        assert_eq!(HookEvent::Stop.time_limit(None), TIME_LIMIT);
    }
}
