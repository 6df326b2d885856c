//! Each call is owed exactly one result.

use turnwright_types::message::{Media, ToolCall, ToolMessage};

/// What a call came to, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolResult {
    pub(super) ok: bool,
    pub(super) text: String,
    pub(super) images: Vec<Media>,
}

impl ToolResult {
    fn not_run(reason: &str) -> ToolResult {
        ToolResult { ok: false, text: reason.to_owned(), images: Vec::new() }
    }
}

/// The calls of one answer. A provider rejects a history in which a call has no result, so the
/// only way to get the results out is [`Ledger::close`], which leaves none unanswered.
#[must_use = "close the ledger or the next request will be invalid"]
#[derive(Debug)]
pub(super) struct Ledger {
    entries: Vec<(ToolCall, Option<ToolResult>)>,
}

impl Ledger {
    pub(super) fn open(calls: Vec<ToolCall>) -> Ledger {
        Ledger { entries: calls.into_iter().map(|call| (call, None)).collect() }
    }

    /// The calls that have no result yet.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = &ToolCall> {
        self.entries.iter().filter(|(_, result)| result.is_none()).map(|(call, _)| call)
    }

    /// The first result of a call stands: a tool that finishes while it is being cancelled may
    /// report twice. Returns the call if this one stands.
    pub(super) fn settle(&mut self, number: usize, result: ToolResult) -> Option<&ToolCall> {
        match self.entries.get_mut(number) {
            Some((call, slot)) if slot.is_none() => {
                *slot = Some(result);
                Some(call)
            }
            _ => None,
        }
    }

    /// The results in the order of the calls; those that have none get this reason.
    pub(super) fn close(self, reason: &str) -> impl Iterator<Item = ToolMessage> {
        self.entries.into_iter().map(move |(call, result)| {
            let result = result.unwrap_or_else(|| ToolResult::not_run(reason));
            ToolMessage {
                call: call.id,
                provider_id: call.provider_id,
                name: call.name,
                text: result.text,
                ok: result.ok,
                images: result.images,
            }
        })
    }
}
