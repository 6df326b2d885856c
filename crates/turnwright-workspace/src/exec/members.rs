//! Finds running processes of a group. To the kernel a zombie is a member as well, and its parent
//! may be slow to reap it or be stopped itself.

use rustix::process::Pid;

/// True if any process of the group is running. Takes a few milliseconds, so it must not run on the
/// runtime's thread.
#[cfg(target_os = "linux")]
pub(super) fn has_running_process(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes
        .filter_map(Result::ok)
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .any(|process| is_running_member(process, group))
}

/// True if the process is running and belongs to the group.
#[cfg(target_os = "linux")]
pub(super) fn is_running_member(process: Pid, group: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| {
        member_state(&stat, group).is_some_and(|state| !matches!(state, b'Z' | b'X' | b'x'))
    })
}

/// Elsewhere there is no simple way to tell running processes from zombies.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_running_process(_: Pid) -> bool {
    true
}

/// The state of a process, if it is a member of the group. The line is `number (name) state parent
/// group …`, and the name may contain anything.
#[cfg(target_os = "linux")]
fn member_state(stat: &[u8], group: Pid) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    let its_group = fields.nth(1)?.parse::<i32>().ok()?;
    (its_group == group.as_raw_nonzero().get()).then_some(state)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let group = Pid::from_raw(77).unwrap();
        assert_eq!(member_state(b"5 (a) Z 1 77) S 4 77 5 0", group), Some(b'S'));
        assert_eq!(member_state(b"5 (a) Z 4 77 5 0", group), Some(b'Z'));
        assert_eq!(member_state(b"5 (a) S 77 78 77 0", group), None);
        assert_eq!(member_state(b"", group), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn zombies_do_not_count() {
        use std::os::unix::process::CommandExt;
        // Nobody reaps it, so it stays a zombie.
        let mut child =
            std::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(has_running_process(group));
        child.kill().unwrap();
        let begun = std::time::Instant::now();
        while has_running_process(group) {
            assert!(begun.elapsed().as_secs() < 60, "a zombie is taken for a running process");
        }
        assert!(rustix::process::test_kill_process_group(group).is_ok(), "it was no zombie");
        child.wait().unwrap();
    }
}
