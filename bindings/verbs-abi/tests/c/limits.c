/* The claims of tests/limits.rs: one function per claim, selected by the only argument. A device
 * can have exactly as many objects of a kind as it reports. */

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_ah_attr to_self = { .is_global = 1, .port_num = 1 };
static char memory[64];

static struct ibv_device_attr begin(void)
{
	struct ibv_device_attr attr;
	context = open_first();
	CODE(ibv_query_device(context, &attr), 0);
	CODE(ibv_query_gid(context, 1, 0, &to_self.grh.dgid), 0);
	return attr;
}

static void *make_pd(void)
{
	return ibv_alloc_pd(context);
}

static int end_pd(void *it)
{
	return ibv_dealloc_pd(it);
}

static void *make_cq(void)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static int end_cq(void *it)
{
	return ibv_destroy_cq(it);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	return ibv_create_srq(pd, &attr);
}

static int end_srq(void *it)
{
	return ibv_destroy_srq(it);
}

static void *make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	return ibv_create_qp(pd, &attr);
}

static int end_qp(void *it)
{
	return ibv_destroy_qp(it);
}

static void *make_ah(void)
{
	return ibv_create_ah(pd, &to_self);
}

static int end_ah(void *it)
{
	return ibv_destroy_ah(it);
}

static void *make_mr(void)
{
	return ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *it)
{
	return ibv_dereg_mr(it);
}

static void *make_mw(void)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

static int end_mw(void *it)
{
	return ibv_dealloc_mw(it);
}

/* `some` objects exist already. */
static void as_many_as(int told, int some, void *(*make)(void), int (*end)(void *))
{
	int most = told - some;
	void **all = calloc(most, sizeof *all);
	CHECK(most > 1 && all);
	for (int at = 0; at < most; at++)
		CHECK(all[at] = make());
	for (int again = 0; again < 3; again++) {
		NONE(make(), ENOMEM);
		/* Destroying any of them makes room for one. */
		int one = again * (most - 1) / 2;
		CODE(end(all[one]), 0);
		CHECK(all[one] = make());
	}
	NONE(make(), ENOMEM);
	for (int at = 0; at < most; at++)
		CODE(end(all[at]), 0);
	void *last = make();
	CHECK(last);
	CODE(end(last), 0);
}

static void the_reported_numbers_of_objects_can_be_created(void)
{
	struct ibv_device_attr told = begin();
	CHECK(told.max_qp == 8 && told.max_ah == 8 && told.max_mr == 16);
	as_many_as(told.max_pd, 0, make_pd, end_pd);
	as_many_as(told.max_cq, 0, make_cq, end_cq);
	CHECK((pd = make_pd()) && (cq = make_cq()));
	as_many_as(told.max_srq, 0, make_srq, end_srq);
	as_many_as(told.max_qp, 0, make_qp, end_qp);
	as_many_as(told.max_ah, 0, make_ah, end_ah);
	as_many_as(told.max_mr, 0, make_mr, end_mr);
	as_many_as(told.max_mw, 0, make_mw, end_mw);
	/* The limits of all kinds can be reached together. */
	for (int at = 0; at < told.max_srq; at++)
		CHECK(make_srq());
	for (int at = 1; at < told.max_cq; at++)
		CHECK(make_cq());
	as_many_as(told.max_qp, 0, make_qp, end_qp);
	as_many_as(told.max_pd, 1, make_pd, end_pd);
}

/* Kilobytes of memory that the process has resident. */
static long resident(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static void a_device_has_many_by_default_and_takes_memory_as_they_are_made(void)
{
	struct ibv_device_attr told = begin();
	CHECK(told.max_qp == 1 << 16 && told.max_ah == 1 << 16);
	CHECK(told.max_cq == 1 << 17 && told.max_srq == 1 << 16);
	CHECK((pd = make_pd()) && (cq = make_cq()));
	long before = resident();
	printf("engine: %ld KiB\n", before);
	void *one = make_ah();
	CHECK(one && resident() - before < 1024);
	/* An object can be destroyed and made again any number of times. */
	for (int at = 0; at < 1 << 17; at++) {
		CODE(end_ah(one), 0);
		CHECK(one = make_ah());
	}
	long taken = resident() - before;
	printf("address handles that come and go: %ld KiB\n", taken);
	CHECK(taken < 8 * 1024);
	for (int at = 1; at < told.max_ah; at++)
		CHECK(make_ah());
	NONE(make_ah(), ENOMEM);
}

static const struct claim CLAIMS[] = {
	CLAIM(the_reported_numbers_of_objects_can_be_created),
	CLAIM(a_device_has_many_by_default_and_takes_memory_as_they_are_made),
};

int main(int argc, char **argv)
{
	return RUN(CLAIMS, argc, argv);
}
