/* The claims of tests/cancel.rs: one function per claim, selected by the only argument. */

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

/* The type of cancellation, and the object that the threads wait on. */
static int type;

static void *wait_for_async_event(void *context)
{
	pthread_setcanceltype(type, NULL);
	struct ibv_async_event event;
	ibv_get_async_event(context, &event);
	return NULL;
}

static void *wait_for_cq_event(void *channel)
{
	pthread_setcanceltype(type, NULL);
	struct ibv_cq *cq;
	void *cq_context;
	ibv_get_cq_event(channel, &cq, &cq_context);
	return NULL;
}

static void *wait_for_cm_event(void *channel)
{
	pthread_setcanceltype(type, NULL);
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return NULL;
}

static void cancel(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, body, argument));
	/* By now the thread most likely waits. If it does not yet, it must end too. */
	usleep(100000);
	CHECK(!pthread_cancel(thread));
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	void *result;
	CODE(pthread_timedjoin_np(thread, &result, &until), 0);
	CHECK(result == PTHREAD_CANCELED);
}

static void cancel_both_ways(void *(*body)(void *), void *argument)
{
	type = PTHREAD_CANCEL_DEFERRED;
	cancel(body, argument);
	type = PTHREAD_CANCEL_ASYNCHRONOUS;
	cancel(body, argument);
}

static void a_thread_that_waits_for_an_asynchronous_event_can_be_cancelled(void)
{
	struct ibv_context *context = open_first();
	cancel_both_ways(wait_for_async_event, context);
	CODE(ibv_close_device(context), 0);
}

static void a_thread_that_waits_for_a_completion_event_can_be_cancelled(void)
{
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	cancel_both_ways(wait_for_cq_event, channel);
	CODE(ibv_destroy_comp_channel(channel), 0);
	CODE(ibv_close_device(context), 0);
}

static void a_thread_that_waits_for_a_connection_event_can_be_cancelled(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	cancel_both_ways(wait_for_cm_event, channel);
	rdma_destroy_event_channel(channel);
	struct rdma_cm_event *event;
	MINUS(rdma_get_cm_event(channel, &event), EINVAL);
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
		CLAIM(a_thread_that_waits_for_an_asynchronous_event_can_be_cancelled),
		CLAIM(a_thread_that_waits_for_a_completion_event_can_be_cancelled),
		CLAIM(a_thread_that_waits_for_a_connection_event_can_be_cancelled),
	};
	return RUN(claims, argc, argv);
}
