//! Notes that a turn suggests, found without the model: a command that worked after another one had failed, and words
//! with which the user has corrected the same thing before. The user is told of one of them after the turn, and
//! `/remember` writes it. This is also among the prompts that are suggested to the user, with what the turn has left
//! open: a failed check, and steps of the plan that are not done.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::proof::{Proof, Step, is_in};
use super::room::handoff::stored_facts;
use super::{PROJECT_READ_TIMEOUT, Turn, typed_text};
use crate::tools::{KEPT_COMMANDS, KEPT_CORRECTIONS, kept_lines};
use turnwright_policy::shell;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::Message;
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_types::update::PlanStatus;
use turnwright_workspace::exec::dialect;
use turnwright_workspace::memory;

/// The name of an offer among recorded answers.
const NOTE_OFFER: &str = "note offer";
/// The most characters of a command, a correction or a prompt that is offered.
const MAX_CHARS: usize = 200;
/// The most prompts that are suggested after a turn.
const MAX_SUGGESTIONS: usize = 3;
/// Writes the note that the turn has offered.
const REMEMBER: &str = "/remember";
/// The words of a prompt that corrects something.
const CUES: &str = "always don't instead never not";
/// The same in Chinese, whose words have no blanks between them. One character alone is a part of other words.
const CHINESE_CUES: [&str; 7] = ["不要", "别再", "别用", "别把", "别改", "应该", "改用"];
/// Words that do not tell what a prompt is about.
const COMMON: &str = "again and are but can for have how its now please that the then there these they this was \
                      what when why with you your";
/// The fewest words that two texts about the same have in common.
const MIN_TOPICS: usize = 2;

/// A note that the user can have written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum NoteOffer {
    /// A command that worked after another one had failed.
    Worked { command: String, failed: String },
    /// A correction that the user has made more than once.
    Corrected(String),
}

impl NoteOffer {
    fn notice(&self) -> String {
        match self {
            NoteOffer::Worked { command, .. } => {
                format!("Worked after a failure: `{command}`. `/remember` keeps it as a note.")
            }
            NoteOffer::Corrected(words) => {
                format!("You have said this before: \"{words}\". `/remember` keeps it as a note.")
            }
        }
    }

    /// Returns true if both offer the same.
    fn is_like(&self, other: &NoteOffer) -> bool {
        match (self, other) {
            (NoteOffer::Corrected(words), NoteOffer::Corrected(others)) => are_alike(words, others),
            _ => self == other,
        }
    }
}

impl Turn {
    /// Offers the user a note that this turn suggests. Returns true if there is one.
    pub(super) async fn offer_note(&self) -> bool {
        let conversation = &self.conversation;
        if self.is_helper() || conversation.work.alone || !conversation.work.offer_notes {
            return false;
        }
        let Some(offer) = self.find_offer().await else { return false };
        conversation.notify(offer.notice());
        conversation.told.add_offer(offer);
        true
    }

    async fn find_offer(&self) -> Option<NoteOffer> {
        let begin = self.prompt.first_message.min(self.history.messages.len());
        let (earlier, messages) = self.history.messages.split_at(begin);
        let worked = command_that_worked(&self.checks.ledger.steps);
        let corrected = repeated_corrections(earlier, messages);
        let signs: Vec<_> = worked.into_iter().chain(corrected).collect();
        if signs.is_empty() {
            return None;
        }
        if let Some(recorded) = self.recorded_words(NOTE_OFFER) {
            return recorded;
        }
        // Boxed, because few turns need it.
        let looking = self.cancel.run_until_cancelled(Box::pin(self.look_up(signs)));
        let bounded = tokio::time::timeout(PROJECT_READ_TIMEOUT, looking).await;
        let found = bounded.ok().flatten().flatten();
        self.record_words(NOTE_OFFER, found)
    }

    /// Chooses the first one that is not in the notes and was not offered before.
    async fn look_up(&self, signs: Vec<NoteOffer>) -> Option<NoteOffer> {
        let conversation = &self.conversation;
        let commands = kept_lines(&conversation.env, KEPT_COMMANDS).await;
        let corrected = kept_lines(&conversation.env, KEPT_CORRECTIONS).await;
        signs.into_iter().find(|offer| {
            let is_kept = match offer {
                NoteOffer::Worked { command, .. } => commands.contains(&format!("`{command}`")),
                NoteOffer::Corrected(words) => corrected.contains(words),
            };
            let told = conversation.told.lock();
            !is_kept && !told.offers.iter().any(|known| known.is_like(offer))
        })
    }

