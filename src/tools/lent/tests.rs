//! What the model and the user are told of lent tools.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};

use turnwright_types::effect::CallView;
use turnwright_types::message::{
    Arguments, AssistantMessage, Echo, History, Message, Specs, ToolCall, ToolSpec,
};
use crate::tools::{AnyTool, Fate, Lent, Offer, Prepared, Registry, Toolbox, built_in};

#[derive(Debug)]
struct Fake(Arc<ToolSpec>);

impl AnyTool for Fake {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn reads(&self) -> bool {
        false
    }

    fn spec(&self, _: &Offer) -> Option<Arc<ToolSpec>> {
        Some(Arc::clone(&self.0))
    }

    fn lender(&self) -> Option<&str> {
        self.0.name.split("__").nth(1)
    }

    fn first_view(&self) -> Option<CallView> {
        None
    }

    fn prepare(self: Arc<Self>, _: Value) -> Result<Box<dyn Prepared>, String> {
        Err("no".to_owned())
    }
}

fn tool(name: &str) -> Arc<dyn AnyTool> {
    described(name, "It does.")
}

fn described(name: &str, description: &str) -> Arc<dyn AnyTool> {
    let (name, description) = (name.to_owned().into(), description.to_owned());
    let parameters = json!({ "type": "object", "properties": { "where": { "type": "string" } } });
    Arc::new(Fake(Arc::new(ToolSpec { name, description, parameters })))
}

fn many(server: &str, count: usize) -> Vec<Arc<dyn AnyTool>> {
    (0..count).map(|it| tool(&format!("mcp__{server}__t{it}"))).collect()
}

fn toolbox() -> Toolbox {
    Toolbox::new(Arc::new(Registry::new(built_in())), Lent::default())
}

fn specs(tools: &Toolbox) -> Specs {
    tools.specs(&Offer::default(), None)
}

/// The names behind the built-in ones.
fn lent(specs: &Specs) -> Vec<&str> {
    let names = specs.iter().map(|it| it.name.as_ref());
    names.filter(|it| it.starts_with("mcp") || *it == "tool_search").collect()
}

fn set(tools: &Toolbox, names: &[&str]) {
    tools.lent().set(names.iter().map(|it| tool(it)).collect());
}

#[test]
fn what_comes_late_stands_at_the_end_and_what_stays_keeps_its_place() {
    let tools = toolbox();
    let own = specs(&tools);
    set(&tools, &["mcp__b__1", "mcp__b__2", "mcp__b__3"]);
    let first = specs(&tools);
    assert_eq!(first[..own.len()], own[..]);
    set(&tools, &["mcp__a__1", "mcp__b__1", "mcp__b__2", "mcp__b__3"]);
    let second = specs(&tools);
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(lent(&second), ["mcp__b__1", "mcp__b__2", "mcp__b__3", "mcp__a__1"]);
    set(&tools, &["mcp__a__1", "mcp__b__3", "mcp__b__1", "mcp__b__4"]);
    assert_eq!(lent(&specs(&tools)), ["mcp__b__1", "mcp__b__3", "mcp__a__1", "mcp__b__4"]);
    assert!(Arc::ptr_eq(&specs(&tools), &specs(&tools)));
}

#[test]
fn a_tool_whose_description_has_changed_is_told_anew_in_its_place() {
    let tools = toolbox();
    set(&tools, &["mcp__a__1", "mcp__a__2"]);
    specs(&tools);
    tools.lent().set(vec![described("mcp__a__1", "Otherwise."), tool("mcp__a__2")]);
    let specs = specs(&tools);
    assert_eq!(lent(&specs), ["mcp__a__1", "mcp__a__2"]);
    assert_eq!(specs[specs.len() - 2].description, "Otherwise.");
}

#[test]
fn the_same_tools_again_are_no_news() {
    let tools = toolbox();
    let some = many("a", 3);
    tools.lent().set(some.clone());
    let first = specs(&tools);
    tools.lent().set(some);
    assert!(Arc::ptr_eq(&first, &specs(&tools)));
}

