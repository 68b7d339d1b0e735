/* The claims of tests/queues.rs: one function per claim, selected by the only argument. Two queue
 * pairs of one process communicate through the device's own address. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { DEPTH = 64, SIZE = 1 << 16 };
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/* One end, with its own context, domain, queues and memory. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

static struct ibv_qp_init_attr plain(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = type };
	attr.cap = (struct ibv_qp_cap){ DEPTH, DEPTH, 4, 4, 64 };
	return attr;
}

static struct end make(enum ibv_qp_type type)
{
	struct end end = { .context = open_first() };
	CHECK(end.pd = ibv_alloc_pd(end.context));
	CHECK(end.channel = ibv_create_comp_channel(end.context));
	CHECK(end.cq = ibv_create_cq(end.context, 4 * DEPTH, &end, end.channel, 0));
	struct ibv_qp_init_attr attr = plain(end.cq, type);
	CHECK(end.qp = ibv_create_qp(end.pd, &attr));
	CHECK(!posix_memalign((void **)&end.memory, 4096, SIZE));
	memset(end.memory, 0, SIZE);
	CHECK(end.mr = ibv_reg_mr(end.pd, end.memory, SIZE, RIGHTS));
	return end;
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attr.qp_access_flags = RIGHTS;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

static int to_rtr_by(struct ibv_qp *qp, uint32_t peer, uint8_t port)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD) {
		attr.dest_qp_num = peer;
		attr.rq_psn = 7;
		attr.ah_attr.is_global = 1;
		attr.ah_attr.port_num = port;
		CODE(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid), 0);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = 4;
		attr.min_rnr_timer = 12;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return ibv_modify_qp(qp, &attr, mask);
}

static int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	return to_rtr_by(qp, peer, 1);
}

static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = 7 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC) {
		attr.timeout = 14;
		attr.retry_cnt = attr.rnr_retry = 7;
		attr.max_rd_atomic = 4;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return ibv_modify_qp(qp, &attr, mask);
}

static int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void bring_up(struct ibv_qp *qp, uint32_t peer)
{
	CODE(to_init(qp), 0);
	CODE(to_rtr(qp, peer), 0);
	CODE(to_rts(qp), 0);
}

static void join(struct ibv_qp *left, struct ibv_qp *right)
{
	bring_up(left, right->qp_num);
	bring_up(right, left->qp_num);
}

static struct ibv_sge piece(const struct end *end, size_t at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)end->memory + at, len, end->mr->lkey };
}

static int post_receive(struct end *end, uint64_t id, size_t at, uint32_t len)
{
	struct ibv_sge sge = piece(end, at, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(end->qp, &wr, &bad);
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t id)
{
	return (struct ibv_send_wr){ .wr_id = id, .sg_list = sge, .num_sge = sge ? 1 : 0,
				     .opcode = opcode, .send_flags = IBV_SEND_SIGNALED };
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, wr, &bad);
	CHECK(!error == !bad);
	return error;
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t begin = time(NULL);
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		CHECK(time(NULL) - begin < 20);
	CHECK(count == 1);
	return wc;
}

static struct ibv_wc good(struct ibv_cq *cq)
{
	struct ibv_wc wc = next(cq);
	if (wc.status)
		fprintf(stderr, "wr %lu: %s\n", wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static bool empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	return ibv_poll_cq(cq, 1, &wc) == 0;
}

static void completions_describe_their_messages(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	CODE(post_receive(&right, 5, 0, 256), 0);
	strcpy(left.memory, "message");
	struct ibv_sge sge = piece(&left, 0, 100);
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge, 6);
	wr.imm_data = htonl(0xabcd);
	CODE(post(left.qp, &wr), 0);
	struct ibv_wc sent = good(left.cq), got = good(right.cq);
	CHECK(sent.wr_id == 6 && sent.opcode == IBV_WC_SEND && sent.qp_num == left.qp->qp_num);
	CHECK(got.wr_id == 5 && got.opcode == IBV_WC_RECV && got.byte_len == 100);
	CHECK(got.wc_flags == IBV_WC_WITH_IMM && got.imm_data == htonl(0xabcd));
	CHECK(got.qp_num == right.qp->qp_num && !strcmp(right.memory, "message"));
	CHECK(empty(left.cq) && empty(right.cq));
}

static void reads_writes_and_atomics_reach_the_peers_memory(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	struct ibv_sge sge = piece(&left, 0, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1);
	wr.wr.rdma.remote_addr = (uintptr_t)right.memory + 128;
	wr.wr.rdma.rkey = right.mr->rkey;
	memset(left.memory, 'w', 64);
	CODE(post(left.qp, &wr), 0);
	CHECK(good(left.cq).opcode == IBV_WC_RDMA_WRITE && right.memory[128 + 63] == 'w');
	wr.opcode = IBV_WR_RDMA_READ;
	sge = piece(&left, 512, 64);
	CODE(post(left.qp, &wr), 0);
	struct ibv_wc read = good(left.cq);
	CHECK(read.opcode == IBV_WC_RDMA_READ && read.byte_len == 64 && left.memory[512 + 63] == 'w');
	uint64_t *word = (uint64_t *)(right.memory + 1024), *former = (uint64_t *)(left.memory + 1024);
	*word = 40;
	sge = piece(&left, 1024, 8);
	struct ibv_send_wr atomic = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 2);
	atomic.wr.atomic.remote_addr = (uintptr_t)word;
	atomic.wr.atomic.rkey = right.mr->rkey;
	atomic.wr.atomic.compare_add = 2;
	CODE(post(left.qp, &atomic), 0);
	CHECK(good(left.cq).opcode == IBV_WC_FETCH_ADD && *former == 40 && *word == 42);
	atomic.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	atomic.wr.atomic.compare_add = 42;
	atomic.wr.atomic.swap = 9;
	CODE(post(left.qp, &atomic), 0);
	CHECK(good(left.cq).opcode == IBV_WC_COMP_SWAP && *former == 42 && *word == 9);
	/* An unknown key. */
	wr.wr.rdma.rkey ^= 0x100;
	CODE(post(left.qp, &wr), 0);
	CHECK(next(left.cq).status == IBV_WC_REM_ACCESS_ERR);
}

static void datagrams_need_an_address_handle(void)
{
	struct end left = make(IBV_QPT_UD), right = make(IBV_QPT_UD);
	join(left.qp, right.qp);
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1 };
	CODE(ibv_query_gid(left.context, 1, 0, &way.grh.dgid), 0);
	struct ibv_ah *ah = ibv_create_ah(left.pd, &way);
	CHECK(ah);
	CODE(post_receive(&right, 1, 0, 40 + 16), 0);
	struct ibv_sge sge = piece(&left, 0, 16);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 2);
	CODE(post(left.qp, &wr), EINVAL);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = right.qp->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	wr.opcode = IBV_WR_RDMA_WRITE;
	CODE(post(left.qp, &wr), EINVAL);
	wr.opcode = IBV_WR_SEND;
	CODE(post(left.qp, &wr), 0);
	good(left.cq);
	struct ibv_wc got = good(right.cq);
	CHECK(got.byte_len == 56 && got.src_qp == left.qp->qp_num && got.wc_flags == IBV_WC_GRH);
	CODE(ibv_destroy_ah(ah), 0);
	CODE(post(left.qp, &wr), EINVAL);
}

/* Sends a datagram to the GID with this index. The receiver reads the completion field by field. */
static void datagram_over(int gid, uint8_t sl)
{
	struct end left = make(IBV_QPT_UD), right = make(IBV_QPT_UD);
	struct ibv_cq_init_attr_ex how = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(right.context, &how);
	CHECK(ex);
	struct ibv_qp_init_attr init = plain(ibv_cq_ex_to_cq(ex), IBV_QPT_UD);
	CHECK(right.qp = ibv_create_qp(right.pd, &init));
	join(left.qp, right.qp);
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh.sgid_index = gid, .sl = 3 };
	CODE(ibv_query_gid(left.context, 1, gid, &way.grh.dgid), 0);
	struct ibv_ah *ah = ibv_create_ah(left.pd, &way);
	CHECK(ah);
	CODE(post_receive(&right, 1, 0, 40 + 16), 0);
	struct ibv_sge sge = piece(&left, 0, 16);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 2);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = right.qp->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	CODE(post(left.qp, &wr), 0);
	CHECK(good(left.cq).sl == 0);
	struct ibv_poll_cq_attr attr = { 0 };
	int got;
	while ((got = ibv_start_poll(ex, &attr)) == ENOENT)
		sched_yield();
	CODE(got, 0);
	CHECK(ex->status == IBV_WC_SUCCESS && ibv_wc_read_wc_flags(ex) == IBV_WC_GRH);
	CHECK(ibv_wc_read_src_qp(ex) == left.qp->qp_num && ibv_wc_read_sl(ex) == sl);
	ibv_end_poll(ex);
}

