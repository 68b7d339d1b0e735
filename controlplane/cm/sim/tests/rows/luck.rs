//! Numbers that cannot be guessed, and a million messages of random consumers.

use std::collections::BTreeSet;

use uroce_cm::{Cm, CmConfig};
use uroce_cm_sim::conn_params;
use uroce_wire::cm::{CaGuid, Message};

use super::*;

fn cm(seed: u8) -> Cm {
    let limits = CmLimits::default();
    Cm::new(CmConfig { ca_guid: CaGuid(1), limits, seed: [seed; 16] })
}

/// Chi-square of byte values against a uniform distribution, 255 degrees of freedom.
fn chi_square(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let expected = bytes.len() as f64 / 256.0;
    counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
}

/// Checks randomness as an attacker would: the values of each byte, the share of each bit, and its
/// agreement with the previous number.
fn assert_random(name: &str, numbers: &[u32], bits: u32) {
    for byte in 0..bits / 8 {
        let bytes: Vec<u8> = numbers.iter().map(|n| (n >> (8 * byte)) as u8).collect();
        let chi = chi_square(&bytes);
        // Five standard deviations around the mean.
        assert!((140.0..370.0).contains(&chi), "{name} byte {byte}: {chi}");
    }
    let expected = numbers.len() as f64 / 2.0;
    let far = 5.0 * (numbers.len() as f64).sqrt() / 2.0;
    for bit in 0..bits {
        let ones = numbers.iter().filter(|&&n| n >> bit & 1 == 1).count() as f64;
        assert!((ones - expected).abs() < far, "{name} bit {bit}: {ones} ones");
        let pairs = numbers.windows(2).filter(|w| (w[0] ^ w[1]) >> bit & 1 == 1).count() as f64;
        assert!((pairs - expected).abs() < far, "{name} bit {bit}: {pairs} changes");
    }
}

//= check J14 test
#[test]
fn ids_transactions_and_psns_of_100_000_connects_look_random_and_repeat_for_no_other_key() {
    let connect_all = |seed| {
        let mut cm = cm(seed);
        let now = uroce_cm::Instant::from_nanos(1);
        let (mut ids, mut transactions, mut psns) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..100_000 {
            let params = conn_params(0, SERVICE, 2 + n % 1000);
            let id = cm.connect(now, &params).unwrap();
            let (_, mad) = cm.poll_transmit().unwrap();
            let (header, message) = Message::parse(&mad).unwrap();
            ids.push(message.local_comm_id().unwrap().0);
            transactions.push(header.transaction_id as u32);
            psns.push(cm.starting_psn().value());
            cm.destroy(now, id).unwrap();
            cm.poll_transmit();
        }
        (ids, transactions, psns)
    };
    let (ids, transactions, psns) = connect_all(1);
    assert_random("communication ID", &ids, 32);
    assert_random("transaction", &transactions, 32);
    assert_random("PSN", &psns, 24);
    assert!(!ids.contains(&0));
    let (other, _, _) = connect_all(2);
    let known: BTreeSet<_> = ids.iter().collect();
    // 100,000² / 2³² by chance.
    let common = other.iter().filter(|id| known.contains(id)).count();
    assert!(common < 20, "{common} ids of another key");
}

//= check J9 test
//= check J10 test
//= check J13 test
//= check R41 test
//= check R43 test
#[test]
fn random_consumers_on_a_bad_link_end_every_connection_as_they_should() {
    let report = uroce_cm_sim::run(fastrand::u64(..), 60_000);
    assert!(report.established > 500 && report.closed > report.established, "{report:?}");
    assert!(report.channels > 50 && report.uses > 10, "{report:?}");
}

#[test]
fn a_seed_repeats_its_world() {
    let run = || format!("{:?}", uroce_cm_sim::run(11, 20_000));
    assert_eq!(run(), run());
}
