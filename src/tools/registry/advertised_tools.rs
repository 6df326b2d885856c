//! Decides which tools are advertised to the model, and the order of the MCP tools. A tool keeps its
//! position and new ones are appended, so that the provider's prompt cache stays valid.

use std::io::{self, Write};
use std::sync::Arc;

use crate::tools::{AnyTool, OfferContext, ToolIndex};
use turnwright_types::message::ToolSpecs;
use turnwright_types::token_meter::specs_weight;

/// Built-in tools take some 2 000 tokens. In a window of fewer tokens than this, only the
/// indispensable ones are advertised; the others can still be called.
pub(crate) const SMALL_WINDOW: u64 = 8_000;
/// The tools without which no work can be done.
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
pub(in crate::tools) struct AdvertisedTools {
    /// The names that were advertised last.
    advertised: Vec<String>,
    /// The tools that the model has searched for or called; the most recently used is the last.
    loaded: Vec<String>,
    /// The model has to search. Once set, it stays set.
    uses_search: bool,
}

/// Returns true if a built-in tool is advertised to a model with this context window (in tokens).
pub(in crate::tools) fn fits_window(name: &str, window: Option<u64>) -> bool {
    window.is_none_or(|tokens| tokens >= SMALL_WINDOW) || ESSENTIAL_TOOLS.contains(&name)
}

/// The weight of the tools that are advertised even to a model with a small window.
pub(crate) fn essential_weight(specs: &ToolSpecs) -> u64 {
    let essential = specs.iter().filter(|spec| fits_window(&spec.name, Some(0))).cloned();
    specs_weight(&essential.collect::<Vec<_>>())
}

/// The bytes that MCP tool specs may take for a model with this context window (in tokens).
pub(in crate::tools) fn schema_budget(window: Option<u64>) -> usize {
    let budget = window.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN) / WINDOW_FRACTION);
    budget.map_or(DEFAULT_BUDGET, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

impl AdvertisedTools {
    /// Returns true if the model has to search for tools.
    pub(in crate::tools) fn uses_search(&self) -> bool {
        self.uses_search
    }

    /// Marks a tool as used. Returns true if it has to be advertised and was not before.
    pub(in crate::tools) fn load(&mut self, name: &str) -> bool {
        self.loaded.retain(|loaded| loaded != name);
        self.loaded.push(name.to_owned());
        let surplus = self.loaded.len().saturating_sub(MAX_LOADED);
        self.loaded.drain(..surplus);
        self.uses_search && !self.advertised.iter().any(|advertised| advertised == name)
    }

    /// Updates the list and returns the names to advertise, with the name of the search tool among
    /// them if needed.
    pub(in crate::tools) fn update(
        &mut self,
        index: &ToolIndex,
        budget: usize,
        search: &str,
    ) -> &[String] {
        if !self.uses_search && exceeds_budget(index, budget) {
            self.uses_search = true;
            // Keep the tools that the model knows already, as far as the budget allows.
            let known = std::mem::take(&mut self.loaded);
            for name in self.advertised.clone().iter().chain(&known) {
                self.load(name);
            }
        }
        if self.uses_search {
            self.evict_unused(index, budget);
        }
        let uses_search = self.uses_search;
        let loaded = &self.loaded;
        self.advertised.retain(|name| {
            if name == search {
                return uses_search;
            }
            index.get(name).is_some() && (!uses_search || loaded.contains(name))
        });
        let mut new: Vec<&str> = if uses_search {
            let known = loaded.iter().map(String::as_str).filter(|name| index.get(name).is_some());
            std::iter::once(search).chain(known).collect()
        } else {
            index.tools().iter().map(|tool| tool.name()).collect()
        };
        new.retain(|name| !self.advertised.iter().any(|advertised| advertised == name));
        self.advertised.extend(new.into_iter().map(str::to_owned));
        &self.advertised
    }

    /// Drops the least recently used tools until the rest fits into the budget.
    fn evict_unused(&mut self, index: &ToolIndex, budget: usize) {
        let loaded = self.loaded.iter();
        let mut sizes: Vec<_> = loaded.map(|name| index.get(name).map_or(0, spec_size)).collect();
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
    serde_json::to_writer(&mut count, &spec.parameters).ok();
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
