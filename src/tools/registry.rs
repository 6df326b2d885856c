//! The tools of a session: which of them it may use, lookup by the names that models write, and the specs
//! that are advertised.

mod remote_tools;
mod tool_search;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use remote_tools::schema_budget;
pub(crate) use remote_tools::{RemoteTools, ServerStatus};
use tool_search::ToolSearch;
#[cfg(test)]
pub(super) use tool_search::ToolSearchCall;

use super::AnyTool;
use super::arguments::letters_and_digits;
use turnwright_policy::permission::{Rule, RuleAction, Scope};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::{ToolSpec, ToolSpecs};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::token_meter::specs_weight;
use turnwright_types::work_settings::ToolChoice;

/// Prefixes that models put in front of a name.
const PREFIXES: &str = "functions. functions: default_api. default_api: tools. tools: container. repo_browser. \
                        mcp__turnwright__";

/// Names under which other agents have the same tool with the same arguments, or with argument
/// names that [`super::canonical_name`] knows. Tools with other arguments are not listed: a call
/// that half fits is worse than one that fails. Lower case, letters and digits only.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("read_file", "read view cat viewfile openfile catfile"),
    ("write_file", "write create createfile writetofile"),
    ("edit_file", "edit replace replaceinfile replacestringinfile strreplace multiedit"),
    ("list_dir", "ls listfiles listdirectory listfolder"),
    ("find_files", "glob globfiles filesearch"),
    ("grep", "search ripgrep grepsearch searchfiles searchfilecontent"),
    (
        "exec",
        "bash shell runcommand runshellcommand executecommand execcommand runterminalcmd \
         runterminalcommand runinterminal terminal executebash runbash",
    ),
    // A helper that may run commands may read their output.
    (
        "exec_output",
        "exec bash shell runcommand runshellcommand executecommand execcommand runterminalcmd \
         runterminalcommand runinterminal terminal executebash runbash",
    ),
    ("web_fetch", "fetch fetchurl fetchwebpage"),
    ("plan", "todowrite updateplan"),
    ("agent", "task spawn subagent"),
    ("ask_user", "askuserquestion"),
];

/// Names under which other agents have a tool that ends the task.
const ENDING_TOOLS: [&str; 4] = ["attemptcompletion", "finish", "submit", "taskcomplete"];

/// The least similarity (0 to 1) of a name that is suggested for an unknown one.
const MIN_SIMILARITY: f64 = 0.7;
/// The same for MCP tools, whose names have long common prefixes.
const MIN_REMOTE_SIMILARITY: f64 = 0.85;
/// An error suggests at most this many MCP tools.
const MAX_SUGGESTIONS: usize = 8;
/// An error quotes at most this many characters of an unknown name.
const MAX_NAME_CHARS: usize = 80;

/// Built-in tools take some 2 000 tokens. In a window of fewer tokens than this, only the
/// indispensable ones are advertised; the others can still be called.
pub(crate) const SMALL_WINDOW: u64 = 8_000;
/// The tools without which no work can be done.
const ESSENTIAL_TOOLS: &str =
    "apply_patch edit_file exec exit_plan grep list_dir read_file write_file";
/// The tools that a small model is offered besides, as far as others are. It loses its way among many.
const FURTHER_TOOLS: [&str; 5] = ["exec_output", "find_files", "move_path", "skill", WEB_SEARCH];
/// The tools that come first for a small model.
const LOOKING_TOOLS: [&str; 4] = ["find_files", "grep", "list_dir", "read_file"];
/// The arguments that a small model is not told of, because it fills in every one. They are accepted.
const RARE_ARGUMENTS: &str = "background context description escalate files_only hidden mode multiline offset \
                              show_line_numbers sort timeout workdir";
