//! GID table of a port: its IP addresses by index.
//!
//! Invariants
//! - An address keeps its index while the port has it. Removing an address leaves an empty entry; a
//!   new address takes the first empty entry.
//! - No address is in the table twice, and there are at most [`MAX_GIDS`] entries.
//!
//! Not here: the source of the addresses (the configuration, or the kernel's netdev).

use std::net::IpAddr;

use uroce_engine::MAX_GIDS;
use uroce_wire::Gid;

use super::prefix::IpPrefix;

/// A port's addresses by GID index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GidTable {
    entries: Vec<Option<IpPrefix>>,
}

impl GidTable {
    /// Creates a table of these addresses, the first with index 0. Repeated addresses and those
    /// beyond the first [`MAX_GIDS`] are left out.
    pub fn new(addresses: &[IpPrefix]) -> Self {
        let mut table = Self::default();
        table.update(addresses);
        table
    }

    /// Replaces the port's addresses. Returns whether a GID was added or removed. Addresses that
    /// stay keep their indexes; their prefix lengths may change.
    pub fn update(&mut self, addresses: &[IpPrefix]) -> bool {
        let mut changed = false;
        for entry in &mut self.entries {
            let Some(own) = *entry else { continue };
            *entry = addresses.iter().find(|new| new.address() == own.address()).copied();
            changed |= entry.is_none();
        }
        for new in addresses {
            if self.prefixes().all(|own| own.address() != new.address()) {
                changed |= self.insert(*new);
            }
        }
        changed
    }

    fn insert(&mut self, new: IpPrefix) -> bool {
        if let Some(empty) = self.entries.iter_mut().find(|entry| entry.is_none()) {
            *empty = Some(new);
            return true;
        }
        let has_room = self.entries.len() < MAX_GIDS;
        if has_room {
            self.entries.push(Some(new));
        }
        has_room
    }

    /// Returns the GID with this index; `None` for an empty entry or beyond the table.
    pub fn gid(&self, index: u8) -> Option<Gid> {
        let entry = self.entries.get(usize::from(index))?;
        entry.map(|own| own.address().into())
    }

    /// Returns the index of one of the port's addresses.
    pub fn index(&self, address: IpAddr) -> Option<u8> {
        let is_it = |entry: &Option<IpPrefix>| entry.is_some_and(|own| own.address() == address);
        // The index fits: there are at most MAX_GIDS entries.
        self.entries.iter().position(is_it).map(|index| index as u8)
    }

    /// Returns all entries in the order of their indexes; an empty one is the zero GID.
    pub fn gids(&self) -> Vec<Gid> {
        let gid = |entry: &Option<IpPrefix>| entry.map(|own| own.address().into());
        self.entries.iter().map(|entry| gid(entry).unwrap_or_default()).collect()
    }

    /// Returns the port's addresses with their indexes.
    pub fn entries(&self) -> impl Iterator<Item = (u8, &IpPrefix)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    /// Returns the port's addresses with their prefix lengths.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpPrefix> {
        self.entries.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<IpPrefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_address_keeps_its_index_and_a_new_one_takes_the_first_empty_entry() {
        let mut table =
            GidTable::new(&prefixes(&["192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64"]));
        assert!(table.update(&prefixes(&["2001:db8::1/64", "192.0.2.1/24"])));
        assert_eq!(table.gids(), [gid("192.0.2.1"), Gid::default(), gid("2001:db8::1")]);
        assert_eq!((table.gid(1), table.gid(3)), (None, None));
        let index = |text: &str| table.index(text.parse().unwrap());
        assert_eq!(["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(index), [Some(0), None, Some(2)]);
        let now = ["198.51.100.1/24", "198.51.100.2/24", "2001:db8::1/64", "192.0.2.1/24"];
        assert!(table.update(&prefixes(&now)));
        let expected = ["192.0.2.1", "198.51.100.1", "2001:db8::1", "198.51.100.2"];
        assert_eq!(table.gids(), expected.map(gid));
    }

    #[test]
    fn another_prefix_length_is_no_other_gid() {
        let mut table = GidTable::new(&prefixes(&["192.0.2.1/24"]));
        assert!(!table.update(&prefixes(&["192.0.2.1/25"])));
        assert_eq!(table.prefixes().map(IpPrefix::len).collect::<Vec<_>>(), [25]);
        assert!(!table.update(&prefixes(&["192.0.2.1/25", "192.0.2.1/25"])));
        assert!(table.update(&[]));
        assert_eq!(table.gids(), [Gid::default()]);
    }

    #[test]
    fn more_addresses_than_the_engine_can_have_are_left_out() {
        let many: Vec<IpPrefix> =
            (1..=200).map(|n| format!("10.0.0.{n}/16").parse().unwrap()).collect();
        let mut table = GidTable::new(&many);
        assert_eq!(table.gids().len(), MAX_GIDS);
        assert!(!table.update(&many));
    }
}
