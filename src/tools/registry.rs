//! The tools of a session: looked up as models name them, told once.

use std::sync::{Arc, OnceLock};

use super::AnyTool;
use crate::message::ToolSpec;

/// A set of tools.
#[derive(Debug)]
pub struct Registry {
    tools: Vec<Arc<dyn AnyTool>>,
    specs: OnceLock<Arc<Vec<ToolSpec>>>,
}

impl Registry {
    /// A registry of these tools.
    pub fn new(tools: Vec<Arc<dyn AnyTool>>) -> Registry {
        Registry { tools, specs: OnceLock::new() }
    }

    /// What the model is told. Made once and always the same, because providers cache it.
    pub fn specs(&self) -> Arc<Vec<ToolSpec>> {
        let specs = || Arc::new(self.tools.iter().map(|it| it.spec()).collect());
        Arc::clone(self.specs.get_or_init(specs))
    }

    /// Whether the tool of that name only ever reads.
    pub fn reads(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|it| it.reads())
    }

    /// The tool of that name. Models add prefixes and change the case; that is forgiven as long
    /// as only one tool can be meant.
    ///
    /// # Errors
    /// What to tell the model.
    pub fn find(&self, name: &str) -> Result<Arc<dyn AnyTool>, String> {
        let bare = name.trim();
        let bare = ["functions.", "default_api:", "default_api.", "tools."]
            .iter()
            .find_map(|it| bare.strip_prefix(it))
            .unwrap_or(bare);
        let exact = self.tools.iter().find(|it| it.name() == bare);
        let found = exact.or_else(|| {
            let mut alike = self.tools.iter().filter(|it| it.name().eq_ignore_ascii_case(bare));
            alike.next().filter(|_| alike.next().is_none())
        });
        found.cloned().ok_or_else(|| {
            let names: Vec<_> = self.tools.iter().map(|it| it.name()).collect();
            format!("There is no tool \"{bare}\". Available: {}.", names.join(", "))
        })
    }
}
