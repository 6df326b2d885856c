//! Parses the syntaxes in which models write calls, one method for each. Only
//! [`CallParser::parse_group`] backtracks.

use serde_json::{Map, Value};

use super::{DeclaredTool, LeakedCall};

type ArgumentMap = Map<String, Value>;

/// Keys of a call in JSON. Bare JSON with any other key is not a call.
const CALL_KEYS: [&str; 8] =
    ["name", "arguments", "parameters", "args", "id", "type", "function", "index"];

/// Parses calls one after the other.
#[derive(Debug)]
pub(super) struct CallParser<'a> {
    text: &'a str,
    /// The text that is not parsed yet.
    rest: &'a str,
    /// The number of bytes in completely parsed groups.
    pub(super) parsed_bytes: usize,
    tools: &'a [DeclaredTool<'a>],
    /// The calls of completely parsed groups.
    pub(super) calls: Vec<LeakedCall>,
}

/// True for characters that occur in tool names.
pub(super) fn is_in_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | ':' | '/')
}

/// The namespace prefix of a tag with its separator: `x:`, or DeepSeek's mark.
pub(super) fn namespace_prefix(tag: &str) -> &str {
    let bars = ['｜', '|', '‖', ' '];
    if let Some(rest) = tag.trim_start_matches(bars).strip_prefix("DSML") {
        return &tag[..tag.len() - rest.trim_start_matches(bars).len()];
    }
    let name = tag.len() - tag.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).len();
    if tag[name..].starts_with(':') { &tag[..=name] } else { "" }
}

