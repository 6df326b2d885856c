//! Tests of the conversions between wire and domain: permission answers, capabilities, and errors.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::capabilities::{self, ClientCaps, LoginSupport};
use super::error::to_rpc;
use super::responder::Responder;
use super::user_question::permission_answer;
use crate::error::Error;
use turnwright_llm::LlmError;
use turnwright_rpc::{Outbox, RequestId};
use turnwright_types::client::{ChoiceKind, ElicitationModes, PermissionAnswer};

fn parsed(result: &Value) -> PermissionAnswer {
    let offered = [ChoiceKind::AllowOnce, ChoiceKind::RejectOnce];
    permission_answer(&to_raw_value(result).unwrap(), &offered)
}

#[test]
fn r_perm_6_only_the_exact_form_of_an_offered_choice_counts() {
    let selected = |id: Value| json!({ "outcome": { "outcome": "selected", "optionId": id } });
    assert_eq!(
        parsed(&selected(json!("allow_once"))),
        PermissionAnswer::Chosen(ChoiceKind::AllowOnce)
    );
    assert_eq!(
        parsed(&selected(json!("reject_once"))),
        PermissionAnswer::Chosen(ChoiceKind::RejectOnce)
    );
    assert_eq!(
        parsed(&json!({ "outcome": { "outcome": "cancelled" } })),
        PermissionAnswer::Cancelled
    );
    for unclear in [
        selected(json!("allow_always")),
        selected(json!("ALLOW_ONCE")),
        selected(json!(0)),
        selected(Value::Null),
        json!({ "outcome": { "outcome": "allowed", "optionId": "allow_once" } }),
        json!({ "outcome": { "optionId": "allow_once" } }),
        json!({ "outcome": "allow_once" }),
        json!({ "optionId": "allow_once" }),
        json!({}),
        json!("allow_once"),
        json!(true),
        json!([selected(json!("allow_once"))]),
        Value::Null,
    ] {
        assert!(matches!(parsed(&unclear), PermissionAnswer::Unclear(_)), "{unclear}");
    }
}

#[test]
fn a_client_may_have_a_word_of_its_own_for_a_rejection() {
    let rejected = |id: &str| json!({ "outcome": { "outcome": "rejected", "optionId": id } });
    assert_eq!(parsed(&rejected("reject_once")), PermissionAnswer::Chosen(ChoiceKind::RejectOnce));
    for id in ["allow_once", "reject_always", "reject", ""] {
        assert!(matches!(parsed(&rejected(id)), PermissionAnswer::Unclear(_)), "{id}");
    }
}

#[test]
fn a_client_may_leave_out_the_object_around_the_outcome() {
    let chosen = |word: &str, id: &str| parsed(&json!({ "outcome": word, "optionId": id }));
    for (id, kind) in
        [("allow_once", ChoiceKind::AllowOnce), ("reject_once", ChoiceKind::RejectOnce)]
    {
        assert_eq!(chosen("selected", id), PermissionAnswer::Chosen(kind));
    }
    assert_eq!(parsed(&json!({ "outcome": "cancelled" })), PermissionAnswer::Cancelled);
    for (word, id) in [
        ("selected", "allow_always"),
        ("selected", ""),
        ("rejected", "allow_once"),
        ("approved", "allow_once"),
        ("allow_once", "allow_once"),
    ] {
        assert!(matches!(chosen(word, id), PermissionAnswer::Unclear(_)), "{word} {id}");
    }
}

/// Returns the messages that `write` puts into an outbox.
fn written(write: impl FnOnce(&Outbox)) -> Vec<Value> {
    let (reader, writer) = std::io::pipe().unwrap();
    let outbox = Outbox::start(writer).unwrap();
    write(&outbox);
    outbox.close(Duration::from_secs(5));
    let lines = BufReader::new(reader).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

fn responder(id: RequestId, outbox: &Outbox) -> Responder<Value> {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Responder::new(id, "session/prompt", outbox.clone(), place)
}

#[test]
fn r_err_1_a_dropped_responder_answers_the_request() {
    let id = RequestId::parse(&to_raw_value("a").unwrap()).unwrap();
    let lines = written(|outbox| drop(responder(id, outbox)));
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["id"], &lines[0]["error"]["code"]), (&json!("a"), &json!(-32603)));
}

