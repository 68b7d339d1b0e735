//! Runs the examples with two programs as two processes over memif.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Path of an example that cargo has built beside this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let profile = test.ancestors().nth(2).expect("it is in target/PROFILE/deps");
    profile.join("examples").join(name)
}

#[test]
fn messages_come_back_from_another_process() {
    let folder = std::env::temp_dir().join(format!("uroce-echo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    let (config, socket) = (folder.join("echo.toml"), folder.join("echo.sock"));
    let text = include_str!("../../examples/echo.toml");
    let here = text.replace("/tmp/uroce-echo.sock", &socket.display().to_string());
    assert_ne!(here, text);
    std::fs::write(&config, here).expect("the folder is writable");

    let mut server = Command::new(example("echo_server"))
        .args([config.as_os_str(), "192.0.2.1:7471".as_ref(), "1".as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo builds examples with the tests");
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("the server says something").expect("text");
    assert_eq!(first, "listening at 192.0.2.1:7471");
    let client = Command::new(example("echo_client"))
        .args([config.as_os_str(), "192.0.2.1:7471".as_ref(), "200".as_ref()])
        .output()
        .expect("cargo builds examples with the tests");
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{client:?}");
    assert!(said.starts_with("200 messages of 4096 bytes came back as they were"), "{said}");
    let last = lines.next().expect("the server says something").expect("text");
    assert!(last.ends_with(": 200 messages"), "{last}");
    assert!(server.wait().expect("it is ours").success());
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test] //= check R3 test
//= check R28 test
fn reliable_datagrams_go_on_when_the_link_of_their_ee_context_is_cut() {
    let folder = std::env::temp_dir().join(format!("uroce-rd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    let config = folder.join("rd.toml");
    let text = include_str!("../../examples/rd.toml");
    let here = text.replace("/tmp/uroce-rd", &folder.join("link").display().to_string());
    assert_ne!(here, text);
    std::fs::write(&config, here).expect("the folder is writable");

    let mut receiver = Command::new(example("rd_failover"))
        .args([config.as_os_str(), "receiver".as_ref(), "127.0.0.1:0".as_ref(), "400".as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo builds examples with the tests");
    let mut lines = BufReader::new(receiver.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("the receiver says something").expect("text");
    let address = first.strip_prefix("listening at ").expect("an address");
    let sender = Command::new(example("rd_failover"))
        .args([config.as_os_str(), "sender".as_ref(), address.as_ref(), "400".as_ref()])
        .output()
        .expect("cargo builds examples with the tests");
    let said = String::from_utf8_lossy(&sender.stdout);
    assert!(sender.status.success(), "{sender:?}");
    assert!(
        said.contains("cutting the link of port 1; the EE context is at port 1, armed"),
        "{said}"
    );
    let after = "the EE context is at port 2, migrated";
    assert!(said.ends_with(&format!("3 x 400 messages sent; {after}\n")), "{said}");
    let last = lines.next().expect("the receiver says something").expect("text");
    assert_eq!(last, format!("3 x 400 messages in order; {after}"));
    assert!(receiver.wait().expect("it is ours").success());
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
