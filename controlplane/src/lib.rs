//! The control-plane thread: devices, Modify QP, address resolution, configuration.

#![forbid(unsafe_code)]

pub mod config;
pub mod path;

pub use config::{Config, ConfigError};
