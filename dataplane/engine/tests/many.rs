//! Very many QPs at once. One process per test.

mod lab;

use lab::{Lab, LabConfig, QpWish};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use uroce_transport::{AccessFlags, QpCaps, QpType, SendOp, WcStatus};

/// The system's allocator, which also counts the allocated bytes.
struct Measuring;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and the memory came from the system
        // allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

#[test]
fn sixty_four_thousand_qps_are_open_at_once_and_the_last_ones_work() {
    const QPS: usize = 1 << 16;
    let config = LabConfig { max_qps: QPS as u32 + 1, ..LabConfig::default() };
    let mut lab = Lab::new(&config);
    let (mut a, b) = lab.connect(&QpWish::default());
    let caps = QpCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let before = taken();
    let mut idle = Vec::with_capacity(QPS);
    for at in 0..QPS {
        let qp_type = QpType::ALL[at % 3];
        let wish = QpWish { caps, cq_depth: 1, qp_type, ..QpWish::default() };
        idle.push(lab.a.create_qp(&wish));
    }
    let each = (taken() - before) / QPS;
    println!("{each} bytes for a QP, a CQ and their rings");
    let refused = lab.a.try_create_qp(&QpWish { caps, cq_depth: 1, ..QpWish::default() });
    assert!(refused.is_err(), "one more than the engine was started for");

    let local = lab.a.register(a.pd, 4096, AccessFlags::all());
    let remote = lab.b.register(b.pd, 4096, AccessFlags::all());
    local.fill(3);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 4096)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(remote.bytes(), local.bytes());
    for qp in &idle {
        lab.a.control.destroy_qp(qp.qpn).expect("destroys");
    }
    drop((local, remote, idle));
    lab.finish();
}
