//! The stored form of a call's card.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json::{self, stored_as};
use turnwright_types::effect::{CallContent, CallView, FileFate, Location, ToolKind};
use turnwright_types::ids::TerminalId;
use turnwright_types::message::Media;

stored_as!(
    CallView => CallViewJson,
    ToolKind => ToolKindJson,
    Location => LocationJson,
    CallContent => CallContentJson,
);

/// The part of [`CallOutcome`](crate::CallOutcome) that is stored as JSON in the column `card`.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct CardJson {
    #[serde(skip_serializing_if = "Vec::is_empty", with = "json")]
    pub(crate) images: Vec<Media>,
    #[serde(skip_serializing_if = "Option::is_none", with = "json")]
    pub(crate) view: Option<CallView>,
    #[serde(skip_serializing_if = "Vec::is_empty", with = "json")]
    pub(crate) content: Vec<CallContent>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) raw: Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cancelled: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "CallView")]
struct CallViewJson {
    title: String,
    #[serde(with = "json")]
    kind: ToolKind,
    #[serde(with = "json")]
    locations: Vec<Location>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "ToolKind", rename_all = "snake_case")]
enum ToolKindJson {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Fetch,
    Execute,
    Think,
    SwitchMode,
    Other,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Location")]
struct LocationJson {
    #[serde(serialize_with = "lossy_path")]
    path: PathBuf,
    line: Option<u32>,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "CallContent", rename_all = "snake_case")]
enum CallContentJson {
    Text(String),
    Diff {
        #[serde(serialize_with = "lossy_path")]
        path: PathBuf,
        old: Option<String>,
        new: String,
        #[serde(default, skip_serializing_if = "is_kept", with = "FileFateJson")]
        fate: FileFate,
    },
    Image(#[serde(with = "json")] Media),
    Terminal(#[serde(with = "json")] TerminalId),
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "FileFate", rename_all = "snake_case")]
enum FileFateJson {
    Kept,
    Deleted,
    MovedFrom(#[serde(serialize_with = "lossy_path")] PathBuf),
}

fn is_kept(fate: &FileFate) -> bool {
    *fate == FileFate::Kept
}

/// Serializes a path that is only displayed: bytes that are not UTF-8 become U+FFFD.
fn lossy_path<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
