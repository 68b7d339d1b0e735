//! `create`, `reg`, `dereg`, `destroy`, `query`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer::{Made, Memory};
use uroce_command::request::{self, Access, Create, CreateQp, Dereg, Destroy, Query, Reg};
use uroce_engine::QpSpec;
use uroce_transport::{AccessFlags, QpCaps, QpType};

use super::{
    Console, CqObject, Failure, MrObject, PdObject, QpObject, RddObject, Served, SrqObject,
};
use crate::call::RequestError;
use crate::control_socket::answer::qp_detail;
use crate::device::random_psn;

/// Largest number of bytes of all regions together, so that a typing error does not exhaust the
/// machine's memory.
const REGION_MAX: u64 = 1 << 30;
const WORD: u64 = size_of::<u64>() as u64;

impl Console {
    pub(super) fn create(
        &mut self,
        create: &Create,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        match create {
            Create::Pd { device } => {
                let served = device_named(device.as_deref(), devices)?;
                let pd = PdObject { device: served.key, pd: served.engine.alloc_pd() };
                let number = next(&self.pds);
                self.pds.insert(number, pd);
                Ok(made(served, "PD", number))
            }
            Create::Cq { depth, device } => {
                let served = device_named(device.as_deref(), devices)?;
                let cq = served.engine.create_cq(*depth, None)?;
                let poller = served.engine.poller(&cq);
                let number = next(&self.cqs);
                self.cqs.insert(number, CqObject { device: served.key, cq, poller });
                Ok(made(served, "CQ", number))
            }
            Create::Srq { pd, depth, sge } => {
                let domain = find(&self.pds, "PD", *pd)?;
                let served = device_of(domain.device, devices)?;
                let srq = served.engine.create_srq(domain.pd, *depth, *sge)?;
                let number = next(&self.srqs);
                self.srqs.insert(number, SrqObject { device: served.key, pd: *pd, srq });
                Ok(made(served, "SRQ", number))
            }
            Create::Rdd { device, lcore } => {
                let served = device_named(device.as_deref(), devices)?;
                let rdd = match lcore {
                    None => served.engine.open_rd_domain(),
                    Some(lcore) => served
                        .engine
                        .open_rd_domain_on(*lcore as usize)
                        .map_err(RequestError::from)?,
                };
                let number = next(&self.rdds);
                self.rdds.insert(number, RddObject { device: served.key, rdd: Arc::new(rdd) });
                Ok(made(served, "RDD", number))
            }
            Create::Qp(create) => self.create_qp(create, devices),
        }
    }

    pub(super) fn create_qp(
        &mut self,
        create: &CreateQp,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        self.forwarding.check_endpoint()?;
        let domain = find(&self.pds, "PD", create.pd)?;
        let (scq, rcq) = (find(&self.cqs, "CQ", create.scq)?, find(&self.cqs, "CQ", create.rcq)?);
        let srq = create.srq.map(|srq| find(&self.srqs, "SRQ", srq)).transpose()?;
        let rdd = create.rdd.map(|rdd| find(&self.rdds, "RDD", rdd)).transpose()?;
        let served = device_of(domain.device, devices)?;
        let others = [
            Some(scq.device),
            Some(rcq.device),
            srq.map(|srq| srq.device),
            rdd.map(|rdd| rdd.device),
        ];
        if others.into_iter().flatten().any(|device| device != domain.device) {
            return Err(of_different_devices());
        }
        let psn = random_psn()
            .map_err(|error| Failure::new(Errno::IO, error.to_string(), "try again later"))?;
        let qp_type = type_of(create)?;
        let (depth, sge) = (create.depth, create.sge);
        let spec = QpSpec {
            qp_type,
            pd: domain.pd,
            caps: QpCaps {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: sge,
                max_recv_sge: sge,
                max_inline_data: 0,
            },
            send_cq: Arc::clone(&scq.cq),
            recv_cq: Arc::clone(&rcq.cq),
            srq: srq.map(|srq| Arc::clone(&srq.srq)),
            xrcd: None,
            rdd: rdd.map(|rdd| Arc::clone(&rdd.rdd)),
            lcore: create.lcore.map(|lcore| lcore as usize),
            notices: false,
            congestion: None,
        };
        let handle = served.calls.begin(move |thread, reply| thread.create_qp(spec, reply))?;
        // The program does not know this QP: without `handle.events` it gets no events of it.
        let (qpn, key) = (handle.qpn.value(), served.key);
        let &CreateQp { pd, scq, rcq, srq, rdd, .. } = create;
        let qp = QpObject { pd, scq, rcq, srq, rdd, sq: handle.sq, rq: handle.rq };
        self.qps.insert((qpn, key), qp);
        let Answer::Made(made) = made(served, "QP", qpn) else { return Ok(Answer::Done) };
        Ok(Answer::Made(Made { psn: Some(psn.value()), ..made }))
    }

