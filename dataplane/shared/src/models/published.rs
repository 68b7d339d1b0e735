//! Values that lcores read and the control plane replaces: address handles, multicast groups.
//!
//! One lcore, one writer, two values. Not modelled: several writers of a place, which callers
//! exclude.

use crate::table::published::Published;
use crate::table::qsbr::Turns;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// A value that is written before it is published and after it was returned.
struct Value(UnsafeCell<u8>);

// SAFETY: a thread writes the value only while no other can reach it, which loom verifies.
unsafe impl Send for Value {}
// SAFETY: shared access only reads the value, and loom verifies that no write is concurrent.
unsafe impl Sync for Value {}

impl Value {
    fn boxed() -> Box<Value> {
        let value = Box::new(Value(UnsafeCell::new(0)));
        value.write();
        value
    }

    fn write(&self) {
        // SAFETY: no other thread can reach the value; loom reports a race if one does.
        self.0.with_mut(|byte| unsafe { *byte = 1 });
    }
}

pub(crate) fn replace() {
    let turns = Arc::new(Turns::new(1));
    let table = Arc::new(Published::<Value>::new(1, Arc::clone(&turns)));
    assert!(table.replace(0, Some(Value::boxed())).is_none());
    let lcore = thread::spawn({
        let (table, turns) = (Arc::clone(&table), Arc::clone(&turns));
        move || {
            for _ in 0..2 {
                let turn = turns.enter(0);
                if let Some(value) = table.get(0, &turn) {
                    // SAFETY: no thread writes a value in the table; loom reports a race if one
                    // does.
                    value.0.with(|byte| assert_eq!(unsafe { *byte }, 1));
                }
            }
        }
    });
    let first = table.replace(0, Some(Value::boxed()));
    first.expect("put there").write();
    let second = table.replace(0, None);
    second.expect("put there").write();
    lcore.join().expect("no panic");
    assert!(table.replace(0, None).is_none());
}
