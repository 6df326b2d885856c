//! Lets git sign in a command that is allowed to.

use std::path::Path;

use super::ConfinementBuilder;
use crate::signing::SigningService;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::files::SessionTmp;
use turnwright_workspace::real_path;

impl ConfinementBuilder<'_> {
    /// Adds the service that signs for the command, with the user's own programs.
    pub(super) fn add_signing(
        &self,
        profile: &mut SandboxProfile,
        variables: &mut Vec<(&'static str, String)>,
    ) -> Result<Option<SigningService>, ToolRefusal> {
        if !self.further.sign {
            return Ok(None);
        }
        let env = self.env;
        let tmp = env.files.roots().session_tmp().and_then(SessionTmp::known_folder);
        let mut writable = self.writable_folders();
        writable.extend(profile.writable.iter().cloned());
        writable.extend(tmp.map(Path::to_path_buf));
        writable.extend(real_path(&env.shared.confinement.private_caches).ok());
        let created = SigningService::create(&env.shared.command_environment, writable, tmp);
        let service = created.map_err(|error| {
            format!("Nothing was run: nothing can be signed: {}", io_error_text(&error))
        })?;
        variables.extend(service.variables());
        show(&service, profile);
        Ok(Some(service))
    }
}

/// Lets a command see the service and connect to it.
fn show(signing: &SigningService, profile: &mut SandboxProfile) {
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
