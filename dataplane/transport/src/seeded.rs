//! Planted bugs: each can be put back, to show that the simulator finds it. With the feature
//! `seeded-bugs`, a thread can plant one at run time. Without the feature none of this is compiled.
//!
//! In the protocol's code each bug is a condition `seeded!(Name)` on one line.

/// Whether this bug is planted.
#[cfg(feature = "seeded-bugs")]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::seeded::is_planted($crate::seeded::Bug::$bug)
    };
}

/// Whether this bug is planted: never without the feature.
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! seeded {
    ($bug:ident) => {
        false
    };
}

#[cfg(feature = "seeded-bugs")]
pub use planting::{Bug, is_planted, plant};

#[cfg(feature = "seeded-bugs")]
mod planting {
    use core::cell::Cell;
    use std::thread_local;

    macro_rules! bugs {
        ($($bug:ident $text:literal)*) => {
            /// A bug that can be planted.
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum Bug {
                $(#[doc = $text] $bug,)*
            }

            impl Bug {
                /// All bugs.
                pub const ALL: &'static [Bug] = &[$(Bug::$bug,)*];
            }
        };
    }

    bugs! {
        RangeOverflow "The end of a range is computed in 64 bits and wraps (CVE-2016-8636)."
        WriteLengthUnchecked "More data than the RETH states makes a length underflow (CVE-2026-46043)."
        BadLkeyAtomic "The local key of an ATOMIC is not checked (CVE-2021-47076)."
        ZeroLengthKeyCheck "A READ or WRITE of no bytes has its key checked (an rxe regression)."
        ServesInError "A QP in ERR continues to serve requests (CVE-2026-45910)."
        ProcessedTwice "A request is processed twice (CVE-2026-93107)."
        StaleAfterReset "Receives survive RESET and complete in the next connection."
        KeyCheckedForOnePacket "The key of a WRITE is checked for its first packet only."
        DoubleNak "Every packet after a gap is answered with a NAK."
        NakForWrongPsn "A NAK names the PSN after the expected one."
        AckTooFar "An ACK covers one packet that has not come."
        DuplicateExecuted "A repeated SEND is executed again."
        AtomicReexecuted "A repeated ATOMIC is executed again."
        MsnNotForReads "READs do not count as messages."
        NoPsnWrap "PSNs are compared as plain numbers."
        StaleResponseTaken "Responses older than what is outstanding are used."
        AckCompletesRead "An ACK for a later request completes a READ."
        ReadResumedWrong "A retried READ begins one packet too early."
        ResumedPastLoss "Repetition begins after the lost packet."
        NoRetryReload "Progress does not reload the retry counter."
        NoAckTimer "The ACK timer never runs."
        ProbeUnasked "A probe requests no acknowledgement."
        ProbeEarly "A probe is sent after a quarter of the silence that it should wait for."
        KeepaliveNew "A keepalive has the PSN of the next request instead of the last."
        KeepaliveUnasked "A keepalive requests no acknowledgement."
        KeepaliveEarly "The peer of an idle connection is asked after half of the idle time."
        KeepaliveDeaf "The answer to a keepalive is not noticed."
        BitmapShifted "A selective acknowledgement lists each packet as the one before it."
        HeldRepeated "A loss repeats what the peer holds, too."
        RestForgotten "Selective repeat goes on while a READ is outstanding."
        HeldAfterReset "Packets that were held survive RESET."
        RefusedKept "A held packet that is refused for now stays listed as held."
        EarlyTimeout "The ACK timer runs half as long as it should."
        EarlyRnrResend "The RNR timer is not waited for."
        RnrTableTypo "One RNR timer code has its neighbour's value."
        TooManyReads "One READ more than agreed is outstanding."
        FlushBeforeError "The send queue is flushed before its failed request completes."
        UnsignaledErrorLost "An unsignalled request that fails does not complete."
        SolicitedLost "The solicited mark is not reported."
        WriteImmLength "A WRITE with immediate reports the length of its last packet."
        ImmLost "Immediate data is not reported."
        MigReqNever "MigReq is 0 in every packet (rxe)."
        MigReqAlways "MigReq stays 1 while a migration is prepared."
        AlternateNotValidated "A request to migrate is followed on any path."
        ArmedByAnyMigReq "A packet with MigReq 1 makes a re-armed QP armed."
        BudgetNotReloaded "A migration does not reload the retry counter."
        DiesThoughArmed "Exhausted retries end an armed QP."
        MigratesTwice "Exhausted again, a QP migrates back to the path it left."
        PathMigTwice "One migration is reported twice."
        FormerAddresses "A migration changes everything of the path but its addresses."
        FormerPort "A migration changes everything of the path but its port."
        FormerPkey "A migration changes everything of the path but its P_Key."
        FormerTimeout "A migration changes everything of the path but its ACK timeout."
        FormerRate "A migration changes everything of the path but its rate."
        FormerPathForEver "Packets by the former path are accepted for ever."
        StaleRnrTimer "An RNR timer that is modified in RTS is not used."
        StartsInSqd "New messages begin while the send queue is drained."
        SqDrainedEarly "SQ_DRAINED comes before the last acknowledgement."
        SqDrainedTwice "SQ_DRAINED comes again."
        SqDrainedUnasked "SQ_DRAINED comes without being requested."
        PaceDrift "The fraction of a nanosecond is lost from each wait."
        LatenessKept "A QP makes up for any lateness, and sends without gaps until it has."
        KibibitsForKilobits "A rate is read in units of 1024 bits."
        LongDatagramEndsQp "A datagram longer than its receive takes the QP to ERR."
        AcksUnpaid "Acknowledgements do not count against the rate."
        NoRateFloor "CNPs cut the rate below its floor."
        NoRecovery "The target rate does not rise after a cut."
        CutByEveryCnp "Every CNP cuts the rate, however soon it follows the last."
        CnpForEveryMark "Every marked packet makes a CNP."
        CnpOfAnyone "A CNP from any source cuts the rate."
        FlushForgotten "A FLUSH is answered but not carried out."
        FlushOnlyVisible "A FLUSH for visibility and persistence is one for visibility."
        FlushRangeForRegion "A FLUSH of a region is one of the range in its RETH."
        AtomicWriteReexecuted "A repeated ATOMIC WRITE is executed again."
        PlacementUnlimited "ATOMIC WRITEs and FLUSHes do not count as outstanding."
        XrcStaleQueue "An XRC target takes every receive from the queue that was named first."
        XrcRepeatUnnamed "An XRC request that is sent again names no queue."
        XrcForeignQueue "A request may name a shared receive queue of any XRC domain."
        RdNoResync "A message of RD is given up without a RESYNC."
        RdAnswerMisled "An old request changes the RD QP that an EEC's answers go to."
        RdReceiveKept "A RESYNC leaves the receive of the message that it ends."
        RdPsnReused "A message that is given up does not use up its PSNs."
        RdPutOffTwice "A message of RD that was put off is sent again although it was executed."
        RdDenialSilent "A READ of RD that cannot be answered again is dropped."
        RdRefusalLost "A refusal of RD that was lost is not repeated."
        RdForeignDomain "An RD QP takes requests by EECs of any RD domain."
        RdQkeyUnchecked "An RD QP takes requests with any Q_Key."
        PlacementAcked "An ATOMIC WRITE or FLUSH is answered by an ACK."
    }

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug for this thread in place of the one planted before; `None` plants none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Returns whether this bug is planted for this thread.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
