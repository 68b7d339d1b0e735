//! librdmacm: connections by IP address and port.
