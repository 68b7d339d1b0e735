//! Why a device does not start: the errno for the program, and a text with advice for its user.

use std::io;

use uroce::{ConfigError, EalError, EngineError, OpenError, PortError, ThreadError};

use super::keep;
use super::problem::advice;
use super::say::say;
use crate::errno::Errno;

const DROPPED: &str = "\nThe process has changed its user since it opened the device. Make a \
    completion queue before, or start the program with uroce-run.";
const BUSY: &str = "\nAnother process listens there: end it, or configure another socket.";
const PERMISSION: &str = "\nRun it as a user with permission, or choose another device.";
const DEVICE: &str = "\nCheck the device's name, whether DPDK has a driver for it, and whether \
    this user may use it. dpdk-devbind.py --status lists NICs; kernel interfaces need CAP_NET_RAW.";
const CONFIGURATION: &str = "\nCorrect the configuration.";
const LOG: &str = "\nSet log = \"debug\" under [eal] in the configuration to see why.";

/// Prints why the engine cannot be started, for an error of the operating system.
pub(super) fn cannot(error: &io::Error) -> Errno {
    say(&format!("the engine cannot start: {error}{}", advice(error)));
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO).into()
}

/// Prints why a device does not start and what may help.
pub(super) fn failed(name: &str, error: &OpenError) -> Errno {
    let text = error.to_string();
    let (errno, help) = classify(error, keep::has_changed_user());
    let text = uroce::explained(&text).unwrap_or_else(|| format!("{text}{help}"));
    say(&format!("{name} does not start: {text}"));
    errno
}

/// The errno for the program, and advice for its user.
fn classify(error: &OpenError, has_changed_user: bool) -> (Errno, &'static str) {
    let errnos = error.errnos();
    let has = |errno: Errno| errnos.contains(&errno.code());
    if has_changed_user && (has(Errno::EACCES) || has(Errno::EPERM)) {
        return (Errno::EACCES, DROPPED);
    }
    let scarce = [Errno::EMFILE, Errno::EAGAIN, Errno::ENOMEM].into_iter().find(|it| has(*it));
    if let Some(errno) = scarce {
        return (errno, advice(&io::Error::from_raw_os_error(errno.code())));
    }
    match error {
        _ if has(Errno::EADDRINUSE) => (Errno::EBUSY, BUSY),
        _ if has(Errno::EACCES) => (Errno::EACCES, PERMISSION),
        // Their texts have the remedy.
        OpenError::Port { error: PortError::SwitchTaken { .. }, .. } => (Errno::EBUSY, ""),
        OpenError::Port { error: PortError::Switch { .. }, .. } => (Errno::ENODEV, ""),
        OpenError::Port { error: PortError::Argument { .. }, .. } => (Errno::EINVAL, ""),
        OpenError::Port { error: PortError::NoDevice { .. }, .. }
        | OpenError::Config(ConfigError::UnknownDevice(_)) => (Errno::ENODEV, DEVICE),
        OpenError::Eal(EalError::Nic { .. }) => (Errno::ENODEV, ""),
        OpenError::Container(_) => (Errno::ENOMEM, ""),
        OpenError::Eal(EalError::Affinity(_)) if has(Errno::EINVAL) => (Errno::EINVAL, ""),
        OpenError::Engine(EngineError::Thread { error: ThreadError::Cpu(_), .. }) => {
            (Errno::EINVAL, "")
        }
        OpenError::Config(_) | OpenError::NoNetdev { .. } => (Errno::ENODEV, CONFIGURATION),
        _ => (Errno::EIO, LOG),
    }
}

#[cfg(test)]
mod tests {
    use uroce::ContainerError;

    use super::*;

