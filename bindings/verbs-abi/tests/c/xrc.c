/* The claims of tests/xrc.rs: one function per claim, selected by the only argument. Initiator and
 * target of one process communicate through the device's own address. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

enum { DEPTH = 16, SIZE = 1 << 14 };
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static const uint32_t NEEDED = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

/* Memory, a domain, two shared receive queues with a completion queue each, and a connection. */
struct lab {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *memory;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq[2];
	struct ibv_cq *cq, *srq_cq[2];
	uint32_t srqn[2];
	struct ibv_qp *initiator, *target;
};

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = NEEDED, .fd = fd, .oflags = oflags };
	return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq_init_attr_ex srq_attr(struct ibv_pd *pd, struct ibv_xrcd *xrcd,
					    struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			 IBV_SRQ_INIT_ATTR_CQ;
	attr.srq_type = IBV_SRQT_XRC;
	attr.pd = pd;
	attr.xrcd = xrcd;
	attr.cq = cq;
	return attr;
}

static struct ibv_qp_init_attr_ex target_attr(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_XRC_RECV };
	attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	attr.xrcd = xrcd;
	return attr;
}

static struct ibv_qp_init_attr_ex initiator_attr(struct lab *lab)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_XRC_SEND };
	attr.send_cq = lab->cq;
	attr.cap = (struct ibv_qp_cap){ .max_send_wr = DEPTH, .max_send_sge = 1 };
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.pd = lab->pd;
	return attr;
}

/* Takes an end to RTS with the attributes that its half of a reliable connection has. */
static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	bool asks = qp->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	attr.qp_access_flags = RIGHTS;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CODE(ibv_modify_qp(qp, &attr, mask), 0);

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	attr.dest_qp_num = peer;
	attr.rq_psn = 7;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	CODE(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CODE(asks ? EINVAL : ibv_modify_qp(qp, &attr, mask), EINVAL);
	/* What the other end has may be given and has no effect, as in Linux. */
	CODE(ibv_modify_qp(qp, &attr, mask | responder), 0);

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14 };
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
	int requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CODE(asks ? ibv_modify_qp(qp, &attr, mask) : EINVAL, EINVAL);
	CODE(ibv_modify_qp(qp, &attr, mask | requester), 0);
}

static struct lab make(void)
{
	struct lab lab = { .context = open_first() };
	CHECK(lab.pd = ibv_alloc_pd(lab.context));
	CHECK(!posix_memalign((void **)&lab.memory, 4096, SIZE));
	memset(lab.memory, 0, SIZE);
	CHECK(lab.mr = ibv_reg_mr(lab.pd, lab.memory, SIZE, RIGHTS));
	CHECK(lab.xrcd = open_xrcd(lab.context, -1, O_CREAT));
	CHECK(lab.cq = ibv_create_cq(lab.context, 4 * DEPTH, NULL, NULL, 0));
	for (int at = 0; at < 2; at++) {
		CHECK(lab.srq_cq[at] = ibv_create_cq(lab.context, 4 * DEPTH, NULL, NULL, 0));
		struct ibv_srq_init_attr_ex attr = srq_attr(lab.pd, lab.xrcd, lab.srq_cq[at]);
		CHECK(lab.srq[at] = ibv_create_srq_ex(lab.context, &attr));
		CHECK(attr.attr.max_wr >= DEPTH);
		CODE(ibv_get_srq_num(lab.srq[at], &lab.srqn[at]), 0);
	}
	CHECK(lab.srqn[0] != lab.srqn[1]);
	struct ibv_qp_init_attr_ex attr = target_attr(lab.xrcd);
	CHECK(lab.target = ibv_create_qp_ex(lab.context, &attr));
	attr = initiator_attr(&lab);
	CHECK(lab.initiator = ibv_create_qp_ex(lab.context, &attr));
	CHECK(lab.target->qp_type == IBV_QPT_XRC_RECV && !lab.target->pd && !lab.target->recv_cq);
	to_rts(lab.target, lab.initiator->qp_num);
	to_rts(lab.initiator, lab.target->qp_num);
	return lab;
}

