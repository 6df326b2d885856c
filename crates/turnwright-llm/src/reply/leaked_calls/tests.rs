//! Calls in each syntax, text that only looks like a call, and what is held back of both.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{LeakFilter, MAX_CALL_BYTES, find_leaked_calls, looks_like_leaked_call};

/// The position and the calls that are found in a text.
fn found(text: &str) -> Option<(usize, Vec<(String, Value)>)> {
    let none = json!({ "type": "object", "properties": {} });
    let read = json!({ "properties": {
        "path": { "type": "string" }, "text": { "type": "string" }, "line": { "type": "integer" } } });
    let tools = [("read", &read), ("a-b_c.d", &none), ("exec", &none)];
    find_leaked_calls(text, &tools)
}

fn calls(text: &str) -> Vec<(String, Value)> {
    found(text).map(|(_, calls)| calls).unwrap_or_default()
}

/// The call that all of the texts below contain.
fn expected() -> Vec<(String, Value)> {
    vec![("read".to_owned(), json!({ "path": "a b", "line": 3 }))]
}

const DIALECTS: [(&str, &str); 33] = [
    (
        "Hermes",
        r#"<tool_call>
{"name": "read", "arguments": {"path": "a b", "line": 3}}
</tool_call>"#,
    ),
    (
        "Hermes without the end",
        r#"<tool_call>{"name": "read", "arguments": {"path": "a b", "line": 3}}"#,
    ),
    (
        "Hermes, encoded twice",
        r#"<tool_call>{"name": "read", "arguments": "{\"path\": \"a b\", \"line\": 3}"}</tool_call>"#,
    ),
    (
        "a function within",
        r#"<tool_call>{"type": "function", "function": {"name": "read", "arguments": {"path": "a b", "line": 3}}}</tool_call>"#,
    ),
    (
        "Qwen coder",
        "<tool_call>
<function=read>
<parameter=path>
a b
</parameter>
<parameter=line>
3
</parameter>
</function>
</tool_call>",
    ),
    (
        "Qwen coder, bare",
        "<function=read><parameter=path>a b</parameter><parameter=line>3</parameter></function>",
    ),
    ("Groq", r#"<function=read={"path": "a b", "line": 3}</function>"#),
    ("Groq with a bracket", r#"<function=read>{"path": "a b", "line": 3}</function>"#),
    ("Groq without a sign", r#"<function=read{"path": "a b", "line": 3}></function>"#),
    ("Groq with the wrong end", r#"<function=read {"path": "a b", "line": 3}<function>"#),
    (
        "Kimi",
        r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"path": "a b", "line": 3}<|tool_call_end|><|tool_calls_section_end|>"#,
    ),
    (
        "Kimi without the section",
        r#"<|tool_call_begin|>read<|tool_call_argument_begin|> {"path": "a b", "line": 3} <|tool_call_end|>"#,
    ),
    (
        "Mistral, a list",
        r#"[TOOL_CALLS][{"name": "read", "arguments": {"path": "a b", "line": 3}}]"#,
    ),
    ("Mistral, a name", r#"[TOOL_CALLS]read[ARGS]{"path": "a b", "line": 3}</s>"#),
    (
        "Mistral, with an identifier",
        r#"[TOOL_CALLS]read[CALL_ID]abc123DEF[ARGS]{"path": "a b", "line": 3}"#,
    ),
    ("Mistral without the marks", r#"[TOOL_CALLS]read{"path": "a b", "line": 3}"#),
    ("Mistral without the first mark", r#"read[ARGS]{"path": "a b", "line": 3}"#),
    (
        "Llama",
        r#"<|python_tag|>{"name": "read", "parameters": {"path": "a b", "line": 3}}<|eom_id|>"#,
    ),
    ("JSON", r#"{"name": "read", "arguments": {"path": "a b", "line": 3}}"#),
    (
        "JSON in a list",
        r#"[
  {"name": "read", "parameters": {"path": "a b", "line": 3}}
]"#,
    ),
    (
        "invocations",
        r#"<function_calls>
<invoke name="read">
<parameter name="path">a b</parameter>
<parameter name="line">3</parameter>
</invoke>
</function_calls>"#,
    ),
    (
        "Qwen3-Coder without its opening tag (ollama#16686)",
        "<function=read>
<parameter=path>
a b
</parameter>
<parameter=line>
3
</parameter>
</function>
</tool_call>",
    ),
    (
        "one invocation",
        r#"<invoke name="read"><parameter name="path">a b</parameter><parameter name="line">3</parameter></invoke>"#,
    ),
    (
        "MiniMax",
        r#"<minimax:tool_call><invoke name="read"><parameter name="path">a b</parameter><parameter name="line">3</parameter></invoke></minimax:tool_call>"#,
    ),
    (
        "MiniMax without its opening tag (opencode#26296)",
        "<invoke name=\"read\">
<parameter name=\"path\">a b</parameter>
<parameter name=\"line\">3</parameter>
</invoke>
</minimax:tool_call>",
    ),
    (
        "MiniMax M3 (MiniMax-M3#31)",
        "]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name=\"read\">]<]minimax[>[<path>a b]<]minimax[>[</path>]<]minimax[>[<line>3]<]minimax[>[</line>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>",
    ),
    (
        "DSML",
        r#"<｜DSML｜function_calls>
<｜DSML｜invoke name="read">
<｜DSML｜parameter name="path" string="true">a b</｜DSML｜parameter>
<｜DSML｜parameter name="line" string="false">3</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>"#,
    ),
    (
        "DSML with two bars (cline#11339)",
        r#"<｜｜DSML｜｜tool_calls> <｜｜DSML｜｜invoke name="read"> <｜｜DSML｜｜parameter name="path" string="true">a b</｜｜DSML｜｜parameter> <｜｜DSML｜｜parameter name="line" string="false">3</｜｜DSML｜｜parameter> </｜｜DSML｜｜invoke> </｜｜DSML｜｜tool_calls>"#,
    ),
    (
        "DSML with spaces",
        r#"<｜｜DSML｜｜ calls>
<｜｜DSML｜｜ invoke name="read">
<｜｜DSML｜｜ parameter name="path" string="true">a b</｜｜DSML｜｜ parameter>
<｜｜DSML｜｜ parameter name="line" string="false">3</｜｜DSML｜｜ parameter>
</｜｜DSML｜｜ invoke>
</｜｜DSML｜｜ calls>"#,
    ),
    (
        "DSML in ASCII",
        r#"<|DSML|invoke name="read"><|DSML|parameter name="path" string="true">a b</|DSML|parameter><|DSML|parameter name="line" string="false">3</|DSML|parameter></|DSML|invoke>"#,
    ),
    (
        "DeepSeek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read
```json
{\"path\": \"a b\", \"line\": 3}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    (
        "DeepSeek, later",
        r#"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{"path": "a b", "line": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"#,
    ),
    (
        "GLM",
        "<tool_call>read
<arg_key>path</arg_key>
<arg_value>a b</arg_value>
<arg_key>line</arg_key>
<arg_value>3</arg_value>
</tool_call>",
    ),
];

#[test]
fn each_syntax_is_parsed() {
    for (name, text) in DIALECTS {
        assert_eq!(found(text), Some((0, expected())), "{name}");
        let before = format!("I will `look`:\n```sh\nls\n```\n\n{text}\n");
        let start = before.len() - text.len() - 1;
        assert_eq!(found(&before), Some((start, expected())), "{name} after words");
        assert!(looks_like_leaked_call(&before), "{name}");
    }
}

/// Kimi K3, Gemma 4 (llama.cpp#22786), LFM 2.5 (lmstudio-bug-tracker#1979), Nemotron, gpt-oss (lablup/mlxcel#654,
/// TensorRT-LLM#9256), gpt-5.3-codex (openai/codex#13114, opencode#15164), MiniCPM 5 (mlx-lm#1899) and Granite 3: the
/// model is asked for a real call.
#[test]
fn a_dialect_that_is_not_parsed_is_recognised() {
    for text in [
        "Let me look.<|open|>toolscall tool=\"read\" index=\"1\"<|sep|><|open|>argument key=\"path\" \
         type=\"string\"<|sep|>a b<|close|>argument<|sep|><|close|>call<|sep|><|close|>toolsmessage<|sep|>",
        "<|tool_call>call:read{path: \"a b\"}<tool_call|>",
        "I look.\n<|tool_call>call:read{path:<|\"|>a b<|\"|>}<tool_call|><turn|>",
        "<|tool_call_start|>[read(path=\"a b\")]<|tool_call_end|>",
        "<TOOLCALL>[{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}]</TOOLCALL>",
        "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"path\":\"a b\"}<|call|>",
        "<|channel|>analysis<|message|>We read.<|end|><|start|>assistant<|channel|>commentary \
         to=functions.read <|constrain|>json<|message|>{\"path\":\"a b\"}",
        "<|start|>assistant to=functions.read<|channel|>commentary json<|message|>{\"path\":\"a b\"}",
        "<|channel|>commentary<|message|>{\n  \"path\": \"a b\"\n}<|end|>",
        "assistant to=functions.read commentary json\n{\"path\":\"a b\"}",
        "I narrow it down. +#+#+#+#+#+assistant to=functions.read մեկնաբանություն \n{\"path\":\"a b\"}",
        "<function name=\"read\"><param name=\"path\">a b</param></function>",
        "<|tool_call|>[{\"name\": \"read\", \"arguments\": {\"path\": \"a b\"}}]",
    ] {
        assert!(calls(text).is_empty() && looks_like_leaked_call(text), "{text}");
    }
    assert!(!looks_like_leaked_call("Gemma writes `<|tool_call>` before a call."));
    assert!(!looks_like_leaked_call("It writes `<|open|>tools` and `<|sep|>` there."));
    assert!(!looks_like_leaked_call("```\nto=functions.read {}\n```\nis what it wrote: {}"));
    assert!(!looks_like_leaked_call("It wrote `to=functions.read {}`, then {}"));
}

#[test]
fn several_calls_are_parsed_in_order() {
    for (name, text) in DIALECTS {
        let first = super::without_end(text);
        let twice = format!("Both.\n{first}\n{text}");
        assert_eq!(calls(&twice), [expected(), expected()].concat(), "{name}");
    }
    for text in [
        r#"[{"name":"read","arguments":{}},{"name":"exec","arguments":{}}]"#,
        r#"<|python_tag|>{"name":"read","parameters":{}}; {"name":"exec","parameters":{}}"#,
        "[TOOL_CALLS]read[ARGS]{}[TOOL_CALLS]exec[ARGS]{}",
        r#"<function_calls><invoke name="read"></invoke><invoke name="exec"></invoke></function_calls>"#,
        r#"<tool_call>{"name":"read"}<tool_call>{"name":"exec"}</tool_call>"#,
    ] {
        let none = |name: &str| (name.to_owned(), json!({}));
        assert_eq!(calls(text), [none("read"), none("exec")], "{text}");
    }
}

#[test]
fn text_about_calls_is_not_a_call() {
    let call = r#"<tool_call>{"name": "read", "arguments": {}}</tool_call>"#;
    let marked = minimax_m3();
    for (name, text) in [
        ("a fence", format!("Like this:\n```xml\n{call}\n```")),
        ("marks in a fence", format!("Like this:\n```\n{marked}\n```")),
        ("marks in inline code", format!("Write `{marked}`")),
        ("words after marks", format!("{marked}\nThat is all.")),
        ("marks without a call", "M3 writes ]<]minimax[>[ before each tag.".into()),
        ("an open fence", format!("~~~~\n~~~\n{call}")),
        ("inline code", format!("Write `{call}`")),
        ("words after it", format!("{call}\nThat is all.")),
        ("an unknown tool", call.replace("read", "write")),
        ("an unknown one of several", format!("{call}{}", call.replace("read", "write"))),
        ("no whole JSON", call.replace("}}", "}")),
        ("no object", call.replace("{}}", "[1]}")),
        ("JSON that is data", r#"{"name": "read", "arguments": {}, "colour": 1}"#.into()),
        ("JSON without arguments", r#"{"name": "read"}"#.into()),
        ("JSON within a line", r#"It is {"name": "read", "arguments": {}}"#.into()),
        ("a list of words", "[1, 2]".into()),
        ("a parameter without an end", "<function=read><parameter=path>a</function>".into()),
        ("a mark", "[ARGS]{}".into()),
        ("nothing", String::new()),
    ] {
        assert_eq!(found(&text), None, "{name}");
    }
}

/// The call in the syntax of MiniMax M3.
fn minimax_m3() -> &'static str {
    DIALECTS.iter().find(|(name, _)| name.starts_with("MiniMax M3")).unwrap().1
}

#[test]
fn an_answer_that_mentions_the_marks_of_minimax_may_end_with_a_call() {
    let about = "M3 writes `]<]minimax[>[<invoke name=\"read\">` for a call.\n";
    for (name, call) in DIALECTS {
        let (start, calls) = found(&format!("{about}{call}")).expect(name);
        assert_eq!((start, calls), (about.len(), expected()), "{name}");
    }
}

#[test]
fn only_the_last_block_counts() {
    let call = r#"<tool_call>{"name": "read", "arguments": {}}</tool_call>"#;
    let text = format!("I use <tool_call> and\n{{\"a\": 1}}.\n{call}\nOr rather:\n");
    let (start, calls) = found(&format!("{text}{call}")).unwrap();
    assert_eq!((start, calls.len()), (text.len(), 1));
}

#[test]
fn parameters_are_typed_by_the_schema_or_by_their_text() {
    let parameter = |key: &str, value: &str| {
        let text = format!("<function=read><parameter={key}>{value}</parameter></function>");
        calls(&text)[0].1[key].clone()
    };
    for (key, text, value) in [
        ("text", "{\"a\":  1}", json!("{\"a\":  1}")),
        ("text", "12", json!("12")),
        ("text", "\n  two\nlines\n\n", json!("  two\nlines\n")),
        ("other", "12", json!(12)),
        ("other", " [1, 2]\n", json!([1, 2])),
        ("other", "true", json!(true)),
        ("other", "null", json!("null")),
        ("other", "\"quoted\"", json!("\"quoted\"")),
        ("other", "<b>&amp;", json!("<b>&amp;")),
    ] {
        assert_eq!(parameter(key, text), value, "{key} {text}");
    }
}

#[test]
fn tool_names_may_contain_punctuation() {
    for text in [
        "<function=a-b_c.d></function>",
        "a-b_c.d[ARGS]{}",
        "<tool_call>a-b_c.d</tool_call>",
        "<|tool_call_begin|>functions.a-b_c.d:12<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ] {
        assert_eq!(calls(text), [("a-b_c.d".to_owned(), json!({}))], "{text}");
    }
}

#[test]
fn failed_attempts_are_detected_and_text_about_calls_is_not() {
    for (text, expected) in [
        (r#"<tool_call>{"name": "read", "arguments": {"path": "a}</tool_call>"#, true),
        (r#"Now: <tool_call>{"name": read}</tool_call>"#, true),
        ("Reading.\n<tool_call>\n{\"name\": \"read\", \"argu", true),
        ("<function=read>\n<parameter=path>\na", true),
        ("<function_calls>\n<invoke name=\"unknown\">\n</invoke>\n</function_calls>", true),
        ("<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0", true),
        ("[TOOL_CALLS]read[ARGS]{\"path\": ", true),
        ("{\"name\": \"write\", \"arguments\": {\"a\": [\n{\n}]}}", true),
        ("Done.", false),
        ("", false),
        ("Use the <tool_call> tag for that.", false),
        ("A call is `<tool_call>{}</tool_call>`", false),
        ("```\n<tool_call>{}</tool_call>\n```", false),
        ("<tool_call>{}</tool_call>\n\nThat is how it looks.", false),
        ("It prints:\n{\"name\": \"x\", \"size\": 1}", false),
        ("<tool_call> is the tag that you want", false),
    ] {
        assert_eq!(looks_like_leaked_call(text), expected, "{text}");
    }
}

/// Complete and broken pieces of every syntax.
fn piece() -> impl Strategy<Value = String> {
    let whole = prop::sample::select(DIALECTS.map(|(_, text)| text).to_vec());
    let part = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "read",
        "=",
        ">",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        "<parameter=",
        "</parameter>",
        "</function>",
        "<invoke name=\"read\">",
        "</invoke>",
        "<x:",
        "<｜DSML｜",
        "<｜｜DSML｜｜ ",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "```",
        "```\n",
        "\n",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<|tool_call_begin|>",
        "functions.",
        "é",
        " ",
        "`",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "{}",
        "\"name\":\"read\"",
        "\"arguments\":{}",
        "</s>",
        ",",
        ";",
    ]);
    prop_oneof![
        6 => part.prop_map(str::to_owned),
        1 => whole.prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_only_declared_calls_at_the_end_are_found(
        pieces in prop::collection::vec(piece(), 0..24),
    ) {
        let text = pieces.concat();
        looks_like_leaked_call(&text);
        if let Some((start, calls)) = found(&text) {
            prop_assert!(text.is_char_boundary(start) && start < text.len());
            prop_assert!(!calls.is_empty());
            for (name, arguments) in &calls {
                prop_assert!(["read", "a-b_c.d", "exec"].contains(&name.as_str()));
                prop_assert!(arguments.is_object());
            }
            prop_assert_eq!(found(&text[start..]), Some((0, calls)));
        }
    }
}

#[test]
fn many_incomplete_calls_take_linear_time() {
    for unit in [
        "<tool_call>",
        "<tool_call>x<arg_key>",
        "<function=read><parameter=path>",
        "{\"name\":\n",
        "[[{\n",
        "[\n{",
        " {\"a\":\n",
        "read[ARGS]{\"a\":\"",
        "<invoke name=\"read\"><parameter name=\"a\">",
        "]<]minimax[>[<invoke name=\"read\"></invoke> and ",
        "<tool_call>{\"name\": \"read\"}</tool_call> and ",
    ] {
        let text = unit.repeat(10_000);
        assert_eq!(found(&text), None, "{unit}");
        looks_like_leaked_call(&text);
    }
}

/// Filters a text that comes in pieces. Returns the shown text and the number of calls that follow.
fn filtered(pieces: &[&str]) -> (String, usize) {
    let schema = json!({});
    let tools: [(&str, &Value); 1] = [("f", &schema)];
    let mut filter = LeakFilter::new(vec!["f".to_owned()]);
    let mut shown: String = pieces.iter().map(|piece| filter.push(piece).to_owned()).collect();
    let (rest, calls) = filter.finish(&tools);
    shown.push_str(rest);
    (shown, calls.len())
}

#[test]
fn calls_are_hidden_and_everything_else_is_shown() {
    let call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    let table = [
        (vec!["Let me look.\n", call], "Let me look.", 1),
        (vec!["a <tool", "_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"], "a", 1),
        (vec!["f[AR", "GS]{}"], "", 1),
        (vec!["a <｜｜DS", "ML｜｜invoke name=\"f\"></｜｜DSML｜｜invoke>"], "a", 1),
        (vec!["{\"name\":\"f\",", "\"arguments\":{}}"], "", 1),
        (vec!["f is a", " function"], "f is a function", 0),
        (vec!["a <b", "> c"], "a <b> c", 0),
        (vec!["<tool_call> is a tag."], "<tool_call> is a tag.", 0),
        (vec!["{\"a\": 1}", "\n"], "{\"a\": 1}\n", 0),
    ];
    for (pieces, shown, calls) in table {
        assert_eq!(filtered(&pieces), (shown.to_owned(), calls), "{pieces:?}");
    }
}

#[test]
fn a_reply_that_starts_with_a_link_is_shown_at_once() {
    for text in ["[README](README.md) says what it is.", "[x] Done.", "{ braces }"] {
        let mut filter = LeakFilter::new(vec!["f".to_owned()]);
        assert_eq!(filter.push(text), text);
    }
}

/// The white space is held back, because a call may follow. Searching it again for each piece
/// would take hours.
#[test]
fn long_white_space_is_searched_once() {
    for begin in ["", "a"] {
        let pieces = [begin].into_iter().chain(std::iter::repeat_n("    ", MAX_CALL_BYTES / 4 + 1));
        let pieces: Vec<&str> = pieces.collect();
        assert_eq!(filtered(&pieces), (pieces.concat(), 0));
    }
}

proptest! {
    #[test]
    fn how_the_stream_is_cut_does_not_matter(text in "([a-f <>\\[\\]{}\"\n]|<tool_call>|\\[ARGS\\]|é){0,40}", size in 1..9_usize) {
        let chars: Vec<char> = text.chars().collect();
        let pieces: Vec<String> = chars.chunks(size).map(|chunk| chunk.iter().collect()).collect();
        let borrowed: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(filtered(&borrowed), filtered(&[&text]));
    }
}
