//! Real processes: that they run, and above all that they end.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::*;

fn spec(command: &str) -> Spec {
    let variables = [("PATH".into(), "/usr/bin:/bin".into())];
    Spec {
        command: command.to_owned(),
        workdir: "/tmp".into(),
        limit: Duration::from_secs(20),
        environment: Environment::scrubbed(variables, &[]),
    }
}

async fn finish(spec: Spec) -> Finished {
    run(&spec, &CancellationToken::new(), |_| {}).await.unwrap()
}

/// Whether a `sleep` of this many seconds is alive. The shell that starts it does not count.
fn is_alive(seconds: &str) -> bool {
    let word = &format!("sleep\0{seconds}");
    if cfg!(not(target_os = "linux")) {
        return ps().contains(&word.replace('\0', " "));
    }
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.filter_map(Result::ok).any(|it| {
        let path = it.path().join("cmdline");
        std::fs::read(path).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    })
}

#[expect(clippy::disallowed_methods, reason = "a test looks at all processes")]
fn ps() -> String {
    let output = std::process::Command::new("ps").args(["-axo", "command"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn wait_until_dead(word: &str) {
    let begun = Instant::now();
    while is_alive(word) {
        assert!(begun.elapsed() < Duration::from_secs(5), "{word} is still alive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn output_of_both_streams_comes_in_order_with_the_exit_code() {
    let done = finish(spec("echo one; echo two >&2; echo three; exit 3")).await;
    assert_eq!(done.output.text(), "one\ntwo\nthree\n");
    assert!(matches!(done.ended, Ended::Exited(status) if status.code() == Some(3)));
}

#[tokio::test]
async fn stdin_is_empty_and_there_is_no_terminal() {
    let done = finish(spec("cat; (: < /dev/tty) 2>/dev/null && echo terminal; echo end")).await;
    assert_eq!(done.output.text(), "end\n");
}

#[tokio::test]
async fn a_background_child_that_holds_the_pipe_does_not_wedge_and_is_ended() {
    let begun = Instant::now();
    let done = finish(spec("sleep 611.25 & echo started")).await;
    assert_eq!(done.output.text(), "started\n");
    assert!(begun.elapsed() < Duration::from_secs(5));
    wait_until_dead("611.25").await;
}

#[tokio::test]
async fn a_cancelled_command_is_ended_with_all_its_children() {
    let cancel = CancellationToken::new();
    let cancel_soon = async {
        while !is_alive("612.25") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let spec = spec("echo begun; sleep 612.25 & sleep 612.25");
    let (done, ()) = tokio::join!(run(&spec, &cancel, |_| {}), cancel_soon);
    let done = done.unwrap();
    assert_eq!(done.ended, Ended::Cancelled);
    assert_eq!(done.output.text(), "begun\n");
    wait_until_dead("612.25").await;
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed() {
    let mut spec = spec("trap '' TERM; echo deaf; sleep 613.25; sleep 613.25");
    spec.limit = Duration::from_millis(300);
    let done = finish(spec).await;
    assert_eq!(done.ended, Ended::TimedOut);
    wait_until_dead("613.25").await;
}

#[tokio::test]
async fn dropping_the_future_kills_the_group() {
    let spec = spec("sleep 614.25 & sleep 614.25");
    let cancel = CancellationToken::new();
    let running = run(&spec, &cancel, |_| {});
    drop(tokio::time::timeout(Duration::from_millis(200), running).await);
    wait_until_dead("614.25").await;
}

#[tokio::test]
async fn endless_output_is_bounded_and_can_be_stopped() {
    let mut spec = spec("yes");
    spec.limit = Duration::from_millis(300);
    let done = finish(spec).await;
    assert_eq!(done.ended, Ended::TimedOut);
    assert!(done.output.is_cut() && done.output.text().len() < 64 * 1024);
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_an_error_and_not_a_panic() {
    let mut spec = spec("true");
    spec.workdir = "/nowhere".into();
    assert!(run(&spec, &CancellationToken::new(), |_| {}).await.is_err());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_has_left_the_group_is_ended_too() {
    let command = "setsid sleep 615.25 & set -m; sleep 616.25 & (setsid sh -c 'sleep 617.25 & exit' &); \
                   while ! grep -qsa '^sleep.617.25' /proc/[0-9]*/cmdline; do :; done; echo started";
    let done = finish(spec(command)).await;
    assert_eq!(done.output.text(), "started\n");
    for seconds in ["615.25", "616.25", "617.25"] {
        wait_until_dead(seconds).await;
    }
}
