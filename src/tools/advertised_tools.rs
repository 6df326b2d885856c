//! Decides which tools are advertised to the model, and MCP tools in which order. A tool keeps its
//! position and new ones are appended, so that the provider's prompt cache stays valid.

use std::io::{self, Write};
use std::sync::Arc;

use super::{AnyTool, OfferContext, ToolIndex};
use turnwright_types::message::ToolSpecs;
use turnwright_types::token_meter::specs_weight;

/// Built-in tools take some 2 000 tokens. In a window of fewer tokens than this, only those are
/// advertised without which no work can be done; the others can still be called.
pub(crate) const SMALL_WINDOW: u64 = 8_000;
/// Those tools.
const ESSENTIAL_TOOLS: &[&str] = &[
    "apply_patch",
    "edit_file",
    "exec",
    "exit_plan",
    "grep",
    "list_dir",
    "read_file",
    "write_file",
];
/// If there are more MCP tools than this, the model has to search for them.
const MAX_ADVERTISED: usize = 40;
/// Bytes of MCP tool specs for a model whose context window is not known.
const DEFAULT_BUDGET: usize = 32 * 1024;
/// An estimate.
const BYTES_PER_TOKEN: u64 = 4;
/// MCP tools may take one part in this many of the context window.
const WINDOW_FRACTION: u64 = 10;
/// At most this many tools that were found by a search, or called, are advertised together.
const MAX_LOADED: usize = 40;
/// At least this many of them stay, however long their descriptions are.
const MIN_LOADED: usize = 5;

/// The advertised MCP tools of one session.
#[derive(Debug, Default)]
pub(super) struct AdvertisedTools {
    /// The names that were advertised last.
    advertised: Vec<String>,
    /// The tools that the model has searched for or called; the most recently used is the last.
    loaded: Vec<String>,
    /// The model has to search. Once set, it stays set.
    uses_search: bool,
}

/// Whether a built-in tool is advertised to a model with this context window (in tokens).
pub(super) fn fits_window(name: &str, window: Option<u64>) -> bool {
    window.is_none_or(|it| it >= SMALL_WINDOW) || ESSENTIAL_TOOLS.contains(&name)
}

/// The weight of those of these tools that a model with a small window is offered, too.
pub(crate) fn essential_weight(specs: &ToolSpecs) -> u64 {
    let essential = specs.iter().filter(|it| fits_window(&it.name, Some(0))).cloned();
    specs_weight(&essential.collect::<Vec<_>>())
}

/// The bytes that MCP tool specs may take for a model with this context window (in tokens).
pub(super) fn schema_budget(window: Option<u64>) -> usize {
    let budget = window.map(|it| it.saturating_mul(BYTES_PER_TOKEN) / WINDOW_FRACTION);
    budget.map_or(DEFAULT_BUDGET, |it| usize::try_from(it).unwrap_or(usize::MAX))
}

impl AdvertisedTools {
    /// Whether the model has to search for tools.
    pub(super) fn uses_search(&self) -> bool {
        self.uses_search
    }

    /// Marks a tool as used. Returns whether it has to be advertised and was not before.
    pub(super) fn load(&mut self, name: &str) -> bool {
        self.loaded.retain(|it| it != name);
        self.loaded.push(name.to_owned());
        let surplus = self.loaded.len().saturating_sub(MAX_LOADED);
        self.loaded.drain(..surplus);
        self.uses_search && !self.advertised.iter().any(|it| it == name)
    }

    /// Updates the list and returns the names to advertise, with the name of the search tool among
    /// them if needed.
    pub(super) fn update(&mut self, index: &ToolIndex, budget: usize, search: &str) -> &[String] {
        if !self.uses_search && exceeds_budget(index, budget) {
            self.uses_search = true;
            // What the model knows already is kept, as far as the budget allows.
            let known = std::mem::take(&mut self.loaded);
            for name in self.advertised.clone().iter().chain(&known) {
                self.load(name);
            }
        }
        if self.uses_search {
            self.evict_unused(index, budget);
        }
        let (uses_search, loaded) = (self.uses_search, &self.loaded);
        self.advertised.retain(|it| {
            if it == search {
                return uses_search;
            }
            index.get(it).is_some() && (!uses_search || loaded.contains(it))
        });
        let new = |it: &&str| !self.advertised.iter().any(|advertised| advertised == it);
        let new: Vec<_> = if uses_search {
            let loaded = loaded.iter().map(String::as_str).filter(|it| index.get(it).is_some());
            std::iter::once(search).chain(loaded).filter(new).map(str::to_owned).collect()
        } else {
            let names = index.tools().iter().map(|it| it.name());
            names.filter(new).map(str::to_owned).collect()
        };
        self.advertised.extend(new);
        &self.advertised
    }

    /// Drops the least recently used tools until the rest fits into the budget.
    fn evict_unused(&mut self, index: &ToolIndex, budget: usize) {
        let weight = |name: &String| index.get(name).map_or(0, spec_size);
        let mut sizes: Vec<_> = self.loaded.iter().map(weight).collect();
        let mut whole: usize = sizes.iter().sum();
        while whole > budget && sizes.len() > MIN_LOADED {
            whole -= sizes.remove(0);
            self.loaded.remove(0);
        }
    }
}

fn exceeds_budget(index: &ToolIndex, budget: usize) -> bool {
    let tools = index.tools();
    tools.len() > MAX_ADVERTISED || tools.iter().map(spec_size).sum::<usize>() > budget
}

/// The bytes of a tool's spec.
fn spec_size(tool: &Arc<dyn AnyTool>) -> usize {
    let Some(spec) = tool.spec(&OfferContext::default()) else { return 0 };
    let mut count = ByteCounter(spec.name.len() + spec.description.len());
    // `ByteCounter` never fails.
    drop(serde_json::to_writer(&mut count, &spec.parameters));
    count.0
}

struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
