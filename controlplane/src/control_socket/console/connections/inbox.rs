//! Events of a device's listeners and connections, queued until the server thread takes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::control_socket::Shared;
use crate::rdma_cm::{CmId, CmSink, ConnEvent};

/// The events of one device. There are few: at most the backlog of each listener in requests, and
/// for each connection its beginning, its end and the answer to each `cm lap`.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<VecDeque<(CmId, ConnEvent)>>,
    /// The server that each event wakes.
    server: Option<Arc<Shared>>,
}

impl Inbox {
    pub(super) fn new(server: Option<Arc<Shared>>) -> Inbox {
        Inbox { waiting: Mutex::default(), server }
    }

    /// Takes the oldest event and its id.
    pub(super) fn next(&self) -> Option<(CmId, ConnEvent)> {
        self.lock().pop_front()
    }

    /// Wakes the server if events are left.
    pub(super) fn wake_if_any(&self) {
        if let Some(server) = self.server.as_ref().filter(|_| !self.lock().is_empty()) {
            server.wake.signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(CmId, ConnEvent)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CmSink for Inbox {
    fn give(&self, id: CmId, event: ConnEvent) {
        // A peer can cause any number of these, and none needs an action.
        if matches!(event, ConnEvent::AlternateChanged(_) | ConnEvent::AlternateRequest(_)) {
            return;
        }
        self.lock().push_back((id, event));
        if let Some(server) = &self.server {
            server.wake.signal();
        }
    }

    fn forget(&self, id: CmId) -> bool {
        let mut waiting = self.lock();
        let before = waiting.len();
        waiting.retain(|(of, _)| *of != id);
        waiting.len() < before
    }

    fn take_of(&self, id: CmId) -> Vec<ConnEvent> {
        let mut waiting = self.lock();
        let (of_id, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|(of, _)| *of == id);
        *waiting = others.into();
        of_id.into_iter().map(|(_, event)| event).collect()
    }
}
