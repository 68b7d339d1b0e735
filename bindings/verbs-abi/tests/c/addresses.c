// Loopback and unspecified addresses in rdma_cm: binding, resolving and connecting to them. The
// only argument selects a claim.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is_so)                                                                               \
    do {                                                                                           \
        if (!(is_so)) {                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #is_so, strerror(errno));       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define FAILS(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))

static struct rdma_event_channel *channel;

union address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static union address at(const char *text, int port) {
    union address it = {0};
    if (inet_pton(AF_INET, text, &it.in.sin_addr) == 1) {
        it.in.sin_family = AF_INET;
        it.in.sin_port = htons(port);
    } else {
        CHECK(inet_pton(AF_INET6, text, &it.in6.sin6_addr) == 1);
        it.in6.sin6_family = AF_INET6;
        it.in6.sin6_port = htons(port);
    }
    return it;
}

/// Whether the address is `text`, with any port.
static int is(struct sockaddr *sa, const char *text) {
    union address it = at(text, 0), *that = (void *)sa;
    if (sa->sa_family != it.sa.sa_family)
        return 0;
    if (sa->sa_family == AF_INET)
        return that->in.sin_addr.s_addr == it.in.sin_addr.s_addr;
    return !memcmp(&that->in6.sin6_addr, &it.in6.sin6_addr, 16);
}

static struct rdma_cm_id *new_id(void) {
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    return id;
}

static int bind_to(struct rdma_cm_id *id, const char *text, int port) {
    union address address = at(text, port);
    return rdma_bind_addr(id, &address.sa);
}

static struct rdma_cm_id *bound(const char *text, int port) {
    struct rdma_cm_id *id = new_id();
    CHECK(!bind_to(id, text, port));
    return id;
}

static int resolve(struct rdma_cm_id *id, const char *text, int port) {
    union address address = at(text, port);
    return rdma_resolve_addr(id, NULL, &address.sa, 5000);
}

static void set(struct rdma_cm_id *id, int option, int value) {
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value));
}

/// Takes the next event, which must have this kind and status, and returns its id.
static struct rdma_cm_id *next(enum rdma_cm_event_type kind, int status) {
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != kind || event->status != status) {
        fprintf(stderr, "%s %d instead of %s\n", rdma_event_str(event->event), event->status,
                rdma_event_str(kind));
        exit(1);
    }
    struct rdma_cm_id *id = event->id;
    CHECK(!rdma_ack_cm_event(event));
    return id;
}

static void loopback_addresses_are_bound_like_wildcards(void) {
    const char *all[] = {"127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::"};
    for (int i = 0; i < 5; i++) {
        struct rdma_cm_id *id = bound(all[i], 0);
        CHECK(is(rdma_get_local_addr(id), all[i]) && rdma_get_src_port(id) && !id->verbs);
        CHECK(!rdma_destroy_id(id));
    }
    // An IPv4-mapped IPv6 address is an IPv4 address.
    struct rdma_cm_id *id = bound("::ffff:127.0.0.1", 0);
    CHECK(is(rdma_get_local_addr(id), "127.0.0.1"));
    CHECK(!rdma_destroy_id(id));
    FAILS(bind_to(new_id(), "203.0.113.9", 0), EADDRNOTAVAIL);
}

static void a_port_is_shared_as_linux_has_it(void) {
    struct rdma_cm_id *any = bound("0.0.0.0", 8080), *other = new_id();
    const char *wide[] = {"0.0.0.0", "127.0.0.1", "192.0.2.1", "::", "::1", "2001:db8::1"};
    for (int i = 0; i < 6; i++)
        FAILS(bind_to(other, wide[i], 8080), EADDRNOTAVAIL);
    CHECK(!rdma_listen(any, 4));
    FAILS(bind_to(other, "0.0.0.0", 8080), EADDRNOTAVAIL);
    // An address beside one of the other IP version, and the same address twice.
    struct rdma_cm_id *v4 = bound("192.0.2.1", 8081);
    FAILS(bind_to(other, "192.0.2.1", 8081), EADDRINUSE);
    FAILS(bind_to(other, "0.0.0.0", 8081), EADDRNOTAVAIL);
    CHECK(!bind_to(other, "2001:db8::1", 8081));
    CHECK(!rdma_listen(v4, 4) && !rdma_listen(other, 4));
    CHECK(!rdma_destroy_id(any) && !rdma_destroy_id(v4) && !rdma_destroy_id(other));
    // Wildcard addresses of one IP version each.
    struct rdma_cm_id *v6 = new_id();
    set(v6, RDMA_OPTION_ID_AFONLY, 1);
    CHECK(!bind_to(v6, "::", 8082));
    CHECK(!rdma_destroy_id(bound("0.0.0.0", 8082)));
    FAILS(bind_to(new_id(), "::", 8082), EADDRNOTAVAIL);
    CHECK(!rdma_destroy_id(v6));
}

