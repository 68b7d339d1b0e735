//! READs that are repeated, or refused, after some of their responses were lost.

use core::time::Duration;

use uroce_sim::{Crafted, Rule};
use uroce_transport::{AccessFlags, DropReason, QpChange, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, Qkey, Qpn, Syndrome};

use crate::{A, B, SHORTLY, Scene};

/// What goes away at the responder's end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Loss {
    Fail,
    Reset,
    /// Reset, and in use again.
    Renew,
    Destroy,
    Memory,
    Access,
}

const LOSSES: [Loss; 6] =
    [Loss::Fail, Loss::Reset, Loss::Renew, Loss::Destroy, Loss::Memory, Loss::Access];

/// Takes something from the first RD QP of end B. Returns the status of a READ that needs it.
fn lose(scene: &mut Scene, loss: Loss) -> WcStatus {
    let (to, reset) = (scene.there[0], QpChange::to(QpState::Reset));
    match loss {
        Loss::Fail => scene.pair.world.fail(to),
        Loss::Reset => scene.pair.world.modify(to, &reset).unwrap(),
        Loss::Destroy => scene.pair.world.destroy(to),
        Loss::Renew => {
            scene.pair.world.modify(to, &reset).unwrap();
            for change in scene.pair.rd_changes(B) {
                scene.pair.world.modify(to, &change).unwrap();
            }
        }
        Loss::Memory => {
            let mr = scene.pair.remote(B);
            scene.pair.world.node_mut(1).memory.deregister(mr);
            return WcStatus::RemAccessErr;
        }
        Loss::Access => {
            let access = Some(AccessFlags::all() - AccessFlags::REMOTE_READ);
            scene.pair.world.modify(to, &QpChange { access, ..QpChange::default() }).unwrap();
            return WcStatus::RemInvReqErr;
        }
    }
    WcStatus::RemInvRdReqErr
}

#[test] //= check R24 test
//= check R11 test
fn a_read_that_cannot_be_answered_again_fails_its_rd_qp_only() {
    for loss in LOSSES {
        for lost in 1..=4 {
            let mut scene = Scene::slow();
            let (from, to) = (scene.here[0], scene.there[0]);
            scene.pair.rule(Rule::drop().from(B).nth(lost));
            let read = scene.pair.rd_read(from, to, 1000);
            scene.pair.run_until(|pair| pair.seen(B).len() >= 4);
            let status = lose(&mut scene, loss);
            scene.run();
            scene.assert_ended(from, Side::Send, &[(read, status)]);
            scene.assert_state(from, QpState::Sqe);
            if matches!(loss, Loss::Renew | Loss::Memory | Loss::Access) {
                scene.assert_state(to, QpState::Rts);
                assert_eq!(scene.pair.take_events_at(to), []);
            }
            scene.assert_eecs_live();
        }
    }
}

#[test] //= check R24 test
fn a_late_copy_of_a_read_that_cannot_be_answered_again_harms_nothing() {
    for loss in LOSSES {
        let mut scene = Scene::new();
        let (from, to) = (scene.here[0], scene.there[0]);
        scene.pair.rule(Rule::duplicate(Duration::from_micros(30)).from(A).nth(1));
        let read = scene.pair.rd_read(from, to, 1000);
        scene.pair.run_for(Duration::from_micros(20));
        scene.assert_succeeded(from, Side::Send, &[read]);
        lose(&mut scene, loss);
        scene.run();
        assert_eq!(scene.naks(B).len(), 1, "{loss:?}");
        scene.assert_state(from, QpState::Rts);
        scene.assert_eecs_live();
    }
}

#[test] //= check R14 test
//= check R13 test
fn a_refusal_in_the_middle_of_a_read_is_heard_though_an_earlier_response_was_lost() {
    for loss in LOSSES {
        if loss == Loss::Access {
            // A READ that was accepted is answered.
            continue;
        }
        for lost in 1..=4 {
            let mut scene = Scene::slow();
            let (from, to) = (scene.here[0], scene.there[0]);
            scene.pair.rule(Rule::drop().from(B).nth(lost));
            let read = scene.pair.rd_read(from, to, 20_000);
            scene.pair.run_until(|pair| pair.seen(B).len() >= 5);
            let status = lose(&mut scene, loss);
            scene.run();
            scene.assert_ended(from, Side::Send, &[(read, status)]);
            scene.assert_state(from, QpState::Sqe);
            scene.assert_eecs_live();
        }
    }
}

/// A READ of 100 bytes by the first RD QP of end A, of the first one of end B.
fn read_of_first(scene: &Scene) -> Crafted {
    let [from, to] = [scene.here[0], scene.there[0]].map(|at| scene.pair.world.qp(at).qpn());
    let read = scene.pair.craft(A, OpCode::RD_RDMA_READ_REQUEST).bth(|bth| bth.dest_qpn = to);
    read.ext(|ext| (ext.deth.src_qpn, ext.reth.dma_len) = (from, 100))
}

