//! Tools, found by their names without looking at each of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::AnyTool;
use super::arguments::plain;

/// A list of tools. It does not change.
#[derive(Debug, Default)]
pub struct Stock {
    tools: Vec<Arc<dyn AnyTool>>,
    exact: HashMap<String, usize>,
    /// By the letters and digits of the name; nothing if several have the same.
    plain: HashMap<String, Option<usize>>,
}

/// What a name that is not exact may mean.
pub(super) enum Meant<'a> {
    Nothing,
    One(&'a Arc<dyn AnyTool>),
    Several,
}

impl Stock {
    pub(super) fn new(tools: Vec<Arc<dyn AnyTool>>) -> Stock {
        let (mut exact, mut by_letters) = (HashMap::new(), HashMap::new());
        for (place, tool) in tools.iter().enumerate() {
            exact.entry(tool.name().to_owned()).or_insert(place);
            let only = by_letters.entry(plain(tool.name())).or_insert(Some(place));
            *only = only.filter(|it| *it == place);
        }
        Stock { tools, exact, plain: by_letters }
    }

    /// All of them, in the order in which they came.
    pub fn tools(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }

    /// The one of exactly that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.get(*self.exact.get(name)?)
    }

    /// What has these letters and digits in its name.
    pub(super) fn meant(&self, letters: &str) -> Meant<'_> {
        match self.plain.get(letters) {
            None => Meant::Nothing,
            Some(None) => Meant::Several,
            Some(Some(place)) => self.tools.get(*place).map_or(Meant::Nothing, Meant::One),
        }
    }
}
