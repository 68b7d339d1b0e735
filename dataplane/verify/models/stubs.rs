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

        pub(crate) fn is_due(&mut self, busy: bool) -> bool {
            loom::thread::yield_now();
            !busy
        }

        pub(crate) fn rest(&mut self) {
            loom::thread::yield_now();
        }

        pub(crate) fn slept(&mut self) {}
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

/// Fences that are paid for by one side; loom knows one kind.
pub(crate) mod barrier {
    use crate::sync::{Ordering, fence};

    #[track_caller]
    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    #[track_caller]
    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
    }
}

/// A bed that only the bell wakes from.
pub(crate) mod bed {
    use crate::bell::Bell;
    use std::sync::Arc;
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) struct Bed(Arc<Bell>);

    impl Bed {
        pub(crate) fn new(bell: &Arc<Bell>) -> Bed {
            Bed(Arc::clone(bell))
        }

        pub(crate) fn arm(&self) {
            self.0.arm();
        }

        pub(crate) fn disarm(&self) {
            self.0.disarm();
        }

        pub(crate) fn sleep(&self, _time: Duration) -> bool {
            let tokens = self.0.listen().expect("a descriptor");
            tokens.wait().expect("woken");
            // Edge-triggered: what was written wakes once.
            while tokens.take().expect("readable") {}
            self.0.disarm();
            true
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

        pub(crate) fn is_at_rest(&self) -> bool {
            true
        }

        pub(crate) fn arm(&self) -> bool {
            true
        }

        pub(crate) fn disarm(&self) {}

        /// It has no deadline.
        pub(crate) fn time_left(&self) -> std::time::Duration {
            std::time::Duration::MAX
        }
    }

    impl fmt::Debug for Lcore {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Lcore")
        }
    }
}
