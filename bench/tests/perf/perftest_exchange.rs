//! Every test with perftest's exchange at both ends.

use super::common::{Memif, Run, run};

/// Runs a test. Returns the first two columns of its rows: bytes and iterations.
fn rows(words: &str) -> Vec<(u64, u64)> {
    let mut args: Vec<&str> = words.split_whitespace().collect();
    args.extend(["--in-process", "--perftest-exchange"]);
    let output = run(&args).succeeded();
    let row = |line: &str| {
        let mut columns = line.split_whitespace().map(|word| word.parse().ok());
        Some((columns.next()??, columns.next()??))
    };
    output.stdout.lines().filter_map(row).collect()
}

#[test]
fn one_way() {
    for test in ["write_bw", "read_bw", "send_bw"] {
        assert_eq!(rows(&format!("{test} -n 200 -s 5000")), [(5000, 200)], "{test}");
        assert_eq!(rows(&format!("{test} -n 50 -q 3 -s 64")), [(64, 150)], "{test}");
    }
    assert_eq!(rows("atomic_bw -n 100"), [(8, 100)]);
}

#[test]
fn both_ways() {
    for test in ["write_bw -s 64", "read_bw -s 64", "send_bw -s 64", "atomic_bw"] {
        let rows = rows(&format!("{test} -n 300 -b"));
        assert!(matches!(rows[..], [(8 | 64, 300)]), "{test}: {rows:?}");
    }
}

#[test]
fn all_sizes() {
    let tests =
        ["write_bw", "write_bw -b", "send_bw", "send_bw -b", "write_lat", "send_lat", "read_lat"];
    for test in tests {
        let sizes: Vec<u64> = rows(&format!("{test} -a -n 5")).iter().map(|row| row.0).collect();
        assert_eq!(sizes, (1..=23).map(|log2| 1 << log2).collect::<Vec<u64>>(), "{test}");
    }
}

#[test]
fn round_trips() {
    for test in ["write_lat", "send_lat", "read_lat", "atomic_lat"] {
        let rows = rows(&format!("{test} -n 600"));
        // The following end measures one round trip less.
        assert!(matches!(rows[..], [(2 | 8, 599..=600)]), "{test}: {rows:?}");
    }
}

#[test]
fn by_time() {
    for test in ["write_bw", "send_bw", "send_bw -b", "write_lat", "send_lat"] {
        let rows = rows(&format!("{test} -D 1 -s 64"));
        assert!(matches!(rows[..], [(64, 1..)]), "{test}: {rows:?}");
    }
}

#[test]
fn unreliable_services() {
    for test in ["write_bw -c UC", "send_bw -c UC", "send_bw -c UC -b", "send_bw -c UD -b"] {
        let rows = rows(&format!("{test} -n 100 -s 64"));
        assert_eq!(rows, [(64, 100)], "{test}");
    }
    for test in ["write_lat -c UC", "send_lat -c UC", "send_lat -c UD"] {
        let rows = rows(&format!("{test} -n 100"));
        assert!(matches!(rows[..], [(2, 99..=100)]), "{test}: {rows:?}");
    }
    let sizes: Vec<u64> = rows("send_bw -c UD -a -n 5 -m 1024").iter().map(|row| row.0).collect();
    assert_eq!(sizes, (1..=10).map(|log2| 1 << log2).collect::<Vec<u64>>());
}

#[test]
fn extended_connections() {
    for test in ["write_bw -s 64", "read_bw -s 64", "send_bw -s 64", "atomic_bw"] {
        for (direction, workers) in [("", 1), (" -q 3", 3), (" -b -q 2", 2)] {
            let rows = rows(&format!("{test} -c XRC -n 100{direction}"));
            let messages = 100 * workers;
            assert!(matches!(rows[..], [(8 | 64, found)] if found == messages), "{test}: {rows:?}");
        }
    }
    for test in ["write_lat", "send_lat", "read_lat", "atomic_lat"] {
        let rows = rows(&format!("{test} -c XRC -n 200"));
        assert!(matches!(rows[..], [(2 | 8, 199..=200)]), "{test}: {rows:?}");
    }
    let sizes: Vec<u64> = rows("send_bw -c XRC -a -n 5").iter().map(|row| row.0).collect();
    assert_eq!(sizes, (1..=23).map(|log2| 1 << log2).collect::<Vec<u64>>());
    assert!(matches!(rows("send_bw -c XRC -D 1 -s 64")[..], [(64, 1..)]));
}

#[test]
fn what_perftest_has_no_words_for_is_refused() {
    let error = |words: &str| {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.extend(["--in-process", "--perftest-exchange"]);
        let output = run(&args);
        assert_eq!(output.code, Some(2), "{output:?}");
        output.stderr
    };
    assert!(error("write_bw --verify").contains("--verify needs uroce at the other end"));
    assert!(error("write_bw -a -D 1").contains("-a together with -D"));
    let no_rd = "-c RD needs uroce at the other end too: perftest has no RD";
    assert!(error("write_bw -c RD").contains(no_rd));
    assert!(error("send_lat -c RD").contains(no_rd));
}

#[test]
fn options_that_differ_are_named_by_both_ends() {
    for (server, client, said) in [
        ("write_bw -s 8", "write_bw -s 16", "size is 8 here and 16 there"),
        ("write_bw", "read_bw", "verb is 2 here and 4 there"),
        ("send_lat", "send_bw -s 2", "tst is 0 here and 1 there"),
        ("write_bw -D 2", "write_bw -D 3", "duration is 2 here and 3 there"),
    ] {
        let memif = Memif::new("compared");
        let start = |role, line: &str| {
            let words: Vec<&str> = line.split(' ').chain(["--perftest-exchange"]).collect();
            memif.start(role, &words)
        };
        let ends = [start("server", server), start("client", client)].map(Run::finish);
        for output in &ends {
            assert_eq!(output.code, Some(1), "{output:?}");
            assert!(output.stderr.contains("different options: "), "{output:?}");
        }
        assert!(ends[0].stderr.contains(said), "{ends:?}");
    }
}