impl<'a> CallParser<'a> {
    pub(super) fn new(text: &'a str, tools: &'a [DeclaredTool<'a>]) -> CallParser<'a> {
        CallParser { text, rest: text, parsed_bytes: 0, tools, calls: Vec::new() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        !self.calls.is_empty() && self.rest.trim_start().is_empty()
    }

    /// Parses one call or a group of calls.
    pub(super) fn parse_group(&mut self) -> Option<()> {
        let known = self.calls.len();
        let rest = self.rest;
        let result = self.parse_any();
        if result.is_some() && self.calls.len() > known {
            self.parsed_bytes = self.text.len() - self.rest.len();
            return Some(());
        }
        self.calls.truncate(known);
        self.rest = rest;
        None
    }

    fn parse_any(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start();
        if self.skip("<tool_call>") {
            return self.parse_tagged();
        }
        match self.rest {
            rest if rest.starts_with("<function=") => {
                self.parse_function()?;
                // Qwen3-Coder may omit the opening tag.
                self.skip("</tool_call>");
                Some(())
            }
            rest if rest.starts_with("<|tool_call") => self.parse_kimi(),
            rest if rest.starts_with("<｜tool▁call") => self.parse_deepseek(),
            _ if self.skip("<|python_tag|>") => self.parse_python(),
            rest if rest.starts_with('<') => self.parse_xml(),
            _ if self.skip("[TOOL_CALLS]") => self.parse_mistral(),
            rest if rest.starts_with(['{', '[']) => self.parse_bare(),
            _ => self.parse_named(true),
        }
    }

    /// Parses the rest of `<tool_call>`: JSON, functions, pairs of keys and values, or invocations.
    fn parse_tagged(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['{', '[']) {
            self.parse_json_calls(false)?;
        } else if self.rest.starts_with("<function=") {
            while self.rest.trim_start().starts_with("<function=") {
                self.parse_function()?;
            }
        } else if self.rest.starts_with('<') {
            self.parse_invocations()?;
        } else {
            return self.parse_pairs();
        }
        self.close_group("</tool_call>", "<tool_call>")
    }

    /// Parses the name of a tool, and the keys and values of its arguments.
    fn parse_pairs(&mut self) -> Option<()> {
        let end = self.rest.find(['\n', '<'])?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let name = self.declared_name(name)?;
        let mut arguments = ArgumentMap::new();
        while self.skip("<arg_key>") {
            let key = self.take_until("</arg_key>")?.trim();
            self.skip("<arg_value>").then_some(())?;
            let value = self.take_until("</arg_value>")?;
            arguments.insert(key.to_owned(), self.parameter_value(name, key, value));
        }
        self.skip("</tool_call>").then_some(())?;
        self.add(name, arguments)
    }

    /// Parses `<function=f>` with parameters or with JSON, which may also follow `=` or the name.
    fn parse_function(&mut self) -> Option<()> {
        self.skip("<function=").then_some(())?;
        let name = self.parse_name()?;
        let json = self.rest.trim_start_matches(|c: char| c.is_whitespace() || "=>(".contains(c));
        if json.starts_with('{') {
            self.rest = json;
            let Value::Object(arguments) = self.parse_json()? else { return None };
            self.rest = self.rest.trim_start_matches([')', '>']);
            let is_closed = self.skip("</function>") || self.skip("<function>");
            (is_closed || self.rest.trim_start().is_empty()).then_some(())?;
            return self.add(name, arguments);
        }
        self.skip(">").then_some(())?;
        let mut arguments = ArgumentMap::new();
        while self.skip("<parameter=") {
            let key = self.take_until(">")?.trim();
            let value = self.take_until("</parameter>")?;
            arguments.insert(key.to_owned(), self.parameter_value(name, key, value));
        }
        self.skip("</function>").then_some(())?;
        self.add(name, arguments)
    }

    /// Parses invocations with or without an enclosing tag, or JSON within a tag.
    fn parse_xml(&mut self) -> Option<()> {
        let tag = namespace_prefix(&self.rest[1..]);
        let wrapper = ["tool_call", "tool_calls", "function_calls", "calls"]
            .into_iter()
            .find(|name| self.skip(&format!("<{tag}{name}>")));
        if self.rest.trim_start().starts_with(['{', '[']) {
            self.parse_json_calls(false)?;
        } else {
            self.parse_invocations()?;
        }
        match wrapper {
            Some(name) => self.close_group(&format!("</{tag}{name}>"), "\0"),
            None => {
                // MiniMax may omit the opening tag.
                self.skip("</minimax:tool_call>");
                Some(())
            }
        }
    }

    fn parse_invocations(&mut self) -> Option<()> {
        let known = self.calls.len();
        while let Some(prefix) = self.open_tag("invoke name=") {
            self.parse_invocation(prefix)?;
        }
        (self.calls.len() > known).then_some(())
    }

    fn parse_invocation(&mut self, prefix: &str) -> Option<()> {
        let (name, _) = self.parse_quoted()?;
        let name = self.declared_name(name)?;
        let mut arguments = ArgumentMap::new();
        while self.skip(&format!("<{prefix}parameter name=")) {
            let (key, attributes) = self.parse_quoted()?;
            let text = self.take_until(&format!("</{prefix}parameter>"))?;
            let value = if attributes.contains("string=\"true\"") {
                Value::String(text.to_owned())
            } else {
                self.parameter_value(name, key, text)
            };
            arguments.insert(key.to_owned(), value);
        }
        // MiniMax M3 names the tag after the parameter.
        while let Some(tag) = self.rest.trim_start().strip_prefix('<')
            && let Some((key, rest)) = tag.split_once('>')
            && key.chars().all(is_in_name)
            && !key.starts_with('/')
        {
            self.rest = rest;
            let text = self.take_until(&format!("</{key}>"))?;
            arguments.insert(key.to_owned(), self.parameter_value(name, key, text));
        }
        self.skip(&format!("</{prefix}invoke>")).then_some(())?;
        self.add(name, arguments)
    }

    /// Parses Kimi's calls, named `functions.f:0`.
    fn parse_kimi(&mut self) -> Option<()> {
        let is_section = self.skip("<|tool_calls_section_begin|>");
        while self.skip("<|tool_call_begin|>") {
            let id = self.take_until("<|tool_call_argument_begin|>")?.trim();
            let name = match id.rsplit_once(':') {
                Some((name, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => name,
                _ => id,
            };
            let name = self.declared_name(name)?;
            let Value::Object(arguments) = self.parse_json()? else { return None };
            self.skip("<|tool_call_end|>").then_some(())?;
            self.add(name, arguments)?;
        }
        if is_section { self.close_group("<|tool_calls_section_end|>", "\0") } else { Some(()) }
    }

    /// Parses DeepSeek's calls: JSON in a code block after the name or, in later models, right
    /// after it.
    fn parse_deepseek(&mut self) -> Option<()> {
        let is_section = self.skip("<｜tool▁calls▁begin｜>");
        while self.skip("<｜tool▁call▁begin｜>") {
            let mut name = self.take_until("<｜tool▁sep｜>")?;
            let is_plain = self.rest.trim_start().starts_with('{');
            if !is_plain {
                name = self.take_until("\n")?;
                self.skip("```json").then_some(())?;
            }
            let name = self.declared_name(name)?;
            let Value::Object(arguments) = self.parse_json()? else { return None };
            (is_plain || self.skip("```")).then_some(())?;
            self.skip("<｜tool▁call▁end｜>").then_some(())?;
            self.add(name, arguments)?;
        }
        if is_section { self.close_group("<｜tool▁calls▁end｜>", "\0") } else { Some(()) }
    }

    /// Parses Mistral's calls: a JSON list, or a name with arguments.
    fn parse_mistral(&mut self) -> Option<()> {
        if !self.rest.trim_start().starts_with(['{', '[']) {
            return self.parse_named(false);
        }
        self.parse_json_calls(false)
    }

    /// Parses `f[ARGS]{…}`.
    fn parse_named(&mut self, needs_mark: bool) -> Option<()> {
        let name = self.parse_name()?;
        if self.skip("[CALL_ID]") {
            let end = self.rest.find('[')?;
            self.rest = &self.rest[end..];
        }
        (self.skip("[ARGS]") || !needs_mark).then_some(())?;
        let Value::Object(arguments) = self.parse_json()? else { return None };
        self.add(name, arguments)
    }

    fn parse_python(&mut self) -> Option<()> {
        loop {
            self.parse_json_calls(false)?;
            if !self.skip(";") && !self.rest.trim_start().starts_with('{') {
                return Some(());
            }
        }
    }

    fn parse_bare(&mut self) -> Option<()> {
        self.parse_json_calls(true)?;
        if !self.rest.trim_start().is_empty() {
            self.skip(",");
        }
        Some(())
    }

    /// Skips white space and `what`. Returns false and skips nothing if it is not there.
    fn skip(&mut self, what: &str) -> bool {
        match self.rest.trim_start().strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Parses the closing tag of a group. Models omit it at the end of the text and before `next`.
    fn close_group(&mut self, tag: &str, next: &str) -> Option<()> {
        let rest = self.rest.trim_start();
        (self.skip(tag) || rest.is_empty() || rest.starts_with(next)).then_some(())
    }

    /// Parses the start of a tag and returns its namespace prefix.
    fn open_tag(&mut self, name: &str) -> Option<&'a str> {
        let tag = self.rest.trim_start().strip_prefix('<')?;
        let prefix = namespace_prefix(tag);
        self.rest = tag[prefix.len()..].strip_prefix(name)?;
        Some(prefix)
    }

    /// Returns the text before `what` and skips both.
    fn take_until(&mut self, what: &str) -> Option<&'a str> {
        let (before, after) = self.rest.split_once(what)?;
        self.rest = after;
        Some(before)
    }

    /// Parses a quoted value and returns it with the other attributes of the tag, up to its end.
    fn parse_quoted(&mut self) -> Option<(&'a str, &'a str)> {
        self.rest = self.rest.strip_prefix('"')?;
        Some((self.take_until("\"")?, self.take_until(">")?))
    }

    fn parse_name(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.len() - rest.trim_start_matches(is_in_name).len();
        let (name, rest) = rest.split_at(end);
        self.rest = rest;
        self.declared_name(name)
    }

    fn parse_json(&mut self) -> Option<Value> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        self.rest = &self.rest[values.byte_offset()..];
        Some(value)
    }

    /// The declared name that `name` refers to.
    fn declared_name(&self, name: &str) -> Option<&'a str> {
        let name = name.trim();
        let find = |name: &str| self.tools.iter().map(|(tool, _)| *tool).find(|tool| *tool == name);
        find(name).or_else(|| find(name.strip_prefix("functions.")?))
    }

    /// The value of a parameter: a string if the schema says so or if the text is no other JSON
    /// value.
    fn parameter_value(&self, tool: &str, key: &str, text: &str) -> Value {
        let rest = text.strip_prefix('\n').unwrap_or(text);
        let text = rest.strip_suffix('\n').unwrap_or(rest);
        let schema = self.tools.iter().find(|(name, _)| *name == tool).map(|(_, schema)| schema);
        let kind = schema.and_then(|schema| schema.get("properties")?.get(key)?.get("type"));
        match serde_json::from_str(text.trim()) {
            _ if kind.is_some_and(|kind| kind == "string") => Value::String(text.to_owned()),
            Ok(Value::String(_) | Value::Null) | Err(_) => Value::String(text.to_owned()),
            Ok(value) => value,
        }
    }

    fn add(&mut self, name: &str, arguments: ArgumentMap) -> Option<()> {
        let name = self.declared_name(name)?.to_owned();
        self.calls.push((name, Value::Object(arguments)));
        Some(())
    }

    /// Parses a call or a list of calls. Bare JSON must be an unambiguous call.
    fn parse_json_calls(&mut self, is_bare: bool) -> Option<()> {
        match self.parse_json()? {
            Value::Object(call) => self.add_object(call, is_bare),
            Value::Array(calls) if !calls.is_empty() => calls.into_iter().try_for_each(|item| {
                let Value::Object(call) = item else { return None };
                self.add_object(call, is_bare)
            }),
            _ => None,
        }
    }

    fn add_object(&mut self, mut call: ArgumentMap, is_bare: bool) -> Option<()> {
        if is_bare && !call.keys().all(|key| CALL_KEYS.contains(&key.as_str())) {
            return None;
        }
        let name = match call.get_mut("function").map(Value::take) {
            Some(Value::Object(function)) => return self.add_object(function, is_bare),
            Some(name) => name,
            None => call.get_mut("name")?.take(),
        };
        let key =
            ["arguments", "parameters", "args"].into_iter().find(|key| call.contains_key(*key));
        let arguments = match key.and_then(|key| call.get_mut(key)).map(Value::take) {
            None if is_bare => return None,
            None | Some(Value::Null) => ArgumentMap::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
            Some(_) => return None,
        };
        self.add(name.as_str()?, arguments)
    }
}
