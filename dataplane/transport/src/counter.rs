//! Counters of the transport. Where Linux's `hw_counters` have a counter of the same meaning, its
//! name is used, so that `rdma statistic` readers recognise it.

crate::counted! {
    /// An event that is counted; the engine keeps an array of counters per lcore.
    pub enum Counter {
        DuplicateRequest "duplicate_request" "A request packet the responder had seen before."
        OutOfSequence "out_of_sequence" "A request packet ahead of the expected PSN."
        HeldPackets "rx_held_packets" "A request packet that came early and was held."
        PacketSeqErr "packet_seq_err" "A PSN-sequence NAK received, or a selective ACK with a loss."
        ImpliedNakSeqErr "implied_nak_seq_err" "A response that shows an earlier one was lost."
        RnrNakSent "send_rnr_err" "An RNR NAK sent."
        RnrNakRetryErr "rnr_nak_retry_err" "An RNR NAK received."
        OutOfBuffer "out_of_buffer" "A message that found no receive WQE."
        LocalAckTimeoutErr "local_ack_timeout_err" "The local ACK timer expired."
        TransportRetriesExceeded "req_transport_retries_exceeded"
            "The transport retry counter ran out."
        RnrRetriesExceeded "req_rnr_retries_exceeded" "The RNR retry counter ran out."
        TailProbes "roce_adp_retrans" "A packet sent again because the peer was silent."
        Keepalives "tx_keepalives" "A request sent because the peer of an idle connection was silent."
        RetransmittedPackets "retransmitted_packets" "A request packet sent again."
        RespRemoteAccessErrors "resp_remote_access_errors" "A request refused for its key or range."
        RespRemoteInvalidRequests "resp_remote_invalid_requests" "A request refused as invalid."
        ReqRemoteAccessErrors "req_remote_access_errors" "A remote access NAK received."
        ReqRemoteInvalidRequest "req_remote_invalid_request" "An invalid request NAK received."
        RespXrcViolations "resp_xrc_violations"
            "A request refused because it names no shared receive queue of its XRC domain."
        ReqRemoteXrcViolation "req_remote_xrc_violation"
            "A NAK received because a request named no shared receive queue of the XRC domain."
        RespRdViolations "resp_rd_violations"
            "A request refused because it names no RD QP that takes it."
        ReqRemoteRdViolation "req_remote_rd_violation"
            "A NAK received because a request named no RD QP that takes it."
        RdResyncsSent "tx_rd_resyncs" "A message of RD given up, about which the peer is told."
        RdResyncs "rx_rd_resyncs" "A RESYNC executed."
        RespLocalLengthError "resp_local_length_error" "A message too long for its receive WQE."
        ReqCqeError "req_cqe_error" "A send completion with an error."
        RespCqeError "resp_cqe_error" "A receive completion with an error."
        ReqCqeFlushError "req_cqe_flush_error" "A send completion flushed."
        RespCqeFlushError "resp_cqe_flush_error" "A receive completion flushed."
        StaleResponse "stale_response" "A response outside of what is outstanding; ignored."
        PathMigrations "path_migrations" "A QP migrated to its alternate path."
        SendMessages "rdma_sends" "A send-side message completed."
        RecvMessages "rdma_recvs" "A message received into a receive WQE."
        WriteRequests "rx_write_requests" "An RDMA WRITE message executed."
        ReadRequests "rx_read_requests" "An RDMA READ request accepted."
        AtomicRequests "rx_atomic_requests" "An ATOMIC request executed."
        AtomicWriteRequests "rx_atomic_write_requests" "An ATOMIC WRITE request executed."
        FlushRequests "rx_flush_requests" "A FLUSH request executed."
        NpEcnMarkedRocePackets "np_ecn_marked_roce_packets"
            "A packet received with the mark of a congested switch."
        NpCnpSent "np_cnp_sent" "A CNP sent."
        RpCnpHandled "rp_cnp_handled" "A CNP received and given to the reaction point."
        RpCnpIgnored "rp_cnp_ignored" "A CNP received and ignored."
        SlowRestarts "roce_slow_restart" "A loss that made DCQCN restart slowly."
        SlowRestartCnps "roce_slow_restart_cnps" "A slow restart that cut the rate as a CNP does."
        SlowRestartTransitions "roce_slow_restart_trans"
            "A slow restart of a QP that nothing had slowed down."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_match_positions_and_names_differ() {
        let mut names = std::collections::BTreeSet::new();
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
            assert!(names.insert(counter.name()));
        }
    }
}
