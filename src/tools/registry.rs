//! The tools of a session: looked up as models name them, told once.

use std::sync::{Arc, Mutex, PoisonError};

use super::AnyTool;
use crate::message::ToolSpec;

/// Different offers whose wording is kept. There are as many as sets of skills and sorts of
/// models in use.
const MOST_OFFERS: usize = 16;

/// What decides which tools the model is told about, and in which words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The model is used to patches.
    pub patches: bool,
    /// The names of the skills that there are.
    pub skills: Vec<String>,
}

/// A set of tools.
#[derive(Debug)]
pub struct Registry {
    tools: Vec<Arc<dyn AnyTool>>,
    // A std mutex: held to look at a short list.
    told: Mutex<Vec<(Offer, Arc<Vec<ToolSpec>>)>>,
}

impl Registry {
    /// A registry of these tools.
    pub fn new(tools: Vec<Arc<dyn AnyTool>>) -> Registry {
        Registry { tools, told: Mutex::default() }
    }

    /// What the model is told. The same bytes for the same offer, because providers cache them.
    pub fn specs(&self, offer: &Offer) -> Arc<Vec<ToolSpec>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, specs)) = told.iter().find(|(known, _)| known == offer) {
            return Arc::clone(specs);
        }
        let specs: Arc<Vec<_>> =
            Arc::new(self.tools.iter().filter_map(|it| it.spec(offer)).collect());
        if told.len() >= MOST_OFFERS {
            told.remove(0);
        }
        told.push((offer.clone(), Arc::clone(&specs)));
        specs
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
