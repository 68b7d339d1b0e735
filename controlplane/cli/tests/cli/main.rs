//! The program `uroce` against this process, which has two devices on a ring link, and against
//! children of it.

mod attached;
mod bench;
mod capture;
mod commands;
mod connections;
mod documents;
mod export;
mod fault;
mod forward;
mod hostile;
mod lab;
mod life;
mod migration;
mod monitor;
mod objects;
mod own;
mod ping;
mod ports;
mod prompt;
mod reliable_datagrams;
mod scripts;
mod settings;
mod statistics;
mod telemetry;
mod trace;
mod traffic;
mod ways;
