//! Converts GIDs and paths between C and the engine.

use uroce::{AddressVector, Gid, StaticRate};

use super::{lid, port};
use crate::abi::{ibv_ah_attr, ibv_gid, ibv_global_route};
use crate::errno::Errno;
use crate::runtime::Device;

/// Hop limit of paths for which the program gives none.
pub(crate) const HOP_LIMIT: u8 = 0xff;

/// Converts a GID to C's type.
pub(crate) fn raw(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

/// Converts a GID from C's type.
pub(crate) fn from_raw(gid: &ibv_gid) -> Gid {
    // SAFETY: the union's members are bytes, for which any value is valid.
    Gid(unsafe { gid.raw })
}

/// Converts address attributes, with a GID or a LID, to the engine's address vector.
///
/// # Errors
///
/// EINVAL if there is no such port, or if the LID is not in the port's subnet.
pub(crate) fn vector(device: &'static Device, attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    let port = port::find(device, attr.port_num.into())?;
    if attr.is_global != 0 {
        return Ok(global(attr));
    }
    let (sgid_index, dgid) = lid::resolve(device, &port, attr.dlid)?;
    let mut attr = *attr;
    attr.is_global = 1;
    attr.grh = ibv_global_route {
        dgid: raw(dgid),
        flow_label: 0,
        sgid_index,
        hop_limit: HOP_LIMIT,
        traffic_class: 0,
    };
    Ok(global(&attr))
}

/// Converts address attributes with a GID. Fields that RoCE does not use are ignored. The service
/// level and the flow label are cut to their widths, and an unknown rate means no limit. Drivers
/// of NICs do the same: programs written for InfiniBand leave arbitrary values in these fields.
fn global(attr: &ibv_ah_attr) -> AddressVector {
    /// Mask of the Ethernet priority, which has three bits.
    const SERVICE_LEVEL: u8 = 7;
    /// Mask of a flow label. UCX sets all 32 bits of the field.
    const FLOW_LABEL: u32 = (1 << 20) - 1;
    //= check H15 — path bits of the source, LIDs and rates beyond the table have no part in it
    AddressVector {
        sgid_index: attr.grh.sgid_index,
        dgid: from_raw(&attr.grh.dgid),
        traffic_class: attr.grh.traffic_class,
        flow_label: attr.grh.flow_label & FLOW_LABEL,
        udp_source_port: 0,
        hop_limit: attr.grh.hop_limit,
        service_level: attr.sl & SERVICE_LEVEL,
        static_rate: StaticRate::from_code(attr.static_rate).unwrap_or_default(),
    }
}

/// Index of the first address that has the peer's IP version.
pub(crate) fn same_version(gids: &[Gid], peer: Gid) -> Option<u8> {
    let is_same =
        |gid: &Gid| *gid != Gid::default() && gid.to_ipv4().is_some() == peer.to_ipv4().is_some();
    gids.iter().position(is_same).and_then(|at| u8::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= check H15 test
    fn fields_that_roce_does_not_use_are_ignored() {
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
        attr.is_global = 1;
        let plain = global(&attr);
        for change in [
            |attr: &mut ibv_ah_attr| attr.sl = 8,
            |attr: &mut ibv_ah_attr| attr.static_rate = 1,
            |attr: &mut ibv_ah_attr| attr.static_rate = 25,
            |attr: &mut ibv_ah_attr| attr.static_rate = u8::MAX,
            |attr: &mut ibv_ah_attr| attr.src_path_bits = 0x7f,
            |attr: &mut ibv_ah_attr| attr.dlid = 0xffff,
        ] {
            let mut odd = attr;
            change(&mut odd);
            assert_eq!(global(&odd), plain);
        }
        (attr.sl, attr.grh.flow_label) = (0xf5, u32::MAX);
        let cut = AddressVector { service_level: 5, flow_label: 0xf_ffff, ..plain };
        assert_eq!(global(&attr), cut);
    }
}