/// The descriptions of tools without what is said of these arguments.
const SHORT_DESCRIPTIONS: [(&str, &str); 3] = [
    ("find_files", "Find files by name. A glob without a slash matches in any folder."),
    ("grep", "Search file contents by regex (ripgrep)."),
    ("write_file", "Create or replace a text file."),
];
/// The largest window, in tokens, in which a model is taken for a small one.
const SMALL_MODEL_WINDOW: u64 = 16_384;
/// The most parameters, in billions, of a small model.
const SMALL_MODEL_BILLIONS: f64 = 9.0;
/// The tool that exists only where a service searches the web.
const WEB_SEARCH: &str = "web_search";
/// Built-in tools that a helper never has: they start helpers or talk to the user for the session.
const NOT_FOR_HELPERS: &[&str] = &["agent", "ask_user", "exit_plan", "plan"];
/// The tools for edits that other agents do not have. A helper that is denied `Edit` or `Write` does not get them.
const OTHER_EDITS: [&str; 4] = ["apply_patch", "delete_path", "move_path", "rename_symbol"];

/// The facts that decide which tools are advertised to the model, and in which words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferContext {
    /// The model is trained on `apply_patch`.
    pub prefers_patches: bool,
    /// The names of the available skills.
    pub skills: Vec<String>,
    /// The session is in plan mode, so `exit_plan` is available.
    pub is_planning: bool,
    /// A line for each type of helpers that users have defined; `None` if the model cannot start helpers.
    pub helpers: Option<Arc<[String]>>,
    /// The user's settings name a service that searches the web.
    pub has_search: bool,
    /// Nobody can answer a question.
    pub is_alone: bool,
    /// A language server can be asked for definitions, references and renames.
    pub can_find_symbols: bool,
    /// The model is small, so few tools with few arguments suit it.
    pub is_small: bool,
}

/// The tools of one session: the built-in ones, followed by the tools of MCP servers.
#[derive(Debug)]
pub struct Toolbox {
    /// All sessions of a process share these.
    built_in: Arc<ToolIndex>,
    remote: Arc<RemoteTools>,
    /// It knows the MCP tools of one session. The model is told of it only when there are too many of them to
    /// advertise all.
    search: Arc<dyn AnyTool>,
    // Held only to look at one list.
    advertised: Mutex<Option<AdvertisedSpecs>>,
}

/// The specs that were advertised last, with everything that they depend on.
#[derive(Debug)]
struct AdvertisedSpecs {
    offer: OfferContext,
    budget: usize,
    revision: u64,
    specs: ToolSpecs,
    /// Their weight, once it was asked for.
    weight: Option<u64>,
}

impl Toolbox {
    pub fn new(built_in: Arc<ToolIndex>) -> Toolbox {
        let remote = Arc::default();
        let search = Arc::new(ToolSearch(Arc::clone(&remote)));
        Toolbox { built_in, remote, search, advertised: Mutex::default() }
    }

    /// The tools of a helper of this session: the named ones, or all, without the tools that only the
    /// session itself can use. Only MCP tools that are available now are among them.
    pub(crate) fn for_helper(&self, names: Option<&[String]>, denied: &[String]) -> Toolbox {
        let allowed = AllowedTools::of_helper(names, denied, self.remote.allowed().cloned());
        let helper = Toolbox::new(Arc::clone(&self.built_in));
        helper.remote.restrict(allowed);
        helper.remote.set_tools(self.remote.index().tools().to_vec());
        helper
    }

    pub fn remote_tools(&self) -> &Arc<RemoteTools> {
        &self.remote
    }

    /// Returns true if the built-in tool of that name may be used in this session.
    fn is_allowed(&self, name: &str) -> bool {
        let Some(allowed) = self.remote.allowed() else { return true };
        allowed.contains(name, &foreign_names(name))
    }

    /// Returns true if the built-in tool of that name is advertised to this model and for this window. In a
    /// restricted session all allowed ones are.
    fn is_advertised(&self, name: &str, offer: &OfferContext, window: Option<u64>) -> bool {
        match self.remote.allowed() {
            Some(_) => self.is_allowed(name),
            // It gets the essential ones, as in the smallest window.
            None if offer.is_small && !FURTHER_TOOLS.contains(&name) => fits_window(name, Some(0)),
            None => fits_window(name, window),
        }
    }

