//! Joining: numbers, and whatever may be in the directory.

mod common;

use common::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use uroce_local::{JoinError, Member, MemberConfig, Reservation};

fn asked(directory: &Path, number: u8) -> Result<Member, JoinError> {
    Member::join(MemberConfig { number: Some(number), ..config(directory, 1) })
}

#[test]
fn the_smallest_free_number_is_taken_and_the_65th_is_told_the_members() {
    let scratch = Scratch::new();
    let mut members: Vec<_> = (0..64).map(|_| join(scratch.path())).collect();
    let numbers: Vec<_> = members.iter().map(Member::number).collect();
    assert_eq!(numbers, (1..=64).collect::<Vec<_>>());
    let error = Member::join(config(scratch.path(), 1)).unwrap_err();
    let JoinError::Full { holders, .. } = &error else { panic!("{error}") };
    assert_eq!(holders.len(), 64);
    let pid = std::process::id();
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    for (holder, number) in holders.iter().zip(1..) {
        assert_eq!((holder.number, holder.pid), (number, pid));
        assert_eq!(holder.program, comm.trim_end());
    }
    let text = error.to_string();
    assert!(text.contains(&format!("64: process {pid} ({})", comm.trim_end())), "{text}");
    assert!(!text.contains('\n'));
    members.remove(16);
    assert_eq!(join(scratch.path()).number(), 17);
}

#[test]
fn an_asked_number_is_taken_or_refused() {
    let scratch = Scratch::new();
    let member = asked(scratch.path(), 40).unwrap();
    assert_eq!((member.number(), member.mac().to_string().as_str()), (40, "02:75:72:6f:63:28"));
    let error = asked(scratch.path(), 40).unwrap_err();
    assert!(matches!(&error, JoinError::Taken(holder) if holder.pid == std::process::id()));
    for number in [0, 65, 255] {
        assert!(matches!(asked(scratch.path(), number), Err(JoinError::Number(_))));
    }
    for (queues, frame_max) in [(0, 1500), (33, 1500), (1, 13), (1, 16_129)] {
        let config = MemberConfig { queues, frame_max, ..config(scratch.path(), 1) };
        assert!(matches!(Member::join(config), Err(JoinError::Size { .. })));
    }
}

#[test]
fn a_reserved_number_is_joined_by_who_asks_for_it_and_no_other() {
    let scratch = Scratch::new();
    let reserve = |number, avoided| Reservation::take(scratch.path(), number, avoided);
    let first = reserve(None, None).unwrap();
    let third = reserve(None, Some(2)).unwrap();
    assert_eq!((first.number(), third.number()), (1, 3));
    assert!(matches!(reserve(Some(1), None), Err(JoinError::Taken(holder)) if holder.number == 1));
    assert!(matches!(reserve(Some(65), None), Err(JoinError::Number(65))));
    assert_eq!(join(scratch.path()).number(), 2);
    let member = asked(scratch.path(), 1).unwrap();
    assert!(matches!(asked(scratch.path(), 1), Err(JoinError::Taken(_))));
    // The number is free when both have gone, in either order.
    drop(first);
    assert!(reserve(Some(1), None).is_err());
    drop(member);
    let first = reserve(None, None).unwrap();
    drop(asked(scratch.path(), 1).unwrap());
    assert!(reserve(Some(1), None).is_err());
    drop((first, third));
    assert_eq!(join(scratch.path()).number(), 1);
}

#[test]
fn what_is_left_of_dead_members_is_replaced() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let path = |name| scratch.path().join(name);
    drop(UnixListener::bind(path("1.sock")).unwrap());
    fs::write(path("2.sock"), "rubbish").unwrap();
    drop(UnixListener::bind(path("9.sock")).unwrap());
    fs::write(path("members"), "rubbish").unwrap();
    fs::write(path("notes.txt"), "precious").unwrap();
    fs::create_dir(path("70.sock")).unwrap();
    let [one, two] = [join(scratch.path()), join(scratch.path())];
    assert_eq!((one.number(), two.number()), (1, 2));
    assert!(!path("9.sock").exists(), "a dead member's socket");
    assert_eq!(fs::read(path("notes.txt")).unwrap(), b"precious");
    drop((one, two));
    let mut names: Vec<_> = fs::read_dir(scratch.path()).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["70.sock", "members", "notes.txt"]);
}

