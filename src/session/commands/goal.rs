//! `/goal` works until something is proven. The work is a turn that goes on by itself; while none runs, the other words
//! show the goal, resume the work, or change the goal.

use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::session::prompts::finish_command;
use crate::session::title;
use crate::turn::stored_goal;
use turnwright_config::parse_limit;
use turnwright_policy::permission::Mode;
use turnwright_store::{Entry, GoalState, GoalStatus};
use turnwright_types::effect::fenced;
use turnwright_types::look_alike::narrow;
use turnwright_types::message::StopReason;

/// The most characters of a goal.
const MAX_CHARS: usize = 4_000;
/// The most slices that the user can ask for.
const MAX_TURNS: u32 = 1_000;
/// The flag for the command that proves the goal. Only another flag ends the command.
const CHECK: &str = "--check";
const TURNS: &str = "--turns";
const BUDGET: &str = "--budget";

const USAGE: &str = "Nothing was done. Usage: `/goal WHAT [--check CMD] [--turns N] [--budget NAME=N]`, \
                     `/goal resume`, `/goal edit WHAT` or `/goal clear`.";
const IS_PLANNING: &str =
    "Nothing was started: in mode `plan` nothing can be changed. Choose another mode first.";
const TOO_LONG: &str = "Nothing was done: a goal has at most 4000 characters.";
const WRONG_TURNS: &str = "Nothing was done: `--turns` takes a number from 1 to 1000.";
const WRONG_BUDGET: &str = "Nothing was done: `--budget` takes `tokens=N`, `cost=N`, `minutes=N` or `requests=N` with a \
                            number above 0.";

/// The words behind the command.
#[derive(Debug, PartialEq)]
enum GoalRequest {
    Show,
    Clear,
    Edit(GoalState),
    /// Work towards this goal, or else that of the session.
    Work(Option<GoalState>),
}

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let is_planning = session.conversation.mode().get() == Mode::Plan;
    match parse(&call.arguments, session.conversation.work.goal_turns) {
        Err(why) => refuse(session, call, why),
        Ok(GoalRequest::Work(_)) if is_planning => refuse(session, call, IS_PLANNING),
        Ok(GoalRequest::Work(new)) => {
            let title = new.as_ref().and_then(|goal| title::from_text(&goal.text));
            session.turn_work(call.prompt, title, call.cancel, |turn| turn.towards(new))
        }
        Ok(request) => answer(session, &call, request),
    }
}

/// Refuses to work. A script must not take that for success.
fn refuse(session: &mut SessionActor, call: CommandCall, why: &str) -> PromptWork {
    let message = call.begin(session);
    session.conversation.say(message, why.to_owned());
    let task = call.into_task(session);
    PromptWork::of_command(async move {
        finish_command(task.conversation.log(), task.history, StopReason::MaxTurnRequests).await
    })
}

/// Answers from the goal of the session, which the request may change.
fn answer(session: &mut SessionActor, call: &CommandCall, request: GoalRequest) -> PromptWork {
    let message = call.begin(session);
    let conversation = session.conversation.clone();
    answer_later(session, message, async move {
        let old = match stored_goal(&conversation).await {
            Ok(old) => old,
            Err(why) => return Some(why),
        };
        let goal = match request {
            GoalRequest::Clear => None,
            GoalRequest::Edit(new) => Some(changed(old, new)),
            GoalRequest::Show | GoalRequest::Work(_) => return Some(describe(&old)),
        };
        let text = goal.as_ref().map_or_else(|| "The goal is cleared.".to_owned(), describe);
        conversation.log().add_entry(Entry::Goal { goal: goal.map(Box::new) });
        Some(text)
    })
}

/// Describes a goal to the user.
fn describe(state: &GoalState) -> String {
    let mut facts = format!("{}\n", state.text);
    if let Some(command) = &state.check {
        facts.push_str(&format!("It is proven when this command succeeds: {command}\n"));
    }
    facts.push_str(&state.requirement_list());
    let GoalState { slices, max_slices, .. } = state;
    format!("{}\n\n{}\n\nSlices: {slices} of {max_slices}.", state.notice(), fenced(&facts))
}

/// The goal after a change. Its requirements are listed anew, and the command stays unless there is another one.
fn changed(old: GoalState, mut new: GoalState) -> GoalState {
    new.check = new.check.or(old.check);
    if new.limits.is_empty() {
        new.limits = old.limits;
    }
    new.status = GoalStatus::Paused("it was changed".to_owned());
    new
}

/// Parses the words behind the command. A goal has this many slices unless they name another number.
fn parse(words: &str, turns: u32) -> Result<GoalRequest, &'static str> {
    let trimmed = words.trim();
    let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
    Ok(match (word.to_ascii_lowercase().as_str(), rest) {
        // A prompt that waits pauses the work, so this is all that is left to do.
        ("" | "pause", "") => GoalRequest::Show,
        ("resume", "") => GoalRequest::Work(None),
        ("clear", "") => GoalRequest::Clear,
        ("edit", goal) => GoalRequest::Edit(parse_goal(goal, turns)?),
        _ => GoalRequest::Work(Some(parse_goal(trimmed, turns)?)),
    })
}