    /// The specs of the built-in tools to advertise, sorted by name, for a small model those that look first. In a small window and to a small model not all
    /// are, unless the session is restricted to some anyway. Always the same bytes for the same context, because
    /// providers cache them.
    fn built_in_specs(&self, offer: &OfferContext, window: Option<u64>) -> Vec<Arc<ToolSpec>> {
        let tools = self.built_in.tools().iter();
        let advertised = tools.filter(|tool| self.is_advertised(tool.name(), offer, window));
        let mut specs: Vec<_> = advertised.filter_map(|tool| tool.spec(offer)).collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        if offer.is_small {
            // It takes the first one that may do, and has to read before it edits.
            specs.sort_by_key(|spec| !LOOKING_TOOLS.contains(&&*spec.name));
        }
        specs
    }

    /// The specs to advertise to a model with this context window (in tokens). MCP tools are last,
    /// so that the built-in ones before them stay in the provider's cache.
    pub fn specs(&self, offer: &OfferContext, window: Option<u64>) -> ToolSpecs {
        let budget = schema_budget(window);
        let mut advertised = self.advertised.lock();
        let revision = self.remote.revision();
        if let Some(last) = advertised.as_ref()
            && last.revision == revision
            && last.budget == budget
            && last.offer == *offer
        {
            return Arc::clone(&last.specs);
        }
        let mut all = self.built_in_specs(offer, window);
        let (revision, remote) = self.remote.advertised(budget, &self.search);
        all.extend(remote.iter().filter_map(|tool| tool.spec(offer)));
        let specs: ToolSpecs = Arc::new(all.into_iter().map(without_keys).collect());
        *advertised = Some(AdvertisedSpecs {
            offer: offer.clone(),
            budget,
            revision,
            specs: Arc::clone(&specs),
            weight: None,
        });
        specs
    }

    /// The weight of these specs. It is counted once for the specs that were advertised last.
    pub fn weight(&self, specs: &ToolSpecs) -> u64 {
        let mut advertised = self.advertised.lock();
        match advertised.as_mut().filter(|last| Arc::ptr_eq(&last.specs, specs)) {
            Some(known) => *known.weight.get_or_insert_with(|| specs_weight(specs)),
            None => specs_weight(specs),
        }
    }

    /// The names of the built-in tools that may be used, and the number of MCP tools.
    pub fn overview(&self, offer: &OfferContext) -> (Vec<String>, usize) {
        let all = OfferContext { is_small: false, ..offer.clone() };
        let specs = self.built_in_specs(&all, None);
        let names = specs.iter().map(|spec| spec.name.to_string()).collect();
        (names, self.remote.index().tools().len())
    }

    /// Marks the MCP tool of a stored call as used, or the tools that a stored search has found, so that the
    /// model can call them without another search.
    pub fn load_stored_call(&self, tool: &str, raw_output: &Value) {
        let name = bare_name(tool);
        if self.is_search(name) {
            self.remote.load(tool_search::found_names(raw_output));
        } else if self.built_in.get(name).is_none() {
            self.remote.load([name]);
        }
    }

    /// The names of the MCP tools that a search finds, for tests and benchmarks.
    pub fn search_names(&self, query: &str) -> Vec<String> {
        let (found, _) = tool_search::find_tools(&self.remote.index(), query);
        found.iter().map(|tool| tool.name().to_owned()).collect()
    }

    fn is_search(&self, name: &str) -> bool {
        name == self.search.name()
    }

    /// Finds a tool for a call. An MCP tool is advertised from then on.
    ///
    /// # Errors
    /// The error text for the model.
    pub fn find_for_call(&self, name: &str) -> Result<Arc<dyn AnyTool>, ToolRefusal> {
        let tool = self.find(name)?;
        if self.built_in.get(tool.name()).is_none() && !self.is_search(tool.name()) {
            self.remote.load([tool.name()]);
        }
        Ok(tool)
    }

    /// Finds a tool. Models add prefixes, change the case, or use the names of other agents' tools;
    /// that is accepted as long as only one tool can be meant.
    ///
    /// # Errors
    /// The error text for the model.
    pub fn find(&self, name: &str) -> Result<Arc<dyn AnyTool>, ToolRefusal> {
        let tool = self.find_any(name)?;
        if self.built_in.get(tool.name()).is_some() && !self.is_allowed(tool.name()) {
            let message = format!("The tool \"{}\" is not allowed in this session.", tool.name());
            return Err(message.into());
        }
        Ok(tool)
    }