static void an_address_is_reused_until_one_listens(void) {
    struct rdma_cm_id *ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = new_id();
        set(ids[i], RDMA_OPTION_ID_REUSEADDR, 1);
    }
    CHECK(!bind_to(ids[0], "192.0.2.1", 8080) && !bind_to(ids[1], "192.0.2.1", 8080));
    FAILS(bind_to(new_id(), "192.0.2.1", 8080), EADDRINUSE);
    FAILS(rdma_listen(ids[0], 4), EADDRINUSE);
    CHECK(!rdma_destroy_id(ids[1]));
    CHECK(!rdma_listen(ids[0], 4));
    FAILS(bind_to(ids[2], "192.0.2.1", 8080), EADDRINUSE);
    FAILS(bind_to(ids[2], "127.0.0.1", 8080), EADDRNOTAVAIL);
    CHECK(!bind_to(ids[2], "127.0.0.1", 8081));
    struct rdma_cm_id *other = new_id();
    set(other, RDMA_OPTION_ID_REUSEADDR, 1);
    CHECK(!bind_to(other, "192.0.2.1", 8081));
    FAILS(rdma_listen(other, 4), EADDRNOTAVAIL);
}

static void ports_of_the_privileged_are_theirs(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    CHECK(!rdma_destroy_id(bound("127.0.0.1", 1024)));
    CHECK(!syscall(SYS_capget, &header, data));
    int was_allowed = data[0].effective >> CAP_NET_BIND_SERVICE & 1;
    if (was_allowed)
        CHECK(!rdma_destroy_id(bound("127.0.0.1", 1023)));
    data[0].effective &= ~(1u << CAP_NET_BIND_SERVICE);
    CHECK(!syscall(SYS_capset, &header, data));
    FAILS(bind_to(new_id(), "127.0.0.1", 1023), EACCES);
    FAILS(bind_to(new_id(), "192.0.2.1", 1), EACCES);
}

static void a_link_local_address_needs_its_link(void) {
    struct rdma_cm_id *id = new_id();
    union address address = at("fe80::9", 0);
    FAILS(rdma_bind_addr(id, &address.sa), EINVAL);
    address.in6.sin6_scope_id = 1;
    FAILS(rdma_bind_addr(id, &address.sa), EADDRNOTAVAIL);
}

static void the_node_itself_is_resolved_at_once(void) {
    const char *all[] = {"127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"};
    for (int i = 0; i < 5; i++) {
        struct rdma_cm_id *id = new_id();
        CHECK(!resolve(id, all[i], 8080));
        CHECK(next(RDMA_CM_EVENT_ADDR_RESOLVED, 0) == id);
        int is_v4 = i < 3;
        CHECK(is(rdma_get_local_addr(id), is_v4 ? "127.0.0.1" : "::1"));
        CHECK(is(rdma_get_peer_addr(id), all[i]));
        CHECK(rdma_get_src_port(id) && rdma_get_dst_port(id) == htons(8080));
        CHECK(id->verbs && id->port_num == 1);
        union ibv_gid own;
        CHECK(!ibv_query_gid(id->verbs, 1, is_v4 ? 0 : 1, &own));
        struct rdma_ib_addr *gids = &id->route.addr.addr.ibaddr;
        CHECK(!memcmp(&gids->sgid, &own, 16) && !memcmp(&gids->dgid, &own, 16));
        CHECK(!rdma_resolve_route(id, 1000));
        CHECK(next(RDMA_CM_EVENT_ROUTE_RESOLVED, 0) == id && id->route.num_paths == 1);
        CHECK(!rdma_destroy_id(id));
    }
    // An id that is bound to an address keeps it.
    struct rdma_cm_id *id = bound("192.0.2.1", 0);
    CHECK(!resolve(id, "127.0.0.1", 8080) && next(RDMA_CM_EVENT_ADDR_RESOLVED, 0) == id);
    CHECK(is(rdma_get_local_addr(id), "192.0.2.1"));
    FAILS(resolve(bound("0.0.0.0", 0), "::1", 8080), EINVAL);
}

static void give_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
    CHECK(!rdma_create_qp(id, NULL, &attr));
}

static struct rdma_cm_id *asks(const char *node, int port) {
    struct rdma_cm_id *id = new_id();
    CHECK(!resolve(id, node, port) && next(RDMA_CM_EVENT_ADDR_RESOLVED, 0) == id);
    CHECK(!rdma_resolve_route(id, 1000) && next(RDMA_CM_EVENT_ROUTE_RESOLVED, 0) == id);
    give_qp(id);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(!rdma_connect(id, &param));
    return id;
}

