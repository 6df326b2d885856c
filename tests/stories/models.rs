//! Choosing models (R-CFG): what a session offers, what a change of it does, and that a provider
//! which does not say what it has holds up nobody.

use serde_json::{Value, json};

use crate::agent::{TestAgent, prompt};
use crate::provider::{
    List, Provider, ask_to_set, calls, choices, configured, currents, has_result, notices, open,
    says, set,
};

/// Two models of one provider, of which the second has an effort.
fn two(provider: &Provider) -> String {
    let second = "[providers.p.model.b]\nquirks = { effort = 'reasoning_effort' }";
    format!("model = 'p/a'\n{}", provider.section("p", &format!("models = ['a', 'b']\n{second}")))
}

fn updates(agent: &TestAgent, kind: &str) -> Vec<Value> {
    agent.updates().into_iter().filter(|it| it["sessionUpdate"] == kind).collect()
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("not an error: {answer}"))
}

#[test]
fn r_cfg_1_and_4_a_session_offers_its_model_first_and_each_current_value_is_a_choice() {
    let provider = Provider::of(&[]);
    for (model, expected) in [
        ("p/a", vec!["model=p/a", "mode=ask"]),
        ("p/b", vec!["model=p/b", "thought_level=default", "mode=ask"]),
        ("p/unlisted", vec!["model=p/unlisted", "mode=ask"]),
    ] {
        let mut agent = configured(&two(&provider)).variable("TURNWRIGHT_MODEL", model);
        agent = agent.capabilities(json!({}));
        let answer = open(&mut agent.initialize());
        let result = &answer["result"];
        assert_eq!(currents(result), expected);
        for option in result["configOptions"].as_array().unwrap() {
            let id = option["id"].as_str().unwrap();
            assert_eq!((&option["type"], &option["category"]), (&json!("select"), &json!(id)));
            let current = option["currentValue"].as_str().unwrap().to_owned();
            assert!(choices(result, id).contains(&current), "{option}");
        }
        assert!(choices(result, "model").contains(&"p/b".to_owned()), "{answer}");
        assert_eq!(result["modes"]["currentModeId"], "ask");
    }
    assert_eq!(provider.requests().len(), 0, "nobody has asked for anything");
}

#[test]
fn r_cfg_3_a_change_is_answered_with_all_options_and_told_once() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    for (setting, value, expected) in [
        ("model", "p/b", vec!["model=p/b", "thought_level=default", "mode=ask"]),
        ("thought_level", "high", vec!["model=p/b", "thought_level=high", "mode=ask"]),
        ("mode", "plan", vec!["model=p/b", "thought_level=high", "mode=plan"]),
    ] {
        let before = updates(&agent, "config_option_update").len();
        let answer = set(&mut agent, setting, value);
        assert_eq!(currents(&answer["result"]), expected);
        let told = updates(&agent, "config_option_update");
        assert_eq!(told.len(), before + 1, "{told:?}");
        assert_eq!(told[before]["configOptions"], answer["result"]["configOptions"]);
        // The same once more is no news.
        let again = set(&mut agent, setting, value);
        assert_eq!(again["result"], answer["result"]);
        assert_eq!(updates(&agent, "config_option_update").len(), before + 1);
    }
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(updates(&agent, "config_option_update").len(), 3, "a turn changes nothing");
    let body = &provider.asked()[0];
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("b"), &json!("high")));
}

#[test]
fn r_cfg_5_the_mode_and_its_option_are_in_step() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&two(&provider)).start();
    set(&mut agent, "mode", "plan");
    assert_eq!(updates(&agent, "current_mode_update")[0]["currentModeId"], "plan");
    let params = json!({ "sessionId": agent.session, "modeId": "ask" });
    assert!(agent.call("session/set_mode", &params)["result"].is_object());
    agent.sync();
    let told = updates(&agent, "config_option_update");
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(currents(&told[1]), ["model=p/a", "mode=ask"]);
    assert_eq!(updates(&agent, "current_mode_update").len(), 2);
}

