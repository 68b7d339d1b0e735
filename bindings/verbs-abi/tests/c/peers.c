// One of two processes on the built-in link, which observes the start, the exit and the death of
// the other. The first argument selects what it does. It continues when it reads a line, or the
// end, of standard input. It prints one line for each event.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is_so)                                                                               \
    do {                                                                                           \
        if (!(is_so)) {                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #is_so, strerror(errno));       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char *PORT = "7999";

/// Blocks until there is a line on standard input. Returns 0 at its end.
static int go_on(void) {
    char line[64];
    return fgets(line, sizeof line, stdin) != NULL;
}

static struct sockaddr_in at(const char *text, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, text, &address.sin_addr) == 1);
    return address;
}

/// Resolves the other end, so that the link is known to be up.
static void reach(const char *other) {
    struct rdma_cm_id *id;
    struct sockaddr_in to = at(other, 1);
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 10000));
    CHECK(!rdma_destroy_id(id));
}

static struct ibv_context *first_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

/// `watch [OTHER]`: prints the port's state, and at the end the number of events.
static void watch(const char *other) {
    struct ibv_context *context = first_device();
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port));
    printf("before %s\n", ibv_port_state_str(port.state));
    CHECK(ibv_create_cq(context, 4, NULL, NULL, 0));
    if (other)
        reach(other);
    CHECK(!ibv_query_port(context, 1, &port));
    printf("ready %s\n", ibv_port_state_str(port.state));
    go_on();
    CHECK(!ibv_query_port(context, 1, &port));
    int events = 0;
    struct pollfd waits = {context->async_fd, POLLIN, 0};
    while (poll(&waits, 1, 0) > 0) {
        struct ibv_async_event event;
        CHECK(!ibv_get_async_event(context, &event));
        fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
        events++;
    }
    printf("after %s, %d events\n", ibv_port_state_str(port.state), events);
}

static struct rdma_addrinfo *lookup(const char *node, int flags) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    CHECK(!rdma_getaddrinfo(node, PORT, &hints, &found));
    return found;
}

static struct ibv_qp_init_attr queues(void) {
    return (struct ibv_qp_init_attr){.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
}

/// Prints the events of a connection, until it has ended and its receive was flushed.
static void tell_end(struct rdma_cm_id *id) {
    int disconnected = 0, completed = 0;
    CHECK(!ibv_req_notify_cq(id->recv_cq, 0));
    while (!disconnected || !completed) {
        struct pollfd waits[2] = {{id->channel->fd, POLLIN, 0},
                                  {id->recv_cq_channel->fd, POLLIN, 0}};
        CHECK(poll(waits, 2, -1) > 0);
        if (waits[0].revents) {
            struct rdma_cm_event *event;
            CHECK(!rdma_get_cm_event(id->channel, &event));
            if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
                printf("event %s\n", rdma_event_str(event->event));
            disconnected |= event->event == RDMA_CM_EVENT_DISCONNECTED;
            CHECK(!rdma_ack_cm_event(event));
        }
        if (waits[1].revents) {
            struct ibv_wc wc;
            struct ibv_cq *cq;
            void *context;
            CHECK(!ibv_get_cq_event(id->recv_cq_channel, &cq, &context));
            ibv_ack_cq_events(cq, 1);
            while (ibv_poll_cq(cq, 1, &wc) > 0) {
                printf("receive: %s\n", ibv_wc_status_str(wc.status));
                completed++;
            }
        }
        // If the peer disconnects by itself, the program must disconnect too.
        if (disconnected && !completed && waits[0].revents) {
            struct pollfd wait = {id->recv_cq_channel->fd, POLLIN, 0};
            if (poll(&wait, 1, 2000) == 0)
                CHECK(!rdma_disconnect(id));
        }
    }
}

static void post_receive(struct rdma_cm_id *id) {
    static char buffer[64];
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer, sizeof buffer);
    CHECK(mr && !rdma_post_recv(id, NULL, buffer, sizeof buffer, mr));
}

static int is(const struct sockaddr *one, const struct sockaddr *other) {
    if (one->sa_family != other->sa_family)
        return 0;
    if (one->sa_family == AF_INET)
        return ((const struct sockaddr_in *)one)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)other)->sin_addr.s_addr;
    return !memcmp(&((const struct sockaddr_in6 *)one)->sin6_addr,
                   &((const struct sockaddr_in6 *)other)->sin6_addr, sizeof(struct in6_addr));
}

