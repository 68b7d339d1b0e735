//! Reads `symbols.txt` independently of build.rs, to test its results.

/// Releases of the interface between libibverbs and its drivers, each with its own node.
const PRIVATE: [u32; 10] = [20, 21, 22, 25, 33, 34, 57, 59, 64, 65];

/// A line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) is_default: bool,
    pub(crate) body: String,
}

pub(crate) fn read() -> Vec<Row> {
    let text = include_str!("../../symbols.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(row).collect()
}

fn row(line: &str) -> Row {
    let [name, node, kind, body] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("not four words: {line}");
    };
    let (name, node, body) = (name.to_owned(), node.to_owned(), body.to_owned());
    Row { name, node, is_default: kind == "default", body }
}

impl Row {
    /// The symbols for this row. The value is true for the default version.
    pub(crate) fn expand(&self) -> Vec<((String, String), bool)> {
        let Some(family) = self.node.strip_suffix('*') else {
            return vec![((self.name.clone(), self.node.clone()), self.is_default)];
        };
        let last = PRIVATE[PRIVATE.len() - 1];
        let symbol = |release: u32| {
            let is_default = self.is_default && release == last;
            ((self.name.clone(), format!("{family}{release}")), is_default)
        };
        PRIVATE.into_iter().map(symbol).collect()
    }

    /// Whether the symbol is implemented, for MATRIX.md.
    pub(crate) fn status(&self) -> &'static str {
        match self.body.as_str() {
            "stub::zero" if self.is_default => "done: nothing to do",
            "stub::nothing" if self.name.starts_with("verbs_register_driver") => {
                "done: nothing to do"
            }
            body if body.starts_with("stub::") => "stub",
            _ => "done",
        }
    }
}
