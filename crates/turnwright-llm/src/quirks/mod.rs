//! What servers and models want done differently, as data. Four layers, each over the one
//! before: the usual, the built-in table, what this server has taught us, the user's settings.

mod learn;
mod table;

use serde::{Deserialize, Serialize};

pub(super) use learn::learn;

macro_rules! quirks {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $usual:expr;)*) => {
        /// How one model at one server wants to be spoken to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Quirks {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Quirks {
            /// What most servers take: the smallest request there can be.
            fn default() -> Quirks {
                Quirks { $($name: $usual,)* }
            }
        }

        /// Some of the quirks: a row of the table, a lesson, or a user's wish.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Patch {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl Patch {
            /// Changes nothing.
            pub const NONE: Patch = Patch { $($name: None,)* };

            /// The names of all quirks.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// This one, with `later` over it.
            #[must_use]
            pub fn and(self, later: Patch) -> Patch {
                Patch { $($name: later.$name.or(self.$name),)* }
            }
        }

        impl Quirks {
            /// These, with `patch` over them.
            #[must_use]
            pub fn with(self, patch: Patch) -> Quirks {
                Quirks { $($name: patch.$name.unwrap_or(self.$name),)* }
            }
        }
    };
}

quirks! {
    /// What the limit of the answer's length is called (C.4 #2).
    limit: Limit = Limit::MaxTokens;
    /// The role of the system prompt (C.4 #1).
    role: Role = Role::System;
    /// How the reasoning effort is asked for (C.4 #4).
    effort: Dialect = Dialect::None;
    /// Whether reasoning is sent back (C.3 #8–#12).
    echo: Echo = Echo::Never;
    /// Whether `reasoning_details` are sent back (C.3 #4).
    details: bool = false;
    /// What the identifiers of calls must look like (C.2 #8–#10).
    ids: Ids = Ids::Verbatim;
    /// Whether the count of tokens may be asked for (C.4 #19).
    stream_options: bool = true;
    /// What stands for the words of an answer that has calls and no words (C.4 #12).
    wordless: Wordless = Wordless::Omit;
    /// Whether an answer must stand between a result and a prompt (C.4 #14).
    bridge: bool = false;
    /// Whether calls without a signature need the well-known substitute (C.3 #11).
    signature: bool = false;
    /// Whether it takes pictures.
    images: bool = false;
    /// Whether it takes recordings.
    audio: bool = false;
    /// Whether pictures may stand in the result of a call (C.4 #17).
    tool_images: bool = false;
    /// How the provider's cache is told what will come again (C.4 #23).
    cache: Cache = Cache::Auto;
    /// Where inline reasoning may stand in the words (C.3 #6).
    think: Think = Think::Tagged;
    /// Whether an answer that is nothing but reasoning is the answer (C.3 #13).
    thought_is_answer: bool = false;
    /// Whether it goes round in circles: endless repetition and equal calls are stopped (C.1 #28b).
    loops: bool = false;
    /// What is done with calls that leak into the words (C.2 #21).
    leaked: Leaked = Leaked::Nudge;
    /// Whether arguments only stream when that is asked for (C.2 #12).
    tool_stream: bool = false;
    /// Whether reasoning only has a field of its own when that is asked for (C.3 #7).
    reasoning_split: bool = false;
    /// Whether summaries of the reasoning may be asked for (Responses).
    summary: bool = true;
    /// Whether encrypted reasoning may be asked for (Responses).
    encrypted: bool = true;
    /// The header that the key goes in (C.4 #22).
    key: Key = Key::Bearer;
    /// Whether it is used to changing files by patches.
    patches: bool = false;
    /// Whether several calls in one answer are known to work. For people; nothing depends on it.
    parallel: bool = true;
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = "snake_case")]
            pub enum $name {
                $($(#[$each])* $variant,)*
            }
        )*
    };
}

