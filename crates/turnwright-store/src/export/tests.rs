//! A small session as each sort of document, and what a hostile one can do to the page: nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::time::{Clock, short};
use super::{Form, Spent, Writer, document};
use turnwright_types::effect::{CallView, Content, Kind};
use turnwright_types::message::{Arguments, AssistantMessage, Echo, Media, Message, Part, UserMessage};
use crate::{
    Audience, CallRow, CallStatus, Entry, SessionRow, Settled, Stored, TurnKind, TurnRow,
};
use turnwright_types::update::{PlanEntry, PlanStatus, Priority};

/// That many milliseconds after the session began.
fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + millis)
}

fn session(text: &str) -> SessionRow {
    SessionRow {
        id: text.into(),
        cwd: text.into(),
        real_cwd: text.into(),
        folders: vec![text.into()],
        title: Some(text.to_owned()),
        title_is_final: false,
        created: at(0),
        updated: at(9_000),
        archived: false,
        parent: None,
        mode: None,
        model: Some(text.to_owned()),
        effort: None,
        minted: 0,
        cost: None,
    }
}

fn turn() -> TurnRow {
    TurnRow {
        number: 1,
        kind: TurnKind::Prompt,
        words: "w".to_owned(),
        begun: at(0),
        ended: Some(at(10_000)),
        stop: Some("end_turn".to_owned()),
    }
}

fn call(text: &str, took: Option<u64>) -> CallRow {
    let content = vec![
        Content::Diff { path: text.into(), old: Some("old\n".to_owned()), new: text.to_owned() },
        Content::Diff { path: text.into(), old: None, new: "x".to_owned() },
        Content::Text("shown to the user alone".to_owned()),
        Content::Image(Media { mime: "image/png".to_owned(), data: "iVBORw==".to_owned() }),
    ];
    let settled = Settled {
        ok: true,
        tool: text.to_owned(),
        text: text.to_owned(),
        view: Some(CallView { title: text.to_owned(), kind: Kind::Edit, locations: Vec::new() }),
        content,
        took: took.map(Duration::from_millis),
        ..Settled::default()
    };
    CallRow {
        call: text.into(),
        turn: 1,
        tool: text.to_owned(),
        arguments: Arguments::Object(json!({ "key": text })),
        status: CallStatus::Success,
        settled,
        asked: at(2_000),
        begun: None,
        ended: Some(at(6_000)),
    }
}

