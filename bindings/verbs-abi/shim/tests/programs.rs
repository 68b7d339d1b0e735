//! Runs installed programs with the shim preloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A tree with one device. It is removed when this is dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("uroce-shim-{}-{name}", std::process::id()));
        let types = root.join("class/infiniband/uroce0/ports/1/gid_attrs/types");
        std::fs::create_dir_all(&types).unwrap();
        std::fs::write(types.join("0"), "RoCE v2\n").unwrap();
        std::fs::create_dir_all(root.join("class/infiniband_verbs/uverbs0")).unwrap();
        std::fs::create_dir_all(root.join("dev/infiniband")).unwrap();
        std::os::unix::fs::symlink("/dev/null", root.join("dev/infiniband/uverbs0")).unwrap();
        Self(root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The shared object, which cargo places beside the test.
fn shim() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let shim = test.with_file_name("liburoce_shim.so");
    assert!(shim.exists(), "{}", shim.display());
    shim
}

fn run(tree: Option<&Path>, program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).env("LD_PRELOAD", shim()).env("LC_ALL", "C");
    match tree {
        Some(tree) => command.env("UROCE_TREE", tree),
        None => command.env_remove("UROCE_TREE"),
    };
    command.output().unwrap()
}

/// Runs a program, which must succeed, and returns its output.
fn prints(tree: &Tree, program: &str, args: &[&str]) -> String {
    let output = run(Some(&tree.0), program, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

const TYPE: &str = "/sys/class/infiniband/uroce0/ports/1/gid_attrs/types/0";

#[test]
fn coreutils_see_the_tree() {
    let tree = Tree::new("coreutils");
    assert_eq!(prints(&tree, "cat", &[TYPE]), "RoCE v2\n");
    assert_eq!(prints(&tree, "ls", &["/sys/class/infiniband"]), "uroce0\n");
    assert_eq!(prints(&tree, "ls", &["/sys//class///infiniband_verbs/"]), "uverbs0\n");
    // `ls -l` asks for everything about a file: status, link target, extended attributes.
    let long = prints(&tree, "ls", &["-l", "/dev/infiniband"]);
    assert!(long.contains("uverbs0 -> /dev/null"), "{long}");
    let kind = prints(&tree, "stat", &["-L", "-c", "%F", "/dev/infiniband/uverbs0"]);
    assert_eq!(kind, "character special file\n");
    let link = prints(&tree, "readlink", &["/dev/infiniband/uverbs0"]);
    assert_eq!(link, "/dev/null\n");
    let shell =
        format!("cd /sys/class/infiniband && cat < {TYPE} && [ -c /dev/infiniband/uverbs0 ]");
    assert_eq!(prints(&tree, "sh", &["-c", &shell]), "RoCE v2\n");
}

#[test]
fn python_sees_the_tree() {
    let tree = Tree::new("python");
    let script = "import os, stat\n\
        node = '/dev/infiniband/uverbs0'\n\
        print(os.listdir('/sys/class/infiniband'))\n\
        print(stat.S_ISCHR(os.stat(node).st_mode), os.access(node, os.R_OK | os.W_OK))\n\
        print(os.path.islink(node), os.readlink(node), os.path.realpath(node))\n\
        print(open(os.path.join('/sys/class/infiniband/uroce0/ports/1/gid_attrs/types', '0')).read())";
    let expected = "['uroce0']\nTrue True\nTrue /dev/null /dev/null\nRoCE v2\n\n";
    assert_eq!(prints(&tree, "python3", &["-c", script]), expected);
}

fn is_end(byte: &u8) -> bool {
    *byte == b'\n'
}

/// Examines paths with many functions and prints the results and error numbers.
const LOOK: &str = "import os, sys\n\
    def kind(look): return lambda path: look(path)[:2]\n\
    for path in sys.argv[1:]:\n\
    \x20 for look in (kind(os.stat), kind(os.lstat), os.listdir, os.readlink, os.chdir,\n\
    \x20              os.listxattr,\n\
    \x20              lambda p: os.open(p, os.O_RDONLY) > 0, lambda p: open(p).read(1),\n\
    \x20              lambda p: os.access(p, os.R_OK), os.path.realpath):\n\
    \x20   try: print(path, look(path))\n\
    \x20   except OSError as error: print(path, error.errno)\n\
    \x20   except ValueError: print(path, 'unreadable')\n";

#[test]
fn other_paths_and_their_errors_are_as_without_the_shim() {
    let tree = Tree::new("others");
    let paths = [
        "/usr",
        "/usr/bin/env",
        "/nonexistent/x",
        "/usr/bin/env/x",
        "",
        ".",
        "/sys/class",
        "/sys/class/infinibandx",
        "/dev/infinibandx/y",
        "/sys/class/infiniban",
        "/etc/hosts",
        "sys/class/infiniband",
    ];
    let long = format!("/{}", "x".repeat(5000));
    let mut args = vec!["-c", LOOK];
    args.extend(paths);
    args.push(&long);
    let with = run(Some(&tree.0), "python3", &args);
    let without = Command::new("python3").args(&args).env("LC_ALL", "C").output().unwrap();
    assert!(without.status.success());
    let (with_lines, without_lines) = (with.stdout.split(is_end), without.stdout.split(is_end));
    for (with, without) in with_lines.zip(without_lines) {
        assert_eq!(String::from_utf8_lossy(with), String::from_utf8_lossy(without));
    }
    assert_eq!(with.stdout.len(), without.stdout.len());
    assert_eq!(with.status.code(), without.status.code());
}

#[test]
fn a_path_that_is_not_in_the_tree_does_not_exist() {
    let tree = Tree::new("missing");
    let long = format!("/sys/class/infiniband/{}", "x/".repeat(3000));
    for path in ["/sys/class/infiniband/mlx5_0", "/dev/infiniband/rdma_cm", &long] {
        let script = "import os, sys\n\
            try: os.stat(sys.argv[1])\n\
            except OSError as error: print(error.errno)";
        let errno = prints(&tree, "python3", &["-c", script, path]);
        // ENOENT, or ENAMETOOLONG if the path itself is too long for the kernel.
        let expected = if path.len() > 4095 { "36\n" } else { "2\n" };
        assert_eq!(errno, expected, "{}", path.len());
    }
}

#[test]
fn without_a_tree_nothing_is_redirected() {
    for tree in [None, Some(Path::new("")), Some(Path::new("/nonexistent"))] {
        let shell = "cat /sys/class/infiniband/uroce0/ports/1/gid_attrs/types/0";
        let output = run(tree, "sh", &["-c", shell]);
        assert!(!output.status.success(), "{tree:?}");
        assert!(run(tree, "ls", &["/"]).status.success());
    }
}

/// A library with a constructor, and with a `getenv` of its own in place of the C library's.
const EARLY: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
char *getenv(const char *name) {
    return strcmp(name, "SHIM_NEXT") ? secure_getenv(name) : "next";
}
static void show(const char *when) {
    const char *names[] = {"SHIM_A", "SHIM_", "SHIM_AB", "", "UCX_IB_ROCE_REACHABILITY_MODE"};
    printf("%s:", when);
    for (int at = 0; at < 5; at++) printf(" %s", getenv(names[at]) ? getenv(names[at]) : "-");
    printf(" %s\n", getenv("SHIM_NEXT") ? getenv("SHIM_NEXT") : "-");
}
__attribute__((constructor)) static void early(void) { show("early"); }
void late(void) { setenv("SHIM_A", "c=d", 1); show("late"); }
"#;

/// The shim knows the C library's function from its own constructor on, which runs after those of
/// the program's libraries.
#[test]
fn a_variable_is_the_environments_and_from_the_start_of_the_program_the_c_librarys() {
    let tree = Tree::new("getenv");
    std::fs::write(tree.0.join("early.c"), EARLY).unwrap();
    let main = "void late(void);\nint main(void) { late(); return 0; }\n";
    std::fs::write(tree.0.join("main.c"), main).unwrap();
    let script = "gcc -shared -fPIC -o early.so early.c && gcc -o main main.c ./early.so";
    let built = Command::new("sh").args(["-c", script]).current_dir(&tree.0).status().unwrap();
    assert!(built.success());
    let run = format!("cd {} && SHIM_A=a=b exec ./main", tree.0.display());
    let expected = "early: a=b - - - all -\nlate: c=d - - - all next\n";
    assert_eq!(prints(&tree, "sh", &["-c", &run]), expected);
}
