//! Flows: which frames raw queue pairs receive.

use std::sync::Arc;

use uroce_controlplane::RequestError;
use uroce_engine::{ControlError, FlowId, FlowKind};
use uroce_transport::{QpChange, QpState, QpType};
use uroce_wire::EtherType;
use uroce_wire::flow::FlowMatch;

use crate::core::QpShared;
use crate::qp::QpControl;

/// Lowest priority of a rule.
const LOWEST: u16 = uroce_engine::MAX_FLOW_PRIORITY;

/// Frames that a raw queue pair receives as long as this exists, which keeps the queue pair.
///
/// Raw queue pairs carry frames that are not RoCE. There are three types: [`QpType::RawPacket`]
/// sends whole Ethernet frames ([`SendWr::frame`]) and receives those that flows take
/// ([`QpControl::create_flow`]); [`QpType::RawEtherType`] does the same with flows of EtherTypes
/// ([`QpControl::receive_ether_type`]); [`QpType::RawIpv6`] sends IPv6 packets ([`SendWr::ipv6`])
/// and receives those to the port's Ethernet address and to multicast addresses
/// ([`QpControl::receive_ipv6`]).
///
/// A frame goes to the first [`FlowKind::Rule`] that matches, then to the host if it is address
/// resolution or ICMP in the port's VLAN, then to all [`FlowKind::Default`] flows that match. A
/// rule that does not name ARP, or the protocol of the IP header, shares what the host needs with
/// it. RoCE to an address of the port stays with its queue pairs, whatever the flows say. A
/// [`FlowKind::Sniffer`] takes nothing away, and gets a copy of every frame that the port receives
/// or sends; where the port has few packet buffers left, copies are left out and counted.
///
/// A frame that a raw queue pair sends to the port's own Ethernet address is received there as any
/// other, by queue pairs of its protection domain too. Of another frame those in other domains get
/// a copy, as if its own domain had no flows: rules by priority, and default flows if it is
/// multicast.
///
/// No right is asked for: the program that opened the device has its port already. The drop-in
/// library, with programs that did not open it, asks for CAP_NET_RAW, as the kernel does.
///
/// Frames leave as they are, without padding to 60 bytes. A NIC adds it, other ports do not, so
/// that the lengths that are received differ. Raw IPv6 gets packets without padding, and frames
/// with an IPv6 header only.
///
/// Flows are of one device, and thus of one process, and of the one port of their queue pair. A
/// port of the kernel's UDP sockets carries no frames. While a port forwards what it receives
/// (`set PORT forward` of the console), only its sniffers get frames.
///
/// [`SendWr::frame`]: crate::SendWr::frame
/// [`SendWr::ipv6`]: crate::SendWr::ipv6
///
/// ```
/// use std::time::Duration;
/// use uroce::{AccessFlags, Context, EtherType, QpInit, QpType, RecvWr, SendWr, StaticRate};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = uroce::Config::from_toml(r#"
/// #     [[device]]
/// #     name = "left"
/// #     [[device.port]]
/// #     ethdev = { ring = "raw" }
/// #     ip = ["192.0.2.1/24"]
/// #     [[device]]
/// #     name = "right"
/// #     [[device.port]]
/// #     ethdev = { ring = "raw" }
/// #     ip = ["192.0.2.2/24"]
/// # "#)?;
/// # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
/// // A type for experiments (IEEE 802).
/// const KIND: EtherType = EtherType(0x88b5);
///
/// let cq = right.create_cq(16)?;
/// let pd = right.allocate_pd();
/// let memory = pd.allocate(2048, AccessFlags::LOCAL_WRITE)?;
/// let mut taker = pd.create_qp(&QpInit::new(&cq).qp_type(QpType::RawEtherType))?;
/// taker.start_raw(1)?;
/// let flow = taker.receive_ether_type(1, KIND)?;
/// taker.post_recv(&RecvWr::new(&[memory.slice(..)?]))?;
///
/// let (from, to) = (left.ports()[0].mac, right.ports()[0].mac);
/// let frame = [&to.0[..], &from.0, &KIND.0.to_be_bytes(), b"hello, without RoCE"].concat();
/// let left_cq = left.create_cq(16)?;
/// let left_pd = left.allocate_pd();
/// let source = left_pd.allocate(2048, AccessFlags::LOCAL_WRITE)?;
/// source.write_at(0, &frame)?;
/// let mut sender = left_pd.create_qp(&QpInit::new(&left_cq).qp_type(QpType::RawEtherType))?;
/// sender.start_raw(1)?;
/// let slice = [source.slice(..frame.len())?];
/// let rate = StaticRate::from_mbps(2_500).ok_or("no such rate")?;
/// sender.post_send(&SendWr::frame(&slice).rate(rate).signaled())?;
/// left_cq.wait(Duration::from_secs(10))?.ok_or("not sent")?.ok()?;
///
/// let received = cq.wait(Duration::from_secs(10))?.ok_or("no frame")?;
/// received.ok()?;
/// let mut copy = vec![0; received.byte_len as usize];
/// memory.read_at(0, &mut copy)?;
/// assert_eq!(copy, frame);
/// drop(flow); // Frames of this type go to the host again.
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Flow {
    qp: Arc<QpShared>,
    ids: Vec<FlowId>,
}

