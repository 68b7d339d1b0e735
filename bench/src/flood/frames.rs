//! The bad frames. Each has one fault and is otherwise correct.

use crate::error::BenchError;
use crate::perf::traffic::End;
use uroce::{Context, Gid, Mac, Pkey, Psn, Qpn, Rkey, Va};
use uroce_wire::{Bth, Encap, ExtHeaders, OpCode, Reth, emit_headers, seal};

/// Payload bytes of a frame.
const PAYLOAD: usize = 64;
/// Bytes of the invariant CRC.
const ICRC: usize = 4;
/// Offset of the UDP length, after Ethernet, IPv4 and the two UDP ports.
const UDP_LENGTH: usize = 14 + 20 + 4;
/// An opcode that no service defines.
const RESERVED: u8 = 0x1f;

/// Destination of the frames.
pub(super) struct Aim {
    path: Encap,
}

impl Aim {
    /// Creates the destination for the last port of a device.
    pub(super) fn at(server: &Context) -> Result<Self, BenchError> {
        let port = server.ports().pop().filter(|port| !port.gids.is_empty());
        let port = port.ok_or_else(|| BenchError::usage("the flooded port has no address"))?;
        let path = Encap {
            src_mac: Mac([2, 0, 0, 0, 0, 0x66]),
            dst_mac: port.mac,
            src: Gid::from(std::net::Ipv4Addr::new(198, 18, 1, 99)),
            dst: port.gids[0],
            hop_limit: 64,
            src_port: 0xc000,
            ..Encap::default()
        };
        Ok(Self { path })
    }
}

/// Builds one frame of each kind, around the healthy queue pair `end`.
pub(super) fn all(aim: &Aim, end: &End) -> Vec<Vec<u8>> {
    let write = Bth {
        opcode: OpCode::RC_RDMA_WRITE_ONLY,
        dest_qpn: Qpn::new(end.qpn),
        pkey: Pkey::DEFAULT,
        psn: Psn::new(end.psn),
        ack_req: true,
        ..Bth::default()
    };
    let reth = Reth { va: Va(end.va), rkey: Rkey(end.rkey), dma_len: PAYLOAD as u32 };
    let ext = ExtHeaders { reth, ..ExtHeaders::default() };
    let frame = |bth: &Bth| frame(&aim.path, bth, &ext);
    // Correct but for its source address.
    let stranger = frame(&write);
    let mut bad_icrc = stranger.clone();
    if let Some(last) = bad_icrc.last_mut() {
        *last ^= 1;
    }
    let mut bad_length = stranger.clone();
    bad_length[UDP_LENGTH] ^= 0x40;
    let truncated = stranger[..UDP_LENGTH + 11].to_vec();
    let unknown = frame(&Bth { dest_qpn: Qpn::new(end.qpn ^ 0x5555), ..write });
    let undefined = frame(&Bth { opcode: OpCode(RESERVED), ..write });
    vec![stranger, bad_icrc, bad_length, truncated, unknown, undefined]
}

/// Builds a frame with its invariant CRC. For an unknown opcode only the BTH is written.
fn frame(path: &Encap, bth: &Bth, ext: &ExtHeaders) -> Vec<u8> {
    let mut headers = [0; 128];
    let headers_len = emit_headers(bth, ext, &mut headers).unwrap_or_else(|| {
        if let Some(place) = headers.first_chunk_mut() {
            bth.emit(place);
        }
        Bth::LEN
    });
    let template = path.template();
    let transport_len = headers_len + PAYLOAD + ICRC;
    let mut out = vec![0x66; 128 + transport_len];
    let at = template.emit(&mut out, transport_len);
    out[at..at + headers_len].copy_from_slice(&headers[..headers_len]);
    out.truncate(at + transport_len);
    // Sealing fails only for a frame without an IP header.
    let _ = seal(&mut out[usize::from(template.l3_offset)..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::Frame;

    #[test]
    fn each_frame_is_wrong_in_its_own_way_and_one_is_right_but_for_its_source() {
        let gid = Gid::from(std::net::Ipv4Addr::new(198, 18, 1, 1));
        let path = Encap { dst: gid, src: gid, hop_limit: 64, ..Encap::default() };
        let (srqn, eecn, qkey) = (0, 0, 0);
        let end =
            End { gid: gid.0, qpn: 77, psn: 5, va: 4096, rkey: 9, len: 4096, srqn, eecn, qkey };
        let frames = all(&Aim { path }, &end);
        let healthy = |bytes: &Vec<u8>| match Frame::parse(bytes) {
            Ok(Frame::Roce(datagram)) => {
                let ours = |qpn| qpn == Qpn::new(77);
                datagram.icrc_ok()
                    && datagram.packet().is_ok_and(|packet| ours(packet.bth.dest_qpn))
            }
            _ => false,
        };
        let right: Vec<bool> = frames.iter().map(healthy).collect();
        assert_eq!(right, [true, false, false, false, false, false]);
    }
}