    fn find_any(&self, name: &str) -> Result<Arc<dyn AnyTool>, ToolRefusal> {
        let bare = bare_name(name);
        let built_in = &self.built_in;
        let remote = self.remote.index();
        if let Some(tool) = built_in.get(bare).or_else(|| remote.get(bare)) {
            return Ok(Arc::clone(tool));
        }
        if self.is_search(bare) && self.remote.uses_search() {
            return Ok(Arc::clone(&self.search));
        }
        let letters = letters_and_digits(bare);
        let alike: Vec<_> = built_in.alike(&letters).chain(remote.alike(&letters)).collect();
        let found = match alike.as_slice() {
            [tool] => Some(*tool),
            _ => {
                let mut known = FOREIGN_NAMES.iter();
                let foreign = known.find(|(_, names)| names.split(' ').any(|one| one == letters));
                foreign.and_then(|(name, _)| built_in.get(name))
            }
        };
        found.cloned().ok_or_else(|| self.unknown_tool_message(bare, &remote).into())
    }

    fn unknown_tool_message(&self, name: &str, remote: &ToolIndex) -> String {
        let short = text::cut(escape_hidden_line(name), MAX_NAME_CHARS);
        if self.remote.was_removed(name) {
            return format!("The tool \"{short}\" is gone: its server does not offer it any more.");
        }
        if ENDING_TOOLS.contains(&letters_and_digits(name).as_str()) {
            return format!(
                "No tool \"{short}\": the task ends with your answer. Say what is done."
            );
        }
        let lowercase = short.to_lowercase();
        let last = self.advertised.lock().as_ref().map(|last| last.offer.clone());
        let offer = last.unwrap_or_default();
        let all = self.built_in.tools().iter();
        let there = all.filter(|tool| match tool.name() {
            WEB_SEARCH => offer.has_search,
            "definition" | "references" | "rename_symbol" => offer.can_find_symbols,
            _ => true,
        });
        let built_in: Vec<_> =
            there.filter(|tool| self.is_advertised(tool.name(), &offer, None)).collect();
        let remote_tools: Vec<_> = remote.tools().iter().collect();
        let similar = most_similar(&remote_tools, &lowercase, MIN_REMOTE_SIMILARITY);
        let nearest = most_similar(&built_in, &lowercase, MIN_SIMILARITY)
            .into_iter()
            .chain(similar.iter().cloned())
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = nearest.map_or(String::new(), |(_, tool)| format!(" Did you mean {tool}?"));
        let mut names: Vec<_> = built_in.iter().map(|tool| tool.name().to_owned()).collect();
        let unnamed = remote.tools().len() - similar.len();
        names.extend(similar.into_iter().map(|(_, tool)| tool));
        let more = match unnamed {
            0 => String::new(),
            _ if self.remote.uses_search() => {
                format!(", and {unnamed} more by {}", self.search.name())
            }
            _ => format!(", and {unnamed} of MCP servers"),
        };
        let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("No tool \"{short}\".{hint} Available: {available}{more}.")
    }
}

/// Returns true if a model that writes this name means our tool.
pub(crate) fn means(written: &str, tool: &str) -> bool {
    let letters = letters_and_digits(bare_name(written));
    letters == letters_and_digits(tool) || foreign_names(tool).contains(&letters.as_str())
}

/// The names that other agents give to this tool.
fn foreign_names(tool: &str) -> Vec<&'static str> {
    let known = FOREIGN_NAMES.iter().find(|(name, _)| *name == tool);
    known.iter().flat_map(|(_, names)| names.split(' ')).collect()
}

/// The only commands that a helper may run with these entries in its list of tools; empty if it may run all, or none.
pub(crate) fn command_limits(entries: &[String]) -> Vec<Rule> {
    let has_all = entries.iter().any(|entry| names_commands(entry));
    entries.iter().filter(|_| !has_all).filter_map(|entry| command_limit(entry)).collect()
}

/// Returns true if this is a name of the tool for commands that may have a pattern.
fn names_commands(tool: &str) -> bool {
    ["bash", "exec", "shell"].contains(&letters_and_digits(tool).as_str())
}

