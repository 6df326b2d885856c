//! The date that the model is told: that of the user's clock, and once more when it has changed.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::agent::{TestAgent, says};

/// Zones so far apart that it is never the same day in both, with the hours that they are ahead of UTC or
/// behind it.
const EARLIEST: (&str, u64) = ("ZZZ-14", 14);
const LATEST: (&str, u64) = ("ZZZ12", 12);

/// The line about the date at this time, such as `Date: Sat, 28 Nov 2026`.
fn line(time: SystemTime) -> String {
    format!("Date: {}", &httpdate::fmt_http_date(time)[..16])
}

/// The lines about the date in a request, as JSON escapes them.
fn dates(request: &Value) -> Vec<String> {
    let text = request["messages"].to_string();
    let lines = text.split(r"\n").filter(|it| it.starts_with("Date: "));
    lines.map(str::to_owned).collect()
}

fn last_request(agent: &TestAgent) -> Value {
    agent.model().requests().pop().unwrap().body
}

#[test]
#[cfg_attr(windows, ignore = "the zone is no variable there")]
fn the_model_is_told_the_local_date_and_once_that_it_has_changed() {
    let hours = |it: u64| Duration::from_secs(it * 3_600);
    let mut first =
        TestAgent::builder().model(json!(vec![says("Yes."); 9])).variable("TZ", LATEST.0).start();
    let before = SystemTime::now();
    assert_eq!(first.turn("one"), "end_turn");
    let told = dates(&last_request(&first));
    let possible = [before, SystemTime::now()].map(|it| line(it - hours(LATEST.1)));
    assert!(told.len() == 1 && possible.contains(&told[0]), "{told:?} {possible:?}");
    assert_eq!(first.turn("two"), "end_turn");
    assert_eq!(dates(&last_request(&first)), told, "it has not changed");
    let sent = last_request(&first);
    first.close();
    let home = first.home().to_str().unwrap().to_owned();
    let mut agent = TestAgent::unconfigured()
        .variable("TURNWRIGHT_HOME", &home)
        .variable("OPENAI_BASE_URL", &first.model().base_url())
        .variable("OPENAI_API_KEY", "sk-test-1234")
        .variable("TURNWRIGHT_MODEL", "scripted")
        .variable("TZ", EARLIEST.0)
        .start();
    agent.load(&first.session);
    agent.session.clone_from(&first.session);
    let before = SystemTime::now();
    assert_eq!(agent.turn("three"), "end_turn");
    let now = dates(&last_request(&first));
    let possible = [before, SystemTime::now()].map(|it| line(it + hours(EARLIEST.1)));
    assert!(now.len() == 2 && possible.contains(&now[1]), "{now:?} {possible:?}");
    assert_eq!(agent.turn("four"), "end_turn");
    let last = last_request(&first);
    assert_eq!(dates(&last), now, "it was told");
    // The part that the provider has in its cache is as it was.
    let sent = sent["messages"].as_array().unwrap();
    assert_eq!(&last["messages"].as_array().unwrap()[..sent.len()], sent);
    // After a summary only the new one is there.
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(agent.turn("five"), "end_turn");
    assert_eq!(dates(&last_request(&first)), now[1..]);
}
