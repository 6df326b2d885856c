//! Choosing models (R-CFG): which options a session offers, and what a change of an option does. A
//! provider that does not answer the request for its models blocks nothing else.

use serde_json::{Value, json};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, prompt};
use crate::provider::{
    List, Provider, ask_to_set, calls, choices, configured, current_values, has_result, notices,
    open, says, set,
};

/// Returns settings with two models of one provider, of which the second supports an effort.
pub fn two(provider: &Provider) -> String {
    let second = "[providers.p.model.b]\nquirks = { effort = 'reasoning_effort' }";
    format!("model = 'p/a'\n{}", provider.section("p", &format!("models = ['a', 'b']\n{second}")))
}

#[test]
fn r_cfg_1_and_4_a_session_offers_its_model_and_each_current_value_is_a_choice() {
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
        assert_eq!(current_values(result), expected);
        for option in result["configOptions"].as_array().unwrap() {
            let id = option["id"].as_str().unwrap();
            assert_eq!((&option["type"], &option["category"]), (&json!("select"), &json!(id)));
            let current = option["currentValue"].as_str().unwrap().to_owned();
            assert!(choices(result, id).contains(&current), "{option}");
        }
        assert!(choices(result, "model").contains(&"p/b".to_owned()), "{answer}");
        assert_eq!(result["modes"]["currentModeId"], "ask");
    }
    assert_eq!(provider.requests().len(), 0, "opening a session must send nothing to the provider");
}

#[test]
fn r_cfg_3_a_change_is_answered_with_all_options_and_announced_once() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    for (setting, value, expected) in [
        ("model", "p/b", vec!["model=p/b", "thought_level=default", "mode=ask"]),
        ("thought_level", "high", vec!["model=p/b", "thought_level=high", "mode=ask"]),
        ("mode", "plan", vec!["model=p/b", "thought_level=high", "mode=plan"]),
    ] {
        let before = agent.updates_of("config_option_update").len();
        let answer = set(&mut agent, setting, value);
        assert_eq!(current_values(&answer["result"]), expected);
        let announced = agent.updates_of("config_option_update");
        assert_eq!(announced.len(), before + 1, "{announced:?}");
        assert_eq!(announced[before]["configOptions"], answer["result"]["configOptions"]);
        // Setting the same value again announces nothing.
        let again = set(&mut agent, setting, value);
        assert_eq!(again["result"], answer["result"]);
        assert_eq!(agent.updates_of("config_option_update").len(), before + 1);
    }
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(
        agent.updates_of("config_option_update").len(),
        3,
        "a turn must not change the options"
    );
    let body = &provider.chat_requests()[0];
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("b"), &json!("high")));
}

#[test]
fn r_cfg_5_the_mode_and_its_option_stay_consistent() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&two(&provider)).start();
    set(&mut agent, "mode", "plan");
    assert_eq!(agent.updates_of("current_mode_update")[0]["currentModeId"], "plan");
    let params = json!({ "sessionId": agent.session, "modeId": "ask" });
    assert!(agent.call("session/set_mode", &params)["result"].is_object());
    agent.sync();
    let announced = agent.updates_of("config_option_update");
    assert_eq!(announced.len(), 2, "{announced:?}");
    assert_eq!(current_values(&announced[1]), ["model=p/a", "mode=ask"]);
    assert_eq!(agent.updates_of("current_mode_update").len(), 2);
}

#[test]
fn r_cfg_6_and_r_err_5_an_unknown_option_or_value_is_refused_and_changes_nothing() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    for (setting, value) in [
        ("speed", json!("high")),
        ("mode", json!("anything")),
        ("mode", json!(true)),
        ("model", json!("")),
        ("model", json!("nobody/a")),
        ("thought_level", json!("huge")),
        // This model supports no effort.
        ("thought_level", json!("high")),
    ] {
        let kind = if value.is_boolean() { json!("boolean") } else { json!(null) };
        let mut params = json!({ "sessionId": agent.session, "configId": setting, "value": value });
        if !kind.is_null() {
            params["type"] = kind;
        }
        let answer = agent.call("session/set_config_option", &params);
        assert_eq!(code(&answer), -32602, "{params}: {answer}");
    }
    let params = json!({ "sessionId": "nobody", "configId": "mode", "value": "plan" });
    assert_eq!(code(&agent.call("session/set_config_option", &params)), -32002);
    assert_eq!(agent.updates_of("config_option_update"), [json!(null); 0]);
    assert_eq!(
        current_values(&set(&mut agent, "mode", "ask")["result"]),
        ["model=p/a", "mode=ask"]
    );
}

