//! `[lsp]`: which language servers say what an edit has broken.

use std::num::NonZeroU32;

use serde::Deserialize;

use crate::table::settings;
use crate::wrong_values::wrong_lsp;
use turnwright_types::work_settings::LspMode;

/// The memory that a server may hold, in MiB.
const DEFAULT_MEMORY_MB: u32 = 4096;

settings! {
    /// `[lsp]`.
    #[derive(Debug, Deserialize)]
    #[serde(default)]
    pub section LspSection {
        pub(crate) mode: Option<String> => wrong_lsp {
            words: (LspMode::ALL.map(LspMode::id)),
            default: (LspMode::default().id()),
        } wrong [r#"lsp.mode = "maybe""#]
            "The language servers that check edits: auto takes those that are installed, in trusted projects.",
            "the language servers that [check edits](diagnostics.md): `off`, `auto` (default: those that are \
             installed, in projects that you trust) or `on` (in every project)";
        pub(crate) memory_mb: Option<NonZeroU32> { default: DEFAULT_MEMORY_MB } wrong ["lsp.memory_mb = 0"]
            "How much memory a language server may hold, in MiB.",
            "a language server that holds more memory than this, in MiB, is stopped (Linux); 4096";
    }
}

impl LspSection {
    pub fn mode(&self) -> LspMode {
        self.mode.as_deref().and_then(LspMode::parse).unwrap_or_default()
    }

    /// The most bytes of memory that a server may hold.
    pub fn memory(&self) -> u64 {
        u64::from(self.memory_mb.map_or(DEFAULT_MEMORY_MB, NonZeroU32::get)) << 20
    }
}
