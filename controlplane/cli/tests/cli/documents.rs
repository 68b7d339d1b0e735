//! The manual page, the reference with its tour, and completion in shells.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::lab::{Lab, text, uroce};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/CLI.md");

fn printed(arguments: &[&str]) -> String {
    let output = uroce(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_reference_is_up_to_date() {
    let file = std::fs::read_to_string(REFERENCE).unwrap();
    let remedy = "cargo run -p uroce-cli -- reference > deploy/CLI.md";
    assert!(file == printed(&["reference"]), "deploy/CLI.md is not the tree's; {remedy}");
}

#[test]
fn the_tree_is_printed_as_json_with_all_commands_of_the_reference() {
    let tree: serde_json::Value = serde_json::from_str(&printed(&["-d"])).expect("JSON");
    let all = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let commands: Vec<_> =
        all(&tree["sections"]).iter().flat_map(|section| all(&section["commands"])).collect();
    let stats = commands.iter().find(|of| of["usage"] == "show port stats PORT|all").expect("one");
    assert_eq!(stats["words"], serde_json::json!(["show", "port", "stats"]));
    assert_eq!(stats["arguments"][0]["form"], "PORT|all");
    let reference = printed(&["reference"]);
    for command in &commands {
        let usage = command["usage"].as_str().expect("text");
        assert!(reference.contains(&format!("- `{usage}`")), "{usage}");
    }
    assert_eq!(reference.matches("\n- `").count(), commands.len());
    assert!(all(&tree["options"]).iter().any(|of| of["long"] == "socket" && of["short"] == "s"));
    assert!(all(&tree["program"]).iter().any(|of| of["word"] == "ps"));
}

#[test]
fn a_line_of_the_shell_is_completed_without_a_script() {
    let of = |line: &str, point: usize| {
        let mut command = uroce(&["-c", "uroce", "", ""]);
        command.env("COMP_LINE", line).env("COMP_POINT", point.to_string());
        text(&command.output().unwrap().stdout)
    };
    assert_eq!(of("uroce show po", 13), "port\n");
    assert_eq!(of("uroce show po all", 13), "port\n");
    assert_eq!(of("uroce show qp ", 14), "all\n");
    assert!(of("uroce ", 6).lines().any(|word| word == "ps"));
}

/// A command of the tour, and the lines that it prints; `…` stands for any text, in a line of its
/// own for any lines.
struct Step {
    command: String,
    lines: Vec<String>,
}

/// Returns the program's arguments in the tour, and its steps.
fn tour(text: &str) -> (Vec<String>, Vec<Step>) {
    let (mut arguments, mut steps) = (Vec::new(), Vec::<Step>::new());
    let mut is_console = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if !is_console {
        } else if let Some(line) = line.strip_prefix("$ uroce ") {
            arguments = line.split(' ').map(str::to_owned).collect();
        } else if let Some(command) = line.strip_prefix("uroce> ") {
            steps.push(Step { command: command.to_owned(), lines: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.lines.push(line.to_owned());
        }
    }
    (arguments, steps)
}

/// Returns whether lines are those of a pattern.
fn fits(lines: &[&str], pattern: &[String]) -> bool {
    match (lines, pattern) {
        ([], []) => true,
        (_, [any, rest @ ..]) if any == "…" => {
            (0..=lines.len()).any(|skipped| fits(&lines[skipped..], rest))
        }
        ([line, lines @ ..], [first, rest @ ..]) => fits_line(line, first) && fits(lines, rest),
        _ => false,
    }
}

fn fits_line(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.trim_end().is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn patterns_of_the_tour_are_strict() {
    let fits = |text: &str, pattern: &[&str]| {
        let lines: Vec<&str> = text.lines().collect();
        fits(&lines, &pattern.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert!(fits("a 1 b\nc\nd", &["a … b", "…", "d"]));
    assert!(fits("d", &["…", "d"]));
    assert!(!fits("a 1 c", &["a … b"]));
    assert!(!fits("a\nb", &["a"]) && !fits("a", &["a", "b"]) && !fits("ab", &["a"]));
}

/// Follows the tour as it is written, with the program's own ports.
#[test]
fn the_tour_shows_what_it_says() {
    let (arguments, steps) = tour(&printed(&["reference"]));
    assert!(steps.len() >= 10 && arguments.contains(&"-i".to_owned()), "{arguments:?}");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = uroce(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for step in &steps {
        // The sleep parts the outputs; stderr is read apart.
        writeln!(input, "version\n{}", step.command).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let mark = printed(&["version"]);
    let parts: Vec<&str> = said.split(mark.as_str()).skip(1).collect();
    assert_eq!(parts.len(), steps.len(), "{said}");
    for (step, part) in steps.iter().zip(parts) {
        let is_error =
            part.is_empty() && step.lines.first().is_some_and(|line| line == "Bad arguments");
        // Not at a terminal, a copy of the line is above the mistake, with its place before it.
        let lines: Vec<&str> = match is_error {
            true => errors.lines().skip(1).collect(),
            false => part.lines().collect(),
        };
        let shifted = |line: &String| {
            let at = errors.lines().next().and_then(|line| line.find(&step.command)).unwrap_or(0);
            if is_error && line.starts_with(' ') { " ".repeat(at) + line } else { line.clone() }
        };
        let pattern: Vec<String> = step.lines.iter().map(shifted).collect();
        assert!(
            fits(&lines, &pattern),
            "{}:\n{lines:#?}\nwhere the tour has\n{pattern:#?}",
            step.command
        );
    }
}

#[test]
fn the_manual_page_renders_without_a_warning() {
    let page = format!("/tmp/uroce-man-{}.1", std::process::id());
    std::fs::write(&page, printed(&["man"])).unwrap();
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l", &page]).env("MANWIDTH", "100").env("PAGER", "cat");
    let output = match man.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: man: {error}; Debian package man-db has it");
            std::fs::remove_file(&page).unwrap();
            return;
        }
    };
    std::fs::remove_file(&page).unwrap();
    let (said, warnings) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), warnings.as_str()), (Some(0), ""), "{said}");
    for part in ["UROCE(1)", "--socket", "show port stats PORT|all", "NO_COLOR", "EXAMPLES"] {
        assert!(said.to_uppercase().contains(&part.to_uppercase()), "no {part:?} in {said}");
    }
}

/// Returns what a shell prints for a script that begins with uroce's completion.
fn in_shell(shell: &str, script: &str) -> Option<String> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_uroce")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    // fish makes directories in it.
    let home = std::env::temp_dir().join(format!("uroce-{shell}-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(shell);
    command.args(["-c", script]).env("PATH", path).env("HOME", &home);
    let output = command.output();
    std::fs::remove_dir_all(&home).unwrap();
    match output {
        Ok(output) => {
            assert_eq!(text(&output.stderr), "", "{shell}");
            Some(text(&output.stdout))
        }
        Err(error) => {
            eprintln!("skipped: {shell}: {error}; Debian package {shell} has it");
            None
        }
    }
}

#[test]
fn shells_complete_words_and_numbers_that_exist() {
    let lab = Lab::new();
    let pid = std::process::id();
    let qpn = format!("{:#08x}", lab.left.qp.qpn().value());
    let bash = |words: &str| {
        let script = format!(
            "source <(uroce completion bash); COMP_WORDS=(uroce {words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _uroce; echo \"${{COMPREPLY[*]}}\""
        );
        in_shell("bash", &script).expect("bash").trim_end().to_owned()
    };
    assert_eq!(bash("show po"), "port");
    assert_eq!(bash(&format!("-s {pid} show qp {}", &qpn[..7])), qpn);
    assert!(bash(&format!("-s {}", &pid.to_string()[..2])).contains(&pid.to_string()));
    let fish = |line: &str| {
        in_shell("fish", &format!("uroce completion fish | source; complete -C '{line}'"))
    };
    if let Some(said) = fish("uroce show port sta") {
        assert_eq!(said, "stats\tFrames and bytes, and their rates since the last time\n");
    }
    if let Some(said) = fish(&format!("uroce -s {pid} show qp 0x")) {
        assert!(said.contains(&qpn), "{said}");
    }
    // zsh completes only at a terminal: deploy/test cli has that. Here the script is parsed.
    in_shell("zsh", "autoload -U compinit; compinit -D; source <(uroce completion zsh); echo $?");
    let wrong = uroce(&["completion", "tcsh"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