#[test]
fn r_err_1_an_answered_request_is_not_answered_again() {
    let id = RequestId::parse(&to_raw_value(&7).unwrap()).unwrap();
    let lines = written(|outbox| {
        responder(id, outbox).fail(&Error::Cancelled);
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["error"]["code"], -32800);
}

#[test]
fn capabilities_that_are_not_stated_are_not_offered() {
    let read = |params: Value| capabilities::read_client_caps(&params).unwrap();
    let none = ClientCaps::default();
    assert_eq!(read(json!({ "protocolVersion": 1 })), none);
    assert_eq!(read(json!({ "protocolVersion": 1, "clientCapabilities": "x" })), none);
    let full = json!({
        "fs": { "readTextFile": true, "writeTextFile": true },
        "auth": { "terminal": true },
        "session": { "notices": {}, "compaction": {}, "cursors": {}, "promptSuggestions": {} },
        "elicitation": { "form": {}, "url": {} },
        "terminal": true,
        "subagents": {},
        "plan": {},
        "_meta": { "terminal_output": true },
    });
    let all = ClientCaps {
        compactions: true,
        read: true,
        write: true,
        login: LoginSupport::Terminal,
        notices: true,
        cursors: true,
        plans: true,
        elicitation: ElicitationModes { form: true, url: true },
        terminal: cfg!(unix),
        terminal_output: true,
        subagents: true,
        suggestions: true,
        skills: false,
        names_answers: true,
    };
    let info = json!({ "name": "editor" });
    let params = json!({ "protocolVersion": 1, "clientInfo": info, "clientCapabilities": full });
    assert_eq!(read(params), all);
    // R-INIT-14: a newer client's files and terminals mean nothing to us.
    assert_eq!(read(json!({ "protocolVersion": 2, "clientCapabilities": full })), none);
    let newer = json!({ "protocolVersion": 2, "capabilities": { "auth": { "terminal": {} } } });
    assert_eq!(read(newer).login, LoginSupport::Terminal);
    let newer = json!({ "protocolVersion": 2, "capabilities": { "elicitation": { "form": {} } } });
    assert_eq!(read(newer).elicitation, ElicitationModes { form: true, url: false });
    // R-EL-1: a client may support elicitation without forms, and `{}` alone is none.
    let url_only = ElicitationModes { form: false, url: true };
    let table = [
        (json!({ "url": {} }), url_only),
        (json!({ "url": {}, "form": null }), url_only),
        (json!({}), ElicitationModes::default()),
        (json!({ "url": 3 }), ElicitationModes::default()),
    ];
    for (elicitation, modes) in table {
        let caps = json!({ "elicitation": elicitation });
        let read_v1 = read(json!({ "protocolVersion": 1, "clientCapabilities": caps }));
        assert_eq!(read_v1, ClientCaps { elicitation: modes, ..none }, "{caps}");
        let params = json!({ "protocolVersion": 2, "capabilities": caps });
        let read_v2 = capabilities::read_v2_client_caps(&params);
        assert_eq!(read_v2.elicitation, modes, "{caps}");
    }
    let meta = json!({ "_meta": { "terminal-auth": true } });
    let older = json!({ "protocolVersion": 1, "clientCapabilities": meta });
    assert_eq!(read(older).login, LoginSupport::Meta);
}

#[test]
fn a_capability_of_version_2_counts_only_in_its_place() {
    let session = json!({ "promptSuggestions": {}, "commands": { "skill": {} } });
    for (capabilities, expected) in [
        (json!({ "session": session }), [true, true]),
        (json!({ "session": { "promptSuggestions": {}, "commands": {} } }), [true, false]),
        (json!({ "session": { "promptSuggestions": null, "skill": {} } }), [false; 2]),
        (json!({ "session": { "promptSuggestions": true, "commands": ["skill"] } }), [false; 2]),
        (session, [false; 2]),
        (json!({ "session": [] }), [false; 2]),
    ] {
        let params = json!({ "protocolVersion": 2, "capabilities": capabilities });
        let caps = capabilities::read_v2_client_caps(&params);
        assert_eq!([caps.suggestions, caps.skills], expected, "{params}");
    }
}

#[test]
fn every_error_is_one_line_with_its_details_and_the_code_of_its_kind() {
    let host = || "api.example".to_owned();
    let status = |status, kind| {
        Error::Llm(LlmError::Status {
            host: host().into(),
            status,
            proxy: None,
            message: "two\nlines".to_owned(),
            retry_after: Some(Duration::from_secs(7)),
            kind,
            key_advice: None,
            failed_generation: None,
        })
    };
    let table = [
        (Error::InvalidParams("p".to_owned()), -32602),
        (Error::SessionNotFound("s".to_owned()), -32002),
        (Error::NoModelConfigured("m".to_owned()), -32000),
        (Error::InvalidState("b".to_owned()), -32600),
        (Error::Cancelled, -32800),
        (status(401, turnwright_llm::ErrorKind::Auth), -32000),
        (status(500, turnwright_llm::ErrorKind::Unavailable), -32603),
        (Error::Llm(LlmError::Truncated { host: host() }), -32603),
        (Error::Llm(LlmError::Config("s".to_owned())), -32000),
        (Error::Internal { place: "here" }, -32603),
    ];
    for (error, code) in table {
        let rpc = to_rpc(&error);
        assert_eq!(rpc.code, code, "{error}");
        assert!(!rpc.message.contains('\n') && !rpc.message.is_empty(), "{error}");
        let details = rpc.data.unwrap()["details"].clone();
        assert_ne!(details, rpc.message, "{error}: the details repeat the message");
    }
    let long = "word ".repeat(200);
    let rpc = to_rpc(&Error::InvalidState(long.clone()));
    assert!(rpc.message.ends_with('…') && rpc.message.len() < long.len());
    assert_eq!(rpc.data.unwrap()["details"], long, "the whole text is in the details");
    let data = to_rpc(&status(429, turnwright_llm::ErrorKind::RateLimit)).data.unwrap();
    assert_eq!(data["kind"], "rate_limit");
    assert_eq!(data["provider"], "api.example");
    assert_eq!(data["status"], 429);
    assert_eq!(data["retryAfter"], 7);
    let overflow = turnwright_llm::ErrorKind::ContextOverflow { limit: Some(4096), used: None };
    assert_eq!(to_rpc(&status(400, overflow)).data.unwrap()["contextWindow"], 4096);
}
