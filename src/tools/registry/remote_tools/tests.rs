//! Tests of what the model and the user are told about MCP tools.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::tools::{
    AllowedTools, AnyTool, OfferContext, PreparedCall, RemoteTools, ServerStatus, ToolIndex,
    Toolbox, built_in,
};
use turnwright_types::effect::CallView;
use turnwright_types::message::{ToolSpec, ToolSpecs};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;

#[derive(Debug)]
struct FakeRemoteTool(Arc<ToolSpec>);

impl AnyTool for FakeRemoteTool {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn spec(&self, _: &OfferContext) -> Option<Arc<ToolSpec>> {
        Some(Arc::clone(&self.0))
    }

    fn server(&self) -> Option<&str> {
        self.0.name.split("__").nth(1)
    }

    fn pending_view(&self) -> Option<CallView> {
        None
    }

    fn prepare(self: Arc<Self>, _: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
        Err("no".into())
    }
}

fn tool(name: &str) -> Arc<dyn AnyTool> {
    described(name, "It does.")
}

fn described(name: &str, description: &str) -> Arc<dyn AnyTool> {
    let name = name.to_owned().into();
    let description = description.to_owned();
    let parameters = json!({ "type": "object", "properties": { "where": { "type": "string" } } });
    Arc::new(FakeRemoteTool(Arc::new(ToolSpec { name, description, parameters })))
}

fn many(server: &str, count: usize) -> Vec<Arc<dyn AnyTool>> {
    (0..count).map(|number| tool(&format!("mcp__{server}__t{number}"))).collect()
}

fn toolbox() -> Toolbox {
    Toolbox::new(Arc::new(ToolIndex::new(built_in())))
}

fn specs(tools: &Toolbox) -> ToolSpecs {
    tools.specs(&OfferContext::default(), None)
}

/// The advertised names after the built-in ones.
fn remote_names(specs: &ToolSpecs) -> Vec<&str> {
    let names = specs.iter().map(|spec| spec.name.as_ref());
    names.filter(|name| name.starts_with("mcp") || *name == "tool_search").collect()
}

fn set(tools: &Toolbox, names: &[&str]) {
    tools.remote_tools().set_tools(names.iter().map(|name| tool(name)).collect());
}

#[test]
fn new_tools_are_appended_and_known_ones_keep_their_position() {
    let tools = toolbox();
    let own = specs(&tools);
    set(&tools, &["mcp__b__1", "mcp__b__2", "mcp__b__3"]);
    let first = specs(&tools);
    assert_eq!(first[..own.len()], own[..]);
    set(&tools, &["mcp__a__1", "mcp__b__1", "mcp__b__2", "mcp__b__3"]);
    let second = specs(&tools);
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(remote_names(&second), ["mcp__b__1", "mcp__b__2", "mcp__b__3", "mcp__a__1"]);
    set(&tools, &["mcp__a__1", "mcp__b__3", "mcp__b__1", "mcp__b__4"]);
    assert_eq!(remote_names(&specs(&tools)), ["mcp__b__1", "mcp__b__3", "mcp__a__1", "mcp__b__4"]);
    assert!(Arc::ptr_eq(&specs(&tools), &specs(&tools)));
}

#[test]
fn a_tool_whose_description_has_changed_keeps_its_position() {
    let tools = toolbox();
    set(&tools, &["mcp__a__1", "mcp__a__2"]);
    specs(&tools);
    tools.remote_tools().set_tools(vec![described("mcp__a__1", "Otherwise."), tool("mcp__a__2")]);
    let specs = specs(&tools);
    assert_eq!(remote_names(&specs), ["mcp__a__1", "mcp__a__2"]);
    assert_eq!(specs[specs.len() - 2].description, "Otherwise.");
}

#[test]
fn setting_the_same_tools_again_changes_nothing() {
    let tools = toolbox();
    let some = many("a", 3);
    tools.remote_tools().set_tools(some.clone());
    let first = specs(&tools);
    tools.remote_tools().set_tools(some);
    assert!(Arc::ptr_eq(&first, &specs(&tools)));
}

#[test]
fn a_tool_that_is_gone_is_said_to_be_gone() {
    let tools = toolbox();
    set(&tools, &["mcp__a__1"]);
    set(&tools, &[]);
    let why = tools.find("mcp__a__1").unwrap_err().for_model;
    assert_eq!(why, "The tool \"mcp__a__1\" is gone: its server does not offer it any more.");
    set(&tools, &["mcp__a__1"]);
    assert!(tools.find("mcp__a__1").is_ok());
}

