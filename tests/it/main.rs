//! The tests that need a process of the agent: real pipes, signals, exit statuses, commands, MCP servers and
//! the sandbox. Tests that need none are in `tests/stories`.
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
mod asking;
mod auth;
mod buffers;
// On Unix its command reads /proc, which macOS does not have.
#[cfg(any(target_os = "linux", windows))]
mod canary;
mod caches;
mod cancel;
mod cancel_phases;
mod cancel_request;
mod checkpoint;
mod checks;
mod commands;
mod config;
mod crash;
mod date;
mod docs;
mod doctor;
mod doctor_acp;
mod doctor_report;
mod documents;
mod editors;
mod endurance;
mod error_texts;
mod errors;
mod escapes;
// The checks of tasks are commands of sh, in the sandbox.
#[cfg(unix)]
mod eval;
mod examples;
// Windows has no limit on the threads of a user.
#[cfg(unix)]
mod exhausted_threads;
mod export;
// It logs in on a pseudo terminal, which Wine does not have.
#[cfg(unix)]
mod first_run;
mod helper_transcripts;
mod helpers;
mod history;
mod house_style;
mod hostile;
// Its traps are scripts of sh, which Git for Windows brings and Wine does not have.
#[cfg(unix)]
mod hostile_repository;
// It needs strace.
#[cfg(target_os = "linux")]
mod host_proxy;
mod hosts;
mod initialize;
// Windows has no sandbox.
#[cfg(target_os = "linux")]
mod sandbox_command;
mod sandbox_escapes;
mod jobs;
// The scripted server runs in the sandbox.
#[cfg(unix)]
mod language_servers;
mod login;
#[cfg(unix)]
mod lost_history;
mod mcp;
mod mcp_attack;
mod mcp_command;
mod mcp_config;
mod mcp_elicit;
mod mcp_hostile;
mod mcp_http;
mod mcp_tool_changes;
mod mcp_lifecycle;
mod mcp_oauth;
mod mcp_permission;
mod mcp_project;
mod mcp_prompts;
mod mcp_resources;
mod mcp_requirements;
mod mcp_server;
mod mcp_skills;
mod mcp_tasks;
mod mcp_tools;
mod modes;
mod nothing_written;
mod old_database;
#[cfg(target_os = "linux")]
mod old_kernel;
mod permission;
mod permission_races;
mod policy_cli;
// Its processes fork.
#[cfg(target_os = "linux")]
mod process_tree;
mod protected;
mod proxies;
mod read_file;
mod readme;
mod registry;
mod replay;
mod rules;
mod run;
// It needs pseudo terminals, which Wine does not have, and signals.
#[cfg(unix)]
mod run_terminal;
// Windows has no sandbox, so no launcher.
#[cfg(target_os = "linux")]
mod sandbox;
// Windows has no sandbox.
#[cfg(target_os = "linux")]
mod sandboxed;
#[cfg(target_os = "linux")]
mod session_network;
// Windows has no sandbox.
#[cfg(unix)]
mod signing;
mod serve;
mod serve_clients;
mod session;
mod sessions;
mod sessions_cli;
mod sessions_list;
// It runs bash and dash.
#[cfg(target_os = "linux")]
mod shell_differential;
// On Unix it needs setsid and /proc, which macOS does not have.
#[cfg(target_os = "linux")]
mod shared_packages;
#[cfg(any(target_os = "linux", windows))]
mod shutdown;
mod side_by_side;
// Its sockets are files.
#[cfg(target_os = "linux")]
mod sockets;
mod source_files;
// It mounts a FUSE file system.
#[cfg(target_os = "linux")]
mod stalled_mount;
mod steering;
mod stopped;
mod store;
// Its programs are shell scripts.
#[cfg(unix)]
mod surroundings;
// It makes symbolic links, which Windows lets only administrators do.
#[cfg(target_os = "linux")]
mod symlink_race;
// The checks of the tasks are scripts of sh.
#[cfg(unix)]
mod tasks;
// The launcher in a terminal is for Unix: it reports over a Unix socket.
#[cfg(target_os = "linux")]
mod terminals;
mod tidy;
mod tool_search;
mod tools;
mod transport;
// Its commands are scripts of sh with traps and signals.
#[cfg(target_os = "linux")]
mod unruly_commands;
mod endless_replies;
#[cfg(target_os = "linux")]
mod trap_races;
mod trust;
mod turn;
mod undo;
mod v2;
// Its commands are those of a Unix shell.
#[cfg(unix)]
mod web_app;
mod workflows;