fn parse_goal(words: &str, turns: u32) -> Result<GoalState, &'static str> {
    let mut goal = GoalState { max_slices: turns, ..GoalState::default() };
    for (flag, part) in split_flags(words) {
        let value = part.trim();
        match flag {
            CHECK => goal.check = Some(unquoted(value).to_owned()),
            TURNS => {
                let number: Option<u32> = narrow(value).parse().ok();
                let usable = number.filter(|count| (1..=MAX_TURNS).contains(count));
                goal.max_slices = usable.ok_or(WRONG_TURNS)?;
            }
            BUDGET => goal.limits.push(parse_budget(value).ok_or(WRONG_BUDGET)?),
            _ => value.clone_into(&mut goal.text),
        }
    }
    if goal.text.is_empty() || goal.check.as_ref().is_some_and(String::is_empty) {
        return Err(USAGE);
    }
    if goal.text.chars().count() > MAX_CHARS {
        return Err(TOO_LONG);
    }
    Ok(goal)
}

/// Splits at the flags. Returns each with the words behind it, after an empty one with the words before them. A
/// command may have a flag of its own that is called `--check`.
fn split_flags(words: &str) -> Vec<(&'static str, String)> {
    let mut parts = vec![("", String::new())];
    for piece in words.split_inclusive(char::is_whitespace) {
        // Where punctuation is smart, two hyphens become a dash.
        let word = piece.trim_end().replace(['—', '–'], "--");
        let has_check = parts.iter().any(|(flag, _)| *flag == CHECK);
        let flag = [CHECK, TURNS, BUDGET].into_iter().find(|flag| *flag == word);
        if let Some(flag) = flag.filter(|flag| *flag != CHECK || !has_check) {
            parts.push((flag, String::new()));
        } else if let Some((_, value)) = parts.last_mut() {
            value.push_str(piece);
        }
    }
    parts
}

/// Removes a pair of quotes around a command.
fn unquoted(command: &str) -> &str {
    let quotes = ['"', '\''];
    let inner =
        quotes.into_iter().find_map(|quote| command.strip_prefix(quote)?.strip_suffix(quote));
    inner.filter(|inner| !inner.contains(quotes)).unwrap_or(command)
}

/// Parses a limit such as `tokens=100000`. A session has limits of the same names.
fn parse_budget(text: &str) -> Option<(String, f64)> {
    let (name, amount) = parse_limit(&format!("session_{}", narrow(text))).ok()?;
    Some((name.strip_prefix("session_")?.to_owned(), amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(text: &str) -> GoalState {
        GoalState { text: text.to_owned(), max_slices: 20, ..GoalState::default() }
    }

    #[test]
    fn a_command_may_have_flags_and_quotes_of_its_own() {
        let table = [
            ("make it fast", None),
            ("make it fast --check cargo test --workspace", Some("cargo test --workspace")),
            ("make it fast\n--check cargo fmt --check", Some("cargo fmt --check")),
            ("make it fast --check \"make test\"", Some("make test")),
            ("make it fast --check 'a' && 'b'", Some("'a' && 'b'")),
        ];
        for (words, check) in table {
            let expected = GoalState { check: check.map(str::to_owned), ..goal("make it fast") };
            assert_eq!(parse(words, 20), Ok(GoalRequest::Work(Some(expected))), "{words}");
        }
        let all = "x --turns 3 --check make test --budget tokens=5 --budget cost=0.5";
        let limits = vec![("tokens".to_owned(), 5.0), ("cost".to_owned(), 0.5)];
        let check = Some("make test".to_owned());
        let expected = GoalState { check, max_slices: 3, limits, ..goal("x") };
        assert_eq!(parse(all, 20), Ok(GoalRequest::Work(Some(expected))));
    }

    #[test]
    fn flags_are_known_with_smart_dashes_and_wide_digits() {
        let limits = vec![("cost".to_owned(), 0.5)];
        let expected = GoalState { max_slices: 3, limits, ..goal("a — b") };
        for words in ["a — b —turns 3 —budget cost=0.5", "a — b –turns ３　–budget cost=０.５"]
        {
            assert_eq!(parse(words, 20), Ok(GoalRequest::Work(Some(expected.clone()))), "{words}");
        }
    }

    #[test]
    fn a_word_alone_is_about_the_goal_there_is() {
        for (words, expected) in [
            ("", Ok(GoalRequest::Show)),
            (" pause ", Ok(GoalRequest::Show)),
            ("Resume", Ok(GoalRequest::Work(None))),
            ("clear", Ok(GoalRequest::Clear)),
            ("edit", Err(USAGE)),
            ("edit  y", Ok(GoalRequest::Edit(goal("y")))),
            ("resume the work", Ok(GoalRequest::Work(Some(goal("resume the work"))))),
            ("--check true", Err(USAGE)),
            ("x --check", Err(USAGE)),
            ("x --turns", Err(WRONG_TURNS)),
            ("x --turns 0", Err(WRONG_TURNS)),
            ("x --budget session_cost=1", Err(WRONG_BUDGET)),
            ("x --budget cost=-1", Err(WRONG_BUDGET)),
        ] {
            assert_eq!(parse(words, 20), expected, "{words}");
        }
        assert_eq!(parse(&"é".repeat(MAX_CHARS + 1), 20), Err(TOO_LONG));
        assert!(parse(&"é".repeat(MAX_CHARS), 20).is_ok());
    }

    #[test]
    fn a_changed_goal_is_a_new_one_with_the_old_command() {
        let old = GoalState {
            check: Some("make test".to_owned()),
            slices: 7,
            last_missing: vec!["x".to_owned()],
            ..GoalState::default()
        };
        let expected = GoalState {
            check: Some("make test".to_owned()),
            status: GoalStatus::Paused("it was changed".to_owned()),
            ..goal("y")
        };
        assert_eq!(changed(old, goal("y")), expected);
        let shown = describe(&expected);
        let proof = "\nIt is proven when this command succeeds: make test\n";
        assert!(shown.contains(proof), "{shown}");
    }
}
