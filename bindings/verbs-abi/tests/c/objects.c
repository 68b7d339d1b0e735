/* The claims of tests/objects.rs: one function per claim, selected by the only argument. */

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

static struct ibv_pd *domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(open_first());
	CHECK(pd);
	return pd;
}

/* Maps private memory without touching it, far from other mappings, so that a hole in it stays a
 * hole. */
static void *map(size_t len, int rights)
{
	void *far = (void *)((uintptr_t)1 << 45);
	void *place = mmap(far, len, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(place != MAP_FAILED);
	return place;
}

static const int RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

static void devices_are_listed_without_starting_anything(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && !list[1]);
	struct ibv_device *device = list[0];
	ibv_free_device_list(list);
	CHECK(!strcmp(ibv_get_device_name(device), "uroce0"));
	CHECK(!strcmp(device->dev_name, "uverbs0"));
	CHECK(device->node_type == IBV_NODE_CA && device->transport_type == IBV_TRANSPORT_IB);
	CHECK(ibv_get_device_guid(device) != 0);
	CHECK(ibv_get_device_index(device) == 0);
	list = ibv_get_device_list(NULL);
	CHECK(list[0] == device);
	ibv_free_device_list(list);
	struct ibv_device_attr attr;
	struct ibv_context *context = ibv_open_device(device);
	CHECK(context && context->device == device);
	CODE(ibv_query_device(context, &attr), 0);
	CHECK(attr.node_guid == ibv_get_device_guid(device));
	/* If the engine ran it would have threads. */
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	CHECK(status);
	int threads = 0;
	while (fgets(line, sizeof line, status))
		sscanf(line, "Threads: %d", &threads);
	fclose(status);
	CHECK(threads == 1);
	NONE(ibv_open_device(NULL), EINVAL);
	NONE(ibv_get_device_name((struct ibv_device *)&attr), EINVAL);
}

static void contexts_close_once(void)
{
	struct ibv_context *context = open_first(), *other = open_first();
	CHECK(context != other && context->cmd_fd != other->cmd_fd);
	CODE(ibv_close_device(context), 0);
	CODE(ibv_close_device(context), EINVAL);
	CODE(ibv_close_device(NULL), EINVAL);
	NONE(ibv_alloc_pd(context), EINVAL);
	CHECK(ibv_alloc_pd(other));
}

static void device_attributes_fit_the_programs_structure(void)
{
	struct ibv_context *context = open_first();
	struct verbs_context *verbs = verbs_get_ctx(context);
	struct ibv_device_attr plain;
	CODE(ibv_query_device(context, &plain), 0);
	CHECK(plain.vendor_id && plain.vendor_id != 0x2c9 && plain.phys_port_cnt == 1);
	CHECK(plain.max_qp > 0 && plain.max_qp_wr > 0 && plain.max_sge > 1 && plain.max_pd > 0);
	struct {
		struct ibv_device_attr_ex attr;
		uint8_t beyond[64];
	} room;
	struct ibv_query_device_ex_input input = {};
	size_t known = offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + 4;
	memset(&room, 0xee, sizeof room);
	CODE(verbs->query_device_ex(context, &input, &room.attr, sizeof room), 0);
	CHECK(room.attr.phys_port_cnt_ex == 1 && room.attr.max_dm_size > 0);
	CHECK(room.attr.packet_pacing_caps.qp_rate_limit_max > 0);
	CHECK(room.attr.packet_pacing_caps.supported_qpts & 1 << IBV_QPT_RC);
	CHECK(!room.attr.odp_caps.general_caps && !room.attr.tso_caps.max_tso);
	CHECK(!memcmp(&room.attr.orig_attr, &plain, offsetof(struct ibv_device_attr, phys_port_cnt)));
	/* Fields of newer headers are zero, and nothing is written after the end of an older
	 * structure. */
	for (size_t at = sizeof room.attr; at < sizeof room; at++)
		CHECK(((uint8_t *)&room)[at] == 0);
	memset(&room, 0xee, sizeof room);
	CODE(verbs->query_device_ex(context, NULL, &room.attr, known - 4), 0);
	CHECK(room.attr.phys_port_cnt_ex == 0xeeeeeeee);
	CODE(verbs->query_device_ex(context, NULL, &room.attr, 8), EINVAL);
	CODE(verbs->query_device_ex(context, NULL, NULL, sizeof room.attr), EINVAL);
	input.comp_mask = 1;
	CODE(verbs->query_device_ex(context, &input, &room.attr, sizeof room.attr), EINVAL);
	CODE(ibv_query_device(context, NULL), EINVAL);
	struct ibv_values_ex before = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, after = before;
	CODE(ibv_query_rt_values_ex(context, &before), 0);
	usleep(1000);
	CODE(ibv_query_rt_values_ex(context, &after), 0);
	long passed = after.raw_clock.tv_nsec - before.raw_clock.tv_nsec;
	CHECK(passed * 1000 >= (long)room.attr.hca_core_clock * 0 + 1000000);
	before.comp_mask = 2;
	CODE(ibv_query_rt_values_ex(context, &before), EINVAL);
}