#[test]
fn the_older_method_for_the_model_sets_the_same_option() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    let params = json!({ "sessionId": agent.session, "modelId": "p/b" });
    assert_eq!(agent.call("session/set_model", &params)["result"], json!({}));
    let announced = agent.updates_of("config_option_update");
    assert_eq!(current_values(&announced[0])[0], "model=p/b");
    for (session, model, expected) in [("nobody", "p/a", -32002), ("", "nobody/a", -32602)] {
        let session = if session.is_empty() { &agent.session } else { session };
        let params = json!({ "sessionId": session, "modelId": model });
        assert_eq!(code(&agent.call("session/set_model", &params)), expected);
    }
}

#[test]
fn r_cfg_6_a_change_during_a_turn_applies_from_the_next_request_on() {
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
    assert_eq!(current_values(&answer["result"])[0], "model=p/b");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let models: Vec<_> = provider.chat_requests().iter().map(|it| it["model"].clone()).collect();
    assert_eq!(models, ["a", "b"]);
}

#[test]
fn a_model_that_is_not_listed_may_be_chosen_and_the_user_is_told_of_similar_names() {
    let provider = Provider::of(&["gpt-4o", "gpt-4o-mini", "gpt-5-mini", "whisper"]);
    let settings = format!("model = 'p/gpt-4o'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let answer = set(&mut agent, "model", "p/gpt5-mini");
    assert_eq!(current_values(&answer["result"])[0], "model=p/gpt5-mini");
    assert_eq!(notices(&agent), "", "a notice outside of a prompt is lost");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests()[0]["model"], "gpt5-mini");
    let doubt = "The provider does not list the model `p/gpt5-mini`. Did you mean p/gpt-5-mini";
    assert_eq!(notices(&agent).matches(doubt).count(), 1, "{}", notices(&agent));
    assert_eq!(agent.turn("/model p/nothing-like-it"), "end_turn");
    assert!(agent.text().contains("Model: `p/nothing-like-it`"), "{}", agent.text());
    let doubt = "does not list the model `p/nothing-like-it`. `/models` shows its list.";
    assert!(notices(&agent).contains(doubt), "{}", notices(&agent));
}

#[test]
fn the_models_of_any_server_are_listed_in_the_background_and_announced() {
    let provider = Provider::of(&["b", "a", "text-embedding-3"]);
    let settings = format!("model = 'p/a'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).initialize();
    let answer = open(&mut agent);
    assert_eq!(choices(&answer["result"], "model"), ["p/a"]);
    let announced = agent.wait_for_update("config_option_update");
    assert_eq!(choices(&announced, "model"), ["p/a", "p/b"]);
    // The next session finds the list.
    let answer = open(&mut agent);
    assert_eq!(choices(&answer["result"], "model"), ["p/a", "p/b"]);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.list_request_count(), 1);
}

/// hermes-agent#60827, nerve#56: the last ones in the alphabet could not be chosen.
#[test]
fn all_models_of_several_big_providers_are_offered() {
    let names: Vec<_> = (100..500).map(|number| format!("m{number}")).collect();
    let big = || Provider::start(List::Whole(json!(names)), |_| says("Hello."));
    let [first, second] = [big(), big()];
    let sections = first.section("p", "") + &second.section("q", "");
    let mut agent = configured(&format!("model = 'p/m100'\n{sections}")).initialize();
    open(&mut agent);
    agent.wait_for_update("config_option_update");
    let answer = set(&mut agent, "model", "q/m499");
    assert_eq!(choices(&answer["result"], "model").len(), 800);
    assert!(choices(&answer["result"], "model").contains(&"q/m499".to_owned()), "{answer}");
}

