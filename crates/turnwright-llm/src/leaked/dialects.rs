//! The ways in which models write calls, one method each. Only [`Reader::group`] puts back what
//! it could not understand.

use serde_json::{Map, Value};

use super::{Declared, LeakedCall};

type Fields = Map<String, Value>;

/// Keys of a call in JSON. With any other, bare JSON is something else.
const KEYS: [&str; 8] =
    ["name", "arguments", "parameters", "args", "id", "type", "function", "index"];

/// Reads calls one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    /// What has not been read.
    rest: &'a str,
    /// What has been read of whole groups, in bytes.
    done: usize,
    tools: &'a [Declared<'a>],
    /// The calls of whole groups.
    pub(super) calls: Vec<LeakedCall>,
}

/// Whether tools have this in their names.
pub(super) fn is_in_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | ':' | '/')
}

/// The prefix of a tag's name, with what parts them: `x:`, or DeepSeek's mark.
pub(super) fn prefix(tag: &str) -> &str {
    let mark = "｜DSML｜";
    if tag.starts_with(mark) {
        return &tag[..mark.len()];
    }
    let name = tag.len() - tag.trim_start_matches(|it: char| it.is_ascii_alphanumeric()).len();
    if tag[name..].starts_with(':') { &tag[..=name] } else { "" }
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, tools: &'a [Declared<'a>]) -> Reader<'a> {
        Reader { text, rest: text, done: 0, tools, calls: Vec::new() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        !self.calls.is_empty() && self.rest.trim_start().is_empty()
    }

    /// How many bytes whole groups have.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// One call or several that belong together.
    pub(super) fn group(&mut self) -> Option<()> {
        let (known, rest) = (self.calls.len(), self.rest);
        let result = self.any();
        if result.is_some() && self.calls.len() > known {
            self.done = self.text.len() - self.rest.len();
            return Some(());
        }
        self.calls.truncate(known);
        self.rest = rest;
        None
    }

    fn any(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start();
        if self.skip("<tool_call>") {
            return self.tagged();
        }
        match self.rest {
            it if it.starts_with("<function=") => self.function(),
            it if it.starts_with("<|tool_call") => self.kimi(),
            it if it.starts_with("<｜tool▁call") => self.deepseek(),
            it if it.starts_with('<') && !it.starts_with("<|") => self.xml(),
            _ if self.skip("<|python_tag|>") => self.python(),
            _ if self.skip("[TOOL_CALLS]") => self.mistral(),
            it if it.starts_with(['{', '[']) => self.bare(),
            _ => self.named(true),
        }
    }

    /// `f`'s call in JSON, as functions, as pairs of keys and values or as invocations, after
    /// its opening tag.
    fn tagged(&mut self) -> Option<()> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['{', '[']) {
            let value = self.json()?;
            self.add_json(value, false)?;
            return self.close("</tool_call>", "<tool_call>");
        }
        if self.rest.starts_with("<function=") {
            while self.rest.trim_start().starts_with("<function=") {
                self.function()?;
            }
            return self.close("</tool_call>", "<tool_call>");
        }
        if self.rest.starts_with('<') {
            self.invocations()?;
            return self.close("</tool_call>", "<tool_call>");
        }
        let end = self.rest.find(['\n', '<'])?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let name = self.declared(name)?;
        let mut arguments = Fields::new();
        while self.skip("<arg_key>") {
            let key = self.until("</arg_key>")?.trim();
            self.skip("<arg_value>").then_some(())?;
            let value = self.until("</arg_value>")?;
            arguments.insert(key.to_owned(), self.value(name, key, value));
        }
        self.skip("</tool_call>").then_some(())?;
        self.add(name, arguments)
    }

    /// `<function=f>` with parameters or with JSON, which may also follow `=` or the name.
    fn function(&mut self) -> Option<()> {
        self.skip("<function=").then_some(())?;
        let name = self.name()?;
        let json =
            self.rest.trim_start_matches(|it: char| it.is_whitespace() || "=>(".contains(it));
        if json.starts_with('{') {
            self.rest = json;
            let Value::Object(arguments) = self.json()? else { return None };
            self.rest = self.rest.trim_start_matches([')', '>']);
            let is_closed = self.skip("</function>") || self.skip("<function>");
            (is_closed || self.rest.trim_start().is_empty()).then_some(())?;
            return self.add(name, arguments);
        }
        self.skip(">").then_some(())?;
        let mut arguments = Fields::new();
        while self.skip("<parameter=") {
            let key = self.until(">")?.trim();
            let value = self.until("</parameter>")?;
            arguments.insert(key.to_owned(), self.value(name, key, value));
        }
        self.skip("</function>").then_some(())?;
        self.add(name, arguments)
    }

    /// Invocations with or without a tag around them, or JSON within one.
    fn xml(&mut self) -> Option<()> {
        let tag = prefix(&self.rest[1..]);
        let wrapper = ["tool_call", "tool_calls", "function_calls"]
            .into_iter()
            .find(|it| self.skip(&format!("<{tag}{it}>")));
        if self.rest.trim_start().starts_with(['{', '[']) {
            let value = self.json()?;
            self.add_json(value, false)?;
        } else {
            self.invocations()?;
        }
        match wrapper {
            Some(name) => self.close(&format!("</{tag}{name}>"), "\0"),
            None => Some(()),
        }
    }

    fn invocations(&mut self) -> Option<()> {
        let known = self.calls.len();
        while let Some(prefix) = self.open("invoke name=") {
            self.invocation(prefix)?;
        }
        (self.calls.len() > known).then_some(())
    }

    fn invocation(&mut self, prefix: &str) -> Option<()> {
        let (name, _) = self.quoted()?;
        let name = self.declared(name)?;
        let mut arguments = Fields::new();
        while self.skip(&format!("<{prefix}parameter name=")) {
            let (key, attributes) = self.quoted()?;
            let text = self.until(&format!("</{prefix}parameter>"))?;
            let value = if attributes.contains("string=\"true\"") {
                Value::String(text.to_owned())
            } else {
                self.value(name, key, text)
            };
            arguments.insert(key.to_owned(), value);
        }
        self.skip(&format!("</{prefix}invoke>")).then_some(())?;
        self.add(name, arguments)
    }

    /// Calls of the form `functions.f:0`.
    fn kimi(&mut self) -> Option<()> {
        let is_section = self.skip("<|tool_calls_section_begin|>");
        while self.skip("<|tool_call_begin|>") {
            let id = self.until("<|tool_call_argument_begin|>")?.trim();
            let name = match id.rsplit_once(':') {
                Some((name, count)) if count.bytes().all(|it| it.is_ascii_digit()) => name,
                _ => id,
            };
            let name = self.declared(name)?;
            let Value::Object(arguments) = self.json()? else { return None };
            self.skip("<|tool_call_end|>").then_some(())?;
            self.add(name, arguments)?;
        }
        if is_section { self.close("<|tool_calls_section_end|>", "\0") } else { Some(()) }
    }

    /// Calls with JSON in a code block after the name, or, in later models, right after it.
    fn deepseek(&mut self) -> Option<()> {
        let is_section = self.skip("<｜tool▁calls▁begin｜>");
        while self.skip("<｜tool▁call▁begin｜>") {
            let mut name = self.until("<｜tool▁sep｜>")?;
            let is_plain = self.rest.trim_start().starts_with('{');
            if !is_plain {
                name = self.until("\n")?;
                self.skip("```json").then_some(())?;
            }
            let name = self.declared(name)?;
            let Value::Object(arguments) = self.json()? else { return None };
            (is_plain || self.skip("```")).then_some(())?;
            self.skip("<｜tool▁call▁end｜>").then_some(())?;
            self.add(name, arguments)?;
        }
        if is_section { self.close("<｜tool▁calls▁end｜>", "\0") } else { Some(()) }
    }

    /// A list, or a name and arguments.
    fn mistral(&mut self) -> Option<()> {
        if !self.rest.trim_start().starts_with(['{', '[']) {
            return self.named(false);
        }
        let value = self.json()?;
        self.add_json(value, false)
    }

    /// `f[ARGS]{…}`.
    fn named(&mut self, needs_mark: bool) -> Option<()> {
        let name = self.name()?;
        if self.skip("[CALL_ID]") {
            let end = self.rest.find('[')?;
            self.rest = &self.rest[end..];
        }
        (self.skip("[ARGS]") || !needs_mark).then_some(())?;
        let Value::Object(arguments) = self.json()? else { return None };
        self.add(name, arguments)
    }

    fn python(&mut self) -> Option<()> {
        loop {
            let value = self.json()?;
            self.add_json(value, false)?;
            if !self.skip(";") && !self.rest.trim_start().starts_with('{') {
                return Some(());
            }
        }
    }

    fn bare(&mut self) -> Option<()> {
        let value = self.json()?;
        self.add_json(value, true)?;
        if !self.rest.trim_start().is_empty() {
            self.skip(",");
        }
        Some(())
    }

    /// Skips white space and this, if it is there.
    fn skip(&mut self, what: &str) -> bool {
        match self.rest.trim_start().strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The end of a group, which models forget at the end of the text and before `next`.
    fn close(&mut self, tag: &str, next: &str) -> Option<()> {
        let rest = self.rest.trim_start();
        (self.skip(tag) || rest.is_empty() || rest.starts_with(next)).then_some(())
    }

    /// Skips the beginning of a tag and gives its prefix.
    fn open(&mut self, name: &str) -> Option<&'a str> {
        let tag = self.rest.trim_start().strip_prefix('<')?;
        let prefix = prefix(tag);
        self.rest = tag[prefix.len()..].strip_prefix(name)?;
        Some(prefix)
    }

    /// What stands before this, which is skipped.
    fn until(&mut self, what: &str) -> Option<&'a str> {
        let (before, after) = self.rest.split_once(what)?;
        self.rest = after;
        Some(before)
    }

    /// A value in quotes, and what else the tag has, whose end is skipped.
    fn quoted(&mut self) -> Option<(&'a str, &'a str)> {
        self.rest = self.rest.strip_prefix('"')?;
        Some((self.until("\"")?, self.until(">")?))
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.len() - rest.trim_start_matches(is_in_name).len();
        let (name, rest) = rest.split_at(end);
        self.rest = rest;
        self.declared(name)
    }

    fn json(&mut self) -> Option<Value> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        self.rest = &self.rest[values.byte_offset()..];
        Some(value)
    }

    /// The name as it was declared, if it was.
    fn declared(&self, name: &str) -> Option<&'a str> {
        let name = name.trim();
        let tools = self.tools.iter().map(|(tool, _)| *tool);
        let find = |name: &str| tools.clone().find(|it| *it == name);
        find(name).or_else(|| find(name.strip_prefix("functions.")?))
    }

    /// What the text of a parameter means: a string where the schema says so and where it is no
    /// other value.
    fn value(&self, tool: &str, key: &str, text: &str) -> Value {
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let schema = self.tools.iter().find(|(name, _)| *name == tool).map(|(_, schema)| schema);
        let kind = schema.and_then(|it| it.get("properties")?.get(key)?.get("type"));
        match serde_json::from_str(text.trim()) {
            _ if kind.is_some_and(|it| it == "string") => Value::String(text.to_owned()),
            Ok(Value::String(_) | Value::Null) | Err(_) => Value::String(text.to_owned()),
            Ok(value) => value,
        }
    }

    fn add(&mut self, name: &str, arguments: Fields) -> Option<()> {
        let name = self.declared(name)?.to_owned();
        self.calls.push(LeakedCall { name, arguments: Value::Object(arguments) });
        Some(())
    }

    /// A call or a list of calls. Bare JSON has to be beyond doubt.
    fn add_json(&mut self, value: Value, is_bare: bool) -> Option<()> {
        match value {
            Value::Object(call) => self.add_object(call, is_bare),
            Value::Array(calls) if !calls.is_empty() => calls.into_iter().try_for_each(|it| {
                let Value::Object(call) = it else { return None };
                self.add_object(call, is_bare)
            }),
            _ => None,
        }
    }

    fn add_object(&mut self, mut call: Fields, is_bare: bool) -> Option<()> {
        if is_bare && !call.keys().all(|it| KEYS.contains(&it.as_str())) {
            return None;
        }
        let name = match call.get_mut("function").map(Value::take) {
            Some(Value::Object(function)) => return self.add_object(function, is_bare),
            Some(name) => name,
            None => call.get_mut("name")?.take(),
        };
        let key = ["arguments", "parameters", "args"].into_iter().find(|it| call.contains_key(*it));
        let arguments = key.and_then(|it| call.get_mut(it)).map(Value::take);
        let arguments = match arguments {
            None if is_bare => return None,
            None | Some(Value::Null) => Fields::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
            Some(_) => return None,
        };
        self.add(name.as_str()?, arguments)
    }
}
