//! Lists the tools of a server, page by page, and prepares each once for all sessions that use the server.
//! Malformed lists are tolerated.
//!
//! The names that a session gives them are accepted by every provider: `mcp__SERVER__TOOL`, at most 64 letters,
//! digits, `_` and `-`, each unique. A tool keeps its name for the whole session, even as other tools come and go.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::skills::{self, ServerSkill};
use super::{JsonObject, SchemaText, Tool, resources};
use crate::schema::SchemaValidator;
use crate::schema::model_schema::{bounded_text, model_schema};
use crate::server::handshake::ServerInfo;
use crate::transport::http::standard_headers::{HeaderArguments, header_arguments};
use crate::transport::{Channel, Peer, PeerError};
use turnwright_types::effect::{ToolKind, escape_hidden_line};
use turnwright_types::hash::sha256_hex;

/// Maximum number of pages. The rest of the list is ignored.
const MAX_PAGES: usize = 100;
/// The same for other lists.
const MAX_ITEM_PAGES: usize = 20;
/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 1000;
/// Maximum size of all tool definitions of one server.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Maximum length of a tool name in the log.
const MAX_NAME_CHARS: usize = 100;
/// A longer cursor ends the list.
const MAX_CURSOR_BYTES: usize = 64 * 1024;

const METHOD_NOT_FOUND: i32 = -32601;

const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_TITLE_CHARS: usize = 80;
/// Maximum length of a name in bytes. The protocol allows 128 characters.
const MAX_NAME_BYTES: usize = 256;
/// Maximum size of a schema that is kept.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;

/// Lists and prepares all tools of a server.
pub(crate) async fn list_tools(peer: &Peer) -> Result<Vec<Arc<ListedTool>>, String> {
    let mut tools = Vec::new();
    let mut names = HashSet::new();
    let mut size = 0;
    let mut cursors = Vec::new();
    let mut marked = HeaderArguments::default();
    for page_index in 0..MAX_PAGES {
        let requested = request_page(peer, ("tools/list", "tools"), &mut cursors, parse_tool);
        let (mut page, has_more) = match requested.await {
            Ok(page) => page,
            Err(PeerError::ErrorResponse(error))
                if page_index == 0 && error.code == METHOD_NOT_FOUND =>
            {
                break;
            }
            Err(error) if page_index == 0 => {
                return Err(format!("its tools could not be listed: {error}"));
            }
            Err(error) => {
                tracing::warn!(%error, "the list of a server's tools is incomplete");
                break;
            }
        };
        keep_header_arguments(peer, &mut page, &mut marked);
        // If several tools have the same name, the first wins. A list that repeats itself adds
        // nothing.
        let (accepted, rejected): (Vec<_>, Vec<_>) = page
            .into_iter()
            .partition(|tool| has_valid_name(tool) && names.insert(tool.name.clone()));
        for tool in rejected {
            let name = bounded_text(&escape_hidden_line(&tool.name), MAX_NAME_CHARS);
            tracing::warn!(name, "a tool with an invalid or duplicate name is ignored");
        }
        let preparing = spawn_blocking(|| accepted.into_iter().map(ListedTool::new).collect());
        let prepared: Vec<_> = preparing.await.map_err(|error| error.to_string())?;
        for tool in prepared {
            size += tool.size;
            if tools.len() < MAX_TOOLS && size <= MAX_BYTES {
                tools.push(Arc::new(tool));
            }
        }
        let is_full = tools.len() >= MAX_TOOLS || size > MAX_BYTES;
        if is_full || !has_more {
            break;
        }
    }
    if let Channel::Http(http) = peer.channel() {
        http.set_header_arguments(marked);
    }
    Ok(tools)
}

/// Adds our own tools to those of a server: they read resources and load these skills.
pub(crate) fn add_own_tools(
    peer: &Peer,
    skills: &[ServerSkill],
    listed: &mut Vec<Arc<ListedTool>>,
) {
    let mut taken: HashSet<_> = listed.iter().map(|known| known.tool.name.clone()).collect();
    let reader = resources::tool(peer, |name| taken.contains(name));
    taken.extend(reader.iter().map(|tool| tool.name.clone()));
    let loaders = skills::tools(&peer.handler().server, skills, taken);
    let tools = reader.into_iter().chain(loaders).map(|tool| {
        let reads_resources = tool.skill.is_none();
        Arc::new(ListedTool { reads_resources, ..ListedTool::new(tool) })
    });
    listed.extend(tools);
}

