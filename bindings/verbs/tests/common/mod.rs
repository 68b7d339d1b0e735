//! Two devices of one process on a ring link, each with a protection domain, a completion queue and
//! a QP.

#![allow(unreachable_pub, reason = "a module of a program has no public items")]

use std::time::{Duration, Instant};

use uroce::config::{DeviceConfig, LossConfig, PortConfig};
use uroce::{
    AccessFlags, CompletionQueue, Config, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QpInit, QueuePair, RecvWr, SendWr, WcStatus, WorkCompletion,
};

/// A timeout that is not reached.
pub const SOON: Duration = Duration::from_secs(20);

/// One end of the link.
pub struct Side {
    pub context: Context,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
    pub memory: MemoryRegion,
}

/// Parameters of the link and the devices.
#[derive(Clone)]
pub struct Setup {
    pub addresses: [&'static str; 2],
    /// Addresses of a second port at each end, which are joined by a second link.
    pub second: Option<[&'static str; 2]>,
    pub mtu: u16,
    pub vlan: Option<u16>,
    pub lcores: u16,
    pub loss: LossConfig,
    pub options: ConnectOptions,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            addresses: ["192.0.2.1/24", "192.0.2.2/24"],
            second: None,
            mtu: 4200,
            vlan: None,
            lcores: 1,
            loss: LossConfig::default(),
            options: ConnectOptions::default(),
        }
    }
}

impl Setup {
    /// Two ports at each end, on two links.
    pub fn two_links() -> Setup {
        let second = Some(["198.51.100.1/24", "198.51.100.2/24"]);
        Setup { second, ..Setup::default() }
    }

    pub fn config(&self) -> Config {
        let port = |link: &str, address: &str| {
            let port = PortConfig { vlan: self.vlan, ..PortConfig::ring(link) };
            port.mtu(self.mtu).loss(self.loss).ip(address).expect("an address")
        };
        let device = |name: &str, end: usize| {
            let lcores = uroce::config::Lcores::Count(self.lcores);
            let device = DeviceConfig::new(name).lcores(lcores);
            let device = device.port(port("link", self.addresses[end]));
            match self.second {
                Some(addresses) => device.port(port("second", addresses[end])),
                None => device,
            }
        };
        Config::new().device(device("left", 0)).device(device("right", 1))
    }

    pub fn contexts(&self) -> (Context, Context) {
        let config = self.config();
        let open = |name| Context::open(&config, name).expect("a ring link needs no privilege");
        (open("left"), open("right"))
    }

    /// Opens both ends and connects their QPs.
    pub fn connect(&self) -> (Side, Side) {
        let (left, right) = self.contexts();
        let (mut left, mut right) = (Side::new(&left), Side::new(&right));
        join(&mut left, &mut right, &self.options);
        (left, right)
    }
}

pub fn connected() -> (Side, Side) {
    Setup::default().connect()
}

pub fn join(left: &mut Side, right: &mut Side, options: &ConnectOptions) {
    let ends = [&left.qp, &right.qp].map(|qp| qp.endpoint(1, 0).expect("port 1 has an address"));
    right.qp.connect(&ends[0], options).expect("left answers");
    left.qp.connect(&ends[1], options).expect("right answers");
}

impl Side {
    pub const MEMORY: usize = 1 << 20;

    pub fn new(context: &Context) -> Side {
        let pd = context.allocate_pd();
        let cq = context.create_cq(1024).expect("a depth in range");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("QPs are left");
        let memory = pd.allocate(Side::MEMORY, AccessFlags::all()).expect("memory");
        Side { context: context.clone(), pd, cq, qp, memory }
    }

    /// Waits for the next completion.
    pub fn completion(&self) -> WorkCompletion {
        self.cq.wait(SOON).expect("no overrun").expect("a completion in time")
    }

    /// Waits for the next completion, which must be a success, and returns its number.
    pub fn done(&self) -> u64 {
        let completion = self.completion();
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion.wr_id
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(offset, &mut bytes).expect("in range");
        bytes
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.context.counters().expect("the control plane runs");
        counters.iter().find(|count| count.name == name).expect("a counter of that name").value
    }
}

/// Sends a message in each direction and checks that it arrives.
pub fn talk(left: &mut Side, right: &mut Side) {
    let message = pattern(left.bytes(0, 1)[0].wrapping_add(1), 9000);
    tell(left, right, &message);
    tell(right, left, &message);
}

pub fn tell(from: &mut Side, to: &mut Side, message: &[u8]) {
    to.qp.post_recv(&RecvWr::new(&[to.memory.slice(20_000..40_000).unwrap()])).unwrap();
    from.memory.write_at(0, message).unwrap();
    post(&mut from.qp, SendWr::send(&[from.memory.slice(..message.len()).unwrap()]));
    from.done();
    to.done();
    assert_eq!(to.bytes(20_000, message.len()), message);
}

pub fn post(qp: &mut QueuePair, wr: SendWr<'_>) {
    qp.post_send(&wr.signaled()).expect("room in the send queue");
}

/// Bytes that depend on their position and on the seed.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// Waits until `check` is true.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < SOON, "{what} did not come");
        std::thread::yield_now();
    }
}
