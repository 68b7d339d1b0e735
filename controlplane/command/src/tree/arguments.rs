//! Arguments of a command: values in a fixed order, then words with a value each, in any order.
//!
//! An argument with a long name is such a word, for example `depth` in `create cq depth 64`. A
//! unique beginning of the word is enough. A word without a value, for example `--force`, may be
//! typed with or without its dashes.

use clap::{Arg, Command};

use super::mistake::{Fault, Mistake};
use super::words::Word;
use super::{begins_one, value_name};

/// The words after a command's name, in the form that clap parses.
pub(super) struct Arguments<'c> {
    /// The words for clap.
    pub(super) given: Vec<String>,
    /// For each word that is a value, the argument that it belongs to.
    pub(super) values: Vec<Option<&'c Arg>>,
}

/// Returns the words that name arguments of a command.
pub(super) fn keywords(leaf: &Command) -> impl Iterator<Item = &Arg> {
    leaf.get_arguments().filter(|arg| arg.get_long().is_some())
}

/// Returns whether a value follows the word.
pub(super) fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns what may stand in the place of a value: the possible words if there is a list of them,
/// otherwise the value's name.
pub(super) fn expected(arg: &Arg) -> Vec<String> {
    let words = arg.get_possible_values();
    if words.is_empty() || !takes_value(arg) {
        return vec![value_name(arg)];
    }
    words.iter().map(|word| word.get_name().to_owned()).collect()
}

/// Finds the argument to which each word belongs.
///
/// # Errors
///
/// The first word that belongs to no argument, or that lacks its value.
pub(super) fn translate<'c>(
    line: &str,
    leaf: &'c Command,
    words: &[Word],
    names: &[String],
) -> Result<Arguments<'c>, Mistake> {
    let mut all = Arguments { given: Vec::new(), values: Vec::new() };
    let mut places = leaf.get_positionals();
    let mut used: Vec<&str> = Vec::new();
    let mut place = places.next();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(arg) = place.filter(|arg| arg.is_trailing_var_arg_set()) {
            // The rest of the line is another program's.
            let rest = [word].into_iter().chain(words.by_ref());
            all.given.push("--".to_owned());
            for word in rest {
                all.given.push(word.text.clone());
                all.values.push(Some(arg));
            }
            break;
        }
        if let Some(arg) = place
            && !keywords(leaf).any(|arg| arg.get_long() == Some(word.text.as_str()))
            && !word.text.starts_with("--")
        {
            all.given.push(word.text.clone());
            all.values.push(Some(arg));
            // The last positional argument may take several words.
            place = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) {
                place
            } else {
                places.next()
            };
            continue;
        }
        let arg = keyword(leaf, &used, &word.text).map_err(|fault| {
            let free = free_words(leaf, &used).map(str::to_owned).collect::<Vec<_>>();
            let expected = match (place, free.is_empty()) {
                (Some(arg), _) => expected(arg),
                (None, true) => vec!["the end of the line".to_owned()],
                (None, false) => free,
            };
            Mistake::at(line, word, fault, expected, names)
        })?;
        let name = arg.get_long().unwrap_or_default();
        used.push(name);
        all.values.push(None);
        if !takes_value(arg) {
            all.given.push(format!("--{name}"));
            continue;
        }
        let Some(value) = words.next() else {
            return Err(Mistake::missing(line, expected(arg), names));
        };
        all.given.push(format!("--{name}={}", value.text));
        all.values.push(Some(arg));
    }
    Ok(all)
}

/// Returns the words that name arguments and have not been used.
pub(super) fn free_words<'c>(leaf: &'c Command, used: &[&str]) -> impl Iterator<Item = &'c str> {
    let names = keywords(leaf).filter_map(|arg| arg.get_long());
    names.filter(move |name| !used.contains(name))
}

/// Returns the argument with the name `word`, or the only one with a name that begins with it.
pub(super) fn keyword<'c>(leaf: &'c Command, used: &[&str], word: &str) -> Result<&'c Arg, Fault> {
    let word = word.strip_prefix("--").unwrap_or(word);
    let name = begins_one(free_words(leaf, used), word).map_err(Fault::within_a_command)?;
    keywords(leaf).find(|arg| arg.get_long() == Some(name)).ok_or(Fault::Bad)
}

/// Returns the required arguments that are missing on a line with these arguments.
pub(super) fn missing(leaf: &Command, arguments: &Arguments<'_>) -> Vec<String> {
    let given: Vec<&str> =
        arguments.values.iter().flatten().map(|arg| arg.get_id().as_str()).collect();
    let lacks = |arg: &&Arg| arg.is_required_set() && !given.contains(&arg.get_id().as_str());
    if let Some(place) = leaf.get_positionals().find(lacks) {
        return expected(place);
    }
    keywords(leaf).filter(lacks).filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::super::words::split;
    use super::*;

    fn leaf() -> Command {
        let word = |name: &'static str| Arg::new(name).long(name).value_name("N");
        Command::new("make").args([
            Arg::new("qp").value_name("QPN").required(true),
            word("depth"),
            word("state").value_parser(["INIT", "RTR"]),
            word("sges").required(true),
            Arg::new("force").long("force").action(ArgAction::SetTrue),
        ])
    }

    fn of(line: &str) -> Result<Vec<String>, Mistake> {
        translate(line, &leaf(), &split(line).unwrap(), &[]).map(|all| all.given)
    }

    #[test]
    fn values_stand_before_words_and_words_in_any_order() {
        let all = ["7", "--depth=64", "--force", "--state=RTR"];
        assert_eq!(of("7 depth 64 force state RTR").unwrap(), all);
        assert_eq!(of("7 d 64 --force st RTR").unwrap(), all);
        assert_eq!(of("force 7 depth 64").unwrap(), ["--force", "7", "--depth=64"]);
        assert_eq!(of("7 depth -1").unwrap(), ["7", "--depth=-1"]);
    }

    #[test]
    fn mistakes_tell_what_may_stand_there() {
        let of = |line: &str| of(line).unwrap_err();
        assert_eq!(of("7 depht 64").expected, ["depth", "state", "sges", "force"]);
        assert_eq!(of("7 depth 64 depth 64").expected, ["state", "sges", "force"]);
        assert_eq!((of("7 s 1").fault, of("7 s 1").expected.len()), (Fault::Ambiguous, 2));
        assert_eq!(of("7 state").expected, ["INIT", "RTR"]);
        assert_eq!(of("--dance").expected, ["QPN"]);
        let (leaf, line) = (leaf(), "7 depth 1");
        let all = translate(line, &leaf, &split(line).unwrap(), &[]).unwrap();
        assert_eq!(missing(&leaf, &all), ["sges"]);
        let none = translate("", &leaf, &[], &[]).unwrap();
        assert_eq!(missing(&leaf, &none), ["QPN"]);
    }
}
