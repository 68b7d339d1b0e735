/* Two processes whose registered memory comes and goes at random while the other one writes to it, reads
 * it and sends to it, as tests/memory.rs claims: neither dies, each completion has a status that says
 * what was wrong, and memory that stays has the bytes that it should have.
 *
 * Each process has three queue pairs with the other: a connected one for memory that goes, which is
 * renewed every round; a connected one for memory that stays, whose requests all succeed; and one of
 * datagrams, whose receives are in memory of both kinds. */

#include "churn.h"

#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PAGE = TARGET_PAGE, SIZE = TARGET_SIZE, QKEY = 0x11 };
enum { LOOSE, FIRM, DATAGRAMS, KINDS };
enum { OPERATIONS = 64, AT_ONCE = 8, RECEIVES = 16, LONGEST = 1 << 14 };
/* A datagram is of this length, after the 40 bytes of its header. */
enum { DATAGRAM = 1000, SHORT_DATAGRAM = 500, PLACE = 2048 };

static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/* Memory that stays, a part for each purpose. What lies between the parts is not registered, and nothing
 * but this program may write to it. */
static struct {
	char before[PAGE];
	/* Local, for requests whose other end is memory that goes. */
	char own[SIZE];
	char between[PAGE];
	/* Where the peer's requests go that have memory of its own that goes. */
	char open[SIZE];
	char beside[PAGE];
	/* Verified: the peer writes to `theirs` what is in its `mine`, and reads it back to `back`. */
	char mine[LONGEST], theirs[LONGEST], back[LONGEST];
	char behind[PAGE];
	/* Datagrams that are sent, and receives of them. */
	char out[PLACE], in[RECEIVES][PLACE];
	char after[PAGE];
} stays __attribute__((aligned(4096)));

/* What each process tells the other of itself at the beginning of a round. */
struct hello {
	uint32_t qpns[KINDS], psn, open_key, firm_key, target_key, is_last;
	uint64_t open, theirs;
	union ibv_gid gid;
};

static int peer;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[KINDS];
static struct ibv_qp *qps[KINDS];
static struct ibv_ah *ah;
static struct ibv_mr *mrs[4], *target_mr;
static struct hello mine, theirs;
static unsigned long long state;
/* Completions by status, of requests and of receives, over all rounds. */
static long counts[2][32], refused;
/* SENDs of this round: as many at most as the peer has receives. */
static unsigned sends;

static bool is_one_of(enum ibv_wc_status status, const enum ibv_wc_status *list)
{
	for (; *list; list++) {
		if (*list == status)
			return true;
	}
	return status == IBV_WC_SUCCESS;
}

static void expect(const struct ibv_wc *wc, bool is_receive, const enum ibv_wc_status *list)
{
	counts[is_receive][wc->status]++;
	if (!is_one_of(wc->status, list)) {
		fprintf(stderr, "%s, opcode %d, id %llu\n", ibv_wc_status_str(wc->status), wc->opcode,
			(unsigned long long)wc->wr_id);
		CHECK(!"a status that may be");
	}
}

static void exchange(const void *ours, void *others, size_t len)
{
	CHECK(write(peer, ours, len) == (ssize_t)len);
	for (size_t got = 0; got < len;) {
		ssize_t more = read(peer, (char *)others + got, len - got);
		/* Otherwise the peer has ended. */
		CHECK(more > 0);
		got += more;
	}
}

static void meet(void)
{
	char one = 0, other;
	exchange(&one, &other, 1);
}

static void fill(char *bytes, size_t len, unsigned value)
{
	for (size_t at = 0; at < len; at++)
		bytes[at] = value + at * 7 + (at >> 8);
}

static bool is_filled(const char *bytes, size_t len, unsigned value)
{
	for (size_t at = 0; at < len; at++) {
		if (bytes[at] != (char)(value + at * 7 + (at >> 8)))
			return false;
	}
	return true;
}

static char *const GAPS[] = { stays.before, stays.between, stays.beside, stays.behind, stays.after };

static struct ibv_mr *register_part(char *part, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, part, len, RIGHTS);
	CHECK(mr);
	return mr;
}

