//! `uroce -d`: the program's options and its command tree as JSON, for programs that make manuals
//! or forms of them. The manual page and the reference are made of the same entries.

use clap::CommandFactory;
use serde_json::{Value, json};
use uroce_command::render;
use uroce_command::tree::{Entry, sections};

use crate::{ALONE, Options};

/// Returns the JSON text.
pub(crate) fn text() -> String {
    let sections: Vec<Value> = sections()
        .iter()
        .map(|section| {
            let commands: Vec<Value> = section.commands.iter().map(command).collect();
            json!({ "title": section.title, "commands": commands })
        })
        .collect();
    let alone: Vec<Value> =
        ALONE.iter().map(|(word, about)| json!({ "word": word, "about": about })).collect();
    let tree = json!({
        "name": "uroce",
        "version": env!("CARGO_PKG_VERSION"),
        "options": options(),
        "program": alone,
        "sections": sections,
    });
    // A value of JSON is written without errors.
    render::json(&tree).unwrap_or_default() + "\n"
}

fn options() -> Vec<Value> {
    let all = Options::command();
    let option = |arg: &clap::Arg| {
        let value = arg.get_action().takes_values().then(|| value_name(arg));
        Some(json!({
            "long": arg.get_long()?,
            "short": arg.get_short(),
            "value": value,
            "about": arg.get_help().map(ToString::to_string),
        }))
    };
    all.get_arguments().filter_map(option).collect()
}

fn value_name(arg: &clap::Arg) -> Option<String> {
    Some(arg.get_value_names()?.first()?.to_string())
}

fn command(entry: &Entry) -> Value {
    let argument = |(form, about): &(String, String)| json!({ "form": form, "about": about });
    json!({
        "words": entry.words,
        "usage": entry.usage,
        "about": entry.about,
        "arguments": entry.arguments.iter().map(argument).collect::<Vec<_>>(),
    })
}
