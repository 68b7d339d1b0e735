//! Stubs of the engine's other parts, as far as the modelled files use them.

use crate::mr_table::MrTable;

/// Stub of the engine; the file of the table has its registration methods.
#[allow(dead_code, reason = "the models use the table itself")]
pub(crate) struct Engine {
    pub(crate) shared: Shared,
}

#[allow(dead_code, reason = "the models use the table itself")]
pub(crate) struct Shared {
    pub(crate) regions: MrTable,
}

/// Stub of EAL, which needs to register no threads here.
pub(crate) mod eal {
    #[derive(Debug)]
    pub(crate) struct Eal;

    #[derive(Debug)]
    pub(crate) struct ThreadGuard;

    #[derive(Debug)]
    pub(crate) struct ThreadNumber;

    impl ThreadNumber {
        pub(crate) fn bear(&mut self) -> ThreadGuard {
            ThreadGuard
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("never")]
    pub(crate) struct EalError;

    impl Eal {
        pub(crate) fn running() -> Option<Eal> {
            Some(Eal)
        }

        pub(crate) fn register_thread(&self) -> Result<ThreadGuard, EalError> {
            Ok(ThreadGuard)
        }
    }
}

/// Stub of the idle policy: an idle lcore yields to other threads.
pub(crate) mod idle {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct IdlePolicy;

    pub(crate) struct Idle;

    impl Idle {
        pub(crate) fn new(_: IdlePolicy) -> Idle {
            Idle
        }

        pub(crate) fn after_turn(&mut self, _busy: bool) {
            loom::thread::yield_now();
        }

        pub(crate) fn is_due(&mut self, busy: bool) -> bool {
            loom::thread::yield_now();
            !busy
        }

        pub(crate) fn rest(&self) {
            loom::thread::yield_now();
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Driver {
        Lcore,
        Poller,
    }

    pub(crate) struct Nap;

    impl Nap {
        pub(crate) fn new() -> Nap {
            Nap
        }

        pub(crate) fn time(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }

        pub(crate) fn lengthen(&mut self, turns: u64) -> bool {
            turns > 0
        }
    }
}

/// Stub of an lcore: its turn is a closure of the model.
pub(crate) mod lcore {
    use std::fmt;

    pub(crate) struct Lcore(Box<dyn FnMut() -> bool>);

    impl Lcore {
        pub(crate) fn new(turn: impl FnMut() -> bool + 'static) -> Lcore {
            Lcore(Box::new(turn))
        }

        pub(crate) fn turn(&mut self) -> bool {
            (self.0)()
        }
    }

    impl fmt::Debug for Lcore {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Lcore")
        }
    }
}