    /// Suggests prompts after this turn, the likeliest first, to a client that shows them.
    pub(super) async fn suggest_prompts(&self, offers_note: bool) {
        if !self.conversation.client().shows_suggestions() {
            return;
        }
        let failed = self.checks.ledger.failed_check();
        let fix = failed.map(|line| format!("Fix what fails: {line}"));
        let (plan, ..) = stored_facts(&self.conversation).await;
        let open = plan.iter().filter(|step| step.status != PlanStatus::Completed);
        let steps = open.map(|step| format!("Continue with: {}", step.content));
        let note = offers_note.then(|| REMEMBER.to_owned());
        let all = fix.into_iter().chain(note).chain(steps).take(MAX_SUGGESTIONS);
        self.conversation.suggest(all.map(|words| suggestion(&words)).collect());
    }
}

/// Makes one short line without keys. Keys are removed before it is shortened, because part of a key would not be
/// found.
fn suggestion(words: &str) -> String {
    text::clip_within(escape_hidden_line(&text::one_line(&redact::text(words))), MAX_CHARS)
}

/// The last command that worked after a similar one had failed, although nothing was changed in between.
fn command_that_worked(steps: &[Step]) -> Option<NoteOffer> {
    let mut failed: Vec<&str> = Vec::new();
    let mut found: Option<(&str, &str)> = None;
    for step in steps {
        match step {
            Step::Ran { line, proof: Proof::Real, is_good, is_here: true } => {
                failed.retain(|other| other != line);
                if *is_good {
                    // A command that fails at times says nothing.
                    found = found.filter(|(_, other)| other != line);
                    let similar = failed.iter().find(|other| is_variant(other, line));
                    found = similar.map(|other| (line.as_str(), *other)).or(found);
                } else {
                    failed.push(line);
                }
            }
            Step::Ran { proof: Proof::Thin, is_here: true, .. } => {}
            // It may be the reason why something works now.
            Step::Ran { .. } | Step::Changed => failed.clear(),
        }
    }
    let (command, failed) = found?;
    let can_be_quoted = [command, failed].iter().all(|line| is_plain(line) && !line.contains('`'));
    can_be_quoted
        .then(|| NoteOffer::Worked { command: command.to_owned(), failed: failed.to_owned() })
}

/// Returns true if two lines have the same program and first argument, and one of them has further ones.
fn is_variant(line: &str, other: &str) -> bool {
    let [words, others] = [line, other].map(words_of);
    let is_within = words.iter().all(|word| others.contains(word))
        || others.iter().all(|word| words.contains(word));
    is_within && words.get(..2) == others.get(..2)
}

/// The words of the first command of a line that does more than go to a folder.
fn words_of(line: &str) -> Vec<String> {
    let script = shell::parse(line, dialect());
    let command = script.commands.iter().find(|command| command.program() != "cd");
    command.map(|command| command.argv().map(str::to_owned).collect()).unwrap_or_default()
}

/// The corrections among the user's words of a turn that were made before in the session.
fn repeated_corrections(earlier: &[Arc<Message>], messages: &[Arc<Message>]) -> Vec<NoteOffer> {
    let mut before: Vec<String> = typed_corrections(earlier).collect();
    let mut repeated = Vec::new();
    for words in typed_corrections(messages) {
        if is_plain(&words) && before.iter().any(|other| are_alike(other, &words)) {
            repeated.push(NoteOffer::Corrected(words.clone()));
        }
        before.push(words);
    }
    repeated
}

/// The words with which the user corrects something, each message in one line.
fn typed_corrections(messages: &[Arc<Message>]) -> impl Iterator<Item = String> {
    let users = messages.iter().filter_map(|message| message.as_user());
    let typed = users.map(|message| text::one_line(&typed_text(message)));
    typed.filter(|words| is_correction(words))
}

/// Returns true if a text is short and sounds as if it corrected something.
fn is_correction(text: &str) -> bool {
    is_short(text)
        && !text.starts_with('/')
        && (CHINESE_CUES.iter().any(|cue| text.contains(cue))
            || lower_words(text).iter().any(|word| is_in(CUES, word)))
}

/// Returns true if two texts are about the same: most of what they are about is in both.
fn are_alike(text: &str, other: &str) -> bool {
    let [topics, others] = [text, other].map(topics_of);
    let common = topics.intersection(&others).count();
    common >= MIN_TOPICS && 10 * common >= 3 * (topics.len() + others.len())
}