static void a_process_connects_to_itself(void) {
    const char *pairs[][2] = {{"0.0.0.0", "127.0.0.1"}, {"127.0.0.1", "192.0.2.1"},
                              {"192.0.2.1", "0.0.0.0"}, {"::", "::1"},
                              {"::", "127.0.0.1"},      {"::1", "2001:db8::1"}};
    for (int i = 0; i < 6; i++) {
        struct rdma_cm_id *listener = bound(pairs[i][0], 8080);
        CHECK(!rdma_listen(listener, 4));
        struct rdma_cm_id *one = asks(pairs[i][1], 8080);
        struct rdma_cm_id *other = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        give_qp(other);
        static char buffer[2][64];
        struct ibv_mr *to = rdma_reg_msgs(other, buffer[0], 64);
        struct ibv_mr *from = rdma_reg_msgs(one, buffer[1], 64);
        CHECK(to && from && !rdma_post_recv(other, NULL, buffer[0], 64, to));
        struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
        CHECK(!rdma_accept(other, &param));
        next(RDMA_CM_EVENT_ESTABLISHED, 0);
        next(RDMA_CM_EVENT_ESTABLISHED, 0);
        strcpy(buffer[1], pairs[i][1]);
        CHECK(!rdma_post_send(one, NULL, buffer[1], 64, from, 0));
        struct ibv_wc wc;
        while (ibv_poll_cq(other->recv_cq, 1, &wc) == 0)
            ;
        CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(buffer[0], pairs[i][1]));
        CHECK(!rdma_destroy_id(listener) && !rdma_disconnect(one));
        next(RDMA_CM_EVENT_DISCONNECTED, 0);
        next(RDMA_CM_EVENT_DISCONNECTED, 0);
        rdma_destroy_qp(one);
        rdma_destroy_qp(other);
        CHECK(!rdma_destroy_id(one) && !rdma_destroy_id(other));
    }
}

static void a_port_that_nothing_listens_at_refuses(void) {
    struct rdma_cm_id *id = asks("127.0.0.1", 8080);
    // Reason 8: invalid service ID.
    CHECK(next(RDMA_CM_EVENT_REJECTED, 8) == id);
}

struct connection {
    struct rdma_cm_id *listener, *one, *other;
};

/// A connection of the process to itself, established.
static struct connection establish(void) {
    struct connection it = {.listener = bound("0.0.0.0", 8080)};
    CHECK(!rdma_listen(it.listener, 4));
    it.one = asks("127.0.0.1", 8080);
    it.other = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    give_qp(it.other);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(!rdma_accept(it.other, &param));
    next(RDMA_CM_EVENT_ESTABLISHED, 0);
    next(RDMA_CM_EVENT_ESTABLISHED, 0);
    return it;
}

static void carries_a_message(struct connection it) {
    static char buffer[2][64];
    struct ibv_mr *to = rdma_reg_msgs(it.other, buffer[0], 64);
    struct ibv_mr *from = rdma_reg_msgs(it.one, buffer[1], 64);
    CHECK(to && from && !rdma_post_recv(it.other, NULL, buffer[0], 64, to));
    strcpy(buffer[1], "a message");
    CHECK(!rdma_post_send(it.one, NULL, buffer[1], 64, from, 0));
    struct ibv_wc wc;
    while (ibv_poll_cq(it.other->recv_cq, 1, &wc) == 0)
        ;
    CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(buffer[0], buffer[1]));
}

