//! Configuration of a port, capabilities of a device, and starting a port by them.

use super::{
    FRAME_OVERHEAD, FlowControl, Pause, PortError, af_packet, af_xdp, check, flow_control, rss,
    text,
};
use crate::dpdk::mbuf::Mempool;
use dpdk_sys::uroce_port_info;
use uroce_wire::Mac;

/// The configuration of [`Port::open`](crate::port::Port::open).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// DPDK's name of the device. If the device is to be created, its arguments follow after a
    /// comma: `0000:01:00.0`, `net_memif0,role=client,…` (see [`vdev`](super::vdev)).
    pub device: String,
    /// Pairs of a receive and a transmit queue, at least 1; reduced to what the device has.
    pub queue_pairs: u16,
    /// Largest Ethernet payload in bytes, 68 to 9000.
    pub mtu: u16,
    /// Descriptors per receive queue; adjusted to the driver's limits.
    pub rx_descriptors: u16,
    /// Descriptors per transmit queue; adjusted to the driver's limits.
    pub tx_descriptors: u16,
    /// The port's Ethernet address; `None` for the device's own.
    pub mac: Option<Mac>,
    /// Whether to enable the driver's receive interrupts, if it has them, for lcores that sleep.
    pub rx_interrupts: bool,
    /// What is set of the link's flow control.
    pub flow_control: FlowControl,
}

impl PortConfig {
    /// Makes a configuration with one queue pair, MTU 1500, 1024 descriptors in each direction, and
    /// the device's own address.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            queue_pairs: 1,
            mtu: 1500,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mac: None,
            rx_interrupts: false,
            flow_control: FlowControl::default(),
        }
    }
}

/// Smallest MTU that IPv4 allows (RFC 791).
const MTU_MIN: u16 = 68;
/// Largest MTU that uroce supports.
const MTU_MAX: u16 = 9000;

/// Drivers with a frame size that is set elsewhere (memif: `bsize`; af_packet: `framesz` and the
/// interface's MTU) and which always report Ethernet's standard size.
const FRAME_SIZE_ELSEWHERE: &[&str] = &["net_memif", af_packet::DRIVER];

/// The capabilities of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// DPDK's name of the port.
    pub name: String,
    /// Name of its driver.
    pub driver: String,
    /// Largest number of queue pairs: 1 for a NIC that does not spread received packets.
    pub max_queue_pairs: u16,
    /// Largest MTU in bytes; `None` if the driver does not report it.
    pub max_mtu: Option<u16>,
    /// Whether the device spreads received packets over the queues by IP addresses or UDP ports.
    pub rss: bool,
    /// Whether it does so by UDP ports too. By addresses alone, all packets of a peer arrive at one
    /// queue.
    pub rss_ports: bool,
    /// Whether the table by which it does so can be changed while packets arrive, so that packets
    /// of a QP arrive at its own lcore.
    pub steering: bool,
    /// Whether the device can verify IPv4 and UDP checksums on receive.
    pub rx_checksum: bool,
    /// Whether the device can compute the IPv4 checksum on transmit.
    pub tx_checksum: bool,
    /// Whether the device can take 802.1Q tags off received packets.
    pub vlan_strip: bool,
    /// Whether the device can put 802.1Q tags into sent packets.
    pub vlan_insert: bool,
    /// Whether the device can send a packet from several buffers.
    pub tx_segments: bool,
    /// Whether the driver has an interrupt for changes of the link, be it used or not.
    pub has_link_interrupt: bool,
    /// Whether the driver reports changes of the link by an interrupt. False for a PCI function,
    /// whatever its driver reports: if its interrupt did not arrive, DPDK would keep reporting the
    /// link's first state. Its driver is queried instead, which always gives the current state.
    pub link_interrupt: bool,
    /// NUMA node, if known.
    pub numa_node: Option<u32>,
}