static void port_attributes_fit_the_programs_structure(void)
{
	struct ibv_context *context = open_first();
	struct ibv_port_attr attr;
	struct {
		uint8_t bytes[96];
	} room;
	CODE(ibv_query_port(context, 1, &attr), 0);
	CHECK(attr.state == IBV_PORT_ACTIVE && attr.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(attr.gid_tbl_len > 2 && attr.pkey_tbl_len == 1 && attr.max_msg_sz >= 1u << 30);
	CHECK(attr.lid == 0x0201);
	CHECK(attr.active_mtu <= attr.max_mtu && attr.active_width && attr.active_speed);
	memset(&room, 0xee, sizeof room);
	struct verbs_context *verbs = verbs_get_ctx(context);
	CODE(verbs->query_port(context, 1, (void *)&room, sizeof room), 0);
	CHECK(!memcmp(&room, &attr, offsetof(struct ibv_port_attr, port_cap_flags2)));
	/* rdma-core 60 has one more field, the extended speed; after it nothing is written. */
	for (size_t at = 56; at < sizeof room; at++)
		CHECK(room.bytes[at] == 0);
	memset(&room, 0xee, sizeof room);
	CODE((ibv_query_port)(context, 1, (void *)&room), 0);
	for (size_t at = 48; at < sizeof room; at++)
		CHECK(room.bytes[at] == 0xee);
	/* If the engine runs, the state is that of the link. */
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && ibv_reg_mr(pd, &room, sizeof room, 0));
	CODE(ibv_query_port(context, 1, &attr), 0);
	CHECK(attr.state == IBV_PORT_ACTIVE || attr.state == IBV_PORT_DOWN);
	CODE(ibv_query_port(context, 0, &attr), EINVAL);
	CODE(ibv_query_port(context, 2, &attr), EINVAL);
	CODE(ibv_query_port(context, 255, &attr), EINVAL);
	CODE(verbs->query_port(context, 1, NULL, sizeof attr), EINVAL);
}

