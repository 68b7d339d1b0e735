/* The claims of tests/parents.rs: one function per claim, selected by the only argument. After an
 * object is destroyed, the objects that it was made from can be destroyed, whatever another thread
 * does with either. */

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "circle.h"

enum { DEPTH = 16, SIZE = 1 << 12, ROUNDS = 200 };
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;

/* A second thread repeats an operation on an object, which may be destroyed meanwhile. */
static void *volatile object;
static volatile bool over;
static unsigned long looks;
static struct ibv_context *opened;

static void *look_at_it(void *argument)
{
	void (*look)(void *) = argument;
	while (!over) {
		void *it = object;
		if (it) {
			look(it);
			looks++;
		}
	}
	return NULL;
}

static pthread_t start(void (*look)(void *))
{
	pthread_t thread;
	over = false;
	CODE(pthread_create(&thread, NULL, look_at_it, look), 0);
	return thread;
}

static void stop(pthread_t thread)
{
	over = true;
	CODE(pthread_join(thread, NULL), 0);
	CHECK(looks > 0);
}

/* Shows an object to the second thread. The delay differs from round to round, but is the same in
 * each run. */
static void show(void *it)
{
	object = it;
	struct timespec pause = { 0, rand() % 200 * 1000 };
	nanosleep(&pause, NULL);
}

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv,
				 struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send, .recv_cq = recv, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp);
	return qp;
}

static struct ibv_srq *shared_queue(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	CHECK(srq);
	return srq;
}