static void receive(struct lab *lab, int at, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)lab->memory + 8192 + 1024 * at, 1024, lab->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CODE(ibv_post_srq_recv(lab->srq[at], &wr, &bad), 0);
}

static void send(struct lab *lab, uint32_t srqn, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)lab->memory, len, lab->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.qp_type.xrc.remote_srqn = srqn;
	CODE(ibv_post_send(lab->initiator, &wr, &bad), 0);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		usleep(100);
	CHECK(count == 1);
	return wc;
}

static void messages_reach_the_queue_that_they_name(void)
{
	struct lab lab = make();
	for (int round = 0; round < 10; round++) {
		for (int at = 1; at >= 0; at--) {
			memset(lab.memory, 'a' + round + at, 700);
			receive(&lab, at, 100 + at);
			send(&lab, lab.srqn[at], 700);
			struct ibv_wc wc = next(lab.srq_cq[at]);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
			CHECK(wc.wr_id == 100u + at && wc.byte_len == 700);
			CHECK(wc.qp_num == lab.target->qp_num);
			CHECK(!memcmp(lab.memory, lab.memory + 8192 + 1024 * at, 700));
			wc = next(lab.cq);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9);
		}
	}
}

static void a_queue_of_another_domain_is_refused(void)
{
	struct lab lab = make();
	struct ibv_xrcd *other = open_xrcd(lab.context, -1, O_CREAT);
	CHECK(other);
	struct ibv_srq_init_attr_ex attr = srq_attr(lab.pd, other, lab.srq_cq[0]);
	struct ibv_srq *foreign = ibv_create_srq_ex(lab.context, &attr);
	CHECK(foreign);
	uint32_t srqn;
	CODE(ibv_get_srq_num(foreign, &srqn), 0);
	send(&lab, srqn, 10);
	CHECK(next(lab.cq).status == IBV_WC_REM_INV_RD_REQ_ERR);
}

static void a_domain_is_opened_again_by_its_file(void)
{
	struct lab lab = make();
	int fd = memfd_create("domain", 0), other = memfd_create("other", 0);
	CHECK(fd >= 0 && other >= 0);
	NONE(open_xrcd(lab.context, fd, 0), EAGAIN);
	struct ibv_xrcd *first = open_xrcd(lab.context, fd, O_CREAT | O_EXCL);
	CHECK(first);
	NONE(open_xrcd(lab.context, fd, O_CREAT | O_EXCL), EINVAL);
	struct ibv_xrcd *again = open_xrcd(lab.context, dup(fd), 0);
	CHECK(again && again != first);
	struct ibv_xrcd *foreign = open_xrcd(lab.context, other, O_CREAT);
	CHECK(foreign);

	/* A queue of the one handle serves a target of the other. */
	struct ibv_srq_init_attr_ex attr = srq_attr(lab.pd, first, lab.srq_cq[1]);
	CHECK(lab.srq[1] = ibv_create_srq_ex(lab.context, &attr));
	CODE(ibv_get_srq_num(lab.srq[1], &lab.srqn[1]), 0);
	struct ibv_qp_init_attr_ex target = target_attr(again), initiator = initiator_attr(&lab);
	CHECK(lab.target = ibv_create_qp_ex(lab.context, &target));
	CHECK(lab.initiator = ibv_create_qp_ex(lab.context, &initiator));
	to_rts(lab.target, lab.initiator->qp_num);
	to_rts(lab.initiator, lab.target->qp_num);
	receive(&lab, 1, 3);
	send(&lab, lab.srqn[1], 10);
	CHECK(next(lab.srq_cq[1]).wr_id == 3);
	CHECK(next(lab.cq).status == IBV_WC_SUCCESS);

	CODE(ibv_close_xrcd(first), EBUSY);
	CODE(ibv_destroy_srq(lab.srq[1]), 0);
	CODE(ibv_close_xrcd(first), 0);
	CODE(ibv_close_xrcd(first), EINVAL);
	CODE(ibv_close_xrcd(again), EBUSY);
	CODE(ibv_destroy_qp(lab.target), 0);
	CODE(ibv_close_xrcd(again), 0);
	/* The last handle is closed, so there is no domain any more. */
	NONE(open_xrcd(lab.context, fd, 0), EAGAIN);
	CHECK(open_xrcd(lab.context, fd, O_CREAT | O_EXCL));
	NONE(open_xrcd(lab.context, 9999, O_CREAT), EBADF);
	NONE(open_xrcd(lab.context, -2, O_CREAT), EBADF);
}