static void gids_name_the_interface_that_is_shown(void)
{
	/* `uroce-run --netdev` sets this variable. */
	unsetenv("UROCE_NETDEV");
	struct ibv_context *context = open_first();
	unsigned loopback = if_nametoindex("lo");
	struct ibv_gid_entry entry, all[64];
	CODE(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	CHECK(loopback > 0 && entry.ndev_ifindex == loopback);
	CHECK(ibv_query_gid_table(context, all, 64, 0) == 2 && all[1].ndev_ifindex == loopback);
	setenv("UROCE_NETDEV", "../lo", 1);
	CODE(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	CHECK(entry.ndev_ifindex == loopback);
	setenv("UROCE_NETDEV", "none-such0", 1);
	CODE(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	CHECK(entry.ndev_ifindex == 0);
}

static void all_queries_return_the_same_gids(void)
{
	struct ibv_context *context = open_first();
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, all[64];
	union ibv_gid gid, zero = {};
	CODE(ibv_query_port(context, 1, &port), 0);
	ssize_t count = ibv_query_gid_table(context, all, 64, 0);
	CHECK(count == 2);
	for (int at = 0; at < port.gid_tbl_len; at++) {
		CHECK(ibv_query_gid(context, 1, at, &gid) == 0);
		if (at < count) {
			CODE(ibv_query_gid_ex(context, 1, at, &entry, 0), 0);
			CHECK(!memcmp(&entry.gid, &gid, 16) && !memcmp(&all[at].gid, &gid, 16));
			CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.port_num == 1);
			CHECK((int)entry.gid_index == at);
		} else {
			CHECK(!memcmp(&gid, &zero, 16));
			CODE(ibv_query_gid_ex(context, 1, at, &entry, 0), ENODATA);
		}
	}
	static const uint8_t ipv4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};
	CHECK(!memcmp(all[0].gid.raw, ipv4, 16));
	MINUS(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), EINVAL);
	MINUS(ibv_query_gid(context, 1, -1, &gid), EINVAL);
	MINUS(ibv_query_gid(context, 2, 0, &gid), EINVAL);
	MINUS(ibv_query_gid(context, 1, 0, NULL), EINVAL);
	CODE(ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0), EINVAL);
	CODE(ibv_query_gid_ex(context, 0, 0, &entry, 0), EINVAL);
	CODE(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
	CODE(ibv_query_gid_ex(context, 1, 0, NULL, 0), EINVAL);
	CHECK(ibv_query_gid_table(context, all, 1, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(context, all, 0, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(context, NULL, 64, 0) == -EINVAL);
	__be16 pkey = 0;
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	MINUS(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
	CHECK(ibv_get_pkey_index(context, 1, pkey) == 0);
	CHECK(ibv_get_pkey_index(context, 1, 0x7fff) == -1);
}

static void domains_are_busy_while_something_is_made_of_them(void)
{
	struct ibv_pd *pd = domain();
	char bytes[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->pd == pd && mr->addr == bytes && mr->length == 64 && mr->lkey == mr->rkey);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_dealloc_pd(pd), EINVAL);
	NONE(ibv_reg_mr(pd, bytes, sizeof bytes, 0), EINVAL);
}

static void regions_need_memory_that_is_there(void)
{
	struct ibv_pd *pd = domain();
	long page = sysconf(_SC_PAGESIZE);
	char *place = map(4 * page, PROT_READ | PROT_WRITE);
	CHECK(!munmap(place + 2 * page, page));
	CHECK(!mprotect(place + page, page, PROT_READ));
	CHECK(!mprotect(place + 3 * page, page, PROT_NONE));
	CHECK(ibv_reg_mr(pd, place, page, RW));
	NONE(ibv_reg_mr(pd, place, page + 1, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	CHECK(ibv_reg_mr(pd, place, 2 * page, IBV_ACCESS_REMOTE_READ));
	NONE(ibv_reg_mr(pd, place, 2 * page + 1, 0), EFAULT);
	NONE(ibv_reg_mr(pd, place + 2 * page, 1, 0), EFAULT);
	NONE(ibv_reg_mr(pd, place + 3 * page, 1, 0), EFAULT);
	NONE(ibv_reg_mr(pd, NULL, 1, 0), EFAULT);
	NONE(ibv_reg_mr(pd, place, SIZE_MAX, 0), EFAULT);
	NONE(ibv_reg_mr(pd, place, (size_t)1 << 47, 0), EFAULT);
	NONE(ibv_reg_mr(pd, (void *)UINTPTR_MAX, 16, 0), EFAULT);
	NONE(ibv_reg_mr_iova(pd, place, page, UINT64_MAX, 0), EFAULT);
}

static void regions_need_rights_that_make_sense(void)
{
	struct ibv_pd *pd = domain();
	static uint64_t bytes[8];
	NONE(ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NONE(ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ), EINVAL);
	NONE(ibv_reg_mr(pd, bytes, 64, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	/* IBV_ACCESS_FLUSH_GLOBAL, _PERSISTENT of newer headers. */
	CHECK(ibv_reg_mr(pd, bytes, 64, 1 << 8));
	NONE(ibv_reg_mr(pd, bytes, 64, 1 << 9), EOPNOTSUPP);
	NONE(ibv_reg_mr(pd, bytes, 64, RW | 3 << 8), EOPNOTSUPP);
	NONE(ibv_reg_mr(pd, bytes, 64, 1 << 15), EINVAL);
	NONE(ibv_reg_mr(pd, bytes, 64, 1 << 30), EINVAL);
	CHECK(ibv_reg_mr(pd, bytes, 64, RW | IBV_ACCESS_RELAXED_ORDERING | 1 << 29));
	CHECK(ibv_reg_mr(pd, bytes, 64, RW | IBV_ACCESS_HUGETLB));
	CHECK(ibv_reg_mr(pd, bytes, 64, RW | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND));
	CHECK(ibv_reg_mr_iova(pd, bytes, 64, 0x1000, RW | IBV_ACCESS_REMOTE_ATOMIC));
	NONE(ibv_reg_mr_iova(pd, bytes, 64, 0x1001, RW | IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	NONE(ibv_reg_dmabuf_mr(pd, 0, 64, 0, 0, RW), EOPNOTSUPP);
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	CHECK(null && null->lkey && !null->rkey && null->length == SIZE_MAX);
	CODE(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), IBV_REREG_MR_ERR_INPUT);
	CODE(ibv_dereg_mr(null), 0);
}

static void a_gibibyte_registers_in_less_than_a_millisecond(void)
{
	struct ibv_pd *pd = domain();
	size_t len = (size_t)1 << 30;
	void *place = map(len, PROT_READ | PROT_WRITE);
	double best = 1;
	for (int round = 0; round < 32; round++) {
		struct timespec begin, end;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		struct ibv_mr *mr = ibv_reg_mr(pd, place, len, RW);
		clock_gettime(CLOCK_MONOTONIC, &end);
		CHECK(mr);
		/* The first registration starts the engine. */
		double took = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
		best = took < best ? took : best;
		CODE(ibv_dereg_mr(mr), 0);
	}
	printf("%.0f us\n", best * 1e6);
	CHECK(best < 1e-3);
}

static void regions_change_and_keep_their_keys(void)
{
	struct ibv_pd *pd = domain(), *other = ibv_alloc_pd(pd->context);
	static char bytes[64], more[128];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	uint32_t key = mr->lkey;
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, more, sizeof more, 0), 0);
	CHECK(mr->addr == more && mr->length == sizeof more && mr->pd == pd);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	CHECK(mr->pd == other && mr->addr == more);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_dealloc_pd(other), EBUSY);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), 0);
	pd = ibv_alloc_pd(other->context);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, pd, bytes, sizeof bytes, 0), 0);
	CHECK(mr->lkey == key && mr->rkey == key && mr->pd == pd && mr->addr == bytes);
	/* A refused call changes nothing. */
	CODE(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	CODE(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), -1);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), -1);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, RW), -1);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0), -1);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes, 0, 0), -1);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)8, 64, 0),
	     IBV_REREG_MR_ERR_CMD);
	CHECK(errno == EFAULT);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
	     IBV_REREG_MR_ERR_CMD);
	CHECK(errno == EINVAL);
	CODE(ibv_rereg_mr(NULL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), -1);
	CHECK(mr->pd == pd && mr->addr == bytes && mr->length == sizeof bytes);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dereg_mr(mr), EINVAL);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), -1);
	CODE(ibv_dealloc_pd(pd), 0);
	CODE(ibv_dealloc_pd(other), 0);
}

