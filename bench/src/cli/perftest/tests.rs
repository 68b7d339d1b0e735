use super::super::{Cli, Command, Role};
use super::*;
use clap::Parser;

fn parse(line: &str) -> Result<PerfArgs, String> {
    let words = std::iter::once("uroce-perf").chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Command::Perftest(test) = cli.command else {
        return Err("not a perftest test".to_owned());
    };
    test.args().checked().map_err(|error| error.to_string())
}

#[test]
fn short_forms_and_names_are_perftests() {
    let short = parse("write_bw -p 1 -s 8 -n 10 -t 4 -Q 2 -q 3 -l 2 -m 1024 -u 10 -x 1 -N -F -b")
        .expect("valid");
    let long = parse(
        "write_bw --port 1 --size 8 --iters 10 --tx-depth 4 --cq-mod 2 --qp 3 --post_list 2 \
         --mtu 1024 --qp-timeout 10 --gid-index 1 --noPeak --CPU-freq --bidirectional",
    )
    .expect("valid");
    assert_eq!(short.plan, long.plan);
    assert_eq!((short.common.port, long.common.port), (1, 1));
    let plan = short.plan;
    assert_eq!((plan.sizes, plan.amount), (vec![8], Amount::Iterations(10)));
    assert_eq!((plan.tx_depth, plan.cq_mod, plan.qps, plan.post_list), (4, Some(2), 3, 2));
    assert_eq!((plan.mtu, plan.qp_timeout), (Some(1024), 10));
    assert!(plan.no_peak && plan.bidirectional);
}

#[test]
fn without_options_the_plan_is_perftests() {
    for (line, plan) in [
        ("write_bw", Plan::new(Operation::Write, Measure::Bandwidth)),
        ("read_bw", Plan::new(Operation::Read, Measure::Bandwidth)),
        ("send_bw", Plan::new(Operation::Send, Measure::Bandwidth)),
        ("atomic_bw", Plan::new(Operation::FetchAdd, Measure::Bandwidth)),
        ("write_lat", Plan::new(Operation::Write, Measure::Latency)),
        ("read_lat", Plan::new(Operation::Read, Measure::Latency)),
        ("send_lat", Plan::new(Operation::Send, Measure::Latency)),
        ("atomic_lat -A CMP_AND_SWAP", Plan::new(Operation::CompareSwap, Measure::Latency)),
    ] {
        let plan = plan.checked().expect("valid");
        assert_eq!(parse(line).expect("valid").plan, plan, "{line}");
    }
}

#[test]
fn the_role_follows_from_the_host() {
    let role = |line| parse(line).expect("valid").common.ends.role();
    assert_eq!(role("send_lat"), Role::Server);
    assert_eq!(role("send_lat box"), Role::Client { host: "box".into() });
    assert_eq!(role("send_lat --in-process"), Role::Both);
    assert!(parse("send_lat --in-process box").is_err());
}

#[test]
fn what_is_not_done_is_not_accepted() {
    let error = |line| parse(line).expect_err("not supported");
    assert!(error("write_bw -c UD").contains("UD has no RDMA WRITE"));
    assert!(error("read_lat -c UC").contains("UC has no RDMA READ"));
    assert!(error("write_bw -c XRC").contains("invalid value 'XRC'"));
    assert!(error("send_bw -I 1025").contains("-I must be 0 to 1024"));
    assert!(error("send_bw -R").contains("-R is not supported here"));
    for line in ["write_bw -e", "write_bw -r 5", "write_lat -q 2", "write_lat -U"] {
        assert!(error(line).contains("unexpected argument"), "{line}");
    }
}

#[test]
fn services_and_inline_data_are_part_of_the_plan() {
    let plan = parse("send_lat -c UD -I 64").expect("valid").plan;
    assert_eq!((plan.service, plan.inline), (Service::Ud, 64));
    assert_eq!(parse("write_bw --connection UC").expect("valid").plan.service, Service::Uc);
}

#[test]
fn all_sizes_and_one_size_exclude_each_other() {
    assert_eq!(parse("read_bw -a").expect("valid").plan.sizes.len(), 23);
    assert!(parse("read_bw -a -s 4").is_err());
}

#[test]
fn a_time_replaces_the_number_and_is_not_for_verification() {
    let plan = parse("write_bw -D 3").expect("valid").plan;
    assert_eq!(plan.amount, Amount::Duration(Duration::from_secs(3)));
    assert!(parse("write_bw -D 3 -n 7").is_err());
    assert!(parse("write_bw -D 3 --verify").is_err());
    assert!(parse("write_bw -D 0").is_err());
}

#[test]
fn the_json_file_has_perftests_name_unless_given() {
    let file = |line| parse(line).expect("valid").common.json_file();
    assert_eq!(file("write_bw"), None);
    assert_eq!(file("write_bw --out_json"), Some("perftest_out.json".into()));
    assert_eq!(file("write_bw --out_json_file=x.json"), Some("x.json".into()));
}

#[test]
fn a_probability_is_one() {
    let loss = |line| parse(line).map(|perf| perf.common.ends.device.loss_rx);
    assert_eq!(loss("write_bw --loss-rx 0.01"), Ok(Some(0.01)));
    assert!(loss("write_bw --loss-rx 2").is_err());
}
