//! `port`, `show rxq`, `show txq`, and the settings of ports.

use std::sync::Arc;

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::Select;
use uroce_command::answer::QueueInfo;
use uroce_command::request::{Ip, Port, Prefix, ShowQueue};

use uroce_engine::DeviceError;
use uroce_engine::port::PortError;

use super::{Console, Failure, Served, find_port, or_nothing};
use crate::path::prefix::IpPrefix;
use crate::thread::{AddressError, PortSeen, Thread};

/// Where a port's addresses are found.
const LIST: &str = "`show gid` has its addresses";

impl Console {
    pub(super) fn port(&mut self, port: &Port, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        match port {
            Port::Start { port } => {
                set_links(*port, true, devices)?;
                Ok(Answer::Text("Done".to_owned()))
            }
            Port::Stop { port, force } => {
                self.check_device_free(*port, *force, devices)?;
                set_links(*port, false, devices)?;
                Ok(Answer::Text("Stopping ports...\nDone".to_owned()))
            }
            Port::Reset { port, force } => {
                self.check_device_free(*port, *force, devices)?;
                each_device(*port, devices, Thread::reset_port)?;
                Ok(Answer::Text("Resetting ports...\nDone".to_owned()))
            }
            Port::Close { port, force } | Port::Detach { port, force } => {
                self.check_device_free(*port, *force, devices)?;
                each_device(*port, devices, Thread::remove_port)?;
                Ok(Answer::Text("Closing ports...\nDone".to_owned()))
            }
            Port::Attach { devargs, port } => attach(devargs, *port, devices),
            Port::Config(_) => Err(fixed(
                "MTU, queues and descriptors are set when a port is opened",
                "start again with --mtu, or `mtu`, `lcores`, `rx_descriptors`, `tx_descriptors` in \
                 the configuration file",
            )),
        }
    }

    /// Checks that the devices of ports may be taken from their users.
    fn check_device_free(
        &self,
        port: Select,
        force: bool,
        devices: &[Arc<Served>],
    ) -> Result<(), Failure> {
        self.forwarding.check_stopped()?;
        let ports = selected(port, devices)?;
        let harm = "which would get no packet";
        match force {
            true => Ok(()),
            false => ports.iter().try_for_each(|(served, _)| harmless(served, harm)),
        }
    }

    /// Changes the addresses of a port.
    pub(super) fn ip(ip: Ip, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let (port, Prefix { address, len }, is_added, force) = match ip {
            Ip::Add { port, prefix } => (port, prefix, true, true),
            Ip::Del { port, prefix, force } => (port, prefix, false, force),
        };
        let prefix = IpPrefix::new(address, len).map_err(|error| {
            Failure::new(Errno::INVAL, error.to_string(), "give it as 192.0.2.1/24")
        })?;
        let (served, number) = find_port(port, devices)?;
        if !force {
            harmless(&served, &format!("which gets no answers to {address} any more"))?;
        }
        let call = move |thread: &mut Thread| Ok(thread.change_address(number, prefix, is_added));
        let Err(error) = served.calls.call(call)? else { return Ok(Answer::Done) };
        let (errno, remedy) = match error {
            AddressError::Elsewhere(number, prefix) => {
                let ports = served.calls.call(|thread| Ok(thread.ports_seen()))?;
                let holder = ports.iter().find(|of| of.number == number).map(|of| of.id);
                let place = holder.map_or("there".to_owned(), |id| format!("from port {id}"));
                (Errno::EXIST, format!("remove {} {place} first: ip del", prefix.address()))
            }
            AddressError::OfNetdev => {
                (Errno::OPNOTSUPP, "change those: ip address add, ip address del".to_owned())
            }
            AddressError::OverUdp => (
                Errno::OPNOTSUPP,
                "change those of its network interface (ip address), or `ip` in the configuration \
                 file, and start again"
                    .to_owned(),
            ),
            AddressError::Mtu(_) => {
                (Errno::INVAL, "start again with a larger `mtu`, or add an IPv4 address".to_owned())
            }
            AddressError::Present(_) => (Errno::EXIST, LIST.to_owned()),
            AddressError::Full => (Errno::NOSPC, format!("remove one first; {LIST}")),
            AddressError::Absent(_) => (Errno::NOENT, LIST.to_owned()),
            AddressError::OtherLength(own) => (Errno::NOENT, format!("name it as {own}")),
        };
        Err(Failure::new(errno, format!("port {port}: {error}"), remedy))
    }