static void flags_matter_for_a_file_only_and_others_are_ignored(void)
{
	struct ibv_context *context = open_first();
	int fd = memfd_create("domain", 0);
	CHECK(fd >= 0);
	CHECK(open_xrcd(context, -1, 0));
	CHECK(open_xrcd(context, -1, O_CREAT | O_EXCL));
	NONE(open_xrcd(context, fd, O_RDWR), EAGAIN);
	CHECK(open_xrcd(context, fd, O_CREAT | O_RDWR | O_APPEND));
	CHECK(open_xrcd(context, fd, O_NONBLOCK));
}

/* A file of no domain may get the number of one that is gone. */
static void a_domain_keeps_its_file_when_the_program_does_not(void)
{
	struct ibv_context *context = open_first();
	char name[] = "/tmp/uroce-xrcd-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && !unlink(name));
	struct ibv_xrcd *xrcd = open_xrcd(context, fd, O_CREAT);
	int again = dup(fd);
	CHECK(xrcd && !close(fd));
	struct ibv_xrcd *second = open_xrcd(context, again, 0);
	CHECK(second && !close(again));
	for (int round = 0; round < 50; round++) {
		char other[] = "/tmp/uroce-xrcd-XXXXXX";
		fd = mkstemp(other);
		CHECK(fd >= 0 && !unlink(other));
		NONE(open_xrcd(context, fd, 0), EAGAIN);
		CHECK(!close(fd));
	}
	CODE(ibv_close_xrcd(xrcd), 0);
	CODE(ibv_close_xrcd(second), 0);
}