static void windows_have_two_types(void)
{
	struct ibv_pd *pd = domain();
	struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(one && two && one->rkey != two->rkey && one->pd == pd && two->type == IBV_MW_TYPE_2);
	CHECK(ibv_inc_rkey(one->rkey) >> 8 == one->rkey >> 8);
	NONE(ibv_alloc_mw(pd, 0), EINVAL);
	NONE(ibv_alloc_mw(pd, 3), EINVAL);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	CODE(ibv_dealloc_mw(one), 0);
	/* The inline function would read the context of the destroyed window. */
	CODE(two->context->ops.dealloc_mw(one), EINVAL);
	CODE(ibv_dealloc_mw(two), 0);
	CODE(ibv_dealloc_pd(pd), 0);
}

static void device_memory_is_reached_by_copies(void)
{
	struct ibv_context *context = open_first();
	struct ibv_alloc_dm_attr attr = {.length = 64, .log_align_req = 6};
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	CHECK(dm && dm->context == context && dm->comp_mask & IBV_DM_MASK_HANDLE);
	char in[64], out[64] = {};
	for (size_t at = 0; at < sizeof in; at++)
		in[at] = at * 7;
	CODE(ibv_memcpy_to_dm(dm, 0, in, 64), 0);
	CODE(ibv_memcpy_from_dm(out, dm, 4, 60), 0);
	CHECK(!memcmp(out, in + 4, 60) && !out[60]);
	CODE(ibv_memcpy_to_dm(dm, 0, in, 68), EINVAL);
	CODE(ibv_memcpy_to_dm(dm, 68, in, 0), EINVAL);
	CODE(ibv_memcpy_to_dm(dm, UINT64_MAX - 3, in, 8), EINVAL);
	CODE(ibv_memcpy_to_dm(dm, 2, in, 4), EINVAL);
	CODE(ibv_memcpy_from_dm(out, dm, 0, 3), EINVAL);
	CODE(ibv_memcpy_from_dm(NULL, dm, 0, 4), EINVAL);
	CODE(ibv_memcpy_to_dm(dm, 0, NULL, 4), EINVAL);
	int (*copy)(void *, struct ibv_dm *, uint64_t, size_t) = dm->memcpy_from_dm;
	CODE(ibv_free_dm(dm), 0);
	CODE(copy(out, dm, 0, 4), EINVAL);
	CODE(copy(out, NULL, 0, 4), EINVAL);
	attr.comp_mask = 1;
	NONE(ibv_alloc_dm(context, &attr), EINVAL);
	attr = (struct ibv_alloc_dm_attr){.length = 0};
	NONE(ibv_alloc_dm(context, &attr), EINVAL);
	attr.length = SIZE_MAX;
	NONE(ibv_alloc_dm(context, &attr), ENOMEM);
	attr = (struct ibv_alloc_dm_attr){.length = 4, .log_align_req = UINT32_MAX};
	NONE(ibv_alloc_dm(context, &attr), EINVAL);
	NONE(ibv_alloc_dm(context, NULL), EINVAL);
}

