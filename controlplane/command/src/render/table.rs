//! Tables: columns as wide as their longest text, two spaces apart.

/// A table that is being filled.
pub(crate) struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Makes a table with these titles.
    pub(crate) fn new(head: &[&'static str; N]) -> Table<N> {
        Table { head: *head, rows: Vec::new() }
    }

    /// Appends a row.
    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Returns the text: the titles, then the rows.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let line = |cells: [&str; N]| {
            let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        let rows = self.rows.iter().map(|row| line(std::array::from_fn(|at| row[at].as_str())));
        std::iter::once(line(self.head)).chain(rows).collect()
    }
}