/// Requests the next page of the list that the method returns under this key. `cursors` are those of the pages so far.
/// Returns its items, and true if there are more: a cursor that comes again leads nowhere.
async fn request_page<T>(
    peer: &Peer,
    (method, key): (&'static str, &str),
    cursors: &mut Vec<String>,
    read: fn(Value) -> Option<T>,
) -> Result<(Vec<T>, bool), PeerError> {
    let cursor = cursors.last().map(|cursor| ("cursor".to_owned(), cursor.as_str().into()));
    let params: JsonObject = cursor.into_iter().collect();
    // A refused page may mean that the list has changed.
    let page = peer.request(method, params).await.inspect_err(|_| peer.forget_results(method))?;
    let (items, cursor) = parse_page(page, key, read).ok_or(PeerError::Malformed)?;
    let next = cursor.filter(|next| next.len() <= MAX_CURSOR_BYTES && !cursors.contains(next));
    let has_more = next.is_some();
    cursors.extend(next);
    Ok((items, has_more))
}

/// Lists the first `most` items of a list, page by page, without those that `read` rejects. Returns them, and true if
/// there are more. A failure ends the list.
///
/// # Errors
/// If the first page could not be listed.
pub(crate) async fn list_items<T>(
    peer: &Peer,
    list: (&'static str, &str),
    most: usize,
    read: fn(Value) -> Option<T>,
) -> Result<(Vec<T>, bool), PeerError> {
    let mut items = Vec::new();
    let mut cursors = Vec::new();
    let mut has_more = true;
    while has_more && items.len() < most && cursors.len() < MAX_ITEM_PAGES {
        has_more = match request_page(peer, list, &mut cursors, read).await {
            Ok((page, goes_on)) => {
                items.extend(page.into_iter().take(most + 1));
                goes_on
            }
            Err(error) if cursors.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, list = list.1, "a server's list is incomplete");
                false
            }
        };
    }
    let is_cut = has_more || items.len() > most;
    items.truncate(most);
    Ok((items, is_cut))
}

/// Over HTTP, some arguments are sent as headers too. Removes the tools whose definition of those is invalid.
fn keep_header_arguments(peer: &Peer, page: &mut Vec<Tool>, all: &mut HeaderArguments) {
    if !matches!(peer.channel(), Channel::Http(_))
        || peer.info().is_none_or(ServerInfo::has_handshake)
    {
        return;
    }
    page.retain(|tool| match header_arguments(&tool.input_schema.parse()) {
        Ok(arguments) => {
            if !arguments.is_empty() {
                all.insert(tool.name.clone(), arguments);
            }
            true
        }
        Err(why) => {
            let name = bounded_text(&escape_hidden_line(&tool.name), MAX_NAME_CHARS);
            tracing::warn!(name, why, "a tool is ignored");
            false
        }
    });
}

/// A tool of a server.
#[derive(Debug)]
pub struct ListedTool {
    /// The definition as the server sent it. Its texts are untrusted and must not be shown as they
    /// are.
    pub tool: Tool,
    /// The description, safe to show to the model and the user.
    pub description: String,
    /// The schema of its arguments, as the model is shown it.
    pub parameters: SchemaText,
    /// The tool is ours, not the server's: it reads the server's resources.
    pub reads_resources: bool,
    pub arguments: SchemaValidator,
    pub results: Option<SchemaValidator>,
    /// The approximate size in bytes.
    pub size: usize,
    /// The digest of the definition, once somebody has needed it.
    pub digest: OnceLock<String>,
}

impl ListedTool {
    /// Prepares a tool. May take long, so it must run on a blocking thread.
    pub fn new(mut tool: Tool) -> ListedTool {
        let mut size = tool.input_schema.size();
        if size > MAX_SCHEMA_BYTES {
            tool.input_schema = open_object();
            size = 0;
        }
        tool.output_schema = tool.output_schema.filter(|schema| schema.size() <= MAX_SCHEMA_BYTES);
        let original = tool.description.as_deref().unwrap_or_default();
        let description = bounded_text(original, MAX_DESCRIPTION_CHARS);
        let shown = model_schema(&tool.input_schema.parse());
        let mut parameters = shown.schema.as_object().map_or_else(open_object, SchemaText::new);
        if parameters == tool.input_schema {
            // One copy for both.
            parameters = tool.input_schema.clone();
        }
        let hint = tool.annotations.as_ref().and_then(|annotations| annotations.title.as_ref());
        size += tool.title.iter().chain(hint).map(String::len).sum::<usize>();
        size += original.len() + tool.output_schema.as_ref().map_or(0, SchemaText::size);
        ListedTool {
            reads_resources: false,
            arguments: SchemaValidator::new(tool.input_schema.clone()),
            results: tool.output_schema.clone().map(SchemaValidator::new),
            parameters,
            description,
            size,
            tool,
            digest: OnceLock::new(),
        }
    }

