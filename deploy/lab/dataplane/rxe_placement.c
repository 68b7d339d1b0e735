/* ATOMIC WRITE and FLUSH over Soft-RoCE, with `uroce-perf placement` at the other end.
 *
 * The client writes data, flushes it, and announces it with an ATOMIC WRITE of the round's number to
 * the word behind the data. The server waits for that number in its memory, checks the data and
 * reports the round. With -w the client then posts a request that the server must refuse.
 *
 * The ends exchange lines over TCP: what they are, then the rounds that the server has checked, then
 * the client's word that it has all completions.
 *
 * libibverbs has no FLUSH before its release 45. The WQE of a FLUSH is made of that of a WRITE
 * without data, in the send queue that the kernel shares with this process.
 *
 * Usage: rxe_placement -d DEVICE -g GID_INDEX -p PORT -s BYTES -m MTU -n ROUNDS [-U] [-w WRONG]
 *                      [HOST]
 * -U leaves out the FLUSH. */

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <rdma/rdma_user_rxe.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of the kernel's interface that rdma-core's headers lack before its release 45. */
enum { ACCESS_FLUSH_GLOBAL = 1 << 8, WR_FLUSH = 14, WC_FLUSH = 8 };
enum { PLACE_GLOBAL = 1, PLACE_PERSISTENT = 2, SELECT_RANGE = 0, SELECT_REGION = 1 };
enum { PORT = 1, TIMEOUT = 16, RETRIES = 7, RNR_TIMER = 12, RD_ATOMIC = 8, REQUESTS = 4 };

/* Part of a WQE: what the kernel reads of a FLUSH, in the union of struct rxe_send_wr. */
struct flush {
    uint64_t remote_addr;
    uint32_t length, rkey;
    uint8_t type, level;
};

/* An end as it tells the other one. */
struct end {
    uint32_t qpn, psn, rkey;
    uint64_t va, len;
    union ibv_gid gid;
};

static const char *device_name = "rxe0", *host, *wrong = "none";
static bool unflushed;
static int gid_index, tcp_port = 18515, mtu = 4096;
static uint64_t size = 4096, rounds = 100;
static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *qpx;
static struct ibv_mr *mr;
static struct rxe_queue_buf *send_queue;
static struct end here, there;
static FILE *from_peer, *to_peer;

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vprintf(format, words);
    va_end(words);
    putchar('\n');
    exit(1);
}

static void need(bool holds, const char *step) {
    if (!holds) fail("%s: %s", step, strerror(errno));
}

/* The offset of the word behind the data. */
static uint64_t word_at(void) { return (size + 7) / 8 * 8; }

/* The byte at a place of a round's data. */
static uint8_t pattern(uint64_t round, uint64_t at) {
    uint64_t word = round * 0x9e3779b97f4a7c15 + at / 8 * 0xbf58476d1ce4e5b9;
    return (uint8_t)(word >> at % 8 * 8);
}

static void options(int count, char **words) {
    for (int option; (option = getopt(count, words, "d:g:p:s:m:n:w:U")) != -1;) {
        switch (option) {
        case 'd': device_name = optarg; break;
        case 'g': gid_index = atoi(optarg); break;
        case 'p': tcp_port = atoi(optarg); break;
        case 's': size = strtoull(optarg, NULL, 10); break;
        case 'm': mtu = atoi(optarg); break;
        case 'n': rounds = strtoull(optarg, NULL, 10); break;
        case 'w': wrong = optarg; break;
        case 'U': unflushed = true; break;
        default: exit(2);
        }
    }
    host = words[optind];
}

static struct ibv_device *device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    for (; list && *list; list++)
        if (!strcmp(ibv_get_device_name(*list), device_name)) return *list;
    fail("no device %s", device_name);
}

