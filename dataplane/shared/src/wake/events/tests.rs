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

#[test]
fn the_last_event_of_a_port_is_its_state() {
    use EventKind::{PortActive, PortErr};
    let channel = channel(1);
    let port = channel.admit(Subject::Port(1)).unwrap();
    let cases: [(&[EventKind], &[EventKind]); 5] = [
        (&[PortErr, PortActive], &[PortErr, PortActive]),
        (&[PortActive, PortErr], &[PortErr]),
        (&[PortErr, PortActive, PortErr], &[PortErr]),
        (&[PortActive, PortErr, PortActive], &[PortErr, PortActive]),
        (&[PortActive], &[PortActive]),
    ];
    for (happened, expected) in cases {
        happened.iter().for_each(|kind| port.raise(*kind));
        let given: Vec<_> = std::iter::from_fn(|| next(&channel)).map(|(_, kind)| kind).collect();
        assert_eq!(given, expected, "{happened:?}");
        assert!(!is_readable(&channel));
    }
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

/// Sources fill several stretches of the ready queue, each with an event, while others come and go.
#[test]
fn many_sources_have_as_many_places_as_they_may_be() {
    const MANY: u32 = 5000;
    let channel = channel(MANY as usize);
    let admit = |number| channel.admit(Subject::Cq(number));
    let mut sources: Vec<_> = (0..MANY).map(|number| (number, admit(number).unwrap())).collect();
    assert!(admit(MANY).is_none());
    sources.iter().for_each(|(_, source)| source.raise(EventKind::CqErr));
    // Every third source leaves only its place, which another source then gets.
    sources.retain(|(number, _)| number % 3 != 0);
    let gone = MANY - sources.len() as u32;
    sources.extend((MANY..MANY + gone).map(|number| (number, admit(number).unwrap())));
    assert!(admit(0).is_none());
    sources.iter().for_each(|(_, source)| source.raise(EventKind::QpFatal));
    let mut given = std::collections::BTreeMap::new();
    while let Some((subject, kind)) = next(&channel) {
        let Subject::Cq(number) = subject else { panic!("{subject:?}") };
        given.entry(number).or_insert_with(Vec::new).push(kind);
    }
    assert_eq!(given.len(), MANY as usize);
    let both = [EventKind::QpFatal, EventKind::CqErr];
    for (number, kinds) in given {
        assert!(number >= MANY || number % 3 != 0, "{number} is gone");
        assert_eq!(kinds, if number < MANY { &both[..] } else { &both[..1] }, "{number}");
    }
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
    // The last raise of each lcore by kind, and the last raise that the taker had seen when it
    // took.
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
