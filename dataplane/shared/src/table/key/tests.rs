use super::*;
use std::collections::HashSet;

fn bytes(seed: u8) -> [u8; KEY_LEN] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(73).wrapping_add(seed).rotate_left(3))
}

#[test]
fn every_24_bit_number_has_exactly_one_preimage() {
    let permutation = Numbers::with_key(1, &bytes(1)).permutation;
    let mut seen = vec![false; 1 << 24];
    for plain in 0..1 << 24 {
        let number = permutation.apply(plain);
        assert!(!std::mem::replace(&mut seen[number as usize], true));
        if plain % 16 == 0 {
            assert_eq!(permutation.invert(number), plain);
        }
    }
}

/// Checks that each bit of the XOR of two successive numbers is set about half of the time, that no
/// difference of two successive numbers is frequent, and that the numbers fill 256 equal bins
/// evenly.
fn assert_random(numbers: &[u32], bits: u32) {
    let count = numbers.len() as f64;
    let mut steps = HashSet::new();
    let mut set = [0u32; 32];
    for pair in numbers.windows(2) {
        (0..bits).for_each(|bit| set[bit as usize] += (pair[0] ^ pair[1]) >> bit & 1);
        steps.insert(pair[1].wrapping_sub(pair[0]) & (u32::MAX >> (32 - bits)));
    }
    for (bit, &set) in set.iter().enumerate().take(bits as usize) {
        // Six standard deviations of a fair coin.
        let deviation = (f64::from(set) - count / 2.0).abs() / (count.sqrt() / 2.0);
        assert!(deviation < 6.0, "bit {bit} flips {set} times in {count}");
    }
    let distinct = steps.len() as f64 / count;
    assert!(distinct > 0.99, "only {distinct} of the steps differ");
    let mut bins = [0u32; 256];
    numbers.iter().for_each(|number| bins[(number >> (bits - 8)) as usize] += 1);
    let expected = count / 256.0;
    let chi_square: f64 =
        bins.iter().map(|&bin| (f64::from(bin) - expected).powi(2) / expected).sum();
    // With 255 degrees of freedom, six standard deviations of √510. A permutation is a little more
    // even than chance, hence the lower bound only excludes a mere counter.
    assert!(chi_square > 255.0 / 4.0, "too even to be random: {chi_square}");
    assert!(chi_square < 255.0 + 6.0 * 510f64.sqrt(), "uneven: {chi_square}");
}

#[test] //= check J14 test
fn numbers_of_neighbouring_slots_look_random() {
    let numbers = Numbers::random(1 << 16).unwrap();
    let qpns: Vec<_> = (0..1 << 16).map(|index| numbers.qpn(index, 0)).collect();
    assert_random(&qpns, 24);
    let keys: Vec<_> = (0..1 << 16).map(|index| numbers.key(index, 0)).collect();
    assert_random(&keys, 32);
}

#[test] //= check J14 test
fn numbers_of_one_slot_over_its_generations_look_random() {
    let numbers = Numbers::random(16).unwrap();
    let qpns: Vec<_> = (0..1 << 16).map(|generation| numbers.qpn(3, generation)).collect();
    assert_random(&qpns, 24);
    let keys: Vec<_> = (0..1 << 16).map(|generation| numbers.key(3, generation)).collect();
    assert_random(&keys, 32);
}

#[test]
fn two_engines_give_different_numbers() {
    let (a, b) = (Numbers::random(4096).unwrap(), Numbers::random(4096).unwrap());
    let equal = (0..4096).filter(|&index| a.qpn(index, 0) == b.qpn(index, 0)).count();
    assert!(equal < 16, "{equal} equal numbers");
    let lower = |numbers: &Numbers, index| numbers.key(index, 0) & 0xff;
    let equal = (0..4096).filter(|&index| lower(&a, index) == lower(&b, index)).count();
    assert!(equal < 64, "{equal} equal lower bits");
}

