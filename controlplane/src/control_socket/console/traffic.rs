//! `post`, `poll`, `wait`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::answer::Completion;
use uroce_command::request::{Datagram, Link, Local, Poll, Post, Remote, WAIT_MAX, Wait};
use uroce_engine::{SendData, SendQueueEnd};
use uroce_transport::{Cqe, PostError, RdAddress, RecvWr, SendOp, SendWr, Sge};
use uroce_wire::{ImmDt, Lkey, Qkey, Qpn, Rkey, Va};

use super::modify::{number, state_of};
use super::objects::find;
use super::{Begun, Console, CqObject, Failure, QpObject, Served, ambiguous, find_port};

/// Length in bytes of the operand of an ATOMIC.
const ATOMIC: u32 = 8;
/// Largest number of work requests of a command.
const POSTED_MAX: u32 = 1 << 16;
/// Largest number of completions in an answer, so that it fits into a frame.
const POLLED_MAX: u16 = 1024;

impl Console {
    pub(super) fn post(&mut self, post: &Post) -> Result<Answer, Failure> {
        let (local, to, len, op) = match post {
            Post::Recv { local, len } => return self.post_recvs(local, *len),
            Post::Send { local, to, len, imm } => {
                (local, to, *len, SendOp::Send { imm: imm.map(ImmDt) })
            }
            Post::Write { local, to, remote, len, imm } => {
                let (va, rkey) = place(remote);
                (local, to, *len, SendOp::Write { va, rkey, imm: imm.map(ImmDt) })
            }
            Post::Read { local, to, remote, len } => {
                let (va, rkey) = place(remote);
                (local, to, *len, SendOp::Read { va, rkey })
            }
            Post::CmpSwap { local, to, remote, compare, swap } => {
                let (va, rkey) = place(remote);
                let op = SendOp::CompareSwap { va, rkey, compare: *compare, swap: *swap };
                (local, to, ATOMIC, op)
            }
            Post::FetchAdd { local, to, remote, add } => {
                let (va, rkey) = place(remote);
                (local, to, ATOMIC, SendOp::FetchAdd { va, rkey, add: *add })
            }
        };
        let to = to.as_ref().map(address).transpose()?;
        let (sge, first) = (self.memory(local, len)?, self.wr_id);
        let wrs: Vec<SendWr> = (0..checked_count(local)?)
            .map(|at| SendWr {
                wr_id: first + u64::from(at),
                op,
                signaled: true,
                solicited: false,
                fence: false,
                srqn: Default::default(),
            })
            .collect();
        let qp = self.own_qp(local.qp)?;
        let list = [sge];
        let outcome = match to {
            None => qp.sq.post_send_list(wrs.iter().map(|wr| (wr, &list[..]))),
            Some(to) => post_datagrams(&mut qp.sq, &wrs, &to, &list),
        };
        self.posted(local, outcome)
    }

    fn post_recvs(&mut self, local: &Local, len: u32) -> Result<Answer, Failure> {
        let (list, first) = ([self.memory(local, len)?], self.wr_id);
        let wrs: Vec<RecvWr> =
            (0..checked_count(local)?).map(|at| RecvWr { wr_id: first + u64::from(at) }).collect();
        let all = wrs.iter().map(|wr| (wr, &list[..]));
        let outcome = match self.own_qp(local.qp)?.srq {
            Some(srq) => find(&self.srqs, "SRQ", srq)?.srq.post_recv_list(all),
            None => self.own_qp(local.qp)?.rq.post_recv_list(all),
        };
        self.posted(local, outcome)
    }