static int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void query_qp(void *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

static void the_parts_of_a_queue_pair_that_is_queried(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread = start(query_qp);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_cq *send = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
		struct ibv_cq *recv = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
		CHECK(pd && send && recv);
		struct ibv_srq *srq = shared_queue(pd);
		struct ibv_qp *qp = queue_pair(pd, send, recv, srq);
		show(qp);
		CODE(ibv_destroy_srq(srq), EBUSY);
		CODE(ibv_destroy_qp(qp), 0);
		CODE(ibv_destroy_srq(srq), 0);
		CODE(ibv_destroy_cq(recv), 0);
		CODE(ibv_destroy_cq(send), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

static void query_srq(void *srq)
{
	struct ibv_srq_attr attr;
	ibv_query_srq(srq, &attr);
}

static void the_domain_of_a_shared_queue_that_is_queried(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread = start(query_srq);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_srq *srq = shared_queue(pd);
		show(srq);
		CODE(ibv_destroy_srq(srq), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

/* Takes an event of the context and acknowledges it after a short time. */
static void acknowledge_event(void *it)
{
	(void)it;
	struct pollfd readable = { .fd = opened->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	if (poll(&readable, 1, 1) == 1 && !ibv_get_async_event(opened, &event)) {
		struct timespec pause = { 0, 50000 };
		nanosleep(&pause, NULL);
		ibv_ack_async_event(&event);
	}
}

static void the_parts_of_a_queue_pair_after_its_event_is_acknowledged(void)
{
	struct ibv_context *context = opened = open_first();
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	pthread_t thread = start(acknowledge_event);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_srq *srq = shared_queue(pd);
		struct ibv_qp *qp = queue_pair(pd, cq, cq, srq);
		close_circle(qp, RIGHTS);
		/* The last receive is consumed, which causes an event. */
		CODE(to_state(qp, IBV_QPS_ERR), 0);
		show(context);
		CODE(ibv_destroy_qp(qp), 0);
		CODE(ibv_destroy_srq(srq), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
	CODE(ibv_destroy_cq(cq), 0);
}

/* Takes an event of a channel and acknowledges it after a short time. */
static void acknowledge_completion(void *it)
{
	struct ibv_comp_channel *channel = it;
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *its;
	if (poll(&readable, 1, 1) == 1) {
		CODE(ibv_get_cq_event(channel, &cq, &its), 0);
		object = NULL;
		struct timespec pause = { 0, 50000 };
		nanosleep(&pause, NULL);
		ibv_ack_cq_events(cq, 1);
	}
}

static void the_channel_of_a_queue_after_its_event_is_acknowledged(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *other = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	CHECK(pd && other);
	pthread_t thread = start(acknowledge_completion);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, channel, 0);
		struct ibv_qp *qp = queue_pair(pd, other, cq, NULL);
		close_circle(qp, RIGHTS);
		CODE(ibv_req_notify_cq(cq, 0), 0);
		CODE(to_state(qp, IBV_QPS_ERR), 0);
		struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
		CODE(ibv_post_recv(qp, &wr, &bad), 0);
		object = channel;
		while (object)
			usleep(10);
		CODE(ibv_destroy_qp(qp), 0);
		CODE(ibv_destroy_cq(cq), 0);
		CODE(ibv_destroy_comp_channel(channel), 0);
	}
	stop(thread);
	CODE(ibv_destroy_cq(other), 0);
	CODE(ibv_dealloc_pd(pd), 0);
}

static char memory[SIZE];

static void change_rights(void *mr)
{
	ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS);
}

static void the_domain_of_a_region_that_is_changed(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread = start(change_rights);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, RIGHTS);
		CHECK(mr);
		show(mr);
		CODE(ibv_dereg_mr(mr), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

static struct ibv_pd *others;

/* Imports the region and removes the import again. */
static void import(void *mr)
{
	struct ibv_mr *name = ibv_import_mr(others, ((struct ibv_mr *)mr)->handle);
	if (name)
		ibv_unimport_mr(name);
}

static void the_domain_of_a_region_that_is_imported(void)
{
	struct ibv_context *context = open_first();
	CHECK(others = ibv_alloc_pd(context));
	pthread_t thread = start(import);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, RIGHTS);
		CHECK(mr);
		show(mr);
		CODE(ibv_dereg_mr(mr), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

static void the_device_memory_of_a_region_that_is_changed(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread = start(change_rights);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_alloc_dm_attr attr = { .length = SIZE };
		struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(dm && pd);
		struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 0, SIZE, RIGHTS | IBV_ACCESS_ZERO_BASED);
		CHECK(mr);
		show(mr);
		CODE(ibv_dereg_mr(mr), 0);
		CODE(ibv_free_dm(dm), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

static struct ibv_qp *binder;

/* Makes a call that is refused after it has looked up the window. */
static void name_window(void *mw)
{
	struct ibv_mw_bind bind = { .wr_id = 9 };
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = NULL, .length = 1 };
	CHECK(ibv_bind_mw(binder, mw, &bind) != 0);
}

static void the_region_and_domain_of_a_window_that_is_named(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	CHECK(pd && cq);
	binder = queue_pair(pd, cq, cq, NULL);
	close_circle(binder, RIGHTS);
	pthread_t thread = start(name_window);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *parent = ibv_alloc_pd(context);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, RIGHTS);
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
		struct ibv_mw *unbound = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
		CHECK(parent && mr && mw && unbound);
		struct ibv_mw_bind bind = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED };
		bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)memory,
			.length = SIZE, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
		CODE(ibv_bind_mw(binder, mw, &bind), 0);
		struct ibv_wc wc;
		while (!ibv_poll_cq(cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS);
		CODE(ibv_dereg_mr(mr), EBUSY);
		show(mw);
		CODE(ibv_dealloc_mw(mw), 0);
		CODE(ibv_dereg_mr(mr), 0);
		show(unbound);
		CODE(ibv_dealloc_mw(unbound), 0);
		CODE(ibv_dealloc_pd(parent), 0);
	}
	stop(thread);
}

/* Makes a call that is refused after it has looked up the domain. */
static void name_domain(void *pd)
{
	CHECK(!ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, -1, 0));
}

static void the_domains_under_a_parent_domain_that_is_named(void)
{
	struct ibv_context *context = open_first();
	pthread_t thread = start(name_domain);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_td_init_attr plain = {};
		struct ibv_td *td = ibv_alloc_td(context, &plain);
		struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
		struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
		CHECK(pd && td && parent);
		show(parent);
		CODE(ibv_dealloc_pd(parent), 0);
		CODE(ibv_dealloc_td(td), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(thread);
}

static void the_domain_of_an_address_handle(void)
{
	struct ibv_context *context = open_first();
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	CODE(ibv_query_gid(context, 1, 0, &attr.grh.dgid), 0);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_ah *ah = ibv_create_ah(pd, &attr);
		CHECK(ah);
		CODE(ibv_destroy_ah(ah), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
}

static void ask_port(void *id)
{
	rdma_get_src_port(id);
}

static void the_channel_of_an_id_that_is_looked_at(void)
{
	pthread_t thread = start(ask_port);
	for (int round = 0; round < ROUNDS; round++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		struct rdma_cm_id *id;
		CHECK(channel);
		CODE(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		show(id);
		CODE(rdma_destroy_id(id), 0);
		errno = 0;
		rdma_destroy_event_channel(channel);
		CHECK(errno == 0);
	}
	stop(thread);
}

/* Finds races between more than two objects: everything at once, in random order. */
static void a_whole_tree_in_any_order(void)
{
	struct ibv_context *context = opened = open_first();
	pthread_t threads[] = { start(query_qp), start(acknowledge_event) };
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_cq *cq = ibv_create_cq(context, DEPTH, NULL, channel, 0);
		CHECK(channel && pd && cq);
		struct ibv_srq *srq = shared_queue(pd);
		struct ibv_qp *qp = queue_pair(pd, cq, cq, srq);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, RIGHTS);
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		CHECK(mr && mw);
		close_circle(qp, RIGHTS);
		CODE(to_state(qp, IBV_QPS_ERR), 0);
		show(qp);
		bool gone[4] = {};
		for (int left = 4; left > 0; left--) {
			int one = rand() % 4;
			while (gone[one])
				one = (one + 1) % 4;
			gone[one] = true;
			switch (one) {
			case 0:
				CODE(ibv_destroy_qp(qp), 0);
				if (rand() % 2)
					CODE(ibv_dealloc_mw(mw), 0), mw = NULL;
				break;
			case 1:
				CODE(ibv_dereg_mr(mr), 0);
				break;
			case 2:
				if (gone[0])
					CODE(ibv_destroy_srq(srq), 0), srq = NULL;
				break;
			case 3:
				if (gone[0])
					CODE(ibv_destroy_cq(cq), 0), cq = NULL;
				break;
			}
		}
		if (mw)
			CODE(ibv_dealloc_mw(mw), 0);
		if (srq)
			CODE(ibv_destroy_srq(srq), 0);
		if (cq)
			CODE(ibv_destroy_cq(cq), 0);
		CODE(ibv_destroy_comp_channel(channel), 0);
		CODE(ibv_dealloc_pd(pd), 0);
	}
	stop(threads[0]);
	stop(threads[1]);
}

static const struct claim CLAIMS[] = {
	CLAIM(the_parts_of_a_queue_pair_that_is_queried),
	CLAIM(the_domain_of_a_shared_queue_that_is_queried),
	CLAIM(the_parts_of_a_queue_pair_after_its_event_is_acknowledged),
	CLAIM(the_channel_of_a_queue_after_its_event_is_acknowledged),
	CLAIM(the_domain_of_a_region_that_is_changed),
	CLAIM(the_domain_of_a_region_that_is_imported),
	CLAIM(the_device_memory_of_a_region_that_is_changed),
	CLAIM(the_region_and_domain_of_a_window_that_is_named),
	CLAIM(the_domains_under_a_parent_domain_that_is_named),
	CLAIM(the_domain_of_an_address_handle),
	CLAIM(the_channel_of_an_id_that_is_looked_at),
	CLAIM(a_whole_tree_in_any_order),
};

int main(int argc, char **argv)
{
	return RUN(CLAIMS, argc, argv);
}
