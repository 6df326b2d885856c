//! The differences between servers and models, as data. Four layers, each overriding the one
//! before: the defaults, the built-in table, what was learned from the server, and the user's
//! settings.

pub(crate) mod learned_quirks;
mod table;

use serde::{Deserialize, Serialize};

use turnwright_types::message::Media;

macro_rules! define_quirks {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $usual:expr;)*) => {
        /// How requests to one model at one server are rendered, and how its replies are read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Quirks {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Quirks {
            /// The minimal request, which most servers accept.
            fn default() -> Quirks {
                Quirks { $($name: $usual,)* }
            }
        }

        /// A partial set of quirks: a row of the table, what was learned, or a user's override.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct QuirkPatch {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl QuirkPatch {
            pub const NONE: QuirkPatch = QuirkPatch { $($name: None,)* };

            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            $(
                /// The same patch with this value.
                #[must_use]
                pub const fn $name(self, value: $type) -> QuirkPatch {
                    QuirkPatch { $name: Some(value), ..self }
                }
            )*

            /// Merges two patches; `later` takes precedence.
            #[must_use]
            pub fn merge(self, later: QuirkPatch) -> QuirkPatch {
                QuirkPatch { $($name: later.$name.or(self.$name),)* }
            }
        }

        impl Quirks {
            /// Applies a patch.
            #[must_use]
            pub fn with(self, patch: QuirkPatch) -> Quirks {
                Quirks { $($name: patch.$name.unwrap_or(self.$name),)* }
            }
        }
    };
}

define_quirks! {
    /// True if the model is asked with the Responses API although the settings name no API or another one.
    responses: bool = false;
    /// The field that limits the length of a reply (C.4 #2).
    limit: OutputLimitField = OutputLimitField::MaxTokens;
    /// True if a long answer has to be asked for, because the server's own limit is small.
    long: bool = false;
    role: SystemRole = SystemRole::System;
    /// The request field for the reasoning effort (C.4 #4).
    effort: EffortDialect = EffortDialect::None;
    /// How reasoning is sent back (C.3 #8–#12).
    echo: ReasoningEcho = ReasoningEcho::Never;
    /// True if signed reasoning (`reasoning_details`, `thinking_blocks`, `reasoning_opaque`) is sent back (C.3 #4).
    details: bool = true;
    /// The required format of call identifiers (C.2 #8–#10).
    ids: CallIdFormat = CallIdFormat::Verbatim;
    /// True if the arguments of tools may have names of any characters. Otherwise, those with others than letters,
    /// digits and `_.-` are described.
    names: bool = true;
    /// True if the answer may be requested piece by piece. Otherwise it comes as a whole.
    stream: bool = true;
    /// True if token counts may be requested with `stream_options` (C.4 #19).
    stream_options: bool = true;
    /// The `content` of an assistant message that has calls but no text (C.4 #12).
    wordless: EmptyContent = EmptyContent::Omit;
    /// True if an assistant message is required between a tool result and a prompt (C.4 #14).
    bridge: bool = false;
    /// True if calls without a signature need the well-known placeholder (C.3 #11).
    signature: bool = false;
    /// True if the model accepts images.
    images: bool = true;
    /// True if the model accepts audio.
    audio: bool = false;
    /// True if the model accepts PDF files.
    files: bool = false;
    /// True if images may be part of a tool result (C.4 #17).
    tool_images: bool = false;
    /// How the provider's prompt cache is used (C.4 #23).
    cache: CacheHint = CacheHint::Auto;
    /// True if the cache marker of a tool result is on its message. LiteLLM copies one within the content to where
    /// Anthropic refuses it.
    outer_marks: bool = false;
    /// Where reasoning may occur inside the text (C.3 #6).
    think: ThinkTags = ThinkTags::Tagged;
    /// True if reasoning counts as the answer if the reply has no text (C.3 #13).
    thought_is_answer: bool = false;
    /// True if an answer that repeats a text or a call endlessly is stopped (C.1 #28b).
    loops: bool = true;
    /// The handling of calls that the model writes into its text (C.2 #21).
    leaked: LeakedCallHandling = LeakedCallHandling::Nudge;
    /// True if streamed arguments have to be requested (C.2 #12).
    tool_stream: bool = false;
    /// True if a separate field for reasoning has to be requested (C.3 #7).
    reasoning_split: bool = false;
    /// True if reasoning summaries may be requested (Responses API).
    summary: bool = true;
    /// True if encrypted reasoning may be requested (Responses API).
    encrypted: bool = true;
    /// The header that carries the key (C.4 #22).
    key: KeyHeader = KeyHeader::Bearer;
    /// True if the model is trained to edit files with patches.
    patches: bool = false;
    /// True if several calls may be sent back in one answer. Otherwise, chat completions get an answer for each.
    parallel: bool = true;
}

