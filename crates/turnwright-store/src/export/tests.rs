//! Exports a small session in each format, and a hostile one that must not become markup.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fragments::{TurnClock, short_duration};
use super::{DocumentWriter, ExportFormat, TimeSpent, document};
use crate::{
    Audience, CallOutcome, CallRow, CallStatus, Entry, SessionRow, StoredEntry, TurnKind, TurnRow,
};
use turnwright_types::effect::{CallContent, CallView, FileFate, ToolKind};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, PromptPart, ProviderState, UserMessage,
};
use turnwright_types::update::{PlanEntry, PlanPriority, PlanStatus};

/// The time this many milliseconds after the session began.
fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + millis)
}

fn session(text: &str) -> SessionRow {
    SessionRow {
        id: text.into(),
        cwd: text.into(),
        real_cwd: text.into(),
        additional_folders: vec![text.into()],
        title: Some(text.to_owned()),
        title_is_final: false,
        created_at: at(0),
        updated_at: at(9_000),
        is_archived: false,
        parent: None,
        helper_of: None,
        mode: None,
        model: Some(text.to_owned()),
        effort: None,
        last_id_number: 0,
        cost_usd: None,
    }
}

fn turn() -> TurnRow {
    TurnRow {
        number: 1,
        kind: TurnKind::Prompt,
        words: "w".to_owned(),
        started_at: at(0),
        ended_at: Some(at(10_000)),
        stop: Some("end_turn".to_owned()),
    }
}

fn call(text: &str, took: Option<u64>) -> CallRow {
    let content = vec![
        CallContent::Diff {
            path: text.into(),
            old: Some("old\n".to_owned()),
            new: text.to_owned(),
            fate: FileFate::Kept,
        },
        CallContent::Diff {
            path: text.into(),
            old: None,
            new: "x".to_owned(),
            fate: FileFate::Kept,
        },
        CallContent::Text("shown to the user alone".to_owned()),
        CallContent::Image(Media { mime: "image/png".to_owned(), data: "iVBORw==".to_owned() }),
    ];
    let settled = CallOutcome {
        is_success: true,
        tool: text.to_owned(),
        text: text.to_owned(),
        view: Some(CallView {
            title: text.to_owned(),
            kind: ToolKind::Edit,
            locations: Vec::new(),
        }),
        content,
        duration: took.map(Duration::from_millis),
        ..CallOutcome::default()
    };
    CallRow {
        call: text.into(),
        turn: 1,
        tool: text.to_owned(),
        arguments: Arguments::Object(json!({ "key": text })),
        status: CallStatus::Success,
        outcome: settled,
        requested_at: at(2_000),
        started_at: None,
        ended_at: Some(at(6_000)),
    }
}

/// A session with `text` in every place that holds data from outside.
fn entries(text: &str) -> Vec<StoredEntry> {
    let media = |mime: &str, data: &str| Media { mime: mime.to_owned(), data: data.to_owned() };
    let parts = vec![
        PromptPart::Text(text.to_owned()),
        PromptPart::Image(media(text, "AAAA")),
        PromptPart::Image(media("image/svg+xml", "AAAA")),
        PromptPart::Image(media("image/png", &format!("{text}\""))),
        PromptPart::Audio(media("audio/wav", "AAAA")),
        PromptPart::Link { name: text.to_owned(), uri: text.to_owned() },
        PromptPart::Resource { uri: text.to_owned(), text: text.to_owned() },
        PromptPart::Context("what only the model is told".to_owned()),
    ];
    let answer = AssistantMessage {
        id: "m2".into(),
        text: text.to_owned(),
        thought: text.to_owned(),
        calls: Vec::new(),
        interrupted: true,
        provider_state: ProviderState::default(),
    };
    let message = |id: &str, message| Entry::Message {
        id: id.into(),
        message: Arc::new(message),
        audience: Audience::Both,
    };
    let unusable = CallRow {
        arguments: Arguments::Unusable { text: text.to_owned(), reason: text.to_owned() },
        status: CallStatus::Error,
        ..call(text, None)
    };
    let view = CallView { title: text.to_owned(), kind: ToolKind::Other, locations: Vec::new() };
    let plan = |content: &str, status| PlanEntry {
        content: content.to_owned(),
        priority: PlanPriority::Medium,
        status,
    };
    let name = text.to_owned();
    let reason = text.to_owned();
    let entry_row =
        |seq, entry, calls| StoredEntry { seq, turn: 1, at: at(seq * 1_000), entry, calls };
    vec![
        entry_row(1, message("m1", Message::User(UserMessage::new(parts))), Vec::new()),
        entry_row(
            2,
            message("m2", Message::Assistant(answer)),
            vec![call(text, Some(3_000)), unusable],
        ),
        entry_row(3, Entry::IncompleteCall { call: text.into(), name, view, reason }, Vec::new()),
        entry_row(4, Entry::Note { id: "m3".into(), text: text.to_owned() }, Vec::new()),
        entry_row(5, Entry::Plan { entries: vec![plan("old", PlanStatus::Pending)] }, Vec::new()),
        entry_row(6, Entry::Plan { entries: vec![plan(text, PlanStatus::Completed)] }, Vec::new()),
        entry_row(7, Entry::Cleared, Vec::new()),
        entry_row(8, Entry::Unknown, Vec::new()),
    ]
}

