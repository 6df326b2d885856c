//! The tools of a session: looked up as models name them, told once.

use std::sync::{Arc, Mutex, PoisonError};

use super::arguments::plain;
use super::{AnyTool, Lent};
use crate::effect::visible_line;
use crate::message::ToolSpec;

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
    fn specs(&self, offer: &Offer) -> Arc<Vec<ToolSpec>> {
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
}

/// The tools of one session: the built-in ones, and behind them what servers lend.
#[derive(Debug)]
pub struct Toolbox {
    own: Arc<Registry>,
    lent: Lent,
    // A std mutex: held to look at one list.
    told: Mutex<Option<Told>>,
}

/// What the model was told last, with what was lent to the session.
#[derive(Debug)]
struct Told {
    offer: Offer,
    edition: u64,
    specs: Arc<Vec<ToolSpec>>,
}

impl Toolbox {
    /// With these tools.
    pub fn new(own: Arc<Registry>, lent: Lent) -> Toolbox {
        Toolbox { own, lent, told: Mutex::default() }
    }

    /// What is lent to the session.
    pub fn lent(&self) -> &Lent {
        &self.lent
    }

    /// What the model is told. What has come late stands at the end, so that all before it stays as
    /// the provider has cached it.
    pub fn specs(&self, offer: &Offer) -> Arc<Vec<ToolSpec>> {
        let own = self.own.specs(offer);
        let (edition, tools) = self.lent.get();
        if tools.is_empty() {
            return own;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = told.as_ref().filter(|it| it.edition == edition && it.offer == *offer) {
            return Arc::clone(&told.specs);
        }
        let lent = tools.iter().filter_map(|it| it.spec(offer));
        let specs: Arc<Vec<_>> = Arc::new(own.iter().cloned().chain(lent).collect());
        *told = Some(Told { offer: offer.clone(), edition, specs: Arc::clone(&specs) });
        specs
    }

    /// Whether the tool of that name only ever reads.
    pub fn reads(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|it| it.reads())
    }

    /// The tool of that name. Models add prefixes, change the case, and fall back on the names of
    /// the tools they have learned with; that is forgiven as long as only one tool can be meant.
    ///
    /// # Errors
    /// What to tell the model.
    pub fn find(&self, name: &str) -> Result<Arc<dyn AnyTool>, String> {
        let (_, lent) = self.lent.get();
        let all = || self.own.tools.iter().chain(lent.iter());
        let only = |is_meant: &dyn Fn(&str) -> bool| {
            let mut meant = all().filter(|it| is_meant(it.name()));
            meant.next().filter(|_| meant.next().is_none())
        };
        let bare = bare(name);
        let found = only(&|it| it == bare).or_else(|| {
            let meant = plain(bare);
            only(&|it| plain(it) == meant).or_else(|| {
                let (usual, _) = FOREIGN.iter().find(|(_, names)| names.contains(&&*meant))?;
                only(&|it| it == *usual)
            })
        });
        found.cloned().ok_or_else(|| unknown(bare, all()))
    }
}

fn unknown<'a>(name: &str, tools: impl Iterator<Item = &'a Arc<dyn AnyTool>>) -> String {
    let names: Vec<_> = tools.map(|it| it.name()).collect();
    let short: String = visible_line(name).chars().take(LONGEST_NAME).collect();
    let likeness = |it: &&str| strsim::jaro_winkler(it, &short.to_lowercase());
    let nearest = names
        .iter()
        .copied()
        .filter(|it| likeness(it) > LIKE)
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let hint = nearest.map_or(String::new(), |it| format!(" Did you mean {it}?"));
    format!("No tool \"{short}\".{hint} Available: {}.", names.join(", "))
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