/// `host ADDRESS`: binds an address of the machine, twice without a port and once with one, and
/// accepts a connection of another process. Each end has that address.
static void host(const char *node) {
    struct rdma_cm_id *first, *second, *listener, *id;
    struct ibv_qp_init_attr attr = queues();
    struct rdma_addrinfo *found = lookup(node, RAI_PASSIVE), any = *found;
    union {
        struct sockaddr all;
        struct sockaddr_in6 long_one;
    } without_port;
    memcpy(&without_port, found->ai_src_addr, found->ai_src_len);
    // The port is at one place in both families.
    without_port.long_one.sin6_port = 0;
    any.ai_src_addr = &without_port.all;
    CHECK(!rdma_create_ep(&first, &any, NULL, NULL) && !rdma_create_ep(&second, &any, NULL, NULL));
    CHECK(first->verbs && second->verbs && rdma_get_src_port(first) != rdma_get_src_port(second));
    CHECK(is(rdma_get_local_addr(first), found->ai_src_addr));
    CHECK(!rdma_create_ep(&listener, found, NULL, &attr) && !rdma_listen(listener, 1));
    puts("listens");
    CHECK(!rdma_get_request(listener, &id));
    CHECK(is(rdma_get_local_addr(id), found->ai_src_addr));
    CHECK(is(rdma_get_peer_addr(id), found->ai_src_addr));
    post_receive(id);
    CHECK(!rdma_accept(id, NULL));
    puts("accepted");
    tell_end(id);
}

/// `serve [ADDRESS]`: accepts one connection and posts a receive.
static void serve(const char *node) {
    struct rdma_cm_id *listener, *id;
    struct ibv_qp_init_attr attr = queues();
    struct rdma_addrinfo *found = lookup(node ? node : "0.0.0.0", RAI_PASSIVE);
    CHECK(!rdma_create_ep(&listener, found, NULL, &attr) && !rdma_listen(listener, 1));
    puts("listens");
    CHECK(!rdma_get_request(listener, &id));
    post_receive(id);
    CHECK(!rdma_accept(id, NULL));
    puts("accepted");
    tell_end(id);
}

static struct rdma_cm_id *connected(const char *node) {
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr attr = queues();
    CHECK(!rdma_create_ep(&id, lookup(node, 0), NULL, &attr));
    post_receive(id);
    CHECK(!rdma_connect(id, NULL));
    puts("connected");
    return id;
}

/// `guest ADDRESS`: like `connect`, to an address of the machine.
static void guest(const char *node) {
    struct rdma_addrinfo *found = lookup(node, 0);
    struct rdma_cm_id *id = connected(node);
    CHECK(is(rdma_get_local_addr(id), found->ai_dst_addr));
    CHECK(is(rdma_get_peer_addr(id), found->ai_dst_addr));
    go_on();
}

/// `connect NODE`: connects and exits when it is told to, without disconnecting.
static void connect_to(const char *node) {
    connected(node);
    go_on();
}

/// `early NODE`: like `connect`, but resolves the route before it is told to continue.
static void early(const char *node) {
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr attr = queues();
    CHECK(!rdma_create_ep(&id, lookup(node, 0), NULL, &attr));
    puts("resolved");
    go_on();
    CHECK(!rdma_connect(id, NULL));
    puts("connected");
    go_on();
}

/// `wait NODE`: like `connect`, and waits for the end of the connection.
static void wait_at(const char *node) {
    tell_end(connected(node));
}

/// `fork NODE`: like `connect`, with a child that has all its descriptors and continues to run.
static void fork_at(const char *node) {
    connected(node);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // The test waits for the parent's end of the pipe.
        close(1);
        sleep(60);
        _exit(0);
    }
    printf("child %d\n", child);
    go_on();
}

static volatile sig_atomic_t caught;

static void on_signal(int signal) {
    caught = signal;
}

static void handle_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(!sigaction(SIGINT, &action, NULL) && !sigaction(SIGTERM, &action, NULL));
}

/// `handle NODE WHEN`: like `connect`, with handlers of its own for SIGINT and SIGTERM, installed
/// `before` or `after` the engine starts. It returns from main with status 7 when it has got one.
static int handle(const char *node, const char *when) {
    sigset_t before, all;
    CHECK(!sigfillset(&all));
    if (!strcmp(when, "before"))
        handle_signals();
    connected(node);
    if (!strcmp(when, "after"))
        handle_signals();
    CHECK(!sigprocmask(SIG_BLOCK, &all, &before));
    puts("ready");
    while (!caught)
        sigsuspend(&before);
    printf("caught %d\n", caught);
    return 7;
}

