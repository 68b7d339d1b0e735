//! Links: reports when one goes up or down, and sets links, faults, bottlenecks and forwarding.

use super::{Control, ControlError};
use crate::lane::binding::PortBinding;
use crate::lane::bottleneck::backlog::Backlog;
use crate::lane::bottleneck::slow::Bottleneck;
use crate::lane::bottleneck::{BottleneckConfig, QUEUE_MAX};
use crate::lane::faults::PortFaults;
use crate::lane::forward::Forward;
use crate::lane::loss::LossConfig;
use crate::lcore::command::{
    CountUnforwarded, SetBottleneck, SetFaults, SetForward, SetLink, SetRate,
};
use crate::port::EndedPeer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of looking at a link that does not report changes, while some QP could migrate.
const EAGER: Duration = Duration::from_micros(500);
/// Interval of looking at links otherwise.
const CALM: Duration = Duration::from_millis(250);

/// The control plane's view of the links.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// For each port, whether its link was up when last seen; false at first.
    up: Vec<bool>,
    /// For each port, whether some lcore has not got the command of the last change yet.
    untold: Vec<bool>,
    /// The time of the next look at all links, even if none has reported a change.
    due: Option<Instant>,
    /// For each port, the queue of its bottleneck.
    backlogs: Vec<Arc<Backlog>>,
    /// For each port, the bottleneck of which the rate was taken away, until another one is set.
    opened: Vec<Option<BottleneckConfig>>,
    /// For each port, its faults.
    faults: Vec<PortFaults>,
}

impl Links {
    /// Makes the view of the links of these ports, each with a backlog.
    pub(super) fn new(backlogs: Vec<Arc<Backlog>>, bindings: &[PortBinding]) -> Links {
        let ports = backlogs.len();
        let faults = bindings.iter().map(|binding| {
            let mut faults = PortFaults::default();
            faults.set_loss(binding.loss);
            faults
        });
        let faults = faults.collect();
        let opened = vec![None; ports];
        let (up, untold) = (vec![false; ports], vec![false; ports]);
        Links { up, untold, due: None, backlogs, opened, faults }
    }
}

impl Control {
    /// Returns a port, counted from 1, with a link that has gone up or down since the last call,
    /// and whether it is up. A link that is up from the start goes up at the first call. `None`
    /// when there is no other change.
    ///
    /// From then on lcores drop frames for a link that is down, as a NIC does, and count them. So a
    /// QP finds its packets lost, not its port full for ever. A link that has not come up yet has
    /// one second from the first frame that its port refuses.
    ///
    /// To be called whenever the control plane is awake, and at least once in each
    /// [`link_poll_period`](Control::link_poll_period).
    pub fn next_link_change(&mut self) -> Option<(u8, bool)> {
        let now = Instant::now();
        let is_due = self.links.due.is_none_or(|due| now >= due);
        for at in 0..self.ports.len() {
            let port = &self.ports[at].port;
            if !(port.take_link_moved() || is_due) {
                continue;
            }
            let up = port.link().up;
            let was_up = std::mem::replace(&mut self.links.up[at], up);
            if up != was_up || self.links.untold[at] {
                self.links.untold[at] = !self.tell_lcores(at, up);
            }
            if up != was_up {
                // A device has at most 255 ports.
                return Some((at as u8 + 1, up));
            }
        }
        if is_due {
            self.links.due = Some(now + self.link_poll_period());
        }
        None
    }

    /// Returns a peer that has ended since the last call, or was replaced by another process, with
    /// the port, counted from 1; `None` when there is no other. Only memif links and local ports
    /// detect this. Everything that the process has sent has been received by then. On a local
    /// port, a new process with the same address is received from only after the next call, up to
    /// 100 ms later: before it, the caller ends everything that it has with the former process.
    ///
    /// To be called together with [`next_link_change`](Control::next_link_change).
    pub fn next_ended_peer(&mut self) -> Option<(u8, EndedPeer)> {
        // A device has at most 255 ports.
        let mut ports = self.ports.iter().zip(1..);
        ports.find_map(|(port, number)| Some((number, port.port.take_ended_peer()?)))
    }

