use super::*;

const MTU: u32 = 256;

/// Four resources that hold READs of these lengths, accepted one after the other from PSN 0 on.
fn reads(lens: &[u32]) -> Resources {
    let mut resources = Resources::new();
    resources.start(4);
    let mut psn = Psn::new(0);
    for len in lens {
        assert!(resources.allows(false) && resources.has_room(false));
        let asked = PendingAnswer::Read { va: Va(u64::MAX - 5), rkey: Rkey(9), len: *len };
        resources.push(asked, psn);
        psn = psn.plus(packets(*len, MTU));
    }
    resources
}

/// Sends up to `most` replies. Returns PSN, length, is first and is last of each.
fn send(resources: &mut Resources, most: usize) -> Vec<(u32, u32, bool, bool)> {
    let mut sent = Vec::new();
    while sent.len() < most
        && let Some(reply) = resources.next_reply(MTU)
    {
        resources.sent(&reply);
        sent.push((reply.psn.value(), reply.len, reply.is_first, reply.is_last));
    }
    sent
}

/// Repeats the READ that began at PSN `first`, from PSN `psn` on.
fn again(resources: &mut Resources, first: u32, psn: u32, dma_len: u32) -> bool {
    let offset = u64::from((psn - first) * MTU);
    let reth = Reth { va: Va((u64::MAX - 5).wrapping_add(offset)), rkey: Rkey(9), dma_len };
    resources.replay_read(Psn::new(psn), &reth, MTU)
}

#[test] //= check D5 test
fn of_two_requests_with_one_psn_the_newer_is_replayed() {
    let mut resources = Resources::new();
    resources.start(4);
    for original in [1, u64::MAX - 1] {
        resources.push(PendingAnswer::Atomic { original }, Psn::new(5));
        let reply = resources.next_reply(MTU).unwrap();
        resources.sent(&reply);
    }
    assert!(resources.replay_atomic(Psn::new(5), MTU));
    let reply = resources.next_reply(MTU).unwrap();
    assert!(matches!(reply.asked, PendingAnswer::Atomic { original } if original == u64::MAX - 1));
}

#[test] //= check D4 test
fn an_atomic_with_a_psn_inside_of_a_read_is_none_of_ours() {
    let mut resources = reads(&[700]);
    send(&mut resources, 99);
    for psn in 0..4 {
        assert!(!resources.replay_atomic(Psn::new(psn), MTU), "PSN {psn}");
    }
}

#[test] //= check C5 test
fn after_a_loss_the_first_read_goes_on_in_its_middle_and_the_others_begin_anew() {
    let mut resources = reads(&[700, 300, 0]);
    let whole = [
        (0, 256, true, false),
        (1, 256, false, false),
        (2, 188, false, true),
        (3, 256, true, false),
        (4, 44, false, true),
        (5, 0, true, true),
    ];
    assert_eq!(send(&mut resources, 99), whole);
    // The responses from PSN 1 on are lost, and requested again.
    assert!(again(&mut resources, 0, 1, 444));
    assert!(again(&mut resources, 3, 3, 300));
    assert!(again(&mut resources, 5, 5, 0));
    let mut rest = whole[1..].to_vec();
    rest[0].2 = true;
    assert_eq!(send(&mut resources, 99), rest);
}

#[test] //= check C5 test
fn what_is_still_owed_comes_once_and_in_order() {
    let mut resources = reads(&[1000, 1000]);
    assert_eq!(send(&mut resources, 2).len(), 2);
    assert!(again(&mut resources, 0, 2, 488), "to come anyway");
    assert!(again(&mut resources, 4, 4, 1000), "to come anyway");
    let psns: Vec<u32> = send(&mut resources, 99).iter().map(|sent| sent.0).collect();
    assert_eq!(psns, [2, 3, 4, 5, 6, 7]);
    // Now from the second packet of the first answer, when the second is half repeated.
    assert!(again(&mut resources, 4, 4, 1000));
    assert_eq!(send(&mut resources, 2).len(), 2);
    assert!(again(&mut resources, 0, 1, 744));
    let sent = send(&mut resources, 99);
    let psns: Vec<u32> = sent.iter().map(|sent| sent.0).collect();
    assert_eq!(psns, [1, 2, 3, 4, 5, 6, 7]);
    assert!(sent[0].2 && sent[3].2, "each answer begins with a first packet");
    assert_eq!(send(&mut resources, 1), []);
}

