//! Which version of the protocol a connection speaks. The first `initialize` fixes it.

use serde_json::Value;

use super::methods::INITIALIZE;
use turnwright_rpc::Params;

/// A version that we speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    V1,
    V2,
}

/// Returns true if this request asks for a version whose answer depends on the settings: any but 1.
pub(super) fn is_open_to_choice(method: &str, params: &Params) -> bool {
    method == INITIALIZE && requested(params).is_some_and(|version| version != 1)
}

/// The highest version that we speak and that is not above the requested one (R-TWO-2). `None` if there is
/// none. Version 1 judges parameters that have no version. Without version 2 it is the answer to everything
/// (R-INIT-4), and with it the answer to a version above ours in the form of version 1.
pub(super) fn choose(params: &Params, allows_v2: bool) -> Option<Version> {
    match requested(params) {
        Some(0) if allows_v2 => None,
        Some(3..) if allows_v2 && !params.read().is_ok_and(|params| has_newer_form(&params)) => {
            Some(Version::V1)
        }
        Some(2..) if allows_v2 => Some(Version::V2),
        _ => Some(Version::V1),
    }
}

/// Returns true if the parameters of `initialize` have a field that version 1 does not know.
pub(super) fn has_newer_form(params: &Value) -> bool {
    params.get("info").is_some() || params.get("capabilities").is_some()
}

fn requested(params: &Params) -> Option<u16> {
    let params: Value = params.read().ok()?;
    u16::try_from(params.get("protocolVersion")?.as_u64()?).ok()
}
