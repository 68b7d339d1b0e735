//! Links come to a queue from the member's thread, and go back to it, through rings.
//!
//! Invariants
//! - A link that has ended stays until all that its member has sent was received, and the next link
//!   to that number waits for it. So what comes from a number is in order, across members too.
//! - Memory is neither mapped nor unmapped here: each [`LinkEnd`] goes back.

use super::Core;
use crate::board::{bit, numbers};
use crate::link::{LinkEnd, LinkState};

/// A message from the member's thread.
#[derive(Debug)]
pub(crate) enum News {
    /// A link has begun.
    Linked(Box<LinkEnd>),
    /// The link with this identity, to this member, has ended.
    Ended {
        /// The member's number.
        number: u8,
        /// The link's identity.
        id: u64,
    },
}

impl Core {
    /// Takes what the thread has sent, up to a link to a number of which frames are left.
    #[cold]
    pub(super) fn take_news(&mut self) {
        while let Ok(news) = self.news.peek() {
            if let News::Linked(link) = news
                && self.links[usize::from(link.number) - 1].is_some()
            {
                return;
            }
            match self.news.pop() {
                Ok(News::Linked(link)) => self.install(link),
                Ok(News::Ended { number, id }) => self.end(number, id),
                Err(_) => return,
            }
        }
    }

    fn install(&mut self, link: Box<LinkEnd>) {
        let number = link.number;
        self.waits[usize::from(number) - 1] = super::Wait::default();
        self.open |= bit(number);
        // Frames may have come before.
        self.hot |= bit(number);
        self.links[usize::from(number) - 1] = Some(link);
    }

    fn end(&mut self, number: u8, id: u64) {
        let Some(link) = self.link(number).filter(|link| link.id == id) else { return };
        link.drain();
        if link.state == LinkState::Malformed {
            return self.close(number);
        }
        self.open &= !bit(number);
        self.touched &= !bit(number);
        self.hot |= bit(number);
        self.draining |= bit(number);
    }

    /// Gives links back of which nothing is left.
    #[cold]
    pub(super) fn retire(&mut self) {
        for number in numbers(self.draining) {
            if self.link(number).is_none_or(|link| !link.has_more()) {
                self.give_back(number);
            }
        }
        while let Some(link) = self.stranded.pop() {
            if let Err(rtrb::PushError::Full(link)) = self.back.push(link) {
                self.stranded.push(link);
                break;
            }
        }
        self.take_news();
    }

    /// Closes a link to a member that has broken the rules.
    #[cold]
    pub(super) fn close(&mut self, number: u8) {
        if let Some(link) = self.link(number) {
            link.state = LinkState::Malformed;
            self.counters.malformed.add(1);
            self.give_back(number);
            self.shared.ring();
        }
    }

    fn give_back(&mut self, number: u8) {
        for members in [&mut self.open, &mut self.touched, &mut self.hot, &mut self.draining] {
            *members &= !bit(number);
        }
        let Some(link) = self.links[usize::from(number) - 1].take() else { return };
        if let Err(rtrb::PushError::Full(link)) = self.back.push(link) {
            // The thread makes no more links than fit, so this is room for one that is late.
            self.stranded.push(link);
        }
    }

    /// Thread: looks after a queue without an owner, of which nothing is received.
    pub(crate) fn settle(&mut self) {
        self.take_news();
        while self.draining != 0 {
            for number in numbers(self.draining) {
                self.give_back(number);
            }
            self.take_news();
        }
        self.retire();
    }
}
