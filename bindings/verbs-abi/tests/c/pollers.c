/* The claims of tests/pollers.rs: one function per claim, selected by the only argument. Each
 * thread polls for the completions of its own queue pair, which is connected to another one of the
 * process. */

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { THREADS_PER_CPU = 32, MAX_THREADS = 128, SIZE = 4096 };
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char memory[2 * SIZE];
/* Whether a thread yields its CPU after an empty poll. */
static atomic_bool yields, stops;
static atomic_long reads;

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	init.cap = (struct ibv_qp_cap){ 8, 8, 1, 1, 0 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void bring_up(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CODE(ibv_modify_qp(qp, &attr, mask), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	attr.dest_qp_num = peer->qp_num;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
	CODE(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	CODE(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .max_rd_atomic = 4 };
	attr.retry_cnt = attr.rnr_retry = 7;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
	CODE(ibv_modify_qp(qp, &attr, mask | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

/* Posts READs one by one and polls for each before the next. */
static void *read_and_poll(void *unused)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp *qp = make_qp(cq), *peer = make_qp(cq);
	bring_up(qp, peer);
	bring_up(peer, qp);
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	while (!stops) {
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		wr.wr.rdma.remote_addr = (uintptr_t)memory + SIZE;
		wr.wr.rdma.rkey = mr->rkey;
		CODE(ibv_post_send(qp, &wr, &bad), 0);
		struct ibv_wc wc;
		int count;
		while (!(count = ibv_poll_cq(cq, 1, &wc)) && !stops) {
			if (yields)
				sched_yield();
		}
		CHECK(count == 0 || (count == 1 && wc.status == IBV_WC_SUCCESS));
		reads += count;
	}
	CODE(ibv_destroy_qp(qp), 0);
	CODE(ibv_destroy_qp(peer), 0);
	CODE(ibv_destroy_cq(cq), 0);
	return unused;
}

/* Number of READs in a second by threads that yield after an empty poll, or do not. */
static long reads_in_a_second(bool with_yields)
{
	yields = with_yields;
	long before = reads;
	sleep(1);
	return reads - before;
}

static void threads_that_outnumber_the_processors_give_way_to_each_other(void)
{
	context = open_first();
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, RIGHTS));
	long threads = THREADS_PER_CPU * sysconf(_SC_NPROCESSORS_ONLN);
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	pthread_t all[MAX_THREADS];
	for (long at = 0; at < threads; at++)
		CODE(pthread_create(&all[at], NULL, read_and_poll, NULL), 0);
	/* Waits until all threads run. */
	reads_in_a_second(true);
	/* Other processes use the CPUs at times, so the largest number counts. */
	long most[2] = { 0, 0 };
	for (int round = 0; round < 6; round++) {
		long count = reads_in_a_second(round % 2);
		if (count > most[round % 2])
			most[round % 2] = count;
	}
	stops = true;
	for (long at = 0; at < threads; at++)
		CODE(pthread_join(all[at], NULL), 0);
	printf("%ld threads: %ld READs a second, %ld with yields of their own\n", threads, most[0], most[1]);
	CHECK(most[0] > most[1] / 4);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_close_device(context), 0);
}

static pthread_spinlock_t lock;

/* Polls a queue without completions, each time with the lock, as UCX does. */
static void *poll_with_the_lock(void *unused)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	/* A queue is driven if it has a queue pair. */
	struct ibv_qp *qp = make_qp(cq);
	while (!stops) {
		struct ibv_wc wc;
		pthread_spin_lock(&lock);
		CODE(ibv_poll_cq(cq, 1, &wc), 0);
		pthread_spin_unlock(&lock);
	}
	CODE(ibv_destroy_qp(qp), 0);
	CODE(ibv_destroy_cq(cq), 0);
	return unused;
}

static void a_lock_that_is_held_during_polls_is_got_by_another_thread_of_the_processor(void)
{
	context = open_first();
	CHECK(pd = ibv_alloc_pd(context));
	CODE(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE), 0);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	pthread_attr_t attr;
	CODE(pthread_attr_init(&attr), 0);
	CODE(pthread_attr_setaffinity_np(&attr, sizeof one, &one), 0);
	pthread_t poller;
	CODE(pthread_create(&poller, &attr, poll_with_the_lock, NULL), 0);
	CODE(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
	/* Once for each object that a program destroys when it ends. */
	for (int times = 0; times < 10; times++) {
		pthread_spin_lock(&lock);
		pthread_spin_unlock(&lock);
		usleep(1000);
	}
	stops = true;
	CODE(pthread_join(poller, NULL), 0);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_close_device(context), 0);
}

static const struct claim claims[] = {
	CLAIM(threads_that_outnumber_the_processors_give_way_to_each_other),
	CLAIM(a_lock_that_is_held_during_polls_is_got_by_another_thread_of_the_processor),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
