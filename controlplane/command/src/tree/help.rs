//! Help: sections, commands, and the meaning of a command, all made from the tree.

mod reference;

use clap::{Arg, Command};

use super::arguments::{keywords, takes_value};
use super::{find, offered, takes_either, value_name};

pub use reference::{Entry, Section, sections};

/// Sections, in the order in which they are shown, with the first words of their commands.
const SECTIONS: &[(&str, &str, &[&str])] = &[
    (
        "control",
        "Control",
        &["start", "stop", "help", "sleep", "wait", "load", "load_echo", "version", "quit"],
    ),
    ("display", "Display", &["show", "clear", "dump"]),
    ("capture", "Capture and trace", &["capture", "trace", "monitor"]),
    ("objects", "Objects", &["create", "reg", "dereg", "destroy", "modify", "query"]),
    ("migration", "Path migration", &["rearm", "migrate", "cm"]),
    ("traffic", "Traffic", &["post", "poll", "ping", "listen", "connect", "disconnect"]),
    ("bench", "Measurement", &["bench"]),
    ("config", "Configuration", &["set", "save"]),
    ("ports", "Ports", &["port", "ip", "route", "neigh"]),
];

/// A command and the words of its name.
struct Leaf<'c> {
    words: Vec<&'c str>,
    command: &'c Command,
}

impl Leaf<'_> {
    fn usage(&self) -> String {
        let arg = |arg: &Arg| match arg.is_required_set() {
            true => format!(" {}", form(arg)),
            false => format!(" [{}]", form(arg)),
        };
        self.words.join(" ") + &arguments(self.command).map(arg).collect::<String>()
    }

    fn about(&self) -> String {
        self.command.get_about().map(ToString::to_string).unwrap_or_default()
    }
}

/// Returns the help for these words. Without words it lists the sections; for a section's name, its
/// commands; otherwise all commands that begin with the words. `None` if there is no such command.
pub fn help(words: &[String]) -> Option<String> {
    let root = super::root();
    if words.is_empty() {
        let mut text = String::from("Help is available for these sections:\n\n");
        for (name, title, _) in SECTIONS {
            text.push_str(&format!("    help {name:<10} {title}\n"));
        }
        text.push_str("    help all        All sections\n");
        text.push_str("    help COMMAND    A command, or all that begin with these words\n");
        return Some(text);
    }
    if let [word] = words {
        let is_meant = |name: &str| name == word || word == "all";
        let sections: Vec<_> = SECTIONS.iter().filter(|(name, ..)| is_meant(name)).collect();
        if !sections.is_empty() {
            return Some(sections.into_iter().map(|section| of_section(&root, section)).collect());
        }
    }
    let (mut at, mut full) = (&root, Vec::new());
    for word in words {
        at = find(at, word).ok()?;
        full.push(at.get_name());
    }
    Some(leaves(at, full).iter().map(describe).collect())
}

fn of_section(root: &Command, (_, title, verbs): &(&str, &str, &[&str])) -> String {
    let mut text = format!("\n{title}:\n{}\n\n", "-".repeat(title.len() + 1));
    for verb in *verbs {
        if let Ok(command) = find(root, verb) {
            text.extend(leaves(command, vec![command.get_name()]).iter().map(describe));
        }
    }
    text
}

fn describe(leaf: &Leaf<'_>) -> String {
    let mut text = format!("{}\n    {}.\n", leaf.usage(), leaf.about());
    for arg in arguments(leaf.command) {
        if let Some(about) = arg.get_help() {
            text.push_str(&format!("    {}: {about}.\n", form(arg)));
        }
    }
    text.push('\n');
    text
}

/// Returns the arguments of a command, positional ones first.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_positionals().chain(keywords(command))
}

/// Returns an argument in the form in which it is typed.
fn form(arg: &Arg) -> String {
    match arg.get_long() {
        Some(name) if takes_value(arg) => format!("{name} {}", value_name(arg)),
        // Only an argument that permits harm needs its dashes.
        Some(name) if name == "force" => format!("--{name}"),
        Some(name) => name.to_owned(),
        None => value_name(arg),
    }
}

fn leaves<'c>(command: &'c Command, words: Vec<&'c str>) -> Vec<Leaf<'c>> {
    if !command.has_subcommands() {
        return vec![Leaf { words, command }];
    }
    let longer = |sub: &'c Command| {
        let words = words.iter().copied().chain([sub.get_name()]).collect();
        leaves(sub, words)
    };
    let own = takes_either(command).then(|| Leaf { words: words.clone(), command });
    own.into_iter().chain(offered(command).flat_map(longer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_section() {
        let root = super::super::root();
        let in_sections: Vec<&str> =
            SECTIONS.iter().flat_map(|(_, _, verbs)| verbs.iter().copied()).collect();
        for command in root.get_subcommands() {
            let name = command.get_name();
            assert_eq!(in_sections.iter().filter(|verb| **verb == name).count(), 1, "{name}");
        }
        assert_eq!(in_sections.len(), root.get_subcommands().count());
    }

    #[test]
    fn help_is_for_sections_and_for_beginnings_of_commands() {
        let of = |text: &str| help(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(help(&[]).unwrap().contains("help display"));
        let stats = "show port stats PORT|all\n    Frames and bytes, and their rates since the \
                     last time.\n    PORT|all: Number of a port, or `all`.\n\n";
        assert_eq!(of("show port stats").unwrap(), stats);
        assert_eq!(of("sh po st").unwrap(), stats);
        assert!(of("display").unwrap().contains("show qp [QPN|all]"));
        assert!(of("all").unwrap().contains("sleep MS"));
        assert_eq!(of("dance"), None);
    }
}
