//! Arguments of the virtual drivers: an unknown one is named, with those that the driver has.
//!
//! DPDK only says that a driver cannot attach a device, and a few drivers ignore all arguments if
//! they do not know one of them. The names below are those of DPDK 21.11 to 25.11; an older
//! version may lack some.
//!
//! Not here: values, which the drivers check.

use super::PortError;

/// A virtual driver.
struct Driver {
    /// DPDK's name of it, with which the names of its devices begin.
    name: &'static str,
    /// Whether it ignores its arguments if it does not know one.
    ignores: bool,
    arguments: &'static [&'static str],
}

const fn strict(name: &'static str, arguments: &'static [&'static str]) -> Driver {
    Driver { name, ignores: false, arguments }
}

const fn lax(name: &'static str, arguments: &'static [&'static str]) -> Driver {
    Driver { name, ignores: true, arguments }
}

const MEMIF: &[&str] = &[
    "bsize",
    "id",
    "mac",
    "owner-gid",
    "owner-uid",
    "role",
    "rsize",
    "secret",
    "socket",
    "socket-abstract",
    "zero-copy",
];
const VHOST: &[&str] = &[
    "client",
    "ext-buffer",
    "iface",
    "iommu-support",
    "legacy-ol-flags",
    "linear-buffer",
    "postcopy-support",
    "queues",
    "tso",
];
const VIRTIO_USER: &[&str] = &[
    "cq",
    "iface",
    "in_order",
    "mac",
    "mrg_rxbuf",
    "packed_vq",
    "path",
    "queue_size",
    "queues",
    "server",
    "speed",
    "vectorized",
];
const AF_XDP: &[&str] = &[
    "busy_budget",
    "dp_path",
    "force_copy",
    "iface",
    "queue_count",
    "shared_umem",
    "start_queue",
    "use_cni",
    "use_pinned_map",
    "xdp_prog",
];
const AF_PACKET: &[&str] =
    &["blocksz", "fanout_mode", "framecnt", "framesz", "iface", "qdisc_bypass", "qpairs"];

const DRIVERS: &[Driver] = &[
    lax("net_memif", MEMIF),
    lax("net_tap", &["iface", "mac", "persist", "remote", "speed"]),
    lax("net_ring", &["internal", "nodeaction"]),
    strict("net_null", &["copy", "no-rx", "size"]),
    strict("net_vhost", VHOST),
    strict("net_virtio_user", VIRTIO_USER),
    strict("net_af_packet", AF_PACKET),
    strict("net_af_xdp", AF_XDP),
];

/// Checks a device string for a driver that would ignore an unknown argument, and the others.
///
/// # Errors
///
/// [`PortError::Argument`]
pub(super) fn check_ignored(device: &str) -> Result<(), PortError> {
    unknown(device, |driver| driver.ignores).map_or(Ok(()), Err)
}

/// Returns the error for a device that no driver attached: `error`, unless the device string has an
/// unknown argument.
pub(super) fn explain(device: &str, error: PortError) -> PortError {
    unknown(device, |_| true).unwrap_or(error)
}

/// Returns the error for the first unknown argument in a device string for one of `these` drivers.
fn unknown(device: &str, these: impl Fn(&Driver) -> bool) -> Option<PortError> {
    let mut parts = device.trim_start_matches("vdev:").split(',');
    let name = parts.next()?;
    let driver = DRIVERS.iter().find(|driver| name.starts_with(driver.name))?;
    let keys = parts.map(|part| part.split('=').next().unwrap_or_default());
    let argument = keys.filter(|key| !key.is_empty()).find(|key| !driver.arguments.contains(key));
    argument.filter(|_| these(driver)).map(|argument| PortError::Argument {
        device: name.to_owned(),
        driver: driver.name,
        argument: argument.to_owned(),
        known: driver.arguments.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_argument_of_each_driver_is_named_with_those_that_it_has() {
        for driver in DRIVERS {
            let known = driver.arguments.iter().map(|name| format!(",{name}=1"));
            let good = format!("{}_a0{}", driver.name, known.collect::<String>());
            assert!(unknown(&good, |_| true).is_none(), "{good}");
            let error = unknown(&format!("{good},nosuch=1"), |_| true).expect("is unknown");
            let said = error.to_string();
            let begin = format!("{}_a0: {0} has no argument \"nosuch\"", driver.name);
            assert!(said.starts_with(&begin), "{said}");
            let remedy = format!("leave it out, or give one of {}", driver.arguments.join(", "));
            assert!(said.ends_with(&remedy), "{said}");
            assert_eq!(error.errnos(), [libc::EINVAL]);
        }
        assert!(unknown("net_other0,nosuch=1", |_| true).is_none());
        assert!(unknown("0000:01:00.0,nosuch=1", |_| true).is_none());
    }

    #[test]
    fn only_what_a_driver_would_ignore_is_refused_before_it_is_asked() {
        assert!(check_ignored("net_null0,nosuch=1").is_ok());
        for device in ["net_tap0,nosuch=1", "vdev:net_memif0,nosuch"] {
            let said = check_ignored(device).expect_err("is ignored").to_string();
            assert!(said.contains("has no argument \"nosuch\""), "{said}");
        }
    }
}
