//! `ibv_cq`: creating, resizing and destroying completion queues.
//!
//! Not here: taking completions ([`super::poll`], [`super::cq_ex`]).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uroce::raw::limits::MAX_CQE;

use super::{event, query};
use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::objects::context;
use crate::objects::cq::{Channel, Cq, get};
use crate::objects::qp;
use crate::{room, runtime};

/// Parameters for creating a completion queue.
pub(crate) struct Spec {
    pub(crate) context: *mut ibv_context,
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
}

/// Creates a completion queue. `extend` fills in the fields that only `ibv_cq_ex` has.
pub(crate) fn create(
    spec: &Spec,
    extend: impl FnOnce(&mut ibv_cq_ex),
) -> Result<Arc<Entry<Cq>>, Errno> {
    let Spec { context, cqe, cq_context, channel, comp_vector } = *spec;
    let held = context::hold(context)?;
    let its_channel =
        (!channel.is_null()).then(|| Channel::registry().hold(channel)).transpose()?;
    // There is only completion vector 0.
    if cqe == 0 || cqe > MAX_CQE || comp_vector != 0 {
        return Err(Errno::EINVAL);
    }
    let place = query::admit_cq(held.device)?;
    let engine = held.device.context()?;
    let cqe = room::rounded_completions(cqe);
    room::check(room::of_completions(cqe))?;
    let cq = match &its_channel {
        Some(channel) => engine.create_cq_on(cqe, &channel.channel),
        None => engine.create_cq(cqe),
    }?;
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut public: ibv_cq_ex = unsafe { std::mem::zeroed() };
    public.context = context;
    public.channel = channel;
    public.cq_context = cq_context;
    // `cqe` is at most `MAX_CQE`, so it fits.
    public.cqe = cqe as c_int;
    extend(&mut public);
    let value = Cq::new(cq, held, its_channel, place);
    let entry = Cq::registry().insert(public, value);
    if let Some(channel) = &entry.channel {
        channel.add(&entry);
    }
    Ok(entry)
}

fn resize(cq: &Entry<Cq>, cqe: u32) -> Result<(), Errno> {
    runtime::usable()?;
    let kept = cq.kept();
    let asked = cqe;
    let cqe = room::rounded_completions(asked);
    if asked == 0 || asked > MAX_CQE || kept > cqe as usize {
        return Err(Errno::EINVAL);
    }
    if cqe < cq.cq.capacity() {
        qp::catch_up(cq);
    }
    room::check(room::of_completions(cqe))?;
    cq.cq.resize(cqe)?;
    // SAFETY: a slot is never freed, and programs only read this field.
    unsafe { (*cq.public()).cqe = cqe as c_int };
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    entry::object(|| {
        let number = |value: c_int| u32::try_from(value).map_err(|_| Errno::EINVAL);
        let (cqe, comp_vector) = (number(cqe)?, number(comp_vector)?);
        let spec = Spec { context, cqe, cq_context, channel, comp_vector };
        Ok(create(&spec, |_| {})?.public().cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    entry::code(|| resize(&*get(cq)?, u32::try_from(cqe).map_err(|_| Errno::EINVAL)?))
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    entry::code(|| {
        let found = get(cq)?;
        if found.is_busy() {
            return Err(Errno::EBUSY);
        }
        found.events.close()?;
        // Only the thread that has closed `events` gets here.
        found.async_events.close()?;
        found.events.wait();
        found.async_events.wait();
        let removed = Cq::registry().remove(cq.cast());
        match removed {
            Ok(_) => {
                found.channel.iter().for_each(|channel| channel.remove(&found));
                event::forget::<Cq>(&found.context, cq.cast());
            }
            // In the meantime a queue pair was made that uses the completion queue.
            Err(_) => [&found.events, &found.async_events].iter().for_each(|acks| acks.reopen()),
        }
        removed.map(|_| ())
    })
}
