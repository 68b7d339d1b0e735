/* Prints sizes and offsets of the C compiler for src/abi/tests.rs. */

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(struct type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(struct type, field))
/* Fields that programs reach at negative offsets from their pointer. */
#define ABOVE(field) \
	printf("-" #field " %zu\n", \
	       offsetof(struct verbs_context, context) - offsetof(struct verbs_context, field))

int main(void)
{
	SIZE(ibv_device), AT(ibv_device, node_type), AT(ibv_device, name), AT(ibv_device, ibdev_path);
	SIZE(ibv_context), AT(ibv_context, ops), AT(ibv_context, cmd_fd), AT(ibv_context, abi_compat);
	AT(ibv_context_ops, alloc_mw), AT(ibv_context_ops, bind_mw), AT(ibv_context_ops, poll_cq);
	AT(ibv_context_ops, req_notify_cq), AT(ibv_context_ops, post_srq_recv);
	AT(ibv_context_ops, post_send), AT(ibv_context_ops, post_recv);
	ABOVE(sz), ABOVE(create_srq_ex), ABOVE(create_qp_ex), ABOVE(query_device_ex);
	ABOVE(create_cq_ex), ABOVE(query_rt_values), ABOVE(modify_cq), ABOVE(alloc_td);
	ABOVE(dealloc_td), ABOVE(alloc_parent_domain), ABOVE(free_dm), ABOVE(alloc_dm);
	ABOVE(reg_dm_mr), ABOVE(alloc_null_mr), ABOVE(query_port);
	SIZE(ibv_pd), AT(ibv_pd, handle);
	SIZE(ibv_mr), AT(ibv_mr, addr), AT(ibv_mr, length), AT(ibv_mr, lkey), AT(ibv_mr, rkey);
	SIZE(ibv_mw), AT(ibv_mw, rkey), AT(ibv_mw, handle);
	SIZE(ibv_mw_bind), AT(ibv_mw_bind, bind_info), AT(ibv_mw_bind_info, mw_access_flags);
	SIZE(ibv_dm), AT(ibv_dm, memcpy_to_dm), AT(ibv_dm, memcpy_from_dm), AT(ibv_dm, handle);
	SIZE(ibv_alloc_dm_attr), AT(ibv_alloc_dm_attr, comp_mask);
	SIZE(ibv_td), SIZE(ibv_td_init_attr);
	SIZE(ibv_parent_domain_init_attr), AT(ibv_parent_domain_init_attr, comp_mask);
	SIZE(ibv_ah), AT(ibv_ah, handle);
	SIZE(ibv_ah_attr), AT(ibv_ah_attr, dlid), AT(ibv_ah_attr, is_global);
	AT(ibv_ah_attr, port_num), SIZE(ibv_global_route), AT(ibv_global_route, flow_label);
	AT(ibv_global_route, sgid_index), AT(ibv_global_route, traffic_class), SIZE(ibv_grh);
	SIZE(ibv_gid_entry), AT(ibv_gid_entry, gid_type), AT(ibv_gid_entry, ndev_ifindex);
	SIZE(ibv_port_attr), AT(ibv_port_attr, link_layer), AT(ibv_port_attr, port_cap_flags2);
	SIZE(ibv_device_attr), AT(ibv_device_attr, max_qp), AT(ibv_device_attr, phys_port_cnt);
	SIZE(ibv_device_attr_ex), AT(ibv_device_attr_ex, odp_caps);
	AT(ibv_device_attr_ex, max_dm_size), AT(ibv_device_attr_ex, phys_port_cnt_ex);
	SIZE(ibv_values_ex), AT(ibv_values_ex, raw_clock);
	SIZE(ibv_sge), AT(ibv_sge, lkey);
	SIZE(ibv_wc), AT(ibv_wc, byte_len), AT(ibv_wc, wc_flags), AT(ibv_wc, dlid_path_bits);
	SIZE(ibv_send_wr), AT(ibv_send_wr, opcode), AT(ibv_send_wr, wr);
	SIZE(ibv_recv_wr), AT(ibv_recv_wr, num_sge);
	SIZE(ibv_cq), AT(ibv_cq, channel), AT(ibv_cq, cq_context), AT(ibv_cq, cqe);
	SIZE(ibv_cq_ex), AT(ibv_cq_ex, status), AT(ibv_cq_ex, wr_id), AT(ibv_cq_ex, start_poll);
	SIZE(ibv_srq), AT(ibv_srq, handle), SIZE(ibv_srq_init_attr), SIZE(ibv_srq_init_attr_ex);
	SIZE(ibv_qp), AT(ibv_qp, qp_num), AT(ibv_qp, state), AT(ibv_qp, qp_type);
	SIZE(ibv_qp_ex), AT(ibv_qp_ex, wr_id), AT(ibv_qp_ex, wr_start), AT(ibv_qp_ex, wr_abort);
	SIZE(ibv_qp_attr), AT(ibv_qp_attr, ah_attr), AT(ibv_qp_attr, rate_limit);
	SIZE(ibv_qp_init_attr), AT(ibv_qp_init_attr, cap), AT(ibv_qp_init_attr, sq_sig_all);
	SIZE(ibv_qp_init_attr_ex), AT(ibv_qp_init_attr_ex, comp_mask);
	AT(ibv_qp_init_attr_ex, send_ops_flags), SIZE(ibv_cq_init_attr_ex);
	SIZE(ibv_comp_channel), AT(ibv_comp_channel, fd), SIZE(ibv_async_event);
	AT(ibv_async_event, event_type);
	SIZE(rdma_cm_id), AT(rdma_cm_id, qp), AT(rdma_cm_id, route), AT(rdma_cm_id, event);
	AT(rdma_cm_id, pd), AT(rdma_cm_id, qp_type);
	SIZE(rdma_cm_event), AT(rdma_cm_event, status), AT(rdma_cm_event, param);
	SIZE(rdma_event_channel), SIZE(rdma_conn_param), AT(rdma_conn_param, qp_num);
	SIZE(rdma_ud_param), AT(rdma_ud_param, qkey), SIZE(rdma_addrinfo);
	AT(rdma_addrinfo, ai_connect), SIZE(rdma_route), SIZE(rdma_addr);
	return 0;
}
