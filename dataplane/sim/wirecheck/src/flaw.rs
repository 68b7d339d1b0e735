//! The rules that a packet can break. One list makes the enum and its texts.

use core::fmt;

macro_rules! rules {
    ($($name:ident $text:literal)*) => {
        /// A rule that a packet breaks.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// Description of the rule's violation, one English sentence.
            pub const fn text(self) -> &'static str {
                match self { $(Rule::$name => $text,)* }
            }
        }
    };
}

rules! {
    Truncated "A header ends beyond the frame."
    NotRoce "Neither IPv4 nor IPv6 with UDP to port 4791."
    IpHeader "An IP header field has a value that RoCEv2 does not use."
    IpChecksum "The IPv4 header checksum does not add up."
    IpLength "The IP length is not the frame's."
    UdpLength "The UDP length is not the IP payload's."
    SourcePort "The UDP source port is below 0xC000."
    Version "The transport version is not 0."
    ReservedBits "A reserved bit is set."
    UnknownOpcode "The opcode is not defined."
    Pad "The pad does not end on a word, is longer than the payload, or is not zero."
    PayloadLength "The payload is longer or shorter than the opcode allows."
    Icrc "The invariant CRC does not match."
    Address "The addresses are not those of the connection."
    QpNumber "The destination QP is not the peer."
    Pkey "The P_Key is not the connection's."
    MigReq "MigReq is clear in the state Migrated."
    MigReqSet "MigReq is set by a QP that has not migrated."
    NotArmed "A QP migrates although it cannot be armed."
    FormerPath "A packet is sent on the former path after a migration."
    Service "The opcode belongs to another service than the QP's."
    // Requests.
    PsnSkipped "A new request leaves out PSNs."
    SentAfterEnd "A QP sends after the error that ended it."
    SentAfterAck "A request that was acknowledged is sent again."
    Unordered "Repeated requests do not follow one another."
    RewindWithoutCause "Requests are repeated with neither a NAK nor a timeout."
    RewindTarget "Repetition does not begin at the oldest unacknowledged PSN."
    RepeatedAlone "A packet is sent again though none sent after it is known to have arrived."
    TimeoutTooLate "A repetition comes later than four timeouts after the last packet or progress."
    ProbeUnasked "A probe requests no answer."
    KeepaliveEffect "A keepalive is something else than a WRITE of no bytes."
    KeepaliveTooSoon "A keepalive though the peer was heard not long ago, or within the ACK timeout."
    BeforeRnrTimer "A request is sent before the RNR timer has run out."
    Changed "A repeated request differs from the first one."
    MessageOrder "First, middle and last packets do not follow one another."
    QueueChanged "A message's packets name different shared receive queues, or RD QPs, or none."
    NotOneAtATime "A message of an end-to-end context begins before the last one has ended."
    ResyncPsn "A RESYNC has another PSN than the one after the newest that was sent."
    NothingGivenUp "A RESYNC though no message has begun since the last one."
    MtuRule "A first or middle packet is not full, a last one is empty, or one is over the MTU."
    WriteLength "The packets of a WRITE do not add up to the length in its RETH."
    TooManyReads "More READ and ATOMIC requests are outstanding than negotiated."
    FlushKind "A FLUSH with a reserved placement type or selectivity level."
    WindowTooWide "More than half of all PSNs are outstanding."
    StartedInSqd "A message begins while the send queue is drained."
    SolicitedPlace "The solicited bit is set on a packet that does not end a message."
    // Responses.
    AckOfNothing "An acknowledgement covers what has not been received."
    ListsExpected "A selective acknowledgement lists the expected packet as held."
    AckGoesBack "An acknowledgement covers less than an earlier one."
    NakPsn "A NAK names another PSN than the expected one."
    NakTwice "A second NAK for one gap although nothing shows that the first one was lost."
    NakWithoutGap "A sequence NAK although nothing is missing."
    RnrTimer "An RNR NAK carries a timer code other than the QP's."
    Syndrome "The syndrome has no meaning."
    MsnGoesBack "The message sequence number goes back."
    MsnBehind "The message sequence number leaves out messages that were received."
    MsnAhead "The message sequence number counts messages not received."
    NotAsked "A READ or ATOMIC response to no request."
    ResponseOrder "READ responses do not follow one another."
    ResponseLength "READ responses do not add up to the length requested."
    AtomicReplay "A repeated ATOMIC response carries another value."
    OtherContext "The RDETH does not name the peer's end-to-end context."
    OtherRdQp "A response goes to another RD QP than the one that sent the request."
    HalfOnly "An XRC initiator sends a response, or an XRC target a request."
    NoResponses "A response on a service that has none."
    // Congestion notifications.
    CnpHeader "A CNP has BECN clear, MigReq set, a PSN, or reserved bytes that are not zero."
    CnpWithoutMark "A CNP though no packet with a mark has come since the last one."
    CnpTooSoon "A CNP follows the last one sooner than agreed."
    // Unreliable services.
    Repeated "An unreliable service repeats a packet."
    SourceQp "The DETH does not name the sending QP."
}

/// A broken rule, with the numbers that show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// The rule that is broken.
    pub rule: Rule,
    /// Value that the packet has, or that follows from it.
    pub found: u64,
    /// Value that the packet should have, if it is one number.
    pub expected: u64,
}

impl Flaw {
    pub(crate) fn new(rule: Rule, found: impl Into<u64>, expected: impl Into<u64>) -> Flaw {
        Flaw { rule, found: found.into(), expected: expected.into() }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {:#x}, expected {:#x})", self.rule.text(), self.found, self.expected)
    }
}

impl core::error::Error for Flaw {}

/// Returns the flaw as an error unless `is_right`.
pub(crate) fn ensure(
    is_right: bool,
    rule: Rule,
    found: impl Into<u64>,
    expected: impl Into<u64>,
) -> Result<(), Flaw> {
    if is_right { Ok(()) } else { Err(Flaw::new(rule, found, expected)) }
}
