//! Any bytes as the files that git keeps: none of them may break what reads them, and what comes
//! out is bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::checkpoint::inside;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 5 {
        0 => drop(inside::names(bytes)),
        1 => drop(inside::loose(bytes)),
        2 => {
            let Some((hash, index)) = bytes.split_first_chunk() else { return };
            let _place = inside::offset(index, hash);
        }
        3 => {
            let Some((offset, pack)) = bytes.split_first() else { return };
            let piece = inside::piece(pack, u64::from(*offset));
            assert!(piece.is_none_or(|it| it.len() <= 10 << 20));
        }
        _ => {
            let Some((length, rest)) = bytes.split_first() else { return };
            let Some((base, delta)) = rest.split_at_checked(usize::from(*length)) else { return };
            let made = inside::delta(base, delta);
            assert!(made.is_none_or(|it| it.len() <= 10 << 20));
        }
    }
});