#[test]
fn a_server_without_a_list_is_asked_once_and_nobody_is_told() {
    let provider = Provider::start(List::Fails(404), |_| says("Hello."));
    let settings = format!("model = 'p/a'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    provider.wait_for_listings(1);
    for _ in 0..2 {
        assert_eq!(agent.turn("hi"), "end_turn");
        agent.session = agent.new_session();
    }
    assert_eq!(provider.list_request_count(), 1);
    assert_eq!(agent.updates_of("config_option_update"), [json!(null); 0]);
    assert_eq!(notices(&agent), "");
}

#[test]
fn an_old_list_is_offered_until_the_server_has_sent_a_new_one() {
    let provider = Provider::of(&["a", "new"]);
    let settings = format!("model = 'p/a'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("/models"), "end_turn");
    let home = agent.home().to_owned();
    agent.close();
    let folder = home.join("state/models");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut list: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    list["asked_at"] = json!(1_000_000);
    list["models"] = json!(["a", "old"]);
    std::fs::write(&file, list.to_string()).unwrap();

    let mut next =
        TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home.to_str().unwrap()).initialize();
    assert_eq!(choices(&open(&mut next)["result"], "model"), ["p/a", "p/old"]);
    let announced = next.wait_for_update("config_option_update");
    assert_eq!(choices(&announced, "model"), ["p/a", "p/new"]);
}

#[test]
fn without_a_list_of_models_every_model_is_accepted() {
    let provider = Provider::start(List::Fails(404), |_| says("Hello."));
    let mut agent = configured(&two(&provider)).start();
    assert_eq!(current_values(&set(&mut agent, "model", "p/new")["result"])[0], "model=p/new");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests()[0]["model"], "new");
}

#[test]
fn a_list_that_does_not_come_blocks_neither_prompts_nor_cancels_nor_other_settings() {
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
    crate::agent::eventually("the request", || quick.chat_requests().len() == 2);
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert_eq!(
        current_values(&set(&mut agent, "mode", "plan")["result"]),
        ["model=quick/a", "mode=plan"]
    );
    assert!(
        agent.log.iter().all(|it| it["id"] != change),
        "the change was answered before the list came"
    );
    slow.lists(List::Of(vec!["x", "y"]));
    let answer = agent.answer_to(&change);
    assert_eq!(current_values(&answer["result"]), ["model=slow/x", "mode=plan"]);
    assert_eq!(agent.turn("and now"), "end_turn");
    assert_eq!(slow.chat_requests().len(), 1);
}

