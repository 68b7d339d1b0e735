//! DPDK's telemetry: commands of uroce beside DPDK's own, on the socket of an EAL that has one.
//!
//! Invariants
//! - A command that was registered stays until the process ends, since DPDK cannot remove it. Its
//!   handler is a function that finds what it needs itself.
//!
//! - No panic passes to DPDK.
//! - Names, texts and numbers of entries are within the limits of all supported releases of DPDK.
//!
//! Not here: the commands and their answers.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Longest text in an answer in bytes; DPDK refuses longer ones.
const TEXT_MAX: usize = 126;
/// Longest name in a dictionary in bytes.
const NAME_MAX: usize = 62;
/// Largest number of entries of a dictionary.
const DICTIONARY_MAX: usize = 256;
/// Largest number of entries of a list.
const LIST_MAX: usize = 512;

/// A value in a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text. What is longer than DPDK allows is cut off.
    Text(String),
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Names and values. Characters other than letters, digits, `_` and `/` become `_` in a name,
    /// and what is longer than DPDK allows is cut off; of equal names the first one remains. What
    /// is more than 256 is left out.
    Dictionary(Vec<(String, Value)>),
    /// Numbers. What is more than 512 is left out.
    Numbers(Vec<u64>),
    /// Texts. What is more than 512 is left out.
    Texts(Vec<String>),
}

/// Answers a command, of which the parameters follow a comma. `None` if it cannot: the client gets
/// a null value. Called on threads of DPDK.
pub type Handler = fn(command: &str, parameters: Option<&str>) -> Option<Answer>;

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Registers commands, each with its help, once in a process.
///
/// # Errors
/// DPDK has no room for a command, or refuses its name.
pub fn register(commands: &[(&str, &str)], handler: Handler) -> io::Result<()> {
    if HANDLER.set(handler).is_err() {
        return Ok(());
    }
    for (command, help) in commands {
        let (command, help) = (CString::new(*command)?, CString::new(*help)?);
        // SAFETY: both are C strings, which DPDK copies; the callback has the type that the shim
        // declares, and is never unloaded.
        let error = unsafe {
            dpdk_sys::uroce_tel_register(command.as_ptr(), Some(on_command), help.as_ptr())
        };
        if error < 0 {
            return Err(io::Error::from_raw_os_error(-error));
        }
    }
    Ok(())
}

/// Called by DPDK on a thread of a client of its telemetry.
extern "C" fn on_command(
    command: *const c_char,
    parameters: *const c_char,
    data: *mut dpdk_sys::rte_tel_data,
) -> c_int {
    // SAFETY: DPDK passes the name of the command, a C string that outlives the call.
    let command = unsafe { CStr::from_ptr(command) }.to_owned();
    // The parameters are copied before they are looked at: releases of DPDK that divide messages
    // with strtok may pass those of another client, which its thread changes.
    let parameters = match parameters.is_null() {
        true => None,
        // SAFETY: if not null, it is the rest of a client's message, a C string that outlives the
        // call.
        false => Some(unsafe { CStr::from_ptr(parameters) }.to_owned()),
    };
    let answer = || {
        let parameters = match &parameters {
            Some(text) => Some(text.to_str().ok()?),
            None => None,
        };
        fill(data, HANDLER.get()?(command.to_str().ok()?, parameters)?)
    };
    // The handler keeps no state that a panic could leave broken.
    match catch_unwind(AssertUnwindSafe(answer)) {
        Ok(Some(())) => 0,
        _ => -1,
    }
}