static void create(void) {
    context = ibv_open_device(device());
    need(context, "opening the device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    need(pd, "a PD");
    uint64_t length = word_at() + 8;
    void *memory = NULL;
    need(!posix_memalign(&memory, 4096, length), "memory");
    memset(memory, 0, length);
    mr = ibv_reg_mr(pd, memory, length,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL);
    need(mr, "registering memory for FLUSH");
    cq = ibv_create_cq(context, 2 * REQUESTS, NULL, NULL, 0);
    need(cq, "a CQ");
    struct ibv_qp_init_attr_ex wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
        .cap = {.max_send_wr = REQUESTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE,
    };
    qp = ibv_create_qp_ex(context, &wanted);
    need(qp, "a QP with ATOMIC WRITE");
    qpx = ibv_qp_to_qp_ex(qp);
    here = (struct end){.qpn = qp->qp_num, .psn = (uint32_t)getpid() * 7919 & 0xffffff,
                        .rkey = mr->rkey, .va = (uint64_t)memory, .len = length};
    need(!ibv_query_gid(context, PORT, gid_index, &here.gid), "the GID");
}

static void prepare(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | ACCESS_FLUSH_GLOBAL;
    int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    need(!(errno = ibv_modify_qp(qp, &attr, mask)), "to INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .dest_qp_num = there.qpn, .rq_psn = there.psn,
        .max_dest_rd_atomic = RD_ATOMIC, .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.dgid = there.gid,
                    .sgid_index = (uint8_t)gid_index, .hop_limit = 64}},
    };
    for (attr.path_mtu = IBV_MTU_256; 128 << attr.path_mtu < mtu; attr.path_mtu++) {}
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    need(!(errno = ibv_modify_qp(qp, &attr, mask)), "to RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = here.psn, .timeout = TIMEOUT,
                                .retry_cnt = RETRIES, .rnr_retry = RETRIES,
                                .max_rd_atomic = RD_ATOMIC};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
           IBV_QP_MAX_QP_RD_ATOMIC;
    need(!(errno = ibv_modify_qp(qp, &attr, mask)), "to RTS");
}

/* Listens and takes one client, or connects. */
static void meet(void) {
    int stream = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    need(stream >= 0, "a socket");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)tcp_port)};
    if (host) {
        need(inet_pton(AF_INET, host, &address.sin_addr) == 1, "the server's IPv4 address");
        while (connect(stream, (struct sockaddr *)&address, sizeof address)) {
            need(errno == ECONNREFUSED, "connecting");
            usleep(50000);
        }
    } else {
        need(!setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "SO_REUSEADDR");
        need(!bind(stream, (struct sockaddr *)&address, sizeof address), "binding");
        need(!listen(stream, 1), "listening");
        stream = accept(stream, NULL, NULL);
        need(stream >= 0, "accepting");
    }
    need(!setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
    from_peer = fdopen(stream, "r");
    to_peer = fdopen(dup(stream), "w");
    need(from_peer && to_peer, "the connection");
}

/* Sends a line with one value. */
static void __attribute__((format(printf, 1, 2))) say(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("{\"Value\":", to_peer);
    vfprintf(to_peer, format, words);
    fputs("}\n", to_peer);
    need(!fflush(to_peer), "sending");
    va_end(words);
}

/* Receives a line, without the frame of its value. */
static const char *hear(void) {
    static char line[1024];
    static const char frame[] = "{\"Value\":";
    if (!fgets(line, sizeof line, from_peer)) fail("the other end is gone");
    if (strncmp(line, frame, sizeof frame - 1)) fail("the other end failed: %s", line);
    return line + sizeof frame - 1;
}

static void introduce(void) {
    char gid[33];
    for (int at = 0; at < 16; at++) sprintf(gid + 2 * at, "%02x", here.gid.raw[at]);
    say("{\"qpn\":%u,\"psn\":%u,\"gid\":\"%s\",\"va\":%" PRIu64 ",\"rkey\":%u,\"len\":%" PRIu64 "}",
        here.qpn, here.psn, gid, here.va, here.rkey, here.len);
}

static void learn(void) {
    char gid[33];
    const char *line = hear();
    int fields = sscanf(line,
                        "{\"qpn\":%u,\"psn\":%u,\"gid\":\"%32[0-9a-f]\",\"va\":%" SCNu64
                        ",\"rkey\":%u,\"len\":%" SCNu64 "}",
                        &there.qpn, &there.psn, gid, &there.va, &there.rkey, &there.len);
    if (fields != 6 || strlen(gid) != 32) fail("the other end says %s", line);
    for (int at = 0; at < 16; at++) sscanf(gid + 2 * at, "%2hhx", &there.gid.raw[at]);
    if (there.len != here.len) fail("the other end has %" PRIu64 " bytes", there.len);
}

static void expect(const char *step, enum ibv_wc_status status, int opcode) {
    struct ibv_wc done;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &done))) {}
    if (count < 0) fail("polling");
    if (done.status != status)
        fail("%s: %s instead of %s", step, ibv_wc_status_str(done.status),
             ibv_wc_status_str(status));
    /* A failed request has no other valid fields. */
    if (!status && (int)done.opcode != opcode) fail("%s: opcode %d", step, done.opcode);
}

/* The WQE that was begun last, in a queue of that process. NULL if it is another queue. */
static struct rxe_send_wqe *begun_in(struct rxe_queue_buf *queue, uint64_t id) {
    uint32_t slot = queue->producer_index & queue->index_mask;
    struct rxe_send_wqe *wqe = (void *)(queue->data + ((size_t)slot << queue->log2_elem_size));
    return wqe->wr.wr_id == id ? wqe : NULL;
}

