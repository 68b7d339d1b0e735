use super::*;

#[test]
fn defaults_are_perftests() {
    let write = Plan::new(Operation::Write, Measure::Bandwidth);
    assert_eq!(write.sizes, [65536]);
    assert_eq!(write.amount, Amount::Iterations(5000));
    assert_eq!((write.tx_depth, write.rx_depth), (128, 512));
    let send = Plan::new(Operation::Send, Measure::Latency);
    assert_eq!((send.sizes[0], send.amount), (2, Amount::Iterations(1000)));
    assert_eq!(send.tx_depth, 1);
    assert_eq!(Plan::new(Operation::FetchAdd, Measure::Latency).sizes, [8]);
}

#[test]
fn a_sweep_goes_from_2_to_8_mib() {
    let sizes = Plan::sweep();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 1 << 23));
}

#[test]
fn moderation_is_perftests() {
    let large = Plan::new(Operation::Send, Measure::Bandwidth);
    let moderation = |plan: Plan| plan.checked().expect("valid").cq_mod.expect("decided");
    assert_eq!(moderation(large.clone()), 1);
    assert_eq!(moderation(Plan { sizes: vec![8192], ..large.clone() }), 100);
    assert_eq!(moderation(Plan { sizes: Plan::sweep(), ..large.clone() }), 100);
    assert_eq!(moderation(Plan { service: Service::Ud, ..large.clone() }), 100);
    assert_eq!(moderation(Plan { post_list: 16, ..large.clone() }), 16);
    assert_eq!(moderation(Plan { post_list: 128, ..large.clone() }), 128);
    assert_eq!(moderation(Plan { cq_mod: Some(50), ..large.clone() }), 50);
    assert_eq!(moderation(Plan { cq_mod: Some(100), tx_depth: 16, ..large }), 16);
    assert_eq!(moderation(Plan::new(Operation::Send, Measure::Latency)), 1);
}

/// Simulates a sender's posts on one queue pair with immediate completions. Returns whether all
/// messages were sent.
fn ends(plan: &Plan, messages: u64) -> bool {
    let (depth, list) = (u64::from(plan.tx_depth), u64::from(plan.post_list));
    let moderation = u64::from(plan.moderation());
    let (mut posted, mut completed) = (0, 0);
    while completed < messages {
        let count = list.min(messages - posted);
        if count > 0 && posted - completed + count <= depth {
            posted += count;
            continue;
        }
        let signaled = if count == 0 { posted } else { posted / moderation * moderation };
        if signaled == completed {
            return false;
        }
        completed = signaled;
    }
    true
}

#[test]
fn there_is_always_room_again() {
    let new = || Plan::new(Operation::Write, Measure::Bandwidth);
    for (tx_depth, asked) in (1..=20).flat_map(|depth| (0..=25).map(move |asked| (depth, asked))) {
        for post_list in 1..=tx_depth {
            let cq_mod = (asked > 0).then_some(asked);
            let plan = Plan { tx_depth, post_list, cq_mod, ..new() };
            for messages in [5, 64, 97, 1000] {
                assert!(ends(&plan, messages), "-t {tx_depth} -l {post_list} -Q {cq_mod:?}");
            }
        }
    }
    assert!(ends(&Plan { post_list: 64, ..new() }, 5000));
}

#[test]
fn values_out_of_range_are_named() {
    let with = |change: fn(&mut Plan)| {
        let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
        change(&mut plan);
        plan.checked().expect_err("out of range").to_string()
    };
    assert_eq!(with(|plan| plan.sizes = vec![0]), "-s must be 1 to 2147483648, not 0");
    assert_eq!(with(|plan| plan.mtu = Some(1500)), "-m must be 256, 512, 1024, 2048 or 4096");
    assert_eq!(
        with(|plan| plan.amount = Amount::Iterations(4)),
        "-n must be 5 to 4294967295, not 4"
    );
    assert_eq!(with(|plan| plan.post_list = 200), "-l must be 1 to 128, not 200");
}

#[test]
fn services_have_the_operations_that_they_have() {
    for operation in [Operation::Write, Operation::Read, Operation::Send, Operation::FetchAdd] {
        for (service, has) in [
            (Service::Rc, true),
            (Service::Xrc, true),
            (Service::Rd, true),
            (Service::Uc, matches!(operation, Operation::Write | Operation::Send)),
            (Service::Ud, operation == Operation::Send),
        ] {
            let plan = Plan { service, ..Plan::new(operation, Measure::Latency) };
            assert_eq!(plan.checked().is_ok(), has, "{service:?} {operation:?}");
        }
    }
}

#[test]
fn queue_pairs_of_xrc_are_of_one_direction() {
    let plan = |operation, measure, bidirectional| Plan {
        service: Service::Xrc,
        qps: 3,
        bidirectional,
        ..Plan::new(operation, measure)
    };
    let one_way = plan(Operation::Send, Measure::Bandwidth, false);
    assert_eq!((one_way.queue_pairs(), one_way.partner(2)), (3, 2));
    for both in [
        plan(Operation::Read, Measure::Bandwidth, true),
        plan(Operation::Read, Measure::Latency, false),
    ] {
        assert_eq!(both.queue_pairs(), 6);
        let partners: Vec<usize> = (0..6).map(|index| both.partner(index)).collect();
        assert_eq!(partners, [3, 4, 5, 0, 1, 2]);
    }
    let rc = Plan { service: Service::Rc, ..plan(Operation::Send, Measure::Bandwidth, true) };
    assert_eq!((rc.queue_pairs(), rc.shares_receives()), (3, false));
    assert!(one_way.shares_receives() && !one_way.is_lossy());
    // Without receives the depth of their queue does not limit the queue pairs.
    let writes = plan(Operation::Write, Measure::Bandwidth, false);
    assert!(Plan { qps: 600, ..writes }.checked().is_ok());
    assert!(Plan { qps: 600, ..one_way }.checked().is_err());
}

