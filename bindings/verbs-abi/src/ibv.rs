//! libibverbs: one module an object of the interface.
//!
//! Each entry translates its arguments, calls [`uroce`], and translates back. Objects are in their
//! registries ([`crate::handle`]); what programs read of them directly is kept up to date there.

pub(crate) mod context;
pub(crate) mod device;
