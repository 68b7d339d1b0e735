//! librdmacm: connections by IP address and port.

pub(crate) mod addrinfo;