static void regions_of_device_memory_keep_it(void)
{
	struct ibv_pd *pd = domain();
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(pd->context, &attr);
	CHECK(dm);
	int access = RW | IBV_ACCESS_ZERO_BASED;
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 8, 56, access);
	CHECK(mr && mr->length == 56 && !mr->addr);
	CHECK(ibv_reg_dm_mr(pd, dm, 64, 0, access));
	NONE(ibv_reg_dm_mr(pd, dm, 8, 57, access), EINVAL);
	NONE(ibv_reg_dm_mr(pd, dm, UINT64_MAX, 2, access), EINVAL);
	NONE(ibv_reg_dm_mr(pd, dm, 0, 64, RW), EINVAL);
	NONE(ibv_reg_dm_mr(pd, NULL, 0, 64, access), EINVAL);
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), -1);
	CODE(ibv_free_dm(dm), EBUSY);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_free_dm(dm), EBUSY);
}

/* The port's own address answers without a peer. */
static struct ibv_ah_attr to_self(struct ibv_context *context, int index)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh.sgid_index = index};
	CHECK(!ibv_query_gid(context, 1, index, &attr.grh.dgid));
	return attr;
}

static void address_handles_need_an_address(void)
{
	struct ibv_pd *pd = domain();
	struct ibv_ah_attr attr = to_self(pd->context, 0);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah && ah->pd == pd && ah->context == pd->context);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	CODE(ibv_destroy_ah(ah), 0);
	CODE(ibv_destroy_ah(ah), EINVAL);
	NONE(ibv_create_ah(pd, NULL), EINVAL);
	struct ibv_ah_attr bad = attr;
	bad.is_global = 0;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	/* A LID is the low half of an address in 192.0.2.0/24; 0x0201 is the port's own. */
	bad.dlid = 0x0201;
	CHECK((ah = ibv_create_ah(pd, &bad)));
	CODE(ibv_destroy_ah(ah), 0);
	bad.dlid = 0x0301;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad.dlid = 0xffff;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad.dlid = 0x0201, bad.port_num = 2;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad = attr, bad.port_num = 0;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad = attr, bad.port_num = 2;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad = attr, bad.grh.sgid_index = 9;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	bad = attr, bad.grh.sgid_index = 1;
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	/* RoCE does not use these fields, so they are ignored. */
	struct ibv_ah_attr odd = attr;
	odd.sl = 8, odd.static_rate = 1, odd.src_path_bits = 3, odd.dlid = 0xffff;
	CHECK((ah = ibv_create_ah(pd, &odd)));
	CODE(ibv_destroy_ah(ah), 0);
	odd.sl = odd.static_rate = odd.src_path_bits = 0xff;
	CHECK((ah = ibv_create_ah(pd, &odd)));
	CODE(ibv_destroy_ah(ah), 0);
	bad = attr, memset(&bad.grh.dgid, 0, 16);
	NONE(ibv_create_ah(pd, &bad), EINVAL);
	uint8_t mac[6];
	uint16_t vid;
	CHECK(ibv_resolve_eth_l2_from_gid(pd->context, &attr, mac, &vid) == 0 && vid == 0xffff);
	MINUS(ibv_resolve_eth_l2_from_gid(pd->context, &bad, mac, &vid), EINVAL);
	MINUS(ibv_resolve_eth_l2_from_gid(pd->context, &attr, NULL, &vid), EINVAL);
	CODE(ibv_dealloc_pd(pd), 0);
}

