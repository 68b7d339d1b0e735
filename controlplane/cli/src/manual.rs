//! The manual page uroce(1): the options from clap, the commands from the tree.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use uroce_command::tree::{Section, sections};

use crate::{ALONE, Options};

/// Writes the page in the format of man(7).
///
/// # Errors
///
/// The writer's.
pub(crate) fn write(out: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(Options::command()).manual("uroce").date("");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    alone().to_writer(out)?;
    for section in sections() {
        commands(&section).to_writer(out)?;
    }
    man.render_extra_section(out)?;
    files().to_writer(out)
}

/// Returns the text with its words in quotation marks in bold.
fn inlines(text: &str) -> Vec<Inline> {
    let style = |(at, part): (usize, &str)| if at % 2 == 0 { roman(part) } else { bold(part) };
    text.split('`').enumerate().map(style).collect()
}

fn item(page: &mut Roff, term: &str, about: &str) {
    page.control("TP", []);
    page.text([bold(term)]);
    page.text(inlines(about));
}

fn alone() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["COMMANDS OF THE PROGRAM"]);
    for (word, about) in ALONE {
        item(&mut page, word, &format!("{about}."));
    }
    page
}

fn commands(section: &Section) -> Roff {
    let mut page = Roff::new();
    page.control("SH", [format!("COMMANDS: {}", section.title.to_uppercase()).as_str()]);
    for command in &section.commands {
        item(&mut page, &command.usage, &format!("{}.", command.about));
        for (name, about) in &command.arguments {
            page.control("br", []);
            page.text(
                [&[bold(name.as_str()), roman(": ")], inlines(&format!("{about}.")).as_slice()]
                    .concat(),
            );
        }
    }
    page
}

fn files() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["FILES"]);
    let history = "History of the prompt. `$HOME/.local/state` without this variable.";
    item(&mut page, "$XDG_STATE_HOME/uroce/history", history);
    let sockets = "Control sockets of this user's processes; for root in `/run/uroce`, and in \
                   `/tmp/uroce-UID` where there is no such directory.";
    item(&mut page, "$XDG_RUNTIME_DIR/uroce/control", sockets);
    page.control("SH", ["ENVIRONMENT"]);
    item(&mut page, "UROCE_CONTROL", "`off` in a process turns its control socket off.");
    item(&mut page, "NO_COLOR", "If it is set, nothing is coloured.");
    page
}
