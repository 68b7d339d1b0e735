//! What a process holds of the machine for its identity: locks, and numbers in the local fabric.
//!
//! Invariants
//! - Children that a process forks share its locks, and have none of its numbers.
//!
//! Not here: the choice among identities ([`super::process`]).

use std::fmt;
use std::path::{Path, PathBuf};

use uroce::Config;
use uroce::config::{Ethdev, PortConfig};
use uroce::local::{Holder, LocalError, Reservation};

use super::claim::{self, Kind, Lock};
use super::config::{self, Identity};
use super::problem::Problem;

/// The member of the local fabric that a process prefers to be, where the configuration names none.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Wish {
    /// The member's number.
    pub(crate) number: Option<u8>,
    /// A number that the process leaves to another process.
    pub(crate) avoided: Option<u8>,
}

/// What a process holds for its identity, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    _lock: Lock,
    numbers: Vec<Reservation>,
}

/// A part of an identity that another process has.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The addresses of the identity, or its name for messages.
    pub(crate) what: String,
    /// The process, for messages.
    pub(crate) holder: String,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: {}", self.what, self.holder)
    }
}

impl Hold {
    /// Takes what the identity needs, including numbers of members, unless another process has any
    /// of it. Returns the configuration with these numbers.
    ///
    /// # Errors
    ///
    /// [`Problem`] if a lock cannot be made or tested. The inner `Err` lists what other processes
    /// have.
    pub(crate) fn take(
        identity: &Identity,
        wish: Wish,
    ) -> Result<Result<(Config, Hold), Vec<Taken>>, Problem> {
        let lock = match claim::take(Kind::Claim, &config::resources(&identity.config))? {
            Ok(lock) => lock,
            Err(holder) => {
                let what = config::title(identity);
                return Ok(Err(vec![Taken { what, holder: holder.to_string() }]));
            }
        };
        Ok(reserve(&identity.config, wish)?
            .map(|(config, numbers)| (config, Hold { _lock: lock, numbers })))
    }

    /// The configuration that [`take`](Hold::take) would return now. No lock or number is taken: a
    /// process that asks at this moment gets what it would get without this call.
    ///
    /// # Errors
    ///
    /// The errors of [`take`](Hold::take).
    #[allow(dead_code, reason = "uroce-run looks, the library takes")]
    pub(crate) fn preview(identity: &Identity) -> Result<Result<Config, Vec<Taken>>, Problem> {
        if let Some(holder) = claim::look(Kind::Claim, &config::resources(&identity.config))? {
            let what = config::title(identity);
            return Ok(Err(vec![Taken { what, holder: holder.to_string() }]));
        }
        let mut seen: Vec<(PathBuf, u8)> = Vec::new();
        number(&identity.config, Wish::default(), |directory, asked, _| {
            let here = seen.iter().filter(|(place, _)| place == directory);
            let avoided: Vec<u8> = here.map(|(_, number)| *number).collect();
            let number = Reservation::look(directory, asked, &avoided)?;
            seen.push((directory.to_owned(), number));
            Ok(number)
        })
    }

    /// Takes numbers of members anew: a forked child has none of its parent's.
    ///
    /// # Errors
    ///
    /// The errors of [`take`](Hold::take).
    pub(crate) fn renew(
        &mut self,
        identity: &Identity,
        wish: Wish,
    ) -> Result<Result<Config, Vec<Taken>>, Problem> {
        Ok(reserve(&identity.config, wish)?.map(|(config, numbers)| {
            self.numbers = numbers;
            config
        }))
    }

    /// Whether this process has all that was taken. A forked child has no numbers, nor has a
    /// program that has closed the library's files.
    pub(crate) fn is_whole(&self) -> bool {
        self.numbers.iter().all(Reservation::is_held)
    }
}

