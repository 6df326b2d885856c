//! Lets git sign in a command that may.

use super::{ConfinementBuilder, base_environment};
use crate::signing::SigningService;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::files::SessionTmp;

/// Variables with which git would read the settings of a repository for the user's, and ask nobody for a passphrase.
const REPOSITORY_VARIABLES: &[&str] = &[
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "SSH_ASKPASS_REQUIRE",
];

impl ConfinementBuilder<'_> {
    /// The service that signs for the command, with the user's own programs.
    pub(super) fn signing(&self) -> Result<Option<SigningService>, ToolRefusal> {
        if !self.further.sign {
            return Ok(None);
        }
        let trusted = base_environment(self.env, true, &self.real_paths);
        let path = trusted.get("PATH").unwrap_or_default();
        let environment = self.env.command_environment.without(REPOSITORY_VARIABLES);
        let environment = environment.with("PATH", path);
        let untrusted = self.writable_folders().into_iter().chain(self.write.clone());
        let tmp = self.env.files.roots().session_tmp().and_then(SessionTmp::known_folder);
        let created = SigningService::create(environment, untrusted.collect(), tmp);
        created.map(Some).map_err(|error| {
            format!("Nothing was run: nothing can be signed: {}", io_error_text(&error)).into()
        })
    }
}

/// Lets a command see the service, and connect to it.
pub(super) fn show(signing: &SigningService, profile: &mut SandboxProfile) {
    let [socket, program, folder] = signing.places();
    profile.sockets.push(socket);
    for place in [program, folder] {
        if let Some(tmp) = &mut profile.private_tmp {
            tmp.shown.push(place.clone());
        }
        if let Some(readable) = &mut profile.readable {
            readable.push(place);
        }
    }
}
