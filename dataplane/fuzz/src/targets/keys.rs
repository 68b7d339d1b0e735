//! Z11: memory regions and windows compared with maps.
//!
//! Invariants
//! - An access is granted or refused as the maps determine, for the first reason that applies.
//! - It accesses the right bytes and no others.
//! - Former keys grant nothing.

use crate::Input;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use uroce_shared::memory::mr_table::{MrError, MrReader, MrSpec, MrTable};
use uroce_shared::memory::mw::MwType;
use uroce_shared::table::key::Numbers;
use uroce_transport::{
    AccessFlags, AccessKind, Accessor, AtomicOp, BindMw, Key, MemoryFault, Pd, Region,
};
use uroce_wire::{Icrc, Lkey, Qpn, Rkey, Va};

const SLOTS: u32 = 4;
/// Number of words of the memory that regions are made of.
const WORDS: usize = 16;
const BYTES: usize = 8 * WORDS;
/// The low bits of a key, which the consumer chooses.
const CONSUMER: u32 = 0xff;

/// One permutation for all inputs, so that a finding is reproducible.
static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(SLOTS).expect("randomness"));

#[derive(Clone, Copy)]
struct KnownRegion {
    pd: Pd,
    access: AccessFlags,
    va: u64,
    len: u64,
    /// Offset of the region's first byte in the memory.
    offset: usize,
}

#[derive(Clone, Copy)]
struct KnownWindow {
    pd: Pd,
    kind: MwType,
    key: u32,
    bound: Option<Binding>,
}

#[derive(Clone, Copy)]
struct Binding {
    region: u32,
    qpn: Qpn,
    /// The part of the region that the window grants, with the window's rights.
    opens: KnownRegion,
}

struct Siege {
    table: Arc<MrTable>,
    reader: MrReader,
    memory: Box<[u64; WORDS]>,
    expected: [u8; BYTES],
    regions: BTreeMap<u32, KnownRegion>,
    /// The windows, by the upper bits of their keys.
    windows: BTreeMap<u32, KnownWindow>,
    /// All keys that were ever used.
    keys: Vec<u32>,
}

pub(super) fn run(input: &mut Input<'_>) {
    let table = Arc::new(MrTable::new(SLOTS, 1, NUMBERS.clone()));
    let mut siege = Siege {
        reader: MrReader::new(Arc::clone(&table), 0),
        table,
        memory: Box::new([0; WORDS]),
        expected: [0; BYTES],
        regions: BTreeMap::new(),
        windows: BTreeMap::new(),
        keys: vec![0, u32::MAX],
    };
    while !input.is_empty() {
        match input.below(8) {
            0 => siege.register(input),
            1 => siege.deregister(input),
            2 => siege.alloc_window(input),
            3 => siege.bind(input),
            4 => siege.invalidate(input),
            _ => siege.touch(input),
        }
        let bytes: Vec<u8> = siege.memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes, siege.expected, "bytes were touched that are not meant");
    }
}

fn accessor(input: &mut Input<'_>) -> Accessor {
    let byte = input.u8();
    Accessor { pd: Pd(1 + u32::from(byte & 1)), qpn: Qpn::new(2 + u32::from(byte >> 1 & 1)) }
}

/// All access rights, or random ones.
fn rights(input: &mut Input<'_>) -> AccessFlags {
    match input.u8() {
        byte if byte < 0x80 => AccessFlags::all(),
        byte => AccessFlags::from_bits_truncate(byte),
    }
}

/// A range near the edges of `va` and `len`, or anywhere.
fn range(input: &mut Input<'_>, va: u64, len: u64) -> (u64, u64) {
    let near = |input: &mut Input<'_>| u64::from(input.u8() % 24).wrapping_sub(8);
    let from = match input.below(4) {
        0 => input.u64(),
        1 => va.wrapping_add(len).wrapping_add(near(input)),
        _ => va.wrapping_add(near(input)),
    };
    let len = match input.below(8) {
        0 => u64::from(u32::MAX),
        1 => 0,
        2 => len,
        _ => u64::from(input.u8() % 40),
    };
    (from, len)
}