/// The calls of a child on its parent's connection, on ids in other stages and on ids of its own.
static void call_as_a_child(struct connection it, struct rdma_cm_id *idle, struct rdma_cm_id *asked) {
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
    struct rdma_cm_event *event;
    struct rdma_event_channel *own = rdma_create_event_channel();
    union address group = at("224.0.1.5", 0);
    int mask;
    FAILS(rdma_get_cm_event(channel, &event), EOPNOTSUPP);
    FAILS(bind_to(idle, "127.0.0.1", 9090), EOPNOTSUPP);
    FAILS(resolve(idle, "127.0.0.1", 8080), EOPNOTSUPP);
    FAILS(rdma_resolve_route(idle, 1000), EOPNOTSUPP);
    FAILS(rdma_listen(idle, 4), EOPNOTSUPP);
    FAILS(rdma_migrate_id(idle, own), EOPNOTSUPP);
    FAILS(rdma_join_multicast(idle, &group.sa, NULL), EOPNOTSUPP);
    FAILS(rdma_leave_multicast(idle, &group.sa), EOPNOTSUPP);
    FAILS(rdma_create_qp(idle, NULL, &init), EOPNOTSUPP);
    FAILS(rdma_connect(idle, &param), EOPNOTSUPP);
    FAILS(rdma_accept(asked, &param), EOPNOTSUPP);
    FAILS(rdma_reject(asked, NULL, 0), EOPNOTSUPP);
    FAILS(rdma_listen(it.listener, 4), EOPNOTSUPP);
    FAILS(rdma_get_request(it.listener, &asked), EOPNOTSUPP);
    FAILS(rdma_establish(it.one), EOPNOTSUPP);
    FAILS(rdma_notify(it.one, IBV_EVENT_COMM_EST), EOPNOTSUPP);
    FAILS(rdma_init_qp_attr(it.one, &attr, &mask), EOPNOTSUPP);
    FAILS(rdma_disconnect(it.one), EOPNOTSUPP);
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *fresh;
        CHECK(!rdma_create_id(i ? own : NULL, &fresh, NULL, RDMA_PS_TCP));
        FAILS(bind_to(fresh, "127.0.0.1", 9091), EOPNOTSUPP);
        FAILS(resolve(fresh, "127.0.0.1", 8080), EOPNOTSUPP);
        CHECK(!rdma_destroy_id(fresh));
    }
    CHECK(!rdma_getaddrinfo("127.0.0.1", "8080", &hints, &info));
    struct rdma_cm_id *endpoint;
    FAILS(rdma_create_ep(&endpoint, info, NULL, &init), EOPNOTSUPP);
    rdma_freeaddrinfo(info);
    // A child may tidy up what it has inherited.
    rdma_destroy_qp(it.one);
    struct rdma_cm_id *all[] = {it.one, it.other, it.listener, idle, asked};
    for (int i = 0; i < 5; i++)
        CHECK(!rdma_destroy_id(all[i]));
    rdma_destroy_event_channel(own);
    rdma_destroy_event_channel(channel);
}

static void a_forked_child_leaves_its_parents_connections_alone(void) {
    struct connection it = establish();
    struct rdma_cm_id *idle = new_id(), *late = asks("127.0.0.1", 8080);
    struct rdma_cm_id *asked = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    give_qp(asked);
    // An event waits for the parent.
    CHECK(!resolve(idle, "127.0.0.1", 8080));
    struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&readable, 1, 10000) == 1);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        call_as_a_child(it, idle, asked);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(next(RDMA_CM_EVENT_ADDR_RESOLVED, 0) == idle);
    CHECK(poll(&readable, 1, 100) == 0);
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    CHECK(!rdma_accept(asked, &param));
    next(RDMA_CM_EVENT_ESTABLISHED, 0);
    next(RDMA_CM_EVENT_ESTABLISHED, 0);
    carries_a_message(it);
    carries_a_message((struct connection){.one = late, .other = asked});
    CHECK(!rdma_disconnect(it.one));
    next(RDMA_CM_EVENT_DISCONNECTED, 0);
    next(RDMA_CM_EVENT_DISCONNECTED, 0);
}

/// Programs that close all descriptors open files that get their numbers.
static void an_event_is_not_read_from_a_file_of_the_programs(void) {
    int file = memfd_create("own", 0), ends[2];
    struct rdma_cm_event *event;
    alarm(20);
    CHECK(write(file, "the program's own words", 23) == 23 && !lseek(file, 0, SEEK_SET));
    CHECK(dup2(file, channel->fd) == channel->fd);
    FAILS(rdma_get_cm_event(channel, &event), EBADF);
    CHECK(!lseek(file, 0, SEEK_CUR));
    // A read of this would wait for ever.
    CHECK(!pipe(ends) && dup2(ends[0], channel->fd) == channel->fd);
    FAILS(rdma_get_cm_event(channel, &event), EBADF);
    close(channel->fd);
    FAILS(rdma_get_cm_event(channel, &event), EBADF);
}

static const struct {
    const char *name;
    void (*holds)(void);
} CLAIMS[] = {
#define CLAIM(name) {#name, name}
    CLAIM(loopback_addresses_are_bound_like_wildcards),
    CLAIM(a_port_is_shared_as_linux_has_it),
    CLAIM(an_address_is_reused_until_one_listens),
    CLAIM(ports_of_the_privileged_are_theirs),
    CLAIM(a_link_local_address_needs_its_link),
    CLAIM(the_node_itself_is_resolved_at_once),
    CLAIM(a_process_connects_to_itself),
    CLAIM(a_port_that_nothing_listens_at_refuses),
    CLAIM(a_forked_child_leaves_its_parents_connections_alone),
    CLAIM(an_event_is_not_read_from_a_file_of_the_programs),
};

int main(int argc, char **argv) {
    channel = rdma_create_event_channel();
    CHECK(argc == 2 && channel);
    alarm(60);
    for (size_t i = 0; i < sizeof CLAIMS / sizeof *CLAIMS; i++)
        if (!strcmp(CLAIMS[i].name, argv[1])) {
            CLAIMS[i].holds();
            return 0;
        }
    fprintf(stderr, "no claim %s\n", argv[1]);
    return 2;
}