static void make(void)
{
	context = open_first();
	CHECK(pd = ibv_alloc_pd(context));
	for (int kind = 0; kind < KINDS; kind++) {
		CHECK(cqs[kind] = ibv_create_cq(context, 256, NULL, NULL, 0));
		struct ibv_qp_init_attr attr = { .send_cq = cqs[kind], .recv_cq = cqs[kind] };
		attr.qp_type = kind == DATAGRAMS ? IBV_QPT_UD : IBV_QPT_RC;
		attr.cap = (struct ibv_qp_cap){ 2 * AT_ONCE, 2 * RECEIVES, 1, 1, 0 };
		CHECK(qps[kind] = ibv_create_qp(pd, &attr));
		mine.qpns[kind] = qps[kind]->qp_num;
	}
	for (unsigned gap = 0; gap < sizeof GAPS / sizeof *GAPS; gap++)
		fill(GAPS[gap], PAGE, gap);
	mrs[0] = register_part(stays.own, SIZE);
	mrs[1] = register_part(stays.open, SIZE);
	mrs[2] = register_part(stays.mine, 3 * LONGEST);
	mrs[3] = register_part(stays.out, sizeof stays.out + sizeof stays.in);
	CODE(ibv_query_gid(context, 1, 0, &mine.gid), 0);
	mine.open = (uintptr_t)stays.open;
	mine.theirs = (uintptr_t)stays.theirs;
	mine.open_key = mrs[1]->rkey;
	mine.firm_key = mrs[2]->rkey;
	fill(stays.out, DATAGRAM, 99);
}

static void to_state(struct ibv_qp *qp, enum ibv_qp_state to, int more)
{
	struct ibv_qp_attr attr = { .qp_state = to };
	CODE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | more), 0);
}

static struct ibv_ah_attr way(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.dgid = theirs.gid };
	return attr;
}

static void connect_kind(int kind, uint32_t own_psn, uint32_t psn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	to_state(qps[kind], IBV_QPS_RESET, 0);
	CODE(ibv_modify_qp(qps[kind], &attr, mask), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = psn };
	attr.dest_qp_num = theirs.qpns[kind];
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.ah_attr = way();
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	CODE(ibv_modify_qp(qps[kind], &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = own_psn, .max_rd_atomic = 4 };
	/* One end finds out by its retries that the other is in error; a firm connection waits for seconds. */
	attr.timeout = kind == FIRM ? 18 : 10;
	attr.retry_cnt = attr.rnr_retry = 7;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
	CODE(ibv_modify_qp(qps[kind], &attr, mask | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void post_receive(int kind, uint64_t id, void *place, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)place, len, key };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CODE(ibv_post_recv(qps[kind], &wr, &bad), 0);
}

/* Receives with even numbers are in memory that stays. The target may have no key now: then its old one
 * is as good as any. */
static void post_datagram_receive(unsigned number)
{
	static uint32_t key;
	key = target_mr ? target_mr->lkey : key;
	if (number % 2 == 0)
		post_receive(DATAGRAMS, number, stays.in[number], 40 + DATAGRAM, mrs[3]->lkey);
	else
		post_receive(DATAGRAMS, number, target + draw(&state, SIZE - PLACE), 40 + DATAGRAM, key);
}

static void begin(void)
{
	exchange(&mine, &theirs, sizeof mine);
	connect_kind(FIRM, 5, 5);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	CODE(ibv_modify_qp(qps[DATAGRAMS], &attr, mask), 0);
	to_state(qps[DATAGRAMS], IBV_QPS_RTR, 0);
	to_state(qps[DATAGRAMS], IBV_QPS_RTS, IBV_QP_SQ_PSN);
	struct ibv_ah_attr there = way();
	CHECK(ah = ibv_create_ah(pd, &there));
	for (unsigned number = 0; number < RECEIVES; number++)
		post_datagram_receive(number);
}

static void post(int kind, struct ibv_send_wr *wr, void *here, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)here, len, key };
	struct ibv_send_wr *bad;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	CODE(ibv_post_send(qps[kind], wr, &bad), 0);
}

static void remote(struct ibv_send_wr *wr, uint64_t addr, uint32_t key)
{
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = addr & ~7ULL;
		wr->wr.atomic.rkey = key;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = key;
	}
}

