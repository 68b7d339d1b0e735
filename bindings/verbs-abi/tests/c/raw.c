/* The claims of tests/raw.rs: one function per claim, selected by the only argument. Frames go from
 * one context to another of the same device: a flow of another protection domain hears them. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

enum { DEPTH = 16, ROOM = 2048, SIZE = 4 * DEPTH * ROOM };
/* An EtherType for experiments. */
enum { KIND = 0x88b5 };

static const uint8_t TO[6] = { 2, 9, 9, 9, 9, 1 };
static const uint8_t FROM[6] = { 2, 9, 9, 9, 9, 2 };
static const uint8_t GROUP[6] = { 1, 0, 0x5e, 1, 2, 3 };

/* A raw packet queue pair in RTS, with receives. */
struct station {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* The attributes of a flow with room for its specifications. */
struct flow {
	struct ibv_flow_attr attr;
	uint8_t specs[512];
};
_Static_assert(offsetof(struct flow, specs) == sizeof(struct ibv_flow_attr), "no gap");

static struct ibv_qp_init_attr init_attr(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq };
	attr.qp_type = IBV_QPT_RAW_PACKET;
	attr.cap = (struct ibv_qp_cap){ DEPTH, DEPTH, 2, 2, 64 };
	return attr;
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	attr.qp_state = IBV_QPS_RTR;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static struct station open_station(void)
{
	struct station it = { .context = open_first() };
	it.pd = ibv_alloc_pd(it.context);
	CHECK(it.pd);
	it.memory = calloc(1, SIZE);
	it.mr = ibv_reg_mr(it.pd, it.memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(it.mr);
	it.cq = ibv_create_cq(it.context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(it.cq);
	struct ibv_qp_init_attr attr = init_attr(it.cq);
	it.qp = ibv_create_qp(it.pd, &attr);
	CHECK(it.qp);
	return it;
}

static void receive(struct station *it, uint64_t at)
{
	struct ibv_sge sge = { (uintptr_t)(it->memory + at * ROOM), ROOM, it->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;
	CODE(ibv_post_recv(it->qp, &wr, &bad), 0);
}

static struct station start_station(void)
{
	struct station it = open_station();
	to_rts(it.qp);
	for (uint64_t at = 0; at < 8; at++)
		receive(&it, at);
	return it;
}

static void close_station(struct station *it)
{
	CODE(ibv_destroy_qp(it->qp), 0);
	CODE(ibv_destroy_cq(it->cq), 0);
	CODE(ibv_dereg_mr(it->mr), 0);
	CODE(ibv_dealloc_pd(it->pd), 0);
	CODE(ibv_close_device(it->context), 0);
	free(it->memory);
}

static struct ibv_wc completion(struct station *it)
{
	struct ibv_wc wc;
	int count = 0;
	for (long turns = 0; !count && turns < 20000000; turns++)
		count = ibv_poll_cq(it->cq, 1, &wc);
	CHECK(count == 1);
	return wc;
}

static bool is_idle(struct station *it)
{
	struct ibv_wc wc;
	usleep(20000);
	return ibv_poll_cq(it->cq, 1, &wc) == 0;
}

static enum ibv_wc_status send_with(struct station *it, const void *frame, size_t len, int flags)
{
	uint8_t *place = it->memory + SIZE - 2 * ROOM;
	memcpy(place, frame, len);
	struct ibv_sge sge = { (uintptr_t)place, len, it->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 99, .sg_list = &sge, .num_sge = 1 }, *bad;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED | flags;
	CODE(ibv_post_send(it->qp, &wr, &bad), 0);
	struct ibv_wc wc = completion(it);
	CHECK(wc.wr_id == 99);
	return wc.status;
}

static void send_frame(struct station *it, const void *frame, size_t len)
{
	CHECK(send_with(it, frame, len, 0) == IBV_WC_SUCCESS);
}

/* Waits for a frame, and compares it. */
static void expect(struct station *it, const void *frame, size_t len)
{
	struct ibv_wc wc = completion(it);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	CHECK(wc.byte_len == len && wc.qp_num == it->qp->qp_num && wc.wc_flags == 0);
	CHECK(!memcmp(it->memory + wc.wr_id * ROOM, frame, len));
	receive(it, wc.wr_id);
}

static void add(struct flow *flow, const void *spec, size_t len)
{
	size_t at = flow->attr.size ? flow->attr.size - sizeof flow->attr : 0;
	memcpy(flow->specs + at, spec, len);
	flow->attr.size = sizeof flow->attr + at + len;
	flow->attr.num_of_specs++;
}

static struct ibv_flow_spec_eth eth_spec(const uint8_t *dst, uint16_t kind)
{
	struct ibv_flow_spec_eth spec = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof spec };
	if (dst) {
		memcpy(spec.val.dst_mac, dst, 6);
		memset(spec.mask.dst_mac, 0xff, 6);
	}
	if (kind) {
		spec.val.ether_type = htons(kind);
		spec.mask.ether_type = 0xffff;
	}
	return spec;
}

static struct flow flow_of(enum ibv_flow_attr_type type)
{
	return (struct flow){ .attr = { .type = type, .port = 1, .size = sizeof(struct ibv_flow_attr) } };
}

static struct ibv_flow *create(struct station *it, struct flow *flow)
{
	struct ibv_flow *made = ibv_create_flow(it->qp, &flow->attr);
	CHECK(made && made->context == it->context && made->comp_mask == 0);
	return made;
}

/* A flow of one Ethernet specification. */
static struct ibv_flow *take(struct station *it, const uint8_t *dst, uint16_t kind)
{
	struct flow flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow_spec_eth spec = eth_spec(dst, kind);
	add(&flow, &spec, sizeof spec);
	return create(it, &flow);
}

static size_t ethernet(uint8_t *frame, const uint8_t *dst, uint16_t kind, const void *rest, size_t len)
{
	memcpy(frame, dst, 6);
	memcpy(frame + 6, FROM, 6);
	frame[12] = kind >> 8;
	frame[13] = kind & 0xff;
	memcpy(frame + 14, rest, len);
	return 14 + len;
}

/* A UDP datagram of six bytes from 198.51.100.2, port 1000, to 198.51.100.1, port 7000, without
 * checksums. */
static const uint8_t UDP4[] = { 0x45, 0, 0, 34, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 2, 198, 51,
				100, 1, 0x03, 0xe8, 0x1b, 0x58, 0, 14, 0, 0, 'f', 'r', 'a', 'm',
				'e', '!' };

static void a_frame_reaches_the_queue_pair_of_its_flow(void)
{
	struct station a = start_station(), b = start_station();
	uint8_t text[100] = "without RoCE", frame[200];
	size_t len = ethernet(frame, TO, KIND, text, sizeof text);
	struct ibv_flow *flow = take(&b, TO, 0);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	/* What no flow takes is not heard. */
	uint8_t other[200];
	size_t other_len = ethernet(other, FROM, KIND, text, sizeof text);
	send_frame(&a, other, other_len);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	CODE(ibv_destroy_flow(flow), 0);
	send_frame(&a, frame, len);
	CHECK(is_idle(&b) && is_idle(&a));
	close_station(&a);
	close_station(&b);
}

static void each_specification_chooses_its_frames(void)
{
	struct station a = start_station(), b = start_station();
	uint8_t frame[200];
	size_t len = ethernet(frame, TO, 0x0800, UDP4, sizeof UDP4);
	struct ibv_flow_spec_eth eth = eth_spec(TO, 0x0800);
	struct ibv_flow_spec_ipv4 ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof ip };
	ip.val.dst_ip = inet_addr("198.51.100.1");
	ip.mask.dst_ip = 0xffffffff;
	struct ibv_flow_spec_ipv4_ext ext = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof ext };
	ext.val.src_ip = inet_addr("198.51.0.0");
	ext.mask.src_ip = inet_addr("255.255.0.0");
	ext.val.proto = 17;
	ext.mask.proto = 0xff;
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof udp };
	udp.val.dst_port = htons(7000);
	udp.mask.dst_port = 0xffff;
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof ip6 };

	struct flow flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &eth, sizeof eth);
	add(&flow, &ip, sizeof ip);
	add(&flow, &udp, sizeof udp);
	struct ibv_flow *made = create(&b, &flow);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	CODE(ibv_destroy_flow(made), 0);

	flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &ext, sizeof ext);
	made = create(&b, &flow);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	CODE(ibv_destroy_flow(made), 0);

	/* Another port, TCP, and IPv6 do not match. */
	udp.val.dst_port = htons(7001);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &udp, sizeof udp);
	struct ibv_flow *wrong = create(&b, &flow);
	udp.type = IBV_FLOW_SPEC_TCP;
	udp.mask.dst_port = 0;
	flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &udp, sizeof udp);
	struct ibv_flow *tcp = create(&b, &flow);
	flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &ip6, sizeof ip6);
	made = create(&b, &flow);
	send_frame(&a, frame, len);
	CHECK(is_idle(&b));
	CODE(ibv_destroy_flow(wrong), 0);
	CODE(ibv_destroy_flow(tcp), 0);
	CODE(ibv_destroy_flow(made), 0);

	/* The better priority takes the frame. */
	struct station c = start_station();
	flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	flow.attr.priority = 2;
	add(&flow, &eth, sizeof eth);
	made = create(&b, &flow);
	flow.attr.priority = 1;
	struct ibv_flow *better = create(&c, &flow);
	send_frame(&a, frame, len);
	expect(&c, frame, len);
	CHECK(is_idle(&b));
	CODE(ibv_destroy_flow(better), 0);
	CODE(ibv_destroy_flow(made), 0);
	close_station(&a);
	close_station(&b);
	close_station(&c);
}