#[test]
fn r_cfg_6_and_r_err_5_what_there_is_not_is_refused_and_changes_nothing() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    for (setting, value) in [
        ("speed", json!("high")),
        ("mode", json!("anything")),
        ("mode", json!(true)),
        ("model", json!("p/zzz")),
        ("model", json!("")),
        ("model", json!("nobody/a")),
        ("thought_level", json!("huge")),
        // This model has none.
        ("thought_level", json!("high")),
    ] {
        let sort = if value.is_boolean() { json!("boolean") } else { json!(null) };
        let mut params = json!({ "sessionId": agent.session, "configId": setting, "value": value });
        if !sort.is_null() {
            params["type"] = sort;
        }
        let answer = agent.call("session/set_config_option", &params);
        assert_eq!(code(&answer), -32602, "{params}: {answer}");
    }
    let params = json!({ "sessionId": "nobody", "configId": "mode", "value": "plan" });
    assert_eq!(code(&agent.call("session/set_config_option", &params)), -32002);
    assert_eq!(updates(&agent, "config_option_update"), [json!(null); 0]);
    assert_eq!(currents(&set(&mut agent, "mode", "ask")["result"]), ["model=p/a", "mode=ask"]);
}

#[test]
fn r_cfg_6_a_change_in_the_middle_of_a_turn_counts_from_the_next_request_on() {
    let provider = Provider::start(List::Of(vec!["a", "b"]), |body| {
        if has_result(body) {
            says("Done.")
        } else {
            calls("write_file", &json!({ "path": "x", "content": "" }))
        }
    });
    let mut agent = configured(&two(&provider)).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let answer = set(&mut agent, "model", "p/b");
    assert_eq!(currents(&answer["result"])[0], "model=p/b");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let models: Vec<_> = provider.asked().iter().map(|it| it["model"].clone()).collect();
    assert_eq!(models, ["a", "b"]);
}

#[test]
fn a_model_that_the_provider_does_not_have_is_refused_with_those_that_may_have_been_meant() {
    let provider = Provider::of(&["gpt-4o", "gpt-4o-mini", "gpt-5-mini", "whisper"]);
    let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let answer = set(&mut agent, "model", "p/gpt5-mini");
    assert_eq!(code(&answer), -32602);
    assert!(message(&answer).contains("`p/gpt5-mini`"), "{answer}");
    assert!(message(&answer).contains("did you mean p/gpt-5-mini"), "{answer}");
    assert!(!message(&answer).contains("whisper"), "{answer}");
    assert_eq!(
        currents(&set(&mut agent, "model", "p/gpt-5-mini")["result"])[0],
        "model=p/gpt-5-mini"
    );
}

#[test]
fn a_provider_that_cannot_list_its_models_is_believed() {
    let provider = Provider::start(List::Fails(404), |_| says("Hello."));
    let mut agent = configured(&two(&provider)).start();
    assert_eq!(currents(&set(&mut agent, "model", "p/new")["result"])[0], "model=p/new");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.asked()[0]["model"], "new");
}

#[test]
fn a_list_that_does_not_come_holds_up_neither_prompts_nor_cancels_nor_other_settings() {
    let slow = Provider::start(List::Hangs, |_| says("Slow."));
    let quick = Provider::start(List::Of(vec!["a"]), |body| {
        says(if body.to_string().contains("linger") { "…" } else { "Quick." })
    });
    let settings = format!(
        "model = 'quick/a'\n{}{}",
        quick.section("quick", "models = ['a']"),
        slow.section("slow", "")
    );
    let mut agent = configured(&settings).start();
    let change = ask_to_set(&mut agent, "model", "slow/x");
    slow.wait_for_listings(1);
    assert_eq!(agent.turn("hi"), "end_turn");
    let id = agent.prompt("linger");
    crate::agent::eventually("the request", || quick.asked().len() == 2);
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert_eq!(
        currents(&set(&mut agent, "mode", "plan")["result"]),
        ["model=quick/a", "mode=plan"]
    );
    assert!(agent.log.iter().all(|it| it["id"] != change), "it was answered too early");
    slow.lists(List::Of(vec!["x", "y"]));
    let answer = agent.answer_to(&change);
    assert_eq!(currents(&answer["result"]), ["model=slow/x", "mode=plan"]);
    assert_eq!(agent.turn("and now"), "end_turn");
    assert_eq!(slow.asked().len(), 1);
}

