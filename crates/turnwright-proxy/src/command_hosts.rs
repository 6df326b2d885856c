//! The hosts of one command: those that it may reach, those that the user has to be asked about, and the refused ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use turnwright_workspace::web::local_name_kind;

use crate::hosts::{HostAccess, HostList, Target, registry_of};

/// The most refused hosts that are remembered and reported.
const MAX_REFUSED: usize = 8;
/// The most questions that wait for the user. Further connections wait until there is room.
const MAX_QUESTIONS: usize = 32;

/// Reasons for refusals, as the end of a sentence about a host.
const REJECTED: &str = "the user has refused it; do not try again";
const DENIED: &str = "a rule denies it, or the user has for this session; do not work around it";

/// The verdict on a host by the rules and earlier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVerdict {
    Allow,
    /// No rule or answer applies.
    Ask,
    /// A rule requires a question to the user, even if the settings list the host.
    MustAsk,
    Deny,
}

/// Judges a host, in the notation of rules.
type HostJudge = Box<dyn Fn(&str) -> HostVerdict + Send + Sync>;

/// A question to the user about a host. When it is dropped, the waiting connection looks for an answer, and is refused
/// if there is none.
#[derive(Debug)]
pub struct HostQuestion {
    pub target: Target,
    _waiting: oneshot::Sender<()>,
}

/// The report on refused hosts, as a line for the model and one for the user.
#[derive(Debug, PartialEq, Eq)]
pub struct HostReport {
    pub for_model: String,
    pub for_user: String,
}

/// The decisions about the hosts of one command.
#[derive(Debug)]
struct HostDecisions {
    /// The answers of the user for this command.
    answers: BTreeMap<String, bool>,
    /// The hosts that were refused, each with the last reason and the remedy.
    refused: BTreeMap<String, String>,
}

// Held only to read or add decisions.
type SharedDecisions = Arc<Mutex<HostDecisions>>;

/// The hosts that were refused to a command, as they are noted while it runs.
#[derive(Debug)]
pub struct RefusedHosts(SharedDecisions);

/// The hosts of one command.
pub struct CommandHosts {
    listed: HostList,
    judge: HostJudge,
    questions: mpsc::Sender<HostQuestion>,
    decisions: SharedDecisions,
}

impl CommandHosts {
    /// `listed` are the hosts of the settings. `allowed` are hosts that the call was allowed, in the notation of rules.
    /// Once the receiver is dropped, no questions are asked and unknown hosts are refused.
    pub fn new(
        listed: HostList,
        allowed: impl Iterator<Item = String>,
        judge: impl Fn(&str) -> HostVerdict + Send + Sync + 'static,
    ) -> (CommandHosts, mpsc::Receiver<HostQuestion>) {
        let (questions, receiver) = mpsc::channel(MAX_QUESTIONS);
        let answers = allowed.map(|host| (host, true)).collect();
        let decisions = Arc::new(Mutex::new(HostDecisions { answers, refused: BTreeMap::new() }));
        (CommandHosts { listed, judge: Box::new(judge), questions, decisions }, receiver)
    }

    /// Returns the refused hosts, with those that are refused later.
    pub fn refused(&self) -> RefusedHosts {
        RefusedHosts(Arc::clone(&self.decisions))
    }

    /// Returns the hosts to ask about together: the host in question and the undecided others of its registry. Empty if
    /// the host itself is decided.
    pub fn undecided(&self, question: &HostQuestion) -> Vec<String> {
        if self.decision(&question.target).is_some() {
            return Vec::new();
        }
        let host = question.target.to_string();
        let mut others: Vec<_> = registry_of(&host).filter(|other| *other != host).collect();
        others.retain(|other| {
            Target::parse(other, Some(443)).is_some_and(|target| self.decision(&target).is_none())
        });
        std::iter::once(&*host).chain(others).map(str::to_owned).collect()
    }

    /// Stores the user's answer about hosts, which holds for this command only.
    pub fn answer(&self, hosts: Vec<String>, is_allowed: bool) {
        self.decisions.lock().answers.extend(hosts.into_iter().map(|host| (host, is_allowed)));
    }

    /// Returns how the command may reach a host, or the reason and the remedy if it may not. Waits for the user's answer
    /// if necessary.
    pub(crate) async fn admit(&self, target: &Target) -> Result<HostAccess, String> {
        if let Some(decision) = self.decision(target) {
            return decision;
        }
        self.ask(target).await;
        self.decision(target).unwrap_or_else(|| {
            Err(format!(
                "it is not allowed, and nobody could be asked; if it is needed, call again with \"escalate\": \
                 \"https://{target}\""
            ))
        })
    }

    /// Waits until the user has answered, or cannot be asked.
    async fn ask(&self, target: &Target) {
        let (waiting, answered) = oneshot::channel();
        let question = HostQuestion { target: target.clone(), _waiting: waiting };
        if self.questions.send(question).await.is_ok() {
            // Nothing is ever sent: the channel closes when the question is dropped.
            answered.await.ok();
        }
    }

