use super::*;
use Effect::{Goto, Migrates, Refused, Stay};

const STATES: [PathMigState; 3] =
    [PathMigState::Migrated, PathMigState::Rearm, PathMigState::Armed];
const EVENTS: [Event; 6] =
    [Event::Rearm, Event::Migrate, Event::Exhausted, Event::Ready, Event::Request, Event::Astray];

#[test] //= check I3 test
//= check I4 test
//= check I8 test
fn all_pairs_of_states_and_events() {
    let mut drawn = String::new();
    for state in STATES {
        drawn += &format!("{state:<9}");
        for event in EVENTS {
            let effect = match next(state, event) {
                Stay => "-".to_string(),
                Refused => "refused".to_string(),
                Goto(state) => format!("{state}"),
                Migrates => "migrates".to_string(),
            };
            drawn += &format!(" {effect:<9}");
        }
        drawn.truncate(drawn.trim_end().len());
        drawn.push('\n');
    }
    println!("{EVENTS:?}\n{drawn}");
    let table = "\
MIGRATED  REARM     refused   -         -         -         -
REARM     refused   refused   -         ARMED     migrates  -
ARMED     refused   migrates  migrates  -         migrates  refused
";
    assert_eq!(drawn, table);
}

#[test] //= check I8 test
fn software_never_arms() {
    for state in STATES {
        for event in [Event::Rearm, Event::Migrate] {
            assert_ne!(next(state, event), Goto(PathMigState::Armed));
        }
    }
}