/* A request with memory that goes at one end, the peer's or this process's own; a SEND always has it at
 * the peer's. Says whether there was such memory. */
static bool post_loose(uint64_t id)
{
	static const enum ibv_wr_opcode OPCODES[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND,
	};
	struct ibv_send_wr wr = { .wr_id = id, .opcode = OPCODES[draw(&state, 5)] };
	bool is_atomic = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint32_t len = is_atomic ? 8 : 1 + draw(&state, 1 << draw(&state, 15));
	uint64_t at = draw(&state, SIZE - len), there = draw(&state, SIZE - len);
	bool is_own = draw(&state, 2);
	bool is_send = wr.opcode == IBV_WR_SEND;
	bool needs_theirs = !is_own || is_send;
	if ((is_own && !target_mr) || (needs_theirs && !theirs.target_key))
		return false;
	if (is_send && sends++ >= RECEIVES)
		return false;
	remote(&wr, (is_own ? theirs.open : (uintptr_t)target) + there,
	       is_own ? theirs.open_key : theirs.target_key);
	if (is_own)
		post(LOOSE, &wr, target + at, len, target_mr->lkey);
	else
		post(LOOSE, &wr, stays.own + at, len, mrs[0]->lkey);
	return true;
}

/* Takes what has completed of the connection for memory that goes. Gives how many requests. */
static unsigned take_loose(void)
{
	static const enum ibv_wc_status REQUESTS[] = {
		IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR, IBV_WC_WR_FLUSH_ERR,
		IBV_WC_RETRY_EXC_ERR, 0,
	};
	static const enum ibv_wc_status RECEIVED[] = { IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR, 0 };
	struct ibv_wc wc;
	unsigned taken = 0;
	while (ibv_poll_cq(cqs[LOOSE], 1, &wc) > 0) {
		bool is_receive = wc.wr_id >= OPERATIONS;
		expect(&wc, is_receive, is_receive ? RECEIVED : REQUESTS);
		taken += !is_receive;
	}
	return taken;
}

/* Takes what has completed of datagrams. Says whether a request has. */
static bool take_datagrams(void)
{
	static const enum ibv_wc_status STAYS[] = { 0 }, GOES[] = { IBV_WC_LOC_PROT_ERR, 0 };
	struct ibv_wc wc;
	bool is_sent = false;
	while (ibv_poll_cq(cqs[DATAGRAMS], 1, &wc) > 0) {
		bool is_receive = wc.wr_id < RECEIVES, goes = wc.wr_id % 2;
		expect(&wc, is_receive, goes ? GOES : STAYS);
		if (!is_receive) {
			is_sent = true;
			continue;
		}
		if (wc.status == IBV_WC_SUCCESS) {
			bool is_short = wc.byte_len == 40 + SHORT_DATAGRAM;
			CHECK(is_short || wc.byte_len == 40 + DATAGRAM);
			CHECK(wc.src_qp == theirs.qpns[DATAGRAMS]);
			CHECK(is_short || goes || is_filled(stays.in[wc.wr_id] + 40, DATAGRAM, 99));
		}
		post_datagram_receive(wc.wr_id);
	}
	return is_sent;
}

/* What is sent from memory that goes has any bytes, so it is told from the rest by its length. A request
 * whose memory is gone ends the work of the send queue (SQE) and nothing else. */
static void send_datagram(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CODE(ibv_query_qp(qps[DATAGRAMS], &attr, IBV_QP_STATE, &init), 0);
	if (attr.qp_state == IBV_QPS_SQE)
		to_state(qps[DATAGRAMS], IBV_QPS_RTS, 0);
	else
		CODE(attr.qp_state, IBV_QPS_RTS);
	bool goes = target_mr && draw(&state, 2);
	struct ibv_send_wr wr = { .wr_id = RECEIVES + goes, .opcode = IBV_WR_SEND };
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = theirs.qpns[DATAGRAMS];
	wr.wr.ud.remote_qkey = QKEY;
	if (goes)
		post(DATAGRAMS, &wr, target + draw(&state, SIZE - PLACE), SHORT_DATAGRAM, target_mr->lkey);
	else
		post(DATAGRAMS, &wr, stays.out, DATAGRAM, mrs[3]->lkey);
	while (!take_datagrams())
		;
}

