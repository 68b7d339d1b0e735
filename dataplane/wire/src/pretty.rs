//! One line per packet, in tcpdump's manner. For people; programs read the fields.

use core::fmt;

use crate::{Aeth, Datagram, ExtHeaders, Header, Packet, ParseError, Syndrome};

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        write!(f, "{} qp {} psn {}", self.op.name, bth.dest_qpn, bth.psn.value())?;
        let flags = [
            (bth.ack_req, "ackreq"),
            (bth.solicited, "se"),
            (bth.mig_req, "mig"),
            (bth.fecn, "fecn"),
            (bth.becn, "becn"),
        ];
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        for header in self.op.headers {
            write_header(f, *header, &self.ext)?;
        }
        write!(f, " len {}", self.payload.len())
    }
}

fn write_header(f: &mut fmt::Formatter<'_>, header: Header, ext: &ExtHeaders) -> fmt::Result {
    match header {
        Header::Rdeth => write!(f, " eec 0x{:06x}", ext.rdeth.eecn),
        Header::Deth => {
            write!(f, " from qp {} qkey 0x{:08x}", ext.deth.src_qpn, ext.deth.qkey.0)
        }
        Header::Xrceth => write!(f, " srq 0x{:06x}", ext.xrceth.srqn),
        Header::Reth => {
            let reth = &ext.reth;
            write!(f, " va {:?} rkey 0x{:08x} dma {}", reth.va, reth.rkey.0, reth.dma_len)
        }
        Header::AtomicEth => {
            let atomic = &ext.atomic;
            write!(f, " va {:?} rkey 0x{:08x}", atomic.va, atomic.rkey.0)?;
            write!(f, " swap/add 0x{:x} compare 0x{:x}", atomic.swap_add, atomic.compare)
        }
        Header::Aeth => write!(f, " {}", ext.aeth),
        Header::AtomicAckEth => write!(f, " was 0x{:x}", ext.atomic_ack.original),
        Header::ImmDt => write!(f, " imm 0x{:08x}", ext.imm.0),
        Header::Ieth => write!(f, " invalidate 0x{:08x}", ext.ieth.rkey.0),
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome {
            Syndrome::UNLIMITED => write!(f, "ack"),
            Syndrome::Ack { credits } => write!(f, "ack credits {credits}"),
            Syndrome::RnrNak { timer } => write!(f, "rnr-nak timer {timer}"),
            Syndrome::Nak(code) => write!(f, "nak {code:?}"),
            Syndrome::Reserved(byte) => write!(f, "syndrome 0x{byte:02x}"),
        }?;
        write!(f, " msn {}", self.msn.value())
    }
}

impl fmt::Display for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} sport {}", self.src.to_ip(), self.dst.to_ip(), self.src_port)?;
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {}/{}", vlan.vid, vlan.pcp)?;
        }
        write!(f, " tc 0x{:02x} ttl {}: ", self.traffic_class, self.hop_limit)?;
        match self.packet() {
            Ok(packet) => packet.fmt(f),
            Err(error @ ParseError::Icrc) => write!(f, "[{error}]"),
            Err(error) => write!(f, "[{error}], {} bytes", self.transport.len()),
        }
    }
}