impl Capabilities {
    /// Returns whether the device is a PCI function.
    pub(super) fn is_pci(&self) -> bool {
        is_pci(&self.name)
    }
}

/// State of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether frames can pass.
    pub up: bool,
    /// Rate in Mb/s, if known; that of a virtual device has no meaning.
    pub speed_mbps: Option<u32>,
}

/// How a port's link was agreed on with its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Frames pass both ways at the same time.
    pub full_duplex: bool,
    /// The rate was negotiated; otherwise it is fixed.
    pub autoneg: bool,
    /// Forward error correction (IEEE 802.3) in testpmd's words: `off`, `auto`, `baser`, `rs` or
    /// `llrs`; `None` if the driver does not tell it.
    pub fec: Option<&'static str>,
    /// PAUSE frames; `None` if the driver does not tell them.
    pub pause: Option<Pause>,
}

/// Counters that every driver has. A counter that the driver does not support is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the device dropped for want of a descriptor; of net_af_packet, those that the
    /// kernel dropped because the ring of the queue's socket was full.
    pub rx_missed: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Times that the mempool had no mbuf for a received frame.
    pub rx_no_mbuf: u64,
}

impl PortStats {
    /// Returns the counters by the names that Linux has for a port's. Data are in units of four
    /// bytes, as in InfiniBand. Multicast is not counted apart.
    pub fn linux(&self) -> [(&'static str, u64); 6] {
        [
            ("port_xmit_data", self.tx_bytes / 4),
            ("port_rcv_data", self.rx_bytes / 4),
            ("port_xmit_packets", self.tx_packets),
            ("port_rcv_packets", self.rx_packets),
            ("port_rcv_errors", self.rx_errors),
            ("port_xmit_discards", self.tx_errors),
        ]
    }
}

impl From<dpdk_sys::uroce_port_stats> for PortStats {
    fn from(stats: dpdk_sys::uroce_port_stats) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_no_mbuf: stats.rx_no_mbuf,
        }
    }
}

/// The result of [`start`].
pub(super) struct Started {
    pub(super) queue_pairs: u16,
    pub(super) mac: Mac,
    pub(super) capabilities: Capabilities,
    /// Receive interrupts were requested, and the driver accepted them.
    pub(super) has_interrupts: bool,
}

/// Drivers with receive queues that signal frames by other means than DPDK's interrupts
/// ([`super::signal`]).
const OTHER_SIGNALS: &[&str] = &["net_memif", "net_af_packet", "net_ring"];

/// One attempt at starting a port.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    queue_pairs: u16,
    rx_interrupts: bool,
}

impl Attempt {
    /// Returns the attempt after a failed one: first without receive interrupts, which some drivers
    /// refuse, then with half the queues, because some drivers have fewer than they report.
    fn next(self, interrupts: bool) -> Option<Attempt> {
        let Attempt { queue_pairs, rx_interrupts } = self;
        match (rx_interrupts, queue_pairs) {
            (true, _) => Some(Attempt { queue_pairs, rx_interrupts: false }),
            (false, 0 | 1) => None,
            (false, more) => Some(Attempt { queue_pairs: more / 2, rx_interrupts: interrupts }),
        }
    }
}

/// Configures the port, sets up its queues and starts it.
pub(super) fn start(id: u16, config: &PortConfig, pool: &Mempool) -> Result<Started, PortError> {
    let mut info = uroce_port_info::default();
    // SAFETY: the port exists and the caller owns it; `info` is writable.
    check(unsafe { dpdk_sys::uroce_port_info(id, &mut info) }, "asking for its limits")?;
    let capabilities = capabilities(&info);
    check_limits(config, &capabilities, &info, pool)?;

    let interrupts = config.rx_interrupts && !OTHER_SIGNALS.contains(&capabilities.driver.as_str());
    let queue_pairs = config.queue_pairs.min(capabilities.max_queue_pairs);
    let mut attempt = Attempt { queue_pairs, rx_interrupts: interrupts };
    while let Err(error) = start_with(id, attempt, config, &capabilities, &info, pool) {
        attempt = attempt.next(interrupts).ok_or(error)?;
    }
    flow_control::set(id, &capabilities.driver, config.flow_control)?;
    open_filters(id, &capabilities);
    let mac = choose_mac(id, config, &capabilities.name);
    let Attempt { queue_pairs, rx_interrupts } = attempt;
    Ok(Started { queue_pairs, mac, capabilities, has_interrupts: rx_interrupts })
}