#[test]
fn of_two_changes_at_once_the_later_one_stays_and_both_are_answered() {
    let slow = Provider::start(List::Hangs, |_| says("Slow."));
    let quick = Provider::of(&["a", "b"]);
    let settings = format!(
        "model = 'quick/a'\n{}{}",
        quick.section("quick", "models = ['a', 'b']"),
        slow.section("slow", "")
    );
    let mut agent = configured(&settings).start();
    let first = ask_to_set(&mut agent, "model", "slow/x");
    slow.wait_for_listings(1);
    let second = ask_to_set(&mut agent, "model", "quick/b");
    let later = agent.answer_to(&second);
    assert_eq!(currents(&later["result"])[0], "model=quick/b");
    slow.lists(List::Of(vec!["x"]));
    let earlier = agent.answer_to(&first);
    assert_eq!(currents(&earlier["result"])[0], "model=quick/b");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(quick.asked().len(), 1);
}

#[test]
fn r_err_1_a_change_that_waits_for_a_list_is_answered_once_when_the_session_closes() {
    let slow = Provider::start(List::Hangs, |_| says("Slow."));
    let settings = format!("model = 'p/a'\n{}", slow.section("p", "models = ['a']"));
    let mut agent = configured(&settings).start();
    let change = ask_to_set(&mut agent, "model", "p/x");
    slow.wait_for_listings(1);
    agent.close();
    let answers: Vec<_> = agent.log.iter().filter(|it| it["id"] == change).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(code(answers[0]), -32800, "{answers:?}");
}

#[test]
fn with_list_models_off_nobody_is_asked() {
    let provider = Provider::of(&["a"]);
    let mut agent = configured(&format!("list_models = false\n{}", two(&provider))).start();
    assert_eq!(currents(&set(&mut agent, "model", "p/anything")["result"])[0], "model=p/anything");
    assert_eq!(agent.turn("/models"), "end_turn");
    let text = agent.text();
    assert!(text.contains("`p/anything` (in use)") && text.contains("`p/b`"), "{text}");
    assert!(text.contains("list_models"), "the user does not know why it is so short: {text}");
    assert_eq!(provider.requests().len(), 0);
}

#[test]
fn the_models_are_listed_by_a_command_asked_for_once_and_kept_for_the_next_process() {
    let provider = Provider::of(&["b", "a", "c"]);
    let settings = format!("model = 'p/a'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let expected = "* `p/a` (in use)\n* `p/b`\n* `p/c`\n";
    assert_eq!(agent.turn("/models"), "end_turn");
    assert_eq!(agent.text(), expected);
    assert_eq!(agent.turn("/models"), "end_turn");
    assert_eq!(agent.text(), expected.repeat(2));
    let told = updates(&agent, "config_option_update");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(choices(&told[0], "model"), ["p/a", "p/b", "p/c"]);
    let home = agent.home().to_owned();
    agent.close();
    assert_eq!(provider.listed(), 1);

    let mut next =
        TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home.to_str().unwrap()).initialize();
    let answer = open(&mut next);
    assert_eq!(choices(&answer["result"], "model"), ["p/a", "p/b", "p/c"]);
    assert_eq!(next.turn("/models"), "end_turn");
    assert_eq!(next.text(), expected);
    assert_eq!(provider.listed(), 1);
}

#[test]
fn the_command_can_be_cancelled_and_says_so_when_there_is_no_list() {
    let provider = Provider::start(List::Hangs, |_| says("Hello."));
    let mut agent = configured(&two(&provider)).start();
    let id = agent.prompt("/models");
    provider.wait_for_listings(1);
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    provider.lists(List::Fails(401));
    assert_eq!(agent.turn("/models"), "end_turn");
    assert!(agent.text().contains("could not be listed"), "{}", agent.text());
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(notices(&agent), "");
}

#[test]
fn a_model_that_came_after_the_list_was_made_can_be_chosen() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&two(&provider)).start();
    // Nothing is no list: it is not kept.
    assert_eq!(agent.turn("/models"), "end_turn");
    provider.lists(List::Of(vec!["a"]));
    assert_eq!(code(&set(&mut agent, "model", "p/new")), -32602);
    provider.lists(List::Of(vec!["a", "new"]));
    assert_eq!(currents(&set(&mut agent, "model", "p/new")["result"])[0], "model=p/new");
}

