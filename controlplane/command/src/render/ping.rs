//! Text of `ping`.

use crate::answer::Ping;

/// Returns the result in the layout of Linux's `ping`.
pub(super) fn ping(of: &Ping) -> String {
    let Ping { device, peer, sent, rtt_ns } = of;
    let received = rtt_ns.len();
    let lost = u64::from(*sent).saturating_sub(received as u64) * 100;
    let lost = lost / u64::from(*sent).max(1);
    let mut text =
        format!("{peer} from {device}: {sent} requests, {received} answered, {lost} % loss\n");
    if let (Some(min), Some(max)) = (rtt_ns.iter().min(), rtt_ns.iter().max()) {
        let sum: u128 = rtt_ns.iter().map(|rtt| u128::from(*rtt)).sum();
        let avg = u64::try_from(sum / received as u128).unwrap_or(u64::MAX);
        let ms = |ns: u64| format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000);
        text.push_str(&format!("rtt min/avg/max = {}/{}/{} ms\n", ms(*min), ms(avg), ms(*max)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_times_are_summed_up() {
        let peer = "192.0.2.2".parse().unwrap();
        let of =
            Ping { device: "d".into(), peer, sent: 4, rtt_ns: vec![21_000, 1_500_999, 30_000] };
        assert_eq!(
            ping(&of),
            "192.0.2.2 from d: 4 requests, 3 answered, 25 % loss\n\
             rtt min/avg/max = 0.021/0.517/1.500 ms\n"
        );
        let none = Ping { sent: 0, rtt_ns: vec![], ..of };
        assert_eq!(ping(&none), "192.0.2.2 from d: 0 requests, 0 answered, 0 % loss\n");
    }
}
