/* Parts of programs that remove registered memory: two queue pairs of one process that communicate
 * through the device's own address, memory that is not removed, and memory that is. */

#pragma once

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { PAGE = 4096, SIZE = 1 << 20 };
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
/* Memory that is not removed. */
static char *good;
static struct ibv_mr *good_mr;

static void to_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static void bring_up(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = 7 };
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
	CODE(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .max_rd_atomic = 4 };
	attr.retry_cnt = attr.rnr_retry = 7;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

/* Makes and connects both queue pairs again. */
static void join(void)
{
	to_reset(qps[0]);
	to_reset(qps[1]);
	bring_up(qps[0], qps[1]->qp_num);
	bring_up(qps[1], qps[0]->qp_num);
	struct ibv_wc wc;
	while (ibv_poll_cq(cqs[0], 1, &wc) > 0 || ibv_poll_cq(cqs[1], 1, &wc) > 0)
		;
}

static void make(void)
{
	context = open_first();
	CHECK(pd = ibv_alloc_pd(context));
	for (int at = 0; at < 2; at++) {
		CHECK(cqs[at] = ibv_create_cq(context, 64, NULL, NULL, 0));
		struct ibv_qp_init_attr attr = { .send_cq = cqs[at], .recv_cq = cqs[at], .qp_type = IBV_QPT_RC };
		attr.cap = (struct ibv_qp_cap){ 16, 16, 4, 4, 0 };
		CHECK(qps[at] = ibv_create_qp(pd, &attr));
	}
	good = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(good != MAP_FAILED && (good_mr = ibv_reg_mr(pd, good, SIZE, RIGHTS)));
	join();
}

static enum ibv_wc_status next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t begin = time(NULL);
	while (!ibv_poll_cq(cq, 1, &wc))
		CHECK(time(NULL) - begin < 30);
	return wc.status;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, void *there, uint32_t key)
{
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)there;
		wr.wr.atomic.rkey = key;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)there;
		wr.wr.rdma.rkey = key;
	}
	return wr;
}

/* The status of a request of the first queue pair. */
static enum ibv_wc_status ask(enum ibv_wr_opcode opcode, void *here, uint32_t lkey, uint32_t len, void *there,
			      uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)here, len, lkey };
	struct ibv_send_wr wr = request(opcode, &sge, there, rkey), *bad;
	CODE(ibv_post_send(qps[0], &wr, &bad), 0);
	return next(cqs[0]);
}

static void still_works(void)
{
	join();
	for (int at = 0; at < 5000; at++)
		good[at] = at * 7;
	memset(good + 8192, 0, 5000);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 5000, good + 8192, good_mr->rkey), IBV_WC_SUCCESS);
	CHECK(!memcmp(good, good + 8192, 5000));
}

/* Memory that can be removed in one of these ways. */
static int file = -1;
static const char *WAYS[] = { "unmapped", "protected", "cut off", "moved" };
enum { WAY_COUNT = 4 };

static char *some(void)
{
	file = memfd_create("memory", 0);
	CHECK(file >= 0 && !ftruncate(file, SIZE));
	char *place = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(place != MAP_FAILED);
	memset(place, 's', SIZE);
	return place;
}

static void take_away(char *place, int way)
{
	if (way == 0)
		CHECK(!munmap(place, SIZE));
	else if (way == 1)
		CHECK(!mprotect(place, SIZE, PROT_NONE));
	else if (way == 2)
		CHECK(!ftruncate(file, 0));
	else
		CHECK(mremap(place, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
			     mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	close(file);
}

/* Registers memory, removes it, and writes there by a request of the first queue pair. */
static void lose(int way)
{
	char *place = some();
	struct ibv_mr *mr = ibv_reg_mr(pd, place, SIZE, RIGHTS);
	CHECK(mr);
	take_away(place, way);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	CODE(ibv_dereg_mr(mr), 0);
	still_works();
}