#[test]
fn of_two_concurrent_changes_the_later_one_wins_and_both_are_answered() {
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
    assert_eq!(current_values(&later["result"])[0], "model=quick/b");
    slow.lists(List::Of(vec!["x"]));
    let earlier = agent.answer_to(&first);
    assert_eq!(current_values(&earlier["result"])[0], "model=quick/b");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(quick.chat_requests().len(), 1);
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
fn with_list_models_off_no_list_is_requested() {
    let provider = Provider::of(&["a"]);
    let mut agent = configured(&format!("list_models = false\n{}", two(&provider))).start();
    assert_eq!(
        current_values(&set(&mut agent, "model", "p/anything")["result"])[0],
        "model=p/anything"
    );
    assert_eq!(agent.turn("/models"), "end_turn");
    let text = agent.text();
    assert!(text.contains("`p/anything` (in use)") && text.contains("`p/b`"), "{text}");
    assert!(text.contains("list_models"), "the text does not say why the list is short: {text}");
    assert_eq!(provider.requests().len(), 0);
}

#[test]
fn the_list_of_models_is_requested_once_and_kept_for_the_next_process() {
    let provider = Provider::of(&["b", "a", "c"]);
    let settings = format!("model = 'p/a'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    let expected = "* `p/a` (in use)\n* `p/b`\n* `p/c`\n";
    // The agent asks unasked soon after the start, on a slow machine before the command.
    agent.wait_for_update("config_option_update");
    assert_eq!(agent.turn("/models"), "end_turn");
    assert_eq!(agent.text(), expected);
    assert_eq!(agent.turn("/models"), "end_turn");
    assert_eq!(agent.text(), expected.repeat(2));
    let announced = agent.updates_of("config_option_update");
    assert_eq!(announced.len(), 1, "{announced:?}");
    assert_eq!(choices(&announced[0], "model"), ["p/a", "p/b", "p/c"]);
    let home = agent.home().to_owned();
    agent.close();
    assert_eq!(provider.list_request_count(), 1);

    let mut next =
        TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home.to_str().unwrap()).initialize();
    let answer = open(&mut next);
    assert_eq!(choices(&answer["result"], "model"), ["p/a", "p/b", "p/c"]);
    assert_eq!(next.turn("/models"), "end_turn");
    assert_eq!(next.text(), expected);
    assert_eq!(provider.list_request_count(), 1);
}

#[test]
fn the_models_command_can_be_cancelled_and_reports_a_failed_request() {
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
fn a_model_that_was_added_after_the_list_was_requested_can_be_chosen() {
    let provider = Provider::of(&[]);
    let mut agent = configured(&two(&provider)).start();
    // An empty list is not kept.
    assert_eq!(agent.turn("/models"), "end_turn");
    provider.lists(List::Of(vec!["a", "new"]));
    assert_eq!(current_values(&set(&mut agent, "model", "p/new")["result"])[0], "model=p/new");
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(notices(&agent), "");
}

#[test]
fn a_server_with_two_names_offers_its_models_under_both() {
    let provider = Provider::of(&["a", "b"]);
    let settings = format!(
        "model = 'one/a'\n{}{}",
        provider.section("one", "models = ['a']"),
        provider.section("two", "models = ['a']")
    );
    let mut agent = configured(&settings).start();
    // The agent asks unasked; the choice of a model asks once more if that has not been answered yet.
    provider.wait_for_listings(1);
    assert_eq!(current_values(&set(&mut agent, "model", "one/b")["result"])[0], "model=one/b");
    let asked = provider.list_request_count();
    let answer = set(&mut agent, "model", "two/b");
    assert_eq!(current_values(&answer["result"])[0], "model=two/b");
    assert_eq!(
        choices(&answer["result"], "model"),
        ["one/a", "two/a", "one/b", "two/b"],
        "{answer}"
    );
    assert_eq!(provider.list_request_count(), asked);
}

#[test]
fn each_provider_gets_only_its_own_key() {
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
    assert_eq!(current_values(&set(&mut agent, "model", "two/b")["result"])[0], "model=two/b");
    assert_eq!(agent.turn("hi"), "end_turn");
    for (provider, own, foreign) in [(&one, "sk-one-", "sk-two-"), (&two, "sk-two-", "sk-one-")] {
        assert_eq!(provider.chat_requests().len(), 1);
        assert!(provider.list_request_count() >= 1);
        for request in provider.requests() {
            assert!(request.contains(&format!("Bearer {own}0123456789")), "{request}");
            assert!(!request.contains(foreign), "{request}");
        }
    }
}

#[test]
fn the_effort_is_sent_in_the_form_that_the_server_expects() {
    let provider = Provider::of(&[]);
    for (dialect, effort, expected) in [
        ("reasoning_effort", "high", json!({ "reasoning_effort": "high" })),
        ("reasoning_effort", "xhigh", json!({ "reasoning_effort": "xhigh" })),
        ("reasoning", "low", json!({ "reasoning": { "effort": "low" } })),
        ("thinking", "none", json!({ "thinking": { "type": "disabled" } })),
        ("enable_thinking", "medium", json!({ "enable_thinking": true })),
        ("enable_levels", "low", json!({ "enable_thinking": true, "reasoning_effort": "low" })),
        ("thinking_levels", "none", json!({ "thinking": { "type": "disabled" } })),
        ("reasoning_effort", "default", json!({ "reasoning_effort": null })),
    ] {
        let quirks = format!("models = ['a']\nquirks = {{ effort = '{dialect}' }}");
        let settings = format!("model = 'p/a'\n{}", provider.section("p", &quirks));
        let mut agent = configured(&settings).start();
        let answer = set(&mut agent, "thought_level", effort);
        assert_eq!(current_values(&answer["result"])[1], format!("thought_level={effort}"));
        assert_eq!(agent.turn("hi"), "end_turn");
        let body = provider.chat_requests().pop().unwrap();
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(body[field], *value, "{dialect} {effort}: {body}");
        }
    }
}

#[test]
fn a_client_may_name_the_effort_and_its_levels_as_other_agents_do() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).variable("TURNWRIGHT_MODEL", "p/b").start();
    for (name, level, expected) in [
        ("effort", "max", "xhigh"),
        ("reasoning_effort", "minimal", "low"),
        ("thinkingEffort", "off", "none"),
        ("thought_level", "auto", "default"),
    ] {
        let answer = set(&mut agent, name, level);
        let values = current_values(&answer["result"]);
        assert_eq!(values[1], format!("thought_level={expected}"), "{name} {level}");
    }
}