/* Finds the send queue among what the provider has mapped of the device. */
static struct rxe_send_wqe *begun(uint64_t id) {
    if (send_queue) return begun_in(send_queue, id);
    FILE *maps = fopen("/proc/self/maps", "r");
    need(maps, "/proc/self/maps");
    char line[512];
    while (!send_queue && fgets(line, sizeof line, maps)) {
        uintptr_t start;
        if (strstr(line, "/uverbs") && sscanf(line, "%" SCNxPTR "-", &start) == 1 &&
            begun_in((void *)start, id))
            send_queue = (void *)start;
    }
    fclose(maps);
    if (!send_queue) fail("the send queue is not mapped");
    return begun_in(send_queue, id);
}

static void flush(uint64_t offset, uint32_t length, uint8_t type, uint8_t level) {
    static uint64_t id = 0x666c757368000000;
    ibv_wr_start(qpx);
    qpx->wr_id = ++id;
    ibv_wr_rdma_write(qpx, there.rkey, there.va + offset);
    struct rxe_send_wqe *wqe = begun(id);
    struct flush flush = {there.va + offset, length, there.rkey, type, level};
    wqe->wr.opcode = WR_FLUSH;
    memcpy(&wqe->wr.wr, &flush, sizeof flush);
    wqe->dma.length = wqe->dma.resid = length;
    need(!(errno = ibv_wr_complete(qpx)), "posting a FLUSH");
}

static void atomic_write(uint64_t offset, uint64_t value) {
    ibv_wr_start(qpx);
    qpx->wr_id = value;
    ibv_wr_atomic_write(qpx, there.rkey, there.va + offset, &value);
    need(!(errno = ibv_wr_complete(qpx)), "posting an ATOMIC WRITE");
}

static void write_data(uint64_t round) {
    uint8_t *data = mr->addr;
    for (uint64_t at = 0; at < size; at++) data[at] = pattern(round, at);
    ibv_wr_start(qpx);
    qpx->wr_id = round;
    ibv_wr_rdma_write(qpx, there.rkey, there.va);
    ibv_wr_set_sge(qpx, mr->lkey, (uint64_t)data, (uint32_t)size);
    need(!(errno = ibv_wr_complete(qpx)), "posting a WRITE");
}

/* Posts a request that the server must refuse. */
static void refused(void) {
    if (!strcmp(wrong, "none")) return;
    enum ibv_wc_status status = IBV_WC_REM_INV_REQ_ERR;
    if (!strcmp(wrong, "address")) {
        atomic_write(word_at() - 4, 1);
    } else if (!strcmp(wrong, "range")) {
        status = IBV_WC_REM_ACCESS_ERR;
        flush(0, (uint32_t)there.len + 1, PLACE_GLOBAL, SELECT_RANGE);
    } else if (!strcmp(wrong, "rights")) {
        flush(0, (uint32_t)size, PLACE_PERSISTENT, SELECT_RANGE);
    } else {
        fail("-w %s is not known", wrong);
    }
    expect("the wrong request", status, 0);
}

static void ask(void) {
    for (uint64_t round = 1; round <= rounds; round++) {
        write_data(round);
        bool region = round % 4 == 0;
        if (!unflushed)
            flush(region ? 1 : 0, region ? 0 : (uint32_t)size, PLACE_GLOBAL,
                  region ? SELECT_REGION : SELECT_RANGE);
        atomic_write(word_at(), round);
        expect("WRITE", IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
        if (!unflushed) expect("FLUSH", IBV_WC_SUCCESS, WC_FLUSH);
        expect("ATOMIC WRITE", IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE);
        const char *line = hear();
        if (strtoull(line, NULL, 10) != round) fail("the other end says %s", line);
    }
    refused();
    say("true");
}

static void serve(void) {
    volatile uint64_t *word = (void *)((uint8_t *)mr->addr + word_at());
    for (uint64_t round = 1; round <= rounds; round++) {
        while (*word == round - 1) usleep(50);
        __sync_synchronize();
        if (*word != round) fail("round %" PRIu64 ": the word is %" PRIx64, round, *word);
        uint8_t *data = mr->addr;
        for (uint64_t at = 0; at < size; at++)
            if (data[at] != pattern(round, at)) fail("round %" PRIu64 ": byte %" PRIu64, round, at);
        say("%" PRIu64, round);
    }
    hear();
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    options(count, words);
    create();
    meet();
    if (host) {
        introduce();
        learn();
        prepare();
        ask();
    } else {
        learn();
        prepare();
        introduce();
        serve();
    }
    printf("%" PRIu64 " rounds checked\n", rounds);
    return 0;
}
