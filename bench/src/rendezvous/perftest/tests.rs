use super::*;
use crate::rendezvous::Listener;
use std::io::{Read, Write};
use std::net::TcpStream;

const CLIENT: &[u8; 108] = b"0000:0001:000011:c67e78:0000024a:00005587921b1000:\
    00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:02:00000000:\0";
const SERVER: &[u8; 108] = b"0000:0001:000013:380fde:00000355:0000558766471000:\
    00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:02:00000000:\0";

/// Creates a socket for our side, and a blocking one for a stock program's.
fn sockets() -> (Channel, TcpStream) {
    let listener = Listener::bind(0).expect("a port");
    let stock = TcpStream::connect(("localhost", listener.port())).expect("connects");
    let ours = Channel::tcp(listener.accept().expect("accepts")).expect("a stream");
    (ours, stock)
}

/// Plays a stock program: writes its records and checks those it reads, in their order.
fn stock(mut stream: TcpStream, script: &[(bool, &[u8])]) {
    for (writes, bytes) in script {
        if *writes {
            stream.write_all(bytes).expect("writes");
        } else {
            let mut read = vec![0; bytes.len()];
            stream.read_exact(&mut read).expect("reads");
            let shown = String::from_utf8_lossy(&read).into_owned();
            assert_eq!(&read, bytes, "{shown:?}");
        }
    }
}

/// Records of Debian 12's `ib_write_bw -n 20 -s 1024` in either role, up to its key.
fn script<'a>(client: bool, ours: &'a [u8], key: &'a [u8]) -> Vec<(bool, &'a [u8])> {
    script_of_pages(client, b"\0\0\x10\0", ours, key)
}

/// Records of a stock program on a machine with pages of that size.
fn script_of_pages<'a>(
    client: bool,
    page: &'a [u8],
    ours: &'a [u8],
    key: &'a [u8],
) -> Vec<(bool, &'a [u8])> {
    const VERSION: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
    let theirs: [&[u8]; 4] = [VERSION, page, b"\0\0\0@", b"5\0"];
    // A server answers by the client's version, a client tells its own first.
    let version: &[u8] = if client { VERSION } else { b"6.30\0uroce2\0\0\0\0\0" };
    let ours: [&[u8]; 4] = [version, b"\0\0\x10\0", b"\0\0\0@", ours];
    let our_key: &[u8] = if client { SERVER } else { CLIENT };
    let swaps = theirs.into_iter().zip(ours).chain([(key, our_key)]);
    let order = |(theirs, ours)| {
        let (write, read) = ((true, theirs), (false, ours));
        if client { [write, read] } else { [read, write] }
    };
    swaps.flat_map(order).collect()
}

/// Runs our part. Returns the path MTU, the buffer's length and the key.
fn talk(channel: Channel, side: Side, mtu: u32, key: &[u8; 108]) -> (u32, u32, Key) {
    let Partner::Perftest(mut talk) = greet(channel, side, false).expect("a stock program") else {
        panic!("a stock program is taken for uroce");
    };
    let (mtu, cycle) = talk.agree(mtu).expect("a path MTU");
    assert_eq!(talk.compare(&Terms::default()).expect("nothing is compared"), None);
    let key = Key::parse(key).expect("a key");
    let theirs = talk.swap_key(&key, PATIENCE, std::thread::yield_now).expect("a key");
    (mtu, cycle, theirs)
}

#[test]
fn a_stock_client_is_served() {
    let (ours, stream) = sockets();
    let client = std::thread::spawn(move || stock(stream, &script(true, b"3\0", CLIENT)));
    let (mtu, cycle, key) = talk(ours, Side::Server, 1024, SERVER);
    client.join().expect("the stock program had what it expects");
    assert_eq!((mtu, cycle, key.qpn, key.rkey), (1024, 4096, 0x11, 0x24a));
}

#[test]
fn the_larger_page_of_both_is_what_programs_go_round_in() {
    let (ours, stream) = sockets();
    let pages = b"\0\x01\0\0";
    let client =
        std::thread::spawn(move || stock(stream, &script_of_pages(true, pages, b"3\0", CLIENT)));
    let (_, cycle, _) = talk(ours, Side::Server, 1024, SERVER);
    client.join().expect("the stock program had what it expects");
    assert_eq!(cycle, 65536);
}

#[test]
fn a_stock_server_is_used() {
    let (ours, stream) = sockets();
    let server = std::thread::spawn(move || stock(stream, &script(false, b"5\0", SERVER)));
    let (mtu, _, key) = talk(ours, Side::Client, 4096, CLIENT);
    server.join().expect("the stock program had what it expects");
    assert_eq!((mtu, key.qpn, key.va), (4096, 0x13, 0x5587_6647_1000));
}

#[test]
fn the_other_end_is_recognized() {
    let meet = |plain: [bool; 2]| {
        let (left, right) = Channel::pair().expect("a pair");
        let server = std::thread::spawn(move || greet(left, Side::Server, plain[0]));
        let client = greet(right, Side::Client, plain[1]).expect("greets");
        (server.join().expect("no panic").expect("greets"), client)
    };
    assert!(matches!(meet([false, false]), (Partner::Uroce(_), Partner::Uroce(_))));
    assert!(matches!(meet([true, true]), (Partner::Perftest(_), Partner::Perftest(_))));
}

#[test]
fn strangers_and_old_programs_are_refused() {
    let error = |version: &'static [u8; 16]| {
        let (ours, mut stream) = sockets();
        stream.write_all(version).expect("writes");
        greet(ours, Side::Server, false).err().expect("refused").to_string()
    };
    assert!(error(b"GET / HTTP/1.1\r\n").contains("not a perftest program"));
    assert!(error(b"5.31\0\0\0\0\0\0\0\0\0\0\0\0").contains("too old: 5.31"));
}

