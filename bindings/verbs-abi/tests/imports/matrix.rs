//! `MATRIX.md`: each symbol with its node, its status, and the packages that import it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::programs::Installed;
use crate::table::Row;

const PACKAGES: &str = "Imports are those of ";

pub(crate) fn render(rows: &[Row], installed: &Installed) -> String {
    let mut text = String::from(
        "# Symbols of libibverbs.so.1 and librdmacm.so.1\n\n\
         Written by `UROCE_UPDATE_MATRIX=1 cargo test -p uroce-verbs-abi --test imports`.\n\n\
         A stub fails with EOPNOTSUPP, or has no effect if it returns nothing. A node with `*`\n\
         stands for all releases of the interface between libibverbs and its drivers.\n\n",
    );
    let count = |status: &str| rows.iter().filter(|row| row.status().starts_with(status)).count();
    let used = |row: &&Row| !users(row, installed).is_empty();
    let stubs = rows.iter().filter(|row| row.status() == "stub").filter(used).count();
    // Writing to a `String` does not fail.
    let _ = write!(
        text,
        "{} symbols: {} done, {} stubs. Programs import {stubs} of the stubs.\n\n{PACKAGES}{}.\n\n\
         | symbol | node | status | imported by |\n| --- | --- | --- | --- |\n",
        rows.len(),
        count("done"),
        count("stub"),
        installed.versions(),
    );
    for row in rows {
        let alias = if row.is_default { "" } else { " (alias)" };
        let users = users(row, installed).into_iter().collect::<Vec<_>>().join(", ");
        let Row { name, node, .. } = row;
        let _ = writeln!(text, "| `{name}` | {node}{alias} | {} | {users} |", row.status());
    }
    text
}

fn users(row: &Row, installed: &Installed) -> BTreeSet<&'static str> {
    let symbols = row.expand();
    let users = symbols.iter().filter_map(|(symbol, _)| installed.imports.get(symbol));
    users.flatten().copied().collect()
}

/// The packages with which a matrix was written.
pub(crate) fn packages_of(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(PACKAGES));
    line.and_then(|line| line.strip_suffix('.')).unwrap_or_default().to_owned()
}

/// The rows of a matrix, without the last column.
pub(crate) fn without_users(text: &str) -> String {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let shorter = rows.filter_map(|line| Some(line.strip_suffix(" |")?.rsplit_once("| ")?.0));
    shorter.collect::<Vec<_>>().join("\n")
}