static void ask_firmly(enum ibv_wr_opcode opcode, char *here, uint32_t len)
{
	struct ibv_send_wr wr = { .opcode = opcode };
	struct ibv_wc wc;
	remote(&wr, theirs.theirs, theirs.firm_key);
	post(FIRM, &wr, here, len, mrs[2]->lkey);
	while (!ibv_poll_cq(cqs[FIRM], 1, &wc))
		;
	CODE(wc.status, IBV_WC_SUCCESS);
}

static void write_and_read_back(void)
{
	uint32_t len = 1 + draw(&state, 1 << draw(&state, 15));
	fill(stays.mine, len, draw(&state, 256));
	ask_firmly(IBV_WR_RDMA_WRITE, stays.mine, len);
	ask_firmly(IBV_WR_RDMA_READ, stays.back, len);
	CHECK(!memcmp(stays.mine, stays.back, len));
}

static void send_and_ask(void)
{
	unsigned under_way = 0;
	for (unsigned number = 0; number < OPERATIONS; number++) {
		while (under_way == AT_ONCE)
			under_way -= take_loose();
		under_way += post_loose(number);
		if (draw(&state, 4) == 0)
			send_datagram();
		if (draw(&state, 8) == 0)
			write_and_read_back();
	}
	while (under_way)
		under_way -= take_loose();
}

/* Both ends are new, and memory that goes has other keys. Says whether there are more rounds. */
static bool play_round(time_t end)
{
	target_mr = ibv_reg_mr(pd, target, SIZE, RIGHTS);
	CHECK(target_mr || errno == EFAULT);
	refused += !target_mr;
	mine.target_key = target_mr ? target_mr->rkey : 0;
	mine.psn = draw(&state, 1 << 24);
	mine.is_last = time(NULL) >= end;
	exchange(&mine, &theirs, sizeof mine);
	if (!mine.is_last && !theirs.is_last) {
		connect_kind(LOOSE, mine.psn, theirs.psn);
		for (unsigned number = 0; target_mr && number < RECEIVES; number++) {
			char *place = target + draw(&state, SIZE - LONGEST);
			post_receive(LOOSE, OPERATIONS + number, place, LONGEST, target_mr->lkey);
		}
		sends = 0;
		meet();
		send_and_ask();
		meet();
	}
	if (target_mr)
		CODE(ibv_dereg_mr(target_mr), 0);
	target_mr = NULL;
	return !mine.is_last && !theirs.is_last;
}

static void print_counts(const char *name)
{
	for (int is_receive = 0; is_receive < 2; is_receive++) {
		for (int status = 0; status < 32; status++) {
			if (counts[is_receive][status])
				printf("%s: %ld %s: %s\n", name, counts[is_receive][status],
				       is_receive ? "receives" : "requests", ibv_wc_status_str(status));
		}
	}
	printf("%s: %ld registrations refused\n", name, refused);
}

static void play(const char *name)
{
	/* The peer's death is found as its end of the socket closes; anything else in a while. */
	alarm(seconds_to_run() + 60);
	state = seed;
	make();
	begin_to_disturb();
	begin();
	time_t end = time(NULL) + seconds_to_run();
	while (play_round(end))
		;
	end_of_disturbance();
	for (unsigned gap = 0; gap < sizeof GAPS / sizeof *GAPS; gap++)
		CHECK(is_filled(GAPS[gap], PAGE, gap));
	write_and_read_back();
	print_counts(name);
	CHECK(counts[0][IBV_WC_SUCCESS] > 0);
	/* The last answers are this process's to give. */
	meet();
}

int main(void)
{
	int ends[2], status;
	take_seed();
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t child = fork();
	CHECK(child >= 0);
	peer = ends[!child];
	close(ends[!!child]);
	if (!child) {
		seed++;
		play("child");
		return 0;
	}
	play("parent");
	CHECK(waitpid(child, &status, 0) == child);
	CODE(status, 0);
	return 0;
}
