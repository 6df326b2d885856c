//! The stored form of entries. An entry is one field, whose name is the column `kind`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::json::{self, stored_as};
use crate::{Audience, Entry};
use turnwright_types::effect::CallView;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::Message;
use turnwright_types::update::{PlanEntry, PlanPriority, PlanStatus};

stored_as!(
    Entry => EntryJson,
    Audience => AudienceJson,
    PlanEntry => PlanEntryJson,
    PlanPriority => PlanPriorityJson,
    PlanStatus => PlanStatusJson,
);

#[derive(Deserialize, Serialize)]
#[serde(remote = "Entry", rename_all = "snake_case")]
enum EntryJson {
    Message {
        #[serde(with = "json")]
        id: MessageId,
        #[serde(with = "json")]
        message: Arc<Message>,
        #[serde(default, with = "json")]
        audience: Audience,
    },
    Note {
        #[serde(with = "json")]
        id: MessageId,
        text: String,
    },
    #[serde(rename = "lost")]
    IncompleteCall {
        #[serde(with = "json")]
        call: CallId,
        name: String,
        #[serde(with = "json")]
        view: CallView,
        #[serde(rename = "why")]
        reason: String,
    },
    Plan {
        #[serde(with = "json")]
        entries: Vec<PlanEntry>,
    },
    Cleared,
    Compacted {
        #[serde(with = "json")]
        id: MessageId,
        #[serde(with = "json")]
        replacement: Arc<Message>,
        kept: usize,
        max_result: usize,
    },
    Pruned {
        kept: usize,
    },
    ImagesLeftOut,
    SomeImagesLeftOut {
        images: Vec<usize>,
    },
    Refused,
    Rewound {
        to: u64,
    },
    RewindUndone {
        rewind: u64,
    },
    #[serde(skip)]
    Unknown,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Audience", rename_all = "snake_case")]
enum AudienceJson {
    Both,
    User,
    Model,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanEntry")]
struct PlanEntryJson {
    content: String,
    #[serde(with = "json")]
    priority: PlanPriority,
    #[serde(with = "json")]
    status: PlanStatus,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanPriority", rename_all = "snake_case")]
enum PlanPriorityJson {
    High,
    Medium,
    Low,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "PlanStatus", rename_all = "snake_case")]
enum PlanStatusJson {
    Pending,
    InProgress,
    Completed,
}