#[test]
fn queue_pairs_of_rd_go_over_as_many_ee_contexts_unless_it_is_said() {
    let plan = |eecs, outstanding| {
        let new = Plan::new(Operation::Read, Measure::Bandwidth);
        Plan { service: Service::Rd, qps: 8, eecs, outstanding, ..new }.checked()
    };
    let all = plan(None, None).expect("valid");
    assert_eq!((all.eecs, all.outstanding, all.queue_pairs()), (Some(8), Some(1), 8));
    assert!(!all.is_lossy() && !all.shares_receives());
    assert_eq!(all.differences(&plan(Some(8), Some(1)).expect("valid")), None);
    let two = plan(Some(2), None).expect("valid");
    assert_eq!(all.differences(&two).as_deref(), Some("eecs is 8 here and 2 there"));
    for (wrong, said) in [
        (plan(Some(0), None), "--eecs must be 1 to 8, the value of -q, not 0"),
        (plan(Some(9), None), "--eecs must be 1 to 8, the value of -q, not 9"),
        (plan(None, Some(2)), "-o: an EE context has one message at a time"),
    ] {
        assert!(wrong.expect_err("refused").to_string().starts_with(said));
    }
    let rc = Plan { eecs: Some(1), ..Plan::new(Operation::Read, Measure::Bandwidth) };
    assert!(rc.clone().checked().is_err());
    let rc = Plan { eecs: None, ..rc }.checked().expect("valid");
    assert_eq!((rc.eecs, rc.ee_contexts(), rc.outstanding()), (None, 0, 16));
}

#[test]
fn rates_of_paths_are_those_of_the_verbs() {
    assert_eq!(Rate::of_path(25_000.0).gbps(), Some(25.0));
    assert_eq!(Rate::of_path(1000.0).gbps(), Some(2.5));
    assert_eq!(Rate::of_path(26_000.0).gbps(), Some(28.0));
    assert_eq!(Rate::of_path(2_000_000.0), Rate::Max);
    assert_eq!((Rate::Max.gbps(), Rate::QueuePair(1_500_000).gbps()), (None, Some(1.5)));
}

#[test]
fn datagrams_are_at_most_a_packet() {
    let send = Plan::new(Operation::Send, Measure::Bandwidth);
    assert_eq!(send.sizes_on(1024), [65536]);
    let datagrams = Plan { service: Service::Ud, ..send };
    assert_eq!(datagrams.sizes_on(1024), [1024]);
    let sweep = Plan { sizes: Plan::sweep(), ..datagrams };
    assert_eq!(sweep.sizes_on(16), [2, 4, 8, 16]);
}

#[test]
fn differing_options_are_listed() {
    let ours = Plan::new(Operation::Write, Measure::Bandwidth);
    assert_eq!(ours.differences(&ours.clone()), None);
    let theirs = Plan { sizes: vec![8], qps: 2, ..ours.clone() };
    let text = ours.differences(&theirs).expect("they differ");
    assert_eq!(text, "qps is 1 here and 2 there, sizes is [65536] here and [8] there");
}

#[test]
fn a_low_rate_is_silent_for_long() {
    let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
    assert_eq!(plan.silence(), Duration::ZERO);
    plan.local.pace = Some(Pace { rate: Speed::Messages(4.0), burst: 128 });
    assert_eq!(plan.silence(), Duration::from_secs(32));
    plan.local.pace = Some(Pace { rate: Speed::Bytes(65536.0), burst: 40 });
    assert_eq!(plan.silence(), Duration::from_secs(40));
    plan.local.pace = Some(Pace { rate: Speed::Messages(f64::MIN_POSITIVE), burst: 1 });
    assert_eq!(plan.silence(), Duration::from_nanos(u64::MAX));
    // A message of 64 KiB at 10 kbit/s takes 52 s and its headers.
    let slow =
        Plan { rate: Rate::QueuePair(10), ..Plan::new(Operation::Write, Measure::Bandwidth) };
    assert!((53..120).contains(&slow.silence().as_secs()), "{:?}", slow.silence());
    // Four queue pairs have the rate of one EE context together.
    let shared = Plan { service: Service::Rd, qps: 7, eecs: Some(2), ..slow.clone() };
    assert_eq!(shared.silence().as_secs() / 4, slow.silence().as_secs());
    let moderated = Plan { sizes: vec![8], rate: Rate::QueuePair(1), ..slow };
    assert!(moderated.silence() > Duration::from_secs(60), "{:?}", moderated.silence());
}

#[test]
fn the_interval_of_an_endless_run_is_an_ends_own() {
    let mut ours = Plan::new(Operation::Write, Measure::Bandwidth);
    ours.amount = Amount::Endless;
    let mut theirs = ours.clone();
    theirs.local.interval = Duration::from_secs(1);
    assert_eq!(ours.differences(&theirs), None);
    theirs.amount = Amount::Duration(Duration::from_secs(1));
    assert!(ours.differences(&theirs).is_some());
}
