//! rping, ucmatose, udaddy and cmtime at both ends, as two processes joined by memif.

use super::common::{Memif, Output, Run};

const SERVER: [&str; 2] = ["192.0.2.1/24", "2001:db8::1/64"];
const CLIENT: [&str; 2] = ["192.0.2.2/24", "2001:db8::2/64"];
/// Long options for both ends.
const BOTH: [&str; 1] = ["--json"];

/// Starts a server and waits until it listens.
fn server(memif: &Memif, words: &str) -> Run {
    let mut run = start(memif, "server", words, SERVER);
    run.until("listening on ");
    run
}

fn client(memif: &Memif, words: &str) -> Run {
    start(memif, "client", words, CLIENT)
}

fn start(memif: &Memif, role: &str, words: &str, addresses: [&str; 2]) -> Run {
    let mut args: Vec<&str> = words.split(' ').collect();
    args.extend(BOTH);
    for address in addresses {
        args.extend(["--ip", address]);
    }
    memif.start_alone(role, &args)
}

/// Runs both ends of a session, which must succeed. Returns the client's and the server's report.
fn session(name: &str, serving: &str, asking: &str) -> [serde_json::Value; 2] {
    let memif = Memif::new(name);
    let server = server(&memif, serving);
    let client = client(&memif, asking);
    [client, server].map(|run| run.finish().succeeded().json())
}

#[test]
fn rping_reads_and_writes_over_both_ip_versions() {
    for (address, size) in [("192.0.2.1", "23"), ("192.0.2.1", "65535"), ("2001:db8::1", "4097")] {
        let common = format!("-a {address} -S {size} -C 20 -V");
        let reports =
            session("rping", &format!("rping -s {common}"), &format!("rping -c {common}"));
        for report in reports {
            assert_eq!((&report["pings"], &report["verified"]), (&20.into(), &true.into()));
        }
    }
}

#[test]
fn a_persistent_server_serves_one_client_after_the_other() {
    let memif = Memif::new("persistent");
    let server = server(&memif, "rping -s -P --clients 2 -V");
    for pings in [3, 5] {
        let report = client(&memif, &format!("rping -c -a 192.0.2.1 -C {pings} -V")).finish();
        assert_eq!(report.succeeded().json()["pings"], pings);
    }
    let report = server.finish().succeeded().json();
    assert_eq!((&report["clients"], &report["failed"]), (&2.into(), &0.into()));
    assert_eq!(report["pings"], 8);
}

#[test]
fn messages_go_both_ways_over_several_connections() {
    let reports = session(
        "ucmatose",
        "ucmatose -c 5 -C 20 -S 3000",
        "ucmatose -s 192.0.2.1 -c 5 -C 20 -S 3000",
    );
    for report in reports {
        assert_eq!((&report["connections"], &report["count"]), (&5.into(), &20.into()));
    }
    session("udaddy", "udaddy -c 5 -C 20 -S 3000", "udaddy -s 2001:db8::1 -c 5 -C 20 -S 3000");
}

#[test]
fn connections_come_about_although_their_messages_are_lost() {
    let loss = "--loss-rx 0.03 --loss-tx 0.03 --seed 5";
    let reports = session(
        "lossy",
        &format!("ucmatose -c 12 -C 20 {loss}"),
        &format!("ucmatose -s 192.0.2.1 -c 12 -C 20 {loss}"),
    );
    for report in reports {
        assert!(report["lost"].as_u64().expect("a number") > 0);
    }
}

#[test]
fn connections_are_made_and_ended_all_at_once_and_one_by_one() {
    for one_by_one in ["", " --one-by-one"] {
        let asking = format!("cmtime -s 192.0.2.1 -c 50{one_by_one}");
        let [client, server] = session("cmtime", "cmtime -c 50", &asking);
        assert!(client["us_per_connection"]["connect"].as_f64().expect("a number") > 0.0);
        assert_eq!(server["connections"], 50);
    }
}

#[test]
fn whoever_comes_too_much_or_to_nobody_is_told_so() {
    let memif = Memif::new("rejected");
    let server = server(&memif, "ucmatose -c 1 -C 0");
    let refused = |output: Output| {
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("reject"), "{output:?}");
    };
    refused(client(&memif, "rping -c -a 192.0.2.1 -p 7000 -C 1").finish());
    refused(client(&memif, "ucmatose -s 192.0.2.1 -c 2 -C 0").finish());
    server.finish().succeeded();
}