    pub(super) fn register(
        &mut self,
        reg: &Reg,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        let Reg::Mr { pd, len, access, pattern } = reg;
        let domain = find(&self.pds, "PD", *pd)?;
        let served = device_of(domain.device, devices)?;
        let taken: usize = self.mrs.values().map(|mr| mr.region.words().len()).sum();
        if len.saturating_add(taken as u64 * WORD) > REGION_MAX {
            let cause = format!("no room for {len} bytes: all regions have at most {REGION_MAX}");
            return Err(Failure::new(Errno::NOMEM, cause, "deregister some: dereg mr KEY"));
        }
        // Keys belong to one device. If a region of another device has the same key, a new one is
        // drawn: a device does not give the same key twice in succession.
        let region = loop {
            let words = words(*len, pattern.unwrap_or(0))?;
            let region = served.engine.register_words(domain.pd, words, rights(access))?;
            if !self.mrs.contains_key(&region.keys().rkey.0) {
                break region;
            }
        };
        let (key, va) = (region.keys().rkey.0, region.va().0);
        self.mrs.insert(key, MrObject { device: served.key, pd: *pd, region });
        let Answer::Made(made) = made(served, "MR", key) else { return Ok(Answer::Done) };
        Ok(Answer::Made(Made { memory: Some((va, len.next_multiple_of(WORD))), ..made }))
    }

    pub(super) fn deregister(&mut self, dereg: &Dereg) -> Result<Answer, Failure> {
        let Dereg::Mr { key } = dereg;
        self.free(*key)
    }

    fn free(&mut self, key: u32) -> Result<Answer, Failure> {
        let Some(MrObject { device, pd, region }) = self.mrs.remove(&key) else {
            return Err(Failure::new(
                Errno::NOENT,
                format!("no command has registered memory with the key {key:#x}"),
                "memory of the program stays registered until the program deregisters it",
            ));
        };
        match region.deregister() {
            Ok(()) => Ok(Answer::Done),
            Err(region) => {
                self.mrs.insert(key, MrObject { device, pd, region });
                Err(uroce_engine::MrError::Busy.into())
            }
        }
    }