#[test]
fn a_server_with_two_names_has_its_models_under_both() {
    let provider = Provider::of(&["a", "b"]);
    let settings = format!(
        "model = 'one/a'\n{}{}",
        provider.section("one", "models = ['a']"),
        provider.section("two", "models = ['a']")
    );
    let mut agent = configured(&settings).start();
    assert_eq!(currents(&set(&mut agent, "model", "one/b")["result"])[0], "model=one/b");
    let answer = set(&mut agent, "model", "two/b");
    assert_eq!(currents(&answer["result"])[0], "model=two/b");
    assert_eq!(
        choices(&answer["result"], "model"),
        ["one/a", "two/a", "one/b", "two/b"],
        "{answer}"
    );
    assert_eq!(provider.listed(), 1);
}

#[test]
fn each_provider_gets_its_own_key_and_no_other() {
    let (one, two) = (Provider::of(&["a"]), Provider::of(&["b"]));
    let settings = format!(
        "model = 'one/a'\n{}{}",
        one.section("one", "key_env = 'ONE_SECRET'"),
        two.section("two", "key_env = 'TWO_SECRET'")
    );
    let mut agent = configured(&settings)
        .variable("ONE_SECRET", "sk-one-0123456789")
        .variable("TWO_SECRET", "sk-two-0123456789")
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.turn("/models"), "end_turn");
    assert_eq!(currents(&set(&mut agent, "model", "two/b")["result"])[0], "model=two/b");
    assert_eq!(agent.turn("hi"), "end_turn");
    for (provider, own, foreign) in [(&one, "sk-one-", "sk-two-"), (&two, "sk-two-", "sk-one-")] {
        assert_eq!((provider.asked().len(), provider.listed()), (1, 1));
        for request in provider.requests() {
            assert!(request.contains(&format!("Bearer {own}0123456789")), "{request}");
            assert!(!request.contains(foreign), "{request}");
        }
    }
}

#[test]
fn the_effort_goes_out_in_the_words_of_the_server() {
    let provider = Provider::of(&[]);
    for (dialect, effort, expected) in [
        ("reasoning_effort", "high", json!({ "reasoning_effort": "high" })),
        ("reasoning", "low", json!({ "reasoning": { "effort": "low" } })),
        ("thinking", "none", json!({ "thinking": { "type": "disabled" } })),
        ("enable_thinking", "medium", json!({ "enable_thinking": true })),
        ("reasoning_effort", "default", json!({ "reasoning_effort": null })),
    ] {
        let quirks = format!("models = ['a']\nquirks = {{ effort = '{dialect}' }}");
        let settings = format!("model = 'p/a'\n{}", provider.section("p", &quirks));
        let mut agent = configured(&settings).start();
        let answer = set(&mut agent, "thought_level", effort);
        assert_eq!(currents(&answer["result"])[1], format!("thought_level={effort}"));
        assert_eq!(agent.turn("hi"), "end_turn");
        let body = provider.asked().pop().unwrap();
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(body[field], *value, "{dialect} {effort}: {body}");
        }
    }
}

#[test]
fn a_model_without_effort_takes_the_option_away_and_one_with_it_brings_it_back() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).variable("TURNWRIGHT_MODEL", "p/b").start();
    set(&mut agent, "thought_level", "low");
    assert_eq!(currents(&set(&mut agent, "model", "p/a")["result"]), ["model=p/a", "mode=ask"]);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.asked()[0]["reasoning_effort"], json!(null));
    let answer = set(&mut agent, "model", "p/b");
    assert_eq!(currents(&answer["result"]), ["model=p/b", "thought_level=low", "mode=ask"]);
}

#[test]
fn settings_of_one_session_are_not_those_of_another() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    let other = agent.new_session();
    set(&mut agent, "model", "p/b");
    set(&mut agent, "thought_level", "high");
    let id = agent.request("session/prompt", &prompt(&other, "hi"));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let body = &provider.asked()[0];
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("a"), &json!(null)));
}