    /// Returns the answer after work requests were posted.
    fn posted(
        &mut self,
        local: &Local,
        outcome: Result<(), (usize, PostError)>,
    ) -> Result<Answer, Failure> {
        let first = self.wr_id;
        let count = match outcome {
            Ok(()) => local.count as usize,
            Err((posted, _)) => posted,
        };
        self.wr_id += count as u64;
        match outcome {
            Ok(()) if count == 0 => Ok(Answer::Done),
            Ok(()) => {
                let last = first + count as u64 - 1;
                Ok(Answer::Text(format!("posted {count}: wr_id {first} to {last}")))
            }
            Err((posted, error)) => {
                let remedy = match error {
                    PostError::InvalidState => {
                        "`query qp N` has its state: sends need RTS, receives INIT"
                    }
                    PostError::QueueFull => "poll its completion queue: poll cq N",
                    PostError::WrongOperation => {
                        "an RD queue pair needs eecn, dest_qpn and qkey, and others take none of \
                         them; `help post` has the work requests of RC, UC and RD"
                    }
                    _ => "`help post` has the work requests of RC, UC and RD",
                };
                let cause = match posted {
                    0 => error.to_string(),
                    posted => format!("after {posted} requests: {error}"),
                };
                Err(Failure::caused(&error, cause, remedy))
            }
        }
    }

    /// Returns a QP that a command has made.
    fn own_qp(&mut self, number: u32) -> Result<&mut QpObject, Failure> {
        let mut all = self.qps.iter_mut().filter(|((qpn, _), _)| *qpn == number);
        match (all.next(), all.next()) {
            (Some((_, qp)), None) => Ok(qp),
            (Some(_), Some(_)) => Err(ambiguous(number)),
            (None, _) => {
                let cause = format!("no command has made QP {number:#08x}");
                let remedy = "work is posted to QPs of `create qp` only, not to the program's";
                Err(Failure::new(Errno::PERM, cause, remedy))
            }
        }
    }

    /// Returns the memory of a work request.
    fn memory(&mut self, local: &Local, len: u32) -> Result<Sge, Failure> {
        let pd = self.own_qp(local.qp)?.pd;
        let needed = local.offset.saturating_add(len.into());
        let size = |words: usize| words as u64 * 8;
        let mut fitting = self.mrs.iter().filter(|(key, mr)| {
            local.mr.is_none_or(|wanted| wanted == **key)
                && (local.mr.is_some() || mr.pd == pd)
                && size(mr.region.words().len()) >= needed
        });
        let Some((key, mr)) = fitting.next() else {
            let what =
                local.mr.map_or("no memory".to_owned(), |key| format!("MR {key:#x} has not"));
            let cause = format!("{what} {needed} bytes of PD {pd}");
            let remedy = format!("register some: reg mr pd {pd} len {needed}");
            return Err(Failure::new(Errno::FAULT, cause, remedy));
        };
        Ok(Sge { va: Va(mr.region.va().0 + local.offset), len, lkey: Lkey(*key) })
    }

    pub(super) fn poll(&mut self, poll: &Poll) -> Result<Begun, Failure> {
        let Poll::Cq { cq, max, timeout } = *poll;
        let end = end_of(timeout);
        find(&self.cqs, "CQ", cq)?;
        Ok(Begun::Later(Box::new(move |console, _| {
            let taken = find(&console.cqs, "CQ", cq).and_then(|queue| take(queue, max));
            match taken {
                Ok(completions) if completions.is_empty() && Instant::now() < end => None,
                Ok(completions) => Some(Ok(Answer::Completions(completions))),
                Err(failure) => Some(Err(failure)),
            }
        })))
    }
}

/// Posts requests of an RD QP. An error comes with the number that were posted.
fn post_datagrams(
    sq: &mut SendQueueEnd,
    wrs: &[SendWr],
    to: &RdAddress,
    sges: &[Sge],
) -> Result<(), (usize, PostError)> {
    let mut batch = sq.batch().map_err(|error| (0, error))?;
    wrs.iter().enumerate().try_for_each(|(at, wr)| {
        batch.push_datagram(wr, to, SendData::Sges(sges)).map_err(|error| (at, error))
    })
}

