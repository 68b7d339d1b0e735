/* The claims of tests/misuse.rs: one function per claim, selected by the only argument. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* Starts the engine. */
static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
}

static struct rdma_cm_id *bound_id(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in address = {.sin_family = AF_INET};
	inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
	CODE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	CODE(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
	return id;
}

/* A copy of the first bytes of a structure, aligned as C requires, with no memory after it. */
static void *cut(const void *from, size_t len)
{
	static char *end;
	len = (len + 7) & ~(size_t)7;
	if (!end) {
		char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(pages != MAP_FAILED);
		end = pages + 4096;
		CODE(mprotect(end, 4096, PROT_NONE), 0);
	}
	return memcpy(end - len, from, len);
}

#define UP_TO(structure, field) offsetof(struct structure, field)

static void attributes_of_older_headers_have_an_end(void)
{
	begin();
	struct ibv_qp_init_attr_ex qp_attr = {
		.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct verbs_context *verbs = verbs_get_ctx(context);
	struct ibv_qp *qp = verbs->create_qp_ex(context, cut(&qp_attr, UP_TO(ibv_qp_init_attr_ex, xrcd)));
	CHECK(qp);
	qp_attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	struct ibv_qp *other = verbs->create_qp_ex(
		context, cut(&qp_attr, UP_TO(ibv_qp_init_attr_ex, max_tso_header)));
	CHECK(other);
	CODE(ibv_destroy_qp(other), 0);
	qp_attr.comp_mask = 0;
	NONE(verbs->create_qp_ex(context, cut(&qp_attr, UP_TO(ibv_qp_init_attr_ex, pd))), EINVAL);

	struct rdma_cm_id *id = bound_id();
	qp_attr.send_cq = qp_attr.recv_cq = NULL, qp_attr.pd = NULL;
	struct ibv_qp_init_attr_ex *told = cut(&qp_attr, UP_TO(ibv_qp_init_attr_ex, xrcd));
	CODE(rdma_create_qp_ex(id, told), 0);
	CHECK(told->pd == id->pd && told->send_cq == id->send_cq);

	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	const int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_init_attr init;
	CODE(ibv_modify_qp(qp, cut(&attr, UP_TO(ibv_qp_attr, rate_limit)), mask), 0);
	CODE(ibv_query_qp(qp, cut(&attr, UP_TO(ibv_qp_attr, rate_limit)), mask, &init), 0);
	int needed;
	CODE(rdma_init_qp_attr(id, cut(&attr, UP_TO(ibv_qp_attr, rate_limit)), &needed), 0);
	attr.rate_limit = 7;
	CODE(ibv_query_qp(qp, &attr, mask | IBV_QP_RATE_LIMIT, &init), 0);
	CHECK(attr.rate_limit == 0);

	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4};
	CHECK(verbs->create_cq_ex(context, cut(&cq_attr, UP_TO(ibv_cq_init_attr_ex, flags))));
	cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	cq_attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	CHECK(verbs->create_cq_ex(context, cut(&cq_attr, UP_TO(ibv_cq_init_attr_ex, parent_domain))));

	struct ibv_srq_init_attr_ex srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	NONE(verbs->create_srq_ex(context, cut(&srq_attr, UP_TO(ibv_srq_init_attr_ex, srq_type))), EINVAL);
	srq_attr.comp_mask = IBV_SRQ_INIT_ATTR_PD, srq_attr.pd = pd;
	CHECK(verbs->create_srq_ex(context, cut(&srq_attr, UP_TO(ibv_srq_init_attr_ex, xrcd))));
	srq_attr.pd = id->pd;
	CODE(rdma_create_srq_ex(id, cut(&srq_attr, UP_TO(ibv_srq_init_attr_ex, xrcd))), 0);

	struct ibv_parent_domain_init_attr domain = {.pd = pd};
	CHECK(verbs->alloc_parent_domain(context, cut(&domain, UP_TO(ibv_parent_domain_init_attr, alloc))));
}

static int open_files(void)
{
	int count = 0;
	DIR *files = opendir("/proc/self/fd");
	CHECK(files);
	while (readdir(files))
		count++;
	closedir(files);
	return count;
}

static void a_queue_pair_that_an_id_is_refused_leaves_nothing_open(void)
{
	begin();
	struct rdma_cm_id *id = bound_id();
	int before = open_files();
	const struct ibv_qp_cap caps[] = {
		{4, UINT32_MAX, 1, 1, 0}, {UINT32_MAX, 4, 1, 1, 0}, {4, 4, UINT32_MAX, 1, 0},
		{4, 4, 1, UINT32_MAX, 0}, {4, 4, 1, 1, UINT32_MAX},
	};
	const size_t count = sizeof caps / sizeof *caps;
	for (size_t turn = 0; turn < 20 * count; turn++) {
		struct ibv_qp_init_attr attr = {.cap = caps[turn % count], .qp_type = IBV_QPT_RC};
		MINUS(rdma_create_qp(id, NULL, &attr), EINVAL);
		CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
	}
	/* The engine has opened some files temporarily. */
	CHECK(open_files() < before + 20);
	CODE(rdma_destroy_id(id), 0);
}

/* Makes objects until one fails for lack of memory. The objects are not destroyed. */
#define UNTIL_THERE_IS_NONE(make) \
	do { \
		errno = 0; \
		CHECK(count++ < 1000000); \
	} while (make); \
	CHECK(errno == ENOMEM)

/* The number of mapped pages after the engine's threads have started, because each first maps more
 * than it keeps. */
static long settled_pages(void)
{
	long before = -1, pages = 0;
	for (int looks = 0; pages != before && looks < 100; looks++) {
		before = pages;
		FILE *statm = fopen("/proc/self/statm", "r");
		CHECK(statm && fscanf(statm, "%ld", &pages) == 1);
		fclose(statm);
		usleep(20000);
	}
	return pages;
}

static void without_memory_there_is_an_error(void)
{
	begin();
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rlimit old, limit;
	CODE(getrlimit(RLIMIT_AS, &old), 0);
	limit = old;
	limit.rlim_cur = (rlim_t)settled_pages() * 4096 + (16 << 20);
	CODE(setrlimit(RLIMIT_AS, &limit), 0);

	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4096, .max_sge = 4}};
	struct ibv_qp_init_attr qp = {
		.send_cq = cq, .recv_cq = cq, .cap = {4096, 4096, 4, 4, 64}, .qp_type = IBV_QPT_RC,
	};
	int count = 0;
	NONE(ibv_create_cq(context, (1 << 20) - 1, NULL, NULL, 0), ENOMEM);
	CODE(ibv_resize_cq(cq, (1 << 20) - 1), ENOMEM);
	UNTIL_THERE_IS_NONE(ibv_create_qp(pd, &qp));
	UNTIL_THERE_IS_NONE(ibv_create_srq(pd, &srq));
	UNTIL_THERE_IS_NONE(ibv_create_cq(context, 256, NULL, NULL, 0));
	UNTIL_THERE_IS_NONE(ibv_alloc_pd(context));
	UNTIL_THERE_IS_NONE(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	UNTIL_THERE_IS_NONE(ibv_create_comp_channel(context));
	UNTIL_THERE_IS_NONE(ibv_open_device(context->device));
	UNTIL_THERE_IS_NONE(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP));

	/* Existing objects still work. */
	CODE(setrlimit(RLIMIT_AS, &old), 0);
	CHECK(ibv_create_qp(pd, &qp));
	CODE(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
}

static const struct claim claims[] = {
	CLAIM(attributes_of_older_headers_have_an_end),
	CLAIM(a_queue_pair_that_an_id_is_refused_leaves_nothing_open),
	CLAIM(without_memory_there_is_an_error),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
