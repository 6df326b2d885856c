//! Conversations with an agent on a thread of the test. They run the whole agent, from its first
//! line of input to its last line of output, with a scripted model and real files, but without a
//! process. Tests that need a process are in `tests/it`.
#![expect(clippy::disallowed_methods, reason = "the bans apply to the agent; tests are its client")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests"
)]

mod agent;
mod alone;
mod arguments;
mod ask_user;
mod asking;
mod auth;
mod buffers;
mod cancel;
mod cancel_phases;
mod cancel_request;
mod checkpoint;
mod client_files;
mod client_options;
mod client_provider;
mod closing;
mod compaction;
mod config;
mod content;
mod cursors;
mod custom_commands;
mod edit_file;
mod errors;
mod escapes;
mod failed_summaries;
mod goals;
mod habits;
mod harbor;
mod helpers;
mod hidden_secrets;
mod history;
mod hooks;
mod initialize;
mod instructions;
mod learned;
mod limits;
mod long_work;
mod loops;
mod mcp_http;
mod mcp_over_acp;
mod media;
mod memory;
mod models;
mod modes;
mod move_delete;
mod names;
mod odd_counts;
#[cfg(unix)]
mod offered_notes;
mod patch;
mod permission;
mod permission_races;
mod plan;
mod protected;
mod provider;
mod providers;
mod queue;
mod read_file;
mod recording;
mod remote;
mod remote_bad_input;
mod remote_http;
mod remote_servers;
mod responses;
mod round_trip;
mod rules;
mod search;
mod seed_history;
mod session;
mod session_options;
mod sessions;
mod sessions_folders;
mod sessions_list;
mod side_by_side;
mod skills;
mod small_model;
mod small_window;
mod slash_commands;
mod socket_agent;
mod socket_server;
mod steering;
mod store;
mod strict;
mod subagents;
mod suggestions;
mod surroundings;
mod tool_cards;
mod tools;
mod trouble;
mod trouble_bytes;
mod trouble_stream;
mod trust;
mod turn;
mod undo;
mod unstable;
mod usage;
mod v2;
mod v2_cancel;
mod v2_diffs;
mod v2_open;
mod v2_skills;
mod web_fetch;
mod web_search;
mod working_set;
mod waiting_prompt;
mod write_file;
