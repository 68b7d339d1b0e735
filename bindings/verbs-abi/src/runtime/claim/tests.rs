use super::*;
use std::process::{Command, Stdio};

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("uroce-claim-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn resources(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn is_free(directory: &Path, kind: Kind, resources: &[String]) -> bool {
    take_in(directory, kind, resources).unwrap().is_ok()
}

#[test]
fn a_lock_has_one_holder_and_covers_all_its_ports_or_none() {
    let directory = directory("once");
    let both = resources(&["memif server /run/a.sock", "pci 0000:01:00.0"]);
    let lock = take_in(&directory, Kind::Claim, &both[1..]).unwrap().unwrap();
    let Err(holder) = take_in(&directory, Kind::Claim, &both).unwrap() else { panic!("taken") };
    assert!(holder.to_string().contains(&format!("process {}", std::process::id())), "{holder}");
    assert!(is_free(&directory, Kind::Claim, &both[..1]));
    assert!(is_free(&directory, Kind::Engine, &both));
    drop(lock);
    assert!(is_free(&directory, Kind::Claim, &both));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_look_tells_the_holder_changes_nothing_and_lets_others_take_the_lock() {
    let directory = directory("look");
    let both = resources(&["memif server /run/a.sock", "pci 0000:01:00.0"]);
    let look = || look_in(&directory, Kind::Claim, &both).unwrap().map(|holder| holder.to_string());
    assert_eq!(look(), None);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    let file = directory.join(file_name(Kind::Claim, &both[1]));
    std::fs::write(&file, "1 a\n").unwrap();
    assert_eq!((look(), std::fs::read_to_string(&file).unwrap()), (None, "1 a\n".to_owned()));
    let lock = take_in(&directory, Kind::Claim, &both[1..]).unwrap().unwrap();
    assert!(look().unwrap().contains(&format!("process {}", std::process::id())));
    drop(lock);
    // Another process looks for a moment.
    let looks = File::open(&file).unwrap();
    flock(&looks, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(look(), None);
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(looks);
    });
    assert!(is_free(&directory, Kind::Claim, &both));
    ends.join().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn names_that_look_alike_in_the_directory_have_locks_of_their_own() {
    let directory = directory("alike");
    let [one, other] = ["memif client /a b", "memif client /a/b"].map(|name| resources(&[name]));
    let _lock = take_in(&directory, Kind::Claim, &one).unwrap().unwrap();
    assert!(is_free(&directory, Kind::Claim, &other));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_claim_of_a_killed_process_is_free_again() {
    let directory = directory("killed");
    let name = resources(&["memif server /x"]);
    drop(take_in(&directory, Kind::Claim, &name).unwrap().unwrap());
    let file = directory.join(file_name(Kind::Claim, &name[0]));
    let script = "exec 9<>\"$0\"; flock -n 9 && echo \"$$ a b\" >&9 && echo locked; exec sleep 60";
    let mut other = Command::new("bash");
    other.args(["-c", script]).arg(&file).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let mut said = [0; 7];
    other.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let Err(holder) = take_in(&directory, Kind::Claim, &name).unwrap() else { panic!("taken") };
    assert_eq!(holder.to_string(), format!("a b (process {})", other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(is_free(&directory, Kind::Claim, &name));
    std::fs::remove_dir_all(directory).unwrap();
}

/// Forks a child that sleeps until it is killed.
fn fork_sleeper() -> i32 {
    // SAFETY: the child only calls async-signal-safe functions.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: `pause` has no preconditions.
        unsafe { libc::pause() };
        // SAFETY: `_exit` ends the process at once and has no preconditions.
        unsafe { libc::_exit(0) };
    }
    assert!(pid > 0);
    pid
}

fn kill(pid: i32) {
    // SAFETY: `pid` is a child from `fork_sleeper` that was not waited for, so the number is still
    // its own.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: a null pointer for the status is allowed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

#[test]
fn a_forked_child_keeps_what_its_parent_had_and_one_that_runs_another_program_does_not() {
    let directory = directory("forked");
    let name = resources(&["memif server /y"]);
    let lock = take_in(&directory, Kind::Claim, &name).unwrap().unwrap();
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    let child = fork_sleeper();
    drop(lock);
    assert!(!is_free(&directory, Kind::Claim, &name));
    kill(child);
    assert!(is_free(&directory, Kind::Claim, &name));
    program.kill().unwrap();
    program.wait().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_lock_that_cannot_be_made_is_a_problem_with_the_files_name() {
    let problem = take_in(Path::new("/nonexistent"), Kind::Claim, &resources(&["x"])).unwrap_err();
    assert!(problem.to_string().starts_with("/nonexistent/x-"), "{problem}");
}
