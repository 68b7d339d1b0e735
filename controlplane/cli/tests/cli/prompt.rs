//! The prompt on a terminal: TAB, `?`, history, mistakes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::capture::Folder;
use crate::lab::{Lab, SOON, eventually, uroce};

/// The program at a terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<String>>,
    /// Removed with the last terminal that has it.
    state: Arc<Folder>,
}

impl Terminal {
    pub(crate) fn open(name: &str) -> Terminal {
        Terminal::open_again(Arc::new(Folder::new(&format!("prompt-{name}"))))
    }

    fn open_again(state: Arc<Folder>) -> Terminal {
        let pid = std::process::id().to_string();
        let mut command = uroce(&["-s", &pid]);
        command.env("NO_COLOR", "1").env("XDG_STATE_HOME", state.file(""));
        let terminal = Terminal::run(command, state);
        terminal.shows("uroce> ");
        terminal
    }

    /// Starts a program at a terminal.
    pub(crate) fn run(mut command: Command, state: Arc<Folder>) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = || {
            let file = File::options().read(true).write(true).open(path.to_str().unwrap());
            Stdio::from(file.unwrap())
        };
        let size = rustix::termios::Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(master.as_fd(), size).unwrap();
        command.stdin(slave()).stdout(slave()).stderr(slave()).env("TERM", "xterm");
        let child = command.spawn().unwrap();
        let mut output = File::from(master.try_clone().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let writer = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that the program has ended.
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                writer.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Terminal { child, keys: File::from(master), screen, state }
    }

    /// Types keys on an empty screen.
    pub(crate) fn types(&mut self, keys: &str) {
        self.screen.lock().unwrap().clear();
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text was printed since the last keys.
    pub(crate) fn shows(&self, text: &str) {
        let is_shown = self.shows_within(SOON, text);
        assert!(is_shown, "no {text:?} in {:?}", self.screen.lock().unwrap());
    }

    fn shows_within(&self, time: Duration, text: &str) -> bool {
        let begin = Instant::now();
        while !self.screen.lock().unwrap().contains(text) {
            if begin.elapsed() >= time {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails for a program that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tab_completes_words_and_numbers_that_exist() {
    let lab = Lab::new();
    let mut terminal = Terminal::open("tab");
    terminal.types("sh\tpo\tsta\t");
    terminal.shows("show port stats ");
    terminal.types("\t\t");
    terminal.shows("all");
    terminal.types("1\r");
    terminal.shows("NIC statistics for port 1 ");
    terminal.types("show qp 0x\t\t");
    terminal.shows(&format!("{:#08x}", lab.right.qp.qpn().value()));
    terminal.types("\u{15}trace qp 0x\t\t");
    terminal.shows(&format!("{:#08x}", lab.right.qp.qpn().value()));
    terminal.types("\u{15}monitor port \t\t");
    terminal.shows("0  1");
    terminal.types("\u{15}quit\r");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn tab_completes_a_number_among_very_many() {
    let lab = Lab::new();
    let make = |_| lab.left.pd.create_qp(&uroce::QpInit::new(&lab.left.cq)).expect("QPs are left");
    let _qps: Vec<_> = (0..300).map(make).collect();
    let number = format!("{:#08x}", lab.right.qp.qpn().value());
    let mut terminal = Terminal::open("many");
    terminal.types(&format!("show qp {}", &number[..7]));
    // A process that needs longer than a second for its numbers is not waited for.
    let is_completed = (0..10).any(|_| {
        terminal.types("\t");
        terminal.shows_within(Duration::from_secs(2), &number)
    });
    assert!(is_completed, "{number}");
    terminal.types("\r");
    terminal.shows(&format!("QP {number} of right"));
    terminal.types("quit\r");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_question_mark_shows_what_may_follow_and_keeps_the_line() {
    let _lab = Lab::new();
    let mut terminal = Terminal::open("question");
    terminal.types("show port ?");
    terminal.shows("summary      One line a port");
    terminal.shows("uroce> show port ");
    terminal.types("summary all\r");
    terminal.shows("Number of available ports: 2");
    terminal.types("\u{4}");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_mistake_is_marked_below_the_word_and_the_session_goes_on() {
    let _lab = Lab::new();
    let mut terminal = Terminal::open("mistake");
    terminal.types("show prot stats 0\r");
    terminal.shows("Bad arguments\r\n            ^^^^ expected one of: port ");
    terminal.shows("did you mean \"port\"?");
    // The terminal discards what was typed before Ctrl-C.
    terminal.types("show \u{3}");
    terminal.shows("uroce> \r");
    terminal.types("show cq\r");
    terminal.shows("Object");
    terminal.types("quit\r");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn history_is_kept_and_searched() {
    let _lab = Lab::new();
    let mut terminal = Terminal::open("history");
    terminal.types("show mr\r");
    terminal.shows("MR and MW");
    // Two sessions at a time, of which one is killed: what was typed in either is kept.
    let mut other = Terminal::open_again(Arc::clone(&terminal.state));
    other.types("show srq\r");
    other.shows("SRQ");
    drop(other);
    terminal.types("quit\r");
    assert_eq!(terminal.ends(), Some(0));
    let mut again = Terminal::open_again(Arc::clone(&terminal.state));
    again.types("\u{12}how s");
    again.shows("show srq");
    again.types("\r");
    again.shows("SRQ");
    again.types("\u{12}how m");
    again.shows("show mr");
    again.types("\r");
    again.shows("MR and MW");
    again.types("quit\r");
    assert_eq!(again.ends(), Some(0));
}

#[test]
fn a_process_that_ends_ends_the_session() {
    let lab = Lab::new();
    let mut terminal = Terminal::open("end");
    drop(lab);
    terminal.types("show cq\r");
    terminal.shows("the process has ended, or closed its last device");
    assert_eq!(terminal.ends(), Some(1));
}

#[test]
fn a_long_answer_stops_after_each_screenful() {
    let lab = Lab::new();
    let make = |_| lab.left.pd.create_qp(&uroce::QpInit::new(&lab.left.cq)).expect("QPs are left");
    let _qps: Vec<_> = (0..100).map(make).collect();
    let mut terminal = Terminal::open("pager");
    terminal.types("show qp\r");
    terminal.shows("-- more --");
    let rows = |terminal: &Terminal| terminal.screen.lock().unwrap().matches("left/").count();
    assert!(rows(&terminal) < 40, "{}", rows(&terminal));
    terminal.types(" ");
    terminal.shows("-- more --");
    assert_eq!(rows(&terminal), 39);
    terminal.types("\u{3}");
    terminal.shows("uroce> ");
    terminal.types("show qp\r");
    terminal.shows("-- more --");
    terminal.types("a");
    terminal.shows("uroce> ");
    assert!(rows(&terminal) > 60);
    terminal.types("quit\r");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_monitor_in_the_background_is_not_stopped() {
    let _lab = Lab::new();
    let program = env!("CARGO_BIN_EXE_uroce");
    let line = format!(
        "set -m; {program} -s {} monitor port 0 interval 20 count 2 & wait $!; echo ended: $?",
        std::process::id()
    );
    // The shell's process group has the keys of the terminal.
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "bash", "-c", &line]);
    let terminal = Terminal::run(command, Arc::new(Folder::new("prompt-background")));
    terminal.shows("RX-Mbit/s");
    terminal.shows("ended: 0");
}