#[test]
fn an_unknown_name_is_answered_shortly_however_many_tools_there_are() {
    let tools = toolbox();
    tools.remote_tools().set_tools(many("notes", 400));
    let why = tools.find("mcp__notes__tt17").unwrap_err().for_model;
    assert!(why.len() < 700, "{why}");
    assert!(why.contains("Did you mean mcp__notes__t"), "{why}");
    assert!(why.contains("Available: read_file, write_file"), "{why}");
    assert!(why.contains("and 392 of MCP servers."), "{why}");
    specs(&tools);
    let why = tools.find("fly").unwrap_err().for_model;
    assert!(why.ends_with("exit_plan, and 400 more by tool_search."), "{why}");
}

#[test]
fn our_keys_do_not_reach_the_model_with_the_words_of_a_server() {
    let key = "canary-Kf83-of-tool-specs-Zq27";
    redact::register_keys([key.to_owned()]).unwrap();
    let name = "mcp__a__t".into();
    let parameters = json!({ "type": "object", "properties": { key: { "type": "string",
        "description": format!("not {key}"), "enum": [key] } } });
    let spec = ToolSpec { name, description: format!("Sends {key}."), parameters };
    let tools = toolbox();
    tools.remote_tools().set_tools(vec![Arc::new(FakeRemoteTool(Arc::new(spec)))]);
    let specs = specs(&tools);
    let last = format!("{:?}", specs.last().unwrap());
    assert!(!last.contains(key), "{last}");
    assert_eq!(last.matches("[hidden:").count(), 4, "{last}");
}

#[test]
fn up_to_forty_tools_are_all_advertised_and_more_need_a_search() {
    let tools = toolbox();
    tools.remote_tools().set_tools(many("a", 40));
    assert_eq!(remote_names(&specs(&tools)).len(), 40);
    assert!(tools.find("tool_search").is_err());
    let tools = toolbox();
    tools.remote_tools().set_tools(many("a", 41));
    let specs = specs(&tools);
    assert_eq!(remote_names(&specs), ["tool_search"]);
    let description = &specs.last().unwrap().description;
    assert!(description.contains(" a, 41 tools mcp__a__…: t0, t1, "), "{description}");
    assert!(tools.find("tool_search").is_ok());
}

#[test]
fn a_restricted_session_offers_and_finds_only_the_allowed_tools() {
    let tools = toolbox();
    set(&tools, &["mcp__a__one", "mcp__a__two"]);
    let allowed = ["Read", "mcp__a__one", "mcp__b__t7"].map(str::to_owned);
    tools.remote_tools().restrict(AllowedTools::new(&allowed));
    assert_eq!(remote_names(&specs(&tools)), ["mcp__a__one"]);
    tools.remote_tools().set_tools(many("b", 100));
    assert_eq!(remote_names(&specs(&tools)), ["mcp__b__t7"]);
    assert!(tools.find("mcp__b__t7").is_ok());
    assert_eq!(tools.search_names("t8 t7"), ["mcp__b__t7"]);
    let error = tools.find("mcp__b__t8").unwrap_err().for_model;
    assert!(error.ends_with("Available: read_file, mcp__b__t7."), "{error}");
}

#[test]
fn tools_that_would_fill_a_tenth_of_the_window_are_searched() {
    let long = || vec![described("mcp__a__1", &"word ".repeat(400))];
    for (window, searches) in [(Some(4_000), true), (Some(8_000), false), (None, false)] {
        let tools = toolbox();
        tools.remote_tools().set_tools(long());
        let specs = tools.specs(&OfferContext::default(), window);
        assert_eq!(remote_names(&specs) == ["tool_search"], searches, "{window:?}");
    }
    let tools = toolbox();
    tools.remote_tools().set_tools(vec![described("mcp__a__1", &"word ".repeat(8_000))]);
    assert_eq!(remote_names(&specs(&tools)), ["tool_search"]);
}

#[test]
fn a_session_that_searches_once_goes_on_searching_and_keeps_known_tools() {
    let tools = toolbox();
    tools.remote_tools().set_tools(many("a", 3));
    let first = specs(&tools);
    tools.remote_tools().set_tools(many("a", 3).into_iter().chain(many("b", 50)).collect());
    let second = specs(&tools);
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(remote_names(&second).last(), Some(&"tool_search"));
    tools.remote_tools().set_tools(many("b", 2));
    assert_eq!(remote_names(&specs(&tools)), ["tool_search"]);
}

#[test]
fn a_tool_called_without_a_search_is_found_and_advertised_from_then_on() {
    let tools = toolbox();
    tools.remote_tools().set_tools(many("a", 50));
    assert_eq!(remote_names(&specs(&tools)), ["tool_search"]);
    // `find` alone, as for a call's card, does not count as a use.
    tools.find("mcp__a__t7").unwrap();
    assert_eq!(remote_names(&specs(&tools)), ["tool_search"]);
    assert_eq!(tools.find_for_call("functions.mcp__a__t7").unwrap().name(), "mcp__a__t7");
    tools.find_for_call("read_file").unwrap();
    tools.find_for_call("tool_search").unwrap();
    assert_eq!(remote_names(&specs(&tools)), ["tool_search", "mcp__a__t7"]);
}

