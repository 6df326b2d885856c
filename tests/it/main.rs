//! The integration tests: they run the binary on real pipes, with an HTTP server on loopback, real files
//! and real commands. `agent` is the client, `scripted_model` (from `examples/`) the model. Every line that
//! the agent writes is checked against the protocol's schema.
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
mod ask_user;
mod asking;
mod arguments;
mod auth;
mod buffers;
mod cancel;
mod cancel_phases;
mod cancel_request;
#[cfg(target_os = "linux")]
mod canary;
mod cards;
mod checkpoint;
mod client_files;
mod commands;
mod config;
mod crash;
mod content;
mod doctor;
mod edit_file;
mod ended;
#[cfg(target_os = "linux")]
mod endurance;
mod error_texts;
mod errors;
mod escapes;
mod examples;
mod export;
mod history;
mod hostile;
mod hostile_repository;
mod initialize;
mod instructions;
#[cfg(target_os = "linux")]
mod jail;
mod jail_proof;
mod jobs;
mod learned;
mod mcp;
mod mcp_attack;
mod mcp_life;
mod mcp_elicit;
mod mcp_late;
mod mcp_hostile;
mod mcp_http;
mod mcp_http_stub;
#[cfg(unix)]
mod mcp_oauth;
mod mcp_tools;
mod mcp_command;
mod mcp_config;
mod mcp_prompts;
mod mcp_permission;
mod mcp_project;
mod mcp_server;
mod mcp_resources;
mod mcp_rows;
mod media;
mod memory;
mod models;
mod modes;
mod move_delete;
mod nothing_written;
mod old_database;
mod patch;
mod permission;
mod permission_races;
mod plan;
mod protected;
mod policy_cli;
mod provider;
mod providers;
mod queue;
mod raw_server;
mod read_file;
mod readme;
mod responses;
mod round_trip;
mod rules;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod sandboxed;
mod schema;
#[path = "../../examples/scripted_model.rs"]
mod scripted_model;
mod search;
mod seed_history;
mod session;
mod sessions_cli;
mod sessions;
mod sessions_folders;
mod sessions_list;
#[cfg(target_os = "linux")]
mod shell_differential;
#[cfg(target_os = "linux")]
mod shutdown;
mod skills;
mod side_by_side;
mod slash_commands;
#[cfg(target_os = "linux")]
mod stalled_mount;
mod store;
mod strict;
#[cfg(target_os = "linux")]
mod symlink_race;
#[cfg(target_os = "linux")]
mod terminals;
mod tidy;
mod tool_search;
mod tools;
mod transport;
mod trust;
#[cfg(target_os = "linux")]
mod traps;
mod trouble;
mod trouble_bytes;
mod trouble_stream;
mod turn;
mod undo;
mod usage;
mod web_app;
mod web_fetch;
mod write_file;