    pub(super) fn destroy(
        &mut self,
        destroy: &Destroy,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        match *destroy {
            Destroy::Qp { qp, force } => return self.destroy_qp(qp, force, devices),
            Destroy::Mr { key } => return self.free(key),
            Destroy::Cq { cq } => {
                find(&self.cqs, "CQ", cq)?;
                let mut users = self.qps.iter().filter(|(_, qp)| qp.scq == cq || qp.rcq == cq);
                let user = users.next().map(|((qpn, _), _)| format!("QP {qpn:#08x}"));
                unused(
                    "CQ",
                    cq,
                    user.or_else(|| self.connections.listener_with(|of| of.cq == cq)),
                )?;
                self.cqs.remove(&cq);
            }
            Destroy::Srq { srq } => {
                find(&self.srqs, "SRQ", srq)?;
                let mut users = self.qps.iter().filter(|(_, qp)| qp.srq == Some(srq));
                unused("SRQ", srq, users.next().map(|((qpn, _), _)| format!("QP {qpn:#08x}")))?;
                self.srqs.remove(&srq);
            }
            Destroy::Rdd { rdd } => {
                find(&self.rdds, "RDD", rdd)?;
                let mut users = self.qps.iter().filter(|(_, qp)| qp.rdd == Some(rdd));
                unused("RDD", rdd, users.next().map(|((qpn, _), _)| format!("QP {qpn:#08x}")))?;
                self.rdds.remove(&rdd);
            }
            Destroy::Pd { pd } => {
                find(&self.pds, "PD", pd)?;
                let qps = self.qps.iter().filter(|(_, qp)| qp.pd == pd);
                let mrs = self.mrs.iter().filter(|(_, mr)| mr.pd == pd);
                let srqs = self.srqs.iter().filter(|(_, srq)| srq.pd == pd);
                let mut users = qps
                    .map(|((qpn, _), _)| format!("QP {qpn:#08x}"))
                    .chain(mrs.map(|(key, _)| format!("MR {key:#08x}")))
                    .chain(srqs.map(|(number, _)| format!("SRQ {number}")));
                let user = users.next();
                drop(users);
                unused(
                    "PD",
                    pd,
                    user.or_else(|| self.connections.listener_with(|of| of.pd == pd)),
                )?;
                if let Some(domain) = self.pds.remove(&pd)
                    && let Ok(served) = device_of(domain.device, devices)
                {
                    served.engine.dealloc_pd(domain.pd);
                }
            }
        }
        Ok(Answer::Done)
    }

    fn destroy_qp(
        &mut self,
        number: u32,
        force: bool,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        let found = self.find_qp(number, devices)?;
        if !found.is_ours && !force {
            return Err(Failure::harmful(&format!("QP {number:#08x}")));
        }
        let (qpn, is_ours) = (found.qpn, found.is_ours);
        found.served.calls.call(move |thread| thread.destroy_qp_for(qpn, is_ours))?;
        self.qps.remove(&(number, found.served.key));
        Ok(Answer::Done)
    }

    pub(super) fn query(&self, query: &Query, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let qp = match *query {
            Query::Qp { qp } => qp,
            Query::Mr { key, offset, len } => return self.memory_of(key, offset, len),
        };
        let found = self.find_qp(qp, devices)?;
        Ok(qp_detail(&found.served, found.qpn, &found.info))
    }
}

/// Returns the service of a new QP, which must have an RD domain if the service needs one.
fn type_of(create: &CreateQp) -> Result<QpType, Failure> {
    let qp_type = match create.r#type {
        request::QpType::Rc => QpType::Rc,
        request::QpType::Uc => QpType::Uc,
        request::QpType::Ud => QpType::Ud,
        request::QpType::Rd => QpType::Rd,
        request::QpType::Eec => QpType::Eec,
    };
    let is_rd = matches!(qp_type, QpType::Rd | QpType::Eec);
    let fault = |cause: String, remedy| Err(Failure::new(Errno::INVAL, cause, remedy));
    match (is_rd, create.rdd) {
        (true, None) => fault(
            format!("{qp_type} needs a reliable datagram domain"),
            "make one by `create rdd`, and add rdd N",
        ),
        (false, Some(_)) => {
            fault(format!("{qp_type} is of no reliable datagram domain"), "leave out rdd")
        }
        _ if qp_type == QpType::Eec && create.srq.is_some() => {
            fault("an EE context has no receives".to_owned(), "leave out srq")
        }
        _ => Ok(qp_type),
    }
}

/// Returns the number for a new object other than a QP or MR: the largest number plus one.
fn next<O>(objects: &BTreeMap<u32, O>) -> u32 {
    objects.last_key_value().map_or(0, |(last, _)| last.wrapping_add(1))
}

/// Largest number of bytes of memory in one answer.
const BYTES: usize = 4096;

