//! The reference `deploy/CLI.md`: an introduction, a tour, and all commands from the tree.

use uroce_command::tree::sections;

/// Returns the text in Markdown.
pub(crate) fn text() -> String {
    let mut text = String::from(include_str!("reference/introduction.md"));
    for section in sections() {
        text.push_str(&format!("\n### {}\n\n", section.title));
        for command in &section.commands {
            text.push_str(&format!("- `{}`  \n  {}.\n", command.usage, command.about));
            for (name, about) in &command.arguments {
                text.push_str(&format!("  - `{name}`: {about}.\n"));
            }
        }
    }
    text
}
