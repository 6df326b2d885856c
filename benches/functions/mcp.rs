//! Measures what many tools of MCP servers cost a session: 400 tools of eight servers, with budgets.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright::internals::{AnyTool, OfferContext, PreparedCall, ToolIndex, Toolbox, built_in};
use turnwright_types::effect::CallView;
use turnwright_types::message::ToolSpec;
use turnwright_types::refusal::ToolRefusal;

use crate::table::{Table, ms, us};

/// How often each operation is measured.
const ROUNDS: usize = 15;
/// Tools of each server.
const TOOLS_PER_SERVER: usize = 50;
const SERVERS: usize = 8;

pub(crate) fn measure() {
    let mut table = Table::begin("400 tools of eight servers");
    let tools = remote_tools();
    let full = toolbox(&tools);
    specs(&full);
    table.row("index new tools", ms(fastest(|| toolbox(&tools))), "ms", 1.0);
    let specs_with_search = || {
        let tools = toolbox(&tools);
        let started = Instant::now();
        black_box(specs(&tools));
        started.elapsed()
    };
    let best = (0..ROUNDS).map(|_| specs_with_search()).min().unwrap_or_default();
    table.row("specs after a change, with tool_search", ms(best), "ms", 1.0);
    let few = toolbox(&tools[..40]);
    let specs_without_search = || {
        few.remote_tools().set_tools(Vec::new());
        few.remote_tools().set_tools(tools[..40].to_vec());
        let started = Instant::now();
        black_box(specs(&few));
        started.elapsed()
    };
    let best = (0..ROUNDS).map(|_| specs_without_search()).min().unwrap_or_default();
    table.row("… of 40 tools, all included", ms(best), "ms", 0.5);
    table.row("specs of the next request", us(fastest(|| specs(&full))), "µs", 5.0);
    let name = "mcp__server7__do_something_49";
    table.row("find by name", us(fastest(|| full.find(name).is_ok())), "µs", 5.0);
    let other = "functions.mcp__Server7__doSomething49";
    table.row("… by a similar name", us(fastest(|| full.find(other).is_ok())), "µs", 10.0);
    let none = "mcp__server7__do_nothing";
    table.row("… that does not exist", ms(fastest(|| full.find(none).is_err())), "ms", 1.0);
    let found = fastest(|| full.search_names("create a label of an issue"));
    table.row("tool_search", ms(found), "ms", 5.0);
    table.end();
}

fn specs(tools: &Toolbox) -> usize {
    tools.specs(&OfferContext::default(), None).len()
}

fn toolbox(tools: &[Arc<dyn AnyTool>]) -> Toolbox {
    let toolbox = Toolbox::new(Arc::new(ToolIndex::new(built_in())));
    toolbox.specs(&OfferContext::default(), None);
    toolbox.remote_tools().set_tools(tools.to_vec());
    toolbox
}

fn remote_tools() -> Vec<Arc<dyn AnyTool>> {
    let tool = |number: usize| {
        let (server, number) = (number / TOOLS_PER_SERVER, number % TOOLS_PER_SERVER);
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
        Arc::new(BenchTool(Arc::new(spec))) as Arc<dyn AnyTool>
    };
    (0..TOOLS_PER_SERVER * SERVERS).map(tool).collect()
}

/// A tool that is listed and searched, but never called.
#[derive(Debug)]
struct BenchTool(Arc<ToolSpec>);

impl AnyTool for BenchTool {
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
        Err("".into())
    }
}

fn fastest<T>(work: impl Fn() -> T) -> Duration {
    let time = || {
        let started = Instant::now();
        black_box(work());
        started.elapsed()
    };
    (0..ROUNDS).map(|_| time()).min().unwrap_or_default()
}
