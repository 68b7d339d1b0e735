use super::*;
use crate::request::{Class, Clear, ClearPort, Select, Show, ShowConfig, ShowPort};

fn request(line: &str) -> Request {
    match parse(line) {
        Ok(Some(Line::Request(request))) => request,
        other => panic!("{line}: {other:?}"),
    }
}

fn load(file: &str) -> Line {
    Line::Load { file: Some(file.into()), what: None }
}

fn mistake(line: &str) -> String {
    parse(line).expect_err("a mistake").text(0)
}

#[test]
fn commands_are_testpmds() {
    let stats = |port| Request::Show(Show::Port(ShowPort::Stats { port }));
    assert_eq!(request("show port stats all"), stats(Select::All));
    assert_eq!(request("show port stats 0"), stats(Select::One(0)));
    assert_eq!(request("show qp"), Request::Show(Show::Qp { qp: Select::All }));
    assert_eq!(request("show qp 0x11"), Request::Show(Show::Qp { qp: Select::One(17) }));
    assert_eq!(request("show config cores"), Request::Show(Show::Config(ShowConfig::Cores)));
    let clear = Request::Clear(Clear::Port(ClearPort::Stats { port: Select::All }));
    assert_eq!(request("clear port stats all"), clear);
    assert_eq!(parse("sleep 10").unwrap(), Some(Line::Sleep { ms: 10 }));
    assert_eq!(parse("load \"a b\"").unwrap(), Some(load("a b")));
    assert_eq!(parse("quit").unwrap(), Some(Line::Quit));
    let save = Line::Save(Save::Config { file: "a b".into() });
    assert_eq!(parse("sa con \"a b\"").unwrap(), Some(save));
    assert_eq!(parse("  # nothing").unwrap(), None);
}

#[test]
fn a_unique_beginning_is_enough_and_a_whole_word_is_always_itself() {
    assert_eq!(request("sh po sta a"), request("show port stats all"));
    assert_eq!(request("cl p s 1"), request("clear port stats 1"));
    assert_eq!(parse("load x").unwrap(), Some(load("x")));
    assert_eq!(parse("load_ x").unwrap(), Some(Line::LoadEcho { file: "x".into() }));
}

#[test]
fn mistakes_have_three_lines() {
    let golden = [
        (
            "show prot stats 0",
            "Bad arguments\n     ^^^^ expected one of: port rxq txq process device gid qp path migration rate cm \
             mcast pd cq mr mw srq ah neigh route config fwd counters errors runtime latency \
             events capture trace fault\n     did you mean \"port\"?",
        ),
        (
            "dance",
            "Command not found\n^^^^^ expected one of: show clear dump capture trace create reg dereg destroy modify query rearm \
             migrate set post poll port ip route neigh start stop wait ping listen connect disconnect cm help sleep load load_echo monitor bench save version quit\ntype \"help\" for all commands",
        ),
        ("mo qp 7", "Ambiguous command\n^^ expected one of: modify monitor\ntype more of the word"),
        (
            "show port s 0",
            "Ambiguous command\n          ^ expected one of: summary stats\n          type more of \
             the word",
        ),
        (
            "show port stats",
            "Bad arguments\n                ^ expected PORT|all\n                type \"help show \
             port stats\"",
        ),
        (
            "show port",
            "Bad arguments\n          ^ expected one of: info summary stats xstats cap rss\n          \
             type \"help show port\"",
        ),
        (
            "show port stats 5x",
            "Bad arguments\n                ^^ expected PORT|all\n                type \"help show \
             port stats\"",
        ),
        (
            "show port stats -1",
            "Bad arguments\n                ^^ expected PORT|all\n                type \"help show \
             port stats\"",
        ),
        (
            "quit now",
            "Bad arguments\n     ^^^ expected the end of the line\n     type \"help quit\"",
        ),
        (
            "show qp 5 5",
            "Bad arguments\n          ^ expected the end of the line\n          type \"help show qp\"",
        ),
        ("sleep 3600001", "Bad arguments\n      ^^^^^^^ expected MS\n      type \"help sleep\""),
        ("load \"x", "Bad arguments\n     ^^ expected \"\n     close the quotation mark"),
    ];
    for (line, text) in golden {
        assert_eq!(mistake(line), text, "{line}");
    }
}

