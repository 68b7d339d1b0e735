//! Final checks of a run, when nothing is in flight any more.

use crate::campaign::chunks::Chunks;
use crate::campaign::plan::Role;
use crate::campaign::workload::Traffic;
use crate::world::paths::RAILS;
use uroce_transport::Counter;
use uroce_wire::Srqn;

impl Traffic {
    /// Runs the final checks. With `is_perfect` the links had no faults.
    pub(crate) fn judge_end(&mut self, is_perfect: bool) -> Result<(), String> {
        for index in 0..self.ends.len() {
            self.judge_flushed(index)?;
            // The remaining requests are unsignalled and done.
            if !self.ends[index].has_failed {
                while let Some(posted) = self.ends[index].sends.pop_front() {
                    if posted.is_signaled {
                        return Err(format!("{posted:?} never completes"));
                    }
                    self.succeed(index, &posted)?;
                }
            }
            self.judge_frozen(index)?;
            let is_exact = !self.ends[index].is_dead && !self.ends[index].excuses.is_struck;
            if is_exact {
                self.judge_memory(index)?;
            }
        }
        for connection in 0..self.connections.len() {
            self.judge_paths(connection)?;
        }
        self.judge_shared_words()?;
        self.judge_conservation()?;
        self.judge_counters()?;
        if is_perfect { self.judge_silence() } else { Ok(()) }
    }

    /// Checks that every frame has landed, and that the queues, also the shared ones that requests
    /// to an XRC target name, hold what is posted and not completed.
    fn judge_conservation(&self) -> Result<(), String> {
        if self.world.frames_out() > 0 {
            return Err(format!("{} frames never landed", self.world.frames_out()));
        }
        for rail in 0..RAILS {
            let total = self.world.rail_total(rail);
            if total.flying() != 0 {
                return Err(format!("rail {rail} has lost count of its frames: {total:?}"));
            }
        }
        for (index, end) in self.ends.iter().enumerate() {
            let qp = self.world.qp(end.at);
            let waiting = |srqn: &Srqn| self.world.node(end.at.node).waiting(*srqn);
            let queued: usize = end.queues.iter().map(waiting).sum();
            let (sends, recvs) = (qp.send_wrs(), qp.recv_wrs() + queued as u32);
            // An EEC may hold a receive of a message that never ended.
            let is_context = self.connections[index / 2].role == Role::Context;
            let recvs = if is_context { 0 } else { recvs };
            if (sends, recvs as usize) != (0, end.recvs.len()) {
                return Err(format!("{:?} holds {sends} sends and {recvs} receives", end.at));
            }
        }
        Ok(())
    }

    /// Compares counters with the packets seen by the tap. The tap counts only the current use of a
    /// QP, so runs in which connections are used again are not checked.
    fn judge_counters(&self) -> Result<(), String> {
        if self.connections.iter().any(|connection| connection.peace.is_some()) {
            return Ok(());
        }
        let count = |counter| self.world.nodes().iter().map(|node| node.counter(counter)).sum();
        let (repeated, rnr_naks): (u64, u64) =
            (count(Counter::RetransmittedPackets), count(Counter::RnrNakSent));
        let mut seen = (0, 0);
        for end in &self.ends {
            let tally = self.world.tally(end.at);
            seen = (seen.0 + tally.repeated, seen.1 + tally.rnr_naks);
        }
        // An RNR NAK may be replaced before it is sent.
        if repeated == seen.0 && rnr_naks >= seen.1 {
            Ok(())
        } else {
            Err(format!("{repeated} repetitions and {rnr_naks} RNR NAKs counted, {seen:?} sent"))
        }
    }

    fn judge_memory(&self, index: usize) -> Result<(), String> {
        let end = &self.ends[index];
        let memory = &self.world.node(end.at.node).memory;
        let words: Vec<u8> = end.shadow_words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let is_clean = |chunks: &Chunks| chunks.is_untouched(memory);
        let verdicts = [
            (end.expected.is_empty(), "a message was never received"),
            (memory.bytes(end.target) == end.shadow, "the target differs from its shadow"),
            (memory.bytes(end.words) == words, "the words differ from their shadow"),
            (end.landing.is_untouched(memory), "a byte beside READ buffers was written"),
            (is_clean(&end.inbox), "a byte beside receive buffers was written"),
            (end.second_inbox.as_ref().is_none_or(is_clean), "a byte of the second queue's too"),
        ];
        match verdicts.iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(format!("{what}, at the end at {:?}", end.at)),
            None => Ok(()),
        }
    }

    pub(crate) fn judge_shared_words(&self) -> Result<(), String> {
        for shared in self.shared.iter().filter(|shared| !shared.is_uncertain) {
            let mut done = shared.done.clone();
            done.sort_unstable_by_key(|(former, _)| former.wrapping_sub(shared.initial));
            let mut word = shared.initial;
            for (former, add) in &done {
                if *former != word {
                    return Err(format!("an addition found {former:#x}, {word:#x} was there"));
                }
                word = word.wrapping_add(*add);
            }
            let memory = &self.world.node(shared.node).memory;
            if memory.bytes(shared.mr) != word.to_ne_bytes() {
                return Err(format!("{} additions do not make up {word:#x}", done.len()));
            }
        }
        Ok(())
    }

    /// Checks that on perfect links nothing was repeated, refused or late.
    fn judge_silence(&self) -> Result<(), String> {
        use Counter as C;
        let mut silent =
            vec![C::OutOfSequence, C::PacketSeqErr, C::ImpliedNakSeqErr, C::LocalAckTimeoutErr];
        let count = |counter| self.world.nodes().iter().map(|node| node.counter(counter)).sum();
        let rnr_naks: u64 = count(C::RnrNakSent);
        if rnr_naks == 0 {
            silent.push(C::RetransmittedPackets);
        }
        // What follows a refused packet is held, and comes again if the requester goes back.
        if rnr_naks == 0 || !self.connections.iter().any(|it| it.selective_repeat) {
            silent.extend([C::DuplicateRequest, C::StaleResponse]);
        }
        for counter in silent {
            let value: u64 = count(counter);
            if value > 0 {
                return Err(format!("{} is {value} without any fault", counter.name()));
            }
        }
        Ok(())
    }
}