    fn system(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.code())
    }

    /// A port that the driver refuses, with DPDK's errno and log.
    fn no_device(errno: i32, log: &str) -> OpenError {
        let error = io::Error::from_raw_os_error(errno);
        let error = PortError::NoDevice { device: "net_x".into(), error, log: log.into() };
        OpenError::Port { port: 1, error }
    }

    #[test]
    fn each_class_of_errors_has_an_errno_and_advice() {
        let memif = PortError::Memif { reason: "x", error: system(Errno::EADDRINUSE) };
        let switch = |errno| {
            let error =
                PortError::Switch { socket: "/s".into(), reason: "x", error: system(errno) };
            OpenError::Port { port: 1, error }
        };
        let taken = PortError::SwitchTaken { socket: "/s".into(), holder: "x".into() };
        let nic = EalError::Nic { address: "0000:03:00.0".into(), reason: "x".into() };
        let refused = EalError::Arguments { log: String::new() };
        let cases = [
            (OpenError::Thread(system(Errno::EMFILE)), Errno::EMFILE, "ulimit -n"),
            (OpenError::Thread(system(Errno::EAGAIN)), Errno::EAGAIN, "ulimit -u"),
            (EalError::NoMemory { log: String::new() }.into(), Errno::ENOMEM, "memory_mb"),
            (OpenError::Port { port: 1, error: memif }, Errno::EBUSY, BUSY),
            (switch(Errno::EADDRINUSE), Errno::EBUSY, BUSY),
            (switch(Errno::ETIMEDOUT), Errno::ENODEV, ""),
            (OpenError::Port { port: 1, error: taken }, Errno::EBUSY, ""),
            (switch(Errno::EACCES), Errno::EACCES, PERMISSION),
            (OpenError::Netdevs(system(Errno::EACCES)), Errno::EACCES, PERMISSION),
            (EalError::Permission { log: String::new() }.into(), Errno::EACCES, PERMISSION),
            (no_device(libc::ENODEV, ""), Errno::ENODEV, DEVICE),
            (ConfigError::UnknownDevice("x".into()).into(), Errno::ENODEV, DEVICE),
            (nic.into(), Errno::ENODEV, ""),
            (ConfigError::Syntax("x".into()).into(), Errno::ENODEV, CONFIGURATION),
            (OpenError::NoNetdev { port: 1, name: "x".into() }, Errno::ENODEV, CONFIGURATION),
            (refused.into(), Errno::EIO, LOG),
        ];
        for (error, errno, help) in cases {
            let (found, advice) = classify(&error, false);
            assert_eq!(found, errno, "{error}");
            assert!(advice.contains(help) && advice.is_empty() == help.is_empty(), "{error}");
        }
    }

    #[test]
    fn the_log_of_dpdk_decides_where_it_returns_no_errno() {
        let cases = [
            ("mmap failed: Resource temporarily unavailable", Errno::EAGAIN),
            ("Cannot allocate memory", Errno::ENOMEM),
            ("Cannot open /dev/vfio/7: Permission denied", Errno::EACCES),
            ("could not open AF_PACKET socket:Operation not permitted", Errno::ENODEV),
        ];
        for (log, errno) in cases {
            // As drivers return it: -1.
            assert_eq!(classify(&no_device(libc::EPERM, log), false).0, errno, "{log}");
        }
    }

    #[test]
    fn a_permission_error_after_a_change_of_user_names_the_change() {
        for error in [no_device(libc::EPERM, ""), no_device(libc::EACCES, "")] {
            assert_eq!(classify(&error, true), (Errno::EACCES, DROPPED));
        }
        let other = OpenError::Thread(system(Errno::EMFILE));
        assert_eq!(classify(&other, true).0, Errno::EMFILE);
    }

    #[test]
    fn limits_of_the_container_have_their_errno_and_their_remedy_in_the_error() {
        let (limit_mb, memory_mb) = (100, 512);
        let cpu = ThreadError::Cpu(7);
        let cases: [(OpenError, Errno, &str); 4] = [
            (
                ContainerError::Memory { limit_mb, memory_mb }.into(),
                Errno::ENOMEM,
                "resources.limits.memory",
            ),
            (
                ContainerError::Hugepages { limit_mb, memory_mb }.into(),
                Errno::ENOMEM,
                "resources.limits.hugepages-2Mi",
            ),
            (
                EngineError::Thread { lcore: 0, error: cpu }.into(),
                Errno::EINVAL,
                "resources.limits.cpu",
            ),
            (EalError::Affinity(system(Errno::EINVAL)).into(), Errno::EINVAL, "control_cpus"),
        ];
        for (error, errno, field) in cases {
            assert_eq!(classify(&error, false), (errno, ""), "{error}");
            assert!(error.to_string().contains(field), "{error}");
        }
        let threads = EalError::Affinity(system(Errno::EAGAIN)).into();
        assert_eq!(classify(&threads, false).0, Errno::EAGAIN);
    }

    #[test]
    fn the_text_of_an_error_does_not_decide() {
        let named =
            ConfigError::Value { field: "eal.memory_mb".into(), reason: "too small".into() };
        assert_eq!(classify(&named.into(), false), (Errno::ENODEV, CONFIGURATION));
    }
}