    /// The title, safe to show, if it differs from the name.
    pub fn title(&self) -> Option<String> {
        let hints = self.tool.annotations.as_ref();
        let declared = self.tool.title.as_ref().or_else(|| hints?.title.as_ref())?;
        let title = bounded_text(&escape_hidden_line(declared), MAX_TITLE_CHARS);
        (!title.is_empty() && title != self.tool.name).then_some(title)
    }

    /// True if the tool is annotated as read-only. The claim is not verified.
    pub fn claims_read_only(&self) -> bool {
        self.tool.annotations.as_ref().and_then(|hints| hints.read_only_hint).unwrap_or(false)
    }

    /// The icon that fits the tool's annotations.
    pub fn kind(&self) -> ToolKind {
        match self.tool.annotations.as_ref().and_then(|hints| hints.destructive_hint) {
            _ if self.claims_read_only() => ToolKind::Read,
            Some(true) => ToolKind::Edit,
            _ => ToolKind::Other,
        }
    }
}

fn open_object() -> SchemaText {
    SchemaText::new(&Map::from_iter([("type".to_owned(), json!("object"))]))
}

/// Reads a page of a list. One invalid item does not hide the others. Returns the items and the next
/// cursor.
fn parse_page<T>(
    mut page: Value,
    key: &str,
    read: fn(Value) -> Option<T>,
) -> Option<(Vec<T>, Option<String>)> {
    // Go writes an empty list as null.
    let items: Option<Vec<Value>> = serde_json::from_value(page.get_mut(key)?.take()).ok()?;
    let cursor = page.get("nextCursor").and_then(Value::as_str).filter(|text| !text.is_empty());
    Some((items.into_iter().flatten().filter_map(read).collect(), cursor.map(str::to_owned)))
}

/// Reads a tool of which only the name must be valid. It cannot pass for one of ours that loads a skill.
fn parse_tool(mut value: Value) -> Option<Tool> {
    value.as_object_mut()?.shift_remove("skill");
    if !value.get("inputSchema").is_some_and(Value::is_object) {
        value.as_object_mut()?.insert("inputSchema".to_owned(), json!({ "type": "object" }));
    }
    if let Ok(tool) = Tool::deserialize(&value) {
        return Some(tool);
    }
    value.as_object_mut()?.retain(|key, field| match key.as_str() {
        "name" | "title" | "description" => field.is_string(),
        "inputSchema" | "outputSchema" => field.is_object(),
        _ => false,
    });
    serde_json::from_value(value).ok()
}

fn has_valid_name(tool: &Tool) -> bool {
    (1..=MAX_NAME_BYTES).contains(&tool.name.len())
}

/// The longest function name that all providers accept.
const MAX_NAME_LEN: usize = 64;
/// The length to which a server's name is cut if both names do not fit.
const MAX_SERVER_LEN: usize = 20;
/// The length of the digest that makes ambiguous names unique.
const DIGEST_LEN: usize = 8;
/// Maximum number of names that are remembered. Only a server that keeps inventing tools can exceed this.
const MAX_NAMES: usize = 10_000;

/// The names of the tools in one session.
#[derive(Debug, Default)]
pub struct ToolNames {
    /// By server and tool.
    given: HashMap<(String, String), String>,
    taken: HashSet<String>,
}

impl ToolNames {
    /// Returns the name of a server's tool. It nearly always depends on the two names alone, so it is
    /// the same in every session.
    pub fn name_of(&mut self, server: &str, tool: &str) -> String {
        let key = (server.to_owned(), tool.to_owned());
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        if self.given.len() >= MAX_NAMES {
            *self = ToolNames::default();
        }
        let mut name = preferred_name(server, tool);
        let mut salt = 0;
        while !self.taken.insert(name.clone()) {
            salt += 1;
            name = with_digest(server, tool, salt);
        }
        self.given.insert(key, name.clone());
        name
    }
}