/// A session in which `text` stands wherever something can stand that is not ours.
fn entries(text: &str) -> Vec<Stored> {
    let media = |mime: &str, data: &str| Media { mime: mime.to_owned(), data: data.to_owned() };
    let parts = vec![
        Part::Text(text.to_owned()),
        Part::Image(media(text, "AAAA")),
        Part::Image(media("image/svg+xml", "AAAA")),
        Part::Image(media("image/png", &format!("{text}\""))),
        Part::Audio(media("audio/wav", "AAAA")),
        Part::Link { name: text.to_owned(), uri: text.to_owned() },
        Part::Resource { uri: text.to_owned(), text: text.to_owned() },
        Part::Context("what only the model is told".to_owned()),
    ];
    let answer = AssistantMessage {
        id: "m2".into(),
        text: text.to_owned(),
        thought: text.to_owned(),
        calls: Vec::new(),
        interrupted: true,
        echo: Echo::default(),
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
    let view = CallView { title: text.to_owned(), kind: Kind::Other, locations: Vec::new() };
    let plan = |content: &str, status| PlanEntry {
        content: content.to_owned(),
        priority: Priority::Medium,
        status,
    };
    let (name, why) = (text.to_owned(), text.to_owned());
    let stored = |seq, entry, calls| Stored { seq, turn: 1, at: at(seq * 1_000), entry, calls };
    vec![
        stored(1, message("m1", Message::User(UserMessage { parts })), Vec::new()),
        stored(
            2,
            message("m2", Message::Assistant(answer)),
            vec![call(text, Some(3_000)), unusable],
        ),
        stored(3, Entry::Lost { call: text.into(), name, view, why }, Vec::new()),
        stored(4, Entry::Note { id: "m3".into(), text: text.to_owned() }, Vec::new()),
        stored(5, Entry::Plan { entries: vec![plan("old", PlanStatus::Pending)] }, Vec::new()),
        stored(6, Entry::Plan { entries: vec![plan(text, PlanStatus::Completed)] }, Vec::new()),
        stored(7, Entry::Cleared, Vec::new()),
        stored(8, Entry::Unknown, Vec::new()),
    ]
}

fn written(form: Form, text: &str) -> String {
    let mut out = Vec::new();
    let mut document = document(form, &mut out);
    let mut turn = turn();
    // A word of a newer program, say.
    if text != "x" {
        turn.stop = Some(text.to_owned());
    }
    let mut writer = Writer {
        document: document.as_mut(),
        turns: vec![turn],
        last_plan: Some(6),
        current: None,
        clock: Clock::default(),
    };
    writer.document.begin(&session(text)).unwrap();
    for stored in entries(text) {
        writer.add(&stored).unwrap();
    }
    writer.turn_over().unwrap();
    document.end().unwrap();
    drop(document);
    String::from_utf8(out).unwrap()
}

/// All tags in their order; panics unless each that has to be is closed in its turn.
fn tags(page: &str) -> Vec<&str> {
    let tags: Vec<_> = page.split('<').skip(1).map(|it| it.split('>').next().unwrap()).collect();
    let mut open = Vec::new();
    for tag in &tags {
        let name = tag.split(' ').next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if ["!DOCTYPE", "meta", "img"].contains(&name) => {}
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

        Session `x` in `x` with `x`, begun 2027-01-15T08:00:00Z.

        ## Turn 1 (prompt), 2027-01-15T08:00:00Z

        **User**

        x

        *`x` is not shown*

        *`image/svg+xml` is not shown*

        *`image/png` is not shown*

        *`audio/wav` is not shown*

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

        ![picture](data:image/png;base64,iVBORw==)

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

        ![picture](data:image/png;base64,iVBORw==)

        Result:

        ```
        x
        ```

        ### `x` `x`: never whole

        ```
        x
        ```

        **Note**

        x

        **Plan**

        - [x] x

        *From here on the model knew nothing of the above.*

        *Turn 1: done, after 10.0 s (model 6.0 s, tools 3.0 s, waiting 1.0 s).*

    "#]]
    .assert_eq(&written(Form::Markdown, "x"));
}

#[test]
fn a_fence_is_longer_than_any_in_it() {
    let text = written(Form::Markdown, "```\n````\n# x");
    assert!(text.contains("`````\n```\n````\n# x\n`````\n"), "{text}");
    assert!(text.starts_with("# ```\\n````\\n# x\n"), "a title is one line: {text}");
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let page = written(Form::Html, "x");
    for tag in tags(&page) {
        assert!(!tag.contains("http:") && !tag.contains("https:") && !tag.contains("//"), "{tag}");
        assert!(!tag.starts_with("script") && !tag.starts_with("link"), "{tag}");
        let source = tag.split("src=\"").nth(1);
        assert!(source.is_none_or(|it| it.starts_with("data:image/")), "{tag}");
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
    let plain = written(Form::Html, "x");
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
        let page = written(Form::Html, hostile);
        assert_eq!(tags(&page), tags(&plain), "{hostile}");
        assert!(!page.contains(|it: char| it.is_control() && it != '\n'), "{hostile:?}");
        assert!(!page.contains("&lt;script&gt;&#60;"), "an entity is text too");
    }
}

proptest! {
    #[test]
    fn no_text_whatever_becomes_a_tag(text in "[^\n\r]{1,30}|[<>\"'&/=a-c! -]{1,30}") {
        let page = written(Form::Html, &text);
        let plain = written(Form::Html, "x");
        prop_assert_eq!(tags(&page), tags(&plain));
    }

    #[test]
    fn json_is_json_whatever_was_said(text in any::<String>()) {
        let value: Value = serde_json::from_str(&written(Form::Json, &text)).unwrap();
        prop_assert_eq!(&value["session"]["title"], &json!(text));
        prop_assert_eq!(&value["entries"][2]["tool_calls"][0]["arguments"]["key"], &json!(text));
    }
}

#[test]
fn the_time_of_a_turn_goes_to_the_tools_the_waiting_and_the_model() {
    // Asked, begun, ended, how long it took.
    type Call = (u64, Option<u64>, Option<u64>, Option<u64>);
    let table: &[(&[Call], [u64; 3])] = &[
        (&[], [0, 0, 10]),
        // It waited two seconds for a yes and ran for three.
        (&[(1, Some(3), Some(6), Some(3))], [3, 2, 5]),
        // It was not allowed.
        (&[(1, None, Some(6), None)], [0, 5, 5]),
        // Two at a time count once, and one waits while the other runs.
        (&[(1, Some(1), Some(5), Some(4)), (1, Some(3), Some(7), Some(4))], [6, 0, 4]),
        (&[(1, Some(1), Some(5), Some(4)), (1, Some(7), Some(8), Some(1))], [5, 2, 3]),
        // It has no end.
        (&[(1, Some(1), None, None)], [0, 0, 10]),
        // Clocks go back.
        (&[(8, Some(5), Some(2), Some(90))], [0, 0, 10]),
        (&[(1, Some(2), Some(90), Some(80))], [0, 9, 1]),
    ];
    for (calls, expected) in table {
        let mut clock = Clock::default();
        let calls = calls.iter().map(|(asked, begun, ended, took)| CallRow {
            asked: at(asked * 1_000),
            begun: begun.map(|it| at(it * 1_000)),
            ended: ended.map(|it| at(it * 1_000)),
            ..call("x", took.map(|it| it * 1_000))
        });
        let calls = calls.collect();
        clock.note(&Stored { seq: 1, turn: 1, at: at(0), entry: Entry::Cleared, calls });
        let Spent { tools, waiting, model } = clock.spent(&turn());
        assert_eq!([tools, waiting, model].map(|it| it.as_secs()), *expected);
    }
}

#[test]
fn a_length_of_time_is_short() {
    for (millis, expected) in
        [(0, "0 ms"), (999, "999 ms"), (1_250, "1.2 s"), (59_999, "59.9 s"), (61_000, "1 min 1 s")]
    {
        assert_eq!(short(Duration::from_millis(millis)), expected);
    }
}
