//! An immutable list of tools with an index by name.

use std::collections::HashMap;
use std::sync::Arc;

use super::AnyTool;
use super::arguments::letters_and_digits;

#[derive(Debug, Default)]
pub struct ToolIndex {
    tools: Vec<Arc<dyn AnyTool>>,
    exact: HashMap<String, usize>,
    /// By the letters and digits of the name; `None` if several tools have the same.
    by_letters: HashMap<String, Option<usize>>,
}

/// The result of a lookup by letters and digits only.
pub(super) enum LooseMatch<'a> {
    Nothing,
    One(&'a Arc<dyn AnyTool>),
    Several,
}

impl ToolIndex {
    pub(super) fn new(tools: Vec<Arc<dyn AnyTool>>) -> ToolIndex {
        let mut exact = HashMap::new();
        let mut by_letters = HashMap::new();
        for (position, tool) in tools.iter().enumerate() {
            exact.entry(tool.name().to_owned()).or_insert(position);
            let only = by_letters.entry(letters_and_digits(tool.name())).or_insert(Some(position));
            *only = only.filter(|first| *first == position);
        }
        ToolIndex { tools, exact, by_letters }
    }

    /// All tools, in the order in which they were given.
    pub fn tools(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }

    /// The tool of exactly that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.get(*self.exact.get(name)?)
    }

    /// The tool whose name has these letters and digits.
    pub(super) fn find_loosely(&self, letters: &str) -> LooseMatch<'_> {
        match self.by_letters.get(letters) {
            None => LooseMatch::Nothing,
            Some(None) => LooseMatch::Several,
            Some(Some(position)) => {
                self.tools.get(*position).map_or(LooseMatch::Nothing, LooseMatch::One)
            }
        }
    }
}
