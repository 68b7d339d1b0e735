//! A ring of fixed size. Elements keep their position until they are popped.

use core::ops::{Index, IndexMut};

/// A FIFO with a power of two of slots, at least as many as requested. A user that needs an exact
/// limit checks it itself.
///
/// Positions count up from 0 and wrap at 2^32. An element can be accessed by its position while it
/// is in the ring.
#[derive(Debug)]
pub struct Ring<T> {
    slots: Box<[Option<T>]>,
    head: u32,
    tail: u32,
}

impl<T: Copy> Ring<T> {
    /// Creates a ring for `capacity` elements, at most 2^31. Allocates all of its memory.
    pub fn new(capacity: u32) -> Ring<T> {
        let slots = vec![None; capacity.next_power_of_two() as usize].into_boxed_slice();
        Ring { slots, head: 0, tail: 0 }
    }

    /// Position of the oldest element, or of the next one if the ring is empty.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Position that the next pushed element gets.
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Number of elements.
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Number of slots, a power of two.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slots that the next `count` elements will have, as far as they are contiguous.
    pub fn next_slots(&self, count: usize) -> &[Option<T>] {
        let slots = &self.slots[self.slot(self.tail)..];
        &slots[..count.min(slots.len())]
    }

    /// Appends an element and returns its position. Panics if the ring is full.
    pub fn push(&mut self, value: T) -> u32 {
        assert!((self.len() as usize) < self.slots.len(), "push to a full ring");
        let at = self.tail;
        let slot = self.slot(at);
        self.slots[slot] = Some(value);
        self.tail = at.wrapping_add(1);
        at
    }

    /// Removes the oldest element; the reference is valid until the next push.
    pub fn pop(&mut self) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.head);
        self.head = self.head.wrapping_add(1);
        self.slots[slot].as_ref()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.head = self.tail;
    }

    /// The element at position `at`, if it is in the ring.
    pub fn get(&self, at: u32) -> Option<&T> {
        if at.wrapping_sub(self.head) >= self.len() {
            return None;
        }
        self.slots[self.slot(at)].as_ref()
    }

    /// The oldest element.
    pub fn front(&self) -> Option<&T> {
        self.get(self.head)
    }

    /// The slot of position `at`, below [`slots`](Ring::slots).
    pub fn slot(&self, at: u32) -> usize {
        at as usize & (self.slots.len() - 1)
    }
}

impl<T: Copy> Index<u32> for Ring<T> {
    type Output = T;

    /// Panics if the position is not in the ring: the core stores positions of live elements only.
    fn index(&self, at: u32) -> &T {
        self.get(at).expect("position in the ring")
    }
}

impl<T: Copy> IndexMut<u32> for Ring<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        assert!(at.wrapping_sub(self.head) < self.len(), "position in the ring");
        let slot = self.slot(at);
        self.slots[slot].as_mut().expect("position in the ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_hold_while_the_ring_turns() {
        let mut ring = Ring::new(3);
        for round in 0..100u32 {
            let at = ring.push(round);
            ring.push(round + 1000);
            assert_eq!(ring[at], round);
            assert_eq!(ring.len(), 2);
            assert_eq!(ring.pop(), Some(&round));
            assert_eq!(ring.get(at), None, "a popped position is gone");
            assert_eq!(ring.pop(), Some(&(round + 1000)));
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn the_next_slots_are_those_that_are_pushed_to() {
        let mut ring = Ring::new(4);
        for (pushed, left) in [4, 3, 2, 1, 4].into_iter().enumerate() {
            let next = ring.next_slots(8);
            assert_eq!(next.len(), left, "to the end of the slots");
            let place = next.as_ptr();
            let at = ring.push(pushed);
            assert!(std::ptr::eq(place, &raw const ring.slots[ring.slot(at)]));
            ring.pop();
        }
        assert_eq!(ring.next_slots(2).len(), 2);
    }

    #[test]
    #[should_panic(expected = "push to a full ring")]
    fn no_element_is_pushed_over_another() {
        let mut ring = Ring::new(3);
        (0..5).for_each(|value| {
            ring.push(value);
        });
    }
}
