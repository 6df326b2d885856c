//! A tool's schema from any JSON. What goes out is small and is taken as it is the next time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use turnwright::llm::inside::portable;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(schema) = serde_json::from_slice::<Value>(bytes) {
        let once = portable(&schema);
        assert_eq!(once["type"], "object");
        assert_eq!(portable(&once), once);
        assert!(once.to_string().len() < 512 * 1024);
    }
});