    /// Returns the longest time between two looks at the links: 250 ms, or 500 µs while some QP
    /// could migrate and some port's driver does not report changes of its link.
    pub fn link_poll_period(&self) -> Duration {
        let is_silent = self.ports.iter().any(|port| !port.port.tells_of_link());
        if is_silent && self.qps.migrating() > 0 { EAGER } else { CALM }
    }

    /// Sets the link of a port, counted from 1, down or up again, as an administrator does. The
    /// other end of a ring or memif link sees the change; other peers only receive nothing.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`].
    pub fn set_link(&mut self, port: u8, up: bool) -> Result<(), ControlError> {
        self.binding(port)?.port.set_link(up);
        Ok(())
    }

    /// Returns the faults of a port, counted from 1.
    pub fn faults(&self, port: u8) -> Option<&PortFaults> {
        self.links.faults.get(usize::from(port).checked_sub(1)?)
    }

    /// Sets the faults of a port, counted from 1. Frames that the former ones hold are dropped.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], [`ControlError::Fault`], [`ControlError::UnknownQp`], or the
    /// error of an lcore that does not answer.
    pub fn set_faults(&mut self, port: u8, faults: &PortFaults) -> Result<(), ControlError> {
        self.binding(port)?;
        for direction in [&faults.rx, &faults.tx] {
            direction.wrong_field().map_or(Ok(()), |field| Err(ControlError::Fault(field)))?;
            direction.qp.map_or(Ok(()), |qp| self.record(qp).map(drop))?;
        }
        let at = usize::from(port) - 1;
        // Set even if an lcore does not answer: the others have the faults then.
        self.links.faults[at] = *faults;
        let lcores = self.lcores.len();
        for lcore in 0..lcores {
            let faults = faults.at_queue(lcore, lcores, &self.ports[at].pool);
            let former = self.call(lcore, SetFaults { port: at, faults })?;
            drop(former.ok_or(ControlError::NoSuchPort(port))?);
        }
        Ok(())
    }

    /// Sets the injected loss of RoCEv2 frames of a port, counted from 1. Its other faults stay.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], [`ControlError::Loss`], or the error of an lcore that does not
    /// answer.
    pub fn set_loss(&mut self, port: u8, loss: LossConfig) -> Result<(), ControlError> {
        self.binding(port)?;
        if !loss.is_valid() {
            return Err(ControlError::Loss);
        }
        let mut faults = self.links.faults[usize::from(port) - 1];
        faults.set_loss(loss);
        self.set_faults(port, &faults)
    }

