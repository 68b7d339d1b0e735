//! libibverbs: the calls, one module for each object of the interface.
//!
//! Each entry translates its arguments, calls [`uroce`], and translates the result. Fields that
//! programs read directly are kept up to date in the public structures.
//!
//! Not here: the state of the objects ([`crate::objects`]).

pub(crate) mod ah;
pub(crate) mod buffer;
pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod domain;
pub(crate) mod ece;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod fork;
pub(crate) mod gid;
pub(crate) mod import;
mod lid;
mod mapping;
pub(crate) mod mcast;
pub(crate) mod modify;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod path;
pub(crate) mod pd;
pub(crate) mod poll;
pub(crate) mod port;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod qp_ex;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod srq;
pub(crate) mod strings;
pub(crate) mod xrcd;