#[test]
fn a_tool_that_is_gone_is_said_to_be_gone() {
    let tools = toolbox();
    set(&tools, &["mcp__a__1"]);
    set(&tools, &[]);
    let why = tools.find("mcp__a__1").unwrap_err();
    assert_eq!(why, "The tool \"mcp__a__1\" is gone: its server does not offer it any more.");
    set(&tools, &["mcp__a__1"]);
    assert!(tools.find("mcp__a__1").is_ok());
}

#[test]
fn an_unknown_name_is_answered_shortly_however_many_tools_there_are() {
    let tools = toolbox();
    tools.lent().set(many("notes", 400));
    let why = tools.find("mcp__notes__tt17").unwrap_err();
    assert!(why.len() < 700, "{why}");
    assert!(why.contains("Did you mean mcp__notes__t"), "{why}");
    assert!(why.contains("Available: read_file, write_file"), "{why}");
    assert!(why.contains("and 392 of MCP servers."), "{why}");
    specs(&tools);
    let why = tools.find("fly").unwrap_err();
    assert!(why.ends_with("exit_plan, and 400 more by tool_search."), "{why}");
}

#[test]
fn with_forty_all_are_told_and_with_one_more_a_search() {
    let tools = toolbox();
    tools.lent().set(many("a", 40));
    assert_eq!(lent(&specs(&tools)).len(), 40);
    assert!(tools.find("tool_search").is_err());
    let tools = toolbox();
    tools.lent().set(many("a", 41));
    let specs = specs(&tools);
    assert_eq!(lent(&specs), ["tool_search"]);
    let description = &specs.last().unwrap().description;
    assert!(description.contains(" a, 41 tools mcp__a__…: t0, t1, "), "{description}");
    assert!(tools.find("tool_search").is_ok());
}

#[test]
fn tools_that_would_fill_a_tenth_of_the_window_are_searched() {
    let long = || vec![described("mcp__a__1", &"word ".repeat(400))];
    for (window, searches) in [(Some(4_000), true), (Some(8_000), false), (None, false)] {
        let tools = toolbox();
        tools.lent().set(long());
        let specs = tools.specs(&Offer::default(), window);
        assert_eq!(lent(&specs) == ["tool_search"], searches, "{window:?}");
    }
    let tools = toolbox();
    tools.lent().set(vec![described("mcp__a__1", &"word ".repeat(8_000))]);
    assert_eq!(lent(&specs(&tools)), ["tool_search"]);
}

#[test]
fn who_has_searched_once_searches_always_and_keeps_what_it_knew() {
    let tools = toolbox();
    tools.lent().set(many("a", 3));
    let first = specs(&tools);
    tools.lent().set(many("a", 3).into_iter().chain(many("b", 50)).collect());
    let second = specs(&tools);
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(lent(&second).last(), Some(&"tool_search"));
    tools.lent().set(many("b", 2));
    assert_eq!(lent(&specs(&tools)), ["tool_search"]);
}

#[test]
fn a_tool_that_is_called_unloaded_is_found_and_told_from_then_on() {
    let tools = toolbox();
    tools.lent().set(many("a", 50));
    assert_eq!(lent(&specs(&tools)), ["tool_search"]);
    // A card for a call is not yet the call.
    tools.find("mcp__a__t7").unwrap();
    assert_eq!(lent(&specs(&tools)), ["tool_search"]);
    assert_eq!(tools.call("functions.mcp__a__t7").unwrap().name(), "mcp__a__t7");
    tools.call("read_file").unwrap();
    tools.call("tool_search").unwrap();
    assert_eq!(lent(&specs(&tools)), ["tool_search", "mcp__a__t7"]);
}

#[test]
fn of_too_many_loaded_tools_the_one_that_was_used_long_ago_is_dropped() {
    let tools = toolbox();
    tools.lent().set(many("a", 50));
    specs(&tools);
    for number in 0..40 {
        tools.call(&format!("mcp__a__t{number}")).unwrap();
    }
    specs(&tools);
    tools.call("mcp__a__t0").unwrap();
    tools.call("mcp__a__t45").unwrap();
    let told = specs(&tools);
    let told = lent(&told);
    assert_eq!(told.len(), 41);
    assert_eq!(told[..3], ["tool_search", "mcp__a__t0", "mcp__a__t2"]);
    assert_eq!(told.last(), Some(&"mcp__a__t45"));
}