/// Joins the two names if they can be told apart again, otherwise adds a digest.
fn preferred_name(server: &str, tool: &str) -> String {
    let is_valid = sanitized(server) == server && sanitized(tool) == tool;
    let is_unambiguous = !server.contains("__") && !server.ends_with('_');
    let whole = format!("mcp__{server}__{tool}");
    let fits = whole.len() <= MAX_NAME_LEN && !server.is_empty() && !tool.is_empty();
    if is_valid && is_unambiguous && fits { whole } else { with_digest(server, tool, 0) }
}

/// A name with a digest that is unique to the pair of names.
pub(crate) fn with_digest(server: &str, tool: &str, salt: u32) -> String {
    let digest = sha256_hex(format!("{server}\0{tool}\0{salt}").as_bytes());
    let mut first = sanitized(server);
    let second = sanitized(tool);
    let available = MAX_NAME_LEN - DIGEST_LEN - "mcp____".len() - 1;
    if first.len() + second.len() > available {
        first.truncate(MAX_SERVER_LEN.max(available.saturating_sub(second.len())));
    }
    let mut name = format!("mcp__{first}__{second}");
    name.truncate(MAX_NAME_LEN - DIGEST_LEN - 1);
    format!("{name}_{}", &digest[..DIGEST_LEN])
}