static void the_way_back_is_found_in_a_received_header(void)
{
	struct ibv_pd *pd = domain();
	struct ibv_context *context = pd->context;
	struct ibv_ah_attr self = to_self(context, 1), attr;
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_grh grh = {.sgid = self.grh.dgid, .dgid = self.grh.dgid, .hop_limit = 3};
	uint8_t *bytes = (uint8_t *)&grh;
	bytes[0] = 0x6a, bytes[1] = 0xb0, bytes[3] = 5;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
	CHECK(attr.is_global && attr.grh.sgid_index == 1 && attr.grh.traffic_class == 0xab);
	CHECK(attr.grh.flow_label == 5 && !memcmp(&attr.grh.dgid, &self.grh.dgid, 16));
	struct ibv_ah *ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	CHECK(ah);
	CODE(ibv_destroy_ah(ah), 0);
	/* IPv4: the header follows 20 undefined bytes. */
	static const uint8_t ipv4[20] = {0x45, 8, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0x78,
					 192,  0, 2, 2, 192, 0, 2, 1};
	memset(bytes, 0, 20);
	memcpy(bytes + 20, ipv4, 20);
	uint32_t sum = 0;
	bytes[30] = bytes[31] = 0;
	for (int at = 20; at < 40; at += 2)
		sum += bytes[at] << 8 | bytes[at + 1];
	sum = ~((sum & 0xffff) + (sum >> 16));
	bytes[30] = sum >> 8, bytes[31] = sum;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
	CHECK(attr.grh.sgid_index == 0 && attr.grh.traffic_class == 8);
	CHECK(attr.grh.dgid.raw[10] == 0xff && attr.grh.dgid.raw[15] == 2);
	bytes[35] ^= 1;
	MINUS(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr), EINVAL);
	MINUS(ibv_init_ah_from_wc(context, 2, &wc, &grh, &attr), EINVAL);
	MINUS(ibv_init_ah_from_wc(context, 1, NULL, &grh, &attr), EINVAL);
	MINUS(ibv_init_ah_from_wc(context, 1, &wc, NULL, &attr), EINVAL);
	wc.wc_flags = 0;
	MINUS(ibv_init_ah_from_wc(context, 1, &wc, NULL, NULL), EINVAL);
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, NULL, &attr) == 0 && !attr.is_global);
	NONE(ibv_create_ah_from_wc(pd, &wc, NULL, 1), EINVAL);
}

static void domains_have_other_names(void)
{
	struct ibv_pd *pd = domain();
	struct ibv_td_init_attr nothing = {}, something = {.comp_mask = 1};
	struct ibv_td *td = ibv_alloc_td(pd->context, &nothing);
	CHECK(td && td->context == pd->context);
	NONE(ibv_alloc_td(pd->context, &something), EINVAL);
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(pd->context, &attr);
	CHECK(parent && parent != pd && parent->context == pd->context);
	char bytes[8];
	struct ibv_mr *mr = ibv_reg_mr(parent, bytes, 8, 0);
	CHECK(mr && mr->pd == parent);
	CODE(ibv_dealloc_td(td), EBUSY);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	CODE(ibv_dealloc_pd(parent), EBUSY);
	CODE(ibv_dereg_mr(mr), 0);
	attr.pd = parent;
	NONE(ibv_alloc_parent_domain(pd->context, &attr), EINVAL);
	attr.pd = NULL;
	NONE(ibv_alloc_parent_domain(pd->context, &attr), EINVAL);
	attr = (struct ibv_parent_domain_init_attr){.pd = pd, .comp_mask = 1 << 5};
	NONE(ibv_alloc_parent_domain(pd->context, &attr), EOPNOTSUPP);
	CODE(ibv_dealloc_pd(parent), 0);
	CODE(ibv_dealloc_td(td), 0);
	CODE(ibv_dealloc_pd(pd), 0);
}

static void imports_find_the_objects_of_the_file(void)
{
	struct ibv_pd *pd = domain();
	static char bytes[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, RW);
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(pd->context, &attr);
	CHECK(mr && dm);
	struct ibv_context *context = ibv_import_device(dup(pd->context->cmd_fd));
	CHECK(context && context != pd->context && context->device == pd->context->device);
	NONE(ibv_import_device(-1), EBADF);
	NONE(ibv_import_device(12345), EBADF);
	NONE(ibv_import_device(0), EINVAL);
	NONE(ibv_import_device(context->cmd_fd), EINVAL);
	struct ibv_pd *pd2 = ibv_import_pd(context, pd->handle);
	CHECK(pd2 && pd2 != pd && pd2->context == context && pd2->handle == pd->handle);
	NONE(ibv_import_pd(context, pd->handle + 1000), ENOENT);
	NONE(ibv_import_pd(open_first(), pd->handle), ENOENT);
	struct ibv_mr *mr2 = ibv_import_mr(pd2, mr->handle);
	CHECK(mr2 && mr2->lkey == mr->lkey && !mr2->addr && mr2->length == 64 && mr2->pd == pd2);
	NONE(ibv_import_mr(pd2, mr->handle + 1000), ENOENT);
	struct ibv_dm *dm2 = ibv_import_dm(context, dm->handle);
	uint32_t word = 0x12345678, copy = 0;
	CHECK(dm2 && dm2->handle == dm->handle);
	CODE(ibv_memcpy_to_dm(dm, 8, &word, 4), 0);
	CODE(ibv_memcpy_from_dm(&copy, dm2, 8, 4), 0);
	CHECK(copy == word);
	NONE(ibv_import_dm(context, dm->handle + 1000), ENOENT);
	ibv_unimport_dm(dm2);
	CODE(ibv_free_dm(dm), 0);
	/* Objects made with an imported domain stay usable and keep the domain. */
	struct ibv_mr *mr3 = ibv_reg_mr(pd2, bytes, sizeof bytes, 0);
	CHECK(mr3);
	ibv_unimport_mr(mr2);
	CODE(ibv_dereg_mr(mr2), EINVAL);
	ibv_unimport_pd(pd2);
	NONE(ibv_reg_mr(pd2, bytes, 64, 0), EINVAL);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	CODE(ibv_dereg_mr(mr3), 0);
	/* An original handle cannot be unimported. */
	errno = 0, ibv_unimport_pd(pd);
	CHECK(errno == EINVAL);
	CODE(ibv_dealloc_pd(pd), 0);
}

