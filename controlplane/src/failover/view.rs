//! The path that a program has set, as Query QP shows it whatever path the QP is on.

use uroce_transport::{AltPath, PathAttr, PathMigState, QpAttr, QpChange};
use uroce_wire::Pkey;

/// Attributes of a QP's path as its program has set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    path: PathAttr,
    port: u8,
    pkey: Pkey,
    timeout: u8,
}

impl View {
    /// Returns the view of a QP that is on the path of its program.
    pub(super) fn of(attr: &QpAttr) -> View {
        let QpAttr { path, port, pkey, timeout, .. } = *attr;
        View { path, port, pkey, timeout }
    }

    pub(super) fn port(&self) -> u8 {
        self.port
    }

    /// Returns the path as an alternate path.
    pub(super) fn alternate(&self) -> AltPath {
        let View { path, port, pkey, timeout } = *self;
        AltPath { path, port, pkey, timeout }
    }

    /// Local ACK timeout code.
    pub(super) fn timeout(&self) -> u8 {
        self.timeout
    }

    /// Notes what the program has changed.
    pub(super) fn changed(&mut self, change: &QpChange) {
        let QpChange { path, port, pkey, timeout, .. } = *change;
        self.path = path.unwrap_or(self.path);
        self.port = port.unwrap_or(self.port);
        self.pkey = pkey.unwrap_or(self.pkey);
        self.timeout = timeout.unwrap_or(self.timeout);
    }

    /// Makes the attributes those of a QP that never had an alternate path, as on Linux.
    pub(super) fn show(&self, attr: &mut QpAttr) {
        let View { path, port, pkey, timeout } = *self;
        *attr = QpAttr {
            path,
            port,
            pkey,
            timeout,
            alt_path: None,
            path_mig_state: PathMigState::Migrated,
            ..*attr
        };
    }

    /// Returns whether this is a path of the program.
    pub(super) fn is_at(&self, port: u8, path: &PathAttr) -> bool {
        let (own, other) = (&self.path.encap, &path.encap);
        self.port == port && (own.src, own.dst) == (other.src, other.dst)
    }
}
