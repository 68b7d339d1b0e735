//! Sweeps: a scenario is run once for every packet that can be lost, and for every pair of them.
//!
//! What is demanded: whatever is lost, the two ends see in the end what they see if nothing is
//! lost: the same completions in the same order on every queue, and the same bytes in memory. The
//! independent checker watches every packet of every run.
//!
//! Packets count in the order in which they are sent, repetitions included. A pair is the loss of
//! packet *k* and then of packet *j*, of those that are sent once *k* is lost.

use super::pair::{Pair, Terms};
use super::rules::Rule;
use crate::{Cqe, Side};

/// A short exchange whose outcome does not depend on time.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What happens in it.
    pub name: &'static str,
    /// How the ends differ from the default terms.
    pub terms: fn(&mut Terms),
    /// Posts the work; may let time pass in between.
    pub script: fn(&mut Pair),
}

/// What sweeps came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Runs.
    pub runs: u64,
    /// Packets sent in all of them.
    pub packets: u64,
}

/// What the ends see in the end.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// By end and side.
    completions: [Vec<Cqe>; 4],
    /// By end: the local and the opened region.
    memory: [Vec<u8>; 4],
}

/// Bytes of the regions: enough for the scenarios, few enough to make a world quickly.
const REGION: u32 = 1 << 14;

impl Scenario {
    /// Loses every single packet, each in a run of its own.
    ///
    /// # Errors
    /// Which packet was lost, and what came of it.
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
    /// Which packets were lost, and what came of it.
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

    /// Runs with these packets lost; gives the packets sent.
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
