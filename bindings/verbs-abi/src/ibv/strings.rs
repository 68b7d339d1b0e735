//! Names of enumeration values, for programs to print.
//!
//! The words are those of libibverbs, so that the output of two hosts can be compared.

use std::ffi::{CStr, c_char, c_int};

const UNKNOWN: &CStr = c"unknown";

const NODE_TYPES: [&CStr; 9] = [
    UNKNOWN,
    UNKNOWN,
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENT_TYPES: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const WC_STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const WR_OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    UNKNOWN,
    UNKNOWN,
    c"flush",
    c"atomic-write",
];

fn name(names: &[&'static CStr], number: c_int) -> *const c_char {
    let at = usize::try_from(number).ok();
    at.and_then(|at| names.get(at)).unwrap_or(&UNKNOWN).as_ptr()
}

pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    // The first value is -1.
    name(&NODE_TYPES, node_type.saturating_add(1))
}

pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    name(&PORT_STATES, state)
}

pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    name(&EVENT_TYPES, event)
}

pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    name(&WC_STATUSES, status)
}

pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    name(&WR_OPCODES, opcode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: all names are C string literals.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    }

    #[test]
    fn names_are_those_of_the_headers_numbers() {
        assert_eq!(text(ibv_node_type_str(abi::IBV_NODE_CA)), "InfiniBand channel adapter");
        assert_eq!(text(ibv_node_type_str(abi::IBV_NODE_UNKNOWN)), "unknown");
        assert_eq!(text(ibv_port_state_str(abi::IBV_PORT_ACTIVE as c_int)), "active");
        assert_eq!(
            text(ibv_event_type_str(abi::IBV_EVENT_GID_CHANGE as c_int)),
            "GID table change"
        );
        let refused = text(ibv_wc_status_str(abi::IBV_WC_REM_ACCESS_ERR as c_int));
        assert_eq!(refused, "remote access error");
        let last = text(ibv_wc_status_str(abi::IBV_WC_TM_RNDV_INCOMPLETE as c_int));
        assert_eq!(last, "TM software rendezvous");
        assert_eq!(text(ibv_wr_opcode_str(abi::IBV_WR_ATOMIC_WRITE as c_int)), "atomic-write");
    }

    #[test]
    fn any_other_number_is_unknown() {
        let all = [
            ibv_node_type_str,
            ibv_port_state_str,
            ibv_event_type_str,
            ibv_wc_status_str,
            ibv_wr_opcode_str,
        ];
        for function in all {
            for number in [c_int::MIN, -2, 24, c_int::MAX] {
                assert_eq!(text(function(number)), "unknown");
            }
        }
    }
}