/// Resets a port and starts it again with as many queues as it had. No thread may poll it.
///
/// # Errors
/// [`PortError::Step`]: then the port is stopped, and may be restarted again.
pub(super) fn restart(
    id: u16,
    config: &PortConfig,
    capabilities: &Capabilities,
    queue_pairs: u16,
    pool: &Mempool,
) -> Result<(), PortError> {
    // SAFETY: the caller owns the port, which is open.
    check(unsafe { dpdk_sys::uroce_port_reset(id) }, "resetting it")?;
    let mut info = uroce_port_info::default();
    // SAFETY: the caller owns the port; `info` is writable.
    check(unsafe { dpdk_sys::uroce_port_info(id, &mut info) }, "asking for its limits")?;
    let mut attempt = Attempt { queue_pairs, rx_interrupts: config.rx_interrupts };
    if OTHER_SIGNALS.contains(&capabilities.driver.as_str()) {
        attempt.rx_interrupts = false;
    }
    while let Err(error) = start_with(id, attempt, config, capabilities, &info, pool) {
        // The lcores need all queues again.
        attempt =
            attempt.next(false).filter(|next| next.queue_pairs == queue_pairs).ok_or(error)?;
    }
    if let Err(error) = flow_control::set(id, &capabilities.driver, config.flow_control) {
        // SAFETY: the caller owns the port, which a reset stops.
        unsafe { dpdk_sys::uroce_port_reset(id) };
        return Err(error);
    }
    open_filters(id, capabilities);
    choose_mac(id, config, &capabilities.name);
    Ok(())
}

/// Makes the port receive frames to any address: a device without filters may not support these
/// calls, and receives them anyway. net_af_packet has the kernel's interface do it.
fn open_filters(id: u16, capabilities: &Capabilities) {
    if capabilities.driver == af_packet::DRIVER {
        return;
    }
    // SAFETY: the caller owns the port, which is started.
    unsafe { dpdk_sys::uroce_port_promiscuous(id) };
    // SAFETY: the caller owns the port, which is started.
    unsafe { dpdk_sys::uroce_port_all_multicast(id) };
}

/// Configures and starts the port with the queues and interrupts of one attempt.
fn start_with(
    id: u16,
    attempt: Attempt,
    config: &PortConfig,
    capabilities: &Capabilities,
    info: &uroce_port_info,
    pool: &Mempool,
) -> Result<(), PortError> {
    let Attempt { queue_pairs, rx_interrupts } = attempt;
    let elsewhere = FRAME_SIZE_ELSEWHERE.contains(&capabilities.driver.as_str());
    let conf = dpdk_sys::uroce_port_conf {
        queue_pairs,
        mtu: if elsewhere { 0 } else { config.mtu },
        rss: u8::from(capabilities.rss && queue_pairs > 1),
        scatter: info.scatter,
        link_interrupt: u8::from(capabilities.link_interrupt),
        rx_interrupt: u8::from(rx_interrupts),
    };
    // SAFETY: the caller owns the port, which is stopped; `conf` is only read.
    check(unsafe { dpdk_sys::uroce_port_configure(id, &conf) }, "configuring it")?;
    set_up_queues(id, queue_pairs, config, info.socket, pool)?;
    let code = match capabilities.driver == af_packet::DRIVER {
        true => af_packet::start(id),
        // SAFETY: the caller owns the port, which is configured.
        false => unsafe { dpdk_sys::uroce_port_start(id) },
    };
    check(code, "starting it")
}

