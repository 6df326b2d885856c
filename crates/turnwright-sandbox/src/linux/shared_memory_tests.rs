//! Tests of the memory that the programs of a session share, with real processes.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use super::socket_tests::{can_test, run_in};
use super::tests::TestFolders;
use super::*;

#[test]
fn what_a_program_leaves_in_shared_memory_the_next_finds_and_other_sessions_do_not() {
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let profile = folders.profile();
    let [session, other] = [0; 2].map(|_| Arc::new(SessionNetwork::create().unwrap()));
    let run = |network: Option<&Arc<SessionNetwork>>, script: &str| {
        run_in(&folders, &profile, network, script, |_| ())
    };
    assert_eq!(run(Some(&session), "open('/dev/shm/left', 'w').write('left')"), "");
    // More often than mounts wait at first.
    for _ in 0..10 {
        let text =
            run(Some(&session), "print(open('/dev/shm/left').read(), os.listdir('/dev/shm'))");
        assert_eq!(text, "left ['left']\n");
    }
    for network in [Some(&other), None] {
        assert_eq!(run(network, "print(os.listdir('/dev/shm'))"), "[]\n");
    }
    assert!(!Path::new("/dev/shm/left").exists());
}

#[test]
fn after_all_mounts_were_held_for_too_long_older_memory_is_not_seen_again() {
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let session = Arc::new(SessionNetwork::create().unwrap());
    let run = |script: &str| run_in(&folders, &folders.profile(), Some(&session), script, |_| ());
    assert_eq!(run("open('/dev/shm/older', 'w').close()"), "");
    let [taken, given, _] = session.memory.descriptors();
    let held: Vec<_> = (0..4).map(|_| syscalls::receive_descriptor(taken).unwrap()).collect();
    assert_eq!(
        run("open('/dev/shm/newer', 'w').close(); print(os.listdir('/dev/shm'))"),
        "['newer']\n"
    );
    for mount in held {
        syscalls::send_descriptor(given, mount.as_fd()).unwrap();
    }
    for _ in 0..10 {
        assert_eq!(run("print(os.listdir('/dev/shm'))"), "['newer']\n");
    }
}

#[test]
fn shared_memory_takes_no_more_than_a_program_may_hold() {
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let script = "found = os.statvfs('/dev/shm'); print(found.f_blocks * found.f_frsize)";
    let run = |limit: Option<u64>| -> u64 {
        let network = Arc::new(SessionNetwork::create_within(limit).unwrap());
        let text = run_in(&folders, &folders.profile(), Some(&network), script, |_| ());
        text.trim().parse().unwrap()
    };
    assert_eq!(run(Some(8 << 20)), 8 << 20);
    assert_eq!(run(Some(0)), 1 << 20);
    // At most a quarter of the machine's.
    assert_eq!(run(Some(u64::MAX)), run(None));
}

#[test]
fn programs_that_run_at_the_same_time_see_the_same_memory_and_some_only_read_it() {
    if !can_test() || !namespace_support().network {
        return;
    }
    let folders = TestFolders::new();
    let profile = folders.profile();
    let session = Arc::new(SessionNetwork::create().unwrap());
    let waiting = "open('/dev/shm/first', 'w').write('x'); open('ready', 'w').close()\n\
        sys.stdin.readline(); print(sorted(os.listdir('/dev/shm')))";
    let text = run_in(&folders, &profile, Some(&session), waiting, |stdin| {
        while !folders.inside.join("ready").exists() {
            std::thread::yield_now();
        }
        let script = "open('/dev/shm/second', 'w').close(); print(open('/dev/shm/first').read())";
        assert_eq!(run_in(&folders, &profile, Some(&session), script, |_| ()), "x\n");
        let reader = SandboxProfile { writable: Vec::new(), ..profile.clone() };
        let script = "\
            try: open('/dev/shm/third', 'w')\n\
            except OSError as error: print(error.strerror, open('/dev/shm/first').read())";
        let text = run_in(&folders, &reader, Some(&session), script, |_| ());
        assert_eq!(text, "Read-only file system x\n");
        let writer = SandboxProfile { writable: vec!["/dev/shm/third".into()], ..reader };
        let script = "open('/dev/shm/third', 'w').close(); os.remove('/dev/shm/third')";
        assert_eq!(run_in(&folders, &writer, Some(&session), script, |_| ()), "");
        stdin.write_all(b"\n").unwrap();
    });
    assert_eq!(text, "['first', 'second']\n");
}
