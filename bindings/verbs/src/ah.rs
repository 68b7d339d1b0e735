//! Address handle: the path of datagrams to a peer or multicast group.

use std::sync::Arc;

use uroce_controlplane::RequestError;
use uroce_transport::Ah;

use crate::AddressVector;
use crate::core::PdShared;
use crate::pd::ProtectionDomain;

/// The path to a peer or a multicast group, for datagrams of UD queue pairs in its protection
/// domain and at its port. Dropping the handle destroys it. Datagrams that were posted before are
/// still sent, unless thousands of other handles are created first; then they complete with an
/// error.
///
/// ```
/// use std::time::Duration;
/// use uroce::{AccessFlags, AddressVector, ConnectOptions, Context, QpInit, QpType, Qkey};
/// use uroce::{GRH_LEN, RecvWr, SendWr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = uroce::Config::from_toml(r#"
/// #     [[device]]
/// #     name = "left"
/// #     [[device.port]]
/// #     ethdev = { ring = "ah" }
/// #     ip = ["192.0.2.1/24"]
/// #     [[device]]
/// #     name = "right"
/// #     [[device.port]]
/// #     ethdev = { ring = "ah" }
/// #     ip = ["192.0.2.2/24"]
/// # "#)?;
/// # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
/// let qkey = Qkey(0x1111_1111);
/// let options = ConnectOptions::default();
///
/// // A receive needs room for the 40 bytes in front of each datagram.
/// let receiver_pd = right.allocate_pd();
/// let room = receiver_pd.allocate(GRH_LEN + 64, AccessFlags::LOCAL_WRITE)?;
/// let receiver_cq = right.create_cq(16)?;
/// let mut receiver = receiver_pd.create_qp(&QpInit::new(&receiver_cq).qp_type(QpType::Ud))?;
/// receiver.start_datagrams(qkey, &options)?;
/// receiver.post_recv(&RecvWr::new(&[room.slice(..)?]))?;
///
/// // The sender needs no connection, but an address handle.
/// let pd = left.allocate_pd();
/// let (memory, cq) = (pd.allocate(64, AccessFlags::empty())?, left.create_cq(16)?);
/// let mut sender = pd.create_qp(&QpInit::new(&cq).qp_type(QpType::Ud))?;
/// sender.start_datagrams(qkey, &options)?;
/// let way = pd.create_ah(1, &AddressVector::to(right.ports()[0].gids[0]))?;
/// memory.write_at(0, b"datagram")?;
/// let message = [memory.slice(..8)?];
/// sender.post_send(&SendWr::send_to(&message, &way, receiver.qpn(), qkey))?;
///
/// let completion = receiver_cq.wait(Duration::from_secs(10))?.ok_or("no datagram")?;
/// completion.ok()?;
/// assert_eq!((completion.src_qpn, completion.has_grh), (sender.qpn(), true));
/// assert_eq!(completion.byte_len as usize, GRH_LEN + 8);
/// let mut bytes = [0; 8];
/// room.read_at(GRH_LEN, &mut bytes)?;
/// assert_eq!(&bytes, b"datagram");
/// # Ok(()) }
/// ```
///
/// A work request cannot be made for a handle that was dropped:
///
/// ```compile_fail,E0505
/// # fn f(way: uroce::AddressHandle, qpn: uroce::Qpn, qp: &mut uroce::QueuePair) {
/// let wr = uroce::SendWr::send_to(&[], &way, qpn, uroce::Qkey(1));
/// drop(way);
/// qp.post_send(&wr);
/// # }
/// ```
#[derive(Debug)]
pub struct AddressHandle {
    pd: Arc<PdShared>,
    pub(crate) ah: Ah,
}

impl ProtectionDomain {
    /// Creates an address handle for the path from a port, counted from 1, to a peer or a multicast
    /// group. Resolves the peer's next hop, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_ah(&self, port: u8, way: &AddressVector) -> Result<AddressHandle, RequestError> {
        let pd = Arc::clone(self.shared());
        let ah = pd.device.create_ah(pd.pd, port, way)?;
        Ok(AddressHandle { pd, ah })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        let gone = self.pd.device.engine().destroy_ah(self.ah);
        debug_assert_eq!(gone, Ok(()), "only this drop destroys the handle");
    }
}
