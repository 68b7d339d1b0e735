//! Ports to the other processes of the machine, without lcores: what one peer does to another's
//! frames.

use std::path::PathBuf;
use std::time::Duration;
use uroce_engine::eal::{Eal, EalConfig};
use uroce_engine::mbuf::{Mbuf, MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::{LocalConfig, Port, QueuePair, member_mac};
use uroce_transport::Instant;

const LEN: usize = 4096;
/// Frames that are more than a link holds.
const MANY: u32 = 2000;

struct Lab {
    pool: Mempool,
    directory: PathBuf,
    now: Instant,
    /// Members 1, 2 and 3.
    ports: Vec<Port>,
    queues: Vec<QueuePair>,
}

impl Lab {
    fn new(name: &str) -> Lab {
        let eal = Eal::init(&EalConfig::default()).expect("EAL starts");
        let config = PoolConfig { count: 8191, cache: 0, ..PoolConfig::default() };
        let pool = Mempool::create(eal, &config).expect("mempool");
        let directory = std::env::temp_dir().join(format!("uroce-{}-{name}", std::process::id()));
        let join = |_| {
            let directory = directory.clone();
            let config = LocalConfig { directory, member: None, queue_pairs: 1, mtu: 4200 };
            Port::join(config, &pool).expect("a free number")
        };
        let ports: Vec<Port> = (0..3).map(join).collect();
        let queues = ports.iter().map(|port| port.queue_pair(0).expect("a queue pair")).collect();
        Lab { pool, directory, now: Instant::ZERO, ports, queues }
    }

    /// A frame from member 1 with a number.
    fn frame(&self, to: u8, number: u32) -> Mbuf {
        let mut mbuf = self.pool.alloc().expect("an mbuf");
        mbuf.set_len(LEN).expect("it fits");
        let bytes = mbuf.as_mut_slice();
        bytes[..6].copy_from_slice(&member_mac(to).0);
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        mbuf
    }

    /// Lets member 1 send a batch, in a turn of its own.
    fn send(&mut self, batch: &mut MbufBatch) -> usize {
        self.now = self.now + Duration::from_micros(10);
        self.queues[0].begin(self.now);
        let mut received = MbufBatch::new();
        self.queues[0].rx_burst(&mut received);
        self.queues[0].tx_burst(batch)
    }

    /// Returns the numbers of the frames that a member receives now.
    fn receive(&mut self, member: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut batch = MbufBatch::new();
        while self.queues[member - 1].rx_burst(&mut batch) > 0 {
            for mbuf in batch.drain() {
                let bytes = mbuf.as_slice();
                numbers.push(u32::from_be_bytes(bytes[14..18].try_into().expect("four")));
            }
        }
        numbers
    }

    /// Makes the links from member 1 to the others. They are made by a thread, while this one's
    /// clock goes slower than the machine's: a frame waits for its link by this clock.
    fn link(&mut self) {
        for to in [2, 3] {
            let mut batch = MbufBatch::new();
            batch.push(self.frame(to, u32::MAX)).expect("room");
            let begin = std::time::Instant::now();
            let mut numbers = Vec::new();
            while numbers.is_empty() {
                assert!(begin.elapsed() < Duration::from_secs(20), "no link to {to}");
                std::thread::sleep(Duration::from_micros(200));
                self.send(&mut batch);
                numbers = self.receive(to.into());
            }
            assert_eq!(numbers, [u32::MAX]);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.queues.clear();
        self.ports.clear();
        assert_eq!(self.pool.available(), self.pool.count(), "no mbuf is lost");
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_peer_that_takes_nothing_holds_up_its_own_frames_only_and_they_stay_in_order() {
    let mut lab = Lab::new("hold");
    lab.link();
    // Member 2 takes nothing, until the port keeps its frames.
    let (mut sent, mut batch) = (0, MbufBatch::new());
    while batch.is_empty() && sent < MANY {
        for _ in 0..32 {
            batch.push(lab.frame(2, sent)).expect("room");
            sent += 1;
        }
        lab.send(&mut batch);
    }
    assert!(sent < MANY, "a link holds {sent} frames");
    // One burst with frames to both: those to member 3 leave.
    for number in 0..20 {
        batch.push(lab.frame(3, number)).expect("room");
        if batch.room() > 0 {
            batch.push(lab.frame(2, sent)).expect("room");
            sent += 1;
        }
    }
    lab.send(&mut batch);
    assert_eq!(lab.receive(3), (0..20).collect::<Vec<_>>());
    // Member 2 comes back, and gets all frames in their order.
    let mut numbers = Vec::new();
    for _ in 0..100 {
        numbers.extend(lab.receive(2));
        lab.send(&mut batch);
    }
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
}

#[test]
fn frames_for_a_peer_that_is_stuck_are_lost_and_counted() {
    let mut lab = Lab::new("stuck");
    lab.link();
    let (mut sent, mut batch) = (0, MbufBatch::new());
    while batch.is_empty() && sent < MANY {
        batch.push(lab.frame(2, sent)).expect("room");
        sent += 1;
        lab.send(&mut batch);
    }
    let waiting = batch.len();
    assert!(waiting > 0);
    lab.now = lab.now + Duration::from_secs(1);
    lab.send(&mut batch);
    assert!(batch.is_empty());
    let xstats = lab.ports[0].xstats();
    let stuck = xstats.iter().find(|(name, _)| name == "tx_stuck").expect("it is counted").1;
    assert!(stuck >= waiting as u64, "{stuck} of {waiting}");
    assert_eq!(lab.ports[0].stats().tx_errors, stuck);
    let arrived = lab.receive(2).len() as u64;
    assert_eq!(arrived + stuck, u64::from(sent));
}
