//! How one model at one server is spoken to and understood: what both protocols have to know.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::http::Secret;
use super::leaked::{self, LeakedCall};
use super::names::Aliases;
use super::quirks::Quirks;
use turnwright_types::message::{Specs, ToolSpec};

/// How a request is to be written.
#[derive(Debug)]
pub(super) struct Manner<'a> {
    /// The model's name there.
    pub(super) model: &'a str,
    /// What its answers are marked with.
    pub(super) origin: &'a str,
    pub(super) quirks: &'a Quirks,
    /// The names of the tools.
    pub(super) aliases: &'a Aliases,
    /// The tools in JSON, empty if there are none.
    pub(super) tools: &'a [u8],
    /// The longest answer, if that is limited.
    pub(super) max_output: Option<u64>,
    /// Fields that the user has added.
    pub(super) body: &'a Map<String, Value>,
}

/// The tools as they go out. Made once for all requests with the same ones.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) specs: Specs,
    pub(super) aliases: Aliases,
    pub(super) json: Vec<u8>,
}

/// Writes tools in the words of a protocol.
pub(super) type RenderTools = fn(&[Arc<ToolSpec>], &Aliases) -> Vec<u8>;

impl Tools {
    pub(super) fn new(specs: &Specs, render: RenderTools) -> Tools {
        let aliases = Aliases::new(specs.iter().map(|it| it.name.as_ref()));
        let json = render(specs, &aliases);
        Tools { specs: Arc::clone(specs), aliases, json }
    }

    /// The calls at the end of a text.
    pub(super) fn find_leaked(&self, text: &str) -> Option<(usize, Vec<LeakedCall>)> {
        let names = self.wire_names();
        let schemas = self.specs.iter().map(|it| &it.parameters);
        let declared: Vec<_> = names.iter().map(String::as_str).zip(schemas).collect();
        leaked::find(text, &declared)
    }

    /// The names that the model knows.
    pub(super) fn wire_names(&self) -> Vec<String> {
        self.specs.iter().map(|it| self.aliases.to_wire(&it.name).into_owned()).collect()
    }
}

/// Who answers: what has to be known to understand it.
#[derive(Clone, Debug, Default)]
pub(super) struct Speaker {
    pub(super) host: String,
    pub(super) secret: Secret,
    /// What the answer is to be marked with.
    pub(super) origin: Arc<str>,
    pub(super) quirks: Quirks,
    /// What it was offered to call; `None` if nothing.
    pub(super) tools: Option<Arc<Tools>>,
}

impl Speaker {
    /// The tool that the model means by a name.
    pub(super) fn tool_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.tools.as_ref().map_or(name, |it| it.aliases.from_wire(name))
    }
}
