use super::*;
use crate::config::PortConfig;

fn config(lcores: [Lcores; 2]) -> Config {
    let port = || PortConfig::ring("r");
    let [first, second] = lcores;
    let device = |name: &str, lcores| DeviceConfig::new(name).lcores(lcores).port(port());
    Config::new().device(device("a", first)).device(device("b", second))
}

#[test]
fn the_thread_is_pinned_only_where_there_is_a_choice() {
    let ours: Vec<usize> =
        core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
    let one = Lcores::Count(1);
    let all = Lcores::Cpus(ours.clone());
    let cases = [
        ([one.clone(), one.clone()], None),
        ([all.clone(), one], None),
        ([all, Lcores::Cpus(vec![])], None),
        ([Lcores::Cpus(ours[1..].to_vec()), Lcores::Cpus(vec![])], Some(ours[0])),
    ];
    for (lcores, expected) in cases {
        let config = config(lcores);
        assert_eq!(choose_cpu(&config, &config.devices[0]), expected);
    }
    let mut config = config([Lcores::Count(1), Lcores::Count(1)]);
    config.devices[0].control_cpu = Some(3);
    assert_eq!(choose_cpu(&config, &config.devices[0]), Some(3));
}