#[test]
fn loaded_tools_fill_no_more_than_their_part_of_the_window_but_some_always_stay() {
    let tools = toolbox();
    let long = |it| described(&format!("mcp__a__t{it}"), &"word ".repeat(400));
    tools.lent().set((0..20).map(long).collect());
    for number in 0..20 {
        tools.call(&format!("mcp__a__t{number}")).unwrap();
    }
    let told = tools.specs(&Offer::default(), Some(40_000));
    assert_eq!(lent(&told).len(), 1 + 7);
    let told = tools.specs(&Offer::default(), Some(4_000));
    assert_eq!(lent(&told).len(), 1 + 5);
}

#[test]
fn what_the_conversation_has_called_is_told_again_also_if_it_comes_late() {
    let call = |name: &str| ToolCall {
        id: name.into(),
        provider_id: String::new(),
        name: name.to_owned(),
        arguments: Arguments::Object(json!({})),
        extra: None,
    };
    let mut history = History::default();
    history.push(Message::Assistant(AssistantMessage {
        id: "m".into(),
        text: String::new(),
        thought: String::new(),
        calls: ["read_file", "tool_search", "mcp__a__t3", "mcp__b__t1"].map(call).into(),
        interrupted: false,
        echo: Echo::default(),
    }));
    let tools = toolbox();
    tools.recall(&history);
    tools.lent().set(many("a", 50));
    assert_eq!(lent(&specs(&tools)), ["tool_search", "mcp__a__t3"]);
    tools.lent().set(many("a", 50).into_iter().chain(many("b", 9)).collect());
    assert_eq!(lent(&specs(&tools)), ["tool_search", "mcp__a__t3", "mcp__b__t1"]);
}

#[test]
fn a_user_is_told_of_a_server_what_is_new_and_that_once() {
    let ready = || Fate::Ready(2);
    let down = || Fate::Down("it died".to_owned());
    let lost = || Fate::Lost("it died".to_owned());
    let failed = "The MCP server s is not in use: it died";
    let come = "s is connected now: 2 tools.";
    let table: [(bool, Vec<Fate>, Vec<&str>); 7] = [
        (false, vec![ready(), ready()], vec![]),
        (true, vec![ready(), ready()], vec![come]),
        (true, vec![down(), down(), lost()], vec![failed]),
        (false, vec![down(), ready(), ready()], vec![failed, come]),
        (false, vec![ready(), down(), ready(), down(), ready()], vec![]),
        (false, vec![ready(), down(), down(), lost(), lost()], vec![failed]),
        (false, vec![ready(), lost(), ready(), down(), lost()], vec![failed, come, failed]),
    ];
    for (is_late, fates, news) in table {
        let lent = Lent::default();
        lent.expect(vec!["s".to_owned()], Duration::ZERO);
        if is_late {
            assert_eq!(lent.late(), ["s"]);
        }
        for fate in &fates {
            lent.fares("s", fate);
        }
        assert_eq!(lent.news(), news, "{fates:?}");
        assert!(lent.news().is_empty());
        assert_eq!(lent.has_news().now_or_never().is_some(), !news.is_empty());
        assert!(lent.late().is_empty());
    }
}

#[tokio::test]
async fn only_one_turn_waits_and_not_when_nothing_is_awaited() {
    let lent = Lent::default();
    assert_eq!(lent.patience(), None);
    lent.expect(vec!["a".to_owned(), "b".to_owned()], Duration::from_secs(5));
    assert!(lent.settled().now_or_never().is_none());
    lent.fares("a", &Fate::Ready(0));
    assert!(lent.settled().now_or_never().is_none());
    lent.fares("b", &Fate::Down("no".to_owned()));
    assert!(lent.settled().now_or_never().is_some());
    assert_eq!(lent.patience(), Some(Duration::from_secs(5)));
    assert_eq!(lent.patience(), None);
}