impl Console {
    /// Answers with bytes of memory that a command has registered.
    fn memory_of(&self, key: u32, offset: u64, len: u16) -> Result<Answer, Failure> {
        let region = &find(&self.mrs, "MR", key)?.region;
        let size = region.words().len() as u64 * WORD;
        let end = offset.saturating_add(len.into());
        if end > size || usize::from(len) > BYTES {
            let cause = format!("{len} bytes at {offset} are not within {size}");
            return Err(Failure::new(Errno::FAULT, cause, "choose at most 4096 bytes of it"));
        }
        let byte = |at: u64| {
            let word = region.words()[(at / WORD) as usize].load(Ordering::Relaxed);
            word.to_ne_bytes()[(at % WORD) as usize]
        };
        let address = region.va().0 + offset;
        Ok(Answer::Memory(Memory { address, bytes: (offset..end).map(byte).collect() }))
    }
}

fn made(served: &Served, object: &str, number: u32) -> Answer {
    let device = served.config.name.clone();
    Answer::Made(Made { device, object: object.to_owned(), number, psn: None, memory: None })
}

/// Finds an object that a command has made.
pub(super) fn find<'o, O>(
    objects: &'o BTreeMap<u32, O>,
    kind: &str,
    number: u32,
) -> Result<&'o O, Failure> {
    objects.get(&number).ok_or_else(|| {
        let made: Vec<String> = objects.keys().take(16).map(ToString::to_string).collect();
        let remedy = match made.is_empty() {
            true => format!("create one: help create {}", kind.to_lowercase()),
            false => format!("commands have made these: {}", made.join(" ")),
        };
        Failure::new(Errno::NOENT, format!("no command has made {kind} {number}"), remedy)
    })
}

/// Checks that no object uses the one that is to be destroyed. `user` names such an object.
fn unused(kind: &str, number: u32, user: Option<String>) -> Result<(), Failure> {
    match user {
        None => Ok(()),
        Some(user) => Err(Failure::new(
            Errno::BUSY,
            format!("{user} uses {kind} {number}"),
            format!("destroy {user} first"),
        )),
    }
}

pub(super) fn device_named<'d>(
    name: Option<&str>,
    devices: &'d [Arc<Served>],
) -> Result<&'d Arc<Served>, Failure> {
    let is_it = |served: &&Arc<Served>| name.is_none_or(|name| served.config.name == name);
    devices
        .iter()
        .find(is_it)
        .ok_or_else(|| Failure::absent("device", name.unwrap_or_default(), "show process"))
}

pub(super) fn device_of(key: u64, devices: &[Arc<Served>]) -> Result<&Arc<Served>, Failure> {
    let gone = || Failure::from(RequestError::Gone);
    devices.iter().find(|served| served.key == key).ok_or_else(gone)
}

pub(super) fn of_different_devices() -> Failure {
    let cause = "the objects are of different devices";
    Failure::new(Errno::INVAL, cause, "create them with the same `device`")
}

/// Allocates at least `len` bytes, each with the value `byte`.
fn words(len: u64, byte: u8) -> Result<Box<[AtomicU64]>, Failure> {
    let no_memory = |remedy: &str| {
        Failure::new(Errno::NOMEM, format!("no memory for a region of {len} bytes"), remedy)
    };
    if len == 0 || len > REGION_MAX {
        let cause = format!("a region cannot have {len} bytes");
        return Err(Failure::new(Errno::INVAL, cause, "choose 1 to 1073741824 bytes"));
    }
    let count = usize::try_from(len.div_ceil(WORD)).map_err(|_| no_memory("choose less"))?;
    let mut words = Vec::new();
    words.try_reserve_exact(count).map_err(|_| no_memory("choose less"))?;
    words.resize_with(count, || AtomicU64::new(u64::from_ne_bytes([byte; 8])));
    Ok(words.into_boxed_slice())
}

pub(super) fn rights(access: &[Access]) -> AccessFlags {
    access.iter().fold(AccessFlags::empty(), |all, access| {
        all | match access {
            Access::All => AccessFlags::all(),
            Access::LocalWrite => AccessFlags::LOCAL_WRITE,
            Access::RemoteWrite => AccessFlags::REMOTE_WRITE,
            Access::RemoteRead => AccessFlags::REMOTE_READ,
            Access::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
            Access::MwBind => AccessFlags::MW_BIND,
            Access::None => AccessFlags::empty(),
        }
    })
}
