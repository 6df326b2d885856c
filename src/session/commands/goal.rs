//! `/goal` works until something is proven. The work is a turn that goes on by itself; while none runs, the other words
//! show the goal, resume the work, or change the goal.

use futures_util::future::join;

use super::{CommandCall, PromptWork, SessionActor, answer_later, say_and_finish};
use crate::error::as_sentence;
use crate::session::prompts::{log_command, report_omissions};
use crate::session::title;
use crate::turn::{Conversation, SteeringQueue, Turn};
use turnwright_policy::permission::Mode;
use turnwright_store::{Entry, GoalState, GoalStatus, StoreError, TurnKind, read};
use turnwright_types::effect::{fenced, fenced_command};
use turnwright_types::message::PromptPart;
use turnwright_types::text;

/// The most characters of a goal.
const MAX_CHARS: usize = 4_000;
/// The most slices that the user can ask for.
const MAX_TURNS: u32 = 1_000;
/// The flag for the command that proves the goal. Only another flag ends the command.
const CHECK: &str = "--check";
const TURNS: &str = "--turns";
const BUDGET: &str = "--budget";
/// The resources of a budget.
const RESOURCES: [&str; 4] = ["requests", "tokens", "cost", "minutes"];

const USAGE: &str = "Nothing was done. Usage: `/goal WHAT [--check CMD] [--turns N] [--budget NAME=N]`, \
                     `/goal resume`, `/goal edit WHAT` or `/goal clear`.";
const NO_GOAL: &str = "There is no goal. `/goal WHAT` sets one.";
const IS_MET: &str = "The goal is met already. `/goal WHAT` sets another one.";
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
    Resume,
    Clear,
    Edit(GoalState),
    Start(GoalState),
}

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let is_planning = session.conversation.mode().get() == Mode::Plan;
    match parse(&call.arguments, session.conversation.work.goal_turns) {
        Err(why) => call.answer(session, |_| why.to_owned()),
        Ok(GoalRequest::Start(_) | GoalRequest::Resume) if is_planning => {
            call.answer(session, |_| IS_PLANNING.to_owned())
        }
        Ok(GoalRequest::Start(goal)) => start(session, call, Some(goal)),
        Ok(GoalRequest::Resume) => start(session, call, None),
        Ok(GoalRequest::Show) => answer(session, &call, |_, state| describe(&state)),
        Ok(GoalRequest::Clear) => answer(session, &call, |conversation, _| {
            conversation.log().add_entry(Entry::Goal { goal: None });
            "The goal is cleared.".to_owned()
        }),
        Ok(GoalRequest::Edit(new)) => answer(session, &call, move |conversation, old| {
            let state = changed(old, new);
            let goal = Some(Box::new(state.clone()));
            conversation.log().add_entry(Entry::Goal { goal });
            describe(&state)
        }),
    }
}

/// Starts the turn that works towards a goal: this one, or else that of the session.
fn start(session: &mut SessionActor, call: CommandCall, new: Option<GoalState>) -> PromptWork {
    let CommandCall { mut prompt, typed, cancel, .. } = call;
    let words = new.as_ref().and_then(|goal| title::from_text(&goal.text));
    let titled = session.title.suggest(words, session.host.store(), &session.conversation);
    report_omissions(&session.conversation, &prompt);
    let context = session.session_context();
    let conversation = session.conversation.clone();
    let mut history = session.history.clone();
    let steering = SteeringQueue::default();
    let queue = steering.clone();
    let turn = async move {
        let found = match new {
            Some(goal) => Ok(goal),
            None => resumed(&conversation).await,
        };
        let goal = match found {
            Ok(goal) => goal,
            Err(why) => {
                conversation.told.add_unsent(context);
                log_command(&conversation, &mut history, TurnKind::Command, &typed, &prompt);
                let message = history.mint_message_id();
                titled.await;
                queue.close_into(&mut history, &conversation);
                return say_and_finish(&conversation, history, message, Some(why)).await;
            }
        };
        prompt.parts.extend(context.map(PromptPart::Context));
        let turn = Turn::new(conversation, history, prompt, cancel).steered_by(queue);
        // Boxed, because it is large.
        join(Box::pin(turn.towards(goal).run()), titled).await.0
    };
    PromptWork::of_turn(turn, steering)
}

/// Answers from the goal of the session, which `compose` may change.
fn answer(
    session: &mut SessionActor,
    call: &CommandCall,
    compose: impl FnOnce(&Conversation, GoalState) -> String + Send + 'static,
) -> PromptWork {
    let message = call.begin(session);
    let conversation = session.conversation.clone();
    answer_later(session, message, async move {
        Some(match current(&conversation).await {
            Ok(state) => compose(&conversation, state),
            Err(why) => why,
        })
    })
}

/// The goal of the session while no turn works on it.
async fn current(conversation: &Conversation) -> Result<GoalState, String> {
    let Some(store) = conversation.log().store().cloned() else {
        return Err(NO_GOAL.to_owned());
    };
    conversation.log().flush().written().await;
    let id = conversation.env.session.clone();
    let reading = store.read(move |connection| {
        let key = read::session_key(connection, &id)?;
        read::current_goal(connection, key)
    });
    match reading.await {
        Ok(Some(state)) => Ok(state),
        Ok(None) | Err(StoreError::NoSuchSession) => Err(NO_GOAL.to_owned()),
        Err(error) => Err(as_sentence(format!("The goal could not be read: {error}"))),
    }
}

