//! Limits of an engine.

/// Largest number of lcores of an engine.
pub const MAX_LCORES: usize = 64;
/// Largest number of ports of an engine: ports are numbered from 1 in eight bits.
pub const MAX_PORTS: usize = 255;
/// Largest number of QPs of an engine; leaves 16 generations in a 24-bit number.
pub const MAX_QPS: u32 = 1 << 20;
/// Largest number of memory regions of an engine; leaves 16 generations in the 24 bits of a key
/// that name it.
pub const MAX_MRS: u32 = 1 << 20;
/// Largest number of addresses of a port.
pub const MAX_GIDS: usize = 64;