fn capabilities(info: &uroce_port_info) -> Capabilities {
    let driver = text(&info.driver);
    let by_packet = info.max_rx_packet.saturating_sub(u32::from(FRAME_OVERHEAD) - 4);
    let by_chunk = if driver == af_xdp::DRIVER { af_xdp::MTU_MAX } else { u16::MAX };
    let max_mtu = info.max_mtu.min(by_chunk).min(u16::try_from(by_packet).unwrap_or(u16::MAX));
    let name = text(&info.name);
    let has_table = info.rss != 0 && info.reta_size.is_power_of_two();
    let steering = has_table && rss::is_changed_live(&driver);
    Capabilities {
        max_queue_pairs: queue_pairs(&name, &driver, info),
        max_mtu: (!FRAME_SIZE_ELSEWHERE.contains(&driver.as_str())).then_some(max_mtu),
        driver,
        rss: info.rss != 0,
        rss_ports: info.rss_ports != 0,
        steering,
        rx_checksum: info.rx_checksum != 0,
        tx_checksum: info.tx_checksum != 0,
        vlan_strip: info.vlan_strip != 0,
        vlan_insert: info.vlan_insert != 0,
        tx_segments: info.tx_segments != 0,
        has_link_interrupt: info.link_interrupt != 0,
        link_interrupt: info.link_interrupt != 0 && !is_pci(&name),
        name,
        numa_node: u32::try_from(info.socket).ok(),
    }
}

/// Returns the number of queue pairs that can be of use. Without RSS a NIC receives everything by
/// its first queue, and the driver of Intel's oldest Gigabit NICs (net_e1000_em) reports a second
/// queue that some of them lack: what is sent by it is lost. virtio has no RSS either, mostly, but
/// the other end chooses a queue by the flow.
fn queue_pairs(name: &str, driver: &str, info: &uroce_port_info) -> u16 {
    let reported = info.max_rx_queues.min(info.max_tx_queues);
    let spreads = info.rss != 0 || !is_pci(name) || driver == "net_virtio";
    if spreads { reported } else { reported.min(1) }
}

/// Returns whether a port's name is that of a PCI function, such as `0000:01:00.0`.
fn is_pci(name: &str) -> bool {
    let digits = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // A function with several ports adds a suffix to the name.
    let address = name.split(['_', ',']).next().unwrap_or_default();
    let parts: Vec<&str> = address.split([':', '.']).collect();
    match parts[..] {
        [domain, bus, device, function] => {
            (4..=8).any(|len| digits(domain, len))
                && digits(bus, 2)
                && digits(device, 2)
                && digits(function, 1)
        }
        _ => false,
    }
}

fn check_limits(
    config: &PortConfig,
    capabilities: &Capabilities,
    info: &uroce_port_info,
    pool: &Mempool,
) -> Result<(), PortError> {
    let (asked, max) = (config.queue_pairs, capabilities.max_queue_pairs);
    if asked == 0 || max == 0 {
        return Err(PortError::QueuePairs { asked, max });
    }
    let max = capabilities.max_mtu.unwrap_or(MTU_MAX).min(MTU_MAX);
    let min = info.min_mtu.max(MTU_MIN);
    if config.mtu < min || config.mtu > max {
        return Err(PortError::Mtu { asked: config.mtu, min, max });
    }
    let frame = u32::from(config.mtu + FRAME_OVERHEAD).max(info.min_rx_buffer);
    if u32::from(pool.room()) < frame {
        return Err(PortError::PoolRoom { room: pool.room(), needed: frame });
    }
    Ok(())
}

