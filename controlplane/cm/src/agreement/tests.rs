use super::*;

const OFFER: [u8; TAG_LEN] = [0xf1, 0x75, 0x72, 0x6f, 0xce, 1, 1, 1];
const ANSWER: [u8; TAG_LEN] = [0xf1, 0x75, 0x72, 0x6f, 0xce, 1, 2, 1];

/// Private data that ends with these bytes.
fn ending<const MAX: usize>(end: [u8; TAG_LEN]) -> PrivateData<MAX> {
    let mut data = [0; MAX];
    data[..5].copy_from_slice(b"hello");
    data[MAX - TAG_LEN..].copy_from_slice(&end);
    PrivateData(data)
}

/// All ends that differ from `tag` in one byte, and do not only add unknown features.
fn alike(tag: [u8; TAG_LEN]) -> impl Iterator<Item = [u8; TAG_LEN]> {
    let values = (0..TAG_LEN - 1).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value)));
    let changed = values.map(move |(at, value)| {
        let mut other = tag;
        other[at] = value;
        other
    });
    changed.filter(move |other| *other != tag)
}

#[test] //= check A28 test
fn an_offer_and_its_answer_are_read_as_written() {
    let mut req = ending::<92>([0; TAG_LEN]);
    assert_eq!(Features::SELECTIVE_REPEAT.offer(&mut req), Features::SELECTIVE_REPEAT);
    assert_eq!(req, ending(OFFER));
    assert_eq!(split_offer(req), (Features::SELECTIVE_REPEAT, ending([0; TAG_LEN])));

    let offered = Features::SELECTIVE_REPEAT;
    let mut rep = ending::<196>([0; TAG_LEN]);
    assert_eq!(Features::SELECTIVE_REPEAT.answer(offered, &mut rep), Features::SELECTIVE_REPEAT);
    assert_eq!(rep, ending(ANSWER));
    assert_eq!(split_answer(offered, rep), (Features::SELECTIVE_REPEAT, ending([0; TAG_LEN])));
}

#[test] //= check A28 test
fn nothing_is_written_where_nothing_is_offered_or_agreed_on() {
    let (mut req, mut rep) = (PrivateData::default(), PrivateData::default());
    assert_eq!(Features::NONE.offer(&mut req), Features::NONE);
    assert_eq!(Features::NONE.answer(Features::SELECTIVE_REPEAT, &mut rep), Features::NONE);
    assert_eq!(Features::SELECTIVE_REPEAT.answer(Features::NONE, &mut rep), Features::NONE);
    assert_eq!((req, rep), (PrivateData::default(), PrivateData::default()));
}

#[test] //= check A28 test
fn private_data_that_leaves_no_room_stays_as_it_is() {
    for at in 0..TAG_LEN {
        let mut end = [0; TAG_LEN];
        end[at] = 1;
        let (mut req, mut rep) = (ending(end), ending(end));
        let offered = Features::SELECTIVE_REPEAT;
        assert_eq!(offered.offer(&mut req), Features::NONE);
        assert_eq!(offered.answer(offered, &mut rep), Features::NONE);
        assert_eq!((req, rep), (ending(end), ending(end)));
    }
}

#[test] //= check A28 test
fn other_bytes_are_private_data_and_no_tag() {
    let offered = Features::SELECTIVE_REPEAT;
    let ends = alike(OFFER).filter(|end| *end != OFFER);
    for end in ends.chain([[0; TAG_LEN], [0xff; TAG_LEN], *b"whatever"]) {
        assert_eq!(split_offer(ending(end)), (Features::NONE, ending(end)), "{end:x?}");
    }
    for end in alike(ANSWER).chain([[0; TAG_LEN], [0xff; TAG_LEN], *b"whatever"]) {
        assert_eq!(split_answer(offered, ending(end)), (Features::NONE, ending(end)), "{end:x?}");
    }
}

#[test] //= check A28 test
fn an_answer_counts_only_for_what_was_offered() {
    let answer = split_answer(Features::NONE, ending(ANSWER));
    assert_eq!(answer, (Features::NONE, ending(ANSWER)), "nothing was offered");
    for features in (0..=u8::MAX).filter(|features| *features != 1) {
        let mut end = ANSWER;
        end[7] = features;
        let answer = split_answer(Features::SELECTIVE_REPEAT, ending(end));
        assert_eq!(answer, (Features::NONE, ending(end)), "{features:#x}");
    }
}

#[test] //= check A28 test
fn of_an_offer_with_unknown_features_the_known_ones_count() {
    for features in 1..=u8::MAX {
        let mut end = OFFER;
        end[7] = features;
        let (offered, data) = split_offer(ending(end));
        assert_eq!(offered.has_selective_repeat(), features & 1 == 1, "{features:#x}");
        assert_eq!((offered.0 & !1, data), (0, ending([0; TAG_LEN])), "{features:#x}");
    }
}
