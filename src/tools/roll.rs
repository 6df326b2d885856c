//! Which of the lent tools the model is told of, and in which order. A place is kept as long as its
//! tool is there, and what is new comes at the end: providers cache what stays the same.

use std::io::{self, Write};
use std::sync::Arc;

use super::{AnyTool, Offer, Stock};

/// Lent tools that are told as they are. If there are more, the model is to search.
const MOST_TOLD: usize = 40;
/// Bytes of them, for a model whose window nobody knows.
const USUAL_BYTES: usize = 32 * 1024;
/// Bytes of a token, about.
const TOKEN: u64 = 4;
/// The part of the window that lent tools may take.
const PART: u64 = 10;
/// Tools that a search has found, or that were called, and that are told together.
const MOST_LOADED: usize = 40;
/// These stay, however long their descriptions are.
const FEWEST_LOADED: usize = 5;

/// The roll of one session.
#[derive(Debug, Default)]
pub(super) struct Roll {
    /// What the model was told last.
    told: Vec<String>,
    /// What it has asked for or called; what was used last stands last.
    wanted: Vec<String>,
    /// There were too many once.
    searches: bool,
}

/// Bytes that lent tools may have for a model with that window.
pub(super) fn room(window: Option<u64>) -> usize {
    let room = window.map(|it| it.saturating_mul(TOKEN) / PART);
    room.map_or(USUAL_BYTES, |it| usize::try_from(it).unwrap_or(usize::MAX))
}

impl Roll {
    /// Whether the model has to search.
    pub(super) fn searches(&self) -> bool {
        self.searches
    }

    /// From now on it wants this one. Returns whether it is to be told something new.
    pub(super) fn want(&mut self, name: &str) -> bool {
        self.wanted.retain(|it| it != name);
        self.wanted.push(name.to_owned());
        let surplus = self.wanted.len().saturating_sub(MOST_LOADED);
        self.wanted.drain(..surplus);
        self.searches && !self.told.iter().any(|it| it == name)
    }

    /// What the model is told now: names of the stock, with that of the search among them.
    pub(super) fn call(&mut self, stock: &Stock, room: usize, search: &str) -> &[String] {
        if !self.searches && is_too_much(stock, room) {
            self.searches = true;
            // What it knows it keeps, as long as there is room.
            let known = std::mem::take(&mut self.wanted);
            for name in self.told.clone().iter().chain(&known) {
                self.want(name);
            }
        }
        if self.searches {
            self.make_room(stock, room);
        }
        let (searches, wanted) = (self.searches, &self.wanted);
        self.told.retain(|it| {
            if it == search {
                return searches;
            }
            stock.get(it).is_some() && (!searches || wanted.contains(it))
        });
        let new = |it: &&str| !self.told.iter().any(|told| told == it);
        let new: Vec<_> = if searches {
            let wanted = wanted.iter().map(String::as_str).filter(|it| stock.get(it).is_some());
            std::iter::once(search).chain(wanted).filter(new).map(str::to_owned).collect()
        } else {
            let names = stock.tools().iter().map(|it| it.name());
            names.filter(new).map(str::to_owned).collect()
        };
        self.told.extend(new);
        &self.told
    }

    /// Forgets what was not used for the longest time, until the rest fits.
    fn make_room(&mut self, stock: &Stock, room: usize) {
        let weight = |name: &String| stock.get(name).map_or(0, size);
        let mut sizes: Vec<_> = self.wanted.iter().map(weight).collect();
        let mut whole: usize = sizes.iter().sum();
        while whole > room && sizes.len() > FEWEST_LOADED {
            whole -= sizes.remove(0);
            self.wanted.remove(0);
        }
    }
}

fn is_too_much(stock: &Stock, room: usize) -> bool {
    let tools = stock.tools();
    tools.len() > MOST_TOLD || tools.iter().map(size).sum::<usize>() > room
}

/// Bytes of what the model is told about a tool.
fn size(tool: &Arc<dyn AnyTool>) -> usize {
    let Some(spec) = tool.spec(&Offer::default()) else { return 0 };
    let mut count = Count(spec.name.len() + spec.description.len());
    // It takes everything.
    drop(serde_json::to_writer(&mut count, &spec.parameters));
    count.0
}

struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