fn refusal(directory: &Path) -> String {
    let text = Member::join(config(directory, 1)).unwrap_err().to_string();
    assert!(!text.contains('\n') && text.contains(directory.to_str().unwrap()), "{text}");
    text
}

#[test]
fn what_cannot_be_used_is_named_in_one_line() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("cannot be made"));
    assert!(refusal(Path::new("/proc/uroce-local")).contains("cannot be made"));

    let open = scratch.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(refusal(&open).contains("other users can write"));

    let taken = scratch.path().join("taken");
    fs::create_dir_all(taken.join("members")).unwrap();
    fs::set_permissions(&taken, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(refusal(&taken).contains("`members`"));

    let blocked = scratch.path().join("blocked");
    fs::create_dir_all(blocked.join("1.sock/full")).unwrap();
    fs::set_permissions(&blocked, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(refusal(&blocked).contains("socket"));
    assert_eq!(asked(&blocked, 2).unwrap().number(), 2);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let is_root = rustix::process::geteuid().is_root();
    let directory = if is_root { scratch.path() } else { Path::new("/usr") };
    if is_root {
        fs::create_dir(directory).unwrap();
        std::os::unix::fs::chown(directory, Some(65_534), None).unwrap();
    }
    assert!(refusal(directory).contains("belongs to user"));
}

#[test]
fn a_directory_is_made_for_this_user_only() {
    let scratch = Scratch::new();
    let inner = scratch.path().join("run/fabric");
    let _member = join(&inner);
    assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn long_paths_work() {
    let scratch = Scratch::new();
    let deep = scratch.path().join("d".repeat(120)).join("e".repeat(120));
    let [one, two] = [join(&deep), join(&deep)];
    let begin = std::time::Instant::now();
    let [mut from, mut to] = [one.queue(0).unwrap(), two.queue(0).unwrap()];
    send_surely(&mut from, begin, &frame(1, 2, 0, 3, 100));
    until("a frame", || {
        to.begin(now(begin));
        receive(&mut to, |told| assert_eq!(told.number, 3)) == 1
    });
    drop((one, two));
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
}

/// Members come and go in many threads at once: a number never has two, and the sockets stay.
#[test]
fn members_that_come_and_go_at_once_do_not_collide() {
    let scratch = Scratch::new();
    let taken = std::sync::Mutex::new(std::collections::HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let member = join(scratch.path());
                    let number = member.number();
                    assert!(taken.lock().unwrap().insert(number), "{number} has two");
                    let socket = scratch.path().join(format!("{number}.sock"));
                    assert!(socket.exists(), "{number} has no socket");
                    assert!(taken.lock().unwrap().remove(&number));
                    drop(member);
                }
            });
        }
    });
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn a_member_takes_no_descriptor_with_it() {
    let scratch = Scratch::new();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    let members: Vec<_> = (0..3).map(|_| join(scratch.path())).collect();
    assert!(count() > before);
    drop(members);
    assert_eq!(count(), before);
}

/// Mounts a tmpfs with these options; unmounted with the value.
struct Mount<'a>(&'a Path);

impl Mount<'_> {
    /// Returns `None` without the right to mount.
    fn new<'a>(at: &'a Path, options: &str) -> Option<Mount<'a>> {
        fs::create_dir_all(at).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(at).status();
        mount.is_ok_and(|status| status.success()).then_some(Mount(at))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(
            Command::new("mount").args(["-o", &options]).arg(self.0).status().unwrap().success()
        );
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_or_read_only_file_system_is_named_in_one_line() {
    let scratch = Scratch::new();
    // The root directory alone; then the file of locks; then a socket as well.
    let Some(mount) = Mount::new(scratch.path(), "size=4k,nr_inodes=1,mode=700") else {
        eprintln!("skipped: needs root to mount a small file system");
        return;
    };
    assert!(refusal(scratch.path()).contains("`members` cannot be opened: No space left"));
    mount.remount("nr_inodes=2");
    assert!(refusal(scratch.path()).contains("socket cannot be made: No space left"));
    mount.remount("nr_inodes=3");
    let member = join(scratch.path());
    // All blocks are taken; names need none.
    assert_eq!(member.number(), 1);
    drop(member);
    mount.remount("nr_inodes=9,ro");
    assert!(refusal(scratch.path()).contains("Read-only file system"));
}
