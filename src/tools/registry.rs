//! The tools of a session: looked up as models name them, told once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::arguments::plain;
use super::roll::room;
use super::stock::Meant;
use super::{AnyTool, Lent, Stock, tool_search};
use turnwright_types::effect::visible_line;
use turnwright_types::message::{History, Message, Specs};

/// Different offers whose wording is kept. There are as many as sets of skills and sorts of
/// models in use.
const MOST_OFFERS: usize = 16;

/// What models put in front of a name.
const PREFIXES: &[&str] = &[
    "functions.",
    "functions:",
    "default_api.",
    "default_api:",
    "tools.",
    "tools:",
    "mcp__turnwright__",
];

/// Tools of other agents that do the same with the same arguments, as far as arguments are known
/// by other names too ([`super::usual_name`]). What takes others is not here: a call that half
/// fits is worse than one that fails. Lower case without hyphens and the like.
const FOREIGN: &[(&str, &[&str])] = &[
    ("read_file", &["read", "viewfile", "openfile", "catfile"]),
    ("write_file", &["write", "createfile", "writetofile"]),
    ("edit_file", &["edit", "replaceinfile", "multiedit"]),
    ("list_dir", &["ls", "listfiles", "listdirectory", "listfolder"]),
    ("find_files", &["glob", "globfiles", "filesearch"]),
    ("grep", &["search", "ripgrep", "grepsearch", "searchfiles", "searchfilecontent"]),
    (
        "exec",
        &[
            "bash",
            "shell",
            "runcommand",
            "runshellcommand",
            "executecommand",
            "execcommand",
            "runterminalcmd",
            "runinterminal",
        ],
    ),
    ("web_fetch", &["fetch", "fetchurl", "fetchwebpage"]),
    ("plan", &["todowrite", "updateplan"]),
];

/// How alike two names are of which one may be meant for the other, from 0 to 1.
const LIKE: f64 = 0.7;
/// The same for names that all begin alike.
const LIKE_LENT: f64 = 0.85;
/// Names of lent tools that an error repeats.
const MOST_NEAR: usize = 8;
/// Characters of an unknown name that are repeated.
const LONGEST_NAME: usize = 80;

/// What decides which tools the model is told about, and in which words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The model is used to patches.
    pub patches: bool,
    /// The names of the skills that there are.
    pub skills: Vec<String>,
    /// It plans, and may ask whether to go on.
    pub plans: bool,
}

/// The built-in tools, and what was told of them. All sessions of a process share it.
#[derive(Debug)]
pub struct Registry {
    stock: Stock,
    // A std mutex: held to look at a short list.
    told: Mutex<Vec<(Offer, Specs)>>,
}

impl Registry {
    /// A registry of these tools.
    pub fn new(tools: Vec<Arc<dyn AnyTool>>) -> Registry {
        Registry { stock: Stock::new(tools), told: Mutex::default() }
    }

    /// What the model is told, in the order of names. The same bytes for the same offer, because
    /// providers cache them.
    fn specs(&self, offer: &Offer) -> Specs {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, specs)) = told.iter().find(|(known, _)| known == offer) {
            return Arc::clone(specs);
        }
        let mut specs: Vec<_> = self.stock.tools().iter().filter_map(|it| it.spec(offer)).collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        let specs = Arc::new(specs);
        if told.len() >= MOST_OFFERS {
            told.remove(0);
        }
        told.push((offer.clone(), Arc::clone(&specs)));
        specs
    }
}

/// The tools of one session: the built-in ones, and behind them what servers lend.
#[derive(Debug)]
pub struct Toolbox {
    own: Arc<Registry>,
    lent: Lent,
    search: Arc<dyn AnyTool>,
    has_recalled: AtomicBool,
    // A std mutex: held to look at one list.
    told: Mutex<Option<Told>>,
}

/// What the model was told last, with what was lent to the session.
#[derive(Debug)]
struct Told {
    offer: Offer,
    room: usize,
    edition: u64,
    specs: Specs,
}

impl Toolbox {
    /// With these tools.
    pub fn new(own: Arc<Registry>, lent: Lent) -> Toolbox {
        let search = super::search(lent.clone());
        Toolbox { own, lent, search, has_recalled: AtomicBool::default(), told: Mutex::default() }
    }

    /// What is lent to the session.
    pub fn lent(&self) -> &Lent {
        &self.lent
    }

    /// What a model with that window is told. What has come late stands at the end, so that all
    /// before it stays as the provider has cached it.
    pub fn specs(&self, offer: &Offer, window: Option<u64>) -> Specs {
        let own = self.own.specs(offer);
        let room = room(window);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let edition = self.lent.edition();
        let is_same = |it: &&Told| it.edition == edition && it.room == room && it.offer == *offer;
        if let Some(told) = told.as_ref().filter(is_same) {
            return Arc::clone(&told.specs);
        }
        let (edition, lent) = self.lent.told(room, &self.search);
        let specs = if lent.is_empty() {
            own
        } else {
            let lent = lent.iter().filter_map(|it| it.spec(offer));
            Arc::new(own.iter().cloned().chain(lent).collect())
        };
        let offer = offer.clone();
        *told = Some(Told { offer, room, edition, specs: Arc::clone(&specs) });
        specs
    }

