//! Options in tests that do not have them, and perftest's that uroce-perf does not have:
//! one line that says why, instead of clap's that the argument is unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// perftest's tests, as far as the reasons distinguish them.
const BANDWIDTH: &[&str] = &["write_bw", "read_bw", "send_bw", "atomic_bw"];
const LATENCY: &[&str] = &["write_lat", "read_lat", "send_lat", "atomic_lat"];
const WRITE: &[&str] = &["write_bw", "write_lat"];
const ATOMIC: &[&str] = &["atomic_bw", "atomic_lat"];
const ANY: &[&str] = &[];

/// Option names, the tests that refuse them ([`ANY`]: all), and the reason.
const REFUSALS: &[(&str, &[&str], &str)] = &[
    ("-e --events", WRITE, "a WRITE has no completion at its target to sleep on"),
    ("-a --all -s --size", ATOMIC, "an atomic operation has 8 bytes"),
    ("-q --qp", LATENCY, "several queue pairs are for bandwidth tests"),
    ("--eecs", LATENCY, "there is one queue pair, which goes over one EE context"),
    ("-b --bidirectional --report-both", LATENCY, "both directions are for bandwidth tests"),
    ("-l --post_list --recv_post_list", LATENCY, "lists of requests are for bandwidth tests"),
    ("-N --noPeak", LATENCY, "a latency has no peak bandwidth"),
    ("-w --limit_bw -y --limit_msgrate", LATENCY, "the limits are those of bandwidth tests"),
    ("--run_infinitely", LATENCY, "endless runs are for bandwidth tests"),
    (
        "--rate_limit --rate_limit_type --rate_units --burst_size",
        LATENCY,
        "one message is in flight, so there is no rate to limit: see --latency_gap",
    ),
    ("--mr_per_qp", LATENCY, "there is one queue pair, which has one memory region"),
    ("-t --tx-depth -Q --cq-mod", LATENCY, "one message is in flight"),
    ("--latency_gap", BANDWIDTH, "the gap is for latency tests: see --rate_limit_type SW"),
    (
        "-C --report-cycles -H --report-histogram --report-histogrm -U --report-unsorted",
        BANDWIDTH,
        "single times are for latency tests",
    ),
    (
        "--perform_warm_up",
        &["send_bw", "write_lat", "read_lat", "send_lat", "atomic_lat"],
        "the warm-up is for bandwidth tests of WRITE, READ and ATOMIC",
    ),
    (
        "--use-srq",
        ANY,
        "only SEND takes receive requests from a shared queue; with -c XRC each test has one",
    ),
    ("-g --mcg -M --MGID", ANY, "only SEND has datagrams, to send to a group"),
    ("--send_with_imm", ANY, "this option is for send_bw and send_lat"),
    ("--write_with_imm", ANY, "this option is for write_bw and write_lat"),
    ("-r --rx-depth --recv_post_list", ANY, "the other end posts no receive requests"),
    ("-o --outs", ANY, "only READ and ATOMIC have requests outstanding at the responder"),
    ("-A --atomic_type", ANY, "this option is for atomic_bw and atomic_lat"),
    (
        "--report_min_max --report-min-max",
        ANY,
        "no release of perftest has it; a latency table has t_min and t_max, and --run_infinitely \
         prints each interval",
    ),
    ("-d --ib-dev -i --ib-port", ANY, "--vdev, --pci, --udp or --config choose the device"),
    ("-X --vector", ANY, "completion events have no vectors here: leave it out"),
    ("-O --dualport --report-per-port", ANY, "a test has one port: start one for each"),
    ("-z --comm_rdma_cm --com_rdma_cm", ANY, "the ends exchange their data over TCP: leave it out"),
    (
        "--dont_xchg_versions",
        ANY,
        "the versions show whether the other end is perftest's: leave it out",
    ),
    (
        "--use_old_post_send --no_lock --cqe_poll",
        ANY,
        "there is one way to post and to poll: leave it out",
    ),
    ("--inline_recv", ANY, "what is received goes to the memory of its request: leave it out"),
    ("--ipv6", ANY, "-x chooses one of the local addresses, which --ip or --config give"),
    ("--ipv6-addr", ANY, "the exchange uses the IP version of SERVER_HOST: leave it out"),
    (
        "--source_ip --bind_source_ip",
        ANY,
        "the kernel's routes choose the source of the exchange over TCP: set a route instead",
    ),
    ("--dlid --force-link", ANY, "the link is Ethernet, which has no LIDs: leave it out"),
    ("--pkey_index", ANY, "there is one partition, the default one: leave it out"),
    ("--odp", ANY, "registered memory is not pinned, as with it: leave it out"),
    ("--use_hugepages", ANY, "--huge takes memory for packets from reserved hugepages"),
    (
        "--mmap --mmap-offset --use-null-mr --use_ib_dm_dmabuf",
        ANY,
        "the messages are in ordinary memory of this process: leave it out",
    ),
    (
        "--use_cuda --use_cuda_bus_id --use_cuda_dmabuf --use_cuda_pcie_relaxed --use_data_direct \
         --cuda_mem_type --gpu_touch --use_rocm --use_rocm_dmabuf --use_neuron --use_neuron_dmabuf \
         --use_hl --use_mlu --use_mlu_dmabuf --use_opencl --opencl_platform_id",
        ANY,
        "an accelerator's memory is out of reach of the lcores: leave it out",
    ),
    ("--payload_file_path", ANY, "the payload is a pattern, which --verify checks"),
    (
        "--data_validation_debug",
        ANY,
        "--data_validation names the first message that differs: leave it out",
    ),
    ("--output", ANY, "--out_json_file and --out_csv_file write each figure under its own name"),
    (
        "--reversed",
        ANY,
        "the end with SERVER_HOST sends: start the server at the other end, or give -b",
    ),
    ("--wait_destroy", ANY, "resources end with the test: leave it out"),
    (
        "--disable_pcie_relaxed --tph_mem --cpu_id --ph",
        ANY,
        "the NIC's driver chooses how it writes to memory: leave it out",
    ),
    (
        "--typical_pkt_size",
        ANY,
        "the pacer counts the bytes of each frame, whatever its size: leave it out",
    ),
    (
        "--aes_xts --encrypt_on_tx --sig_before --sig_offload --aes_block_size \
         --data_enc_keys_number --kek_path --credentials_path --data_enc_key_app_path",
        ANY,
        "encryption and signatures are for NICs that have them: leave it out",
    ),
    (
        "--log_dci_streams --log_active_dci_streams",
        ANY,
        "the services are RC, UC, UD, XRC and RD: see -c",
    ),
    (
        "--unsolicited_write",
        ANY,
        "immediate data take a receive request of RC and UC: leave it out",
    ),
    (
        "--use_ooo --no_ddp --no_enhanced_reorder",
        ANY,
        "each packet goes to its place in memory when its turn comes: leave it out",
    ),
    ("--congest_type", ANY, "a --config chooses it: congestion = { algorithm = \"dcqcn\" }"),
    ("--connectionless", ANY, "the receiver of a group tells the sender of it: see -g and -M"),
    ("--numa_node --pin_cores --disable_numa", ANY, "--lcores chooses the CPUs of the ends"),
    (
        "-B --source_mac -E --dest_mac -G --use_rss -J --dest_ip -j -K --dest_port -k \
         --source_port -Y --ethertype -Z --server -P --client -v --mac_fwd --vlan_en --vlan_pcp \
         --flows --flows_burst --promiscuous --reply_every --sniffer --tcp --raw_ipv6 --raw_mcast \
         --local_ip --remote_ip --local_port --remote_port --local_mac --remote_mac",
        ANY,
        "it is for raw Ethernet frames, which `uroce-perf limits` measures",
    ),
];

/// Returns the reason for which a test refuses an option, if the error is that it has none of that
/// name and perftest has.
pub(crate) fn refusal(error: &clap::Error, test: &str) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_perftests = BANDWIDTH.contains(&test) || LATENCY.contains(&test);
    let name = given.split('=').next().unwrap_or(given);
    let refused = |(names, tests, _): &&(&str, &[&str], &str)| {
        names.split(' ').any(|one| one == name) && (tests.is_empty() || tests.contains(&test))
    };
    let (.., reason) = REFUSALS.iter().find(refused).filter(|_| is_perftests)?;
    Some(format!("{test} has no {name}: {reason}"))
}
