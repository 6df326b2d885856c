//! A call whose answer is kept in a recording, or comes from one. In a replay, no part of the tool runs that
//! could touch a file, a command or a server.

use serde_json::Value;

use crate::recording::Playback;
use crate::tools::{
    ToolCtx, ToolOutcome, outcome_json, preview_json, read_outcome, read_preview, read_view,
    view_json,
};
use turnwright_types::effect::{CallContent, CallView};
use turnwright_types::refusal::ToolRefusal;

/// The result of a call that a recording does not have.
const UNRECORDED: &str =
    "This call is not in the recording, and nothing is done while one is played back.";

/// The kinds of answers that a recording has.
const VIEW: &str = "view";
const PREVIEW: &str = "preview";
const RESULT: &str = "result";

/// A call and the recording.
pub(super) struct KeptCall<'a> {
    ctx: &'a ToolCtx,
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
        arguments.map(|arguments| KeptCall { ctx, tool, arguments })
    }

    fn playback(&self) -> Option<&Playback> {
        self.ctx.env.shared.process.recording.playback_of(self.tool).map(AsRef::as_ref)
    }

    pub(super) fn is_played(&self) -> bool {
        self.playback().is_some()
    }

    /// The view of the call: the recorded one in a replay, else this one, which is recorded.
    pub(super) fn view(&self, now: CallView) -> CallView {
        if let Some(playback) = self.playback() {
            return playback
                .view(self.tool, self.arguments)
                .map_or(now, |recorded| read_view(&recorded));
        }
        self.record(VIEW, || view_json(&now));
        now
    }

    /// The recorded preview of the call; `None` if this is no replay.
    pub(super) fn recorded_preview(&self) -> Option<Result<Vec<CallContent>, ToolRefusal>> {
        let recorded = self.playback()?.preview(self.tool, self.arguments);
        Some(recorded.map_or(Ok(Vec::new()), |preview| read_preview(&preview)))
    }

    /// The recorded answer of the tool.
    pub(super) async fn recorded_outcome(&self) -> ToolOutcome {
        let recorded = match self.playback() {
            Some(playback) => playback.result(self.tool, self.arguments).await,
            None => None,
        };
        recorded.map_or_else(|| ToolOutcome::failed(UNRECORDED), |outcome| read_outcome(&outcome))
    }

    pub(super) fn record_preview(&self, preview: &Result<Vec<CallContent>, ToolRefusal>) {
        // Most tools have nothing to show before they run.
        if preview.as_ref().map_or(true, |content| !content.is_empty()) {
            self.record(PREVIEW, || preview_json(preview));
        }
    }

    pub(super) fn record_outcome(&self, outcome: &ToolOutcome) {
        self.record(RESULT, || outcome_json(outcome));
    }

    fn record(&self, what: &'static str, answer: impl FnOnce() -> Value) {
        if let Some(recorder) = self.ctx.env.shared.process.recording.recorder_of(self.tool) {
            recorder.record_call(what, self.tool, self.arguments, answer());
        }
    }
}
