//! Ensures that each call of an answer gets exactly one result.

use turnwright_types::message::{Media, ToolCall, ToolMessage};

/// The result of one call, as the model gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallResult {
    pub(super) ok: bool,
    pub(in crate::turn) text: String,
    pub(super) images: Vec<Media>,
}

impl CallResult {
    fn not_run(reason: &str) -> CallResult {
        CallResult { ok: false, text: reason.to_owned(), images: Vec::new() }
    }
}

/// The calls of one answer and their results. A provider rejects a history in which a call has no
/// result, so [`CallResults::close`], which leaves none without, is the only way to get the results
/// out.
#[must_use = "close the ledger or the next request will be invalid"]
#[derive(Debug)]
pub(super) struct CallResults {
    entries: Vec<(ToolCall, Option<CallResult>)>,
}

impl CallResults {
    pub(in crate::turn) fn open(calls: Vec<ToolCall>) -> CallResults {
        CallResults { entries: calls.into_iter().map(|call| (call, None)).collect() }
    }

    /// Sets the result of a call unless it has one: a tool that finishes while it is being
    /// cancelled may report twice. Returns the call if the result was set.
    pub(super) fn settle(&mut self, number: usize, result: CallResult) -> Option<&ToolCall> {
        match self.entries.get_mut(number) {
            Some((call, slot)) if slot.is_none() => {
                *slot = Some(result);
                Some(call)
            }
            _ => None,
        }
    }

    /// Returns the results in the order of the calls; calls without a result get this reason.
    pub(super) fn close(self, reason: &str) -> impl Iterator<Item = ToolMessage> {
        self.entries.into_iter().map(move |(call, result)| {
            let result = result.unwrap_or_else(|| CallResult::not_run(reason));
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