/// The rule for an entry with a pattern of commands, `Bash(git log *)`, if it can be kept.
fn command_limit(entry: &str) -> Option<Rule> {
    let (tool, pattern) = entry.strip_suffix(')')?.split_once('(')?;
    let prefix = pattern.strip_suffix(":*").or_else(|| pattern.strip_suffix(" *"));
    let words = prefix.map_or_else(|| format!("={pattern}"), str::to_owned);
    let rule = Rule::parse(&format!("exec({words})"), RuleAction::Allow, Scope::Session).ok();
    rule.filter(|_| names_commands(tool))
}

/// Returns true if an entry in a helper's list of tools gives it something: it has no pattern, or one that can be kept.
pub(crate) fn gives_tool(entry: &str) -> bool {
    !entry.contains('(') || command_limit(entry).is_some()
}

/// Returns true if a built-in tool is advertised to a model with this context window (in tokens).
fn fits_window(name: &str, window: Option<u64>) -> bool {
    window.is_none_or(|tokens| tokens >= SMALL_WINDOW)
        || ESSENTIAL_TOOLS.split(' ').any(|tool| tool == name)
}

/// Returns true if the model is offered few tools with few arguments.
pub(crate) fn is_small(choice: ToolChoice, model: &str, window: Option<u64>) -> bool {
    match choice {
        ToolChoice::All => false,
        ToolChoice::Few => true,
        ToolChoice::Auto => {
            window.is_some_and(|tokens| tokens <= SMALL_MODEL_WINDOW)
                || billions(model).is_some_and(|size| size <= SMALL_MODEL_BILLIONS)
        }
    }
}

/// The number of parameters in billions that the name of a model says, such as `30b`; the largest one if it says
/// several, because a mixture of experts also names the active ones.
fn billions(model: &str) -> Option<f64> {
    let words = model.split(|char: char| !char.is_ascii_alphanumeric() && char != '.');
    words.filter_map(size_of_word).max_by(f64::total_cmp)
}

/// The number that ends a word before a `b`; in `8x7b` the product.
fn size_of_word(word: &str) -> Option<f64> {
    let number = word.strip_suffix(['b', 'B'])?;
    let before = number.trim_end_matches(|char: char| char.is_ascii_digit() || char == '.');
    let size: f64 = number[before.len()..].parse().ok()?;
    if let Some(Ok(experts)) = before.strip_suffix(['x', 'X']).map(str::parse::<f64>) {
        return Some(size * experts);
    }
    // A word such as `4f2b` is part of an identifier.
    before.chars().all(|char| char.is_ascii_alphabetic()).then_some(size)
}

/// Leaves out of the spec of a built-in tool what a small model needs rarely.
pub(super) fn simplify(spec: &mut ToolSpec) {
    let properties = spec.parameters.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(properties) = properties {
        properties.retain(|name, _| !RARE_ARGUMENTS.split(' ').any(|rare| rare == name));
    }
    let mut known = SHORT_DESCRIPTIONS.iter();
    if let Some((_, shorter)) = known.find(|(name, _)| **name == *spec.name) {
        spec.description = (*shorter).to_owned();
    }
}

/// Removes our API keys from what a server says about its tool.
fn without_keys(spec: Arc<ToolSpec>) -> Arc<ToolSpec> {
    let clean = ToolSpec {
        name: spec.name.clone(),
        description: redact::text(&spec.description).into_owned(),
        parameters: redact::json(spec.parameters.clone()),
    };
    if clean == *spec { spec } else { Arc::new(clean) }
}

/// The weight of the tools that are advertised even to a model with a small window.
pub(crate) fn essential_weight(specs: &ToolSpecs) -> u64 {
    let essential = specs.iter().filter(|spec| fits_window(&spec.name, Some(0))).cloned();
    specs_weight(&essential.collect::<Vec<_>>())
}

/// The names of the tools that are most similar to this one, each after its similarity.
fn most_similar(tools: &[&Arc<dyn AnyTool>], name: &str, threshold: f64) -> Vec<(f64, String)> {
    let similarities =
        tools.iter().map(|tool| (strsim::jaro_winkler(tool.name(), name), tool.name().to_owned()));
    let mut best: Vec<_> = similarities.filter(|(similarity, _)| *similarity > threshold).collect();
    best.sort_by(|one, other| other.0.total_cmp(&one.0));
    best.truncate(MAX_SUGGESTIONS);
    best
}

