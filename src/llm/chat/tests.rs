//! Chat completions against every oddity.
