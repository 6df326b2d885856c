//! A call whose answers are kept, or were kept before. If they are given, no part of the tool runs that could
//! touch a file, a command or a server.

use serde_json::Value;

use crate::tools::{
    ToolCtx, ToolOutcome, outcome_json, preview_json, read_outcome, read_preview, read_view,
    view_json,
};
use turnwright_recording::outside::{AnswerKind, Keeping, Outside};
use turnwright_types::effect::{CallContent, CallView};
use turnwright_types::refusal::ToolRefusal;

/// A call and its kept answers.
pub(super) struct KeptCall<'a> {
    answers: &'a dyn Outside,
    tool: &'a str,
    arguments: &'a Value,
}

impl<'a> KeptCall<'a> {
    /// The call, if it has arguments to find it by.
    pub(super) fn of(
        ctx: &'a ToolCtx,
        tool: &'a str,
        arguments: Option<&'a Value>,
    ) -> Option<KeptCall<'a>> {
        let answers = ctx.env.shared.process.outside.as_ref();
        arguments.map(|arguments| KeptCall { answers, tool, arguments })
    }

    /// Returns true if kept answers take the place of the tool.
    pub(super) fn is_played(&self) -> bool {
        self.answers.keeping(self.tool) == Keeping::Given
    }

    /// The view of the call: the kept one if it is given, else this one, which is kept.
    pub(super) fn view(&self, now: CallView) -> CallView {
        if self.is_played() {
            return self.given(AnswerKind::View).map_or(now, |given| read_view(&given));
        }
        self.note(AnswerKind::View, &|| view_json(&now));
        now
    }

    /// The kept preview of the call; `None` if the tool gives it.
    pub(super) fn recorded_preview(&self) -> Option<Result<Vec<CallContent>, ToolRefusal>> {
        if !self.is_played() {
            return None;
        }
        let given = self.given(AnswerKind::Preview);
        Some(given.map_or(Ok(Vec::new()), |preview| read_preview(&preview)))
    }

    /// The kept answer of the tool.
    pub(super) async fn recorded_outcome(&self) -> ToolOutcome {
        match self.answers.given_result(self.tool, self.arguments).await {
            Ok(outcome) => read_outcome(&outcome),
            Err(why) => ToolOutcome::failed(why),
        }
    }

    pub(super) fn record_preview(&self, preview: &Result<Vec<CallContent>, ToolRefusal>) {
        // Most tools have nothing to show before they run.
        if preview.as_ref().map_or(true, |content| !content.is_empty()) {
            self.note(AnswerKind::Preview, &|| preview_json(preview));
        }
    }

    pub(super) fn record_outcome(&self, outcome: &ToolOutcome) {
        self.note(AnswerKind::Result, &|| outcome_json(outcome));
    }

    fn given(&self, kind: AnswerKind) -> Option<Value> {
        self.answers.given(kind, self.tool, self.arguments)
    }

    fn note(&self, kind: AnswerKind, answer: &dyn Fn() -> Value) {
        self.answers.note(kind, self.tool, self.arguments, answer);
    }
}