/* Declarations that the installed headers lack. */
struct ibv_buf;
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
};
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr);

/* The region that is made and destroyed in a loop, and whether the loop continues. */
static _Atomic uint32_t region;
static _Atomic bool goes_on = true;

static void *import_regions(void *pd)
{
	while (goes_on) {
		struct ibv_mr *mr = ibv_import_mr(pd, region);
		if (mr)
			ibv_unimport_mr(mr);
	}
	return NULL;
}

static void regions_may_go_while_they_are_imported(void)
{
	struct ibv_pd *pd = domain();
	char *memory = map(4096, PROT_READ | PROT_WRITE);
	pthread_t thread;
	/* Ends the program if its threads deadlock. */
	alarm(30);
	CHECK(!pthread_create(&thread, NULL, import_regions, pd));
	for (int round = 0; round < 30000; round++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, RW);
		CHECK(mr);
		region = mr->handle;
		CODE(ibv_dereg_mr(mr), 0);
	}
	goes_on = false;
	pthread_join(thread, NULL);
}

static void buffers_are_registered_where_they_were_made(void)
{
	struct ibv_pd *pd = domain(), *other = ibv_alloc_pd(pd->context);
	struct ibv_buf *buf = NULL;
	char *place = ibv_alloc_buf(pd, 10000, &buf);
	CHECK(place && buf && !((uintptr_t)place % 4096) && !place[0] && !place[9999]);
	struct ibv_mr *mr = ibv_reg_buf_mr(pd, buf, place + 16, 9984, RW);
	CHECK(mr && mr->addr == place + 16 && mr->length == 9984);
	NONE(ibv_reg_buf_mr(other, buf, place, 64, RW), EINVAL);
	NONE(ibv_reg_buf_mr(pd, NULL, place, 64, RW), EINVAL);
	/* Memory outside the buffer is refused, even if it exists. */
	static char more[64];
	NONE(ibv_reg_buf_mr(pd, buf, more, sizeof more, RW), EINVAL);
	NONE(ibv_reg_buf_mr(pd, buf, place, 10001, RW), EINVAL);
	NONE(ibv_reg_buf_mr(pd, buf, place + 9999, 2, RW), EINVAL);
	NONE(ibv_reg_buf_mr(pd, buf, place - 1, 2, RW), EINVAL);
	NONE(ibv_reg_buf_mr(pd, buf, place + 1, SIZE_MAX, RW), EINVAL);
	CODE(ibv_dereg_mr(ibv_reg_buf_mr(pd, buf, place + 9999, 1, RW)), 0);
	CODE(ibv_dereg_mr(mr), 0);
	struct mr_init_attr attr = {.length = 64, .access = RW, .comp_mask = 2, .addr = place};
	mr = ibv_reg_mr_ex(pd, &attr);
	CHECK(mr && mr->addr == place);
	attr.comp_mask = 3;
	CHECK(ibv_reg_mr_ex(other, &attr));
	attr.comp_mask = 1;
	NONE(ibv_reg_mr_ex(pd, &attr), EINVAL);
	attr.comp_mask = 4;
	NONE(ibv_reg_mr_ex(pd, &attr), EOPNOTSUPP);
	NONE(ibv_reg_mr_ex(pd, NULL), EINVAL);
	CODE(ibv_dereg_mr(mr), 0);
	CODE(ibv_dealloc_pd(pd), EBUSY);
	ibv_free_buf(buf);
	errno = 0, ibv_free_buf(buf);
	CHECK(errno == EINVAL);
	NONE(ibv_alloc_buf(pd, 0, &buf), EINVAL);
	NONE(ibv_alloc_buf(pd, SIZE_MAX, &buf), ENOMEM);
	NONE(ibv_alloc_buf(pd, 64, NULL), EINVAL);
	CODE(ibv_dealloc_pd(pd), 0);
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);