    /// The names of the built-in ones that the model is told of, and how many are lent.
    pub fn overview(&self, offer: &Offer) -> (Vec<String>, usize) {
        let names = self.own.specs(offer).iter().map(|it| it.name.to_string()).collect();
        (names, self.lent.stock().tools().len())
    }

    /// What the conversation has called before, the model may call again without a search. Asked
    /// once: later calls are seen.
    pub fn recall(&self, history: &History) {
        if self.has_recalled.swap(true, Ordering::Relaxed) {
            return;
        }
        let calls = history.messages.iter().flat_map(|it| match it.as_ref() {
            Message::Assistant(it) => it.calls.as_slice(),
            Message::User(_) | Message::Tool(_) => &[],
        });
        let names = calls.map(|it| bare(&it.name));
        self.lent.want(names.filter(|it| self.own.stock.get(it).is_none() && !self.is_search(it)));
    }

    /// The names of what a search finds.
    pub fn search(&self, query: &str) -> Vec<String> {
        tool_search::names(&self.lent.stock(), query)
    }

    fn is_search(&self, name: &str) -> bool {
        name == self.search.name()
    }

    /// Whether the tool of that name only ever reads.
    pub fn reads(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|it| it.reads())
    }

    /// The tool of that name, for a call: the model is told of it from now on.
    ///
    /// # Errors
    /// What to tell the model.
    pub fn call(&self, name: &str) -> Result<Arc<dyn AnyTool>, String> {
        let tool = self.find(name)?;
        if self.own.stock.get(tool.name()).is_none() && !self.is_search(tool.name()) {
            self.lent.want([tool.name()]);
        }
        Ok(tool)
    }

    /// The tool of that name. Models add prefixes, change the case, and fall back on the names of
    /// the tools they have learned with; that is forgiven as long as only one tool can be meant.
    ///
    /// # Errors
    /// What to tell the model.
    pub fn find(&self, name: &str) -> Result<Arc<dyn AnyTool>, String> {
        let bare = bare(name);
        let (own, lent) = (&self.own.stock, self.lent.stock());
        if let Some(tool) = own.get(bare).or_else(|| lent.get(bare)) {
            return Ok(Arc::clone(tool));
        }
        if self.is_search(bare) && self.lent.searches() {
            return Ok(Arc::clone(&self.search));
        }
        let letters = plain(bare);
        let usual = || FOREIGN.iter().find(|(_, names)| names.contains(&&*letters));
        match (own.meant(&letters), lent.meant(&letters)) {
            (Meant::One(tool), Meant::Nothing) | (Meant::Nothing, Meant::One(tool)) => {
                Some(Arc::clone(tool))
            }
            _ => usual().and_then(|(name, _)| own.get(name)).cloned(),
        }
        .ok_or_else(|| self.unknown(bare, &lent))
    }

    fn unknown(&self, name: &str, lent: &Stock) -> String {
        let short: String = visible_line(name).chars().take(LONGEST_NAME).collect();
        if self.lent.is_gone(name) {
            return format!("The tool \"{short}\" is gone: its server does not offer it any more.");
        }
        let small = short.to_lowercase();
        let likeness = |it: &str| strsim::jaro_winkler(it, &small);
        let best = |stock: &Stock, like: f64| {
            let names = stock.tools().iter().map(|it| (likeness(it.name()), it.name().to_owned()));
            let mut best: Vec<_> = names.filter(|(it, _)| *it > like).collect();
            best.sort_by(|one, other| other.0.total_cmp(&one.0));
            best.truncate(MOST_NEAR);
            best
        };
        let (own, near) = (&self.own.stock, best(lent, LIKE_LENT));
        let nearest = best(own, LIKE).into_iter().chain(near.iter().cloned());
        let nearest = nearest.max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = nearest.map_or(String::new(), |(_, it)| format!(" Did you mean {it}?"));
        let mut names: Vec<_> = own.tools().iter().map(|it| it.name().to_owned()).collect();
        let unnamed = lent.tools().len() - near.len();
        names.extend(near.into_iter().map(|(_, it)| it));
        let more = match unnamed {
            0 => String::new(),
            _ if self.lent.searches() => format!(", and {unnamed} more by {}", self.search.name()),
            _ => format!(", and {unnamed} of MCP servers"),
        };
        format!("No tool \"{short}\".{hint} Available: {}{more}.", names.join(", "))
    }
}

/// A name without what models put around it: the namespace of a format that they were trained in,
/// a number, the end of a template.
fn bare(name: &str) -> &str {
    let mut bare = name.split("<|").next().unwrap_or_default().trim();
    while let Some(rest) = PREFIXES.iter().find_map(|it| bare.strip_prefix(it)) {
        bare = rest;
    }
    let bare = bare.strip_suffix("()").unwrap_or(bare);
    match bare.rsplit_once(':') {
        Some((rest, number)) if number.bytes().all(|it| it.is_ascii_digit()) => rest,
        _ => bare,
    }
}
