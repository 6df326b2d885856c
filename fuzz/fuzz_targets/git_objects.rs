//! Parses any bytes as files of a git repository. Nothing may panic, and results are bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_workspace::checkpoint::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 5 {
        0 => drop(fuzzing::index_paths(bytes)),
        1 => drop(fuzzing::loose_blob(bytes)),
        2 => {
            let Some((hash, index)) = bytes.split_first_chunk() else { return };
            let _offset = fuzzing::pack_offset(index, hash);
        }
        3 => {
            let Some((offset, pack)) = bytes.split_first() else { return };
            let entry = fuzzing::pack_entry(pack, u64::from(*offset));
            assert!(entry.is_none_or(|it| it.len() <= 10 << 20));
        }
        _ => {
            let Some((length, rest)) = bytes.split_first() else { return };
            let Some((base, delta)) = rest.split_at_checked(usize::from(*length)) else { return };
            let result = fuzzing::apply_delta(base, delta);
            assert!(result.is_none_or(|it| it.len() <= 10 << 20));
        }
    }
});
