//! Records: the control plane's data of each QP, by slot.

use uroce_shared::table::key::Numbers;
use uroce_transport::{QpAttr, QpCaps, QpType};
use uroce_wire::{PathMtu, Qpn};

/// The control plane's data of a QP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) qpn: Qpn,
    pub(super) index: u32,
    /// The lcore that owns it; below 64.
    pub(super) lcore: u8,
    pub(super) qp_type: QpType,
    /// Whether it has no receive queue of its own.
    pub(super) has_srq: bool,
    /// Whether automatic path migration was requested and not cancelled.
    pub(super) migrates: bool,
    pub(super) caps: QpCaps,
    /// The path MTU, if it was set, and the ports of its two paths as they were set. The QP may
    /// have migrated to either path.
    pub(super) path_mtu: Option<PathMtu>,
    pub(super) port: u8,
    /// Whether `port` was set.
    pub(super) has_port: bool,
    pub(super) alt_port: Option<u8>,
}

/// Bytes per QP: its record, and a slot's generation and place in the list of free ones.
pub(super) const BYTES_PER_QP: usize = size_of::<Option<Record>>() + 2 * size_of::<u32>();

/// The records of all QPs that exist.
#[derive(Debug)]
pub(super) struct Records {
    slots: Vec<Option<Record>>,
    numbers: Numbers,
    /// Number of QPs with `migrates` set.
    migrating: u32,
}

impl Record {
    /// Makes the record of a new QP.
    pub(super) fn new(
        qpn: Qpn,
        index: u32,
        lcore: usize,
        qp_type: QpType,
        has_srq: bool,
        caps: QpCaps,
    ) -> Record {
        let QpAttr { port, .. } = QpAttr::default();
        Record {
            qpn,
            index,
            lcore: lcore as u8,
            qp_type,
            has_srq,
            migrates: false,
            caps,
            path_mtu: None,
            port,
            has_port: false,
            alt_port: None,
        }
    }

    /// Returns the record of the same QP after a reset, which sets its attributes to their
    /// defaults.
    pub(super) fn reset(&self) -> Record {
        let Record { qpn, index, lcore, qp_type, has_srq, caps, .. } = *self;
        Record::new(qpn, index, usize::from(lcore), qp_type, has_srq, caps)
    }
}

impl Records {
    /// Makes records for QPs in slots 0 to `max_qps − 1`; `numbers` gives their QPNs.
    pub(super) fn new(max_qps: u32, numbers: Numbers) -> Records {
        Records { slots: Vec::with_capacity(max_qps as usize), numbers, migrating: 0 }
    }

    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(super) fn get(&self, qpn: Qpn) -> Option<&Record> {
        let record = self.at(self.numbers.index_of_qpn(qpn.value()) as u32)?;
        (record.qpn == qpn).then_some(record)
    }

    /// Returns the record of the QP in a slot.
    pub(super) fn at(&self, index: u32) -> Option<&Record> {
        self.slots.get(index as usize)?.as_ref()
    }

    /// Sets the record of a QP, in place of the one in its slot.
    pub(super) fn put(&mut self, record: Record) {
        let at = record.index as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        self.forget(record.index);
        self.migrating += u32::from(record.migrates);
        self.slots[at] = Some(record);
    }

    pub(super) fn forget(&mut self, index: u32) {
        let gone = self.slots.get_mut(index as usize).and_then(Option::take);
        self.migrating -= u32::from(gone.is_some_and(|record| record.migrates));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> + '_ {
        self.slots.iter().flatten()
    }

    /// Returns the records from slot `from` on.
    pub(super) fn iter_from(&self, from: u32) -> impl Iterator<Item = &Record> + '_ {
        self.slots.get(from as usize..).unwrap_or_default().iter().flatten()
    }

    /// Returns the number of QPs that may migrate.
    pub(super) fn migrating(&self) -> u32 {
        self.migrating
    }
}