#[test]
fn a_program_that_leaves_is_noticed_and_a_goodbye_is_heard() {
    let (ours, stream) = sockets();
    let mut left = Talk { channel: ours, side: Side::Server, compares: false };
    assert_eq!(left.calling().expect("it is there"), Calling::No);
    drop(stream);
    assert_eq!(left.calling().expect("it has left"), Calling::Left);
    let key = Key::parse(SERVER).expect("a key");
    assert!(matches!(left.swap_key(&key, PATIENCE, || ()), Err(BenchError::PeerGone)));

    let (ours, stream) = sockets();
    let program =
        std::thread::spawn(move || stock(stream, &[(false, b"done\0"), (true, b"done\0")]));
    let mut talk = Talk { channel: ours, side: Side::Client, compares: false };
    let begin = Instant::now();
    talk.farewell(std::thread::yield_now).expect("says goodbye");
    assert!(begin.elapsed() < FAREWELL);
    program.join().expect("the stock program had what it expects");
}

/// Records of a client of version 6.30 up to its parameters.
fn comparing(
    ours: &'static [u8],
    text: &'static [u8],
    len: &'static [u8],
) -> Vec<(bool, &'static [u8])> {
    let mut version = [0; 16];
    version[..4].copy_from_slice(b"6.30");
    let version: &'static [u8] = Box::leak(Box::new(version));
    let pairs: [(&[u8], &[u8]); 6] = [
        (version, version),
        (b"\0\0\x10\0", b"\0\0\x10\0"),
        (b"\0\0\0@", b"\0\0\0@"),
        (b"5\0", b"3\0"),
        (b"\0\0\0\0", b"\0\0\0\0"),
        (len, b"\0\0\0\x0e"),
    ];
    let swapped = pairs.into_iter().flat_map(|(theirs, ours)| [(true, theirs), (false, ours)]);
    swapped.chain([(true, text), (false, ours)]).collect()
}

#[test]
fn a_client_that_compares_parameters_is_served() {
    let (ours, stream) = sockets();
    let script = comparing(b"verb=00000002;", b"tst=00000001;verb=00000002;", b"\0\0\0\x1b");
    let client = std::thread::spawn(move || stock(stream, &script));
    let Ok(Partner::Perftest(mut talk)) = greet(ours, Side::Server, false) else {
        panic!("a stock program is taken for uroce");
    };
    talk.agree(1024).expect("a path MTU");
    assert_eq!(talk.compare(&Terms::default().int("verb", 2)).expect("equal"), None);
    client.join().expect("the stock program had what it expects");
}

#[test]
fn a_client_with_other_parameters_is_told_so() {
    let (ours, stream) = sockets();
    let script = comparing(b"verb=00000002;", b"verb=00000004;", b"\0\0\0\x0e");
    let client = std::thread::spawn(move || stock(stream, &script));
    let Ok(Partner::Perftest(mut talk)) = greet(ours, Side::Server, false) else {
        panic!("a stock program is taken for uroce");
    };
    talk.agree(1024).expect("a path MTU");
    let error = talk.compare(&Terms::default().int("verb", 2)).expect_err("they differ");
    assert!(error.to_string().ends_with("verb is 2 here and 4 there"), "{error}");
    client.join().expect("the stock program had what it expects");
}

#[test]
fn a_text_of_parameters_that_is_too_long_is_refused() {
    let (ours, stream) = sockets();
    let mut script = comparing(b"", b"", b"\xff\xff\xff\xff");
    script.truncate(12);
    let client = std::thread::spawn(move || stock(stream, &script));
    let Ok(Partner::Perftest(mut talk)) = greet(ours, Side::Server, false) else {
        panic!("a stock program is taken for uroce");
    };
    talk.agree(1024).expect("a path MTU");
    let error = talk.compare(&Terms::default().int("verb", 2)).expect_err("too long");
    assert!(error.to_string().contains("4294967295 bytes of parameters"), "{error}");
    client.join().expect("the stock program had what it expects");
}

#[test]
fn two_ends_compare_with_each_other() {
    let (left, right) = Channel::pair().expect("a pair");
    let end = |channel, side, verb| {
        let Ok(Partner::Perftest(mut talk)) = greet(channel, side, true) else {
            panic!("they are plain");
        };
        talk.compare(&Terms::default().int("verb", verb).reads(16)).map_err(|e| e.to_string())
    };
    let server = std::thread::spawn(move || end(left, Side::Server, 2));
    let client = end(right, Side::Client, 2);
    assert_eq!((client, server.join().expect("no panic")), (Ok(Some(16)), Ok(Some(16))));
}

#[test]
fn a_server_of_a_release_that_compares_a_structure_is_named() {
    for (version, side) in [(b"6.28", Side::Client), (b"6.29", Side::Client)] {
        let (ours, mut stream) = sockets();
        let mut record = [0; 16];
        record[..4].copy_from_slice(version);
        stream.write_all(&record).expect("writes");
        let error = greet(ours, side, false).err().expect("refused").to_string();
        assert!(error.contains("make it the client"), "{error}");
    }
    // As a client it is answered with a version that it compares nothing with.
    let (ours, mut stream) = sockets();
    stream.write_all(b"6.28\0\0\0\0\0\0\0\0\0\0\0\0").expect("writes");
    assert!(matches!(greet(ours, Side::Server, false), Ok(Partner::Perftest(_))));
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).expect("a version");
    assert_eq!(&answer, b"6.06\0\0\0\0\0\0\0\0\0\0\0\0");
}
