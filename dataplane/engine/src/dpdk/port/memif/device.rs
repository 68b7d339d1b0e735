//! A memif device string: the parts of it that the link thread takes over.

use super::channel::Address;
use std::path::{Path, PathBuf};

/// Returns whether a device string is for DPDK's memif driver.
pub(in crate::dpdk::port) fn is_memif(devargs: &str) -> bool {
    devargs.trim_start_matches("vdev:").starts_with("net_memif")
}

/// The parsed device string.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) server: bool,
    pub(super) socket: Address,
    /// All other arguments, unchanged.
    rest: Vec<String>,
}

impl Device {
    /// Parses the arguments with the driver's defaults: a server, on the abstract
    /// `/run/memif.sock`.
    pub(super) fn parse(devargs: &str) -> Result<Self, &'static str> {
        let mut parts = devargs.trim_start_matches("vdev:").split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let (mut server, mut socket, mut is_abstract) = (true, "/run/memif.sock", true);
        let mut rest = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some(("role", "server")) => server = true,
                Some(("role", "client")) => server = false,
                Some(("role", _)) => return Err("the role is client or server"),
                Some(("socket", path)) => socket = path,
                Some(("socket-abstract", "yes")) => is_abstract = true,
                Some(("socket-abstract", "no")) => is_abstract = false,
                Some(("socket-abstract", _)) => return Err("socket-abstract is yes or no"),
                _ => rest.push(part.to_owned()),
            }
        }
        let socket = match is_abstract {
            true => Address::Abstract(socket.to_owned()),
            false => Address::File(PathBuf::from(socket)),
        };
        Ok(Self { name, server, socket, rest })
    }

    /// Returns the device string for the driver, with `socket` in place of the peer's.
    pub(super) fn with_socket(&self, socket: &Path) -> String {
        let role = if self.server { "server" } else { "client" };
        let mut devargs =
            format!("{},role={role},socket-abstract=no,socket={}", self.name, socket.display());
        for part in &self.rest {
            devargs.push(',');
            devargs.push_str(part);
        }
        devargs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_replaced_and_the_rest_is_kept() {
        let device = Device::parse("net_memif1,id=3,role=client,socket=/a,socket-abstract=no,x=1")
            .expect("valid");
        assert!(!device.server);
        assert_eq!(device.socket, Address::File("/a".into()));
        let expected = "net_memif1,role=client,socket-abstract=no,socket=/b,id=3,x=1";
        assert_eq!(device.with_socket(Path::new("/b")), expected);
    }

    #[test]
    fn the_drivers_defaults_hold() {
        let device = Device::parse("net_memif0").expect("valid");
        assert!(device.server);
        assert_eq!(device.socket, Address::Abstract("/run/memif.sock".into()));
    }

    #[test]
    fn an_unknown_role_is_refused() {
        assert_eq!(Device::parse("net_memif0,role=peer"), Err("the role is client or server"));
    }
}