    /// Answers with the settings of a queue.
    pub(super) fn queue(
        &self,
        show: ShowQueue,
        is_tx: bool,
        devices: &[Arc<Served>],
    ) -> Result<Answer, Failure> {
        let ShowQueue::Info { port, queue } = show;
        let (served, number) = find_port(port, devices)?;
        let config = &served.config.ports[usize::from(number) - 1];
        let ports = served.calls.call(|thread| Ok(thread.ports_seen()))?;
        // A port may have fewer queue pairs than its device has lcores.
        let pairs = ports.iter().find(|port| port.number == number).map(|port| port.queue_pairs);
        if pairs.is_none_or(|pairs| queue >= pairs) {
            let kind = if is_tx { "TX queue" } else { "RX queue" };
            return Err(Failure::absent(kind, &queue.to_string(), "show config rxtx"));
        }
        let descriptors = if is_tx { config.tx_descriptors } else { config.rx_descriptors };
        Ok(Answer::QueueInfo(QueueInfo {
            port: port.into(),
            queue,
            is_tx,
            descriptors: config.ethdev.has_descriptors().then_some(descriptors),
            mbufs: config.mbufs,
            // An lcore polls the queue with its own number.
            lcore: queue.into(),
        }))
    }
}

/// Creates the failure of a command that sets what cannot change while the process runs.
pub(super) fn fixed(what: &str, remedy: &str) -> Failure {
    let cause = format!("{what}, and not while the process runs");
    Failure::new(Errno::OPNOTSUPP, cause, remedy)
}

/// Returns the selected ports: for each, its device and its number there.
fn selected(port: Select, devices: &[Arc<Served>]) -> Result<Vec<(Arc<Served>, u8)>, Failure> {
    if let Select::One(number) = port {
        let of = u16::try_from(number).map_err(|_| absent(number))?;
        return Ok(vec![find_port(of, devices)?]);
    }
    let all = all_ports(devices)?;
    Ok(all.into_iter().map(|(served, port)| (served, port.number)).collect())
}

/// Returns all ports of the process.
fn all_ports(devices: &[Arc<Served>]) -> Result<Vec<(Arc<Served>, PortSeen)>, Failure> {
    let mut all = Vec::new();
    for served in devices {
        let ports = or_nothing(served.calls.call(|thread| Ok(thread.ports_seen())))?;
        all.extend(ports.into_iter().map(|port| (Arc::clone(served), port)));
    }
    Ok(all)
}

/// Opens a DPDK device in place of a port's closed one.
fn attach(devargs: &str, port: Option<u16>, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
    let all = all_ports(devices)?;
    let of = |id: u16| all.iter().find(|(_, seen)| seen.id == id).ok_or_else(|| absent(id.into()));
    let (served, closed) = match port {
        Some(id) => of(id)?,
        None => all.iter().find(|(_, seen)| seen.is_removed).ok_or_else(|| {
            let remedy = "`port detach` the port that is to get it, or name it at the start: \
                          --vdev or -a, or `ethdev` in the configuration file";
            let cause =
                "no port is without a device, and an RDMA device's number of ports is fixed";
            Failure::new(Errno::OPNOTSUPP, cause, remedy)
        })?,
    };
    let (number, named) = (closed.number, devargs.to_owned());
    let attached = served.calls.call(move |thread| Ok(thread.attach_port(number, &named)))?;
    attached.map_err(|error| not_attached(&error))?;
    let text = format!(
        "Attaching a new port...\nPort {} is attached. Now total ports is {}\nDone",
        closed.id,
        all.len()
    );
    Ok(Answer::Text(text))
}

