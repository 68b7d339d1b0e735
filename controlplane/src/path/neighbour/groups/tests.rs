use super::super::tests::{asked, at, golden, handle, ip, port};
use super::*;

const GROUP4: &str = "239.1.2.3";
const GROUP6: &str = "ff0e::1:2:3";

fn left(port: &mut Neighbours, group: &str) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    port.leave(ip(group), &mut |frame| out.push(frame.to_vec()));
    out
}

#[test]
fn a_group_is_reported_twice_when_it_gets_its_first_member() {
    for (group, first, second) in
        [(GROUP4, "igmp_report", "igmp_report"), (GROUP6, "mld_join", "mld_join")]
    {
        let mut port = port();
        port.join(at(5), ip(group));
        assert_eq!(port.next_timeout(), Some(at(5)));
        assert_eq!(asked(&mut port, at(5)), [golden(first)]);
        port.join(at(6), ip(group));
        assert_eq!(port.next_timeout(), Some(at(1005)), "the second member is no news");
        assert_eq!(asked(&mut port, at(1005)), [golden(second)]);
        assert_eq!(port.next_timeout(), None);
    }
}

#[test]
fn a_group_is_left_when_it_loses_its_last_member() {
    for (group, leave) in [(GROUP4, "igmp_leave"), (GROUP6, "mld_leave")] {
        let mut port = port();
        port.join(at(0), ip(group));
        port.join(at(0), ip(group));
        assert!(left(&mut port, group).is_empty());
        assert_eq!(left(&mut port, group), [golden(leave)]);
        assert!(left(&mut port, group).is_empty(), "once");
        assert_eq!(port.next_timeout(), None, "reports that were due are not any more");
    }
}

/// Creates a port that has reported both groups.
fn settled() -> Neighbours {
    let mut port = port();
    for group in [GROUP4, GROUP6] {
        port.join(at(0), ip(group));
    }
    assert_eq!(asked(&mut port, at(0)).len(), 2);
    assert_eq!(asked(&mut port, at(1000)).len(), 2);
    port
}

#[test]
fn a_query_is_answered_in_time_however_often_it_comes() {
    let cases = [
        ("igmp_query", "igmp_report", 10_000),
        ("igmp_query_of_group", "igmp_report", 1_000),
        ("mld_query", "mld_report", 10_000),
        ("mld_query_of_group", "mld_report", 1_000),
    ];
    for (query, report, within) in cases {
        let mut port = settled();
        for millis in [2000, 2001, 2002] {
            assert_eq!(handle(&mut port, at(millis), &golden(query)), Ok(vec![]), "{query}");
        }
        let due = port.next_timeout().unwrap();
        assert!(due <= at(2002 + within), "{query}");
        assert_eq!(asked(&mut port, at(2002 + within)), [golden(report)], "{query}");
        assert_eq!(port.next_timeout(), None);
    }
}

#[test]
fn a_query_of_another_group_is_not_answered() {
    let mut port = port();
    port.join(at(0), ip("239.9.9.9"));
    port.join(at(0), ip("ff0e::9"));
    for millis in [0, 1000] {
        asked(&mut port, at(millis));
    }
    for query in ["igmp_query_of_group", "mld_query_of_group"] {
        assert_eq!(handle(&mut port, at(2000), &golden(query)), Ok(vec![]));
        assert_eq!(port.next_timeout(), None);
    }
}

#[test]
fn what_was_routed_or_damaged_is_no_query() {
    for (query, hop_limit, last) in [("igmp_query", 22, 45), ("mld_query", 21, 89)] {
        let mut damaged = golden(query);
        damaged[last] ^= 1;
        let mut port = settled();
        assert_eq!(handle(&mut port, at(2000), &damaged), Err(Ignored::Malformed), "{query}");
        let mut routed = golden(query);
        routed[hop_limit] = 2;
        assert_eq!(handle(&mut port, at(2000), &routed), Err(Ignored::Malformed), "{query}");
        for len in 0..golden(query).len().min(last) {
            let _ = handle(&mut port, at(2000), &golden(query)[..len]);
        }
        assert_eq!(port.next_timeout(), None, "{query}");
    }
}

#[test]
fn groups_of_the_host_and_of_all_are_not_reported() {
    let mut port = port();
    for group in ["224.0.0.1", "ff02::1", "ff01::5", "192.0.2.7", "2001:db8::7"] {
        port.join(at(0), ip(group));
        assert_eq!(port.next_timeout(), None, "{group}");
        assert!(left(&mut port, group).is_empty());
    }
}

#[test]
fn a_link_that_comes_up_hears_of_all_groups_again() {
    let mut port = settled();
    port.renew_groups(at(9000));
    assert_eq!(asked(&mut port, at(9000)), [golden("igmp_report"), golden("mld_join")]);
    assert_eq!(asked(&mut port, at(10_000)).len(), 2);
    assert_eq!(port.next_timeout(), None);
}

#[test]
fn response_codes_of_mld_above_32767_are_floating_point() {
    assert_eq!(mld_delay(0x7fff).as_millis(), 32767);
    assert_eq!(mld_delay(0x8000).as_millis(), 0x1000 << 3);
    assert_eq!(mld_delay(0xffff).as_millis(), 0x1fff << 10);
}
