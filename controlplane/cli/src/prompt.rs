//! The prompt: history, completion, `?`.

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext,
    EventHandler, ExternalPrinter, Helper, KeyEvent, RepeatCount,
};
use uroce_command::tree::{Completion, complete};

use crate::screen::Screen;
use crate::session::{Outcome, Session};
use crate::{style, values};

/// The prompt's text.
pub(crate) const PROMPT: &str = "uroce> ";
/// Lines in the history.
const HISTORY: usize = 1000;

/// Reads and carries out lines until the user leaves.
pub(crate) fn run(session: &mut Session) -> Outcome {
    let helper = Words { socket: session.socket().map(Path::to_owned) };
    let mut editor = match editor(helper) {
        Ok(editor) => editor,
        Err(error) => {
            style::error(&error.to_string());
            return Outcome::Over;
        }
    };
    session.pages = true;
    session.screen = editor.create_external_printer().ok().map(|mut printer| {
        Screen::new(move |text| {
            // An error means that the terminal has gone.
            let _ = printer.print(text);
        })
    });
    let history = history_file();
    if let Some(path) = &history {
        // There is none at first.
        let _ = editor.load_history(path);
    }
    read(&mut editor, session, history.as_deref())
}

fn read(
    editor: &mut Editor<Words, DefaultHistory>,
    session: &mut Session,
    history: Option<&Path>,
) -> Outcome {
    loop {
        match editor.readline(PROMPT) {
            Ok(line) => {
                let is_new = editor.add_history_entry(&line).unwrap_or(false);
                if let Some(path) = history.filter(|_| is_new) {
                    // At once: Ctrl-C may end the program, and another session may append to the
                    // file, too. The session works without it.
                    let _ = editor.append_history(path);
                }
                match session.line(&line, None) {
                    Outcome::Done | Outcome::Failed | Outcome::Usage => {}
                    end @ (Outcome::Quit | Outcome::Over) => return end,
                }
                // A mistake at the prompt is corrected there.
                session.has_failed = false;
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Outcome::Quit,
            Err(error) => {
                style::error(&error.to_string());
                return Outcome::Over;
            }
        }
    }
}

fn editor(helper: Words) -> rustyline::Result<Editor<Words, DefaultHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY)?
        .history_ignore_space(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(helper));
    let question = EventHandler::Conditional(Box::new(Question));
    editor.bind_sequence(KeyEvent::from('?'), question);
    Ok(editor)
}

/// Returns the file of the history, in a directory that exists.
fn history_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|at| at.is_absolute());
    let directory = state.or_else(|| Some(home?.join(".local/state")))?.join("uroce");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

/// Completes words of the tree, and numbers that exist in the process.
struct Words {
    socket: Option<PathBuf>,
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..pos).unwrap_or(line);
        let Completion { start, words, value } = complete(line);
        let begun = &line[start..];
        let pair = |word: String| Pair { display: word.clone(), replacement: word + " " };
        let of = |name: String| values::values(self.socket.as_deref(), &name, begun);
        let values = value.map_or(Vec::new(), of);
        let all = words.into_iter().map(|candidate| candidate.word).chain(values);
        Ok((start, all.map(pair).collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Validator for Words {}

impl Highlighter for Words {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(
        &'s self,
        prompt: &'p str,
        _default: bool,
    ) -> Cow<'b, str> {
        match style::is_coloured(&std::io::stdout()) {
            true => Cow::Owned(format!("\x1b[1m{prompt}\x1b[0m")),
            false => Cow::Borrowed(prompt),
        }
    }
}

impl Helper for Words {}

/// The key `?`: lists what may follow, with a line of help each, and keeps the line.
struct Question;

impl ConditionalEventHandler for Question {
    fn handle(
        &self,
        _event: &Event,
        _count: RepeatCount,
        _positive: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        let Completion { words, value, .. } = complete(context.line());
        let mut text = String::from("\r\n");
        for candidate in words {
            text.push_str(&format!("    {:<12} {}\r\n", candidate.word, candidate.help));
        }
        if let Some(value) = value {
            text.push_str(&format!("    {value}\r\n"));
        }
        let mut stdout = std::io::stdout();
        // An error means that the terminal has gone.
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        Some(Cmd::Repaint)
    }
}
