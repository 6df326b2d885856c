//! The history of a session as other programs read it: from the table `tool_conversations`, and
//! with the request `_turnwright/history`.

use expect_test::expect;
use rusqlite::Connection;
use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Replaces the values that differ between runs by placeholders.
fn replace_varying_values(value: &mut Value, agent: &TestAgent) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match key.as_str() {
                    "created_at" => *field = json!(shape(field.as_str().unwrap())),
                    "duration" => assert!(field.is_number(), "{field}"),
                    _ => replace_varying_values(field, agent),
                }
                if key == "duration" {
                    *field = json!("…");
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| replace_varying_values(it, agent)),
        Value::String(text) if *text == agent.session => "SESSION".clone_into(text),
        _ => {}
    }
}

/// Replaces all digits of a time by zeros.
fn shape(time: &str) -> String {
    time.replace(|it: char| it.is_ascii_digit(), "0")
}

#[test]
fn the_history_of_a_session_has_the_format_of_the_seed() {
    let replies = json!([
        [cards::call("read_file", &json!({ "path": "notes.txt" }))],
        says("It says hello."),
    ]);
    let mut agent = TestAgent::builder().file("notes.txt", "hello\n").model(replies).start();
    assert_eq!(agent.turn("What does notes.txt say?"), "end_turn");
    let params = json!({ "sessionId": agent.session });
    let mut answer = agent.call("_turnwright/history", &params)["result"].clone();
    replace_varying_values(&mut answer, &agent);
    expect![[r#"
        {
          "sessionId": "SESSION",
          "messages": [
            {
              "id": "msg-1",
              "session_id": "SESSION",
              "role": "user",
              "content": "What does notes.txt say?",
              "created_at": "0000-00-00T00:00:00.000Z",
              "tool_calls": []
            },
            {
              "id": "msg-2",
              "session_id": "SESSION",
              "role": "assistant",
              "content": "",
              "created_at": "0000-00-00T00:00:00.000Z",
              "tool_calls": [
                {
                  "id": "call-3",
                  "name": "read_file",
                  "arguments": {
                    "path": "notes.txt"
                  },
                  "result": "[File: notes.txt | Lines: 1]\n    1| hello\n",
                  "error": null,
                  "status": "success",
                  "duration": "…",
                  "spawn_task": null
                }
              ]
            },
            {
              "id": "msg-4",
              "session_id": "SESSION",
              "role": "assistant",
              "content": "It says hello.",
              "created_at": "0000-00-00T00:00:00.000Z",
              "tool_calls": []
            }
          ]
        }
    "#]]
    .assert_eq(&format!("{answer:#}\n"));
}

#[test]
fn the_history_of_a_closed_session_is_paged_and_invalid_parameters_are_errors() {
    let replies = json!([says("one"), says("two"), says("three")]);
    let mut agent = TestAgent::builder().model(replies).start();
    for prompt in ["a", "b", "c"] {
        agent.turn(prompt);
    }
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    let mut params = json!({ "sessionId": session, "limit": 4, "_meta": { "x": 1 } });
    let mut pages = Vec::new();
    loop {
        let answer = agent.call("_turnwright/history", &params)["result"].clone();
        let messages = answer["messages"].as_array().unwrap().iter();
        let texts: Vec<_> = messages.map(|it| it["content"].as_str().unwrap().to_owned()).collect();
        pages.push(texts);
        if answer["nextCursor"].is_null() {
            break;
        }
        params["before"] = answer["nextCursor"].clone();
    }
    assert_eq!(pages, [vec!["b", "two", "c", "three"], vec!["a", "one"]]);
    for (key, value, code) in [
        ("sessionId", json!("nobody"), -32002),
        ("before", json!("junk"), -32602),
        ("limit", json!(0), -32602),
        ("limit", json!("many"), -32602),
    ] {
        let mut params = json!({ "sessionId": session });
        params[key] = value;
        let answer = agent.call("_turnwright/history", &params);
        assert_eq!(answer["error"]["code"], code, "{params} {answer}");
    }
}

#[test]
fn the_extension_is_advertised() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let methods = &answer["result"]["agentCapabilities"]["_meta"]["turnwright/methods"];
    assert_eq!(*methods, json!(["_turnwright/history", "_session/steering"]));
}

#[test]
fn another_program_can_read_every_call_from_the_table_tool_conversations() {
    let lines: Vec<_> = (0..600).map(|it| format!("line \"{it}\"\n")).collect();
    let text = lines.concat();
    let mut agent = TestAgent::builder().file("long.txt", &text).permission("allow_once").start();
    let mut call = |prompt: &str, name: &str, arguments: &Value| {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        assert_eq!(agent.turn(prompt), "end_turn");
    };
    let long = json!({ "path": "new.txt", "content": text });
    call("write it", "write_file", &long);
    call("read it", "read_file", &json!({ "path": "long.txt" }));
    call("read that", "read_file", &json!({ "path": "none.txt" }));
    let last = agent.model().requests().len() - 1;
    let results = cards::results(&agent, last);

    let database = Connection::open(agent.home().join("state/sessions.db")).unwrap();
    let mut find = database.prepare("SELECT * FROM tool_conversations ORDER BY id").unwrap();
    let columns = [
        "id",
        "session_id",
        "tool_name",
        "arguments",
        "result",
        "error",
        "duration_ms",
        "timestamp",
        "user_message",
        "message_id",
        "spawn_task",
    ];
    assert_eq!(find.column_names(), columns);
    let mut rows = find.query([]).unwrap();
    let mut count = 0;
    let expected = [
        ("write it", "write_file", long),
        ("read it", "read_file", json!({ "path": "long.txt" })),
        ("read that", "read_file", json!({ "path": "none.txt" })),
    ];
    while let Some(row) = rows.next().unwrap() {
        let (prompt, tool, arguments) = &expected[count];
        let text = |it: &str| row.get::<_, Option<String>>(it).unwrap();
        assert_eq!(text("session_id").unwrap(), agent.session);
        assert_eq!(
            (text("tool_name").as_deref(), text("user_message").as_deref()),
            (Some(*tool), Some(*prompt))
        );
        let kept: Value = serde_json::from_str(&text("arguments").unwrap()).unwrap();
        assert_eq!(kept, *arguments);
        let (result, error) = (text("result"), text("error"));
        let (full, none) = if count == 2 { (error, result) } else { (result, error) };
        assert_eq!((full.as_deref(), none), (Some(results[count].as_str()), None), "{prompt}");
        assert!(row.get::<_, f64>("duration_ms").unwrap() >= 0.0);
        assert_eq!(shape(&text("timestamp").unwrap()), "0000-00-00T00:00:00.000Z");
        assert!(text("message_id").unwrap().starts_with("msg-"));
        count += 1;
    }
    assert_eq!(count, 3);
    assert!(results[1].len() > 1_024, "the result must be long");
    let entries: i64 =
        database.query_row("SELECT count(*) FROM permissions", [], |it| it.get(0)).unwrap();
    assert!(entries > 0, "the permission request must be recorded");
}
