/* Synchronous writes of 64 bytes from one process to another, by several threads, each with a queue
 * pair of its own: post one, poll until it is complete, then the next; and the same over TCP on the
 * loopback interface, where a thread at the other end answers each with a byte. Both in turn.
 *
 *   uroce-run sync_writes [THREADS [ROUNDS]]      prints a line for each round, then the medians
 *
 * Fails if the median of the writes over RDMA is below a tenth of that over TCP, which naps give. On a
 * machine without other work it is above. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { LEN = 64, MAX_THREADS = 64, MAX_ROUNDS = 99 };

/* What the ends tell each other. */
struct hello {
	union ibv_gid gid;
	uint64_t address;
	uint32_t key, qpns[MAX_THREADS];
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cqs[MAX_THREADS];
	struct ibv_qp *qps[MAX_THREADS];
	char memory[MAX_THREADS][LEN];
};

static int threads = 4;
static struct end end;
static struct hello peer;
static int sockets[MAX_THREADS];
static atomic_bool stops;
static atomic_long writes;
/* A third of a second each: the machine's other work comes and goes in longer spans. */
static const struct timespec ROUND = { 0, 333333333 };

static void send_all(int fd, const void *bytes, size_t len)
{
	CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static int receive_all(int fd, void *bytes, size_t len)
{
	ssize_t got = recv(fd, bytes, len, MSG_WAITALL);
	CHECK(got == 0 || got == (ssize_t)len);
	return got != 0;
}

static void open_end(void)
{
	end.context = open_first();
	CHECK(end.pd = ibv_alloc_pd(end.context));
	CHECK(end.mr = ibv_reg_mr(end.pd, end.memory, sizeof end.memory,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	for (int at = 0; at < threads; at++) {
		CHECK(end.cqs[at] = ibv_create_cq(end.context, 16, NULL, NULL, 0));
		struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
		init.send_cq = init.recv_cq = end.cqs[at];
		CHECK(end.qps[at] = ibv_create_qp(end.pd, &init));
	}
}

static void connect_ends(int fd)
{
	struct hello own = { .address = (uintptr_t)end.memory, .key = end.mr->rkey };
	CODE(ibv_query_gid(end.context, 1, 0, &own.gid), 0);
	for (int at = 0; at < threads; at++)
		own.qpns[at] = end.qps[at]->qp_num;
	send_all(fd, &own, sizeof own);
	CHECK(receive_all(fd, &peer, sizeof peer));
	for (int at = 0; at < threads; at++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
					    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
		int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		CODE(ibv_modify_qp(end.qps[at], &attr, mask), 0);
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
		attr.dest_qp_num = peer.qpns[at];
		attr.max_dest_rd_atomic = 1;
		attr.min_rnr_timer = 12;
		attr.ah_attr = (struct ibv_ah_attr){ .grh = { .dgid = peer.gid, .hop_limit = 64 },
						     .is_global = 1, .port_num = 1 };
		mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		CODE(ibv_modify_qp(end.qps[at], &attr, mask), 0);
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .max_rd_atomic = 1 };
		attr.retry_cnt = attr.rnr_retry = 7;
		mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
		CODE(ibv_modify_qp(end.qps[at], &attr, mask | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	}
	/* Both are ready. */
	char ready = 1;
	send_all(fd, &ready, 1);
	CHECK(receive_all(fd, &ready, 1));
}

static void *write_by_rdma(void *number)
{
	int at = (int)(intptr_t)number;
	struct ibv_sge sge = { (uintptr_t)end.memory[at], LEN, end.mr->lkey };
	while (!stops) {
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		wr.wr.rdma.remote_addr = peer.address + (uint64_t)at * LEN;
		wr.wr.rdma.rkey = peer.key;
		CODE(ibv_post_send(end.qps[at], &wr, &bad), 0);
		struct ibv_wc wc;
		int count;
		while (!(count = ibv_poll_cq(end.cqs[at], 1, &wc))) {}
		CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
		writes++;
	}
	return NULL;
}

static void *write_by_tcp(void *number)
{
	int fd = sockets[(intptr_t)number];
	char bytes[LEN] = { 0 };
	while (!stops) {
		send_all(fd, bytes, LEN);
		CHECK(receive_all(fd, bytes, 1));
		writes++;
	}
	return NULL;
}

static void *answer_by_tcp(void *number)
{
	char bytes[LEN];
	while (receive_all(sockets[(intptr_t)number], bytes, LEN))
		send_all(sockets[(intptr_t)number], bytes, 1);
	return NULL;
}

static void run_threads(void *(*body)(void *), pthread_t *all)
{
	for (int at = 0; at < threads; at++)
		CODE(pthread_create(&all[at], NULL, body, (void *)(intptr_t)at), 0);
}

static void join_threads(pthread_t *all)
{
	for (int at = 0; at < threads; at++)
		CODE(pthread_join(all[at], NULL), 0);
}

/* Writes in a second. */
static long rate(void *(*body)(void *))
{
	pthread_t all[MAX_THREADS];
	struct timespec from, to;
	writes = 0;
	stops = false;
	clock_gettime(CLOCK_MONOTONIC, &from);
	run_threads(body, all);
	nanosleep(&ROUND, NULL);
	stops = true;
	join_threads(all);
	clock_gettime(CLOCK_MONOTONIC, &to);
	double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	return (long)((double)writes / seconds);
}

static int set_undelayed(int fd)
{
	int on = 1;
	CODE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
	return fd;
}

/* The end that is written to: its program does nothing. */
static int passive(const char *port)
{
	struct sockaddr_in to = { AF_INET, htons((uint16_t)atoi(port)), { htonl(INADDR_LOOPBACK) }, { 0 } };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CODE(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	for (int at = 0; at < threads; at++) {
		sockets[at] = set_undelayed(socket(AF_INET, SOCK_STREAM, 0));
		CODE(connect(sockets[at], (struct sockaddr *)&to, sizeof to), 0);
	}
	open_end();
	connect_ends(fd);
	pthread_t all[MAX_THREADS];
	run_threads(answer_by_tcp, all);
	char over;
	while (receive_all(fd, &over, 1)) {}
	/* The device goes with the process. */
	return 0;
}

static int compare(const void *left, const void *right)
{
	long a = *(const long *)left, b = *(const long *)right;
	return (a > b) - (a < b);
}

static int active(char **argv, int rounds)
{
	struct sockaddr_in own = { AF_INET, 0, { htonl(INADDR_LOOPBACK) }, { 0 } };
	socklen_t len = sizeof own;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CODE(bind(listener, (struct sockaddr *)&own, len), 0);
	CODE(listen(listener, MAX_THREADS), 0);
	CODE(getsockname(listener, (struct sockaddr *)&own, &len), 0);
	char port[8], count[8];
	snprintf(port, sizeof port, "%d", ntohs(own.sin_port));
	snprintf(count, sizeof count, "%d", threads);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", argv[0], "passive", port, count, NULL);
		_exit(1);
	}
	int fd = accept(listener, NULL, NULL);
	for (int at = 0; at < threads; at++)
		sockets[at] = set_undelayed(accept(listener, NULL, NULL));
	open_end();
	connect_ends(fd);
	long rdma[MAX_ROUNDS], tcp[MAX_ROUNDS];
	for (int round = 0; round < rounds; round++) {
		rdma[round] = rate(write_by_rdma);
		tcp[round] = rate(write_by_tcp);
		printf("%d threads: %ld writes a second by RDMA, %ld by TCP\n", threads, rdma[round], tcp[round]);
	}
	qsort(rdma, (size_t)rounds, sizeof *rdma, compare);
	qsort(tcp, (size_t)rounds, sizeof *tcp, compare);
	long by_rdma = rdma[rounds / 2], by_tcp = tcp[rounds / 2];
	printf("%d threads, medians of %d: %ld, %ld: %.2f\n", threads, rounds, by_rdma, by_tcp,
	       (double)by_rdma / (double)by_tcp);
	shutdown(fd, SHUT_WR);
	for (int at = 0; at < threads; at++)
		shutdown(sockets[at], SHUT_WR);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(by_rdma > by_tcp / 10);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "passive")) {
		threads = atoi(argv[3]);
		return passive(argv[2]);
	}
	if (argc > 1)
		threads = atoi(argv[1]);
	int rounds = argc > 2 ? atoi(argv[2]) : 5;
	CHECK(threads > 0 && threads <= MAX_THREADS && rounds > 0 && rounds <= MAX_ROUNDS);
	return active(argv, rounds);
}