/// `child NODE`: like `connect`, with a child that a signal ends.
static void child_of(const char *node) {
    connected(node);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        raise(SIGTERM);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    printf("child ended by %d\n", WTERMSIG(status));
    go_on();
}

/// `raw OWN OTHER`: connects a queue pair by hand. Prints its number and reads the peer's, is idle
/// until a line is read, and then sends.
static void raw(const char *own, const char *other) {
    struct ibv_context *context = first_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    init.cap = queues().cap;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    union ibv_gid mine;
    CHECK(inet_pton(AF_INET, own, gid.raw + 12) == 1);
    CHECK(!ibv_query_gid(context, 1, 0, &mine) && !memcmp(&mine, &gid, sizeof gid));
    CHECK(inet_pton(AF_INET, other, gid.raw + 12) == 1);
    printf("%u\n", qp->qp_num);
    char line[64];
    CHECK(fgets(line, sizeof line, stdin));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = atoi(line),
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 1,
                                .ah_attr = {.is_global = 1, .port_num = 1}};
    attr.ah_attr.grh.dgid = gid;
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    puts("connected");
    go_on();
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    printf("idle in state %d\n", attr.qp_state);
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    CHECK(!ibv_post_send(qp, &send, &bad));
    for (int completions = 0; completions < 2;) {
        int found = ibv_poll_cq(cq, 1, &wc);
        CHECK(found >= 0);
        if (found)
            printf("%s: %s\n", wc.wr_id == 2 ? "send" : "receive", ibv_wc_status_str(wc.status));
        completions += found;
    }
}

/// `sniff`: hears all that a raw packet queue pair may hear, by flows of each type. Tells the
/// number of RoCE frames for other stations, and of other frames, when it is told to.
static void sniff(void) {
    enum { RECEIVES = 256, ROOM = 2048 };
    struct ibv_context *context = first_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    uint8_t *memory = calloc(RECEIVES, ROOM);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, RECEIVES * ROOM, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 2 * RECEIVES, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET};
    init.cap = (struct ibv_qp_cap){1, RECEIVES, 1, 1, 0};
    CHECK(mr && cq);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp && errno == EPERM) {
        puts("not permitted");
        return;
    }
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
    for (attr.qp_state = IBV_QPS_RTR; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
        CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    for (uint64_t at = 0; at < RECEIVES; at++) {
        struct ibv_sge sge = {(uintptr_t)(memory + at * ROOM), ROOM, mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = at, .sg_list = &sge, .num_sge = 1}, *bad;
        CHECK(!ibv_post_recv(qp, &receive, &bad));
    }
    struct ibv_flow_attr all = {.size = sizeof all, .port = 1};
    for (all.type = IBV_FLOW_ATTR_ALL_DEFAULT; all.type <= IBV_FLOW_ATTR_SNIFFER; all.type++)
        CHECK(ibv_create_flow(qp, &all));
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    puts("sniffs");
    go_on();
    int of_others = 0, rest = 0;
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 1) {
        // IPv4, UDP, RoCEv2's port, and an address that is not this process's.
        const uint8_t *frame = memory + wc.wr_id * ROOM;
        CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len >= 42);
        int is_roce = frame[12] == 8 && !frame[13] && frame[23] == 17 && frame[36] == 0x12 &&
                      frame[37] == 0xb7;
        int is_own = !memcmp(frame + 30, gid.raw + 12, 4);
        of_others += is_roce && !is_own;
        rest += !is_roce;
    }
    printf("%d for others, %s\n", of_others, rest ? "and more" : "nothing else");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(argc > 1);
    const char *what = argv[1], *one = argc > 2 ? argv[2] : NULL, *two = argc > 3 ? argv[3] : NULL;
    if (!strcmp(what, "watch"))
        watch(one);
    else if (!strcmp(what, "serve"))
        serve(one);
    else if (!strcmp(what, "host"))
        host(one);
    else if (!strcmp(what, "guest"))
        guest(one);
    else if (!strcmp(what, "connect"))
        connect_to(one);
    else if (!strcmp(what, "early"))
        early(one);
    else if (!strcmp(what, "wait"))
        wait_at(one);
    else if (!strcmp(what, "fork"))
        fork_at(one);
    else if (!strcmp(what, "handle"))
        return handle(one, two);
    else if (!strcmp(what, "child"))
        child_of(one);
    else if (!strcmp(what, "raw"))
        raw(one, two);
    else if (!strcmp(what, "sniff"))
        sniff();
    else
        return 2;
    return 0;
}