/// A name without the additions of models: the namespace of a format that they were trained on, a
/// call number, the end of a template.
fn bare_name(name: &str) -> &str {
    let mut bare = name.split("<|").next().unwrap_or_default().trim();
    while let Some(rest) = PREFIXES.split(' ').find_map(|prefix| bare.strip_prefix(prefix)) {
        bare = rest;
    }
    let bare = bare.strip_suffix("()").unwrap_or(bare);
    match bare.rsplit_once(':') {
        Some((rest, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => bare,
    }
}

/// The only tools of a session.
#[derive(Debug)]
pub(crate) struct AllowedTools {
    /// The names as the client has written them; `None` for all tools.
    names: Option<Vec<String>>,
    /// Built-in tools that are not among them.
    excluded: &'static [&'static str],
    /// Further tools that are not among them.
    denied: Option<Box<AllowedTools>>,
    /// A further restriction, of the session that a helper belongs to.
    outer: Option<Arc<AllowedTools>>,
}

impl AllowedTools {
    /// The tools with these names, which may be names from other agents (`Read`, `Bash(git:*)`,
    /// `mcp__server__tool`). A pattern behind a name is ignored: it would be an approval in other
    /// agents, and nothing is approved here. A helper keeps to its patterns.
    pub(crate) fn new(names: &[String]) -> AllowedTools {
        let bare = names.iter().map(|name| name.split('(').next().unwrap_or_default());
        let names = Some(bare.map(|name| name.trim().to_owned()).collect());
        AllowedTools { names, excluded: &[], denied: None, outer: None }
    }

    /// The tools of a helper: the named ones, or all, without those that it is denied, limited to those of its session.
    fn of_helper(
        names: Option<&[String]>,
        denied: &[String],
        outer: Option<Arc<AllowedTools>>,
    ) -> AllowedTools {
        let given = names.map(|names| names.iter().filter(|name| gives_tool(name)).cloned());
        let names = given.and_then(|names| AllowedTools::new(&names.collect::<Vec<_>>()).names);
        let mut denied = AllowedTools::new(denied);
        if ["edit_file", "write_file"]
            .iter()
            .any(|tool| denied.contains(tool, &foreign_names(tool)))
        {
            denied.names.get_or_insert_default().extend(OTHER_EDITS.map(str::to_owned));
        }
        AllowedTools { names, excluded: NOT_FOR_HELPERS, denied: Some(denied.into()), outer }
    }

    /// Returns true if the built-in tool with this name, or with one of these names of other agents, is allowed.
    fn contains(&self, name: &str, foreign: &[&str]) -> bool {
        let letters = letters_and_digits(name);
        self.allows(name, &|allowed| {
            let allowed = letters_and_digits(allowed);
            allowed == letters || foreign.contains(&allowed.as_str())
        })
    }

    /// Returns true if the MCP tool with this name, `mcp__SERVER__TOOL`, is allowed: by its own name, by its server's,
    /// `mcp__SERVER`, or by a pattern, `SERVER_*`. Names of MCP tools may differ only in punctuation.
    fn contains_remote(&self, name: &str) -> bool {
        self.allows(name, &|allowed| allows_remote(allowed, name))
    }

    /// Returns true if all restrictions together allow the tool with this name. `is_meant` says if a name that the
    /// client has written stands for it.
    fn allows(&self, name: &str, is_meant: &dyn Fn(&str) -> bool) -> bool {
        if self.excluded.contains(&name)
            || self.denied.as_ref().is_some_and(|denied| denied.allows(name, is_meant))
            || self.outer.as_ref().is_some_and(|outer| !outer.allows(name, is_meant))
        {
            return false;
        }
        self.names
            .as_ref()
            .is_none_or(|names| names.iter().any(|allowed| allowed == "*" || is_meant(allowed)))
    }
}

/// Returns true if `allowed` is the name of this MCP tool or of its server, or a pattern of the tool's name with or
/// without `mcp__`.
fn allows_remote(allowed: &str, name: &str) -> bool {
    let tool = allowed.strip_prefix("mcp__").and_then(|_| name.strip_prefix(allowed));
    let bare = name.strip_prefix("mcp__").unwrap_or(name);
    [name, bare].iter().any(|name| text::fits_wildcard(name, allowed))
        || tool.is_some_and(|tool| tool.starts_with("__"))
}

/// An immutable list of tools with an index by name.
#[derive(Debug, Default)]
pub struct ToolIndex {
    tools: Vec<Arc<dyn AnyTool>>,
    by_name: HashMap<String, usize>,
}

impl ToolIndex {
    pub fn new(tools: Vec<Arc<dyn AnyTool>>) -> ToolIndex {
        let mut by_name = HashMap::new();
        for (position, tool) in tools.iter().enumerate() {
            by_name.entry(tool.name().to_owned()).or_insert(position);
        }
        ToolIndex { tools, by_name }
    }

    /// All tools, in the order in which they were given.
    pub fn tools(&self) -> &[Arc<dyn AnyTool>] {
        &self.tools
    }

    /// The tool of exactly that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tools whose names have these letters and digits.
    fn alike<'a>(&'a self, letters: &'a str) -> impl Iterator<Item = &'a Arc<dyn AnyTool>> {
        self.tools.iter().filter(move |tool| letters_and_digits(tool.name()) == letters)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_model_is_known_by_its_name_or_its_window_unless_the_settings_say() {
        for (model, window, expected) in [
            ("qwen2.5-coder-1.5b", None, true),
            ("qwen2.5-coder:7b-instruct-q4_K_M", Some(32_768), true),
            ("Llama-3.1-8B-Instruct", Some(131_072), true),
            ("unsloth/gemma-3n-E4B-it", None, true),
            ("qwen3-30b-a3b", Some(32_768), false),
            ("qwen3-coder-30b", Some(8_192), true),
            ("mixtral-8x7b", None, false),
            ("gpt-5-mini", Some(400_000), false),
            ("gpt-5-mini", Some(16_384), true),
            ("bitnet-1.58bit", None, false),
            ("endpoint-4f2b-91e7", None, false),
            ("scripted", None, false),
            ("b", None, false),
            ("é7b", None, true),
        ] {
            assert_eq!(is_small(ToolChoice::Auto, model, window), expected, "{model} {window:?}");
            assert!(!is_small(ToolChoice::All, model, window));
            assert!(is_small(ToolChoice::Few, model, window));
        }
    }

    #[test]
    fn what_is_rarely_needed_is_left_out_of_a_schema() {
        let string = json!({ "type": "string" });
        let mut spec = ToolSpec {
            name: "write_file".into(),
            description: "Create, replace or append to a text file.".to_owned(),
            parameters: json!({ "type": "object", "required": ["path"],
                "properties": { "path": string, "mode": string } }),
        };
        simplify(&mut spec);
        assert_eq!(spec.description, "Create or replace a text file.");
        assert_eq!(spec.parameters["properties"], json!({ "path": string }));
    }

    #[test]
    fn names_of_other_agents_mean_the_same_tools() {
        let allowed = ["Read", "Bash(git:*)", "mcp__files__list_all", " web_fetch "];
        let allowed = AllowedTools::new(&allowed.map(str::to_owned));
        for (name, foreign, expected) in [
            ("read_file", &["read"][..], true),
            ("exec", &["bash", "shell"], true),
            ("web_fetch", &["fetch"], true),
            ("edit_file", &["edit"], false),
        ] {
            assert_eq!(allowed.contains(name, foreign), expected, "{name}");
        }
        for (name, expected) in [
            ("mcp__files__list_all", true),
            ("mcp__files_list__all", false),
            ("mcp__files__list", false),
            ("mcp__other__read", false),
        ] {
            assert_eq!(allowed.contains_remote(name), expected, "{name}");
        }
        for (pattern, expected) in [
            ("mcp__files", [true, true, false]),
            ("mcp__files__*", [true, true, false]),
            ("mcp__files__read", [true, false, false]),
            ("mcp__file", [false; 3]),
            ("mcp__", [false; 3]),
            ("files_*", [true, true, false]),
            ("mcp__*__read", [true, false, true]),
            ("file", [false; 3]),
            ("mcp__*", [true; 3]),
            ("mcp", [false; 3]),
            ("__*", [false; 3]),
            ("*", [true; 3]),
        ] {
            let allowed = AllowedTools::new(&[pattern.to_owned()]);
            let names = ["mcp__files__read", "mcp__files__list", "mcp__other__read"];
            assert_eq!(names.map(|name| allowed.contains_remote(name)), expected, "{pattern}");
            assert_eq!(allowed.contains("exec", &["bash"]), pattern == "*", "{pattern}");
        }
        assert!(!AllowedTools::new(&[]).contains("read_file", &["read"]));
    }

    #[test]
    fn a_helper_has_at_most_the_tools_of_its_session() {
        let session = Arc::new(AllowedTools::new(&["Read", "Bash", "agent"].map(str::to_owned)));
        let names = ["Read", "Edit", "agent"].map(str::to_owned);
        let open = AllowedTools::of_helper(None, &[], None);
        let limited = AllowedTools::of_helper(None, &[], Some(Arc::clone(&session)));
        let named = AllowedTools::of_helper(Some(&names), &[], Some(session));
        for (name, foreign, expected) in [
            ("read_file", &["read"][..], [true, true, true]),
            ("exec", &["bash"], [true, true, false]),
            ("edit_file", &["edit"], [true, false, false]),
            ("agent", &[], [false; 3]),
            ("ask_user", &[], [false; 3]),
        ] {
            let helpers = [&open, &limited, &named];
            assert_eq!(helpers.map(|helper| helper.contains(name, foreign)), expected);
        }
        for (helper, expected) in [(&open, true), (&limited, false), (&named, false)] {
            assert_eq!(helper.contains_remote("mcp__a__b"), expected);
        }
    }

    #[test]
    fn a_helper_has_a_tool_with_a_pattern_only_if_the_pattern_can_be_kept() {
        for (entries, commands, has_exec) in [
            ("Read,Bash(git log *),Bash(git diff:*)", "exec(git log) exec(git diff)", true),
            ("exec(make test)", "exec(=make test)", true),
            ("Bash,Bash(git log *)", "", true),
            ("Bash(git * main)", "", false),
            ("Bash(git log*)", "", false),
            ("Bash(git log", "", false),
            ("Read(src/**),Grep", "", false),
        ] {
            let entries: Vec<_> = entries.split(',').map(str::to_owned).collect();
            let limits = command_limits(&entries);
            let shown: Vec<_> = limits.iter().map(|rule| rule.pattern.to_string()).collect();
            assert_eq!(shown.join(" "), commands, "{entries:?}");
            let helper = AllowedTools::of_helper(Some(&entries), &[], None);
            assert_eq!(helper.contains("exec", &["bash"]), has_exec, "{entries:?}");
            assert!(!helper.contains("read_file", &["read"]) || entries[0] == "Read");
        }
    }

    #[test]
    fn a_helper_has_no_tool_that_its_file_denies() {
        let denied = ["Edit", "Bash(git push *)", "mcp__files"].map(str::to_owned);
        let helper = AllowedTools::of_helper(None, &denied, None);
        for (name, foreign, expected) in [
            ("edit_file", &["edit"][..], false),
            ("apply_patch", &[], false),
            ("move_path", &[], false),
            ("exec", &["bash"], false),
            ("write_file", &["write"], true),
            ("read_file", &["read"], true),
            ("ask_user", &[], false),
        ] {
            assert_eq!(helper.contains(name, foreign), expected, "{name}");
        }
        assert!(!helper.contains_remote("mcp__files__list"));
        assert!(helper.contains_remote("mcp__other__list"));
        let names = ["Read", "Bash"].map(str::to_owned);
        let helper = AllowedTools::of_helper(Some(&names), &["bash".to_owned()], None);
        assert!(helper.contains("read_file", &["read"]) && !helper.contains("exec", &["bash"]));
        assert!(!AllowedTools::of_helper(None, &["*".to_owned()], None).contains("grep", &[]));
        let helper = AllowedTools::of_helper(None, &["files_*".to_owned()], None);
        assert!(!helper.contains_remote("mcp__files__list"));
        assert!(helper.contains_remote("mcp__other__list") && helper.contains("grep", &[]));
    }
}
