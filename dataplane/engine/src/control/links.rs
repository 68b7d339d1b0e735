//! Links: which went up or down, and by what frames are lost.

use super::{Command, Control, ControlError, Reply};
use crate::fault::LossConfig;
use std::time::{Duration, Instant};

/// Between two looks at a link that does not tell of itself, while a QP would migrate if it knew.
const EAGER: Duration = Duration::from_micros(500);
/// Between two looks at any link otherwise.
const CALM: Duration = Duration::from_millis(250);

/// What the control plane knows of the links.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Of each port, whether it was up when last seen; not yet seen is down.
    up: Vec<bool>,
    /// Of each port, whether some lcore is yet to be told of the last change.
    untold: Vec<bool>,
    /// When they are looked at though none has told of itself.
    due: Option<Instant>,
}

impl Links {
    pub(super) fn new(ports: usize) -> Links {
        Links { up: vec![false; ports], untold: vec![false; ports], due: None }
    }
}

impl Control {
    /// A port, counted from 1, whose link has gone up or down since the last call, and whether it
    /// is up. A link that is up from the start goes up at the first call. `None` when there is
    /// no other.
    ///
    /// From then on lcores drop what would leave by a link that is down, as a NIC does, and count
    /// it; a QP finds its packets lost and not its port full for ever. A link that has not come up yet
    /// has a second from the first frame that its port refuses.
    ///
    /// To be called whenever the control plane is awake, and at least once in
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
                // At most 255 ports.
                return Some((at as u8 + 1, up));
            }
        }
        if is_due {
            self.links.due = Some(now + self.link_poll_period());
        }
        None
    }

    /// A port, counted from 1, whose peer's process has ended since the last call, or has left its
    /// place to another; `None` when there is no other. Only memif links know of their peer's
    /// process. What the process has sent is received.
    ///
    /// To be called when [`next_link_change`](Control::next_link_change) is.
    pub fn next_ended_peer(&mut self) -> Option<u8> {
        let at = self.ports.iter().position(|port| port.port.take_peer_ended())?;
        // At most 255 ports.
        Some(at as u8 + 1)
    }

    /// How long links may go without being looked at: 250 ms, and half a millisecond while a QP
    /// would migrate and some port's driver does not tell of its link by itself.
    pub fn link_poll_period(&self) -> Duration {
        let is_silent = self.ports.iter().any(|port| !port.port.tells_of_link());
        if is_silent && self.qps.migrating() > 0 { EAGER } else { CALM }
    }

    /// Takes a port's link, counted from 1, down or lets it up again, as an administrator does. The
    /// other end of a ring or memif link sees it too; other peers see silence.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`].
    pub fn set_link(&mut self, port: u8, up: bool) -> Result<(), ControlError> {
        self.binding(port)?.port.set_link(up);
        Ok(())
    }

    /// Has a port, counted from 1, lose another share of its RoCEv2 frames from now on.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`], [`ControlError::Loss`], and that of an lcore that does not
    /// answer.
    pub fn set_loss(&mut self, port: u8, loss: LossConfig) -> Result<(), ControlError> {
        self.binding(port)?;
        if !loss.is_valid() {
            return Err(ControlError::Loss);
        }
        let at = usize::from(port) - 1;
        for lcore in 0..self.lcores.len() {
            let (rx, tx) = loss.at_queue(lcore);
            match self.call(lcore, Command::SetLoss { port: at, rx, tx })? {
                Reply::Done => {}
                _ => return Err(ControlError::NoSuchPort(port)),
            }
        }
        self.ports[at].loss = loss;
        Ok(())
    }

    /// Do all lcores know? One that is dead has nothing to send; one that is late is told again.
    fn tell_lcores(&mut self, port: usize, up: bool) -> bool {
        let mut all = true;
        for lcore in 0..self.lcores.len() {
            let told = self.call(lcore, Command::SetLink { port, up });
            all &= !matches!(told, Err(ControlError::LcoreStalled(_)));
        }
        all
    }
}
