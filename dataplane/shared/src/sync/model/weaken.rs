//! Shows that the models can fail: one place in the source at a time loses its memory order or its
//! write, and some model has to notice.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A place in the source, and what is lost there, such as `qsbr.rs:60:Fence`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Site {
    /// Path below `src`, or below `sync/model` for a replacement of another crate.
    file: &'static str,
    line: u32,
    kind: Kind,
    is_ours: bool,
}

/// Kind of loss at a site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The order of a load.
    Load,
    /// The order of a store.
    Store,
    /// The order of a read-modify-write.
    Update,
    /// A fence.
    Fence,
    /// The value written.
    Write,
}

/// Memory orders that no model has to notice, by file and text of the line, and the reason. An
/// order that no model needs must be listed here, or should be removed from the source.
const UNNOTICED: &[(&str, &str, &str)] = &[
    ("wake/events.rs", "happened.", "`is_ready` orders the bits"),
    ("wake/events.rs", "if source.is_ready.swap(true, Ordering::AcqRel) {", "under the lock"),
    (
        "memory/mr_table.rs",
        "self.entries[index].load(Ordering::Acquire)",
        "under the lock of its store",
    ),
    (
        "memory/mr_table.rs",
        "self.entries[index].swap(ptr::null_mut()",
        "under the lock; a fence follows",
    ),
    ("memory/mw.rs", "self.sequence.compare_exchange(even, odd,", "the fence after it orders"),
    ("memory/mw.rs", "self.0.fetch_update(", "turns order the counted objects"),
    ("memory/mw.rs", "self.0.fetch_sub(1, ", "turns order the counted objects"),
    ("memory/mw.rs", "self.0.compare_exchange(0, ", "turns order the counted objects"),
    ("wake/notices.rs", "fetch_or(", "loom's exchanges always see the latest value"),
    ("wake/notices.rs", ".swap(0, ", "loom's exchanges always see the latest value"),
    ("table/qp_table.rs", "let word = self.words.get(index)?.load(", "no other data is read by it"),
    ("table/qp_table.rs", "self.words[place.index as usize].store(", "no other data is read by it"),
    ("table/qp_table.rs", "self.words[index as usize].store(ABSENT", "no other data is read by it"),
    ("queue/channel.rs", "cq.has_event.swap(false, ", "`armed` orders the same"),
    ("queue/channel.rs", "if !cq.has_event.swap(true, ", "a retired queue is expelled again"),
    ("queue/channel.rs", "fence(", "the lock of the tokens orders the same until it is gone"),
    ("queue/channel.rs", "if cq.has_event.swap(true, ", "`armed` orders the same"),
    ("queue/channel.rs", "self.free.fetch_update(", "a count that no data depends on"),
    ("queue/channel.rs", "self.free.fetch_add(1, ", "a count that no data depends on"),
    ("queue/cq.rs", "self.armed.fetch_max(kind as u8, ", "the fence after it orders"),
    ("queue/cq.rs", "if self.armed.swap(UNARMED, ", "`has_event` orders the same"),
    ("queue/cq.rs", "self.is_member.swap(false, ", "a count that no data depends on"),
    ("queue/cq.rs", "self.overrun.", "fences inside of the queue do it too"),
    ("queue/srq.rs", "Ordering::SeqCst", "loom has no single order; fences stand in for it"),
    ("queue/srq.rs", "head.load(Ordering::Acquire)", "loom moves no load behind a store"),
    ("queue/srq.rs", "let waiting = self.tail.load(", "a count that no data depends on"),
    ("seat.rs", "Ordering::", "the lock orders what it guards"),
];

impl Site {
    /// The reason for which no model has to notice the loss, if there is one.
    pub(crate) fn excuse(&self) -> Option<&'static str> {
        if !self.is_ours {
            return Some("another crate's");
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
        let source = std::fs::read_to_string(format!("{source}{}", self.file)).ok()?;
        let line = source.lines().nth(self.line as usize - 1)?;
        let known = |(file, text, _): &&(_, &str, _)| *file == self.file && line.contains(text);
        let (_, _, why) = UNNOTICED.iter().find(known)?;
        (self.kind != Kind::Write).then_some(why)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{:?}", self.file, self.line, self.kind)
    }
}

/// The weakened site, for the life of the process.
static WEAK: OnceLock<String> = OnceLock::new();

/// All sites that an execution has passed.
static MET: Mutex<BTreeSet<Site>> = Mutex::new(BTreeSet::new());

/// Weakens this site from now on.
pub(crate) fn weaken(site: String) {
    let _ = WEAK.set(site);
}

/// The sites passed since the last call.
pub(crate) fn take_met() -> BTreeSet<Site> {
    std::mem::take(&mut *MET.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The memory order to use at the caller's caller.
#[track_caller]
pub(crate) fn ordering(kind: Kind, order: Ordering) -> Ordering {
    let weak = order != Ordering::Relaxed && loses(kind);
    if weak { Ordering::Relaxed } else { order }
}

/// Files that rely on the single order of all sequentially consistent accesses.
const CONSISTENT: [&str; 1] = ["srq.rs"];

/// Returns whether an access of this order at the caller's caller relies on that single order.
#[track_caller]
pub(crate) fn is_consistent(order: Ordering) -> bool {
    let file = Location::caller().file();
    order == Ordering::SeqCst && CONSISTENT.iter().any(|name| file.ends_with(name))
}

/// Returns whether the write of the caller's caller is lost.
#[track_caller]
pub(crate) fn is_lost() -> bool {
    loses(Kind::Write)
}

#[track_caller]
fn loses(kind: Kind) -> bool {
    let caller = Location::caller();
    let path = caller.file();
    let below = |folder| path.split_once(folder).map(|(_, file)| file);
    let (file, is_ours) = match (below("shared/src/"), below("sync/model/")) {
        (_, Some(file)) => (file, false),
        (Some(file), None) if !file.starts_with("models/") => (file, true),
        _ => return false,
    };
    let site = Site { file, line: caller.line(), kind, is_ours };
    match WEAK.get() {
        Some(weak) => *weak == site.to_string(),
        None => {
            MET.lock().unwrap_or_else(PoisonError::into_inner).insert(site);
            false
        }
    }
}