#[test]
fn a_client_may_call_the_model_with_which_sessions_begin_default() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    for (name, expected) in [("p/b", "model=p/b"), ("default", "model=p/a")] {
        let answer = set(&mut agent, "model", name);
        assert_eq!(current_values(&answer["result"])[0], expected, "{answer}");
    }
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests()[0]["model"], "a");
    assert!(!notices(&agent).contains("does not list"), "{}", notices(&agent));
}

#[test]
fn a_model_that_its_server_really_calls_default_can_be_chosen() {
    let provider = Provider::of(&["a", "default"]);
    let mut agent = configured("model = 'a'")
        .variable("OPENAI_BASE_URL", &provider.base_url())
        .variable("OPENAI_API_KEY", "sk-of-nobody")
        .initialize();
    open(&mut agent);
    agent.wait_for_update("config_option_update");
    let answer = set(&mut agent, "model", "default");
    assert_eq!(current_values(&answer["result"])[0], "model=default", "{answer}");
}

#[test]
fn an_endpoint_that_takes_any_name_gets_neither_default_nor_an_empty_one() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured("model = 'a'")
        .variable("OPENAI_BASE_URL", &provider.base_url())
        .variable("OPENAI_API_KEY", "sk-of-nobody")
        .start();
    for (name, expected) in [("b", "model=b"), ("default", "model=a")] {
        let answer = set(&mut agent, "model", name);
        assert_eq!(current_values(&answer["result"])[0], expected, "{answer}");
    }
    assert_eq!(code(&set(&mut agent, "model", " ")), -32602);
}

#[test]
fn the_effort_option_is_offered_only_for_a_model_that_supports_it() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).variable("TURNWRIGHT_MODEL", "p/b").start();
    set(&mut agent, "thought_level", "low");
    assert_eq!(
        current_values(&set(&mut agent, "model", "p/a")["result"]),
        ["model=p/a", "mode=ask"]
    );
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests()[0]["reasoning_effort"], json!(null));
    let answer = set(&mut agent, "model", "p/b");
    assert_eq!(current_values(&answer["result"]), ["model=p/b", "thought_level=low", "mode=ask"]);
}

#[test]
fn the_settings_of_a_session_do_not_apply_to_another_one() {
    let provider = Provider::of(&["a", "b"]);
    let mut agent = configured(&two(&provider)).start();
    let other = agent.new_session();
    set(&mut agent, "model", "p/b");
    set(&mut agent, "thought_level", "high");
    let id = agent.request("session/prompt", &prompt(&other, "hi"));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let body = &provider.chat_requests()[0];
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("a"), &json!(null)));
}
