//! The goal of a session, as it is stored: the words of the user, and how much of it is proven.

use serde::{Deserialize, Serialize};

use turnwright_types::effect::escape_hidden_line;

/// The goal of a session.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct GoalState {
    /// The words of the user.
    pub text: String,
    /// The command that succeeds when the goal is reached; `None` if a judge decides.
    pub check: Option<String>,
    /// Everything that must be true, as it was listed when the work began. Empty if there is a command.
    pub requirements: Vec<GoalRequirement>,
    pub status: GoalStatus,
    /// The slices of work so far, including the one that is under way.
    pub slices: u32,
    pub max_slices: u32,
    /// The limits of its own, each by the name of a resource.
    pub limits: Vec<(String, f64)>,
    /// The number of slices in a row that have brought nothing new.
    pub without_evidence: u32,
    /// The open points at the end of the last slice.
    pub last_missing: Vec<String>,
    /// The number of slices in a row that have ended with just these.
    pub same_missing: u32,
}

/// One of the things that must be true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GoalRequirement {
    pub text: String,
    /// The proof that the judge has found; `None` if there is none.
    pub evidence: Option<String>,
}

/// The state of the work on a goal. The reasons are parts of a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalStatus {
    /// A turn works on it.
    #[default]
    Active,
    /// It can be resumed.
    Paused(String),
    /// It is proven.
    Met,
    /// It is given up.
    Ended(String),
}

impl GoalState {
    /// Returns true if it is neither proven nor given up.
    pub fn is_open(&self) -> bool {
        matches!(self.status, GoalStatus::Active | GoalStatus::Paused(_))
    }

    /// Makes it ready for more work. If it has used up its slices, it gets this many more.
    pub fn resume(&mut self, slices: u32) {
        if self.slices >= self.max_slices {
            self.max_slices = self.slices.saturating_add(slices);
        }
        self.without_evidence = 0;
        self.same_missing = 0;
    }

    /// Notes the points that a slice has left open, and whether it has brought anything new.
    pub fn note_slice(&mut self, missing: Vec<String>, has_evidence: bool) {
        self.without_evidence = if has_evidence { 0 } else { self.without_evidence + 1 };
        let is_same = !missing.is_empty() && missing == self.last_missing;
        self.same_missing = if is_same { self.same_missing + 1 } else { 1 };
        self.last_missing = missing;
    }

    /// Describes the state to the user in a sentence.
    pub fn notice(&self) -> String {
        let progress = self.progress();
        match &self.status {
            GoalStatus::Active => {
                format!("Goal, slice {} of {}: {progress}.", self.slices, self.max_slices)
            }
            GoalStatus::Paused(why) => {
                format!("The goal is paused: {why}. `/goal resume` goes on.")
            }
            GoalStatus::Met => format!("The goal is met: {progress}."),
            GoalStatus::Ended(why) => format!("The goal ended {why} and is not met: {progress}."),
        }
    }

    /// The requirements, each in a line with its number and its proof.
    pub fn requirement_list(&self) -> String {
        let lines = (1..).zip(&self.requirements).map(|(number, requirement)| {
            let evidence = requirement.evidence.as_ref();
            let proof = evidence.map(|evidence| format!(" (proven: {evidence})"));
            format!("{number}. {}{}\n", requirement.text, proof.unwrap_or_default())
        });
        lines.collect()
    }

    fn progress(&self) -> String {
        match &self.check {
            Some(command) if self.status == GoalStatus::Met => {
                format!("`{}` succeeds", escape_hidden_line(command))
            }
            Some(_) => "the check fails".to_owned(),
            None if self.requirements.is_empty() => "nothing is proven".to_owned(),
            None => {
                let proven = self.requirements.iter().filter(|one| one.evidence.is_some()).count();
                format!("{proven} of {} requirements are proven", self.requirements.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_sentence() {
        let requirement = |evidence: Option<&str>| GoalRequirement {
            text: "x".to_owned(),
            evidence: evidence.map(str::to_owned),
        };
        let judged = GoalState {
            requirements: vec![requirement(Some("a.rs:1")), requirement(None)],
            slices: 2,
            max_slices: 20,
            ..GoalState::default()
        };
        let checked = GoalState { check: Some("make test".to_owned()), ..judged.clone() };
        let ended = GoalStatus::Ended("at its limit of 20 turns".to_owned());
        for (goal, status, expected) in [
            (&judged, GoalStatus::Active, "Goal, slice 2 of 20: 1 of 2 requirements are proven."),
            (&checked, GoalStatus::Active, "Goal, slice 2 of 20: the check fails."),
            (&checked, GoalStatus::Met, "The goal is met: `make test` succeeds."),
            (
                &judged,
                GoalStatus::Paused("you have cancelled it".to_owned()),
                "The goal is paused: you have cancelled it. `/goal resume` goes on.",
            ),
            (
                &judged,
                ended,
                "The goal ended at its limit of 20 turns and is not met: 1 of 2 requirements are proven.",
            ),
        ] {
            assert_eq!(GoalState { status, ..goal.clone() }.notice(), expected);
        }
    }

    #[test]
    fn slices_that_lead_nowhere_are_counted_until_one_does() {
        let mut goal = GoalState::default();
        let mut counts = Vec::new();
        for (missing, has_evidence) in
            [("a", false), ("a", false), ("b", false), ("b", true), ("", false), ("", false)]
        {
            let missing = missing.split_whitespace().map(str::to_owned).collect();
            goal.note_slice(missing, has_evidence);
            counts.push((goal.without_evidence, goal.same_missing));
        }
        assert_eq!(counts, [(1, 1), (2, 2), (3, 1), (0, 2), (1, 1), (2, 1)]);
        goal = GoalState { slices: 2, max_slices: 2, ..goal };
        goal.resume(3);
        assert_eq!((goal.without_evidence, goal.max_slices), (0, 5));
        goal.resume(3);
        assert_eq!(goal.max_slices, 5, "some are left");
    }

    #[test]
    fn what_an_older_program_has_left_out_is_nothing() {
        let goal: GoalState = serde_json::from_str(r#"{"text":"x","status":"met"}"#).unwrap();
        let text = "x".to_owned();
        let expected = GoalState { text, status: GoalStatus::Met, ..GoalState::default() };
        assert_eq!(goal, expected);
        let paused = GoalStatus::Paused("why".to_owned());
        assert_eq!(serde_json::to_string(&paused).unwrap(), r#"{"paused":"why"}"#);
    }
}
