//! Compares the layouts with those of the C compiler.

use super::*;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

type Layout = BTreeMap<String, usize>;

macro_rules! structures {
    ($layout:ident: $($name:ident { $($field:ident),* })*) => {
        $(
            $layout.insert(stringify!($name).to_owned(), size_of::<$name>());
            $(
                let field = concat!(stringify!($name), ".", stringify!($field));
                $layout.insert(field.to_owned(), offset_of!($name, $field));
            )*
        )*
    };
}

macro_rules! above {
    ($layout:ident: $($field:ident),*) => {
        $(
            let distance = offset_of!(verbs_context, context) - offset_of!(verbs_context, $field);
            $layout.insert(concat!("-", stringify!($field)).to_owned(), distance);
        )*
    };
}

fn ours() -> Layout {
    let mut layout = Layout::new();
    structures! { layout:
        ibv_device { node_type, name, ibdev_path }
        ibv_context { ops, cmd_fd, abi_compat }
        ibv_context_ops {
            alloc_mw, bind_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv
        }
        ibv_pd { handle }
        ibv_mr { addr, length, lkey, rkey }
        ibv_mw { rkey, handle }
        ibv_mw_bind { bind_info }
        ibv_mw_bind_info { mw_access_flags }
        ibv_dm { memcpy_to_dm, memcpy_from_dm, handle }
        ibv_alloc_dm_attr { comp_mask }
        ibv_td {}
        ibv_td_init_attr {}
        ibv_parent_domain_init_attr { comp_mask }
        ibv_ah { handle }
        ibv_ah_attr { dlid, is_global, port_num }
        ibv_global_route { flow_label, sgid_index, traffic_class }
        ibv_grh {}
        ibv_gid_entry { gid_type, ndev_ifindex }
        ibv_port_attr { link_layer, port_cap_flags2 }
        ibv_device_attr { max_qp, phys_port_cnt }
        ibv_device_attr_ex { odp_caps, max_dm_size, phys_port_cnt_ex }
        ibv_values_ex { raw_clock }
        ibv_sge { lkey }
        ibv_wc { byte_len, wc_flags, dlid_path_bits }
        ibv_send_wr { opcode, wr }
        ibv_recv_wr { num_sge }
        ibv_cq { channel, cq_context, cqe }
        ibv_cq_ex { status, wr_id, start_poll }
        ibv_srq { handle }
        ibv_srq_init_attr {}
        ibv_srq_init_attr_ex {}
        ibv_qp { qp_num, state, qp_type }
        ibv_qp_ex { wr_id, wr_start, wr_abort }
        ibv_qp_attr { ah_attr, rate_limit }
        ibv_qp_init_attr { cap, sq_sig_all }
        ibv_qp_init_attr_ex { comp_mask, send_ops_flags }
        ibv_cq_init_attr_ex {}
        ibv_comp_channel { fd }
        ibv_async_event { event_type }
        rdma_cm_id { qp, route, event, pd, qp_type }
        rdma_cm_event { status, param }
        rdma_event_channel {}
        rdma_conn_param { qp_num }
        rdma_ud_param { qkey }
        rdma_addrinfo { ai_connect }
        rdma_route {}
        rdma_addr {}
    }
    above!(layout:
        sz, create_srq_ex, create_qp_ex, query_device_ex, create_cq_ex, query_rt_values, modify_cq,
        alloc_td, dealloc_td, alloc_parent_domain, free_dm, alloc_dm, reg_dm_mr, alloc_null_mr,
        query_port);
    layout
}

fn the_compilers() -> Layout {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/layout.c");
    let name = format!("uroce-layout-{}", std::process::id());
    let program = std::env::temp_dir().join(name);
    let status = Command::new("cc").arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(status.success());
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_file(program).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (name, number) = line.split_once(' ').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[test]
fn structures_are_laid_out_as_the_c_compiler_lays_them_out() {
    let (ours, compilers) = (ours(), the_compilers());
    assert!(compilers.len() > 100, "{}", compilers.len());
    for (name, number) in &compilers {
        assert_eq!(ours.get(name), Some(number), "{name}");
    }
}
