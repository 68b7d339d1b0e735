//! The commands, by sections, for manuals.

use super::{Leaf, SECTIONS, arguments, find, form, leaves};

/// A section of the commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Title of the section.
    pub title: &'static str,
    /// The commands of the section, in the order of the help.
    pub commands: Vec<Entry>,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its words, as in `show`, `port`, `stats`.
    pub words: Vec<String>,
    /// Words and arguments of the command, for example `show port stats PORT|all`.
    pub usage: String,
    /// Meaning of the command, without a full stop.
    pub about: String,
    /// Arguments with their meanings; those without a need for an explanation are left out.
    pub arguments: Vec<(String, String)>,
}

/// Returns all sections with their commands.
pub fn sections() -> Vec<Section> {
    let root = super::super::root();
    let commands = |verb: &&str| {
        let command = find(&root, verb).ok();
        let all = command.map(|command| leaves(command, vec![command.get_name()]));
        all.unwrap_or_default().iter().map(entry).collect::<Vec<_>>()
    };
    let section = |(_, title, verbs): &(&str, &'static str, &[&str])| Section {
        title,
        commands: verbs.iter().flat_map(commands).collect(),
    };
    SECTIONS.iter().map(section).collect()
}

fn entry(leaf: &Leaf<'_>) -> Entry {
    let meaning = |arg| {
        let arg: &clap::Arg = arg;
        arg.get_help().map(|about| (form(arg), about.to_string()))
    };
    Entry {
        words: leaf.words.iter().map(|word| (*word).to_owned()).collect(),
        usage: leaf.usage(),
        about: leaf.about(),
        arguments: arguments(leaf.command).filter_map(meaning).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_usage_and_a_meaning() {
        let sections = sections();
        let all = || sections.iter().flat_map(|section| &section.commands);
        let stats = all().find(|entry| entry.usage == "show port stats PORT|all").unwrap();
        assert_eq!(stats.words, ["show", "port", "stats"]);
        assert_eq!(stats.about, "Frames and bytes, and their rates since the last time");
        let port = ("PORT|all".to_owned(), "Number of a port, or `all`".to_owned());
        assert_eq!(stats.arguments, [port]);
        assert!(all().all(|entry| !entry.about.is_empty() && !entry.about.ends_with('.')));
    }
}
