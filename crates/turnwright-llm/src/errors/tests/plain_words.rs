//! Errors that only their words tell from others with the same status.

use serde_json::json;

use super::kind;
use crate::ErrorKind;

#[test]
fn a_request_that_openai_has_flagged_is_refused_whatever_status_a_gateway_makes_of_it() {
    let words = "Your request was flagged for possible cybersecurity risk and was not completed";
    let relayed = format!("litellm.InternalServerError: OpenAIException - {words}");
    for (status, error) in [
        (400, json!({ "code": "cyber_policy", "message": "No." })),
        (200, json!({ "code": "cyber_policy", "message": words })),
        (200, json!({ "code": "500", "type": null, "message": relayed })),
        (500, json!({ "code": "500", "type": null, "message": relayed })),
    ] {
        let body = json!({ "error": error }).to_string();
        assert_eq!(kind(status, &body), ErrorKind::Refused, "{body}");
    }
}

#[test]
fn an_overloaded_server_is_one_whatever_status_a_gateway_makes_of_it() {
    let message = "Our servers are currently overloaded. Please try again later.";
    for status in [200, 400, 403, 500, 503] {
        let body = json!({ "error": { "message": message, "code": null } }).to_string();
        assert_eq!(kind(status, &body), ErrorKind::Unavailable, "{status}");
    }
}

#[test]
fn a_plan_for_other_programs_says_nothing_against_the_key() {
    let message = "Kimi For Coding is currently only available for Coding Agents such as Kimi CLI";
    let error = json!({ "message": message, "type": "access_terminated_error" });
    assert_eq!(kind(403, &json!({ "error": error }).to_string()), ErrorKind::BadRequest);
}