/// Returns whether the region contains the range, computed in numbers that do not wrap.
fn holds(region: &KnownRegion, va: u64, len: u64) -> bool {
    let [begin, size, va, len] = [region.va, region.len, va, len].map(u128::from);
    size > 0 && begin <= va && va + len <= begin + size
}

impl Siege {
    /// A present or former key, perhaps with changed bits.
    fn key(&self, input: &mut Input<'_>) -> u32 {
        let key = self.keys[self.keys.len() - 1 - input.below(self.keys.len().min(16))];
        match input.below(8) {
            0 => key ^ u32::from(input.u8()),
            1 => key ^ 1 << input.below(32),
            _ => key,
        }
    }

    /// Most often a window's key.
    fn window_key(&self, input: &mut Input<'_>) -> u32 {
        let at = input.u8();
        match self.windows.values().nth(usize::from(at) % (self.windows.len() + 1)) {
            Some(window) => window.key,
            None => self.key(input),
        }
    }

    /// Most often a region's key.
    fn region_key(&self, input: &mut Input<'_>) -> u32 {
        let at = input.u8();
        match self.regions.keys().nth(usize::from(at) % (self.regions.len() + 1)) {
            Some(&key) => key,
            None => self.key(input),
        }
    }

    fn is_full(&self) -> bool {
        self.regions.len() + self.windows.len() == SLOTS as usize
    }

    fn register(&mut self, input: &mut Input<'_>) {
        let offset = input.below(BYTES);
        let len = input.below(BYTES - offset + 1) as u64;
        let va = match input.below(4) {
            0 => input.u64(),
            1 => 0_u64.wrapping_sub(len),
            _ => 0x1000 + offset as u64,
        };
        let pd = accessor(input).pd;
        let access = rights(input);
        let addr = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        let spec = MrSpec { addr, len: len as usize, va: Va(va), pd, access };
        // SAFETY: the memory outlives the table's use of it, and is read between such uses only.
        let result = unsafe { self.table.register(&spec) };
        let remote = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let expected = if u128::from(va) + u128::from(len) > 1 << 64 {
            Some(MrError::Wraps)
        } else if access.intersects(remote) && !access.contains(AccessFlags::LOCAL_WRITE) {
            Some(MrError::NeedsLocalWrite)
        } else if access.contains(AccessFlags::REMOTE_ATOMIC)
            && !(addr as u64 ^ va).is_multiple_of(8)
        {
            Some(MrError::Misaligned)
        } else if self.is_full() {
            Some(MrError::TableFull)
        } else {
            None
        };
        assert_eq!(result.err(), expected);
        input.reach(1, expected.map_or(0, |error| 1 + error as u32));
        let Ok(keys) = result else { return };
        assert_eq!(keys.lkey.0, keys.rkey.0);
        assert!(!self.keys.contains(&keys.rkey.0), "a key came again");
        self.keys.push(keys.rkey.0);
        self.regions.insert(keys.rkey.0, KnownRegion { pd, access, va, len, offset });
    }

    fn deregister(&mut self, input: &mut Input<'_>) {
        let key = self.key(input);
        if input.below(2) == 0 {
            let is_bound =
                |window: &KnownWindow| window.bound.is_some_and(|binding| binding.region == key);
            let expected = match self.regions.get(&key) {
                None => Err(MrError::UnknownKey),
                Some(_) if self.windows.values().any(is_bound) => Err(MrError::Busy),
                Some(_) => Ok(()),
            };
            assert_eq!(self.table.deregister(Lkey(key)), expected);
            input.reach(2, u32::from(expected.is_ok()));
            if expected.is_ok() {
                self.regions.remove(&key);
            }
        } else {
            let known = self.windows.remove(&(key & !CONSUMER)).is_some();
            let expected = if known { Ok(()) } else { Err(MrError::UnknownKey) };
            assert_eq!(self.table.dealloc_mw(Rkey(key)), expected);
            input.reach(3, u32::from(known));
        }
    }