fn not_attached(error: &DeviceError) -> Failure {
    use PortError::{AlreadyOpen, Argument, Mtu, NoDevice, NoNic, PoolRoom, QueuePairs};
    let text = error.to_string();
    let (errno, remedy) = match error {
        DeviceError::NoHardware(_) => {
            (Errno::OPNOTSUPP, "name a port that was detached, closed or unplugged")
        }
        DeviceError::Port(AlreadyOpen { .. }) => {
            (Errno::BUSY, "`port detach` it first, from the port that has it")
        }
        DeviceError::Port(QueuePairs { .. }) => {
            (Errno::INVAL, "each lcore needs a queue pair: name a device that has as many")
        }
        DeviceError::Port(NoNic { .. }) => (Errno::INVAL, "name a NIC by its PCI address"),
        DeviceError::Port(Mtu { .. } | PoolRoom { .. }) => {
            (Errno::INVAL, "the port keeps its MTU: name a device that carries it")
        }
        DeviceError::Port(Argument { .. }) => (Errno::INVAL, "the port stays without a device"),
        DeviceError::Port(NoDevice { .. }) => {
            (Errno::NODEV, "name a device that DPDK has: a PCI address, or a driver's name")
        }
        _ => (Errno::IO, "the port stays without a device; attach this or another one again"),
    };
    // DPDK's log follows the cause; the remedy that is known for it is the better one.
    Failure::new(errno, uroce_engine::eal::explained(&text).unwrap_or(text), remedy)
}

fn absent(port: u32) -> Failure {
    Failure::absent("port", &port.to_string(), "show port summary all")
}

/// Takes the links of ports up or down.
fn set_links(port: Select, is_up: bool, devices: &[Arc<Served>]) -> Result<(), Failure> {
    for (served, number) in selected(port, devices)? {
        let done = served.calls.call(move |thread| thread.set_link(number, is_up));
        or_nothing(done)?;
    }
    Ok(())
}

/// Does the same to the devices behind ports, one after the other. Of `all`, those that are no NICs
/// or were removed before are passed over, unless there are no others.
fn each_device(
    port: Select,
    devices: &[Arc<Served>],
    change: fn(&mut Thread, u8) -> Result<(), DeviceError>,
) -> Result<(), Failure> {
    let (mut any, mut passed) = (false, None);
    for (served, number) in selected(port, devices)? {
        match served.calls.call(move |thread| Ok(change(thread, number)))? {
            Ok(()) => any = true,
            Err(error) if port == Select::All && is_not_there(&error) => passed = Some(error),
            Err(error) => return Err(not_changed(error)),
        }
    }
    passed.filter(|_| !any).map_or(Ok(()), |error| Err(not_changed(error)))
}

fn is_not_there(error: &DeviceError) -> bool {
    use DeviceError::{NoHardware, Port};
    matches!(error, NoHardware(_) | Port(PortError::Removed { .. }))
}

fn not_changed(error: DeviceError) -> Failure {
    let (errno, remedy) = match &error {
        DeviceError::NoHardware(_) => {
            (Errno::OPNOTSUPP, "`port stop` and `port start` take its link down and up")
        }
        DeviceError::Port(PortError::Removed { .. }) => {
            (Errno::NODEV, "`port attach` a device in its place when the machine has one")
        }
        DeviceError::Control(_) => (Errno::IO, "`port reset` it again when the lcore runs"),
        _ => (Errno::IO, "`port reset` it again; if that fails, bind the NIC to its driver again"),
    };
    Failure::new(errno, error.to_string(), remedy)
}

/// Checks that a device does not serve a program, to which the command would do this harm.
fn harmless(served: &Served, harm: &str) -> Result<(), Failure> {
    if served.config.forwards {
        return Ok(());
    }
    let cause = format!("{} serves a program, {harm}", served.config.name);
    Err(Failure::new(Errno::PERM, cause, "add --force if that is meant"))
}