    /// Returns the decision about a host; `None` if the user has to be asked.
    fn decision(&self, target: &Target) -> Option<Result<HostAccess, String>> {
        let host = target.to_string();
        let verdict = (self.judge)(&host);
        if verdict == HostVerdict::Deny {
            return Some(Err(DENIED.to_owned()));
        }
        let listed = self.listed.access(target);
        let local_kind = match target.name() {
            Some(name) => local_name_kind(name),
            // It does not show whose it is.
            None => Some("a literal"),
        };
        if let (Some(kind), None) = (local_kind, listed) {
            return Some(Err(address_refusal(kind)));
        }
        let answer = self.decisions.lock().answers.get(&host).copied();
        let access = listed.unwrap_or(HostAccess::Public);
        match (answer, verdict) {
            (Some(true), _) | (None, HostVerdict::Allow) => Some(Ok(access)),
            (Some(false), _) => Some(Err(REJECTED.to_owned())),
            (None, HostVerdict::Ask) => listed.map(Ok),
            (None, HostVerdict::MustAsk | HostVerdict::Deny) => None,
        }
    }

    pub(crate) fn note_refusal(&self, target: &Target, why: &str) {
        let host = target.to_string();
        let refused = &mut self.decisions.lock().refused;
        if refused.len() < MAX_REFUSED || refused.contains_key(&host) {
            refused.insert(host, why.to_owned());
        }
    }
}

/// Returns the reason for a refusal of an address of this kind, as in "a private", or a host with such addresses only.
pub(crate) fn address_refusal(kind: &str) -> String {
    format!(
        "it is {kind} address; the user can list the name of a private host in `network` of `[sandbox]`, and a server of \
         this machine is reached with \"escalate\": \"localhost:PORT\""
    )
}

impl RefusedHosts {
    /// Reports the refused hosts, to the model with the reasons; `None` if there were none.
    pub fn report(&self) -> Option<HostReport> {
        let refused = &self.0.lock().refused;
        let names: Vec<_> = refused.keys().map(String::as_str).collect();
        let reasons: Vec<_> = refused.iter().map(|(host, why)| format!("{host}: {why}")).collect();
        (!names.is_empty()).then(|| HostReport {
            for_model: format!("[sandbox: refused hosts: {}]", reasons.join(". ")),
            for_user: format!("[sandbox: refused hosts: {}]", names.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text, Some(443)).unwrap()
    }

    fn hosts(listed: &[&str], allowed: &[&str]) -> (CommandHosts, mpsc::Receiver<HostQuestion>) {
        let listed: Vec<_> = listed.iter().map(|entry| (*entry).to_owned()).collect();
        let allowed: Vec<_> = allowed.iter().map(|host| (*host).to_owned()).collect();
        CommandHosts::new(HostList::parse(&listed), allowed.into_iter(), |host| match host {
            "denied.example" => HostVerdict::Deny,
            "asked.example" => HostVerdict::MustAsk,
            "granted.example" => HostVerdict::Allow,
            _ => HostVerdict::Ask,
        })
    }

    #[test]
    fn a_denial_precedes_a_question_a_question_the_list_and_only_the_list_has_addresses() {
        let listed =
            ["denied.example", "asked.example", "listed.example", "intern.corp", "nexus:8081"];
        let (hosts, _questions) = hosts(&listed, &["denied.example", "once.example"]);
        let named = Some(Ok(HostAccess::Named));
        let public = Some(Ok(HostAccess::Public));
        let refused = Some(Err(()));
        for (host, expected) in [
            ("denied.example", refused),
            ("asked.example", None),
            ("listed.example", named),
            ("granted.example", public),
            ("once.example", public),
            ("unknown.example", None),
            ("10.0.0.8", refused),
            ("93.184.216.34", refused),
            ("intern.corp", named),
            ("nexus:8081", named),
            ("other.corp", refused),
            ("localhost", refused),
        ] {
            let decision = hosts.decision(&target(host));
            assert_eq!(decision.map(|decision| decision.map_err(drop)), expected, "{host}");
        }
    }

    #[tokio::test]
    async fn a_connection_waits_for_one_answer_about_the_whole_registry() {
        let (hosts, mut questions) = hosts(&[], &[]);
        let pypi = target("pypi.org");
        let user = async {
            let question = questions.recv().await.unwrap();
            let asked = hosts.undecided(&question);
            assert_eq!(asked, ["pypi.org", "files.pythonhosted.org"]);
            hosts.answer(asked, true);
            let second = HostQuestion { target: pypi.clone(), _waiting: oneshot::channel().0 };
            assert!(hosts.undecided(&second).is_empty(), "it is answered");
        };
        let (admitted, ()) = tokio::join!(hosts.admit(&pypi), user);
        assert_eq!(admitted, Ok(HostAccess::Public));
        assert_eq!(hosts.admit(&target("files.pythonhosted.org")).await, Ok(HostAccess::Public));
        assert_eq!(hosts.refused().report(), None);
    }

    #[tokio::test]
    async fn what_nobody_can_be_asked_about_is_refused_and_named() {
        let (hosts, questions) = hosts(&[], &[]);
        drop(questions);
        hosts.answer(vec!["c.example".to_owned()], false);
        for host in ["a.example", "b.example:22", "c.example", "denied.example", "10.0.0.1"] {
            let why = hosts.admit(&target(host)).await.unwrap_err();
            hosts.note_refusal(&target(host), &why);
        }
        let report = hosts.refused().report().unwrap();
        assert_eq!(
            report.for_user,
            "[sandbox: refused hosts: 10.0.0.1, a.example, b.example:22, c.example, denied.example]"
        );
        for part in [
            "a.example: it is not allowed, and nobody could be asked",
            "\"escalate\": \"https://b.example:22\"",
            "c.example: the user has refused it",
            "denied.example: a rule denies it",
            "10.0.0.1: it is a literal address",
        ] {
            assert!(report.for_model.contains(part), "{}", report.for_model);
        }
    }
}