static void small_files_are_read_without_their_line_feed(void)
{
	/* The test's own run directory. */
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char path[256], text[16];
	CHECK(dir && snprintf(path, sizeof path, "%s/small", dir) < (int)sizeof path);
	FILE *file = fopen(path, "wx");
	CHECK(file && fputs("RoCE v2\n", file) >= 0 && !fclose(file));
	CHECK(ibv_read_sysfs_file(dir, "small", text, sizeof text) == 7);
	CHECK(!strcmp(text, "RoCE v2"));
	CHECK(ibv_read_sysfs_file(dir, "small", text, 5) == 4 && !strcmp(text, "RoCE"));
	CHECK(ibv_read_sysfs_file(dir, "small", text, 1) == 0 && !text[0]);
	CHECK(!unlink(path));
	MINUS(ibv_read_sysfs_file(dir, "small", text, sizeof text), ENOENT);
	MINUS(ibv_read_sysfs_file(dir, NULL, text, sizeof text), EINVAL);
	MINUS(ibv_read_sysfs_file(dir, "x", text, 0), EINVAL);
	CHECK(!strcmp(ibv_get_sysfs_path(), "/sys"));
}

static void strangers_and_the_dead_are_refused_everywhere(void)
{
	static uint64_t stranger[256];
	static char bytes[64];
	struct ibv_context *live = open_first();
	void *all[] = {NULL, stranger, stranger + 128, (void *)live, (void *)16};
	const struct verbs_context *verbs = verbs_get_ctx(live);
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_ah_attr attr = to_self(live, 0);
	struct ibv_td_init_attr nothing = {};
	struct ibv_alloc_dm_attr dm = {.length = 4};
	for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
		void *bad = all[at];
		NONE(ibv_reg_mr(bad, bytes, 64, 0), EINVAL);
		NONE(ibv_reg_mr_iova2(bad, bytes, 64, 0, 0), EINVAL);
		NONE(ibv_create_ah(bad, &attr), EINVAL);
		NONE(live->ops.alloc_mw(bad, IBV_MW_TYPE_1), EINVAL);
		NONE(verbs->alloc_null_mr(bad), EINVAL);
		NONE(verbs->reg_dm_mr(bad, bad, 0, 4, IBV_ACCESS_ZERO_BASED), EINVAL);
		NONE(ibv_import_mr(bad, 1), EINVAL);
		CODE(ibv_dealloc_pd(bad), EINVAL);
		CODE(ibv_dereg_mr(bad), EINVAL);
		CODE(ibv_destroy_ah(bad), EINVAL);
		CODE(live->ops.dealloc_mw(bad), EINVAL);
		CODE(verbs->free_dm(bad), EINVAL);
		CODE(verbs->dealloc_td(bad), EINVAL);
		CODE(ibv_rereg_mr(bad, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), -1);
		errno = 0, ibv_unimport_mr(bad);
		CHECK(errno == EINVAL);
		errno = 0, ibv_unimport_dm(bad);
		CHECK(errno == EINVAL);
		if (bad == live)
			continue;
		NONE(ibv_alloc_pd(bad), EINVAL);
		NONE(verbs->alloc_td(bad, &nothing), EINVAL);
		NONE(verbs->alloc_dm(bad, &dm), EINVAL);
		NONE(ibv_import_pd(bad, 1), EINVAL);
		CODE(ibv_close_device(bad), EINVAL);
		CODE(ibv_query_device(bad, &device), EINVAL);
		CODE(verbs->query_port(bad, 1, &port, sizeof port), EINVAL);
		MINUS(ibv_query_gid(bad, 1, 0, &gid), EINVAL);
	}
	CODE(ibv_close_device(live), 0);
}

static const struct claim claims[] = {
	CLAIM(devices_are_listed_without_starting_anything),
	CLAIM(contexts_close_once),
	CLAIM(device_attributes_fit_the_programs_structure),
	CLAIM(port_attributes_fit_the_programs_structure),
	CLAIM(gids_name_the_interface_that_is_shown),
	CLAIM(all_queries_return_the_same_gids),
	CLAIM(domains_are_busy_while_something_is_made_of_them),
	CLAIM(regions_need_memory_that_is_there),
	CLAIM(regions_need_rights_that_make_sense),
	CLAIM(a_gibibyte_registers_in_less_than_a_millisecond),
	CLAIM(regions_change_and_keep_their_keys),
	CLAIM(windows_have_two_types),
	CLAIM(device_memory_is_reached_by_copies),
	CLAIM(regions_of_device_memory_keep_it),
	CLAIM(address_handles_need_an_address),
	CLAIM(the_way_back_is_found_in_a_received_header),
	CLAIM(domains_have_other_names),
	CLAIM(imports_find_the_objects_of_the_file),
	CLAIM(regions_may_go_while_they_are_imported),
	CLAIM(buffers_are_registered_where_they_were_made),
	CLAIM(small_files_are_read_without_their_line_feed),
	CLAIM(strangers_and_the_dead_are_refused_everywhere),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
