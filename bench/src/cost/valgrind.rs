//! One request to valgrind: that callgrind begins to look.
//!
//! `deploy/cost` starts callgrind with `--instr-atstart=no`, so that setting up a thousand queue
//! pairs runs at full speed, and nothing before this request is counted. A program asks valgrind
//! for something by a sequence of instructions that does nothing anywhere else (valgrind manual,
//! "The Client Request mechanism").

#![allow(unsafe_code)]

/// callgrind's number for "start instrumentation": its letters, then the fifth request.
#[cfg(target_arch = "x86_64")]
const START_INSTRUMENTATION: u64 = ((b'C' as u64) << 24) | ((b'T' as u64) << 16) | 4;

/// Lets callgrind count from here on. Does nothing where the program does not run under valgrind.
pub(super) fn start_instrumentation() {
    #[cfg(target_arch = "x86_64")]
    {
        let request = [START_INSTRUMENTATION, 0, 0, 0, 0, 0];
        // SAFETY: the four rotations turn `rdi` by 128 bits in all, which leaves it as it was, and
        // `rbx` is exchanged with itself. Valgrind reads the six words at `rax` and writes `rdx`.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") request.as_ptr(),
                inout("rdx") 0u64 => _,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_valgrind_the_request_does_nothing() {
        super::start_instrumentation();
    }
}