/// Replaces the characters that a function name cannot have.
pub(crate) fn sanitized(name: &str) -> String {
    name.replace(|char: char| !char.is_ascii_alphanumeric() && !matches!(char, '_' | '-'), "_")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt;
    use futures_util::stream::{BoxStream, iter};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::call::server_requests::ServerMessageHandler;
    use crate::transport::link::{LinkChannel, LinkEvent, LinkedServer, ServerLink};

    /// Counts the requests, and answers each with the same page and the same cursor.
    #[derive(Clone, Debug)]
    struct RepeatingLink(Arc<AtomicUsize>);

    impl ServerLink for RepeatingLink {
        fn send(&self, _: String, _: Option<JsonObject>) -> BoxStream<'static, LinkEvent> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let page = r#"{"prompts":[1],"tools":[],"nextCursor":"2"}"#.to_owned();
            iter([LinkEvent::Outcome(Ok(RawValue::from_string(page).unwrap()))]).boxed()
        }
    }

    #[tokio::test]
    async fn a_cursor_that_comes_again_ends_any_list() {
        let requests = Arc::<AtomicUsize>::default();
        let link = LinkedServer::new(RepeatingLink(Arc::clone(&requests)));
        let peer = Peer::new(Channel::Link(LinkChannel::new(link)), ServerMessageHandler::silent());
        let listing = list_items(&peer, ("prompts/list", "prompts"), 100, Some);
        let (prompts, is_cut) = listing.await.unwrap();
        assert_eq!((prompts.len(), is_cut), (2, false));
        assert_eq!(requests.swap(0, Ordering::Relaxed), 2);
        assert!(list_tools(&peer).await.unwrap().is_empty());
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    fn listed(tool: Value) -> ListedTool {
        ListedTool::new(parse_tool(tool).unwrap())
    }

    #[test]
    fn one_invalid_tool_does_not_hide_the_others() {
        let page = json!({
            "tools": [
                { "name": "a", "inputSchema": { "type": "object" } },
                { "name": "b" },
                { "name": "c", "inputSchema": "none", "description": 5 },
                { "name": "d", "inputSchema": null, "annotations": "odd", "title": "D" },
                { "name": 7, "inputSchema": {} },
                "e",
            ],
            "nextCursor": 9,
        });
        let (tools, cursor) = parse_page(page, "tools", parse_tool).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names.as_slice(), cursor), (&["a", "b", "c", "d"][..], None));
        assert_eq!(tools[3].title.as_deref(), Some("D"));
        for page in [json!({ "tools": {} }), json!([])] {
            assert!(parse_page(page, "tools", parse_tool).is_none());
        }
    }

    /// As servers in Go write them.
    #[test]
    fn an_empty_list_may_be_null_and_an_empty_cursor_leads_nowhere() {
        let page = json!({ "tools": null, "nextCursor": "" });
        let (tools, cursor) = parse_page(page, "tools", parse_tool).unwrap();
        assert!(tools.is_empty() && cursor.is_none());
    }

    #[test]
    fn a_description_is_escaped_and_bounded() {
        let description = format!("Reads.\u{200b}\u{e0001} {}", "long ".repeat(1_000));
        let listed = listed(json!({ "name": "a\u{202e}b", "description": description }));
        assert!(listed.description.starts_with("Reads.\\u{200b}\\u{e0001} long"));
        assert!(listed.description.chars().count() < MAX_DESCRIPTION_CHARS + 40);
    }

    #[test]
    fn annotations_decide_the_kind() {
        let table = [
            (json!({}), ToolKind::Other),
            (json!({ "readOnlyHint": true }), ToolKind::Read),
            (json!({ "readOnlyHint": true, "destructiveHint": true }), ToolKind::Read),
            (json!({ "destructiveHint": true }), ToolKind::Edit),
            (json!({ "destructiveHint": false }), ToolKind::Other),
        ];
        for (hints, kind) in table {
            let listed = listed(json!({ "name": "a", "annotations": hints }));
            assert_eq!(listed.kind(), kind, "{hints}");
        }
    }

    #[test]
    fn the_size_covers_everything_that_is_kept() {
        let long = "x".repeat(500_000);
        let hint = json!({ "title": "x".repeat(500_000) });
        let tool = json!({ "name": "a", "title": long, "annotations": hint, "inputSchema": {} });
        let listed = listed(tool);
        assert!(listed.size > 1_000_000);
    }

    #[test]
    fn a_huge_schema_is_not_kept() {
        let schema = json!({ "type": "object", "$comment": "x".repeat(300_000) });
        let listed = listed(json!({ "name": "a", "inputSchema": schema }));
        let empty = json!({ "type": "object", "properties": {} });
        assert_eq!(Value::Object(listed.parameters.parse()), empty);
        assert!(listed.size < 1_000);
    }

    #[test]
    fn a_name_joins_the_two_names_if_possible() {
        let table = [
            ("notes", "search", "mcp__notes__search"),
            ("my-server", "get_it", "mcp__my-server__get_it"),
            ("notes", "_x", "mcp__notes___x"),
            ("notes", "a.b", "mcp__notes__a_b_"),
            ("My Files", "read", "mcp__My_Files__read_"),
            ("a__b", "c", "mcp__a__b__c_"),
            ("a_", "c", "mcp__a___c_"),
            ("é", "日本", "mcp________"),
            ("", "x", "mcp____x_"),
        ];
        for (server, tool, expected) in table {
            let name = ToolNames::default().name_of(server, tool);
            let found =
                if expected.ends_with('_') { &name[..name.len() - DIGEST_LEN] } else { &name };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_tool_name_stays_readable_in_long_names() {
        let server = "s".repeat(60);
        let tool = "list_everything_there_is";
        let name = ToolNames::default().name_of(&server, tool);
        assert!(
            name.len() == MAX_NAME_LEN && name.contains("__list_everything_there_is_"),
            "{name}"
        );
        let name = ToolNames::default().name_of("github", &"t".repeat(128));
        assert!(name.len() == MAX_NAME_LEN && name.starts_with("mcp__github__ttt"), "{name}");
    }

    #[test]
    fn a_server_cannot_take_the_name_of_another_servers_tool() {
        let mut names = ToolNames::default();
        let first = names.name_of("my.server", "x");
        let copy = first.strip_prefix("mcp__my_server__").unwrap();
        assert_ne!(names.name_of("my_server", copy), first);
        assert_eq!(names.name_of("my.server", "x"), first);
    }

    proptest! {
        #[test]
        fn every_tool_gets_a_unique_name_and_keeps_it(
            tools in prop::collection::vec(("[ab_.]{0,4}|\\PC{0,80}", "[ab_.]{0,4}|\\PC{0,200}"), 0..40),
        ) {
            let mut names = ToolNames::default();
            let given: Vec<_> = tools.iter().map(|(server, tool)| names.name_of(server, tool)).collect();
            for (number, name) in given.iter().enumerate() {
                prop_assert!((1..=MAX_NAME_LEN).contains(&name.len()) && sanitized(name) == *name);
                for (other, its) in given.iter().enumerate() {
                    prop_assert_eq!(name == its, tools[number] == tools[other]);
                }
            }
            for ((server, tool), name) in tools.iter().zip(&given).rev() {
                prop_assert_eq!(&names.name_of(server, tool), name);
            }
        }
    }
}