#[test] //= check R24 test
fn a_read_is_answered_again_only_by_the_rd_qp_that_it_named() {
    for kind in 0..5 {
        let mut scene = Scene::untapped();
        let read = read_of_first(&scene);
        scene.pair.deliver(A, &read);
        let data = |scene: &Scene| {
            scene.pair.seen(B).iter().filter(|seen| !seen.payload.is_empty()).count()
        };
        assert_eq!(data(&scene), 1);
        let other = scene.pair.world.qp(scene.there[1]).qpn();
        let own_key = QpChange { qkey: Some(Qkey(0x77)), ..QpChange::default() };
        let again = match kind {
            0 => read.clone(),
            1 => read.clone().bth(|bth| bth.dest_qpn = other),
            2 => read.clone().ext(|ext| ext.deth.src_qpn = Qpn::new(0x77)),
            3 => {
                scene.pair.world.modify(scene.there[0], &own_key).unwrap();
                read.clone()
            }
            _ => {
                lose(&mut scene, Loss::Renew);
                read.clone()
            }
        };
        scene.pair.deliver(A, &again);
        if kind == 0 {
            assert_eq!(data(&scene), 2);
            continue;
        }
        assert_eq!(data(&scene), 1, "kind {kind}");
        assert_eq!(scene.naks(B), [NakCode::InvalidRdRequest], "kind {kind}");
        // After another request it cannot be in progress any more.
        let next = scene.pair.craft(A, OpCode::RD_RDMA_WRITE_ONLY).psn(scene.pair.psn(A, 1));
        scene.pair.deliver(A, &next.bth(|bth| bth.dest_qpn = other));
        scene.pair.deliver(A, &again);
        assert_eq!(data(&scene), 1, "kind {kind}");
        assert_eq!(scene.naks(B).len(), 1, "kind {kind}");
        assert_eq!(scene.pair.drops(B, DropReason::OldRead), 1, "kind {kind}");
    }
}

#[test] //= check R24 test
fn a_denial_that_is_still_to_be_sent_does_not_keep_back_the_acknowledgement_of_the_next_message() {
    for loss in [Loss::Renew, Loss::Memory, Loss::Access] {
        let mut scene = Scene::untapped();
        let read = read_of_first(&scene);
        scene.pair.deliver(A, &read);
        lose(&mut scene, loss);
        let before = scene.pair.responses(B).len();
        // Nothing can leave while the copy comes, and the next message of another RD QP.
        scene.pair.world.set_full_rate(1.0);
        scene.pair.deliver(A, &read);
        let (from, to) = (scene.here[1], scene.there[1]);
        let [from_qpn, to_qpn] = [from, to].map(|at| scene.pair.world.qp(at).qpn());
        let recv = scene.pair.rd_recv(to, 100);
        let send = scene.pair.craft(A, OpCode::RD_SEND_ONLY).psn(scene.pair.psn(A, 1));
        let send = send.bth(|bth| bth.dest_qpn = to_qpn);
        scene.pair.deliver(A, &send.ext(|ext| ext.deth.src_qpn = from_qpn));
        scene.pair.world.set_full_rate(0.0);
        scene.pair.run_for(SHORTLY);
        scene.assert_succeeded(to, Side::Recv, &[recv]);
        let sent = scene.pair.responses(B).split_off(before);
        assert!(sent.len() <= 2, "{sent:?}");
        let last = sent.last().expect("an answer");
        assert!(matches!(last.ext.aeth.syndrome, Syndrome::Ack { .. }), "{loss:?} {last:?}");
        assert_eq!((last.bth.psn, last.bth.dest_qpn), (scene.pair.psn(A, 1), from_qpn));
    }
}

#[test] //= check R13 test
fn what_the_eec_has_no_room_for_is_no_fault_of_the_rd_qp() {
    let mut scene = Scene::with(|terms| terms.half[B].max_dest_rd_atomic = 0);
    let (from, to) = (scene.here[0], scene.there[0]);
    let at = scene.pair.add_rd_in_reset(B, |_| ());
    for mut change in scene.pair.rd_changes(B) {
        change.max_dest_rd_atomic = change.max_dest_rd_atomic.map(|_| 1);
        scene.pair.world.modify(at, &change).unwrap();
    }
    let read = scene.pair.rd_read(from, at, 100);
    scene.run();
    scene.assert_ended(from, Side::Send, &[(read, WcStatus::RemInvReqErr)]);
    scene.assert_state(at, QpState::Rts);
    assert_eq!(scene.pair.take_events_at(at), []);
    scene.assert_state(to, QpState::Rts);
    scene.assert_eecs_live();
}

#[test] //= check R13 test
fn a_message_in_progress_to_a_former_life_does_not_fail_the_new_one() {
    let mut scene = Scene::untapped();
    let [to, other, _] = scene.there;
    scene.pair.rd_recv(to, 1000);
    let source = scene.pair.world.qp(scene.here[0]).qpn();
    let [to_qpn, other_qpn] = [to, other].map(|at| scene.pair.world.qp(at).qpn());
    let first = scene.pair.craft(A, OpCode::RD_SEND_FIRST).payload(&[1; 256]);
    let first = first.bth(|bth| bth.dest_qpn = to_qpn).ext(|ext| ext.deth.src_qpn = source);
    scene.pair.deliver(A, &first);
    lose(&mut scene, Loss::Renew);
    // A message that begins in the middle of the old one is an invalid request.
    let second = first.psn(scene.pair.psn(A, 1)).bth(|bth| bth.dest_qpn = other_qpn);
    scene.pair.deliver(A, &second);
    assert_eq!(scene.naks(B), [NakCode::InvalidRequest]);
    scene.assert_state(to, QpState::Rts);
    scene.assert_state(other, QpState::Rts);
}