words! {
    /// What the limit of the answer's length is called.
    Limit {
        /// The old name, which nearly all take.
        MaxTokens,
        /// The new name, which OpenAI's reasoning models insist on.
        MaxCompletionTokens,
    }
    /// The role of the system prompt.
    Role {
        /// The usual one.
        System,
        /// OpenAI's newer one.
        Developer,
    }
    /// How the reasoning effort is asked for.
    Dialect {
        /// Not at all.
        None,
        /// `reasoning_effort: "low"`.
        ReasoningEffort,
        /// `reasoning: {"effort": "low"}`.
        Reasoning,
        /// `reasoning: {"enabled": true}`.
        ReasoningEnabled,
        /// `thinking: {"type": "enabled"}`.
        Thinking,
        /// The same, sent always, with the wish that earlier thoughts are kept (C.3 #10).
        ThinkingKept,
        /// `thinking: {"type": "adaptive"}`.
        ThinkingAdaptive,
        /// `enable_thinking: true`.
        EnableThinking,
        /// `chat_template_kwargs: {"enable_thinking": true}`.
        TemplateThinking,
    }
    /// Whether reasoning is sent back.
    Echo {
        /// Never: strict servers refuse it.
        Never,
        /// In the field that it came in, to the model that it came from.
        Same,
        /// With each answer, empty if there was none: its lack is refused.
        Always,
        /// Within the words, as it came.
        Inline,
    }
    /// What the identifiers of calls must look like.
    Ids {
        /// As they came.
        Verbatim,
        /// At most 40 letters, digits, `_` and `-`.
        Safe,
        /// Nine letters and digits.
        Nine,
        /// `functions.NAME:NUMBER`; the model itself goes by them.
        Functions,
    }
    /// What stands for the words of an answer that has calls and no words.
    Wordless {
        /// No field.
        Omit,
        /// An empty text.
        Empty,
        /// `null`.
        Null,
    }
    /// How the provider's cache is told what will come again.
    Cache {
        /// It finds out by itself.
        Auto,
        /// By marks on the parts, as Anthropic's models need them.
        Marks,
        /// By a key for the conversation.
        Key,
    }
    /// Where inline reasoning may stand in the words.
    Think {
        /// Nowhere.
        Off,
        /// In tags at the very beginning.
        Tagged,
        /// At the beginning, and the opening tag may be missing.
        Implicit,
    }
    /// What is done with calls that leak into the words.
    Leaked {
        /// Nothing.
        Off,
        /// The model is told once to make a real call.
        Nudge,
        /// They are understood and made.
        Parse,
    }
    /// The header that the key goes in.
    Key {
        /// `Authorization: Bearer …`.
        Bearer,
        /// `api-key: …`.
        ApiKey,
    }
}

impl Quirks {
    /// The quirks of a model at a host, by the built-in table alone.
    pub fn of(host: &str, model: &str) -> Quirks {
        Quirks::default().with(table::find(host, model))
    }

    /// Whether a reasoning effort can be chosen.
    pub fn has_effort(&self) -> bool {
        self.effort != Dialect::None
    }
}

impl Patch {
    /// Reads quirks that somebody has written down; those that make no sense are named in the
    /// second part and left out.
    pub fn read(fields: &serde_json::Map<String, serde_json::Value>) -> (Patch, Vec<String>) {
        let mut patch = Patch::NONE;
        let mut wrong = Vec::new();
        for (name, value) in fields {
            let one = serde_json::json!({ name: value });
            match serde_json::from_value::<Patch>(one) {
                Ok(one) if Patch::NAMES.contains(&name.as_str()) => patch = patch.and(one),
                Ok(_) => wrong.push(format!("there is no quirk `{name}`")),
                Err(error) => wrong.push(format!("the quirk `{name}` cannot be that: {error}")),
            }
        }
        (patch, wrong)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_layers_win_and_leave_the_rest() {
        let quirks = Quirks::of("api.deepseek.com", "deepseek-reasoner");
        assert_eq!(quirks.echo, Echo::Always);
        let taught = quirks.with(Patch { echo: Some(Echo::Never), ..Patch::NONE });
        assert_eq!(taught.echo, Echo::Never);
        assert_eq!(taught.effort, quirks.effort);
    }

    #[test]
    fn each_quirk_is_explained() {
        let text = include_str!("../../../../docs/models.md");
        let missing: Vec<_> =
            Patch::NAMES.iter().filter(|it| !text.contains(&format!("`{it}`"))).collect();
        assert!(missing.is_empty(), "docs/models.md says nothing of {missing:?}");
    }

    #[test]
    fn written_quirks_are_read_and_wrong_ones_are_named() {
        let fields = json!({ "echo": "same", "images": true, "ids": "ten", "colour": 1 });
        let (patch, wrong) = Patch::read(fields.as_object().unwrap());
        assert_eq!(patch, Patch { echo: Some(Echo::Same), images: Some(true), ..Patch::NONE });
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        let text = serde_json::to_value(patch).unwrap();
        assert_eq!(text, json!({ "echo": "same", "images": true }));
    }
}
