//! `newest.txt`: the exported symbols of the newest release of rdma-core.

/// The symbols by name and node.
pub(crate) fn read() -> Vec<(String, String)> {
    let text = include_str!("newest.txt");
    let mut node = "";
    let mut symbols = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let names = line.split_whitespace();
            symbols.extend(names.map(|name| (name.to_owned(), node.to_owned())));
        } else {
            node = line;
        }
    }
    symbols
}
