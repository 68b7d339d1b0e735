//! Text of `bench`.

use crate::answer::Bench;

/// Returns what the program has printed, below a line with the state.
pub(super) fn bench(of: &Bench) -> String {
    let Bench { line, state, elapsed_ms, output, .. } = of;
    let (seconds, tenths) = (elapsed_ms / 1000, elapsed_ms / 100 % 10);
    let mut text = format!("bench {line}: {state}, {seconds}.{tenths} s\n");
    for line in output {
        // A terminal's columns of a tab depend on where the line begins; perftest's do not matter.
        text.push_str(&line.replace('\t', "  "));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, render};

    #[test]
    fn the_table_stands_below_the_state() {
        let of = Bench {
            line: "write_bw -n 100".into(),
            state: "running".into(),
            elapsed_ms: 12_349,
            columns: vec![],
            rows: vec![],
            output: vec!["a\tb".into(), "\x1b[2J".into()],
        };
        let text = "bench write_bw -n 100: running, 12.3 s\na  b\n?[2J\n";
        assert_eq!(render::text(&Answer::Bench(of)), text);
    }
}
