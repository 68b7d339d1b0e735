//! Sweeps: a scenario is run once for every packet that can be lost, and once for every pair of
//! them.
//!
//! With any loss, both ends must have the same result as without loss: the same completions in the
//! same order on every queue, and the same bytes in memory. The independent checker observes every
//! packet of every run.
//!
//! Packets are numbered in the order of sending, repetitions included. A pair is the loss of packet
//! *k* and then of packet *j* among those sent once *k* is lost.

use super::{Pair, Terms};
use crate::faults::rules::Rule;
use uroce_transport::{Cqe, Side};

/// A short exchange with a result that does not depend on time.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name of the scenario, for messages.
    pub name: &'static str,
    /// Changes of the default terms.
    pub terms: fn(&mut Terms),
    /// Posts the work; may run the world in between.
    pub script: fn(&mut Pair),
}

/// Totals of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Number of runs.
    pub runs: u64,
    /// Number of packets sent in all of them.
    pub packets: u64,
}

/// Result of a run at both ends.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// Completions, by end and side.
    completions: [Vec<Cqe>; 4],
    /// Content of the local and the remote region, by end.
    memory: [Vec<u8>; 4],
}

/// Length of the regions in bytes: enough for the scenarios, and quick to create.
const REGION: u32 = 1 << 14;

impl Scenario {
    /// Loses every single packet, each in a run of its own.
    ///
    /// # Errors
    /// A text that names the lost packet and the difference.
    pub fn sweep_singles(&self) -> Result<Swept, String> {
        let mut swept = Swept::default();
        let clean = self.clean(&mut swept)?;
        for lost in 1..=swept.packets as u32 {
            self.compare(&clean, &[lost], &mut swept)?;
        }
        Ok(swept)
    }

    /// Loses every pair of packets, each in a run of its own.
    ///
    /// # Errors
    /// A text that names the lost packets and the difference.
    pub fn sweep_pairs(&self) -> Result<Swept, String> {
        let mut swept = Swept::default();
        let clean = self.clean(&mut swept)?;
        for first in 1..=swept.packets as u32 {
            let packets = self.compare(&clean, &[first], &mut swept)?;
            for second in first + 1..=packets as u32 {
                self.compare(&clean, &[first, second], &mut swept)?;
            }
        }
        Ok(swept)
    }

    fn clean(&self, swept: &mut Swept) -> Result<Outcome, String> {
        let (outcome, packets) = self.run(&[])?;
        swept.runs += 1;
        swept.packets += packets;
        Ok(outcome)
    }

    /// Runs with these packets lost, compares the result, and returns the number of packets sent.
    fn compare(&self, clean: &Outcome, lost: &[u32], swept: &mut Swept) -> Result<u64, String> {
        let (outcome, packets) = self.run(lost)?;
        swept.runs += 1;
        swept.packets += packets;
        if outcome == *clean {
            return Ok(packets);
        }
        let what = match outcome.completions == clean.completions {
            true => "memory differs".into(),
            false => {
                format!("{:?} completed, not {:?}", outcome.completions, clean.completions)
            }
        };
        Err(format!("{}, packets {lost:?} lost: {what}", self.name))
    }

    fn run(&self, lost: &[u32]) -> Result<(Outcome, u64), String> {
        let mut pair = Pair::with(|terms| {
            terms.region = REGION;
            terms.is_recorded = false;
            terms.is_tapped = true;
            (self.terms)(terms);
        });
        for nth in lost {
            pair.rule(Rule::drop().nth(*nth));
        }
        (self.script)(&mut pair);
        pair.run();
        if let Some(flaw) = pair.world.take_flaw() {
            return Err(format!("{}, packets {lost:?} lost: {flaw}", self.name));
        }
        let sides = [(0, Side::Send), (0, Side::Recv), (1, Side::Send), (1, Side::Recv)];
        let completions = sides.map(|(end, side)| pair.take(end, side));
        let memory =
            [(0, pair.local(0)), (0, pair.remote(0)), (1, pair.local(1)), (1, pair.remote(1))]
                .map(|(end, mr)| pair.bytes(end, mr).to_vec());
        Ok((Outcome { completions, memory }, pair.world.packets()))
    }
}