#[test]
fn of_too_many_loaded_tools_the_one_that_was_used_long_ago_is_dropped() {
    let tools = toolbox();
    tools.remote_tools().set_tools(many("a", 50));
    specs(&tools);
    for number in 0..40 {
        tools.find_for_call(&format!("mcp__a__t{number}")).unwrap();
    }
    specs(&tools);
    tools.find_for_call("mcp__a__t0").unwrap();
    tools.find_for_call("mcp__a__t45").unwrap();
    let advertised = specs(&tools);
    let advertised = remote_names(&advertised);
    assert_eq!(advertised.len(), 41);
    assert_eq!(advertised[..3], ["tool_search", "mcp__a__t0", "mcp__a__t2"]);
    assert_eq!(advertised.last(), Some(&"mcp__a__t45"));
}

#[test]
fn loaded_tools_fill_no_more_than_their_part_of_the_window_but_some_always_stay() {
    let tools = toolbox();
    let long = |number| described(&format!("mcp__a__t{number}"), &"word ".repeat(400));
    tools.remote_tools().set_tools((0..20).map(long).collect());
    for number in 0..20 {
        tools.find_for_call(&format!("mcp__a__t{number}")).unwrap();
    }
    let advertised = tools.specs(&OfferContext::default(), Some(40_000));
    assert_eq!(remote_names(&advertised).len(), 1 + 7);
    let advertised = tools.specs(&OfferContext::default(), Some(4_000));
    assert_eq!(remote_names(&advertised).len(), 1 + 5);
}

#[test]
fn tools_that_a_stored_conversation_has_called_or_found_are_advertised_even_if_they_appear_late() {
    let tools = toolbox();
    for name in ["read_file", "mcp__a__t3", "mcp__b__t1"] {
        tools.load_stored_call(name, &json!({}));
    }
    tools.load_stored_call("tool_search", &json!({ "tools": ["mcp__a__t7"] }));
    tools.remote_tools().set_tools(many("a", 50));
    assert_eq!(remote_names(&specs(&tools)), ["tool_search", "mcp__a__t3", "mcp__a__t7"]);
    tools.remote_tools().set_tools(many("a", 50).into_iter().chain(many("b", 9)).collect());
    let all = ["tool_search", "mcp__a__t3", "mcp__a__t7", "mcp__b__t1"];
    assert_eq!(remote_names(&specs(&tools)), all);
}

#[test]
fn the_user_is_told_once_of_each_change_of_a_server() {
    let ready = || ServerStatus::Ready(2);
    let down = || ServerStatus::Down("it died".to_owned());
    let lost = || ServerStatus::Failed("it died".to_owned());
    let failed = "The MCP server s is unavailable: it died";
    let come = "s is connected now: 2 tools.";
    let table: [(bool, Vec<ServerStatus>, Vec<&str>); 7] = [
        (false, vec![ready(), ready()], vec![]),
        (true, vec![ready(), ready()], vec![come]),
        (true, vec![down(), down(), lost()], vec![failed]),
        (false, vec![down(), ready(), ready()], vec![failed, come]),
        (false, vec![ready(), down(), ready(), down(), ready()], vec![]),
        (false, vec![ready(), down(), down(), lost(), lost()], vec![failed]),
        (false, vec![ready(), lost(), ready(), down(), lost()], vec![failed, come, failed]),
    ];
    for (is_late, statuses, news) in table {
        let remote = RemoteTools::default();
        remote.expect_servers(vec!["s".to_owned()], Duration::ZERO);
        if is_late {
            assert_eq!(remote.take_late_servers(), ["s"]);
        }
        for status in &statuses {
            remote.set_server_status("s", status);
        }
        assert_eq!(remote.take_notices(), news, "{statuses:?}");
        assert!(remote.take_notices().is_empty());
        assert_eq!(remote.notice_arrived().now_or_never().is_some(), !news.is_empty());
        assert!(remote.take_late_servers().is_empty());
    }
}

#[tokio::test]
async fn only_one_turn_waits_and_not_when_nothing_is_awaited() {
    let remote = RemoteTools::default();
    assert_eq!(remote.take_wait_limit(), None);
    remote.expect_servers(vec!["a".to_owned(), "b".to_owned()], Duration::from_secs(5));
    assert!(remote.servers_settled().now_or_never().is_none());
    remote.set_server_status("a", &ServerStatus::Ready(0));
    assert!(remote.servers_settled().now_or_never().is_none());
    remote.set_server_status("b", &ServerStatus::Down("no".to_owned()));
    assert!(remote.servers_settled().now_or_never().is_some());
    assert_eq!(remote.take_wait_limit(), Some(Duration::from_secs(5)));
    assert_eq!(remote.take_wait_limit(), None);
}