static void default_flows_take_what_is_left(void)
{
	struct station a = start_station(), b = start_station(), c = start_station();
	uint8_t text[60] = "to a group", frame[200];
	size_t len = ethernet(frame, GROUP, KIND, text, sizeof text);
	struct flow flow = flow_of(IBV_FLOW_ATTR_MC_DEFAULT);
	struct ibv_flow *groups = create(&b, &flow);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	flow = flow_of(IBV_FLOW_ATTR_ALL_DEFAULT);
	struct ibv_flow *all = create(&c, &flow);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	expect(&c, frame, len);
	struct ibv_flow *own = take(&c, NULL, KIND);
	send_frame(&a, frame, len);
	expect(&c, frame, len);
	CHECK(is_idle(&b));
	CODE(ibv_destroy_flow(own), 0);
	CODE(ibv_destroy_flow(all), 0);
	CODE(ibv_destroy_flow(groups), 0);
	close_station(&a);
	close_station(&b);
	close_station(&c);
}

static void a_sniffer_sees_what_others_get(void)
{
	struct station a = start_station(), b = start_station(), c = start_station();
	uint8_t text[60] = "seen", frame[200];
	size_t len = ethernet(frame, TO, KIND, text, sizeof text);
	struct ibv_flow *own = take(&b, TO, KIND);
	struct flow flow = flow_of(IBV_FLOW_ATTR_SNIFFER);
	struct ibv_flow *sniffer = create(&c, &flow);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	expect(&c, frame, len);
	CODE(ibv_destroy_flow(sniffer), 0);
	send_frame(&a, frame, len);
	expect(&b, frame, len);
	CHECK(is_idle(&c));
	CODE(ibv_destroy_flow(own), 0);
	close_station(&a);
	close_station(&b);
	close_station(&c);
}

