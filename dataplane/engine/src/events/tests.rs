use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

fn channel(sources: usize) -> Arc<EventChannel> {
    EventChannel::new(sources).unwrap()
}

fn next(channel: &Arc<EventChannel>) -> Option<(Subject, EventKind)> {
    channel.try_next().unwrap().map(|event| (event.subject, event.kind))
}

fn is_readable(channel: &EventChannel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn each_kind_is_given_once_until_it_happens_again() {
    let channel = channel(2);
    let (a, b) = (channel.admit(Subject::Cq(1)).unwrap(), channel.admit(Subject::Cq(2)).unwrap());
    assert!(!is_readable(&channel));
    a.raise(EventKind::QpFatal);
    b.raise(EventKind::CqErr);
    a.raise(EventKind::QpFatal);
    a.raise(EventKind::CommEst);
    assert!(is_readable(&channel));
    let all: Vec<_> = std::iter::from_fn(|| next(&channel)).collect();
    let of_a = |kind| (Subject::Cq(1), kind);
    let b = (Subject::Cq(2), EventKind::CqErr);
    assert_eq!(all, [of_a(EventKind::CommEst), b, of_a(EventKind::QpFatal)]);
    assert!(!is_readable(&channel), "as many tokens as entries");
    a.raise(EventKind::QpFatal);
    assert_eq!(next(&channel), Some(of_a(EventKind::QpFatal)));
}

#[test] //= check G10 test
fn a_closed_source_gives_no_event_and_makes_room() {
    let channel = channel(2);
    let kept = channel.admit(Subject::Cq(0)).unwrap();
    for round in 1..100 {
        let source = channel.admit(Subject::Cq(round)).expect("the closed ones make room");
        assert!(channel.admit(Subject::Cq(1000)).is_none(), "two are there");
        source.raise(EventKind::CqErr);
        drop(source);
    }
    kept.raise(EventKind::CqErr);
    assert_eq!(next(&channel), Some((Subject::Cq(0), EventKind::CqErr)));
    assert_eq!(next(&channel), None);
}

#[test] //= check G10 test
fn closing_waits_for_the_acknowledgement_and_not_for_more() {
    let channel = channel(2);
    let source = channel.admit(Subject::Cq(0)).unwrap();
    source.raise(EventKind::CqErr);
    source.raise(EventKind::QpFatal);
    let event = channel.try_next().unwrap().unwrap();
    let acknowledged = Arc::new(AtomicBool::new(false));
    let closer = std::thread::spawn({
        let acknowledged = Arc::clone(&acknowledged);
        move || {
            source.close();
            assert!(acknowledged.load(Ordering::SeqCst), "did not wait");
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!closer.is_finished());
    assert_eq!(next(&channel), None, "the other event died with its source");
    acknowledged.store(true, Ordering::SeqCst);
    drop(event);
    closer.join().unwrap();
}

/// Lcores raise both of their kinds again and again while a thread takes events: after the last
/// raise of a kind there is always an event of it.
#[test]
fn no_event_is_lost() {
    const ROUNDS: u32 = 20_000;
    const KINDS: [EventKind; 2] = [EventKind::CommEst, EventKind::CqErr];
    let channel = channel(3);
    // What each lcore has told so far by kind; what the taker had seen told when it took.
    let told: [[AtomicU32; 2]; 3] = Default::default();
    let mut seen = [[0; 2]; 3];
    std::thread::scope(|scope| {
        let lcores: Vec<_> = (0..3u32)
            .map(|lcore| {
                let source = channel.admit(Subject::Cq(lcore)).unwrap();
                let told = &told[lcore as usize];
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let which = (round % 2) as usize;
                        told[which].store(round, Ordering::Relaxed);
                        source.raise(KINDS[which]);
                    }
                    source
                })
            })
            .collect();
        let mut take = || {
            while let Some((Subject::Cq(lcore), kind)) = next(&channel) {
                let which = KINDS.iter().position(|&known| known == kind).unwrap();
                let lcore = lcore as usize;
                seen[lcore][which] = told[lcore][which].load(Ordering::Relaxed);
            }
        };
        while !lcores.iter().all(|lcore| lcore.is_finished()) {
            take();
        }
        take();
        let _sources: Vec<_> = lcores.into_iter().map(|lcore| lcore.join().unwrap()).collect();
    });
    assert_eq!(seen, [[ROUNDS, ROUNDS - 1]; 3]);
}