/// Returns the destination of a request of an RD QP.
fn address(to: &Datagram) -> Result<RdAddress, Failure> {
    Ok(RdAddress {
        eecn: Qpn::new(number(to.eecn, "eecn")?),
        dest_qpn: Qpn::new(number(to.dest_qpn, "dest_qpn")?),
        qkey: Qkey(to.qkey),
    })
}

/// Returns the number of work requests. Clients other than `uroce` may not check its range.
fn checked_count(local: &Local) -> Result<u32, Failure> {
    if local.count > POSTED_MAX {
        let cause = format!("{} work requests are too many", local.count);
        return Err(Failure::new(Errno::INVAL, cause, "post at most 65536 at a time"));
    }
    Ok(local.count)
}

/// Returns when a wait of `timeout` ms ends.
pub(super) fn end_of(timeout: u32) -> Instant {
    Instant::now() + Duration::from_millis(timeout.min(WAIT_MAX).into())
}

fn place(remote: &Remote) -> (Va, Rkey) {
    (Va(remote.addr), Rkey(remote.rkey))
}

fn take(queue: &CqObject, max: u16) -> Result<Vec<Completion>, Failure> {
    let max = max.min(POLLED_MAX);
    let mut cqes = Vec::new();
    let mut count = queue.cq.poll_into(&mut cqes, max.into())?;
    if let (0, Some(poller)) = (count, &queue.poller) {
        poller.turn();
        count = queue.cq.poll_into(&mut cqes, max.into())?;
    }
    debug_assert_eq!(count, cqes.len());
    Ok(cqes.iter().map(completion).collect())
}

fn completion(cqe: &Cqe) -> Completion {
    Completion {
        wr_id: cqe.wr_id,
        status: cqe.status.to_string(),
        opcode: format!("{:?}", cqe.opcode),
        byte_len: cqe.byte_len,
        imm: cqe.imm.map(|imm| imm.0),
        qpn: cqe.qpn.value(),
    }
}

/// Waits until an object is in the state that `wait` names.
pub(super) fn wait(wait: &Wait, devices: &[Arc<Served>]) -> Result<Begun, Failure> {
    let timeout = match *wait {
        Wait::Qp { timeout, .. } | Wait::Cm { timeout, .. } | Wait::Link { timeout, .. } => timeout,
    };
    let end = end_of(timeout);
    let wait = wait.clone();
    if let Wait::Link { port, .. } = wait {
        find_port(port, devices)?;
    }
    Ok(Begun::Later(Box::new(move |console, devices| match is_reached(&wait, console, devices) {
        Ok(None) => Some(Ok(Answer::Done)),
        Ok(Some(_)) if Instant::now() < end => None,
        Ok(Some(state)) => {
            let cause = format!("not within {timeout} ms: {state}");
            let remedy = "wait longer: timeout MS; or look at `show events`";
            Some(Err(Failure::new(Errno::TIMEDOUT, cause, remedy)))
        }
        Err(failure) => Some(Err(failure)),
    })))
}

/// Returns the present state if it is not the awaited one; otherwise `None`.
fn is_reached(
    wait: &Wait,
    console: &Console,
    devices: &[Arc<Served>],
) -> Result<Option<String>, Failure> {
    match *wait {
        Wait::Cm { ref of, .. } => console.instead_of_established(of, devices),
        Wait::Qp { qp, state, .. } => {
            let now = console.find_qp(qp, devices)?.info.attr.state;
            Ok((now != state_of(state)).then(|| format!("QP {qp:#08x} is in {now}")))
        }
        Wait::Link { port, state, .. } => {
            let (served, number) = find_port(port, devices)?;
            let status = served.calls.call(move |thread| thread.port_status(number))?;
            let word = if status.link.up { "up" } else { "down" };
            let is_it = status.link.up == (state == Link::Up);
            Ok((!is_it).then(|| format!("the link of port {port} is {word}")))
        }
    }
}
