//! Memory registered through the raw interface: with its own virtual address, with memory that
//! changes under the key, and without memory.

use crate::common::{Side, connected, pattern, post};
use std::sync::atomic::{AtomicU64, Ordering};
use uroce::raw::{self, Memory, Registration, SendData, SendOp, Sge};
use uroce::{AccessFlags, MrError, ProtectionDomain, RemoteBuffer, Rkey, SendWr, Va, WcStatus};

const WORDS: usize = 8;
const LEN: usize = WORDS * 8;

type Words = &'static [AtomicU64];

/// Memory that is never freed, as the tests are short.
fn words() -> Words {
    Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect())
}

fn memory(words: Words, va: u64, access: AccessFlags) -> Memory {
    Memory { addr: words.as_ptr().cast_mut().cast(), len: LEN, va: Va(va), access }
}

fn register(pd: &ProtectionDomain, memory: &Memory) -> Registration {
    // SAFETY: `memory` is always made of `words`, which are never freed and only accessed by
    // atomics.
    unsafe { pd.register_raw(memory) }.unwrap()
}

/// The region as a peer's work request names it.
fn remote(registration: &Registration, va: u64) -> RemoteBuffer {
    RemoteBuffer { va: Va(va), rkey: Rkey(registration.lkey().0), len: LEN as u64 }
}

fn write(from: &mut Side, to: RemoteBuffer) -> WcStatus {
    let source = [from.memory.slice(..LEN).unwrap()];
    post(&mut from.qp, SendWr::write(&source, to));
    from.completion().status
}

fn bytes(words: Words) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes()).collect()
}

#[test]
fn peers_reach_memory_under_the_name_it_was_given() {
    let (mut left, right) = connected();
    let target = words();
    let writable = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let registration = register(&right.pd, &memory(target, 0x1000, writable));
    left.memory.write_at(0, &pattern(1, LEN)).unwrap();
    assert_eq!(write(&mut left, remote(&registration, 0x1000)), WcStatus::Success);
    assert_eq!(bytes(target), pattern(1, LEN));
    let address = target.as_ptr() as u64;
    assert_eq!(write(&mut left, remote(&registration, address)), WcStatus::RemAccessErr);
}

#[test]
fn a_key_opens_what_it_was_changed_to_and_nothing_else() {
    let (mut left, right) = connected();
    let (old, new) = (words(), words());
    let writable = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mut registration = register(&right.pd, &memory(old, 0x1000, writable));
    let wrong = memory(new, 0x1000, AccessFlags::REMOTE_WRITE);
    // SAFETY: `wrong` is made of `words`, which are never freed and only accessed by atomics.
    let refused = unsafe { registration.change(&right.pd, &wrong) };
    assert_eq!(refused, Err(MrError::NeedsLocalWrite));
    // SAFETY: the memory is made of `words`, which are never freed and only accessed by atomics.
    let foreign = unsafe { registration.change(&left.pd, &memory(new, 0x1000, writable)) };
    assert_eq!(foreign, Err(MrError::UnknownKey));
    left.memory.write_at(0, &pattern(2, LEN)).unwrap();
    assert_eq!(write(&mut left, remote(&registration, 0x1000)), WcStatus::Success);
    assert_eq!((bytes(old), bytes(new)), (pattern(2, LEN), vec![0; LEN]), "as it was");

    // SAFETY: the memory is made of `words`, which are never freed and only accessed by atomics.
    unsafe { registration.change(&right.pd, &memory(new, 0x2000, writable)) }.unwrap();
    left.memory.write_at(0, &pattern(3, LEN)).unwrap();
    assert_eq!(write(&mut left, remote(&registration, 0x2000)), WcStatus::Success);
    assert_eq!((bytes(old), bytes(new)), (pattern(2, LEN), pattern(3, LEN)));

    let other = right.context.allocate_pd();
    // SAFETY: the memory is made of `words`, which are never freed and only accessed by atomics.
    unsafe { registration.change(&other, &memory(new, 0x2000, writable)) }.unwrap();
    assert_eq!(write(&mut left, remote(&registration, 0x2000)), WcStatus::RemAccessErr);
    assert!(registration.deregister().is_ok());
}

#[test]
fn a_region_without_memory_reads_as_zeros_and_discards_writes() {
    let (mut left, right) = connected();
    let nothing = left.pd.register_nothing().unwrap();
    let sge = Sge { va: Va(0xdead_0000), len: LEN as u32, lkey: nothing.lkey() };
    right.memory.write_at(0, &pattern(4, LEN)).unwrap();
    let (va, rkey) = (right.memory.va(), right.memory.rkey());
    for op in [SendOp::Read { va, rkey }, SendOp::Write { va, rkey, imm: None }] {
        let wr = raw::SendWr {
            wr_id: 7,
            op,
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Default::default(),
        };
        let (sends, _) = left.qp.split();
        sends.batch().unwrap().push(&wr, SendData::Sges(&[sge])).unwrap();
        assert_eq!(left.done(), 7);
    }
    assert_eq!(right.bytes(0, LEN), vec![0; LEN]);
}
