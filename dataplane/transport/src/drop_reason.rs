//! Reasons for which a received frame is dropped. One list makes the enum, the counters' names and
//! their texts.

use uroce_wire::ParseError;

crate::counted! {
    /// Reason for which a received frame was dropped without an answer.
    pub enum DropReason {
        Malformed "rx_malformed" "A length, version or field rule of some header is broken."
        ReservedOpCode "rx_reserved_opcode" "The BTH opcode is not defined."
        BadIcrc "rx_icrc_errors" "The invariant CRC does not match."
        NotForUs "rx_not_for_us" "The destination address is none of the port's."
        UnknownQpn "rx_unknown_qpn" "No QP has this number."
        WrongSource "rx_wrong_source" "The addresses are not those of the QP's connection."
        PathMigration "rx_path_migration_refused"
            "A request to migrate to another path than the alternate one."
        WrongService "rx_wrong_service"
            "The opcode is of another service than the QP's, or a Raw IPv6 QP's frame is no IPv6 packet."
        UnknownEecn "rx_unknown_eecn" "No EEC has the number in the RDETH."
        OtherRdQp "rx_other_rd_qp"
            "A response of RD to another QP than the one with a message in progress."
        BadPkey "bad_pkey" "The P_Key does not match the QP's."
        BadQkey "qkey_viol" "The Q_Key does not match the QP's."
        QpNotReady "rx_qp_not_ready" "The QP's state takes no packets of this kind."
        NotRequester "rx_not_requester" "A response to a QP with nothing outstanding."
        NotResponder "rx_not_responder" "A request to an XRC initiator, which serves none."
        AfterNak "rx_after_nak" "A request after an unanswered NAK; waiting for the expected PSN."
        NotHeld "rx_not_held"
            "An early packet without room to hold it until its turn; it is sent again."
        NoReceiveWqe "rx_no_receive_wqe" "A message of UC or UD, or a frame, that found no receive WQE."
        ReceiveTooSmall "rx_receive_too_small" "A datagram or frame longer than the oldest receive WQE."
        MessageDropped "rx_message_dropped"
            "A packet of a UC message of which another was lost, or that breaks a rule."
        OldRead "rx_old_read"
            "A repeated READ, ATOMIC, ATOMIC WRITE or FLUSH that no stored request matches."
        FlushTooMany "rx_flush_too_many"
            "A request for which FLUSHes have left no record; it is asked for again."
        Congestion "rx_cnp_ignored"
            "A CNP to a QP without congestion control, or that has sent nothing lately."
        HandOverFull "rx_handover_full" "The owner lcore's hand-over ring is full."
        SlowPathFull "rx_slow_path_full" "The control plane's packet ring is full."
        GsiFull "rx_gsi_full" "The control plane's ring of packets to QP 1 is full."
        NoBuffer "rx_no_mbuf" "No packet buffer for the copy that another lcore or another raw QP is to get."
        NotLinear "rx_not_linear" "A segmented mbuf that could not be made linear."
    }
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> DropReason {
        match error {
            ParseError::ReservedOpcode => DropReason::ReservedOpCode,
            ParseError::Icrc => DropReason::BadIcrc,
            _ => DropReason::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_match_positions_and_names_differ() {
        let mut names = std::collections::BTreeSet::new();
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(names.insert(reason.name()));
        }
    }
}
