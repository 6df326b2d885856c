//! What many tools of servers cost a session, beside its budgets: 400 of them, from eight servers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_types::effect::CallView;
use turnwright_types::message::ToolSpec;
use turnwright::tools::{AnyTool, Lent, Offer, Prepared, Registry, Toolbox, built_in};

use crate::table::{Table, ms, us};

/// How often each thing is done.
const ROUNDS: usize = 15;
/// Tools of each server, and servers.
const TOOLS: usize = 50;
const SERVERS: usize = 8;

/// All of it.
pub(crate) fn measure() {
    let mut table = Table::begin("400 tools of eight servers");
    let tools = lent();
    let known = toolbox(&tools);
    specs(&known);
    table.row("they come: index", ms(fastest(|| toolbox(&tools))), "ms", 1.0);
    let new = || {
        let tools = toolbox(&tools);
        let begun = Instant::now();
        black_box(specs(&tools));
        begun.elapsed()
    };
    let new = (0..ROUNDS).map(|_| new()).min().unwrap_or_default();
    table.row("specs of a new edition, with the search", ms(new), "ms", 1.0);
    let few = toolbox(&tools[..40]);
    let new = || {
        few.lent().set(Vec::new());
        few.lent().set(tools[..40].to_vec());
        let begun = Instant::now();
        black_box(specs(&few));
        begun.elapsed()
    };
    let new = (0..ROUNDS).map(|_| new()).min().unwrap_or_default();
    table.row("… of 40 that are told", ms(new), "ms", 0.5);
    table.row("specs of the next request", us(fastest(|| specs(&known))), "µs", 5.0);
    let name = "mcp__server7__do_something_49";
    table.row("find by name", us(fastest(|| known.find(name).is_ok())), "µs", 5.0);
    let other = "functions.mcp__Server7__doSomething49";
    table.row("… by a name like it", us(fastest(|| known.find(other).is_ok())), "µs", 10.0);
    let none = "mcp__server7__do_nothing";
    table.row("… one that is not there", ms(fastest(|| known.find(none).is_err())), "ms", 1.0);
    let found = fastest(|| known.search("create a label of an issue"));
    table.row("tool_search", ms(found), "ms", 5.0);
    table.end();
}

fn specs(tools: &Toolbox) -> usize {
    tools.specs(&Offer::default(), None).len()
}

fn toolbox(tools: &[Arc<dyn AnyTool>]) -> Toolbox {
    let toolbox = Toolbox::new(Arc::new(Registry::new(built_in())), Lent::default());
    toolbox.specs(&Offer::default(), None);
    toolbox.lent().set(tools.to_vec());
    toolbox
}

fn lent() -> Vec<Arc<dyn AnyTool>> {
    let tool = |number: usize| {
        let (server, number) = (number / TOOLS, number % TOOLS);
        let argument = json!({ "type": "string", "description": "Which one it is about." });
        let names = (0..8).map(|it| (format!("argument_{it}"), argument.clone()));
        let parameters = json!({
            "type": "object", "properties": Value::Object(names.collect()), "required": ["argument_0"],
        });
        let spec = ToolSpec {
            name: format!("mcp__server{server}__do_something_{number}").into(),
            description: "Creates, changes or closes an issue and its labels. ".repeat(6),
            parameters,
        };
        Arc::new(Fake(Arc::new(spec))) as Arc<dyn AnyTool>
    };
    (0..TOOLS * SERVERS).map(tool).collect()
}

/// A tool that is only looked at.
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
        Err(String::new())
    }
}

fn fastest<T>(work: impl Fn() -> T) -> Duration {
    let time = || {
        let begun = Instant::now();
        black_box(work());
        begun.elapsed()
    };
    (0..ROUNDS).map(|_| time()).min().unwrap_or_default()
}
