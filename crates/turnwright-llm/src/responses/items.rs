//! The items of an answer on their way, and which of them an event is about. Servers number them,
//! name them, do both or do neither; some give all the same number, some change the names.

use std::ops::Range;

use serde_json::{Value, json};

use super::wire::{Place, Sort};

/// What has come of one item.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) sort: Sort,
    index: Option<u64>,
    id: String,
    /// Whether the server has said that it begins. Some only send deltas.
    announced: bool,
    /// Whether it is whole.
    pub(super) done: bool,
    /// The parts before this one have been heard.
    pub(super) heard: u64,
    /// Where the words of a message stand among those of the answer.
    pub(super) span: Range<usize>,
    /// What sort of a message it is.
    pub(super) phase: String,
    /// What is to be sent back of reasoning.
    pub(super) blob: Option<Value>,
    /// Whether reasoning comes as a summary; its full text is then left out.
    pub(super) is_summary: Option<bool>,
    /// Which of the calls it is.
    pub(super) slot: usize,
    call_id: String,
}

impl Open {
    pub(super) fn new(sort: Sort, place: Place<'_>, slot: usize) -> Open {
        Open {
            sort,
            index: place.index,
            id: place.id.to_owned(),
            announced: false,
            done: false,
            heard: 0,
            span: 0..0,
            phase: String::new(),
            blob: None,
            is_summary: None,
            slot,
            call_id: String::new(),
        }
    }

    /// The server has described it; what was known before stays. Returns how many bytes are new.
    pub(super) fn announce(&mut self, place: Place<'_>, call_id: &str) -> usize {
        self.announced = true;
        self.index = self.index.or(place.index);
        let mut new = 0;
        for (known, told) in [(&mut self.id, place.id), (&mut self.call_id, call_id)] {
            if known.is_empty() {
                told.clone_into(known);
                new += told.len();
            }
        }
        new
    }

    /// Whether only deltas without any place have told of it.
    fn is_nowhere(&self) -> bool {
        self.index.is_none() && self.id.is_empty()
    }

    fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    fn has_index(&self, index: Option<u64>) -> bool {
        index.is_some() && self.index == index
    }

    /// Two calls with different identifiers are never the same.
    pub(super) fn is_other_call(&self, call_id: &str) -> bool {
        !call_id.is_empty() && !self.call_id.is_empty() && self.call_id != call_id
    }
}

/// The item that a delta belongs to, if it is known and not whole.
pub(super) fn of_delta(items: &[Open], sort: Sort, place: Place<'_>) -> Option<usize> {
    let last = |test: &dyn Fn(&Open) -> bool| {
        items.iter().rposition(|it| it.sort == sort && !it.done && test(it))
    };
    last(&|it| it.has_index(place.index) && it.has_id(place.id))
        .or_else(|| last(&|it| it.has_id(place.id)))
        .or_else(|| last(&|it| it.has_index(place.index)))
        .or_else(|| last(&|_| place.is_nowhere()))
}

/// Whether what is said about this place is said of a whole item once more.
pub(super) fn is_over(items: &[Open], sort: Sort, place: Place<'_>) -> bool {
    let is_here =
        |it: &Open| it.has_id(place.id) || it.has_index(place.index) || place.is_nowhere();
    let mut whole = items.iter().filter(|it| it.sort == sort && it.done);
    whole.any(is_here) && of_delta(items, sort, place).is_none()
}

/// The item that begins or ends with this description, if it is known.
pub(super) fn of_description(
    items: &[Open],
    sort: Sort,
    place: Place<'_>,
    call_id: &str,
    begins: bool,
) -> Option<usize> {
    let last = |test: &dyn Fn(&Open) -> bool| {
        items.iter().rposition(|it| it.sort == sort && !it.is_other_call(call_id) && test(it))
    };
    let is_free = |it: &Open| !(it.done || begins && it.announced);
    let is_same = |it: &Open| {
        let fits = it.index.is_none() || place.index.is_none() || it.index == place.index;
        fits && (it.has_id(place.id) || !call_id.is_empty() && it.call_id == call_id)
    };
    last(&is_same)
        .or_else(|| last(&|it| is_free(it) && it.has_index(place.index)))
        .or_else(|| last(&|it| is_free(it) && (place.is_nowhere() || it.is_nowhere())))
}

/// The items of one sort, in the order of the answer.
pub(super) fn of_sort(items: &[Open], sort: Sort) -> Vec<usize> {
    in_order(items).into_iter().filter(|it| items[*it].sort == sort).collect()
}

/// The items in the order of the answer.
fn in_order(items: &[Open]) -> Vec<usize> {
    let mut order: Vec<_> = (0..items.len()).collect();
    if items.iter().all(|it| it.index.is_some()) {
        order.sort_by_key(|it| items[*it].index);
    }
    order
}

/// What has to be kept so that the answer can be sent back item by item: reasoning verbatim, and
/// marks for the messages and calls around it. Nothing if there is nothing to tell.
pub(super) fn record(items: &[Open]) -> Vec<Value> {
    if items.iter().all(|it| it.blob.is_none() && it.phase.is_empty()) {
        return Vec::new();
    }
    in_order(items).into_iter().filter_map(|it| mark(&items[it])).collect()
}

fn mark(item: &Open) -> Option<Value> {
    match item.sort {
        Sort::Reasoning => item.blob.clone(),
        Sort::Call => Some(json!({ "type": "function_call", "slot": item.slot })),
        Sort::Message if item.span.is_empty() => None,
        Sort::Message => {
            let Range { start, end } = item.span;
            let mut mark = json!({ "type": "message", "start": start, "end": end });
            if !item.phase.is_empty() {
                mark["phase"] = json!(item.phase);
            }
            Some(mark)
        }
    }
}
