use super::*;

const STATES: [State; 12] = [
    State::Idle,
    State::Calling,
    State::Offering,
    State::Resolving,
    State::Probing,
    State::Choosing,
    State::Accepted,
    State::Loading,
    State::Arming,
    State::Armed,
    State::Moved,
    State::Foreign,
];
const EVENTS: [Event; 18] = [
    Event::Due,
    Event::Ask,
    Event::Spent,
    Event::Silent,
    Event::Got(Kind::Offer),
    Event::Got(Kind::Accept),
    Event::Got(Kind::Refuse),
    Event::Got(Kind::Probe),
    Event::Got(Kind::Ready),
    Event::Got(Kind::Call),
    Event::Declined,
    Event::Found,
    Event::Lost,
    Event::Loaded,
    Event::Failed,
    Event::Ready,
    Event::Moved,
    Event::Again,
];

#[test]
fn all_pairs_of_states_and_events() {
    let mut drawn = String::new();
    for state in STATES {
        let to = |event: &Event| {
            let (state, action) = next(state, *event)?;
            Some(format!("{event:?} {state:?} {action:?}"))
        };
        // A migration and a change of the paths are the same in all states.
        let own = EVENTS[..EVENTS.len() - 2].iter();
        let row: Vec<String> = own.filter_map(to).collect();
        drawn += &format!("{state:?}: {}\n", row.join(", "));
    }
    println!("{drawn}");
    let offered = "Got(Offer) Choosing Choose";
    let called = "Got(Call) Offering Send(Offer)";
    let refused = "Got(Refuse) Idle Wait";
    let declined = "Declined Foreign Stop";
    let table = format!(
        "\
Idle: Due Offering Send(Offer), Ask Calling Send(Call), {offered}, {called}
Calling: Due Calling Send(Call), Spent Idle Wait, Silent Foreign Stop, {offered}
Offering: Due Offering Send(Offer), Spent Idle Wait, Silent Foreign Stop, \
         Got(Accept) Resolving Resolve, {refused}, {declined}, Lost Idle Wait
Resolving: Found Probing Send(Probe), Lost Idle Wait
Probing: Due Probing Send(Probe), Spent Idle Wait, Got(Ready) Loading Load
Choosing: Found Accepted Send(Accept), Lost Idle Send(Refuse)
Accepted: Ask Calling Send(Call), {offered}, Got(Probe) Loading Load
Loading: Loaded Arming Loaded, Failed Idle Wait
Arming: Due Arming Look, {offered}, Got(Probe) Arming Send(Ready), Failed Idle Wait, \
         Ready Armed Armed
Armed: Due Armed Look, {offered}, Got(Probe) Armed Send(Ready), {called}, Failed Idle Wait
Moved: Due Moved Nudge, Spent Idle Wait
Foreign: {offered}, {refused}, {called}, {declined}
"
    );
    assert_eq!(drawn, table);
}

#[test]
fn a_migration_and_other_paths_begin_anew_in_each_state() {
    for state in STATES {
        assert_eq!(next(state, Event::Moved), Some((State::Moved, Action::Nudge)));
        assert_eq!(next(state, Event::Again), Some((State::Idle, Action::Wait)));
    }
}