    fn alloc_window(&mut self, input: &mut Input<'_>) {
        let pd = accessor(input).pd;
        let kind = input.pick(&[MwType::Type1, MwType::Type2]);
        let result = self.table.alloc_mw(pd, kind);
        assert_eq!(result.err(), self.is_full().then_some(MrError::TableFull));
        let Ok(Rkey(key)) = result else { return };
        assert!(!self.keys.contains(&key), "a key came again");
        self.keys.push(key);
        self.windows.insert(key & !CONSUMER, KnownWindow { pd, kind, key, bound: None });
    }

    fn bind(&mut self, input: &mut Input<'_>) {
        let by = accessor(input);
        let (rkey, lkey) = (self.window_key(input), self.region_key(input));
        let new_rkey =
            if input.below(8) == 0 { self.key(input) } else { rkey ^ u32::from(input.u8()) };
        let region = self.regions.get(&lkey).copied();
        let (va, len) = region.map_or((0, 8), |region| (region.va, region.len));
        let (va, len) = range(input, va, len);
        let access = rights(input);
        let window = self.windows.get(&(rkey & !CONSUMER)).copied();
        let is_possible = window.is_some_and(|window| {
            let is_free = window.kind == MwType::Type2 && window.bound.is_none();
            let is_named =
                (is_free || window.key == rkey) && new_rkey & !CONSUMER == rkey & !CONSUMER;
            let may = match window.kind {
                MwType::Type2 => window.bound.is_none() && len > 0,
                MwType::Type1 => true,
            };
            let unbinds = window.kind == MwType::Type1 && len == 0;
            let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
            let region_may = region.is_some_and(|region| {
                let needs_write = access.intersects(writes);
                region.pd == by.pd
                    && holds(&region, va, len)
                    && region.access.contains(AccessFlags::MW_BIND)
                    && (!needs_write || region.access.contains(AccessFlags::LOCAL_WRITE))
            });
            is_named && window.pd == by.pd && may && (unbinds || region_may)
        });
        let (rkey, new_rkey) = (Rkey(rkey), Rkey(new_rkey));
        let bind = BindMw { rkey, new_rkey, lkey: Lkey(lkey), va: Va(va), len, access };
        let result = self.reader.enter().bind(by, &bind);
        assert_eq!(result.is_ok(), is_possible, "{bind:?}: {result:?}");
        input.reach(4, result.map_or_else(|fault| 1 + fault as u32, |()| 0));
        if result.is_ok() {
            let bound = region.filter(|_| len > 0).map(|region| {
                let offset = region.offset + va.wrapping_sub(region.va) as usize;
                let opens = KnownRegion { va, len, offset, access, ..region };
                Binding { region: lkey, qpn: by.qpn, opens }
            });
            self.keys.push(new_rkey.0);
            if let Some(window) = self.windows.get_mut(&(rkey.0 & !CONSUMER)) {
                (window.key, window.bound) = (new_rkey.0, bound);
            }
        }
    }

    fn invalidate(&mut self, input: &mut Input<'_>) {
        let (by, key) = (accessor(input), self.window_key(input));
        let known = self.windows.get_mut(&(key & !CONSUMER));
        let known = known.filter(|window| {
            let is_own = window.bound.is_some_and(|binding| binding.qpn == by.qpn);
            window.kind == MwType::Type2 && window.key == key && is_own && window.pd == by.pd
        });
        let result = self.reader.enter().invalidate(by, Rkey(key));
        assert_eq!(result.is_ok(), known.is_some(), "{result:?}");
        input.reach(5, result.map_or_else(|fault| 1 + fault as u32, |()| 0));
        if let Some(window) = known {
            window.bound = None;
        }
    }