#[test]
//= check J9 test
fn a_held_number_belongs_to_no_qp_until_it_is_released() {
    // With one slot and sixteen generations the number would come again soon.
    let numbers = Numbers::with_key(1 << 20, &bytes(5));
    let mut slots = Slots::new(1);
    let name = |at, life| numbers.qpn(at, life);
    let (index, held) = slots.take(name, &[]).unwrap();
    slots.give_back(index);
    for _ in 0..100 {
        let (index, number) = slots.take_unless(name, &[], |number| number == held, 1).unwrap();
        assert_ne!(number, held);
        slots.give_back(index);
    }
    let mut next = || {
        let (index, number) = slots.take_unless(name, &[], |_| false, 0).unwrap();
        slots.give_back(index);
        number
    };
    assert!((0..16).any(|_| next() == held), "it is released");
    assert_eq!(slots.take_unless(name, &[], |_| true, 40), None, "all are held");
}

#[test]
fn forbidden_numbers_are_never_given_out() {
    let never = [0, 1, 0xff_ffff];
    let numbers = Numbers::with_key(16, &bytes(3));
    let mut slots = Slots::new(16);
    let mut given = HashSet::new();
    // One round through all numbers.
    for _ in 0..(1u32 << 24) - 3 {
        let (index, number) = slots.take(|at, life| numbers.qpn(at, life), &never).unwrap();
        assert!(!never.contains(&number));
        if given.len() < 100_000 {
            assert!(given.insert(number), "a number came twice");
        }
        assert_eq!(numbers.index_of_qpn(number), index as usize);
        slots.give_back(index);
    }
}

#[test]
fn a_slot_has_all_its_keys_once_before_one_comes_again() {
    // The most slots, and so the fewest generations: 16 in the upper bits, 256 in the lower ones.
    let numbers = Numbers::with_key(1 << 20, &bytes(5));
    for index in [0, 1, 0xf_ffff] {
        let keys: Vec<_> = (0..4096).map(|generation| numbers.key(index, generation)).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 4096);
        let uppers: HashSet<_> = keys.iter().map(|key| key >> CONSUMER_BITS).collect();
        assert_eq!(uppers.len(), 16);
        assert_eq!(numbers.key(index, 4096), keys[0]);
    }
}

#[test]
fn the_slot_of_a_key_does_not_depend_on_its_lower_bits() {
    let numbers = Numbers::with_key(1 << 16, &bytes(6));
    for index in (0..1 << 16).step_by(97) {
        let key = numbers.key(index, index);
        for lower in 0..=0xff {
            assert_eq!(numbers.index_of_key(key & !0xff | lower), index as usize);
        }
    }
}

#[test]
fn recent_numbers_are_those_of_the_permutation() {
    let numbers = Numbers::with_key(1 << 16, &bytes(7));
    let recent = Recent::new(&numbers);
    // Each number twice in a row, numbers that share a place, and the initial ones.
    for step in 0..100_000u32 {
        let number = step.wrapping_mul(0x9e37_79b9) >> 8 & if step % 3 == 0 { 0x3ff } else { ALL };
        for _ in 0..2 {
            assert_eq!(recent.index_of_qpn(&numbers, number), numbers.index_of_qpn(number));
            let key = number << CONSUMER_BITS | step & 0xff;
            assert_eq!(recent.index_of_key(&numbers, key), numbers.index_of_key(key));
        }
    }
}

#[test]
fn slots_come_back_last_and_with_another_number() {
    let numbers = Numbers::with_key(4, &bytes(4));
    let mut slots = Slots::new(4);
    let mut take = || slots.take(|at, life| numbers.key(at, life), &[]);
    let (first, old) = take().unwrap();
    slots.give_back(first);
    let next: Vec<_> =
        std::iter::from_fn(|| slots.take(|at, life| numbers.key(at, life), &[])).collect();
    assert_eq!(next.len(), 4);
    assert_eq!(next[3].0, first);
    assert_ne!(next[3].1, old);
    assert!(slots.take(|at, life| numbers.key(at, life), &[]).is_none());
}