static uint16_t sum(const uint8_t *bytes, size_t len, uint32_t sum)
{
	for (size_t at = 0; at < len; at += 2)
		sum += (bytes[at] << 8) | (at + 1 < len ? bytes[at + 1] : 0);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void checksums_are_filled_in(void)
{
	struct station a = start_station(), b = start_station();
	uint8_t frame[200];
	size_t len = ethernet(frame, TO, 0x0800, UDP4, sizeof UDP4);
	struct ibv_flow *flow = take(&b, TO, 0);
	CHECK(send_with(&a, frame, len, IBV_SEND_IP_CSUM) == IBV_WC_SUCCESS);
	struct ibv_wc wc = completion(&b);
	CHECK(wc.byte_len == len);
	const uint8_t *packet = b.memory + wc.wr_id * ROOM + 14;
	CHECK(sum(packet, 20, 0) == 0xffff);
	CHECK(sum(packet + 20, 14, sum(packet + 12, 8, 17 + 14)) == 0xffff);
	CODE(ibv_destroy_flow(flow), 0);
	close_station(&a);
	close_station(&b);
}

static void a_frame_of_a_wrong_length_fails_and_the_queue_pair_recovers(void)
{
	struct station a = start_station();
	uint8_t frame[64] = { 2 };
	CHECK(send_with(&a, frame, 13, 0) == IBV_WC_LOC_LEN_ERR);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_SQE && init.qp_type == IBV_QPT_RAW_PACKET);
	attr.qp_state = IBV_QPS_RTS;
	CODE(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	send_frame(&a, frame, 14);
	close_station(&a);
}

static void work_requests_built_call_by_call_send_frames(void)
{
	struct station a = open_station(), b = start_station();
	struct ibv_qp_init_attr_ex attr = { .send_cq = a.cq, .recv_cq = a.cq };
	attr.qp_type = IBV_QPT_RAW_PACKET;
	attr.cap = (struct ibv_qp_cap){ DEPTH, DEPTH, 2, 2, 128 };
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.pd = a.pd;
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	NONE(ibv_create_qp_ex(a.context, &attr), EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	struct ibv_qp *qp = ibv_create_qp_ex(a.context, &attr);
	CHECK(qp);
	to_rts(qp);
	uint8_t text[60] = "call by call", frame[200];
	size_t len = ethernet(frame, TO, KIND, text, sizeof text);
	struct ibv_flow *flow = take(&b, TO, KIND);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = 5;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, frame, len);
	CODE(ibv_wr_complete(ex), 0);
	CHECK(completion(&a).status == IBV_WC_SUCCESS);
	expect(&b, frame, len);
	CODE(ibv_destroy_flow(flow), 0);
	CODE(ibv_destroy_qp(qp), 0);
	close_station(&a);
	close_station(&b);
}

static void what_is_in_use_is_busy(void)
{
	struct station a = start_station();
	struct ibv_flow *flow = take(&a, TO, 0);
	CODE(ibv_destroy_qp(a.qp), EBUSY);
	CODE(ibv_destroy_flow(flow), 0);
	close_station(&a);
}

static void refused(struct station *it, struct flow flow, int number)
{
	NONE(ibv_create_flow(it->qp, &flow.attr), number);
}

static void wrong_attributes_are_refused(void)
{
	struct station a = start_station();
	struct ibv_flow_spec_eth eth = eth_spec(TO, 0x0806);
	struct ibv_flow_spec_ipv4 ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof ip };
	struct flow good = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&good, &eth, sizeof eth);

	struct flow flow = good;
	flow.attr.comp_mask = 1;
	refused(&a, flow, EINVAL);
	flow = good;
	flow.attr.type = 7;
	refused(&a, flow, EINVAL);
	flow = good;
	flow.attr.port = 0;
	refused(&a, flow, EINVAL);
	flow.attr.port = 2;
	refused(&a, flow, EINVAL);
	flow = good;
	flow.attr.priority = 16;
	refused(&a, flow, ENOMEM);
	flow = good;
	flow.attr.flags = 1;
	refused(&a, flow, EINVAL);
	flow.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	refused(&a, flow, EOPNOTSUPP);
	flow = good;
	add(&flow, &eth, sizeof eth);
	refused(&a, flow, EINVAL);
	/* ARP is not IPv4. */
	flow = good;
	add(&flow, &ip, sizeof ip);
	refused(&a, flow, EINVAL);
	flow = good;
	flow.attr.type = IBV_FLOW_ATTR_SNIFFER;
	refused(&a, flow, EINVAL);
	flow = good;
	eth.size--;
	memcpy(flow.specs, &eth, sizeof eth);
	refused(&a, flow, EINVAL);
	eth.size++;
	eth.type = IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER;
	memcpy(flow.specs, &eth, sizeof eth);
	refused(&a, flow, EOPNOTSUPP);
	eth.type = 0x21;
	memcpy(flow.specs, &eth, sizeof eth);
	refused(&a, flow, EINVAL);
	flow = good;
	flow.attr.num_of_specs = 11;
	refused(&a, flow, EINVAL);

	struct ibv_qp_init_attr init = init_attr(a.cq);
	init.qp_type = IBV_QPT_UD;
	struct ibv_qp *ud = ibv_create_qp(a.pd, &init);
	CHECK(ud);
	NONE(ibv_create_flow(ud, &good.attr), EINVAL);
	CODE(ibv_destroy_qp(ud), 0);

	/* Attributes that a raw packet queue pair does not have. */
	init = init_attr(a.cq);
	struct ibv_qp *qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY), EINVAL);
	CODE(ibv_destroy_qp(qp), 0);

	struct ibv_sge sge = { (uintptr_t)a.memory, 60, a.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	CODE(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	close_station(&a);
}

static void without_the_capability_it_is_not_permitted(void)
{
	struct station a = start_station();
	struct ibv_flow_spec_eth eth = eth_spec(TO, 0);
	struct flow flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &eth, sizeof eth);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	CHECK(!syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_NET_RAW);
	CHECK(!syscall(SYS_capset, &header, data));
	struct ibv_qp_init_attr init = init_attr(a.cq);
	NONE(ibv_create_qp(a.pd, &init), EPERM);
	NONE(ibv_create_flow(a.qp, &flow.attr), EPERM);
	data[0].effective |= 1u << CAP_NET_RAW;
	CHECK(!syscall(SYS_capset, &header, data));
	struct ibv_flow *made = create(&a, &flow);
	CODE(ibv_destroy_flow(made), 0);
	close_station(&a);
}

