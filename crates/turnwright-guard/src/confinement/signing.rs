//! Lets git sign in a command that is allowed to.

use std::path::Path;
use std::sync::Arc;

use super::ConfinementBuilder;
use crate::signing::SigningService;
use crate::watch::sandbox_denial::{self, ReachedLimit};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::error_text::io_error_text;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::files::SessionTmp;
use turnwright_workspace::real_path;

/// The means by which git gets its signatures in a command.
#[derive(Debug, Default)]
pub(crate) struct CommandSigning {
    /// Signs while the command runs; taken when that has begun.
    service: Option<SigningService>,
    /// True if there is, or was, a service.
    is_open: bool,
    /// Why there is none, although the command may sign.
    fault: Option<String>,
}

impl CommandSigning {
    pub(crate) fn take_service(&mut self) -> Option<SigningService> {
        self.service.take()
    }

    /// The part of a command's limits that is about signing.
    pub(super) fn limit(&self) -> &'static str {
        if self.is_open { "; signing" } else { "" }
    }

    /// A note that git could not sign; `None` if the output does not say so, or if the sandbox is not the reason.
    pub(crate) fn denial(&self, output: &str) -> Option<ReachedLimit> {
        let limit = sandbox_denial::failed_signature(output).filter(|_| !self.is_open)?;
        Some(match &self.fault {
            Some(why) => ReachedLimit::denied(&format!("git signs nothing: {why}"), "full"),
            None => limit,
        })
    }
}

impl ConfinementBuilder<'_> {
    /// Adds the service that signs for the command, with the user's own programs. Without it the command runs all the
    /// same, unless it was asked for.
    pub(super) fn add_signing(
        &self,
        profile: &mut SandboxProfile,
        variables: &mut Vec<(&'static str, String)>,
    ) -> Result<CommandSigning, ToolRefusal> {
        if !self.further.sign {
            return Ok(CommandSigning::default());
        }
        let site = self.site;
        let opened = &site.opened_places;
        let tmp = site.roots.session_tmp().and_then(SessionTmp::known_folder);
        opened.add(self.writable_folders());
        opened.add(tmp.map(Path::to_path_buf));
        opened.add(real_path(&site.settings.private_caches));
        let folders = site.roots.folders().map(Path::to_path_buf).collect();
        let created = SigningService::create(
            &site.environment,
            &site.state_folder,
            folders,
            Arc::clone(opened),
        );
        match created {
            Ok(service) => {
                variables.extend(service.variables());
                show(&service, profile);
                Ok(CommandSigning { service: Some(service), is_open: true, fault: None })
            }
            Err(error) => {
                let why = io_error_text(&error);
                if self.command.extra_access.sign {
                    return Err(format!("Nothing was run: nothing can be signed: {why}").into());
                }
                Ok(CommandSigning { fault: Some(why), ..CommandSigning::default() })
            }
        }
    }
}

/// Lets a command see the service and connect to it.
fn show(signing: &SigningService, profile: &mut SandboxProfile) {
    let [socket, program, folder] = signing.places();
    profile.sockets.push(socket);
    // The agent's own files, in which the folder lies, are hidden.
    profile.unhidden.push(folder.clone());
    if let Some(readable) = &mut profile.readable {
        readable.extend([program, folder]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_says_why_git_has_not_signed() {
        let fault = Some("no place for the socket".to_owned());
        let closed = CommandSigning::default();
        let broken = CommandSigning { fault, ..CommandSigning::default() };
        let open = CommandSigning { is_open: true, ..CommandSigning::default() };
        let failed = "error: gpg failed to sign the data\nfatal: failed to write commit object\n";
        for (signing, output, expected) in [
            (&closed, failed, Some(("the user's keys are out of reach", "sign"))),
            (&broken, failed, Some(("git signs nothing: no place for the socket", "full"))),
            (&open, failed, None),
            (&closed, "fatal: not a git repository", None),
            (&broken, "", None),
        ] {
            let limit = signing.denial(output);
            assert_eq!(limit.is_some(), expected.is_some(), "{output}: {limit:?}");
            if let (Some(limit), Some((begin, escalate))) = (limit, expected) {
                assert!(limit.for_user.starts_with(&format!("[sandbox: {begin}")), "{limit:?}");
                assert!(limit.for_model.contains(&format!("\"escalate\": \"{escalate}\"")));
            }
        }
    }
}