static void a_datagrams_service_level_is_the_kind_of_its_header(void)
{
	enum { OVER_IPV6 = 1, OVER_IPV4 = 2 };
	datagram_over(0, OVER_IPV4);
	datagram_over(1, OVER_IPV6);
}

static void a_list_ends_at_the_first_that_is_refused(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	struct ibv_sge sge = piece(&left, 0, 8);
	struct ibv_sge many[64];
	struct ibv_send_wr list[3], *bad = NULL;
	for (int at = 0; at < 3; at++) {
		list[at] = request(IBV_WR_SEND, &sge, at);
		list[at].next = at < 2 ? &list[at + 1] : NULL;
		CODE(post_receive(&right, at, 0, 64), 0);
	}
	for (int at = 0; at < 64; at++)
		many[at] = sge;
	list[1].sg_list = many;
	const int wrong[] = { 5, 33, 64, -1 };
	for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
		list[1].num_sge = wrong[at];
		CODE(ibv_post_send(left.qp, list, &bad), EINVAL);
		CHECK(bad == &list[1] && good(left.cq).wr_id == 0 && empty(left.cq));
		good(right.cq);
		CODE(post_receive(&right, at, 0, 64), 0);
	}
	list[1].num_sge = 1;
	list[1].sg_list = NULL;
	CODE(ibv_post_send(left.qp, list, &bad), EINVAL);
	CHECK(bad == &list[1]);
	list[1].sg_list = &sge;
	list[1].opcode = 77;
	CODE(ibv_post_send(left.qp, &list[1], &bad), EINVAL);
	list[1].opcode = IBV_WR_SEND;
	list[1].send_flags = 1 << 20;
	CODE(ibv_post_send(left.qp, &list[1], &bad), EINVAL);
	CHECK(bad == &list[1]);
	struct ibv_recv_wr receives[2] = { { .next = &receives[1] }, { .num_sge = 5, .sg_list = many } };
	struct ibv_recv_wr *bad_receive = NULL;
	CODE(ibv_post_recv(right.qp, receives, &bad_receive), EINVAL);
	CHECK(bad_receive == &receives[1]);
	receives[1].num_sge = -7;
	CODE(ibv_post_recv(right.qp, &receives[1], &bad_receive), EINVAL);
}

static void queues_are_full_at_their_size_and_not_before(void)
{
	struct end end = make(IBV_QPT_RC);
	CODE(post_receive(&end, 0, 0, 8), EINVAL);
	CODE(to_init(end.qp), 0);
	for (int at = 0; at < DEPTH; at++)
		CODE(post_receive(&end, at, 0, 8), 0);
	CODE(post_receive(&end, DEPTH, 0, 8), ENOMEM);
	struct ibv_sge sge = piece(&end, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
	CODE(post(end.qp, &wr), EINVAL);
	/* In ERR all of them are flushed. */
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	for (int at = 0; at < DEPTH; at++) {
		struct ibv_wc wc = next(end.cq);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == (uint64_t)at);
	}
	CODE(post(end.qp, &wr), 0);
	CHECK(next(end.cq).status == IBV_WC_WR_FLUSH_ERR);
}

/* Waits for a successful completion and reads it field by field. */
static void good_ex(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr how = { 0 };
	time_t begin = time(NULL);
	int error;
	while ((error = ibv_start_poll(cq, &how)) == ENOENT)
		CHECK(time(NULL) - begin < 20);
	CHECK(!error && cq->status == IBV_WC_SUCCESS);
	ibv_end_poll(cq);
}

/* Posts WRITEs, every `every`th one signaled, until the queue is full. Returns their number. */
static int fill(struct end *left, struct end *right, uint64_t *id, int every)
{
	struct ibv_sge sge = piece(left, 0, 8);
	int count = 0, error;
	for (;; count++) {
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, *id + 1);
		wr.send_flags = (*id + 1) % every ? 0 : IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = (uintptr_t)right->memory + 64;
		wr.wr.rdma.rkey = right->mr->rkey;
		if ((error = post(left->qp, &wr)))
			break;
		++*id;
	}
	CHECK(error == ENOMEM);
	return count;
}

/* Each completion queue is as long as its queue pair's send queue. As places become free only by
 * polling, no queue can overrun. */
static void a_place_is_free_when_its_completion_has_been_polled(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_cq_init_attr_ex how = { .cqe = DEPTH };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(left.context, &how);
	CHECK(ex);
	struct ibv_cq *cqs[] = { ibv_create_cq(left.context, DEPTH, NULL, NULL, 0),
				 ibv_cq_ex_to_cq(ex) };
	for (int by_fields = 0; by_fields < 2; by_fields++) {
		for (int every = 1; every <= 8; every *= 8) {
			struct ibv_qp_init_attr attr = plain(cqs[by_fields], IBV_QPT_RC);
			CHECK(left.qp = ibv_create_qp(left.pd, &attr));
			attr = plain(right.cq, IBV_QPT_RC);
			CHECK(right.qp = ibv_create_qp(right.pd, &attr));
			join(left.qp, right.qp);
			uint64_t id = 0;
			CHECK(fill(&left, &right, &id, every) == DEPTH);
			for (int round = 0; round < 4; round++) {
				/* A completed request keeps its place until it has been polled. */
				usleep(50000);
				CHECK(fill(&left, &right, &id, every) == 0);
				for (int at = 0; at < DEPTH / every; at++)
					by_fields ? good_ex(ex) : (void)good(cqs[0]);
				CHECK(empty(cqs[by_fields]));
				CHECK(fill(&left, &right, &id, every) == DEPTH);
			}
			/* Destroying the queue pair removes its completions from the queue. */
			CODE(ibv_destroy_qp(left.qp), 0);
			CHECK(empty(cqs[by_fields]));
		}
	}
}

static void unsignaled_requests_have_their_places_back_with_an_error_too(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	uint64_t id = 0;
	CHECK(fill(&left, &right, &id, 1 << 20) == DEPTH);
	usleep(50000);
	/* None of them gives a completion, so no place becomes free. mlx5 blocks here too. */
	CHECK(empty(left.cq) && !fill(&left, &right, &id, 1 << 20));
	for (int round = 0; round < 2; round++) {
		CODE(to_state(left.qp, IBV_QPS_RESET), 0);
		CODE(to_state(right.qp, IBV_QPS_RESET), 0);
		join(left.qp, right.qp);
		CHECK(round || fill(&left, &right, &id, 1 << 20) == DEPTH);
	}
	/* An unknown key, after half a queue of unsignaled requests. */
	struct ibv_sge sge = piece(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1);
	wr.send_flags = 0;
	wr.wr.rdma.remote_addr = (uintptr_t)right.memory;
	wr.wr.rdma.rkey = right.mr->rkey;
	for (int at = 0; at < DEPTH / 2; at++)
		CODE(post(left.qp, &wr), 0);
	wr.wr.rdma.rkey ^= 0x100;
	for (int at = 0; at < DEPTH / 2; at++)
		CODE(post(left.qp, &wr), 0);
	CODE(post(left.qp, &wr), ENOMEM);
	for (int at = 0; at < DEPTH / 2; at++)
		CHECK(next(left.cq).status != IBV_WC_SUCCESS);
	for (int at = 0; at < DEPTH; at++)
		CODE(post(left.qp, &wr), 0);
	CODE(post(left.qp, &wr), ENOMEM);
}

static void a_receives_place_is_free_when_its_completion_has_been_polled(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	for (int round = 0; round < 3; round++) {
		for (int at = 0; at < DEPTH; at++)
			CODE(post_receive(&right, at, 0, 8), 0);
		struct ibv_sge sge = piece(&left, 0, 8);
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
		for (int at = 0; at < DEPTH; at++)
			CODE(post(left.qp, &wr), 0);
		for (int at = 0; at < DEPTH; at++)
			good(left.cq);
		CODE(post_receive(&right, 0, 0, 8), ENOMEM);
		for (int at = 0; at < DEPTH; at++)
			good(right.cq);
	}
}