#[test]
fn the_mark_moves_with_the_prompt() {
    let mistake = parse("show prot").unwrap_err();
    assert!(mistake.text(7).contains("\n            ^^^^ expected"));
}

/// Words of the tree, numbers, and rubbish, in any order.
#[test]
fn any_line_is_a_command_or_a_mistake_with_a_place_in_it() {
    let words = [
        "show",
        "sh",
        "port",
        "stats",
        "all",
        "0",
        "0x11",
        "-1",
        "--",
        "-h",
        "--help",
        "qp",
        "clear",
        "help",
        "load",
        "\"",
        "#",
        "é",
        "\u{0}",
        "config",
        "roce",
        "sleep",
        "\t",
        "",
        "=",
        "4294967296",
    ];
    let mut random = fastrand::Rng::with_seed(2718);
    for _ in 0..10_000 {
        let picked: Vec<&str> =
            (0..random.usize(..7)).map(|_| words[random.usize(..words.len())]).collect();
        let mut line = picked.join(if random.bool() { " " } else { "" });
        if random.u8(..4) == 0 {
            line.push(random.char(..));
        }
        complete(&line);
        if let Err(mistake) = parse(&line) {
            assert!(mistake.column <= line.chars().count() + 1, "{line:?}: {mistake:?}");
            assert_eq!(mistake.text(0).lines().count(), 3, "{line:?}: {mistake:?}");
        }
    }
}

#[test]
fn objects_and_their_attributes_are_named_by_words() {
    use crate::request::{AltPath, Create, Migrate, Modify, QpState, Set};
    let cq = Request::Create(Create::Cq { depth: 64, device: None });
    assert_eq!(request("create cq depth 64"), cq);
    assert_eq!(request("cr cq dep 0x40"), cq);
    let Request::Modify(Modify::Qp(modify)) =
        request("modify qp 0x11 state rtr tclass 8 dest_gid ::1")
    else {
        panic!("a Modify QP")
    };
    assert_eq!((modify.qp, modify.state, modify.tclass), (17, Some(QpState::Rtr), Some(8)));
    let path = |line| match request(line) {
        Request::LoadAltPath(AltPath { qp, port, dgid, .. }) => (qp, port, dgid),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(path("load alt path port 2 qp 7"), (7, 2, None));
    assert_eq!(parse("load al").unwrap(), Some(load("al")));
    assert_eq!(request("migrate qp 7 --force"), request("mig qp 7 force"));
    assert_eq!(request("migrate port 1"), Request::Migrate(Migrate::Port { port: 1 }));
    let down = Request::Set(Set::Port { port: 0, up: false, down: true, rate: None });
    assert_eq!(request("set port 0 link-down"), down);
    assert_eq!(
        request("set qp 1 rate 2.5"),
        Request::Set(Set::Qp { qp: 1, rate: Some(2_500_000), class: Class::default() })
    );
    let class = Class { dscp: Some(46), vlan_pcp: Some(5), ..Class::default() };
    let set = Request::Set(Set::Qp { qp: 1, rate: None, class });
    assert_eq!(request("set qp 1 dscp 46 vlan_pcp 5"), set);
    assert_eq!(request("set stats-p 60"), Request::Set(Set::StatsPeriod { seconds: 60 }));
    for wrong in ["dscp 64", "vlan_pcp 8", "tclass 256", "tclass 1 dscp 1"] {
        assert!(parse(&format!("set qp 1 {wrong}")).is_err(), "{wrong}");
    }
    assert!(parse("set stats-period 86401").is_err());
    assert_eq!(
        mistake("modify qp 7 state UP"),
        "Bad arguments\n                  ^^ expected one of: RESET INIT RTR RTS SQD SQE ERR\n         \
         \u{20}        type \"help modify qp\""
    );
    assert_eq!(
        mistake("create srq depth 4"),
        "Bad arguments\n                   ^ expected pd\n                   type \"help create srq\""
    );
    for wrong in ["set qp 1 rate nan", "set qp 1 rate -1", "set port 0 link-up link-down"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