    /// Sets what a port, counted from 1, does with received frames: `None` gives them to QPs and
    /// the control plane again. When this returns, every lcore does so.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], or the error of the first lcore that does not answer; the
    /// other lcores have the setting then. An lcore that has died forwards nothing, so if `forward`
    /// is `None` it causes no error.
    pub fn set_forward(&mut self, port: u8, forward: Option<Forward>) -> Result<(), ControlError> {
        self.binding(port)?;
        if let Some(Forward::Io { to } | Forward::Csum { to }) = forward {
            self.binding(to)?;
        }
        let at = usize::from(port) - 1;
        let mut outcome = Ok(());
        for lcore in 0..self.lcores.len() {
            let done = match self.call(lcore, SetForward { port: at, forward }) {
                Err(ControlError::LcoreDied(_)) if forward.is_none() => Ok(()),
                done => done.and_then(|done| done.ok_or(ControlError::NoSuchPort(port))),
            };
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Returns how many frames since the start were to be forwarded through a port, counted from 1,
    /// but were dropped: by injected loss, because the link was set down, because they were too
    /// long, or because the port took no more. The count of an lcore that has died is lost.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], or the error of an lcore that does not answer.
    pub fn unforwarded(&mut self, port: u8) -> Result<u64, ControlError> {
        self.binding(port)?;
        let at = usize::from(port) - 1;
        let mut sum = 0;
        for lcore in 0..self.lcores.len() {
            sum += match self.call(lcore, CountUnforwarded { port: at }) {
                Err(ControlError::LcoreDied(_)) => 0,
                count => count?.ok_or(ControlError::NoSuchPort(port))?,
            };
        }
        Ok(sum)
    }

    /// Returns the bottleneck of a port, counted from 1, if it has one.
    pub fn bottleneck(&self, port: u8) -> Option<BottleneckConfig> {
        self.ports.get(usize::from(port).checked_sub(1)?)?.bottleneck
    }

    /// Sets the bottleneck of a port, counted from 1, or removes it. Frames that wait in the former
    /// one are dropped.
    ///
    /// The port's mempool keeps its size: a queue that holds most of it lets packets wait, instead
    /// of being dropped at its tail.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], [`ControlError::Bottleneck`], or the error of an lcore that
    /// does not answer.
    pub fn set_bottleneck(
        &mut self,
        port: u8,
        bottleneck: Option<BottleneckConfig>,
    ) -> Result<(), ControlError> {
        self.binding(port)?;
        bottleneck.iter().try_for_each(BottleneckConfig::check)?;
        let at = usize::from(port) - 1;
        for lcore in 0..self.lcores.len() {
            let backlog = &self.links.backlogs[at];
            let bottleneck =
                bottleneck.as_ref().map(|config| Bottleneck::new(config, lcore, backlog));
            let former = self.call(lcore, SetBottleneck { port: at, bottleneck })?;
            drop(former.ok_or(ControlError::NoSuchPort(port))?);
        }
        self.ports[at].bottleneck = bottleneck;
        self.links.opened[at] = None;
        Ok(())
    }

    /// Sets the rate, in Mb/s, at which frames leave a port, counted from 1; `None` for that of its
    /// link. Frames that wait leave at the new rate.
    ///
    /// The rate is that of the port's bottleneck, if it has one or had one when a rate was last
    /// taken away. Otherwise no frame is dropped: a quarter of the port's mempool may wait, and
    /// then QPs wait, as at a port that is full.
    ///
    /// # Errors
    /// Those of [`set_bottleneck`](Control::set_bottleneck).
    pub fn set_rate(&mut self, port: u8, rate_mbps: Option<u32>) -> Result<(), ControlError> {
        self.binding(port)?;
        let (at, lcores) = (usize::from(port) - 1, self.lcores.len());
        let known = self.ports[at].bottleneck.or(self.links.opened[at]);
        let config = rate_mbps.map(|rate_mbps| BottleneckConfig {
            rate_mbps,
            ..known.unwrap_or(BottleneckConfig::new(rate_mbps, QUEUE_MAX))
        });
        config.iter().try_for_each(BottleneckConfig::check)?;
        for lcore in 0..lcores {
            let command = SetRate { port: at, rate_mbps, is_first: lcore == 0 };
            let has_one = self.call(lcore, command)?.ok_or(ControlError::NoSuchPort(port))?;
            if let (Some(config), false) = (&config, has_one) {
                let (backlog, pool) = (&self.links.backlogs[at], &self.ports[at].pool);
                let new = Bottleneck::patient(config, [lcore, lcores], backlog, pool);
                let command = SetBottleneck { port: at, bottleneck: Some(new) };
                drop(self.call(lcore, command)?.ok_or(ControlError::NoSuchPort(port))?);
            }
        }
        self.ports[at].bottleneck = config;
        self.links.opened[at] = if config.is_none() { known } else { None };
        Ok(())
    }

    /// Sends the link's state to all lcores. Returns false if one was late, so that it is sent
    /// again; a dead lcore has nothing to send and does not count.
    fn tell_lcores(&mut self, port: usize, up: bool) -> bool {
        let mut all = true;
        for lcore in 0..self.lcores.len() {
            let told = self.call(lcore, SetLink { port, up });
            all &= !matches!(told, Err(ControlError::LcoreStalled(_)));
        }
        all
    }
}