static void the_device_says_that_it_has_flows(void)
{
	struct ibv_context *context = open_first();
	struct ibv_device_attr attr;
	CODE(ibv_query_device(context, &attr), 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	/* Checksums of received frames are not verified. */
	CHECK(!(attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM));
	CODE(ibv_close_device(context), 0);
}

static void a_forked_child_destroys_without_waiting_and_makes_nothing(void)
{
	struct station a = start_station(), b = start_station();
	struct ibv_flow_spec_eth eth = eth_spec(TO, 0);
	struct flow flow = flow_of(IBV_FLOW_ATTR_NORMAL);
	add(&flow, &eth, sizeof eth);
	struct ibv_flow *made = create(&b, &flow);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(20);
		NONE(ibv_create_flow(b.qp, &flow.attr), EOPNOTSUPP);
		struct ibv_qp_init_attr init = init_attr(b.cq);
		NONE(ibv_create_qp(b.pd, &init), EOPNOTSUPP);
		CODE(ibv_destroy_flow(made), 0);
		CODE(ibv_destroy_qp(b.qp), 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	uint8_t frame[80] = { 0 };
	memcpy(frame, TO, 6);
	memcpy(frame + 6, FROM, 6);
	frame[12] = KIND >> 8;
	frame[13] = KIND & 0xff;
	send_frame(&a, frame, sizeof frame);
	CHECK(completion(&b).byte_len == sizeof frame);
	CODE(ibv_destroy_flow(made), 0);
	close_station(&a);
	close_station(&b);
}

static const struct claim CLAIMS[] = {
	CLAIM(a_frame_reaches_the_queue_pair_of_its_flow),
	CLAIM(each_specification_chooses_its_frames),
	CLAIM(default_flows_take_what_is_left),
	CLAIM(a_sniffer_sees_what_others_get),
	CLAIM(checksums_are_filled_in),
	CLAIM(a_frame_of_a_wrong_length_fails_and_the_queue_pair_recovers),
	CLAIM(work_requests_built_call_by_call_send_frames),
	CLAIM(what_is_in_use_is_busy),
	CLAIM(wrong_attributes_are_refused),
	CLAIM(without_the_capability_it_is_not_permitted),
	CLAIM(the_device_says_that_it_has_flows),
	CLAIM(a_forked_child_destroys_without_waiting_and_makes_nothing),
};

int main(int argc, char **argv)
{
	return RUN(CLAIMS, argc, argv);
}
