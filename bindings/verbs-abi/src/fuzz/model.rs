//! The model: which objects exist, and which were made from which.

use std::ffi::c_void;

use uroce_fuzz::Input;

/// Coverage point: the handle of a destroyed object was used. Its second number is the kind.
pub(super) const DESTROYED: u32 = 200;

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Context,
    Pd,
    Mr,
    Mw,
    Channel,
    Cq,
    Srq,
    Qp,
    Ah,
    Xrcd,
    Flow,
}

impl Kind {
    pub(super) const ALL: [Kind; 11] = [
        Kind::Context,
        Kind::Pd,
        Kind::Mr,
        Kind::Mw,
        Kind::Channel,
        Kind::Cq,
        Kind::Srq,
        Kind::Qp,
        Kind::Ah,
        Kind::Xrcd,
        Kind::Flow,
    ];
}

/// An object that a call has made.
#[derive(Debug)]
struct Thing {
    kind: Kind,
    pointer: *mut c_void,
    live: bool,
    /// Indices in the model of the objects that it was made from.
    of: Vec<usize>,
}

/// A handle to pass to a call, with the model's view of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) pointer: *mut c_void,
    /// Index of the live object with this handle. `None` if there is none.
    pub(super) thing: Option<usize>,
}

/// All objects that were made, live and destroyed.
#[derive(Debug, Default)]
pub(super) struct Model {
    things: Vec<Thing>,
}

impl Model {
    /// Chooses a handle for a parameter of type `kind`: usually a live one, else a destroyed one,
    /// NULL, or one of another kind.
    pub(super) fn any(&self, kind: Kind, input: &mut Input<'_>) -> Handle {
        let pointer = match input.below(32) {
            0 => std::ptr::null_mut(),
            1 => self.choose(input, |thing| thing.kind != kind),
            2..5 => self.choose(input, |thing| thing.kind == kind),
            _ => self.choose(input, |thing| thing.kind == kind && thing.live),
        };
        self.handle(kind, pointer)
    }

    /// Chooses a handle for a call that does not look handles up: live, destroyed or NULL.
    pub(super) fn own(&self, kind: Kind, input: &mut Input<'_>) -> Handle {
        let live = input.below(16) > 1;
        let pointer = self.choose(input, |thing| thing.kind == kind && thing.live == live);
        let handle = self.handle(kind, pointer);
        if handle.thing.is_none() && !pointer.is_null() {
            input.reach(DESTROYED, kind as u32);
        }
        handle
    }

    fn choose(&self, input: &mut Input<'_>, fits: impl Fn(&Thing) -> bool) -> *mut c_void {
        let fitting: Vec<&Thing> = self.things.iter().filter(|thing| fits(thing)).collect();
        match fitting.len() {
            0 => std::ptr::null_mut(),
            count => fitting[usize::from(input.u8()) % count].pointer,
        }
    }

    /// Looks a pointer up. If it was given out again, the live object counts.
    fn handle(&self, kind: Kind, pointer: *mut c_void) -> Handle {
        let is_it = |thing: &Thing| {
            thing.live && thing.kind == kind && thing.pointer.addr() == pointer.addr()
        };
        Handle { pointer, thing: self.things.iter().position(is_it) }
    }

    /// Records the result of a creating call and returns whether it made an object. Panics if an
    /// object was made from one that is not live.
    pub(super) fn made<T>(&mut self, kind: Kind, pointer: *mut T, of: &[Handle]) -> bool {
        if pointer.is_null() {
            return false;
        }
        let of: Option<Vec<usize>> = of.iter().map(|handle| handle.thing).collect();
        let of = of.unwrap_or_else(|| panic!("{kind:?} made of what does not exist"));
        self.things.push(Thing { kind, pointer: pointer.cast(), live: true, of });
        true
    }

    /// The result that a destruction must have. Closing a device always succeeds; objects made with
    /// it stay usable.
    pub(super) fn verdict(&self, handle: Handle) -> i32 {
        let Some(at) = handle.thing else { return libc::EINVAL };
        if self.things[at].kind == Kind::Context {
            return 0;
        }
        let is_used = self.things.iter().any(|thing| thing.live && thing.of.contains(&at));
        if is_used { libc::EBUSY } else { 0 }
    }

    /// Records that an object was destroyed.
    pub(super) fn gone(&mut self, handle: Handle) {
        if let Some(at) = handle.thing {
            self.things[at].live = false;
        }
    }

    /// The live objects of a kind, newest first.
    pub(super) fn live(&self, kind: Kind) -> Vec<Handle> {
        let of_kind = self.things.iter().enumerate().rev();
        let live = of_kind.filter(|(_, thing)| thing.live && thing.kind == kind);
        live.map(|(at, thing)| Handle { pointer: thing.pointer, thing: Some(at) }).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.things.iter().filter(|thing| thing.live).count()
    }
}