/// The words that tell what a text is about, and the pairs of characters of scripts without blanks.
fn topics_of(text: &str) -> HashSet<String> {
    let mut topics = HashSet::new();
    for word in lower_words(text) {
        if word.chars().any(|char| char >= '\u{2e80}') {
            let letters: Vec<char> = word.chars().collect();
            topics.extend(letters.windows(2).map(|pair| pair.iter().collect::<String>()));
        } else if word.len() > 2 && !is_in(CUES, &word) && !is_in(COMMON, &word) {
            topics.insert(word);
        }
    }
    topics
}

fn lower_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase().replace('’', "'");
    let words = lower.split(|char: char| !char.is_alphanumeric() && char != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_short(text: &str) -> bool {
    text.chars().nth(MAX_CHARS).is_none()
}

/// Returns true if a text can be a line of a note as it is, and holds no secret.
fn is_plain(text: &str) -> bool {
    is_short(text)
        && escape_hidden_line(text) == text
        && redact::text(text) == text
        && memory::find_secret(text).is_none()
}

#[cfg(test)]
mod tests {
    use super::super::proof::proof_of;
    use super::*;
    use turnwright_types::message::UserMessage;

    fn ran(line: &str, is_good: bool) -> Step {
        Step::Ran { line: line.to_owned(), proof: proof_of(line), is_good, is_here: true }
    }

    #[test]
    fn a_variant_counts_if_nothing_was_changed_in_between() {
        let test = "cargo test";
        let more = "cargo test --features x";
        let secret = "cargo test --token sk-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
        let web = "cd web && npm run test -- --run";
        let proof = Proof::Real;
        let elsewhere = Step::Ran { line: more.to_owned(), proof, is_good: true, is_here: false };
        let table = [
            (vec![ran(test, false), ran(more, true)], Some(more)),
            (vec![ran(test, false), ran("ls", true), ran(more, true)], Some(more)),
            (vec![ran(more, false), ran(test, true)], Some(test)),
            (vec![ran("cd web && npm run test", false), ran(web, true)], Some(web)),
            (vec![ran(test, false), Step::Changed, ran(more, true)], None),
            (vec![ran(test, false), ran("pip install x", true), ran(more, true)], None),
            (vec![ran(test, false), ran(more, true), ran(test, true)], None),
            (vec![ran(test, false), ran(more, false)], None),
            (vec![ran(more, true), ran(test, false)], None),
            (vec![ran("npm run lint", false), ran("npm run build", true)], None),
            (vec![ran("cargo test a", false), ran("cargo test b", true)], None),
            (vec![ran("cat a", false), ran("cat a b", true)], None),
            (vec![ran(test, false), ran(secret, true)], None),
            (vec![ran(test, false), elsewhere], None),
        ];
        for (number, (steps, expected)) in table.into_iter().enumerate() {
            let worked = match command_that_worked(&steps) {
                Some(NoteOffer::Worked { command, .. }) => Some(command),
                _ => None,
            };
            assert_eq!(worked.as_deref(), expected, "row {number}");
        }
    }

    #[test]
    fn the_same_correction_is_known_in_other_words() {
        for (text, other, expected) in [
            ("Don’t use tabs here", "I said not to use tabs!", true),
            ("never touch the lock file", "Do not touch the lock file.", true),
            ("不要使用制表符", "我说了，不要使用制表符", true),
            ("do not touch the lock file", "use four blanks, not tabs", false),
            ("not again", "not again", false),
        ] {
            assert!(is_correction(text) && is_correction(other), "{text}");
            assert_eq!(are_alike(text, other), expected, "{text}");
        }
        let long = "not ".repeat(MAX_CHARS);
        let others = ["add a flag", "/review not this", "nothing", "", "run the tests again"];
        for text in others.into_iter().chain(["这个类别特别慢", long.as_str()]) {
            assert!(!is_correction(text), "{text}");
        }
    }

    #[test]
    fn a_repeated_correction_is_found_before_and_within_the_turn() {
        let said = |text: &str| Arc::new(Message::User(UserMessage::text(text)));
        let earlier = ["use four blanks", "please don't use tabs"].map(said);
        let now =
            ["do not use tabs", "never edit the lock file", "never edit that lock file!"].map(said);
        let expected = ["do not use tabs", "never edit that lock file!"];
        let offers = expected.map(|words| NoteOffer::Corrected(words.to_owned()));
        assert_eq!(repeated_corrections(&earlier, &now), offers);
    }

    #[test]
    fn a_suggestion_is_one_short_line_without_hidden_characters() {
        assert_eq!(suggestion("Fix what fails: a\n\tb\u{202e}c"), "Fix what fails: a b\\u{202e}c");
        let long = suggestion(&"ä ".repeat(300));
        assert!(long.chars().count() == MAX_CHARS && long.ends_with('…'), "{long}");
    }
}