fn exported(format: ExportFormat, text: &str) -> String {
    let mut out = Vec::new();
    let mut document = document(format, &mut out);
    let mut turn = turn();
    // A stop reason of a newer version.
    if text != "x" {
        turn.stop = Some(text.to_owned());
    }
    let mut writer = DocumentWriter {
        document: document.as_mut(),
        turns: vec![turn],
        last_plan: Some(6),
        current: None,
        clock: TurnClock::default(),
    };
    writer.document.begin(&session(text)).unwrap();
    for entry_row in entries(text) {
        writer.add(&entry_row).unwrap();
    }
    writer.end_turn().unwrap();
    document.end().unwrap();
    drop(document);
    String::from_utf8(out).unwrap()
}

/// Lists all tags in order. Panics if a tag is not closed where it has to be.
fn list_tags(page: &str) -> Vec<&str> {
    let tags: Vec<_> = page.split('<').skip(1).map(|tag| tag.split('>').next().unwrap()).collect();
    let mut open = Vec::new();
    for tag in &tags {
        let name = tag.split(' ').next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if ["!DOCTYPE", "meta", "img", "br", "hr"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, [""; 0]);
    tags
}

#[test]
fn a_session_as_markdown() {
    expect![[r#"
        # x

        Session `x` in `x` with `x`, started 2027-01-15T08:00:00Z.

        ## Turn 1 (prompt), 2027-01-15T08:00:00Z

        **User**

        x

        *`x` not shown*

        *`image/svg+xml` not shown*

        *`image/png` not shown*

        *`audio/wav` not shown*

        `x` (`x`)

        `x`

        ```
        x
        ```

        **Thoughts**

        > x

        **Agent**

        x

        *The answer was cut off.*

        ### `x` `x`: done, 3.0 s

        ```json
        {
          "key": "x"
        }
        ```

        `x`

        ```diff
        @@ -1 +1 @@
        -old
        +x
        \ No newline at end of file
        ```

        `x`

        ```diff
        @@ -0,0 +1 @@
        +x
        \ No newline at end of file
        ```

        ![image](data:image/png;base64,iVBORw==)

        Result:

        ```
        x
        ```

        ### `x` `x`: failed

        ```json
        x
        ```

        `x`

        ```diff
        @@ -1 +1 @@
        -old
        +x
        \ No newline at end of file
        ```

        `x`

        ```diff
        @@ -0,0 +1 @@
        +x
        \ No newline at end of file
        ```

        ![image](data:image/png;base64,iVBORw==)

        Result:

        ```
        x
        ```

        ### `x` `x`: incomplete

        ```
        x
        ```

        **Note**

        x

        **Plan**

        - [x] x

        *Context cleared: from here on, the model did not see anything above.*

        *Turn 1: done, after 10.0 s (model 6.0 s, tools 3.0 s, waiting 1.0 s).*

    "#]]
    .assert_eq(&exported(ExportFormat::Markdown, "x"));
}

#[test]
fn a_fence_is_longer_than_any_in_it() {
    let text = exported(ExportFormat::Markdown, "```\n````\n# x");
    assert!(text.contains("`````\n```\n````\n# x\n`````\n"), "{text}");
    assert!(text.starts_with("# ```\\n````\\n# x\n"), "a title is one line: {text}");
}

#[test]
fn no_escape_sequence_of_a_session_is_in_its_markdown() {
    let text = exported(ExportFormat::Markdown, "a\u{1b}[2J\u{9b}b\r\n\tc");
    assert!(text.contains("a␛[2J\u{fffd}b\n\tc"), "{text}");
    assert!(!text.contains(|char: char| char.is_control() && !"\n\t".contains(char)), "{text}");
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let page = exported(ExportFormat::Html, "x");
    for tag in list_tags(&page) {
        assert!(!tag.contains("http:") && !tag.contains("https:") && !tag.contains("//"), "{tag}");
        assert!(!tag.starts_with("script") && !tag.starts_with("link"), "{tag}");
        let source = tag.split("src=\"").nth(1);
        assert!(source.is_none_or(|source| source.starts_with("data:image/")), "{tag}");
    }
    assert!(!page.contains("@import") && !page.contains("url("), "the style needs nothing either");
    assert!(page.contains("data:image/png;base64,iVBORw=="));
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("<del>-old\n</del><ins>+x"), "{page}");
    assert!(page.contains("model 6.0 s, tools 3.0 s, waiting 1.0 s"), "{page}");
    assert!(page.contains(r#"<span class="model" style="width:60.00%">"#), "{page}");
    assert!(!page.contains("what only the model is told") && !page.contains("old</li>"));
}

#[test]
fn nothing_in_a_session_becomes_a_tag() {
    let plain = exported(ExportFormat::Html, "x");
    for hostile in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg/onload=alert(1)>",
        "</title></style></pre></details></section></body>",
        "<!-- ",
        "--><iframe src=//h>",
        "<![CDATA[",
        "javascript:alert(1)",
        "&lt;script&gt;&#60;b&#62;",
        "\" style=\"background:url(//h)",
        "\0<\0script>\u{1b}[2J",
        "\u{202e}<b>",
    ] {
        let page = exported(ExportFormat::Html, hostile);
        for tag in list_tags(&page) {
            assert!(is_ours(tag, &plain), "{hostile}: {tag}");
        }
        assert!(
            !page.contains(|character: char| character.is_control() && character != '\n'),
            "{hostile:?}"
        );
        assert!(!page.contains("&lt;script&gt;&#60;"), "an entity is text too");
    }
}

/// True for a tag of the page of a plain session, and for one that Markdown makes.
fn is_ours(tag: &str, plain: &str) -> bool {
    let of_markdown =
        "p h3 h4 h5 h6 blockquote pre ul ol li table thead th tr td em strong del code br hr";
    let is_link = tag.strip_prefix("a href=\"").and_then(|rest| rest.split_once('"')).is_some_and(
        |(target, rest)| {
            let schemes = ["http://", "https://", "mailto:"];
            rest == " rel=\"noopener noreferrer\""
                && schemes.iter().any(|scheme| target.starts_with(scheme))
        },
    );
    let name = tag.trim_start_matches('/');
    let is_list = tag.strip_prefix("ol start=\"").and_then(|rest| rest.strip_suffix('"'));
    is_link
        || list_tags(plain).contains(&tag)
        || tag == "/a"
        || of_markdown.split(' ').any(|word| word == name)
        || is_list.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn markdown_is_rendered_and_leads_only_where_a_browser_goes_safely() {
    for (text, expected) in [
        ("# One\n\n### Two", "<h3>One</h3>\n<h5>Two</h5>"),
        (
            "a **b** *c* `<d>` ~~e~~",
            "<p>a <strong>b</strong> <em>c</em> <code>&lt;d&gt;</code> <del>e</del></p>",
        ),
        ("```rust\nlet x = \"1\";\n```", "<pre><code>let x = &quot;1&quot;;\n</code></pre>"),
        ("- a\n- [x] b", "<ul><li>a</li>\n<li>☑ b</li>\n</ul>"),
        ("3. a\n4. b", "<ol start=\"3\"><li>a</li>\n<li>b</li>\n</ol>"),
        (
            "| a | b |\n|---|---|\n| 1 | <i> |",
            "<table><thead><tr><th>a</th><th>b</th></tr></thead>\n<tr><td>1</td><td>&lt;i&gt;</td></tr>\n</table>",
        ),
        ("> q\n\n---", "<blockquote><p>q</p>\n</blockquote>\n<hr>"),
        (
            "[x](https://h/?a=\"b\"&c)",
            "<a href=\"https://h/?a=&quot;b&quot;&amp;c\" rel=\"noopener noreferrer\">x</a>",
        ),
        ("[x](javascript:alert(1)) [y](src/a.rs)", "<p>x y</p>"),
        ("<javascript:alert(1)> [z](JavaScript:alert(1))", "<p>javascript:alert(1) z</p>"),
        ("![a picture](https://h/p.png)", "rel=\"noopener noreferrer\">a picture</a>"),
        ("<b>no</b>\n\n<div>\nno", "<p>&lt;b&gt;no&lt;/b&gt;</p>\n<p>&lt;div&gt;\nno</p>"),
    ] {
        let page = exported(ExportFormat::Html, text);
        assert!(page.contains(expected), "{text}: {page}");
    }
    let deep = exported(ExportFormat::Html, &"> ".repeat(2_000));
    assert!(deep.matches("<blockquote>").count() < 500, "a browser would not show so deep a page");
}

proptest! {
    #[test]
    fn no_text_whatever_becomes_a_tag(text in "[^\r]{1,30}|[<>\"'&/=a-c! #*`()|:\n-]{1,40}|\\[a\\]\\([a-z:/\"'<>\\\\ &]{1,30}\\)") {
        let page = exported(ExportFormat::Html, &text);
        let plain = exported(ExportFormat::Html, "x");
        for tag in list_tags(&page) {
            prop_assert!(is_ours(tag, &plain), "{}", tag);
        }
    }

    #[test]
    fn json_is_json_whatever_was_said(text in any::<String>()) {
        let value: Value = serde_json::from_str(&exported(ExportFormat::Json, &text)).unwrap();
        prop_assert_eq!(&value["session"]["title"], &json!(text));
        prop_assert_eq!(&value["entries"][2]["tool_calls"][0]["arguments"]["key"], &json!(text));
    }
}

#[test]
fn the_time_of_a_turn_goes_to_the_tools_the_waiting_and_the_model() {
    // When it was requested, started and ended, and how long it took, in seconds.
    type Call = (u64, Option<u64>, Option<u64>, Option<u64>);
    let table: &[(&[Call], [u64; 3])] = &[
        (&[], [0, 0, 10]),
        // It waited two seconds for permission and ran for three.
        (&[(1, Some(3), Some(6), Some(3))], [3, 2, 5]),
        // It was not allowed.
        (&[(1, None, Some(6), None)], [0, 5, 5]),
        // Time with two concurrent calls counts once, also if one of them still waits.
        (&[(1, Some(1), Some(5), Some(4)), (1, Some(3), Some(7), Some(4))], [6, 0, 4]),
        (&[(1, Some(1), Some(5), Some(4)), (1, Some(7), Some(8), Some(1))], [5, 2, 3]),
        // Its end is unknown.
        (&[(1, Some(1), None, None)], [0, 0, 10]),
        // The clock was set back.
        (&[(8, Some(5), Some(2), Some(90))], [0, 0, 10]),
        (&[(1, Some(2), Some(90), Some(80))], [0, 9, 1]),
    ];
    for (calls, expected) in table {
        let mut clock = TurnClock::default();
        let calls = calls.iter().map(|(asked, begun, ended, took)| CallRow {
            requested_at: at(asked * 1_000),
            started_at: begun.map(|seconds| at(seconds * 1_000)),
            ended_at: ended.map(|seconds| at(seconds * 1_000)),
            ..call("x", took.map(|seconds| seconds * 1_000))
        });
        let calls = calls.collect();
        clock.note(&StoredEntry { seq: 1, turn: 1, at: at(0), entry: Entry::Cleared, calls });
        let TimeSpent { tools, waiting, model } = clock.time_spent(&turn());
        assert_eq!([tools, waiting, model].map(|time| time.as_secs()), *expected);
    }
}

#[test]
fn the_time_until_the_user_answers_a_question_of_the_model_is_no_tool_time() {
    for tool in ["ask_user", "exit_plan"] {
        let mut clock = TurnClock::default();
        let question = CallRow {
            tool: tool.to_owned(),
            requested_at: at(1_000),
            started_at: Some(at(1_000)),
            ended_at: Some(at(8_000)),
            ..call("x", Some(7_000))
        };
        let entry = Entry::Cleared;
        let calls = vec![question];
        clock.note(&StoredEntry { seq: 1, turn: 1, at: at(0), entry, calls });
        let TimeSpent { tools, waiting, model } = clock.time_spent(&turn());
        assert_eq!([tools, waiting, model].map(|time| time.as_secs()), [0, 7, 3], "{tool}");
    }
}

#[test]
fn a_length_of_time_is_short() {
    for (millis, expected) in
        [(0, "0 ms"), (999, "999 ms"), (1_250, "1.2 s"), (59_999, "59.9 s"), (61_000, "1 min 1 s")]
    {
        assert_eq!(short_duration(Duration::from_millis(millis)), expected);
    }
}