/* Locks on a file are a process's own; another descriptor that is closed would end them. */
static void a_domain_leaves_the_locks_on_its_file(void)
{
	struct ibv_context *context = open_first();
	int fd = memfd_create("domain", 0), status;
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK(fd >= 0 && !fcntl(fd, F_SETLK, &lock));
	struct ibv_xrcd *xrcd = open_xrcd(context, fd, O_CREAT);
	CHECK(xrcd);
	CODE(ibv_close_xrcd(xrcd), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(fcntl(fd, F_GETLK, &lock) || lock.l_type != F_WRLCK);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void each_process_has_its_own_domain_of_a_file(void)
{
	int fd = memfd_create("domain", 0), ready[2], done[2];
	CHECK(fd >= 0 && !pipe(ready) && !pipe(done));
	pid_t child = fork();
	CHECK(child >= 0);
	char byte = 0;
	if (!child) {
		struct ibv_context *context = open_first();
		CHECK(open_xrcd(context, fd, O_CREAT | O_EXCL));
		CHECK(write(ready[1], &byte, 1) == 1);
		CHECK(read(done[0], &byte, 1) == 1);
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	struct ibv_context *context = open_first();
	NONE(open_xrcd(context, fd, 0), EAGAIN);
	CHECK(open_xrcd(context, fd, O_CREAT | O_EXCL));
	CHECK(open_xrcd(context, fd, 0));
	CHECK(write(done[1], &byte, 1) == 1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Two contexts with a domain of one file: a target of the first, and another handle of it. */
struct shared {
	struct lab lab;
	struct ibv_context *other;
	struct ibv_xrcd *first, *second;
	struct ibv_qp *again;
};

static struct ibv_qp_open_attr open_attr(struct ibv_qp *target, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_open_attr attr = { .qp_num = target->qp_num, .xrcd = xrcd };
	attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	attr.qp_type = IBV_QPT_XRC_RECV;
	return attr;
}

static struct shared share(void)
{
	struct shared it = { .lab = make(), .other = open_first() };
	struct lab *lab = &it.lab;
	int fd = memfd_create("domain", 0);
	CHECK(fd >= 0);
	CHECK(it.first = open_xrcd(lab->context, fd, O_CREAT | O_EXCL));
	CHECK(it.second = open_xrcd(it.other, fd, 0));
	struct ibv_srq_init_attr_ex srq = srq_attr(lab->pd, it.first, lab->srq_cq[0]);
	CHECK(lab->srq[0] = ibv_create_srq_ex(lab->context, &srq));
	CODE(ibv_get_srq_num(lab->srq[0], &lab->srqn[0]), 0);
	struct ibv_qp_init_attr_ex target = target_attr(it.first), initiator = initiator_attr(lab);
	CHECK(lab->target = ibv_create_qp_ex(lab->context, &target));
	CHECK(lab->initiator = ibv_create_qp_ex(lab->context, &initiator));
	to_rts(lab->target, lab->initiator->qp_num);
	to_rts(lab->initiator, lab->target->qp_num);
	struct ibv_qp_open_attr attr = open_attr(lab->target, it.second);
	attr.comp_mask |= IBV_QP_OPEN_ATTR_CONTEXT;
	attr.qp_context = lab->memory;
	CHECK(it.again = ibv_open_qp(it.other, &attr));
	return it;
}

static void a_target_is_opened_again_from_another_context(void)
{
	struct shared it = share();
	struct lab *lab = &it.lab;
	struct ibv_qp *again = it.again;
	CHECK(again != lab->target && again->qp_num == lab->target->qp_num);
	CHECK(again->context == it.other && again->qp_context == lab->memory);
	CHECK(again->qp_type == IBV_QPT_XRC_RECV && again->state == IBV_QPS_UNKNOWN);
	CHECK(!again->pd && !again->send_cq && !again->recv_cq && !again->srq);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(again, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && again->state == IBV_QPS_RTS);
	CHECK(attr.dest_qp_num == lab->initiator->qp_num && init.qp_context == lab->memory);
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	CODE(ibv_post_recv(again, &wr, &bad), EINVAL);

	/* Each handle keeps its own domain's busy, and the target lives on with either. */
	CODE(ibv_close_xrcd(it.second), EBUSY);
	CODE(ibv_destroy_qp(lab->target), 0);
	CODE(ibv_destroy_qp(lab->target), EINVAL);
	receive(lab, 0, 4);
	send(lab, lab->srqn[0], 10);
	CHECK(next(lab->srq_cq[0]).wr_id == 4);
	struct ibv_qp_open_attr open = open_attr(again, it.second);
	struct ibv_qp *third = ibv_open_qp(it.other, &open);
	CHECK(third && third != again && !third->qp_context);
	CODE(ibv_destroy_qp(again), 0);
	receive(lab, 0, 5);
	send(lab, lab->srqn[0], 10);
	CHECK(next(lab->srq_cq[0]).wr_id == 5);
	CODE(ibv_destroy_qp(third), 0);
	NONE(ibv_open_qp(it.other, &open), EINVAL);
	CODE(ibv_close_xrcd(it.second), 0);
	CODE(ibv_close_xrcd(it.first), EBUSY);
	CODE(ibv_destroy_srq(lab->srq[0]), 0);
	CODE(ibv_close_xrcd(it.first), 0);
}

static void wrong_attributes_open_no_target(void)
{
	struct shared it = share();
	struct ibv_qp_open_attr attr = open_attr(it.lab.target, it.second);
	/* The domain's handle is of the other context, the domain another one, the queue pair none. */
	NONE(ibv_open_qp(it.lab.context, &attr), EINVAL);
	attr.xrcd = it.lab.xrcd;
	NONE(ibv_open_qp(it.lab.context, &attr), EINVAL);
	attr.xrcd = NULL;
	NONE(ibv_open_qp(it.other, &attr), EINVAL);
	attr = open_attr(it.lab.initiator, it.second);
	NONE(ibv_open_qp(it.other, &attr), EINVAL);
	attr = open_attr(it.lab.target, it.second);
	attr.qp_type = IBV_QPT_RC;
	NONE(ibv_open_qp(it.other, &attr), EINVAL);
	attr = open_attr(it.lab.target, it.second);
	attr.comp_mask |= IBV_QP_OPEN_ATTR_RESERVED;
	NONE(ibv_open_qp(it.other, &attr), EOPNOTSUPP);
	for (int bit = 0; bit < 4; bit++) {
		attr = open_attr(it.lab.target, it.second);
		attr.comp_mask &= ~(1u << bit);
		if (1 << bit != IBV_QP_OPEN_ATTR_CONTEXT)
			NONE(ibv_open_qp(it.other, &attr), EINVAL);
	}
	CODE(ibv_destroy_qp(it.again), 0);
	CODE(ibv_close_xrcd(it.second), 0);
}

/* Takes events until one of this type has come, which must be of that queue pair. */
static void await_event(struct ibv_context *context, enum ibv_event_type type, struct ibv_qp *qp)
{
	struct ibv_async_event event;
	do {
		CODE(ibv_get_async_event(context, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type != type);
	CHECK(event.element.qp == qp);
}

static void each_handle_of_a_target_gets_its_events(void)
{
	struct shared it = share();
	send(&it.lab, 4711, 10);
	CHECK(next(it.lab.cq).status == IBV_WC_REM_INV_RD_REQ_ERR);
	struct ibv_context *contexts[] = { it.lab.context, it.other };
	struct ibv_qp *handles[] = { it.lab.target, it.again };
	for (int at = 0; at < 2; at++) {
		await_event(contexts[at], IBV_EVENT_QP_REQ_ERR, handles[at]);
		await_event(contexts[at], IBV_EVENT_QP_LAST_WQE_REACHED, handles[at]);
		CODE(ibv_destroy_qp(handles[at]), 0);
	}
}

/* Opens and destroys in turn with a thread that destroys the first handle. */
static void *destroy(void *qp)
{
	CODE(ibv_destroy_qp(qp), 0);
	return NULL;
}

static void a_target_is_opened_while_it_is_destroyed(void)
{
	struct lab lab = make();
	for (int round = 0; round < 100; round++) {
		struct ibv_qp_init_attr_ex init = target_attr(lab.xrcd);
		struct ibv_qp *target = ibv_create_qp_ex(lab.context, &init);
		CHECK(target);
		struct ibv_qp_open_attr attr = open_attr(target, lab.xrcd);
		pthread_t thread;
		CHECK(!pthread_create(&thread, NULL, destroy, target));
		struct ibv_qp *again = ibv_open_qp(lab.context, &attr);
		CHECK(again || errno == EINVAL);
		CHECK(!pthread_join(thread, NULL));
		if (again) {
			struct ibv_qp_attr now;
			struct ibv_qp_init_attr made;
			CODE(ibv_query_qp(again, &now, IBV_QP_STATE, &made), 0);
			CODE(ibv_destroy_qp(again), 0);
		}
		NONE(ibv_open_qp(lab.context, &attr), EINVAL);
	}
	CODE(ibv_destroy_qp(lab.target), 0);
	CODE(ibv_destroy_srq(lab.srq[0]), 0);
	CODE(ibv_destroy_srq(lab.srq[1]), 0);
	CODE(ibv_close_xrcd(lab.xrcd), 0);
}

static void a_forked_child_destroys_without_waiting_and_makes_nothing(void)
{
	struct lab lab = make();
	int fd = memfd_create("domain", 0);
	struct ibv_xrcd *named = open_xrcd(lab.context, fd, O_CREAT);
	CHECK(fd >= 0 && named);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(20);
		NONE(open_xrcd(lab.context, -1, O_CREAT), EOPNOTSUPP);
		NONE(open_xrcd(lab.context, fd, 0), EOPNOTSUPP);
		struct ibv_qp_open_attr attr = open_attr(lab.target, lab.xrcd);
		NONE(ibv_open_qp(lab.context, &attr), EOPNOTSUPP);
		struct ibv_qp_init_attr_ex init = target_attr(lab.xrcd);
		NONE(ibv_create_qp_ex(lab.context, &init), EOPNOTSUPP);
		struct ibv_srq_init_attr_ex srq = srq_attr(lab.pd, lab.xrcd, lab.srq_cq[0]);
		NONE(ibv_create_srq_ex(lab.context, &srq), EOPNOTSUPP);
		CODE(ibv_destroy_qp(lab.target), 0);
		CODE(ibv_destroy_srq(lab.srq[0]), 0);
		CODE(ibv_destroy_srq(lab.srq[1]), 0);
		CODE(ibv_close_xrcd(lab.xrcd), 0);
		CODE(ibv_close_xrcd(named), 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	receive(&lab, 1, 8);
	send(&lab, lab.srqn[1], 10);
	CHECK(next(lab.srq_cq[1]).wr_id == 8);
	CODE(ibv_close_xrcd(named), 0);
}

/* A target's last message has completed in a queue that is destroyed. */
static void a_completion_queue_goes_with_its_shared_receive_queue(void)
{
	struct lab lab = make();
	for (uint64_t round = 0; round < 20; round++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(lab.context);
		struct ibv_cq *cq = ibv_create_cq(lab.context, DEPTH, NULL, channel, 0), *of;
		CHECK(channel && cq);
		CODE(ibv_destroy_srq(lab.srq[0]), 0);
		struct ibv_srq_init_attr_ex attr = srq_attr(lab.pd, lab.xrcd, cq);
		CHECK(lab.srq[0] = ibv_create_srq_ex(lab.context, &attr));
		CODE(ibv_get_srq_num(lab.srq[0], &lab.srqn[0]), 0);
		CODE(ibv_req_notify_cq(cq, 0), 0);
		receive(&lab, 0, round);
		send(&lab, lab.srqn[0], 10);
		void *its;
		CODE(ibv_get_cq_event(channel, &of, &its), 0);
		CHECK(of == cq && next(cq).wr_id == round);
		ibv_ack_cq_events(cq, 1);
		CHECK(next(lab.cq).status == IBV_WC_SUCCESS);
		CODE(ibv_req_notify_cq(cq, 0), 0);
		CODE(ibv_destroy_cq(cq), EBUSY);
		CODE(ibv_destroy_srq(lab.srq[0]), 0);
		CODE(ibv_destroy_cq(cq), 0);
		CODE(ibv_destroy_comp_channel(channel), 0);
		attr = srq_attr(lab.pd, lab.xrcd, lab.srq_cq[0]);
		CHECK(lab.srq[0] = ibv_create_srq_ex(lab.context, &attr));
		receive(&lab, 1, round);
		send(&lab, lab.srqn[1], 10);
		CHECK(next(lab.srq_cq[1]).wr_id == round);
		CHECK(next(lab.cq).status == IBV_WC_SUCCESS);
	}
}

static void both_ends_show_their_attributes(void)
{
	struct lab lab = make();
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(lab.target, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == lab.initiator->qp_num);
	CHECK(attr.max_dest_rd_atomic == 4 && attr.min_rnr_timer == 12 && attr.timeout == 14);
	CHECK(attr.rq_psn == 7 && attr.path_mtu == IBV_MTU_1024);
	CHECK(init.qp_type == IBV_QPT_XRC_RECV && !init.send_cq && !init.recv_cq && !init.srq);
	CHECK(!init.cap.max_send_wr && !init.cap.max_recv_wr && !init.cap.max_recv_sge);
	CODE(ibv_query_qp(lab.initiator, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == lab.target->qp_num);
	CHECK(attr.max_rd_atomic == 4 && attr.retry_cnt == 7 && attr.rnr_retry == 7);
	CHECK(attr.sq_psn == 7 && !attr.max_dest_rd_atomic);
	CHECK(init.qp_type == IBV_QPT_XRC_SEND && init.send_cq == lab.cq && !init.recv_cq);
	CHECK(init.cap.max_send_wr >= DEPTH && !init.cap.max_recv_wr);
}

static void work_requests_built_call_by_call_name_a_queue(void)
{
	struct lab lab = make();
	struct ibv_qp_init_attr_ex attr = initiator_attr(&lab);
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	struct ibv_qp_init_attr_ex target = target_attr(lab.xrcd);
	CHECK(lab.target = ibv_create_qp_ex(lab.context, &target));
	CHECK(lab.initiator = ibv_create_qp_ex(lab.context, &attr));
	to_rts(lab.target, lab.initiator->qp_num);
	to_rts(lab.initiator, lab.target->qp_num);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(lab.initiator);
	CHECK(qp);
	receive(&lab, 0, 5);
	receive(&lab, 1, 6);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	for (int at = 0; at < 2; at++) {
		qp->wr_id = at;
		if (at)
			ibv_wr_send_imm(qp, htobe32(77));
		else
			ibv_wr_send(qp);
		ibv_wr_set_xrc_srqn(qp, lab.srqn[at]);
		ibv_wr_set_sge(qp, lab.mr->lkey, (uintptr_t)lab.memory, 20);
	}
	qp->wr_id = 2;
	ibv_wr_rdma_read(qp, lab.mr->rkey, (uintptr_t)lab.memory);
	ibv_wr_set_xrc_srqn(qp, lab.srqn[0]);
	ibv_wr_set_sge(qp, lab.mr->lkey, (uintptr_t)lab.memory + 4096, 100);
	CODE(ibv_wr_complete(qp), 0);
	CHECK(next(lab.srq_cq[0]).wr_id == 5);
	struct ibv_wc wc = next(lab.srq_cq[1]);
	CHECK(wc.wr_id == 6 && wc.imm_data == htobe32(77));
	for (uint64_t at = 0; at < 3; at++) {
		wc = next(lab.cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == at);
	}
}

static void what_is_in_use_is_busy(void)
{
	struct lab lab = make();
	CODE(ibv_close_xrcd(lab.xrcd), EBUSY);
	CODE(ibv_destroy_cq(lab.srq_cq[0]), EBUSY);
	CODE(ibv_dealloc_pd(lab.pd), EBUSY);
	/* A target is not busy with queues, nor they with it. */
	CODE(ibv_destroy_srq(lab.srq[0]), 0);
	CODE(ibv_destroy_cq(lab.srq_cq[0]), 0);
	send(&lab, lab.srqn[0], 10);
	CHECK(next(lab.cq).status == IBV_WC_REM_INV_RD_REQ_ERR);
	CODE(ibv_destroy_qp(lab.initiator), 0);
	CODE(ibv_destroy_qp(lab.target), 0);
	CODE(ibv_destroy_srq(lab.srq[1]), 0);
	CODE(ibv_destroy_cq(lab.srq_cq[1]), 0);
	CODE(ibv_close_xrcd(lab.xrcd), 0);
	CODE(ibv_destroy_cq(lab.cq), 0);
	CODE(ibv_dereg_mr(lab.mr), 0);
	CODE(ibv_dealloc_pd(lab.pd), 0);
}

static void wrong_attributes_are_refused(void)
{
	struct lab lab = make();
	struct ibv_xrcd_init_attr open = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	NONE(ibv_open_xrcd(lab.context, &open), EINVAL);
	open.comp_mask = NEEDED | IBV_XRCD_INIT_ATTR_RESERVED;
	NONE(ibv_open_xrcd(lab.context, &open), EOPNOTSUPP);

	struct ibv_srq_init_attr_ex srq = srq_attr(lab.pd, lab.xrcd, lab.srq_cq[0]);
	srq.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ;
	NONE(ibv_create_srq_ex(lab.context, &srq), EINVAL);
	srq = srq_attr(lab.pd, NULL, lab.srq_cq[0]);
	NONE(ibv_create_srq_ex(lab.context, &srq), EINVAL);
	srq = srq_attr(lab.pd, lab.xrcd, NULL);
	NONE(ibv_create_srq_ex(lab.context, &srq), EINVAL);
	srq = srq_attr(lab.pd, lab.xrcd, lab.srq_cq[0]);
	srq.srq_type = IBV_SRQT_BASIC;
	NONE(ibv_create_srq_ex(lab.context, &srq), EOPNOTSUPP);

	struct ibv_srq_init_attr plain = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *basic = ibv_create_srq(lab.pd, &plain);
	uint32_t srqn;
	CHECK(basic);
	CODE(ibv_get_srq_num(basic, &srqn), EINVAL);

	struct ibv_qp_init_attr_ex qp = target_attr(NULL);
	NONE(ibv_create_qp_ex(lab.context, &qp), EINVAL);
	qp.comp_mask = 0;
	NONE(ibv_create_qp_ex(lab.context, &qp), EINVAL);
	qp = initiator_attr(&lab);
	qp.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	qp.xrcd = lab.xrcd;
	NONE(ibv_create_qp_ex(lab.context, &qp), EOPNOTSUPP);

	struct ibv_qp_init_attr rc = { .qp_type = IBV_QPT_RC, .send_cq = lab.srq_cq[0] };
	rc.recv_cq = lab.srq_cq[0], rc.srq = lab.srq[0];
	rc.cap.max_send_wr = rc.cap.max_send_sge = 1;
	NONE(ibv_create_qp(lab.pd, &rc), EINVAL);

	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	CODE(ibv_post_recv(lab.target, &wr, &bad), EINVAL);
	CODE(ibv_post_recv(lab.initiator, &wr, &bad), EINVAL);
	struct ibv_send_wr request = { .opcode = IBV_WR_SEND }, *refused;
	CODE(ibv_post_send(lab.target, &request, &refused), EINVAL);
}

static const struct claim claims[] = {
	CLAIM(messages_reach_the_queue_that_they_name),
	CLAIM(a_queue_of_another_domain_is_refused),
	CLAIM(a_domain_is_opened_again_by_its_file),
	CLAIM(flags_matter_for_a_file_only_and_others_are_ignored),
	CLAIM(a_domain_keeps_its_file_when_the_program_does_not),
	CLAIM(a_domain_leaves_the_locks_on_its_file),
	CLAIM(each_process_has_its_own_domain_of_a_file),
	CLAIM(a_target_is_opened_again_from_another_context),
	CLAIM(wrong_attributes_open_no_target),
	CLAIM(each_handle_of_a_target_gets_its_events),
	CLAIM(a_target_is_opened_while_it_is_destroyed),
	CLAIM(a_forked_child_destroys_without_waiting_and_makes_nothing),
	CLAIM(a_completion_queue_goes_with_its_shared_receive_queue),
	CLAIM(both_ends_show_their_attributes),
	CLAIM(work_requests_built_call_by_call_name_a_queue),
	CLAIM(what_is_in_use_is_busy),
	CLAIM(wrong_attributes_are_refused),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