/// Reserves a number for each port of the local fabric.
#[allow(clippy::type_complexity, reason = "two kinds of failure")]
fn reserve(
    config: &Config,
    wish: Wish,
) -> Result<Result<(Config, Vec<Reservation>), Vec<Taken>>, Problem> {
    let mut numbers = Vec::new();
    let config = number(config, wish, |directory, asked, avoided| {
        let reservation = Reservation::take(directory, asked, avoided)?;
        numbers.push(reservation);
        Ok(numbers.last().map_or(0, Reservation::number))
    })?;
    Ok(config.map(|config| (config, numbers)))
}

/// Gives each port of the local fabric the number that `choose` chooses, which is called with the
/// fabric's directory, the number that is asked for, and the one that is avoided.
fn number(
    config: &Config,
    mut wish: Wish,
    mut choose: impl FnMut(&Path, Option<u8>, Option<u8>) -> Result<u8, LocalError>,
) -> Result<Result<Config, Vec<Taken>>, Problem> {
    let mut config = config.clone();
    for port in config.devices.iter_mut().flat_map(|device| &mut device.ports) {
        let Ethdev::Local(directory) = &port.ethdev else { continue };
        let asked = port.member.or_else(|| wish.number.take());
        match choose(directory, asked, wish.avoided) {
            Ok(number) => *port = port.clone().as_member(number),
            Err(LocalError::Taken(holder)) => return Ok(Err(vec![taken(port, &holder)])),
            Err(LocalError::Full { holders, .. }) => {
                return Ok(Err(holders.iter().map(|holder| taken(port, holder)).collect()));
            }
            Err(error) => return Err(Problem::Fabric { error }),
        }
    }
    Ok(Ok(config))
}

fn taken(port: &PortConfig, holder: &Holder) -> Taken {
    let port = port.clone().as_member(holder.number);
    let ip: Vec<String> = port.ip.iter().map(|own| own.address().to_string()).collect();
    let Holder { pid, program, .. } = holder;
    let holder = match pid {
        0 => "a process of another PID namespace".to_owned(),
        _ => format!("{} (process {pid})", if program.is_empty() { "?" } else { program }),
    };
    Taken { what: ip.join(", "), holder }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce::config::DeviceConfig;

    fn identity(fabric: &str, count: u8) -> Identity {
        let devices = (0..count)
            .map(|at| DeviceConfig::new(format!("d{at}")).port(PortConfig::local(fabric)));
        let config = devices.fold(Config::new(), Config::device);
        Identity { source: PathBuf::from("x"), config }
    }

    fn members(config: &Config) -> Vec<Option<u8>> {
        config.devices.iter().map(|device| device.ports[0].member).collect()
    }

    #[test]
    fn each_port_has_a_number_of_its_own_and_a_wish_is_the_first_ones() {
        let base = std::env::temp_dir().join(format!("uroce-hold-{}", std::process::id()));
        let fabric = base.display().to_string();
        let (one, hold) = Hold::take(&identity(&fabric, 2), Wish::default()).unwrap().unwrap();
        assert_eq!(members(&one), [Some(1), Some(2)]);
        assert_eq!(one.devices[1].ports[0].ip[0].to_string(), "192.0.2.2/24");
        assert!(hold.is_whole());
        // A look takes nothing.
        for _ in 0..2 {
            let seen = Hold::preview(&identity(&fabric, 2)).unwrap().unwrap();
            assert_eq!(members(&seen), [Some(3), Some(4)]);
        }
        let wish = Wish { number: Some(9), avoided: Some(3) };
        let (other, wished) = Hold::take(&identity(&fabric, 2), wish).unwrap().unwrap();
        assert_eq!(members(&other), [Some(9), Some(4)]);
        let taken = Hold::take(&identity(&fabric, 1), wish).unwrap().unwrap_err();
        let text = taken[0].to_string();
        assert!(text.starts_with("  192.0.2.9, 2001:db8::9: "), "{text}");
        assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
        drop(hold);
        let (next, _) = Hold::take(&identity(&fabric, 1), Wish::default()).unwrap().unwrap();
        assert_eq!(members(&next), [Some(1)]);
        drop(wished);
        std::fs::remove_dir_all(base).unwrap();
    }
}