impl Drop for Flow {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            // This fails only if an lcore is lost, and then nothing is received any more.
            let _ = self.qp.pd.device.destroy_flow(id);
        }
    }
}

impl QpControl {
    /// Modifies a raw QP from RESET to RTS, at a port counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached.
    pub fn start_raw(&self, port: u8) -> Result<(), RequestError> {
        let init = QpChange { port: Some(port), ..QpChange::to(QpState::Init) };
        let changes = [init, QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)];
        changes.iter().try_for_each(|change| self.modify(change, None))
    }

    /// Makes a flow of a raw QP at a port counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]: only raw QPs have flows, at their own port
    /// ([`FlowError`](crate::FlowError)).
    pub fn create_flow(&self, port: u8, kind: FlowKind) -> Result<Flow, RequestError> {
        self.flow_of(port, &[kind])
    }

    /// Makes a Raw EtherType QP receive the frames of this type to the port's own Ethernet address
    /// and to multicast addresses. The address is the one that the port has now: after a change of
    /// it, make the flow anew. The host itself does not get these frames any more, except ICMP:
    /// with ARP, it is no longer found by others.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]: the QP must be of this type.
    pub fn receive_ether_type(&self, port: u8, kind: EtherType) -> Result<Flow, RequestError> {
        self.check_type(QpType::RawEtherType)?;
        let rules = self.to_host(port, kind)?;
        self.flow_of(port, &rules.map(|rule| FlowKind::Rule(rule, LOWEST)))
    }

    /// Makes a Raw IPv6 QP receive the IPv6 packets to the port's own Ethernet address and to
    /// multicast addresses, except RoCE and what the host itself needs: neighbour discovery and
    /// other ICMPv6. The address is the one that the port has now: after a change of it, make the
    /// flow anew.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]: the QP must be of this type.
    pub fn receive_ipv6(&self, port: u8) -> Result<Flow, RequestError> {
        self.check_type(QpType::RawIpv6)?;
        let rules = self.to_host(port, EtherType::IPV6)?;
        self.flow_of(port, &rules.map(FlowKind::Default))
    }

    fn check_type(&self, needed: QpType) -> Result<(), RequestError> {
        let is_it = self.qp_type() == needed;
        if is_it { Ok(()) } else { Err(ControlError::QpType(self.qp_type()).into()) }
    }

    /// The frames of a type to the port's own Ethernet address, and those to multicast addresses.
    fn to_host(&self, port: u8, kind: EtherType) -> Result<[FlowMatch; 2], RequestError> {
        let ports = self.device().ports();
        let own = ports.iter().find(|own| own.number == port);
        let mac = own.ok_or(ControlError::NoSuchPort(port))?.mac;
        Ok([FlowMatch::to_mac(mac, kind), FlowMatch::multicast(kind)])
    }

    fn flow_of(&self, port: u8, kinds: &[FlowKind]) -> Result<Flow, RequestError> {
        let mut flow = Flow { qp: Arc::clone(self.shared()), ids: Vec::new() };
        let (qpn, pd) = (flow.qp.qpn, flow.qp.pd.pd);
        for &kind in kinds {
            flow.ids.push(self.device().create_flow(qpn, pd, port, kind)?);
        }
        Ok(flow)
    }
}
