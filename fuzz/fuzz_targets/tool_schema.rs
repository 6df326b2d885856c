//! Any JSON as a tool's schema. The converted schema is small, and converting it again is a no-op.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use turnwright_llm::internals::provider_safe_schema;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(schema) = serde_json::from_slice::<Value>(bytes) {
        let once = provider_safe_schema(&schema);
        assert_eq!(once["type"], "object");
        assert_eq!(provider_safe_schema(&once), once);
        assert!(once.to_string().len() < 512 * 1024);
    }
});