fn set_up_queues(
    id: u16,
    queue_pairs: u16,
    config: &PortConfig,
    socket: i32,
    pool: &Mempool,
) -> Result<(), PortError> {
    let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
    // SAFETY: the caller owns the port; both numbers are writable.
    let code = unsafe { dpdk_sys::uroce_port_descriptors(id, &mut rx, &mut tx) };
    check(code, "choosing numbers of descriptors")?;
    for queue in 0..queue_pairs {
        // SAFETY: the caller owns the port, which is stopped and configured with this many queues;
        // the mempool outlives the device, which holds a handle of it.
        let code = unsafe { dpdk_sys::uroce_port_rx_queue(id, queue, rx, socket, pool.raw()) };
        check(code, "setting up a receive queue")?;
        // SAFETY: the caller owns the port, which is stopped and configured with this many queues.
        let code = unsafe { dpdk_sys::uroce_port_tx_queue(id, queue, tx, socket) };
        check(code, "setting up a transmit queue")?;
    }
    Ok(())
}

/// Chooses the source address of the port's frames. A device that refuses the address still
/// receives frames for it, because it is promiscuous.
fn choose_mac(id: u16, config: &PortConfig, name: &str) -> Mac {
    let mut there = [0u8; 6];
    // SAFETY: the caller owns the port; six bytes are writable.
    let code = unsafe { dpdk_sys::uroce_port_mac(id, there.as_mut_ptr()) };
    let there = Mac(there);
    match config.mac {
        Some(mac) if mac == there => mac,
        Some(mac) => {
            // SAFETY: the caller owns the port; six bytes are readable.
            unsafe { dpdk_sys::uroce_port_set_mac(id, mac.0.as_ptr()) };
            mac
        }
        None if code == 0 && there != Mac([0; 6]) => there,
        None => mac_from_name(name),
    }
}

/// Makes a locally administered unicast address from a name by its FNV-1a hash.
fn mac_from_name(name: &str) -> Mac {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    Mac([0x02, a, b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_fails_is_tried_without_interrupts_and_then_with_half_the_queues() {
        let all = |interrupts| {
            let first = Attempt { queue_pairs: 5, rx_interrupts: interrupts };
            let attempts = std::iter::successors(Some(first), |last| last.next(interrupts));
            attempts.map(|of| (of.queue_pairs, of.rx_interrupts)).collect::<Vec<_>>()
        };
        assert_eq!(all(false), [(5, false), (2, false), (1, false)]);
        let both = [5, 2, 1].map(|pairs| [(pairs, true), (pairs, false)]);
        assert_eq!(all(true), both.concat());
        let none = Attempt { queue_pairs: 0, rx_interrupts: false };
        assert!(none.next(true).is_none());
    }

    #[test]
    fn the_link_of_a_pci_function_is_asked_for_and_those_of_virtual_devices_may_tell() {
        let pci = ["0000:01:00.0", "0000:af:1f.7", "10000:e1:00.0", "0000:03:00.0_port1"];
        assert!(pci.into_iter().all(is_pci));
        let others = ["net_virtio_user0", "net_vhost0", "net_ring_a", "1:2.3", "00:1f.6", ""];
        assert!(!others.into_iter().any(is_pci));
    }

    #[test]
    fn a_nic_without_rss_has_one_queue_pair() {
        let two = uroce_port_info { max_rx_queues: 2, max_tx_queues: 2, ..Default::default() };
        let pairs = |name, driver| queue_pairs(name, driver, &two);
        assert_eq!(pairs("0000:00:04.0", "net_e1000_em"), 1);
        assert_eq!(pairs("0000:00:04.0", "net_virtio"), 2);
        assert_eq!(pairs("net_vhost0", "net_vhost"), 2);
        let spread = uroce_port_info { rss: 1, ..two };
        assert_eq!(queue_pairs("0000:00:04.0", "net_e1000_igb", &spread), 2);
    }

    #[test]
    fn made_up_addresses_are_local_unicast_and_differ() {
        let (a, b) = (mac_from_name("net_ring_a"), mac_from_name("net_ring_b"));
        assert_ne!(a, b);
        assert_eq!(a.0[0] & 3, 2);
    }
}