/// The goal of the session, ready for more work. One that has used up its slices gets as many again.
async fn resumed(conversation: &Conversation) -> Result<GoalState, String> {
    let mut state = current(conversation).await?;
    if state.status == GoalStatus::Met {
        return Err(IS_MET.to_owned());
    }
    if state.slices >= state.max_slices {
        state.max_slices = state.slices + conversation.work.goal_turns;
    }
    state.status = GoalStatus::Active;
    state.without_evidence = 0;
    state.same_missing = 0;
    Ok(state)
}

/// Describes a goal to the user.
fn describe(state: &GoalState) -> String {
    let mut text = format!("{}\n\n{}\n", state.notice(), fenced(&state.text));
    if let Some(command) = &state.check {
        let command = fenced_command(command);
        text.push_str(&format!("\nIt is proven when this command succeeds:\n\n{command}\n"));
    }
    if !state.requirements.is_empty() {
        text.push_str("\nRequirements:\n\n");
    }
    for (number, requirement) in (1..).zip(&state.requirements) {
        let words = text::escape_markdown(&requirement.text);
        let proof = match &requirement.evidence {
            Some(evidence) => format!(" – proven: {}", text::escape_markdown(evidence)),
            None => String::new(),
        };
        text.push_str(&format!("{number}. {words}{proof}\n"));
    }
    text.push_str(&format!("\nSlices: {} of {}.", state.slices, state.max_slices));
    text
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
    match trimmed {
        // A prompt that waits pauses the work, so this is all that is left to do.
        "" | "pause" => return Ok(GoalRequest::Show),
        "resume" => return Ok(GoalRequest::Resume),
        "clear" => return Ok(GoalRequest::Clear),
        "edit" => return Err(USAGE),
        _ => {}
    }
    match trimmed.split_once(char::is_whitespace) {
        Some(("edit", rest)) => Ok(GoalRequest::Edit(parse_goal(rest, turns)?)),
        _ => Ok(GoalRequest::Start(parse_goal(trimmed, turns)?)),
    }
}

fn parse_goal(words: &str, turns: u32) -> Result<GoalState, &'static str> {
    let mut goal = GoalState { max_slices: turns, ..GoalState::default() };
    for (flag, value) in split_flags(words) {
        match flag {
            CHECK => goal.check = Some(unquoted(value).to_owned()),
            TURNS => {
                let number: Option<u32> = value.parse().ok();
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
fn split_flags(words: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let mut flag = "";
    let mut begin = 0;
    let mut at = 0;
    let mut has_check = false;
    for piece in words.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if [TURNS, BUDGET].contains(&word) || word == CHECK && !has_check {
            parts.push((flag, words[begin..at].trim()));
            flag = word;
            begin = at + word.len();
            has_check |= word == CHECK;
        }
        at += piece.len();
    }
    parts.push((flag, words[begin..].trim()));
    parts
}

/// Removes a pair of quotes around a command.
fn unquoted(command: &str) -> &str {
    let quotes = ['"', '\''];
    let inner =
        quotes.into_iter().find_map(|quote| command.strip_prefix(quote)?.strip_suffix(quote));
    inner.filter(|inner| !inner.contains(quotes)).unwrap_or(command)
}

/// Parses a limit such as `tokens=100000`, which may have the name of its setting.
fn parse_budget(text: &str) -> Option<(String, f64)> {
    let (name, number) = text.split_once('=')?;
    let resource = name.trim().trim_start_matches("turn_");
    let parsed: Option<f64> = number.trim().parse().ok();
    let amount = parsed.filter(|amount| amount.is_finite() && *amount > 0.0)?;
    RESOURCES.contains(&resource).then(|| (resource.to_owned(), amount))
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
            assert_eq!(parse(words, 20), Ok(GoalRequest::Start(expected)), "{words}");
        }
        let all = "x --turns 3 --check make test --budget turn_tokens=5 --budget cost=0.5";
        let limits = vec![("tokens".to_owned(), 5.0), ("cost".to_owned(), 0.5)];
        let check = Some("make test".to_owned());
        let expected = GoalState { check, max_slices: 3, limits, ..goal("x") };
        assert_eq!(parse(all, 20), Ok(GoalRequest::Start(expected)));
    }

    #[test]
    fn a_word_alone_is_about_the_goal_there_is() {
        for (words, expected) in [
            ("", Ok(GoalRequest::Show)),
            (" pause ", Ok(GoalRequest::Show)),
            ("resume", Ok(GoalRequest::Resume)),
            ("clear", Ok(GoalRequest::Clear)),
            ("edit", Err(USAGE)),
            ("edit  y", Ok(GoalRequest::Edit(goal("y")))),
            ("resume the work", Ok(GoalRequest::Start(goal("resume the work")))),
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
        assert!(shown.contains("```console\nmake test\n```"), "{shown}");
    }
}