#[test] //= check C5 test
fn the_end_of_a_read_is_answered_though_an_older_one_is_being_repeated() {
    let mut resources = reads(&[1000, 1000]);
    send(&mut resources, 99);
    // A late copy of the first request, and then a request for the lost part of the second answer.
    assert!(again(&mut resources, 0, 0, 1000));
    assert_eq!(send(&mut resources, 1).len(), 1);
    assert!(again(&mut resources, 4, 6, 488));
    let psns: Vec<u32> = send(&mut resources, 99).iter().map(|sent| sent.0).collect();
    assert_eq!(psns, [1, 2, 3, 4, 5, 6, 7]);
}

#[test] //= check C7 test
fn what_the_peer_never_had_cannot_be_given_up() {
    let mut resources = reads(&[1000]);
    send(&mut resources, 2);
    let reply = resources.next_reply(MTU).unwrap();
    assert!(!resources.give_up(&reply));
    send(&mut resources, 99);
    assert!(again(&mut resources, 0, 1, 300));
    let reply = resources.next_reply(MTU).unwrap();
    assert!(resources.give_up(&reply));
    assert_eq!(send(&mut resources, 99), []);
    assert!(again(&mut resources, 0, 0, 1000), "it may be requested again");
}

#[test]
fn a_part_of_a_read_is_answered_as_asked() {
    let mut resources = reads(&[1000]);
    send(&mut resources, 99);
    assert!(again(&mut resources, 0, 1, 300));
    assert_eq!(send(&mut resources, 99), [(1, 256, true, false), (2, 44, false, true)]);
    assert!(!again(&mut resources, 0, 1, 745), "beyond the end");
}

#[test]
fn a_repetition_gives_way_to_a_new_request() {
    let mut resources = reads(&[100, 100, 100, 1000]);
    send(&mut resources, 99);
    assert!(again(&mut resources, 0, 0, 100));
    assert!(resources.allows(false) && resources.has_room(false));
    resources.push(PendingAnswer::Atomic { original: 7 }, Psn::new(7));
    assert_eq!(send(&mut resources, 99), [(7, 0, true, true)]);
    assert!(!again(&mut resources, 0, 0, 100), "forgotten");
}

#[test] //= check P8 test
fn flushes_take_neither_room_nor_a_record_from_what_counts() {
    let mut resources = Resources::new();
    resources.start(1);
    let atomic = PendingAnswer::Atomic { original: 7 };
    resources.push_placed(Placed::Flush, Psn::new(0));
    assert!(resources.allows(false) && resources.has_room(false), "a FLUSH is not counted");
    resources.push(atomic, Psn::new(1));
    assert!(!resources.allows(false), "one ATOMIC is");
    for psn in 2..16 {
        assert!(resources.allows(true) && resources.has_room(true), "PSN {psn}");
        resources.push_placed(Placed::Flush, Psn::new(psn));
    }
    assert!(!resources.has_room(true), "sixteen are not answered");
    assert_eq!(send(&mut resources, 2).len(), 2);
    assert!(resources.allows(false) && resources.has_room(false) && resources.has_room(true));
    // The answer to the ATOMIC may have been lost: it is kept beside a FLUSH.
    resources.push_placed(Placed::Flush, Psn::new(16));
    assert!(resources.replay_atomic(Psn::new(1), MTU));
    send(&mut resources, 99);
    for psn in 17..40 {
        assert!(resources.allows(false) && resources.has_room(false));
        resources.push(atomic, Psn::new(psn));
        send(&mut resources, 99);
    }
    assert!(resources.replay_atomic(Psn::new(39), MTU));
    send(&mut resources, 1);
    assert!(!resources.replay_atomic(Psn::new(38), MTU), "without FLUSHes one record is kept");
}
