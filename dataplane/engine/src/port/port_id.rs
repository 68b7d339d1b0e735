//! Numbers of the process's open ports: as DPDK numbers its own, but for all kinds of ports.

use crate::dpdk::eal::lock;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The numbers of the open ports.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// The number of an open port, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct PortId(u16);

impl PortId {
    /// Takes the wanted number, or the smallest free one.
    pub(super) fn take(wanted: Option<u16>) -> PortId {
        let mut taken = lock(&TAKEN);
        let free = |id: &u16| !taken.contains(id);
        // There are far fewer ports than numbers.
        let id = wanted.filter(free).or_else(|| (0..u16::MAX).find(free)).unwrap_or(u16::MAX);
        taken.insert(id);
        PortId(id)
    }

    pub(super) fn value(&self) -> u16 {
        self.0
    }
}

impl Drop for PortId {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_open_ports_and_dpdks_if_that_is_free() {
        let first = PortId::take(None);
        let same = PortId::take(Some(first.value()));
        assert_eq!([first.value(), same.value()], [0, 1]);
        let far = PortId::take(Some(7));
        assert_eq!((far.value(), PortId::take(Some(9)).value()), (7, 9));
        drop(first);
        assert_eq!(PortId::take(Some(1)).value(), 0, "the smallest free one");
    }
}
