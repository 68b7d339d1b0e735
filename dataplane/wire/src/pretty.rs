//! Formatting of packets for people: one line per packet, similar to tcpdump.

use core::fmt;

use crate::{
    Aeth, Datagram, ExtHeaders, Feth, Header, Packet, ParseError, Placement, Selectivity, Syndrome,
};

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
        Header::Xrceth => write!(f, " srq {}", ext.xrceth.srqn),
        Header::Feth => write!(f, " {}", ext.feth),
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

impl fmt::Display for Feth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selectivity {
            Selectivity::Range => write!(f, "range")?,
            Selectivity::Region => write!(f, "region")?,
            Selectivity::Reserved(level) => write!(f, "level {level}")?,
        }
        for (placement, name) in
            [(Placement::GLOBAL, "global"), (Placement::PERSISTENT, "persistent")]
        {
            if self.placement.contains(placement) {
                write!(f, " {name}")?;
            }
        }
        if self.placement.is_defined() { Ok(()) } else { write!(f, " plt {}", self.placement.0) }
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

#[cfg(test)]
mod tests {
    use crate::testing::{encap, frame};
    use crate::*;

    fn line(encap: &Encap, bth: Bth, ext: ExtHeaders) -> String {
        match Frame::parse(&frame(encap, &bth, &ext)) {
            Ok(Frame::Roce(datagram)) => datagram.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_write_shows_where_it_goes() {
        let bth = Bth {
            opcode: OpCode::RC_RDMA_WRITE_ONLY,
            pad_count: 3,
            dest_qpn: Qpn::new(0x11),
            ack_req: true,
            psn: Psn::new(5),
            ..Bth::default()
        };
        let reth = Reth { va: Va(0x1000), rkey: Rkey(0xabc), dma_len: 9 };
        let ext = ExtHeaders { reth, ..Default::default() };
        assert_eq!(
            line(&encap(true, true), bth, ext),
            "10.0.0.1 > 10.0.0.2 sport 49443 vlan 291/5 tc 0x6a ttl 64: RC RDMA WRITE Only \
             qp 0x000011 psn 5 ackreq va 0x1000 rkey 0x00000abc dma 9 len 9"
        );
    }

    #[test]
    fn acknowledgements_say_what_they_mean() {
        let bth = Bth { opcode: OpCode::RC_ACKNOWLEDGE, ..Bth::default() };
        let tail = |syndrome| {
            let aeth = Aeth { syndrome, msn: Msn::new(7) };
            let line = line(&encap(false, false), bth, ExtHeaders { aeth, ..Default::default() });
            let start = "2001:db8::1 > 2001:db8::2 sport 49443 tc 0x6a ttl 64: \
                         RC Acknowledge qp 0x000000 psn 0 ";
            line.strip_prefix(start).unwrap_or(&line).to_owned()
        };
        assert_eq!(tail(Syndrome::UNLIMITED), "ack msn 7 len 0");
        assert_eq!(tail(Syndrome::Ack { credits: 4 }), "ack credits 4 msn 7 len 0");
        assert_eq!(tail(Syndrome::RnrNak { timer: 12 }), "rnr-nak timer 12 msn 7 len 0");
        let refused = Syndrome::Nak(NakCode::RemoteAccessError);
        assert_eq!(tail(refused), "nak RemoteAccessError msn 7 len 0");
        assert_eq!(tail(Syndrome::Reserved(0x40)), "syndrome 0x40 msn 7 len 0");
    }

    #[test]
    fn a_flush_shows_how_far_and_how_much() {
        let bth = Bth { opcode: OpCode::RC_FLUSH, ..Bth::default() };
        let tail = |placement, selectivity| {
            let feth = Feth { placement, selectivity };
            let ext = ExtHeaders { feth, ..Default::default() };
            let line = line(&encap(true, false), bth, ext);
            line.split_once("RC FLUSH qp 0x000000 psn 0 ").unwrap().1.to_owned()
        };
        let both = Placement::GLOBAL.union(Placement::PERSISTENT);
        let rest = "va 0x0 rkey 0x00000000 dma 0 len 0";
        assert_eq!(tail(both, Selectivity::Range), format!("range global persistent {rest}"));
        assert_eq!(tail(Placement(0), Selectivity::Region), format!("region plt 0 {rest}"));
        let odd = tail(Placement(5), Selectivity::Reserved(2));
        assert_eq!(odd, format!("level 2 global plt 5 {rest}"));
    }

    #[test]
    fn a_spoiled_packet_shows_nothing_of_its_inside() {
        let bth = Bth { opcode: OpCode::RC_ACKNOWLEDGE, ..Bth::default() };
        let mut bytes = frame(&encap(true, false), &bth, &ExtHeaders::default());
        bytes[50] ^= 1;
        let Ok(Frame::Roce(datagram)) = Frame::parse(&bytes) else { panic!() };
        assert!(datagram.to_string().ends_with("ttl 64: [bad invariant CRC]"));
    }
}
