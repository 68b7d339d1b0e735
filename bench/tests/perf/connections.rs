//! rping at both ends, as two processes joined by memif.

use super::common::{Memif, Run};

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
fn a_connection_comes_about_although_packets_are_lost() {
    let common = "-a 192.0.2.1 -S 9000 -C 60 -V --loss-rx 0.03 --loss-tx 0.03 --seed 5";
    let reports = session("lossy", &format!("rping -s {common}"), &format!("rping -c {common}"));
    for report in reports {
        assert_eq!((&report["pings"], &report["verified"]), (&60.into(), &true.into()));
        assert!(report["lost"].as_u64().expect("a number") > 0);
    }
}

#[test]
fn a_client_without_a_listener_is_told_so() {
    let memif = Memif::new("rejected");
    let server = server(&memif, "rping -s");
    let output = client(&memif, "rping -c -a 192.0.2.1 -p 7000 -C 1").finish();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("reject"), "{output:?}");
    client(&memif, "rping -c -a 192.0.2.1 -C 1").finish().succeeded();
    server.finish().succeeded();
}
