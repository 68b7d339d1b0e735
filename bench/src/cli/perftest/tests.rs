use super::super::{Cli, Command, Role};
use super::*;
use crate::perf::plan::{Amount, Pace, Rate, Service, Speed};
use clap::Parser;
use std::time::Duration;

fn parse(line: &str) -> Result<PerfArgs, String> {
    let words = std::iter::once("uroce-perf").chain(line.split_whitespace());
    let test = line.split_whitespace().next().unwrap_or_default();
    let cli = Cli::try_parse_from(words)
        .map_err(|error| refusal(&error, test).unwrap_or_else(|| error.to_string()))?;
    let Command::Perftest(test) = cli.command else {
        return Err("not a perftest test".to_owned());
    };
    test.args().map_err(|error| error.to_string())
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
        let mut plan = plan.checked().expect("valid");
        plan.local.region_per_qp = false;
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
    assert!(error("write_bw -c DC").contains("invalid value 'DC'"));
    assert!(error("send_bw -I 1025").contains("-I must be 0 to 1024"));
    assert!(error("send_bw -R").contains("-R is not supported here"));
    assert!(error("write_bw --no-such").contains("unexpected argument"));
}

/// An option in a test that has no use for it, and the reason for the refusal.
const REFUSED: &[(&str, &str)] = &[
    ("write_bw -e", "write_bw has no -e: a WRITE has no completion at its target to sleep on"),
    ("write_lat --events", "write_lat has no --events: a WRITE"),
    ("write_bw -r 5", "--write_with_imm"),
    ("read_bw -r 5", "read_bw has no -r: the other end posts no receive requests"),
    ("read_bw --recv_post_list=4", "read_bw has no --recv_post_list: the other end posts no"),
    ("write_bw --recv_post_list 4", "without --write_with_imm"),
    ("send_bw --recv_post_list 600", "--recv_post_list must be 1 to 512, the value of -r, not 600"),
    (
        "write_bw --use-srq",
        "only SEND takes receive requests from a shared queue; with -c XRC each",
    ),
    ("send_bw -c XRC -q 8 -r 4", "XRC has one receive queue of -r 4 for 8 queue pairs"),
    ("write_bw --eecs 2", "--eecs is for -c RD: the other services have no EE contexts"),
    ("write_bw -c RD -q 4 --eecs 5", "--eecs must be 1 to 4, the value of -q, not 5"),
    ("write_lat -c RD --eecs 1", "there is one queue pair, which goes over one EE context"),
    ("read_bw -c RD -o 4", "-o: an EE context has one message at a time: leave it out with -c RD"),
    ("send_bw --use-srq -q 8 -r 4", "--use-srq has one receive queue of -r 4 for 8 queue pairs"),
    ("write_bw -g", "only SEND has datagrams, to send to a group"),
    ("send_bw -g -b", "-g sends one way from one queue pair"),
    ("send_bw -g -q 2", "-g sends one way from one queue pair"),
    ("send_bw -M 224.0.0.30", "--mcg"),
    ("send_bw -g -M 192.0.2.1", "a multicast group"),
    ("write_bw --send_with_imm", "this option is for send_bw and send_lat"),
    ("send_lat --write_with_imm", "this option is for write_bw and write_lat"),
    ("write_lat -q 2", "several queue pairs are for bandwidth tests"),
    ("send_lat -b", "both directions are for bandwidth tests"),
    ("send_lat -l 4", "lists of requests are for bandwidth tests"),
    ("send_lat -N", "a latency has no peak bandwidth"),
    ("read_lat -w 1", "the limits are those of bandwidth tests"),
    ("read_lat --limit_msgrate=1", "the limits are those of bandwidth tests"),
    ("write_lat --run_infinitely", "endless runs are for bandwidth tests"),
    ("write_lat --rate_limit 4", "one message is in flight, so there is no rate to limit"),
    ("write_lat --mr_per_qp", "there is one queue pair"),
    ("write_bw --latency_gap 5", "the gap is for latency tests"),
    ("write_bw -C", "single times are for latency tests"),
    ("write_bw -H", "single times are for latency tests"),
    ("write_bw -U", "single times are for latency tests"),
    ("send_bw --perform_warm_up", "the warm-up is for bandwidth tests of WRITE, READ and ATOMIC"),
    ("atomic_bw -s 16", "an atomic operation has 8 bytes"),
    ("write_bw -o 4", "only READ and ATOMIC have requests outstanding"),
    ("read_bw -A CMP_AND_SWAP", "this option is for atomic_bw and atomic_lat"),
    ("write_bw --report_min_max", "no release of perftest has it"),
    ("write_bw --report-both", "--bidirectional"),
    ("write_bw --cpu_util", "--duration"),
    ("write_bw -f 2", "--duration"),
    ("write_bw -D 4 -f 2", "-f 2 leaves nothing of -D 4 to measure"),
    ("write_bw --run_infinitely -n 100", "cannot be used with"),
    ("write_bw --run_infinitely -a", "--run_infinitely never comes to a second size"),
    ("send_bw --run_infinitely -b", "--run_infinitely has no end"),
    ("write_bw --run_infinitely -w 1", "never comes to the end at which -w, -y and --report-both"),
    ("write_bw --run_infinitely -y 1", "give -D alone"),
    ("write_bw --run_infinitely -b --report-both", "give -D alone"),
    ("read_bw --verify --perform_warm_up", "leave out --perform_warm_up"),
    ("send_bw --verify --recv_post_list 4", "--recv_post_list"),
    ("read_bw -I 64", "-I copies what a request carries, which READ and ATOMIC do not"),
    ("read_lat --report_gbits", "--report_gbits is for bandwidth tests"),
    ("send_bw -e -D 4", "cannot be used with"),
    ("send_lat -U -D 4", "cannot be used with"),
    ("send_bw -e --verify", "leave out -e"),
    ("send_bw -e --rate_limit 4 --rate_limit_type SW", "leave out one"),
    ("write_bw --burst_size 4", "--rate_limit"),
    ("write_bw --rate_limit 4 --burst_size 4", "--burst_size is for --rate_limit_type SW"),
    ("write_bw --rate_limit 4 --rate_limit_type PP --rate_units g", "PP counts in kbit/s"),
    ("write_bw --rate_limit 4 --rate_limit_type PP --rate_units M", "leave out --rate_units"),
    ("write_bw --rate_limit 4 --rate_units p", "which only --rate_limit_type SW does"),
    ("write_bw -T 256", "a number from 0 to 255"),
    ("write_bw -T 4 --tclass 8", "-T and --tclass are one byte of the header"),
    ("write_bw -S 8", "8 is not in 0..=7"),
    ("write_bw --flow_label 0x100000", "numbers from 0 to 0xfffff"),
    ("write_bw -w -1", "unexpected argument '-1'"),
    ("write_bw -w=-1", "a number from 0"),
    ("send_lat -U -n 20000000", "-H and -U keep every latency"),
    ("send_lat --latency_gap 1000001", "--latency_gap must be at most 1000000"),
    ("write_bw --use_old_post_send", "write_bw has no --use_old_post_send: there is one way"),
    ("send_bw --inline_recv=32", "send_bw has no --inline_recv: what is received goes to"),
    ("read_bw --ipv6", "read_bw has no --ipv6: -x chooses one of the local addresses"),
    ("send_lat --output=latency", "--out_json_file and --out_csv_file write each figure"),
    ("write_bw -d mlx5_0", "--vdev, --pci, --udp or --config choose the device"),
];

