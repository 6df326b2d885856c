//! Formats sizes for people.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Formats a number of bytes in a readable unit, rounded to a tenth: `12 bytes`, `1.5 KiB`, `3 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let tenths_of = |unit: u64| (u128::from(bytes) * 10 + u128::from(unit / 2)) / u128::from(unit);
    let (tenths, name) = match bytes {
        0..1_024 => return format!("{bytes} bytes"),
        _ if tenths_of(KIB) < 10_240 => (tenths_of(KIB), "KiB"),
        _ if tenths_of(MIB) < 10_240 => (tenths_of(MIB), "MiB"),
        _ => (tenths_of(GIB), "GiB"),
    };
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rounded_to_the_nearest_tenth() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1 KiB"),
            (1_500, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            ((12 << 20) + 2, "12 MiB"),
            (1 << 30, "1 GiB"),
            ((1 << 30) + (1 << 29), "1.5 GiB"),
            (1 << 50, "1048576 GiB"),
            (u64::MAX, "17179869184 GiB"),
        ] {
            assert_eq!(format_bytes(bytes), expected);
        }
    }
}
