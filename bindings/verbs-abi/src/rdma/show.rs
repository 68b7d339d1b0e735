//! Writes what is known about an id to its public structure.

use std::mem::offset_of;

use super::{address, shared};
use crate::abi::{ibv_sa_path_rec, rdma_ib_addr};
use crate::errno::Errno;
use crate::handle::Entry;
use crate::objects::id::{Id, PublicId, State};
use crate::runtime::Device;

impl Entry<Id> {
    /// Writes the addresses to the public structure.
    pub(crate) fn show_addresses(&self, state: &State) {
        self.update(|c| {
            if let Some(local) = state.local {
                c.route.addr.__bindgen_anon_1.src_storage = address::storage(local);
            }
            if let Some(peer) = state.peer {
                c.route.addr.__bindgen_anon_2.dst_storage = address::storage(peer);
            }
        });
    }

    /// Writes the id's device and port to the public structure, and the shared protection domain if
    /// the id has none.
    pub(crate) fn show_device(&self, device: &'static Device, port: u8) -> Result<(), Errno> {
        let shared = shared::of(device)?;
        self.update(|c| {
            c.verbs = shared.verbs();
            c.port_num = port;
            if c.pd.is_null() {
                c.pd = shared.pd();
            }
        });
        Ok(())
    }

    /// Writes the path to the peer to the public structure.
    pub(crate) fn show_path(&self, record: ibv_sa_path_rec) {
        self.update(|c| {
            let ibv_sa_path_rec { sgid, dgid, pkey, .. } = record;
            c.route.addr.addr.ibaddr = rdma_ib_addr { sgid, dgid, pkey };
        });
        // SAFETY: a slot is never freed, and programs only read this field.
        unsafe { (*self.public()).path = record };
    }

    /// Marks the route as resolved in the public structure.
    pub(crate) fn show_route(&self) {
        let path_rec = self.public().wrapping_byte_add(offset_of!(PublicId, path)).cast();
        self.update(|c| {
            c.route.path_rec = path_rec;
            c.route.num_paths = 1;
        });
    }
}