static void queues_are_rounded_up_and_their_sizes_reported(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_qp_init_attr attr = plain(end.cq, IBV_QPT_RC);
	attr.cap = (struct ibv_qp_cap){ 5, 3, 1, 1, 0 };
	struct ibv_qp *qp = ibv_create_qp(end.pd, &attr);
	CHECK(qp && attr.cap.max_send_wr == 8 && attr.cap.max_recv_wr == 4);
	CHECK(attr.cap.max_inline_data == 64);
	struct ibv_qp_attr its;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(qp, &its, IBV_QP_CAP, &init), 0);
	CHECK(!memcmp(&init.cap, &attr.cap, sizeof init.cap));
	CHECK(!memcmp(&its.cap, &attr.cap, sizeof its.cap));
	CODE(to_init(qp), 0);
	struct ibv_recv_wr wr = { 0 }, *bad;
	for (int at = 0; at < 4; at++)
		CODE(ibv_post_recv(qp, &wr, &bad), 0);
	CODE(ibv_post_recv(qp, &wr, &bad), ENOMEM);
	/* Inline data of the same size as the list, and the size that perftest asks for. */
	attr.cap = (struct ibv_qp_cap){ 1, 0, 32, 1, 0 };
	CHECK(ibv_create_qp(end.pd, &attr) && attr.cap.max_inline_data == 16 * 32);
	CHECK(attr.cap.max_send_wr == 1 && attr.cap.max_recv_wr == 0);
	attr.cap = (struct ibv_qp_cap){ 1, 0, 1, 1, 220 };
	CHECK(ibv_create_qp(end.pd, &attr) && attr.cap.max_inline_data >= 220);
	attr.cap = (struct ibv_qp_cap){ 1, 0, 1, 1, 1025 };
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	struct ibv_device_attr device;
	CODE(ibv_query_device(end.context, &device), 0);
	attr.cap = (struct ibv_qp_cap){ device.max_qp_wr, device.max_qp_wr, 1, 1, 0 };
	CHECK(ibv_create_qp(end.pd, &attr) && attr.cap.max_send_wr == (uint32_t)device.max_qp_wr);
	attr.cap.max_send_wr++;
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	struct ibv_cq *cq = ibv_create_cq(end.context, 64, NULL, NULL, 0);
	CHECK(cq && cq->cqe == 127);
	CODE(ibv_resize_cq(cq, 200), 0);
	CHECK(cq->cqe == 255);
	CHECK(cq = ibv_create_cq(end.context, device.max_cqe, NULL, NULL, 0));
	CHECK(cq->cqe == device.max_cqe);
	NONE(ibv_create_cq(end.context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 33, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(end.pd, &shared);
	CHECK(srq && shared.attr.max_wr == 64);
	struct ibv_srq_attr asked;
	CODE(ibv_query_srq(srq, &asked), 0);
	CHECK(asked.max_wr == 64);
}

/* Two queue pairs complete to one queue that only has room for one. */
static void a_queue_that_overruns_says_so(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_cq *small = ibv_create_cq(left.context, DEPTH - 1, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = plain(small, IBV_QPT_RC);
	struct ibv_qp *both[] = { ibv_create_qp(left.pd, &attr), ibv_create_qp(left.pd, &attr) };
	uint64_t id = 0;
	for (int at = 0; at < 2; at++) {
		attr = plain(right.cq, IBV_QPT_RC);
		CHECK(right.qp = ibv_create_qp(right.pd, &attr));
		join(left.qp = both[at], right.qp);
		fill(&left, &right, &id, 1);
	}
	struct ibv_async_event event;
	do {
		CODE(ibv_get_async_event(left.context, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == small);
}

/* All calls of a child on its parent's objects fail with an error. */
static int of_parent(struct end *left, struct ibv_qp_ex *ex)
{
	alarm(20);
	struct ibv_sge sge = piece(left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 7);
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	struct ibv_async_event event;
	CODE(post(left->qp, &wr), EOPNOTSUPP);
	CODE(post_receive(left, 1, 0, 8), EOPNOTSUPP);
	CHECK(ibv_poll_cq(left->cq, 1, &wc) == -EOPNOTSUPP);
	CODE(ibv_req_notify_cq(left->cq, 0), EOPNOTSUPP);
	MINUS(ibv_get_cq_event(left->channel, &cq, &context), EOPNOTSUPP);
	MINUS(ibv_get_async_event(left->context, &event), EOPNOTSUPP);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	CODE(ibv_wr_complete(ex), EOPNOTSUPP);
	CODE(to_state(left->qp, IBV_QPS_ERR), EOPNOTSUPP);
	CODE(ibv_resize_cq(left->cq, 4 * DEPTH + 1), EOPNOTSUPP);
	NONE(ibv_create_cq(left->context, 1, NULL, NULL, 0), EOPNOTSUPP);
	struct ibv_qp_init_attr attr = plain(left->cq, IBV_QPT_RC);
	NONE(ibv_create_qp(left->pd, &attr), EOPNOTSUPP);
	NONE(ibv_reg_mr(left->pd, left->memory, 8, 0), EOPNOTSUPP);
	return 0;
}

static void a_forked_child_posts_nothing_and_takes_nothing(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_qp_init_attr_ex attr = { .send_cq = left.cq, .recv_cq = left.cq };
	attr.qp_type = IBV_QPT_RC;
	attr.cap = (struct ibv_qp_cap){ 4, 4, 2, 2, 32 };
	attr.pd = left.pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	struct ibv_qp *built = ibv_create_qp_ex(left.context, &attr);
	CHECK(built);
	join(left.qp, right.qp);
	/* A completion and its event are pending for the parent. */
	CODE(ibv_req_notify_cq(left.cq, 0), 0);
	for (int at = 0; at < 2; at++)
		CODE(post_receive(&right, 3 + at, 0, 8), 0);
	struct ibv_sge sge = piece(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 5);
	CODE(post(left.qp, &wr), 0);
	CHECK(good(right.cq).wr_id == 3);
	pid_t child = fork();
	if (!child)
		_exit(of_parent(&left, ibv_qp_to_qp_ex(built)));
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	struct ibv_cq *cq;
	void *context;
	CODE(ibv_get_cq_event(left.channel, &cq, &context), 0);
	CHECK(cq == left.cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(good(left.cq).wr_id == 5);
	wr.wr_id = 6;
	CODE(post(left.qp, &wr), 0);
	CHECK(good(left.cq).wr_id == 6 && good(right.cq).wr_id == 4);
	CHECK(empty(left.cq) && empty(right.cq));
}

/* Closes a descriptor of the library, as closefrom does, and opens a file with the same number. */
static int taken_over(int number)
{
	int file = memfd_create("own", 0);
	CHECK(file >= 0 && dup2(file, number) == number);
	return file;
}

static void a_file_of_the_programs_that_got_a_descriptors_number_is_not_written_to(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	int file = taken_over(left.channel->fd), events = taken_over(left.context->async_fd);
	CODE(ibv_req_notify_cq(left.cq, 0), 0);
	uint64_t id = 0;
	CHECK(fill(&left, &right, &id, 1) == DEPTH);
	for (int at = 0; at < DEPTH; at++)
		good(left.cq);
	/* Causes an event of the queue pair. */
	CODE(to_state(left.qp, IBV_QPS_ERR), 0);
	struct ibv_sge sge = piece(&right, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
	CODE(to_state(right.qp, IBV_QPS_ERR), 0);
	CODE(post(right.qp, &wr), 0);
	usleep(100000);
	CHECK(lseek(file, 0, SEEK_END) == 0 && lseek(events, 0, SEEK_END) == 0);
	int numbers[] = { left.channel->fd, left.context->async_fd };
	CODE(ibv_destroy_qp(left.qp), 0);
	CODE(ibv_destroy_cq(left.cq), 0);
	CODE(ibv_destroy_comp_channel(left.channel), 0);
	for (int at = 0; at < 2; at++)
		CHECK(fcntl(numbers[at], F_GETFD) >= 0);
	CHECK(lseek(file, 0, SEEK_END) == 0);
}

/* A file of the program's with the number of a descriptor is not read either. It may be a pipe, whose
 * read would never return. */
static void an_event_is_not_read_from_a_file_of_the_programs(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	int ends[2], numbers[] = { end.channel->fd, end.context->async_fd };
	alarm(30);
	CHECK(!pipe(ends));
	for (int at = 0; at < 2; at++) {
		int file = taken_over(numbers[at]);
		CHECK(write(file, "the program's own words", 23) == 23 && !lseek(file, 0, SEEK_SET));
	}
	for (int round = 0; round < 3; round++) {
		MINUS(ibv_get_cq_event(end.channel, &cq, &context), EBADF);
		MINUS(ibv_get_async_event(end.context, &event), EBADF);
		for (int at = 0; at < 2; at++) {
			if (round == 0)
				CHECK(!lseek(numbers[at], 0, SEEK_CUR) && dup2(ends[0], numbers[at]) >= 0);
			else
				close(numbers[at]);
		}
	}
}

static void inline_data_are_copied_by_the_post(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	char here[65] = "memory that is not registered";
	struct ibv_sge pieces[2] = { { (uintptr_t)here, 6, 0 }, { (uintptr_t)here + 6, 58, 0 } };
	struct ibv_send_wr wr = request(IBV_WR_SEND, pieces, 1);
	wr.num_sge = 2;
	wr.send_flags |= IBV_SEND_INLINE;
	CODE(post_receive(&right, 1, 0, 64), 0);
	CODE(post(left.qp, &wr), 0);
	memset(here, 0, sizeof here);
	good(left.cq);
	CHECK(good(right.cq).byte_len == 64 && !strcmp(right.memory, "memory that is not registered"));
	pieces[1].length = 59;
	CODE(post(left.qp, &wr), EINVAL);
	pieces[1].length = 0xffffffff;
	CODE(post(left.qp, &wr), EINVAL);
}

static void changes_that_are_refused_change_nothing(void)
{
	struct end end = make(IBV_QPT_RC);
	CODE(to_rtr(end.qp, 5), EINVAL);
	CHECK(end.qp->state == IBV_QPS_RESET);
	CODE(to_init(end.qp), 0);
	CHECK(end.qp->state == IBV_QPS_INIT);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	CODE(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), EINVAL);
	CODE(ibv_modify_qp(end.qp, &attr, IBV_QP_CAP), EINVAL);
	CODE(ibv_modify_qp(end.qp, &attr, 1 << 24), EINVAL);
	CODE(ibv_modify_qp(end.qp, NULL, IBV_QP_STATE), EINVAL);
	attr.qp_state = 99;
	CODE(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	attr.cur_qp_state = IBV_QPS_RTS;
	CODE(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	attr.pkey_index = 3;
	CODE(ibv_modify_qp(end.qp, &attr, IBV_QP_PKEY_INDEX), EINVAL);
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_INIT && end.qp->state == IBV_QPS_INIT && attr.port_num == 1);
	CHECK(init.cap.max_send_wr == DEPTH && init.send_cq == end.cq && init.qp_type == IBV_QPT_RC);
	CODE(ibv_query_qp(end.qp, NULL, 0, &init), EINVAL);
	CODE(ibv_query_qp(end.qp, &attr, 0, NULL), EINVAL);
	CODE(to_rtr(end.qp, 0x1000000), EINVAL);
	CODE(to_rtr_by(end.qp, 0xabcdef, 2), EINVAL);
	CODE(to_rtr(end.qp, 0xabcdef), 0);
	CODE(to_rts(end.qp), 0);
	CODE(ibv_query_qp(end.qp, &attr, 0x1ffffff, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == 0xabcdef && attr.timeout == 14);
	CHECK(attr.sq_psn == 7 && attr.rq_psn == 7 && attr.ah_attr.is_global && attr.path_mtu == IBV_MTU_1024);
	CHECK(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4 && attr.rnr_retry == 7);
	union ibv_gid gid;
	CODE(ibv_query_gid(end.context, 1, 0, &gid), 0);
	CHECK(!memcmp(&gid, &attr.ah_attr.grh.dgid, 16) && attr.ah_attr.port_num == 1);
}

static void a_reset_takes_completions_along(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_qp_init_attr attr = plain(end.cq, IBV_QPT_RC);
	struct ibv_qp *other = ibv_create_qp(end.pd, &attr);
	CHECK(other);
	struct end second = end;
	second.qp = other;
	CODE(to_init(end.qp), 0);
	CODE(to_init(other), 0);
	for (int at = 0; at < 8; at++)
		CODE(post_receive(at % 2 ? &end : &second, at, 0, 8), 0);
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	CODE(to_state(other, IBV_QPS_ERR), 0);
	CODE(to_state(end.qp, IBV_QPS_RESET), 0);
	for (int at = 0; at < 8; at += 2)
		CHECK(next(end.cq).wr_id == (uint64_t)at);
	CHECK(empty(end.cq));
	/* Destroying it has the same effect. */
	CODE(to_init(end.qp), 0);
	CODE(post_receive(&end, 1, 0, 8), 0);
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	CODE(ibv_destroy_qp(end.qp), 0);
	CHECK(empty(end.cq));
}

static void queue_pairs_come_in_the_kinds_that_there_are(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_qp_init_attr attr = plain(end.cq, IBV_QPT_DRIVER);
	NONE(ibv_create_qp(end.pd, &attr), EOPNOTSUPP);
	attr.qp_type = 77;
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	attr = plain(end.cq, IBV_QPT_RC);
	attr.cap.max_send_wr = 0xffffffff;
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	attr = plain(end.cq, IBV_QPT_RC);
	attr.cap.max_recv_sge = 0xffff;
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	attr = plain(NULL, IBV_QPT_RC);
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	NONE(ibv_create_qp(end.pd, NULL), EINVAL);
	attr = plain(end.cq, IBV_QPT_UC);
	NONE(ibv_create_qp(NULL, &attr), EINVAL);
	attr.cap = (struct ibv_qp_cap){ 0 };
	struct ibv_qp *small = ibv_create_qp(end.pd, &attr);
	CHECK(small && attr.cap.max_send_wr >= 1 && !ibv_qp_to_qp_ex(small));
	struct ibv_qp_init_attr_ex ex = { .send_cq = end.cq, .recv_cq = end.cq, .qp_type = IBV_QPT_UD };
	ex.cap = (struct ibv_qp_cap){ 4, 4, 1, 1, 0 };
	ex.pd = end.pd;
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	NONE(ibv_create_qp_ex(end.context, &ex), EOPNOTSUPP);
	ex.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	NONE(ibv_create_qp_ex(end.context, &ex), EOPNOTSUPP);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	NONE(ibv_create_qp_ex(end.context, &ex), EOPNOTSUPP);
	ex.create_flags = 0;
	CHECK(ibv_create_qp_ex(end.context, &ex));
	/* An object of another context is refused. */
	struct end other = make(IBV_QPT_RC);
	attr = plain(other.cq, IBV_QPT_RC);
	NONE(ibv_create_qp(end.pd, &attr), EINVAL);
	ex.pd = other.pd;
	NONE(ibv_create_qp_ex(end.context, &ex), EINVAL);
}

static void work_requests_built_call_by_call_go_all_or_none(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_qp_init_attr_ex attr = { .send_cq = left.cq, .recv_cq = left.cq };
	attr.qp_type = IBV_QPT_RC;
	attr.cap = (struct ibv_qp_cap){ 4, 4, 2, 2, 32 };
	attr.pd = left.pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	struct ibv_qp *qp = ibv_create_qp_ex(left.context, &attr);
	CHECK(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex && !ex->wr_rdma_read && !ex->wr_set_ud_addr);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	CODE(ibv_wr_complete(ex), EINVAL);
	join(qp, right.qp);
	for (int at = 0; at < 4; at++)
		CODE(post_receive(&right, at, 256 * at, 256), 0);
	ex->wr_flags = IBV_SEND_SIGNALED;
	strcpy(left.memory, "registered");
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, left.mr->lkey, (uintptr_t)left.memory, 16);
	ex->wr_id = 2;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, (char *)"inline", 7);
	ex->wr_id = 3;
	ibv_wr_rdma_write(ex, right.mr->rkey, (uintptr_t)right.memory + 4096);
	struct ibv_data_buf bufs[2] = { { (char *)"wr", 2 }, { (char *)"itten", 6 } };
	ibv_wr_set_inline_data_list(ex, 2, bufs);
	CODE(ibv_wr_complete(ex), 0);
	for (uint64_t id = 1; id < 4; id++)
		CHECK(good(left.cq).wr_id == id);
	CHECK(!strcmp(right.memory, "registered") && !strcmp(right.memory + 256, "inline"));
	CHECK(!strcmp(right.memory + 4096, "written"));
	/* One invalid request keeps all of them from being posted. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, left.mr->lkey, (uintptr_t)left.memory, 16);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, left.memory, 65);
	CODE(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	for (int at = 0; at < 5; at++)
		ibv_wr_send(ex);
	CODE(ibv_wr_complete(ex), ENOMEM);
	ibv_wr_start(ex);
	ibv_wr_set_sge(ex, 0, 0, 0);
	CODE(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_abort(ex);
	CODE(ibv_wr_complete(ex), EINVAL);
	/* Between start and complete the thread cannot post in another way, and does not deadlock.
	 * */
	ibv_wr_start(ex);
	ibv_wr_start(ex);
	struct ibv_sge sge = piece(&left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
	CODE(post(qp, &wr), EBUSY);
	ibv_wr_abort(ex);
	CHECK(empty(left.cq));
	CODE(post(qp, &wr), 0);
	good(left.cq);
}

/* Names of newer headers than Debian 12's. */
enum { FLUSH_GLOBAL = 1, FLUSH_PERSISTENT = 2, FLUSH_RANGE = 0, FLUSH_MR = 1 };
enum { ACCESS_FLUSH_GLOBAL = 1 << 8, ACCESS_FLUSH_PERSISTENT = 1 << 9 };
enum { QP_EX_WITH_FLUSH = 1 << 11 };
static const enum ibv_wc_opcode WC_FLUSH = 8;

/* The function that ibv_wr_flush of newer headers calls, the last member of their ibv_qp_ex. */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t at, size_t len, uint8_t type,
		     uint8_t level)
{
	typedef void (*function)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
	function flush = *(function *)((char *)ex + 352);
	CHECK(flush);
	flush(ex, rkey, at, len, type, level);
}

/* Posts one FLUSH. */
static int flush(struct ibv_qp_ex *ex, const struct ibv_mr *mr, size_t len, int type, int level)
{
	ibv_wr_start(ex);
	wr_flush(ex, mr->rkey, (uintptr_t)mr->addr, len, type, level);
	return ibv_wr_complete(ex);
}

static void atomic_writes_and_flushes_are_built_call_by_call(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_device_attr_ex device;
	CODE(ibv_query_device_ex(left.context, NULL, &device), 0);
	CHECK((device.device_cap_flags_ex >> 38 & 7) == 5);
	struct ibv_qp_init_attr_ex attr = { .send_cq = left.cq, .recv_cq = left.cq };
	attr.cap = (struct ibv_qp_cap){ 4, 4, 1, 1, 0 };
	attr.pd = left.pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | QP_EX_WITH_FLUSH;
	attr.qp_type = IBV_QPT_UC;
	NONE(ibv_create_qp_ex(left.context, &attr), EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	struct ibv_qp *qp = ibv_create_qp_ex(left.context, &attr);
	CHECK(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex && ex->wr_atomic_write && !ex->wr_send);
	struct ibv_mr *mr = ibv_reg_mr(right.pd, right.memory, SIZE, RIGHTS | ACCESS_FLUSH_GLOBAL);
	CHECK(mr);
	join(qp, right.qp);
	struct ibv_qp_attr access = { .qp_access_flags = RIGHTS | ACCESS_FLUSH_GLOBAL };
	CODE(ibv_modify_qp(right.qp, &access, IBV_QP_ACCESS_FLAGS), 0);
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(right.qp, &access, IBV_QP_ACCESS_FLAGS, &init), 0);
	CHECK(access.qp_access_flags == (RIGHTS | ACCESS_FLUSH_GLOBAL));

	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ibv_wr_atomic_write(ex, mr->rkey, (uintptr_t)right.memory + 16, "8 bytes.");
	ex->wr_id = 2;
	wr_flush(ex, mr->rkey, (uintptr_t)right.memory, 64, FLUSH_GLOBAL, FLUSH_RANGE);
	ex->wr_id = 3;
	wr_flush(ex, mr->rkey, 0, SIZE_MAX, FLUSH_GLOBAL, FLUSH_MR);
	CODE(ibv_wr_complete(ex), 0);
	struct ibv_wc written = good(left.cq), ranged = good(left.cq), whole = good(left.cq);
	CHECK(written.wr_id == 1 && written.opcode == IBV_WC_ATOMIC_WRITE);
	CHECK(ranged.wr_id == 2 && ranged.opcode == WC_FLUSH);
	CHECK(whole.wr_id == 3 && whole.opcode == WC_FLUSH);
	CHECK(!memcmp(right.memory + 16, "8 bytes.", 8) && !right.memory[15] && !right.memory[24]);

	CODE(flush(ex, mr, 64, 0, FLUSH_RANGE), EINVAL);
	CODE(flush(ex, mr, 64, 4, FLUSH_RANGE), EINVAL);
	CODE(flush(ex, mr, 64, FLUSH_GLOBAL, 2), EINVAL);
	CODE(flush(ex, mr, 64, FLUSH_GLOBAL, 4), EINVAL);
	CODE(flush(ex, mr, (size_t)1 << 32, FLUSH_GLOBAL, FLUSH_RANGE), EINVAL);
	CODE(flush(ex, mr, ((size_t)1 << 31) + 1, FLUSH_GLOBAL, FLUSH_RANGE), EINVAL);
	wr_flush(ex, mr->rkey, 0, 1, FLUSH_GLOBAL, FLUSH_RANGE);
	CODE(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_atomic_write(ex, mr->rkey, (uintptr_t)right.memory, NULL);
	CODE(ibv_wr_complete(ex), EINVAL);
	struct ibv_sge sge = piece(&left, 0, 7);
	ibv_wr_start(ex);
	ibv_wr_atomic_write(ex, mr->rkey, (uintptr_t)right.memory, "8 bytes.");
	ibv_wr_set_sge_list(ex, 1, &sge);
	CODE(ibv_wr_complete(ex), EINVAL);
	CHECK(empty(left.cq) && !right.memory[0]);

	/* Memory that grants no FLUSH, and persistence, which no memory here has. */
	CODE(flush(ex, right.mr, 64, FLUSH_GLOBAL, FLUSH_RANGE), 0);
	CHECK(next(left.cq).status == IBV_WC_REM_ACCESS_ERR);
	CODE(to_state(qp, IBV_QPS_RESET), 0);
	CODE(to_state(right.qp, IBV_QPS_RESET), 0);
	join(qp, right.qp);
	access.qp_access_flags = RIGHTS | ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT;
	CODE(ibv_modify_qp(right.qp, &access, IBV_QP_ACCESS_FLAGS), 0);
	CODE(flush(ex, mr, 64, FLUSH_PERSISTENT, FLUSH_RANGE), 0);
	CHECK(next(left.cq).status == IBV_WC_REM_ACCESS_ERR);
}

static void an_armed_queue_gives_one_event(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_cq *cq;
	void *context;
	CHECK(!(fcntl(end.channel->fd, F_GETFL) & O_NONBLOCK));
	CHECK(!fcntl(end.channel->fd, F_SETFL, O_NONBLOCK));
	MINUS(ibv_get_cq_event(end.channel, &cq, &context), EAGAIN);
	CODE(to_init(end.qp), 0);
	CODE(ibv_req_notify_cq(end.cq, 0), 0);
	for (int at = 0; at < 3; at++)
		CODE(post_receive(&end, at, 0, 8), 0);
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	struct pollfd readable = { .fd = end.channel->fd, .events = POLLIN };
	CHECK(poll(&readable, 1, 10000) == 1);
	CODE(ibv_get_cq_event(end.channel, &cq, &context), 0);
	CHECK(cq == end.cq && context == end.cq->cq_context);
	MINUS(ibv_get_cq_event(end.channel, &cq, &context), EAGAIN);
	MINUS(ibv_get_cq_event(end.channel, NULL, &context), EINVAL);
	MINUS(ibv_get_cq_event((struct ibv_comp_channel *)end.qp, &cq, &context), EINVAL);
	CODE(ibv_destroy_comp_channel(end.channel), EBUSY);
	CODE(ibv_destroy_cq(end.cq), EBUSY);
	CODE(ibv_destroy_qp(end.qp), 0);
	ibv_ack_cq_events(end.cq, 1);
	CODE(ibv_destroy_cq(end.cq), 0);
	CODE(ibv_destroy_cq(end.cq), EINVAL);
	CODE(ibv_destroy_comp_channel(end.channel), 0);
	MINUS(ibv_get_cq_event(end.channel, &cq, &context), EINVAL);
}

static void *acknowledge_later(void *cq)
{
	usleep(200 * 1000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void destroying_a_queue_waits_for_acknowledgements(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_cq *cq;
	void *context;
	CODE(to_init(end.qp), 0);
	CODE(ibv_req_notify_cq(end.cq, 0), 0);
	CODE(post_receive(&end, 0, 0, 8), 0);
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	CODE(ibv_get_cq_event(end.channel, &cq, &context), 0);
	CODE(ibv_destroy_qp(end.qp), 0);
	pthread_t thread;
	struct timespec begin, after;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, end.cq));
	CODE(ibv_destroy_cq(end.cq), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	pthread_join(thread, NULL);
	CHECK((after.tv_sec - begin.tv_sec) * 1000 + (after.tv_nsec - begin.tv_nsec) / 1000000 >= 190);
}

static void queues_are_at_least_as_long_as_asked_for(void)
{
	struct end end = make(IBV_QPT_RC);
	NONE(ibv_create_cq(end.context, 0, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(end.context, -1, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(end.context, 1 << 30, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(end.context, 8, NULL, NULL, 1), EINVAL);
	NONE(ibv_create_cq(end.context, 8, NULL, (struct ibv_comp_channel *)end.cq, 0), EINVAL);
	NONE(ibv_create_cq(NULL, 8, NULL, NULL, 0), EINVAL);
	CODE(to_init(end.qp), 0);
	for (int at = 0; at < 8; at++)
		CODE(post_receive(&end, at, 0, 8), 0);
	CODE(to_state(end.qp, IBV_QPS_ERR), 0);
	CODE(ibv_resize_cq(end.cq, 7), EINVAL);
	CODE(ibv_resize_cq(end.cq, 8), 0);
	CHECK(end.cq->cqe == 15);
	CODE(ibv_resize_cq(end.cq, 1000), 0);
	CHECK(end.cq->cqe == 1023);
	CODE(ibv_resize_cq(end.cq, 0), EINVAL);
	CODE(ibv_resize_cq(NULL, 8), EINVAL);
	for (int at = 0; at < 8; at++)
		CHECK(next(end.cq).wr_id == (uint64_t)at);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(end.cq, 0, NULL) == 0 && ibv_poll_cq(end.cq, -1, &wc) == 0);
	CHECK(ibv_poll_cq(end.cq, 1, NULL) < 0);
}

static void completions_are_read_field_by_field(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct ibv_cq_ex *ex = ibv_create_cq_ex(right.context, &attr);
	CHECK(ex);
	attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	NONE(ibv_create_cq_ex(right.context, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	NONE(ibv_create_cq_ex(right.context, &attr), EOPNOTSUPP);
	NONE(ibv_create_cq_ex(right.context, NULL), EINVAL);
	struct ibv_qp_init_attr init = plain(ibv_cq_ex_to_cq(ex), IBV_QPT_RC);
	CHECK(right.qp = ibv_create_qp(right.pd, &init));
	join(left.qp, right.qp);
	struct ibv_poll_cq_attr how = { 0 };
	CODE(ibv_start_poll(ex, &how), ENOENT);
	ibv_end_poll(ex);
	struct ibv_sge sge = piece(&left, 0, 24);
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge, 1);
	for (int at = 0; at < 2; at++) {
		CODE(post_receive(&right, 10 + at, 0, 64), 0);
		wr.imm_data = htonl(at);
		CODE(post(left.qp, &wr), 0);
		good(left.cq);
	}
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	uint64_t former = 0, zero = 0;
	CODE(ibv_start_poll(ex, &how), 0);
	for (int at = 0; at < 2; at++) {
		CHECK(ex->status == IBV_WC_SUCCESS && ex->wr_id == (uint64_t)10 + at);
		CHECK(ibv_wc_read_opcode(ex) == IBV_WC_RECV && ibv_wc_read_byte_len(ex) == 24);
		CHECK(ibv_wc_read_imm_data(ex) == htonl(at) && ibv_wc_read_wc_flags(ex) == IBV_WC_WITH_IMM);
		CHECK(ibv_wc_read_qp_num(ex) == right.qp->qp_num && !ibv_wc_read_vendor_err(ex));
		CHECK(!ibv_wc_read_slid(ex) && !ibv_wc_read_sl(ex) && !ibv_wc_read_dlid_path_bits(ex));
		uint64_t stamp = ibv_wc_read_completion_ts(ex);
		CODE(ibv_query_rt_values_ex(right.context, &values), 0);
		CHECK(stamp >= former && stamp <= (uint64_t)values.raw_clock.tv_nsec);
		former = stamp;
		uint64_t wall = ibv_wc_read_completion_wallclock_ns(ex), now = time(NULL) * 1000000000ull;
		CHECK(wall > now - 60000000000ull && wall < now + 2000000000ull);
		/* Wall-clock times advance like the device's clock. */
		if (at == 0)
			zero = wall - stamp;
		for (int often = 0; often < 1000; often++)
			CHECK(ibv_wc_read_completion_wallclock_ns(ex) - stamp == zero);
		CODE(ibv_next_poll(ex), at ? ENOENT : 0);
	}
	CODE(ibv_start_poll(ex, &how), EBUSY);
	ibv_end_poll(ex);
	CODE(ibv_start_poll(ex, &how), ENOENT);
	how.comp_mask = 1;
	CODE(ibv_start_poll(ex, &how), EINVAL);
	CHECK(ibv_wc_read_byte_len(ex) == 0);
}

static void receives_come_from_a_shared_queue(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(right.pd, &attr);
	CHECK(srq && srq->pd == right.pd && attr.attr.max_wr >= 8);
	struct ibv_qp_init_attr init = plain(right.cq, IBV_QPT_RC);
	init.srq = srq;
	CHECK(right.qp = ibv_create_qp(right.pd, &init));
	CHECK(init.cap.max_recv_wr == 0 && right.qp->srq == srq);
	join(left.qp, right.qp);
	struct ibv_sge sge = piece(&right, 0, 64);
	struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	CODE(ibv_post_recv(right.qp, &wr, &bad), EINVAL);
	CODE(ibv_post_srq_recv(srq, &wr, &bad), 0);
	CODE(ibv_post_srq_recv(srq, &wr, &bad), 0);
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	CODE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	CODE(ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR), EOPNOTSUPP);
	CODE(ibv_modify_srq(srq, &limit, 4), EINVAL);
	CODE(ibv_modify_srq(NULL, &limit, IBV_SRQ_LIMIT), EINVAL);
	limit.srq_limit = 9;
	CODE(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	CODE(ibv_query_srq(srq, &limit), 0);
	CHECK(limit.srq_limit == 2 && limit.max_wr == attr.attr.max_wr);
	struct ibv_sge from = piece(&left, 0, 8);
	struct ibv_send_wr send = request(IBV_WR_SEND, &from, 1);
	CODE(post(left.qp, &send), 0);
	CHECK(good(right.cq).wr_id == 3);
	/* One receive is left, fewer than the limit, so there is an event with the queue. There is
	 * also one for the first packet. */
	struct ibv_async_event event;
	bool told = false;
	while (!told) {
		CODE(ibv_get_async_event(right.context, &event), 0);
		told = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
		CHECK(!told || event.element.srq == srq);
		ibv_ack_async_event(&event);
	}
	CODE(ibv_destroy_srq(srq), EBUSY);
	CODE(ibv_destroy_qp(right.qp), 0);
	CODE(ibv_destroy_srq(srq), 0);
	CODE(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	attr.attr.max_wr = 0;
	NONE(ibv_create_srq(right.pd, &attr), EINVAL);
	attr.attr.max_wr = 0xffffffff;
	NONE(ibv_create_srq(right.pd, &attr), EINVAL);
	NONE(ibv_create_srq(NULL, &attr), EINVAL);
	struct ibv_srq_init_attr_ex ex = { .srq_type = IBV_SRQT_XRC, .attr = { .max_wr = 8, .max_sge = 1 } };
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.pd = right.pd;
	NONE(ibv_create_srq_ex(right.context, &ex), EINVAL);
	ex.srq_type = IBV_SRQT_TM;
	NONE(ibv_create_srq_ex(right.context, &ex), EOPNOTSUPP);
	ex.srq_type = IBV_SRQT_BASIC;
	CHECK(ibv_create_srq_ex(right.context, &ex));
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* Sends datagrams of 1000 and of 10 bytes to receives of 10 bytes, in the queue pair's own or in a
 * shared receive queue. */
static void a_datagram_longer_than_its_receive(bool is_shared)
{
	struct end left = make(IBV_QPT_UD), right = make(IBV_QPT_UD);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(right.pd, &attr);
	CHECK(srq);
	if (is_shared) {
		struct ibv_qp_init_attr init = plain(right.cq, IBV_QPT_UD);
		init.srq = srq;
		CHECK(right.qp = ibv_create_qp(right.pd, &init));
	}
	join(left.qp, right.qp);
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1 };
	CODE(ibv_query_gid(left.context, 1, 0, &way.grh.dgid), 0);
	struct ibv_ah *ah = ibv_create_ah(left.pd, &way);
	CHECK(ah);
	for (int id = 1; id <= 2; id++) {
		struct ibv_sge room = piece(&right, 0, 40 + 10);
		struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &room, .num_sge = 1 }, *bad;
		CODE(is_shared ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(right.qp, &wr, &bad), 0);
	}
	memset(left.memory, 'd', 1000);
	for (int id = 1; id <= 2; id++) {
		for (int len = 1000; len >= 10; len -= 990) {
			struct ibv_sge sge = piece(&left, 0, len);
			struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, len);
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = right.qp->qp_num;
			wr.wr.ud.remote_qkey = 0x1234;
			CODE(post(left.qp, &wr), 0);
			CHECK(good(left.cq).wr_id == (uint64_t)len);
		}
		/* The long datagram came first and had no effect. */
		struct ibv_wc got = good(right.cq);
		CHECK(got.wr_id == (uint64_t)id && got.byte_len == 50 && right.memory[49] == 'd');
		CHECK(right.memory[50] == 0 && state_of(right.qp) == IBV_QPS_RTS);
	}
}

static void a_datagram_too_long_for_its_receive_is_dropped(void)
{
	a_datagram_longer_than_its_receive(false);
	a_datagram_longer_than_its_receive(true);
}

static void receives_are_of_the_shared_queues_domain(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_pd *other = ibv_alloc_pd(right.context);
	CHECK(other);
	char *memory = calloc(1, 4096);
	struct ibv_mr *mr = ibv_reg_mr(other, memory, 4096, RIGHTS);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(other, &attr);
	CHECK(mr && srq);
	struct ibv_qp_init_attr init = plain(right.cq, IBV_QPT_RC);
	init.srq = srq;
	CHECK(right.qp = ibv_create_qp(right.pd, &init));
	CHECK(right.qp->pd == right.pd && right.qp->srq->pd == other);
	struct ibv_qp_init_attr foreign = plain(left.cq, IBV_QPT_RC);
	foreign.srq = srq;
	NONE(ibv_create_qp(left.pd, &foreign), EINVAL);
	join(left.qp, right.qp);
	struct ibv_sge sges[] = { { (uintptr_t)memory, 8, mr->lkey }, piece(&right, 0, 8) };
	for (int id = 0; id < 2; id++) {
		struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sges[id], .num_sge = 1 }, *bad;
		CODE(ibv_post_srq_recv(srq, &wr, &bad), 0);
	}
	strcpy(left.memory, "shared");
	struct ibv_sge from = piece(&left, 0, 8);
	struct ibv_send_wr send = request(IBV_WR_SEND, &from, 1);
	CODE(post(left.qp, &send), 0);
	good(left.cq);
	CHECK(good(right.cq).wr_id == 0 && !strcmp(memory, "shared"));
	/* Peers read and write memory in the queue pair's own domain. */
	send.opcode = IBV_WR_RDMA_WRITE;
	send.wr.rdma.remote_addr = (uintptr_t)right.memory;
	send.wr.rdma.rkey = right.mr->rkey;
	CODE(post(left.qp, &send), 0);
	good(left.cq);
	send.opcode = IBV_WR_SEND;
	CODE(post(left.qp, &send), 0);
	struct ibv_wc wc = next(right.cq);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
	CHECK(next(left.cq).status == IBV_WC_REM_OP_ERR);
	CODE(ibv_dealloc_pd(other), EBUSY);
	CODE(ibv_destroy_qp(right.qp), 0);
	CODE(ibv_destroy_srq(srq), 0);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dealloc_pd(other), 0);
	free(memory);
}

static void bind_by(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = request(IBV_WR_BIND_MW, NULL, 9);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		mr, (uintptr_t)mr->addr, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
	};
	CODE(post(qp, &wr), 0);
}

static enum ibv_wc_status write_by(struct end *from, struct ibv_mr *to, uint32_t rkey)
{
	struct ibv_sge sge = piece(from, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1);
	wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
	wr.wr.rdma.rkey = rkey;
	CODE(post(from->qp, &wr), 0);
	return next(from->cq).status;
}

static void a_windows_key_has_its_low_byte_from_the_program(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	char *memory = calloc(1, 4096);
	struct ibv_mr *mr = ibv_reg_mr(right.pd, memory, 4096, RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(right.pd, IBV_MW_TYPE_2);
	CHECK(mr && mw);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = right.cq, .recv_cq = right.cq, .qp_type = IBV_QPT_RC, .pd = right.pd,
		.cap = { DEPTH, DEPTH, 4, 4, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	CHECK(right.qp = ibv_create_qp_ex(right.context, &init));
	join(left.qp, right.qp);
	uint32_t index = mw->rkey & ~0xffu;
	uint32_t former = mw->rkey;
	/* Only the low byte is used, and it may be the same as before. */
	const uint32_t wishes[] = { ibv_inc_rkey(mw->rkey), 0x5a, 0xffffff00, 0x1234565a, former };
	for (int at = 0; at < 5; at++) {
		uint32_t rkey = index | (wishes[at] & 0xff);
		if (at % 2) {
			struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(right.qp);
			struct ibv_mw_bind_info info = { mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE };
			ibv_wr_start(ex);
			ex->wr_id = 9;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_bind_mw(ex, mw, wishes[at], &info);
			CODE(ibv_wr_complete(ex), 0);
		} else {
			bind_by(right.qp, mw, wishes[at], mr);
		}
		struct ibv_wc wc = good(right.cq);
		CHECK(wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 9);
		CHECK(write_by(&left, mr, rkey) == IBV_WC_SUCCESS);
		/* Invalidated by a message of the peer, or by a request of the owner. */
		if (at < 2) {
			CODE(post_receive(&right, 7, 0, 8), 0);
			struct ibv_sge sge = piece(&left, 0, 8);
			struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, &sge, 1);
			wr.invalidate_rkey = rkey;
			CODE(post(left.qp, &wr), 0);
			good(left.cq);
			wc = good(right.cq);
			CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == rkey);
		} else {
			struct ibv_send_wr wr = request(IBV_WR_LOCAL_INV, NULL, 8);
			wr.invalidate_rkey = rkey;
			CODE(post(right.qp, &wr), 0);
			CHECK(good(right.cq).opcode == IBV_WC_LOCAL_INV);
		}
	}
	bind_by(right.qp, mw, 0x77, mr);
	good(right.cq);
	CHECK(write_by(&left, mr, index | 0x78) == IBV_WC_REM_ACCESS_ERR);
}

/* A queue for sends and receives gives the send's completion before the peer's answer to it. */
static void a_sends_completion_comes_before_the_answer(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	join(left.qp, right.qp);
	struct ibv_sge sge = piece(&left, 0, 8), back = piece(&right, 0, 8);
	struct ibv_send_wr ask = request(IBV_WR_SEND, &sge, 1), answer = request(IBV_WR_SEND, &back, 2);
	answer.send_flags = 0;
	for (int round = 0; round < 400; round++) {
		/* The number of messages before the answered one varies with the round. */
		int quiet = round % 20;
		CODE(post_receive(&left, 3, 64, 8), 0);
		for (int at = 0; at <= quiet; at++) {
			CODE(post_receive(&right, 4, 64, 8), 0);
			CODE(post(left.qp, &ask), 0);
			CHECK(good(right.cq).opcode == IBV_WC_RECV);
			if (at < quiet)
				CHECK(good(left.cq).wr_id == 1);
		}
		answer.send_flags = round % 32 ? 0 : IBV_SEND_SIGNALED;
		CODE(post(right.qp, &answer), 0);
		CHECK(good(left.cq).opcode == IBV_WC_SEND);
		CHECK(good(left.cq).opcode == IBV_WC_RECV);
		if (answer.send_flags)
			good(right.cq);
	}
}

static void *acknowledge_event_later(void *event)
{
	usleep(200 * 1000);
	ibv_ack_async_event(event);
	return NULL;
}

/* The right one receives a message in RTR, which causes an event. */
static void establish(struct end *left, struct end *right)
{
	CODE(to_init(right->qp), 0);
	CODE(to_rtr(right->qp, left->qp->qp_num), 0);
	bring_up(left->qp, right->qp->qp_num);
	CODE(post_receive(right, 1, 0, 64), 0);
	struct ibv_sge sge = piece(left, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
	CODE(post(left->qp, &wr), 0);
	good(right->cq);
	struct pollfd readable = { .fd = right->context->async_fd, .events = POLLIN };
	CHECK(poll(&readable, 1, 10000) == 1);
}

static void asynchronous_events_name_their_object(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	struct ibv_async_event event;
	int flags = fcntl(right.context->async_fd, F_GETFL);
	CHECK(!(flags & O_NONBLOCK));
	fcntl(right.context->async_fd, F_SETFL, flags | O_NONBLOCK);
	MINUS(ibv_get_async_event(right.context, &event), EAGAIN);
	establish(&left, &right);
	CODE(ibv_get_async_event(right.context, &event), 0);
	CHECK(event.event_type == IBV_EVENT_COMM_EST && event.element.qp == right.qp);
	MINUS(ibv_get_async_event(right.context, &event), EAGAIN);
	MINUS(ibv_get_async_event(right.context, NULL), EINVAL);
	MINUS(ibv_get_async_event(NULL, &event), EINVAL);
	event.event_type = IBV_EVENT_COMM_EST;
	event.element.qp = right.qp;
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, acknowledge_event_later, &event));
	struct timespec begin, after;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	CODE(ibv_destroy_qp(right.qp), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	pthread_join(thread, NULL);
	CHECK((after.tv_sec - begin.tv_sec) * 1000 + (after.tv_nsec - begin.tv_nsec) / 1000000 >= 190);
	/* A destroyed queue pair has no events, and its destruction waits for none. */
	ibv_ack_async_event(&event);
	CODE(ibv_destroy_qp(right.qp), EINVAL);
}

static void an_event_is_withdrawn_with_its_object(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	establish(&left, &right);
	struct pollfd readable = { .fd = right.context->async_fd, .events = POLLIN };
	CODE(ibv_destroy_qp(right.qp), 0);
	/* A read of a readable descriptor must not block. */
	CHECK(poll(&readable, 1, 0) == 0);
}

/* The event of a queue pair and its destruction coincide; the objects it was made from are free at
 * once. */
static void an_event_under_way_keeps_nothing_busy(void)
{
	struct ibv_context *context = open_first();
	for (int round = 0; round < 2000; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
		struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
		struct ibv_srq *srq = ibv_create_srq(pd, &attr);
		struct ibv_qp_init_attr init = plain(cq, IBV_QPT_RC);
		init.srq = srq;
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		CHECK(qp);
		bring_up(qp, qp->qp_num);
		CODE(to_state(qp, IBV_QPS_ERR), 0);
		CODE(ibv_destroy_qp(qp), 0);
		CODE(ibv_destroy_srq(srq), 0);
		CODE(ibv_destroy_cq(cq), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
}

enum { EACH = 2000, THREADS = 4 };

static void *post_many(void *argument)
{
	struct end *end = argument;
	struct ibv_sge sge = piece(end, 0, 8);
	for (int at = 0; at < EACH; at++) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, at), *bad;
		int error;
		while ((error = ibv_post_send(end->qp, &wr, &bad)) == ENOMEM)
			sched_yield();
		CHECK(!error);
	}
	return NULL;
}

static void threads_may_post_to_one_queue_pair(void)
{
	struct end left = make(IBV_QPT_UC), right = make(IBV_QPT_UC);
	CHECK(left.cq = ibv_create_cq(left.context, EACH * THREADS, NULL, NULL, 0));
	struct ibv_qp_init_attr attr = plain(left.cq, IBV_QPT_UC);
	CHECK(left.qp = ibv_create_qp(left.pd, &attr));
	join(left.qp, right.qp);
	pthread_t threads[THREADS];
	for (int at = 0; at < THREADS; at++)
		CHECK(!pthread_create(&threads[at], NULL, post_many, &left));
	/* Each request completes once, and those of a thread in order. */
	int seen[EACH] = { 0 };
	for (int at = 0; at < EACH * THREADS; at++)
		seen[good(left.cq).wr_id]++;
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	for (int at = 0; at < EACH; at++)
		CHECK(seen[at] == THREADS);
	CHECK(empty(left.cq));
}

static void queue_pairs_may_go_in_the_middle_of_traffic(void)
{
	struct end left = make(IBV_QPT_RC), right = make(IBV_QPT_RC);
	for (int round = 0; round < 20; round++) {
		struct ibv_qp_init_attr attr = plain(left.cq, IBV_QPT_RC);
		struct ibv_qp *qp = ibv_create_qp(left.pd, &attr);
		attr = plain(right.cq, IBV_QPT_RC);
		struct ibv_qp *peer = ibv_create_qp(right.pd, &attr);
		CHECK(qp && peer);
		join(qp, peer);
		struct ibv_sge sge = piece(&left, 0, SIZE);
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, round);
		wr.wr.rdma.remote_addr = (uintptr_t)right.memory;
		wr.wr.rdma.rkey = right.mr->rkey;
		for (int at = 0; at < DEPTH; at++)
			CODE(post(qp, &wr), 0);
		CODE(ibv_destroy_qp(round % 2 ? qp : peer), 0);
		CODE(ibv_destroy_qp(round % 2 ? peer : qp), 0);
		CHECK(empty(left.cq) && empty(right.cq));
	}
	CODE(ibv_dereg_mr(left.mr), 0);
}

static void strangers_and_the_dead_are_refused_everywhere(void)
{
	struct end end = make(IBV_QPT_RC);
	struct ibv_qp *stranger = (struct ibv_qp *)end.mr;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_sge sge = piece(&end, 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1), *bad;
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad_receive;
	struct ibv_qp *gone = end.qp;
	CODE(ibv_destroy_qp(gone), 0);
	struct ibv_qp *all[] = { NULL, stranger, gone };
	for (int at = 0; at < 3; at++) {
		struct ibv_qp *qp = all[at];
		CODE(ibv_destroy_qp(qp), EINVAL);
		CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
		CODE(ibv_query_qp(qp, &attr, 0, &init), EINVAL);
		CHECK(!ibv_qp_to_qp_ex(qp) && ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0) == 0);
	}
	/* Posting to a destroyed queue pair is refused. */
	CODE(end.context->ops.post_send(gone, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	CODE(end.context->ops.post_send(NULL, &wr, NULL), EINVAL);
	CODE(end.context->ops.post_recv(gone, &receive, &bad_receive), EINVAL);
	CHECK(bad_receive == &receive);
	CODE(end.context->ops.post_recv(NULL, &receive, NULL), EINVAL);
	struct ibv_wc wc;
	CODE(ibv_destroy_cq(end.cq), 0);
	CHECK(end.context->ops.poll_cq(end.cq, 1, &wc) < 0);
	CHECK(end.context->ops.poll_cq(NULL, 1, &wc) < 0);
	CODE(end.context->ops.req_notify_cq(NULL, 0), EINVAL);
	ibv_ack_cq_events(end.cq, 1);
	ibv_ack_cq_events(NULL, 1);
	CODE(ibv_destroy_srq(NULL), EINVAL);
	CODE(ibv_destroy_srq((struct ibv_srq *)end.pd), EINVAL);
	CODE(ibv_destroy_comp_channel(NULL), EINVAL);
	NONE(ibv_create_comp_channel((struct ibv_context *)end.pd), EINVAL);
}

static const struct claim claims[] = {
	CLAIM(completions_describe_their_messages),
	CLAIM(reads_writes_and_atomics_reach_the_peers_memory),
	CLAIM(datagrams_need_an_address_handle),
	CLAIM(a_datagrams_service_level_is_the_kind_of_its_header),
	CLAIM(a_list_ends_at_the_first_that_is_refused),
	CLAIM(queues_are_full_at_their_size_and_not_before),
	CLAIM(a_place_is_free_when_its_completion_has_been_polled),
	CLAIM(unsignaled_requests_have_their_places_back_with_an_error_too),
	CLAIM(a_receives_place_is_free_when_its_completion_has_been_polled),
	CLAIM(queues_are_rounded_up_and_their_sizes_reported),
	CLAIM(a_queue_that_overruns_says_so),
	CLAIM(a_forked_child_posts_nothing_and_takes_nothing),
	CLAIM(a_file_of_the_programs_that_got_a_descriptors_number_is_not_written_to),
	CLAIM(an_event_is_not_read_from_a_file_of_the_programs),
	CLAIM(inline_data_are_copied_by_the_post),
	CLAIM(changes_that_are_refused_change_nothing),
	CLAIM(a_reset_takes_completions_along),
	CLAIM(queue_pairs_come_in_the_kinds_that_there_are),
	CLAIM(work_requests_built_call_by_call_go_all_or_none),
	CLAIM(atomic_writes_and_flushes_are_built_call_by_call),
	CLAIM(an_armed_queue_gives_one_event),
	CLAIM(destroying_a_queue_waits_for_acknowledgements),
	CLAIM(queues_are_at_least_as_long_as_asked_for),
	CLAIM(completions_are_read_field_by_field),
	CLAIM(receives_come_from_a_shared_queue),
	CLAIM(receives_are_of_the_shared_queues_domain),
	CLAIM(a_datagram_too_long_for_its_receive_is_dropped),
	CLAIM(a_windows_key_has_its_low_byte_from_the_program),
	CLAIM(a_sends_completion_comes_before_the_answer),
	CLAIM(asynchronous_events_name_their_object),
	CLAIM(an_event_is_withdrawn_with_its_object),
	CLAIM(an_event_under_way_keeps_nothing_busy),
	CLAIM(threads_may_post_to_one_queue_pair),
	CLAIM(queue_pairs_may_go_in_the_middle_of_traffic),
	CLAIM(strangers_and_the_dead_are_refused_everywhere),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