macro_rules! quirk_values {
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

quirk_values! {
    /// The name of the field that limits the length of a reply.
    OutputLimitField {
        /// The original name, which nearly all servers accept.
        MaxTokens,
        /// The newer name, which OpenAI's reasoning models require.
        MaxCompletionTokens,
    }
    /// The role of the system prompt.
    SystemRole {
        System,
        /// OpenAI's newer role.
        Developer,
    }
    /// The request field for the reasoning effort.
    EffortDialect {
        /// None: the effort cannot be chosen.
        None,
        /// `reasoning_effort: "low"`.
        ReasoningEffort,
        /// `reasoning: {"effort": "low"}`.
        Reasoning,
        /// `reasoning: {"enabled": true}`.
        ReasoningEnabled,
        /// `thinking: {"type": "enabled"}`.
        Thinking,
        /// Like `Thinking`, but always sent, and asking to keep earlier reasoning (C.3 #10).
        ThinkingKept,
        /// Like `ThinkingKept`, with the effort in `reasoning_effort` beside it.
        ThinkingLevels,
        /// `thinking: {"type": "adaptive"}`.
        ThinkingAdaptive,
        /// `enable_thinking: true`.
        EnableThinking,
        /// Like `EnableThinking`, with the effort in `reasoning_effort` beside it.
        EnableLevels,
        /// `chat_template_kwargs: {"enable_thinking": true}`.
        TemplateThinking,
    }
    /// How reasoning is sent back.
    ReasoningEcho {
        /// Never: strict servers reject it.
        Never,
        /// In the field that it came in, only to the model that it came from.
        Same,
        /// With each reply, empty if there was none: the server rejects its absence.
        Always,
        /// Inside the text, as it came.
        Inline,
    }
    /// The required format of call identifiers.
    CallIdFormat {
        /// As the model made them.
        Verbatim,
        /// At most 40 letters, digits, `_` and `-`.
        Safe,
        /// Nine letters and digits.
        Nine,
        /// `functions.NAME:NUMBER`; the model itself relies on the format.
        Functions,
    }
    /// The `content` of an assistant message that has calls but no text.
    EmptyContent {
        /// The field is omitted.
        Omit,
        /// An empty string.
        Empty,
        /// `null`.
        Null,
    }
    /// How the provider's prompt cache is used.
    CacheHint {
        /// The provider caches automatically.
        Auto,
        /// With markers on content parts, as Anthropic's models require.
        Marks,
        /// With a key for the conversation.
        Key,
    }
    /// Where reasoning may occur inside the text.
    ThinkTags {
        Off,
        /// In tags at the very start.
        Tagged,
        /// At the start, and the opening tag may be missing.
        Implicit,
    }
    /// The handling of calls that the model writes into its text.
    LeakedCallHandling {
        /// They are ignored.
        Off,
        /// The model is told once to make a real call.
        Nudge,
        /// They are parsed and run.
        Parse,
    }
    /// The header that carries the key.
    KeyHeader {
        /// `Authorization: Bearer …`.
        Bearer,
        /// `api-key: …`.
        ApiKey,
    }
}

impl Quirks {
    /// The quirks of a model at a host according to the built-in table.
    pub fn lookup(host: &str, model: &str) -> Quirks {
        Quirks::default().with(QuirkPatch::lookup(host, model))
    }

    /// True if the model accepts an image or a PDF file.
    pub(crate) fn takes(&self, media: &Media) -> bool {
        if media.is_pdf() { self.files } else { self.images }
    }

    /// True if an image of a tool result is sent in a message that follows it, as PDF files always are in chat
    /// completions.
    pub(crate) fn moves(&self, media: &Media) -> bool {
        self.takes(media) && (media.is_pdf() || !self.tool_images)
    }

    /// True if a reasoning effort can be chosen.
    pub fn supports_effort(&self) -> bool {
        self.effort != EffortDialect::None
    }
}

impl QuirkPatch {
    /// Looks up a model at a host in the built-in table.
    pub fn lookup(host: &str, model: &str) -> QuirkPatch {
        table::find(host, model)
    }

    /// Parses configured quirks. Returns the valid ones and a message for each invalid one.
    pub fn parse(fields: &serde_json::Map<String, serde_json::Value>) -> (QuirkPatch, Vec<String>) {
        let mut patch = QuirkPatch::NONE;
        let mut wrong = Vec::new();
        for (name, value) in fields {
            let one = serde_json::json!({ name: value });
            match serde_json::from_value::<QuirkPatch>(one) {
                Ok(one) if QuirkPatch::NAMES.contains(&name.as_str()) => patch = patch.merge(one),
                Ok(_) => wrong.push(format!("unknown quirk `{name}`")),
                Err(error) => wrong.push(unusable(name, value, &error)),
            }
        }
        (patch, wrong)
    }
}

/// Says what a quirk must be, as far as the parser's message names it.
fn unusable(name: &str, value: &serde_json::Value, error: &serde_json::Error) -> String {
    let error = error.to_string();
    let expected = error.rsplit_once("expected ").map_or("another value", |(_, expected)| expected);
    format!("quirk `{name}` is {value}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_layers_take_precedence() {
        let quirks = Quirks::lookup("api.deepseek.com", "deepseek-reasoner");
        assert_eq!(quirks.echo, ReasoningEcho::Always);
        let taught =
            quirks.with(QuirkPatch { echo: Some(ReasoningEcho::Never), ..QuirkPatch::NONE });
        assert_eq!(taught.echo, ReasoningEcho::Never);
        assert_eq!(taught.effort, quirks.effort);
    }

    #[test]
    fn each_quirk_is_documented() {
        let text = include_str!("../../../../docs/models.md");
        let missing: Vec<_> =
            QuirkPatch::NAMES.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/models.md says nothing of {missing:?}");
    }

    #[test]
    fn configured_quirks_are_parsed_and_invalid_ones_reported() {
        let fields = json!({ "echo": "same", "images": true, "ids": "ten", "colour": 1 });
        let (patch, wrong) = QuirkPatch::parse(fields.as_object().unwrap());
        assert_eq!(
            patch,
            QuirkPatch { echo: Some(ReasoningEcho::Same), images: Some(true), ..QuirkPatch::NONE }
        );
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        let text = serde_json::to_value(patch).unwrap();
        assert_eq!(text, json!({ "echo": "same", "images": true }));
    }
}