    /// The expected result of an access.
    fn answer(
        &self,
        by: Accessor,
        region: Region,
        access: AccessKind,
    ) -> Result<usize, MemoryFault> {
        let (key, is_remote) = match region.key {
            Key::Local(lkey) => (lkey.0, false),
            Key::Remote(rkey) => (rkey.0, true),
        };
        let opened = match (self.regions.get(&key), self.windows.get(&(key & !CONSUMER))) {
            (Some(region), _) if region.pd != by.pd => return Err(MemoryFault::WrongPd),
            (Some(region), _) => *region,
            (None, Some(window)) if is_remote && window.key == key => {
                let binding = window.bound.ok_or(MemoryFault::UnknownKey)?;
                if window.pd != by.pd {
                    return Err(MemoryFault::WrongPd);
                }
                if window.kind == MwType::Type2 && binding.qpn != by.qpn {
                    return Err(MemoryFault::WrongQp);
                }
                binding.opens
            }
            _ => return Err(MemoryFault::UnknownKey),
        };
        if !holds(&opened, region.va.0, u64::from(region.len)) {
            return Err(MemoryFault::OutOfRange);
        }
        let needed = match (is_remote, access) {
            (false, AccessKind::Read) => AccessFlags::empty(),
            (false, _) => AccessFlags::LOCAL_WRITE,
            (true, AccessKind::Read) => AccessFlags::REMOTE_READ,
            (true, AccessKind::Write) => AccessFlags::REMOTE_WRITE,
            (true, AccessKind::Atomic) => AccessFlags::REMOTE_ATOMIC,
        };
        if !opened.access.contains(needed) {
            return Err(MemoryFault::NotGranted);
        }
        Ok(opened.offset + (region.va.0 - opened.va) as usize)
    }

    fn touch(&mut self, input: &mut Input<'_>) {
        let by = accessor(input);
        let key = if input.below(2) == 0 { self.window_key(input) } else { self.region_key(input) };
        let is_remote = input.below(2) == 0;
        let window = self.windows.get(&(key & !CONSUMER)).and_then(|window| window.bound);
        let known = self.regions.get(&key).copied().or(window.map(|binding| binding.opens));
        let (va, len) = known.map_or((0, 8), |region| (region.va, region.len));
        let (va, len) = range(input, va, len);
        let key = if is_remote { Key::Remote(Rkey(key)) } else { Key::Local(Lkey(key)) };
        let region = Region { key, va: Va(va), len: len as u32 };
        let reader = self.reader.enter();
        for access in [AccessKind::Read, AccessKind::Write, AccessKind::Atomic] {
            let expected = self.answer(by, region, access);
            assert_eq!(
                reader.check(by, region, access),
                expected.map(|_| ()),
                "{region:?} {access:?}"
            );
            input.reach(6 + access as u32, expected.map_or_else(|fault| 1 + fault as u32, |_| 0));
        }
        if region.len > 0 && region.len as usize <= BYTES {
            let bytes = vec![input.u8(); region.len as usize];
            let expected = self.answer(by, region, AccessKind::Write);
            assert_eq!(reader.write(by, region, &bytes), expected.map(|_| ()));
            if let Ok(at) = expected {
                self.expected[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let (mut read, mut summed) =
                (vec![0; region.len as usize], vec![0; region.len as usize]);
            let expected = self.answer(by, region, AccessKind::Read);
            assert_eq!(reader.read(by, region, &mut read), expected.map(|_| ()));
            let sum = reader.read_summed(by, region, &mut summed, Icrc(0));
            assert_eq!((&summed, sum), (&read, expected.map(|_| Icrc(0).and(&read))));
            if let Ok(at) = expected {
                assert_eq!(read, self.expected[at..at + read.len()]);
            }
        }
        let Key::Remote(rkey) = key else { return };
        let word = Region { va: Va(va & !7), len: 8, key };
        let expected = self.answer(by, word, AccessKind::Atomic);
        // A window may begin at any byte of its region, but only aligned words are accessed.
        let result = reader.atomic(by, rkey, word.va, AtomicOp::FetchAdd { add: 1 });
        if let (Ok(at), Ok(former)) = (expected, result) {
            let now = former.wrapping_add(1).to_ne_bytes();
            assert_eq!(self.expected[at..at + 8], former.to_ne_bytes());
            self.expected[at..at + 8].copy_from_slice(&now);
        } else {
            assert!(result.is_err(), "granted: {expected:?}");
            assert!(expected.is_err() || result == Err(MemoryFault::OutOfRange));
        }
    }
}