#[test]
fn an_option_without_use_is_refused_with_the_reason() {
    for (line, reason) in REFUSED {
        let error = parse(line).expect_err(line);
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn names_of_options_are_perftests() {
    let plan = |line| parse(line).expect(line).plan;
    for (short, long) in [
        ("write_bw -T 0x20 -S 3 -L 9", "write_bw --tos=32 --sl 3 --hop_limit 9"),
        ("write_bw -T 32", "write_bw --tclass 0x20"),
        ("write_bw -D 9 -f 2", "write_bw --duration 9 --margin 2"),
        ("write_bw -D 9", "write_bw -D 9 -f 2"),
        ("send_bw -e", "send_bw --events"),
        (
            "send_bw -g -M 224.0.0.30",
            "send_bw --mcg --MGID 0:0:0:0:0:0:0:0:0:0:0xff:255:224:0:0:30",
        ),
        ("write_bw --verify", "write_bw --data_validation"),
        ("send_lat -U", "send_lat --report-unsorted"),
    ] {
        assert_eq!(plan(short), plan(long), "{short}, {long}");
    }
    let fields = plan("write_bw --flow_label 1,0x2f").local.fields;
    assert_eq!(fields.flow_labels, [1, 47]);
    let view = parse("write_bw -w 2.5 -y 0.5 -b --report-both").expect("valid").view;
    assert_eq!((view.limit_bw, view.limit_msgrate, view.both), (Some(2.5), Some(0.5), true));
    let view = parse("send_lat -H -C").expect("valid").view;
    assert!(view.histogram && view.quantiles && view.cycles && !view.unsorted);
    for (line, seconds) in [("write_bw --run_infinitely", 5), ("write_bw --run_infinitely -D 2", 2)]
    {
        let plan = plan(line);
        let interval = Duration::from_secs(seconds);
        assert_eq!((plan.amount, plan.local.interval), (Amount::Endless, interval), "{line}");
    }
    assert!(plan("write_bw --perform_warm_up --mr_per_qp").local.warm_up);
    let pace = plan("write_bw --rate_limit 8 --rate_units g --rate_limit_type SW").local.pace;
    assert_eq!(pace, Some(Pace { rate: Speed::Bytes(1e9), burst: 128 }));
}

#[test]
fn rates_are_in_perftests_units() {
    let plan = |line: &str| parse(&format!("write_bw --rate_limit {line}")).expect(line).plan;
    let pace = |line: &str| plan(&format!("{line} --rate_limit_type SW")).local.pace;
    let gigabit = Some(Pace { rate: Speed::Bytes(1e9), burst: 128 });
    assert_eq!((pace("8"), pace("8 --rate_units g")), (gigabit, gigabit));
    let mebibytes = Some(Pace { rate: Speed::Bytes(f64::from(8 << 20)), burst: 128 });
    assert_eq!(pace("8 --rate_units M"), mebibytes);
    let messages = Some(Pace { rate: Speed::Messages(4.0), burst: 128 });
    assert_eq!(pace("4 --rate_units p"), messages);
    assert_eq!(
        (plan("10").rate, plan("10 --rate_units g").rate),
        (Rate::of_path(1e4), Rate::of_path(1e4))
    );
    assert_eq!(plan("200 --rate_units M").rate.gbps(), Some(2.5));
    assert_eq!(plan("5000 --rate_limit_type PP").rate, Rate::QueuePair(5000));
}

#[test]
fn a_size_may_be_one_of_kib_or_mib() {
    let sizes = |line: &str| parse(&format!("write_bw -s {line}")).map(|args| args.plan.sizes);
    for (text, size) in [("64", 64), ("64K", 65536), ("1M", 1 << 20), ("0x10", 16)] {
        assert_eq!(sizes(text), Ok(vec![size]), "{text}");
    }
    for text in ["64k", "K", "", "4G", "5000000K", "2K4", "-1"] {
        assert!(sizes(text).is_err(), "{text}");
    }
}

/// Options of perftest 4.5 and of later releases up to 2026, in the parsers of all its tests.
const PERFTESTS: &str = "-a -A -b -c -C -d -D -e -f -F -g -h -H -i -I -l -L -m -M -n -N -o -O -p -q -Q -r \
    -R -s -S -t -T -u -U -V -w -W -x -X -y -z -B -E -G -J -j -K -k -P -v -Y -Z --port --ib-dev \
    --ib-port --mtu --size --iters --tx-depth --qp-timeout --sl --gid-index --all --CPU-freq \
    --connection --qp --events --vector --inline_size --outs --mcg --comm_rdma_cm --com_rdma_cm \
    --rdma_cm --tos --hop_limit --help --MGID --rx-depth --bidirectional --cq-mod --noPeak \
    --version --report-cycles --report-histogram --report-histogrm --report-unsorted --atomic_type \
    --dualport --post_list --duration --margin --source_mac --dest_mac --dest_ip --source_ip \
    --dest_port --source_port --ethertype --limit_bw --limit_msgrate --server --client --mac_fwd \
    --use_rss --report-counters --force-link --remote_mac --local_mac --remote_ip --local_ip \
    --remote_port --local_port --run_infinitely --report_gbits --use-srq --no_lock --use-null-mr \
    --report-both --reversed --pkey_index --tcp --burst_size --typical_pkt_size --rate_limit \
    --rate_limit_type --rate_units --output --cpu_util --out_json --out_json_file --latency_gap \
    --flow_label --retry_count --dont_xchg_versions --payload_file_path --use_cuda \
    --use_cuda_bus_id --use_cuda_dmabuf --cuda_mem_type --gpu_touch --use_rocm --use_rocm_dmabuf \
    --use_neuron --use_neuron_dmabuf --use_hl --use_mlu --use_mlu_dmabuf --use_opencl \
    --opencl_platform_id --use_ib_dm_dmabuf --mmap --mmap-offset --ipv6 --ipv6-addr --raw_ipv6 \
    --report-per-port --odp --use_hugepages --use_old_post_send --promiscuous --sniffer \
    --raw_mcast --mr_per_qp --dlid --tclass --wait_destroy --flows --flows_burst --reply_every \
    --perform_warm_up --vlan_en --vlan_pcp --recv_post_list --inline_recv --aes_xts \
    --encrypt_on_tx --sig_before --sig_offload --aes_block_size --kek_path --credentials_path \
    --data_enc_keys_number --data_enc_key_app_path --log_dci_streams --log_active_dci_streams \
    --disable_pcie_relaxed --use_ooo --congest_type --bind_source_ip --write_with_imm \
    --send_with_imm --no_ddp --no_enhanced_reorder --unsolicited_write --connectionless --cqe_poll \
    --tph_mem --cpu_id --ph --data_validation --data_validation_debug --numa_node --pin_cores \
    --disable_numa";

#[test]
fn every_option_of_perftest_is_known_or_refused_with_the_reason() {
    let tests = "write_bw read_bw send_bw atomic_bw write_lat read_lat send_lat atomic_lat";
    let all =
        tests.split(' ').flat_map(|test| PERFTESTS.split(' ').map(move |option| (test, option)));
    for (test, option) in all {
        let words = ["uroce-perf", test, option];
        let Err(error) = Cli::try_parse_from(words) else { continue };
        let (reason, text) = (refusal(&error, test), error.to_string());
        let is_unknown =
            text.contains("unexpected argument") || text.contains("a similar argument");
        assert!(reason.is_some() || !is_unknown, "{test} {option}: {text}");
        if let Some(reason) = reason {
            assert!(reason.starts_with(&format!("{test} has no {option}: ")), "{reason}");
            assert_eq!(reason.lines().count(), 1, "{reason}");
        }
    }
}

#[test]
fn a_test_tells_its_version() {
    for line in ["write_bw -V", "atomic_lat --version"] {
        let text = parse(line).expect_err("a version");
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
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
fn the_csv_file_has_a_name_unless_given() {
    let file = |line| parse(line).expect("valid").common.csv_file();
    assert_eq!(file("write_bw"), None);
    assert_eq!(file("write_bw --out_csv"), Some("perftest_out.csv".into()));
    assert_eq!(file("write_bw --out_csv_file x.csv"), Some("x.csv".into()));
}

#[test]
fn a_probability_is_one() {
    let loss = |line| parse(line).map(|perf| perf.common.ends.device.loss_rx);
    assert_eq!(loss("write_bw --loss-rx 0.01"), Ok(Some(0.01)));
    assert!(loss("write_bw --loss-rx 2").is_err());
}