/// Puts an answer into DPDK's structure. `None` if DPDK refuses a part of it.
fn fill(data: *mut dpdk_sys::rte_tel_data, answer: Answer) -> Option<()> {
    match answer {
        Answer::Dictionary(pairs) => {
            // SAFETY: DPDK passes a structure that is ours to fill during the call.
            check(unsafe { dpdk_sys::uroce_tel_start_dict(data) })?;
            named(&pairs).iter().try_for_each(|(name, value)| add(data, name, value))
        }
        Answer::Numbers(numbers) => {
            // SAFETY: DPDK passes a structure that is ours to fill during the call.
            check(unsafe { dpdk_sys::uroce_tel_start_array(data, 0) })?;
            numbers.iter().take(LIST_MAX).try_for_each(|number| {
                // SAFETY: the structure was begun as an array of numbers.
                check(unsafe { dpdk_sys::uroce_tel_push_u64(data, *number) })
            })
        }
        Answer::Texts(texts) => {
            // SAFETY: DPDK passes a structure that is ours to fill during the call.
            check(unsafe { dpdk_sys::uroce_tel_start_array(data, 1) })?;
            texts.iter().take(LIST_MAX).try_for_each(|text| {
                let text = c_text(text, TEXT_MAX);
                // SAFETY: the structure was begun as an array of texts, and DPDK copies the C
                // string.
                check(unsafe { dpdk_sys::uroce_tel_push_string(data, text.as_ptr()) })
            })
        }
    }
}

/// Returns as many pairs as DPDK takes, with names that it takes and that are all different.
fn named(pairs: &[(String, Value)]) -> Vec<(CString, &Value)> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
    let mut seen = BTreeSet::new();
    let named = pairs.iter().map(|(name, value)| {
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        (c_text(&name, NAME_MAX), value)
    });
    let is_new = |(name, _): &(CString, &Value)| seen.insert(name.clone());
    named.filter(is_new).take(DICTIONARY_MAX).collect()
}

/// Adds an entry to a dictionary.
fn add(data: *mut dpdk_sys::rte_tel_data, name: &CStr, value: &Value) -> Option<()> {
    check(match value {
        // SAFETY: the structure was begun as a dictionary, and DPDK copies the C string.
        Value::Number(number) => unsafe {
            dpdk_sys::uroce_tel_add_u64(data, name.as_ptr(), *number)
        },
        Value::Text(text) => {
            let text = c_text(text, TEXT_MAX);
            // SAFETY: the structure was begun as a dictionary, and DPDK copies both C strings.
            unsafe { dpdk_sys::uroce_tel_add_string(data, name.as_ptr(), text.as_ptr()) }
        }
    })
}

fn check(error: c_int) -> Option<()> {
    (error == 0).then_some(())
}

/// Returns the beginning of a text as a C string, without control characters. Quotes and
/// backslashes become apostrophes and slashes, since not all releases of DPDK escape them in JSON.
fn c_text(text: &str, max: usize) -> CString {
    let plain = |c: char| match c {
        '"' => '\'',
        '\\' => '/',
        c => c,
    };
    let mut plain: String = text.chars().filter(|c| !c.is_control()).map(plain).collect();
    while plain.len() > max {
        plain.pop();
    }
    // No zero is left in it.
    CString::new(plain).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_two_characters() {
        assert_eq!(c_text("a\0b\nc", 10).to_bytes(), b"abc");
        assert_eq!(c_text("äöü", 3).to_bytes(), "ä".as_bytes());
        assert_eq!(c_text("a\"b\\c", 10).to_bytes(), b"a'b/c");
    }

    #[test]
    fn names_are_plain_and_different() {
        let pair = |name: &str| (name.to_owned(), Value::Number(0));
        let long = "n".repeat(100);
        let pairs = ["eth-0.1", "eth_0_1", "ü", &long, &format!("{long}x"), "a/b"].map(pair);
        let pairs = named(&pairs);
        let names: Vec<_> = pairs.iter().map(|(name, _)| name.to_str().expect("ASCII")).collect();
        assert_eq!(names, ["eth_0_1", "_", &long[..NAME_MAX], "a/b"]);
        let many: Vec<_> = (0..1000).map(|n| pair(&n.to_string())).collect();
        assert_eq!(named(&many).len(), DICTIONARY_MAX);
    }
}
