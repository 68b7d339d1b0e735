/* Implements shim.h: wraps inline functions and macros, and hides differences between releases. */

#define _GNU_SOURCE /* fopencookie, dladdr */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register, rte_eth_fec_get */
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(21, 11, 0, 0)
#error "uroce is written for DPDK 21.11 and later"
#endif

/* The offsets of `Mbuf` in src/lib.rs. They fail to compile with a release that moves a field. */
#if defined(RTE_IOVA_IN_MBUF) && RTE_IOVA_IN_MBUF == 0
#error "this DPDK has no IOVA in the mbuf (RTE_IOVA_IN_MBUF 0): its mbuf layout differs"
#endif
#define AT(field, offset)                                                                         \
	_Static_assert(offsetof(struct rte_mbuf, field) == (offset), "rte_mbuf." #field " moved")
AT(buf_addr, 0);
AT(buf_iova, 8);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(port, 22);
AT(ol_flags, 24);
AT(packet_type, 32);
AT(pkt_len, 36);
AT(data_len, 40);
AT(vlan_tci, 42);
AT(hash, 44);
AT(vlan_tci_outer, 52);
AT(buf_len, 54);
AT(pool, 56);
AT(next, 64);
AT(tx_offload, 72);
AT(shinfo, 80);
AT(priv_size, 88);
AT(timesync, 90);
AT(dynfield1, 92);
_Static_assert(sizeof(struct rte_mbuf) == 128, "rte_mbuf is no longer two cache lines");
_Static_assert(_Alignof(struct rte_mbuf) == 64, "rte_mbuf is not aligned to 64");

/* rte_errno or errno as a negative number, never 0. */
static int failure(void)
{
	int code = rte_errno != 0 ? rte_errno : errno;

	return code > 0 ? -code : -EIO;
}

/* ---- log ----------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	size_t used;
	int echo;
	int running; /* EAL runs and was started by uroce_eal_init */
	char text[8192];
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char second_eal[] =
	"uroce: DPDK already runs in this process, started for RDMA, and cannot start twice. Make the\n"
	"uroce: program call rte_eal_init before its first RDMA object; uroce then uses that DPDK.\n";

static ssize_t journal_write(void *cookie, const char *text, size_t length)
{
	static const char second[] = "already called init";
	size_t room, take;

	(void)cookie;
	pthread_mutex_lock(&journal.lock);
	if (journal.running && memmem(text, length, second, sizeof(second) - 1) != NULL)
		fputs(second_eal, stderr);
	if (journal.echo)
		fwrite(text, 1, length, stderr);
	/* The first messages of a failure explain it, so text that does not fit is dropped. */
	room = sizeof(journal.text) - journal.used;
	take = length < room ? length : room;
	memcpy(journal.text + journal.used, text, take);
	journal.used += take;
	pthread_mutex_unlock(&journal.lock);
	return (ssize_t)length;
}

int uroce_log_open(int echo)
{
	static FILE *stream;
	cookie_io_functions_t functions = { .write = journal_write };

	pthread_mutex_lock(&journal.lock);
	journal.echo = echo;
	journal.used = 0;
	if (stream == NULL) {
		stream = fopencookie(NULL, "w", functions);
		if (stream != NULL)
			setvbuf(stream, NULL, _IOLBF, 0);
	}
	pthread_mutex_unlock(&journal.lock);
	if (stream == NULL)
		return -ENOMEM;
	return rte_openlog_stream(stream) == 0 ? 0 : failure();
}

size_t uroce_log_take(char *out, size_t capacity)
{
	size_t length;

	if (capacity == 0)
		return 0;
	pthread_mutex_lock(&journal.lock);
	length = journal.used < capacity - 1 ? journal.used : capacity - 1;
	memcpy(out, journal.text, length);
	out[length] = '\0';
	journal.used = 0;
	pthread_mutex_unlock(&journal.lock);
	return length;
}

/* ---- EAL ----------------------------------------------------------------------------------- */

const char *uroce_version(void)
{
	return rte_version();
}

int uroce_block_signals(void)
{
	sigset_t most;

	/* Faults of an instruction end the process if they are blocked. */
	sigfillset(&most);
	sigdelset(&most, SIGSEGV);
	sigdelset(&most, SIGBUS);
	return -pthread_sigmask(SIG_SETMASK, &most, NULL);
}

void uroce_drivers_load(void)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	const char *name;
	Dl_info library;
	DIR *drivers;
	int length;

	if (access(RTE_EAL_PMD_PATH, F_OK) == 0 || dladdr((void *)rte_eal_init, &library) == 0)
		return;
	name = strrchr(library.dli_fname, '/');
	if (name == NULL)
		return;
	length = (int)(name - library.dli_fname);
	if (snprintf(path, sizeof(path), "%.*s/pmds", length, library.dli_fname) >= PATH_MAX)
		return;
	drivers = opendir(path);
	while (drivers != NULL && (entry = readdir(drivers)) != NULL) {
		if (strstr(entry->d_name, ".so.") == NULL ||
		    snprintf(path, sizeof(path), "%.*s/pmds/%s", length, library.dli_fname,
			     entry->d_name) >= PATH_MAX)
			continue;
		/* Its constructor registers it with EAL, which keeps it. */
		if (dlopen(path, RTLD_NOW) == NULL)
			fprintf(stderr, "uroce: %s\n", dlerror());
	}
	if (drivers != NULL)
		closedir(drivers);
}

int uroce_eal_init(int argc, char **argv)
{
	rte_errno = 0;
	errno = 0;
	if (rte_eal_init(argc, argv) < 0)
		return failure();
	journal.running = 1;
	return 0;
}

int uroce_eal_is_running(void)
{
	/* EAL sets the first value early in its start and the second one near the end. */
	return rte_lcore_count() > 0 && rte_eal_get_physmem_size() > 0;
}

int uroce_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 1;
	return rte_thread_register() == 0 ? 0 : failure();
}

void uroce_thread_unregister(void)
{
	rte_thread_unregister();
}

uint32_t uroce_thread_id(void)
{
	return rte_lcore_id();
}

void uroce_thread_bear(uint32_t id, struct uroce_bearer *before)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancel);
	before->id = rte_lcore_id();
	RTE_PER_LCORE(_lcore_id) = id;
}

void uroce_thread_restore(const struct uroce_bearer *before)
{
	RTE_PER_LCORE(_lcore_id) = before->id;
	pthread_setcancelstate(before->cancel, NULL);
}

/* ---- mempools and mbufs -------------------------------------------------------------------- */

/* Bytes of all memory outside EAL's. Mempools are created one at a time, so it needs no lock. */
static size_t bytes_apart;

static void give_back(void *memory, size_t len)
{
	bytes_apart -= len;
	munmap(memory, len);
}

static void give_back_chunk(struct rte_mempool_memhdr *chunk, void *unused)
{
	RTE_SET_USED(unused);
	give_back(chunk->addr, chunk->len);
}

/* Allocates memory outside EAL's, in total at most the size of EAL's memory. The kernel backs it
 * with transparent huge pages if it can. NULL on failure. */
static void *huge_memory(size_t len)
{
	const size_t huge = RTE_PGSIZE_2M;
	char *begin, *memory;

	if (len > rte_eal_get_physmem_size() - bytes_apart)
		return NULL;
	begin = mmap(NULL, len + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (begin == MAP_FAILED)
		return NULL;
	bytes_apart += len;
	memory = RTE_PTR_ALIGN_CEIL(begin, huge);
	if (memory != begin)
		munmap(begin, memory - begin);
	if (memory != begin + huge)
		munmap(memory + len, begin + huge - memory);
	madvise(memory, len, MADV_HUGEPAGE);
	return memory;
}

/* Like rte_pktmbuf_pool_create, in memory outside EAL's. `room` includes the headroom. */
static struct rte_mempool *pool_apart(const char *name, uint32_t count, uint32_t cache,
				      uint16_t room, int socket)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = room };
	/* No device reads the mbufs, so one may cross the end of a page. */
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, count, sizeof(struct rte_mbuf) + room, cache, sizeof(private), socket,
		RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	void *memory;
	size_t len;

	if (pool == NULL)
		return NULL;
	rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	rte_pktmbuf_pool_init(pool, &private);
	len = rte_mempool_calc_obj_size(pool->elt_size, pool->flags, NULL);
	len = RTE_ALIGN_CEIL(len * count + RTE_MEMPOOL_ALIGN, RTE_PGSIZE_4K);
	memory = huge_memory(len);
	if (memory != NULL && rte_mempool_populate_iova(pool, memory, (uintptr_t)memory, len,
							give_back_chunk, NULL) == (int)count) {
		rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
		return pool;
	}
	if (memory != NULL && pool->nb_mem_chunks == 0)
		give_back(memory, len);
	rte_mempool_free(pool);
	rte_errno = ENOMEM;
	return NULL;
}

struct rte_mempool *uroce_pool_create(const char *name, uint32_t count, uint32_t cache,
				      uint16_t room, int socket, int apart, int *error)
{
	struct rte_mempool *pool;

	if (room > UINT16_MAX - RTE_PKTMBUF_HEADROOM) {
		*error = -EINVAL;
		return NULL;
	}
	room += RTE_PKTMBUF_HEADROOM;
	pool = apart && !rte_eal_has_hugepages() ?
		pool_apart(name, count, cache, room, socket) :
		rte_pktmbuf_pool_create(name, count, cache, 0, room, socket);
	*error = pool != NULL ? 0 : failure();
	return pool;
}

uint32_t uroce_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

uint32_t uroce_pool_common(const struct rte_mempool *pool)
{
	return rte_mempool_get_ops(pool->ops_index)->get_count(pool);
}

int uroce_mbuf_alloc(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

int uroce_mbuf_take(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_mempool_get_bulk(pool, (void **)mbufs, count);
}

/* Avoids the read of a second cache line that DPDK's own free makes: an mbuf of one segment has no
 * next one, as its first cache line shows. */
void uroce_mbuf_free(struct rte_mbuf **mbufs, uint16_t count)
{
	uint16_t from = 0, at;

	for (at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = mbufs[at];
		bool plain = rte_mbuf_refcnt_read(mbuf) == 1 && mbuf->nb_segs == 1 &&
			     RTE_MBUF_DIRECT(mbuf);

		if (likely(plain && mbuf->pool == mbufs[from]->pool))
			continue;
		if (at > from)
			rte_mempool_put_bulk(mbufs[from]->pool, (void **)&mbufs[from], at - from);
		from = at;
		if (!plain) {
			rte_pktmbuf_free(mbuf);
			from = at + 1;
		}
	}
	if (count > from)
		rte_mempool_put_bulk(mbufs[from]->pool, (void **)&mbufs[from], count - from);
}

/* ---- devices and ports --------------------------------------------------------------------- */

/* RoCEv2 is UDP over IPv4 or IPv6, so the hash covers the addresses and the source port. */
#define RSS_PORTS (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP)
#define RSS_TYPES (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_IPV6 | RSS_PORTS)
#define RX_CHECKSUMS (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

int uroce_device_probe(const char *devargs)
{
	return rte_dev_probe(devargs);
}

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#define rte_bus_name(bus) ((bus)->name)
#endif

int uroce_device_remove(const char *devargs)
{
	struct rte_devargs parsed = {0};
	int result = rte_devargs_parse(&parsed, devargs);

	if (result == 0)
		result = rte_eal_hotplug_remove(rte_bus_name(parsed.bus), parsed.name);
	free(parsed.data);
	return result;
}

/* Longest wait for EAL's interrupt thread, in seconds. */
#define INTERRUPTS_S 2

static void interrupts_turn(void *done)
{
	sem_post(done);
}

/* Waits until EAL's interrupt thread has dealt with all that was due before the call: drivers free
 * on the caller's thread what their handlers use. It also runs alarms. The first alarm may be in
 * one batch with earlier events, the second is after all of them. A thread that is busy for longer
 * than INTERRUPTS_S is not waited for. */
static void interrupts_pass(void)
{
	struct timespec limit;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += INTERRUPTS_S;
	for (int turn = 0; turn < 2 && error == 0; turn++) {
		sem_t done;

		sem_init(&done, 0, 0);
		error = rte_eal_alarm_set(1, interrupts_turn, &done);
		while (error == 0 && sem_clockwait(&done, CLOCK_MONOTONIC, &limit) != 0)
			if (errno != EINTR)
				error = -errno;
		/* This also waits until the function has returned. */
		rte_eal_alarm_cancel(interrupts_turn, &done);
		sem_destroy(&done);
	}
}

int uroce_port_close(uint16_t port)
{
	if (!rte_eth_dev_is_valid_port(port))
		return -ENODEV;
	interrupts_pass();
	/* The stop fails if the port was never started, which does no harm. */
	(void)rte_eth_dev_stop(port);
	/* A handler that ran before the stop may have set an alarm for the port. */
	interrupts_pass();
	return rte_eth_dev_close(port);
}

int uroce_port_remove(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	result = uroce_port_close(port);
	if (info.device == NULL)
		return result;
	return rte_dev_remove(info.device);
}

int uroce_port_same_device(uint16_t one, uint16_t other)
{
	struct rte_eth_dev_info infos[2];

	return rte_eth_dev_info_get(one, &infos[0]) == 0 &&
	       rte_eth_dev_info_get(other, &infos[1]) == 0 && infos[0].device != NULL &&
	       infos[0].device == infos[1].device;
}

int uroce_port_find(const char *name)
{
	struct rte_dev_iterator iterator;
	uint16_t port;

	if (rte_eth_dev_get_port_by_name(name, &port) == 0)
		return port;
	/* The port of a PCI function may have another name than the function. */
	RTE_ETH_FOREACH_MATCHING_DEV(port, name, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		return port;
	}
	return -ENODEV;
}

int uroce_port_info(uint16_t port, struct uroce_port_info *out)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(out, 0, sizeof(*out));
	result = rte_eth_dev_get_name_by_port(port, out->name);
	if (result != 0)
		return result;
	if (info.driver_name != NULL)
		snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	out->max_rx_queues = info.max_rx_queues;
	out->max_tx_queues = info.max_tx_queues;
	out->min_mtu = info.min_mtu;
	out->max_mtu = info.max_mtu;
	out->max_rx_packet = info.max_rx_pktlen;
	out->min_rx_buffer = info.min_rx_bufsize;
	out->rss = (info.flow_type_rss_offloads & RSS_TYPES) != 0;
	out->rss_ports = (info.flow_type_rss_offloads & RSS_PORTS) != 0;
	out->reta_size = info.reta_size;
	out->scatter = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
	out->rx_checksum = (info.rx_offload_capa & RX_CHECKSUMS) == RX_CHECKSUMS;
	out->tx_checksum = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
	out->vlan_strip = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) != 0;
	out->vlan_insert = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_VLAN_INSERT) != 0;
	out->tx_segments = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	out->link_interrupt =
		info.dev_flags != NULL && (*info.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
	out->socket = rte_eth_dev_socket_id(port);
	return 0;
}
_Static_assert(RTE_ETH_NAME_MAX_LEN <= 64, "uroce_port_info.name is too short");

int uroce_port_configure(uint16_t port, const struct uroce_port_conf *conf)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf eth;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(&eth, 0, sizeof(eth));
	eth.rxmode.mtu = conf->mtu;
	eth.intr_conf.lsc = conf->link_interrupt;
	eth.intr_conf.rxq = conf->rx_interrupt;
	if (conf->scatter)
		eth.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	eth.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
	if (conf->rss) {
		eth.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		eth.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & RSS_TYPES;
	}
	return rte_eth_dev_configure(port, conf->queue_pairs, conf->queue_pairs, &eth);
}

int uroce_port_descriptors(uint16_t port, uint16_t *rx, uint16_t *tx)
{
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx, tx);
}

int uroce_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket,
			struct rte_mempool *pool)
{
	return rte_eth_rx_queue_setup(port, queue, descriptors, (unsigned int)socket, NULL, pool);
}

int uroce_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket)
{
	return rte_eth_tx_queue_setup(port, queue, descriptors, (unsigned int)socket, NULL);
}

int uroce_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int uroce_port_restart(uint16_t port)
{
	int result = rte_eth_dev_stop(port);

	return result != 0 ? result : rte_eth_dev_start(port);
}

int uroce_port_reset(uint16_t port)
{
	int result = rte_eth_dev_reset(port);

	/* Without that operation, stopping makes most drivers reset the hardware. */
	return result == -ENOTSUP ? rte_eth_dev_stop(port) : result;
}

int uroce_rx_interrupt_fd(uint16_t port, uint16_t queue)
{
	/* A driver without the operation would let lcores sleep for ever. */
	if (rte_eth_dev_rx_intr_disable(port, queue) != 0)
		return -1;
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

int uroce_rx_interrupt(uint16_t port, uint16_t queue, int on)
{
	return on ? rte_eth_dev_rx_intr_enable(port, queue) : rte_eth_dev_rx_intr_disable(port, queue);
}

int uroce_port_promiscuous(uint16_t port)
{
	return rte_eth_promiscuous_enable(port);
}

int uroce_port_all_multicast(uint16_t port)
{
	return rte_eth_allmulticast_enable(port);
}

int uroce_port_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr address;
	int result = rte_eth_macaddr_get(port, &address);

	if (result == 0)
		memcpy(mac, address.addr_bytes, 6);
	return result;
}

int uroce_port_set_mac(uint16_t port, const uint8_t mac[6])
{
	struct rte_ether_addr address;

	memcpy(address.addr_bytes, mac, 6);
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int uroce_port_mtu(uint16_t port, uint16_t *mtu)
{
	return rte_eth_dev_get_mtu(port, mtu);
}

int uroce_port_link(uint16_t port, struct uroce_link *out)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);

	if (result != 0)
		return result;
	out->speed_mbps = link.link_speed;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	out->autoneg = link.link_autoneg == RTE_ETH_LINK_AUTONEG;
	return 0;
}

int uroce_port_fec(uint16_t port, uint32_t *modes)
{
	return rte_eth_fec_get(port, modes);
}

int uroce_port_pause(uint16_t port, uint8_t *rx, uint8_t *tx)
{
	struct rte_eth_fc_conf conf;
	int result;

	memset(&conf, 0, sizeof(conf));
	result = rte_eth_dev_flow_ctrl_get(port, &conf);
	*rx = conf.mode == RTE_ETH_FC_RX_PAUSE || conf.mode == RTE_ETH_FC_FULL;
	*tx = conf.mode == RTE_ETH_FC_TX_PAUSE || conf.mode == RTE_ETH_FC_FULL;
	return result;
}

int uroce_port_set_pause(uint16_t port, uint8_t rx, uint8_t tx)
{
	struct rte_eth_fc_conf conf;
	int result;

	memset(&conf, 0, sizeof(conf));
	/* The thresholds stay the driver's. */
	result = rte_eth_dev_flow_ctrl_get(port, &conf);
	if (result != 0)
		return result;
	conf.mode = rx ? (tx ? RTE_ETH_FC_FULL : RTE_ETH_FC_RX_PAUSE)
		       : (tx ? RTE_ETH_FC_TX_PAUSE : RTE_ETH_FC_NONE);
	return rte_eth_dev_flow_ctrl_set(port, &conf);
}

int uroce_port_set_pfc(uint16_t port, uint8_t priority)
{
	struct rte_eth_pfc_conf conf;
	int result;

	memset(&conf, 0, sizeof(conf));
	result = rte_eth_dev_flow_ctrl_get(port, &conf.fc);
	if (result != 0)
		return result;
	conf.fc.mode = RTE_ETH_FC_FULL;
	conf.priority = priority;
	return rte_eth_dev_priority_flow_ctrl_set(port, &conf);
}

static int link_moved(uint16_t port, enum rte_eth_event_type event, void *moved, void *unused)
{
	(void)event;
	(void)unused;
	((void (*)(uint16_t))moved)(port);
	return 0;
}

int uroce_port_watch(uint16_t port, void (*moved)(uint16_t port))
{
	return rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_LSC, link_moved,
					     (void *)moved);
}

#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
#define name_of(device) rte_dev_name(device)
#else
#define name_of(device) ((device)->name)
#endif

static int port_removed(uint16_t port, enum rte_eth_event_type event, void *gone, void *unused)
{
	return link_moved(port, event, gone, unused);
}

static void device_removed(const char *name, enum rte_dev_event_type event, void *gone)
{
	uint16_t port, ports[RTE_MAX_ETHPORTS];
	struct rte_dev_iterator iterator;
	unsigned int count = 0;

	if (event != RTE_DEV_EVENT_REMOVE)
		return;
	/* Whoever is told may free the device, which the iterator still uses. */
	RTE_ETH_FOREACH_MATCHING_DEV(port, name, &iterator)
		if (count < RTE_MAX_ETHPORTS)
			ports[count++] = port;
	for (unsigned int at = 0; at < count; at++)
		((void (*)(uint16_t))gone)(ports[at]);
}

int uroce_port_watch_removal(uint16_t port, void (*gone)(uint16_t port))
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	result = rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RMV, port_removed,
					       (void *)gone);
	if (result != 0)
		return result;
	/* vfio-pci tells of it by another way than drivers do. */
	return rte_dev_event_callback_register(name_of(info.device), device_removed,
					       (void *)gone);
}

int uroce_port_unwatch_removal(uint16_t port, void (*gone)(uint16_t port))
{
	struct rte_eth_dev_info info;
	int tries = 0, result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	/* -EAGAIN: the callback is running, for microseconds. */
	do
		result = rte_dev_event_callback_unregister(name_of(info.device), device_removed,
							   (void *)gone);
	while (result == -EAGAIN && tries++ < 100 && usleep(1000) == 0);
	return result;
}

int uroce_port_stats(uint16_t port, struct uroce_port_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result != 0)
		return result;
	out->rx_packets = stats.ipackets;
	out->tx_packets = stats.opackets;
	out->rx_bytes = stats.ibytes;
	out->tx_bytes = stats.obytes;
	out->rx_missed = stats.imissed;
	out->rx_errors = stats.ierrors;
	out->tx_errors = stats.oerrors;
	out->rx_no_mbuf = stats.rx_nombuf;
	return 0;
}

int uroce_port_xstats(uint16_t port, struct uroce_xstat *out, uint32_t capacity)
{
	int total = rte_eth_xstats_get(port, NULL, 0);
	struct rte_eth_xstat *values = NULL;
	struct rte_eth_xstat_name *names = NULL;
	int got, named, i;

	if (total <= 0 || capacity == 0)
		return total;
	values = calloc((size_t)total, sizeof(*values));
	names = calloc((size_t)total, sizeof(*names));
	got = named = -ENOMEM;
	if (values != NULL && names != NULL) {
		named = rte_eth_xstats_get_names(port, names, (unsigned int)total);
		got = rte_eth_xstats_get(port, values, (unsigned int)total);
	}
	/* The id of a value is the index of its name. */
	for (i = 0; i < got && got <= total && named <= total && (uint32_t)i < capacity; i++) {
		const char *name = values[i].id < (uint64_t)named ? names[values[i].id].name : "";

		snprintf(out[i].name, sizeof(out[i].name), "%s", name);
		out[i].value = values[i].value;
	}
	free(names);
	free(values);
	return named < 0 ? named : got;
}
_Static_assert(RTE_ETH_XSTATS_NAME_SIZE <= UROCE_XSTAT_NAME, "UROCE_XSTAT_NAME is too short");

int uroce_port_reta(uint16_t port, uint16_t *queues, uint16_t capacity)
{
	struct rte_eth_rss_reta_entry64 *table;
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);
	unsigned int size, i;

	if (result != 0)
		return result;
	size = info.reta_size;
	if (size == 0)
		return -ENOTSUP;
	table = calloc(size / RTE_ETH_RETA_GROUP_SIZE + 1, sizeof(*table));
	if (table == NULL)
		return -ENOMEM;
	for (i = 0; i < size; i++)
		table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << i % RTE_ETH_RETA_GROUP_SIZE;
	result = rte_eth_dev_rss_reta_query(port, table, (uint16_t)size);
	for (i = 0; result == 0 && i < size && i < capacity; i++)
		queues[i] = table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	free(table);
	return result == 0 ? (int)size : result;
}

int uroce_port_reta_set(uint16_t port, uint16_t entry, uint16_t queue)
{
	struct rte_eth_rss_reta_entry64 *table;
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	if (entry >= info.reta_size)
		return -EINVAL;
	table = calloc(info.reta_size / RTE_ETH_RETA_GROUP_SIZE + 1, sizeof(*table));
	if (table == NULL)
		return -ENOMEM;
	table[entry / RTE_ETH_RETA_GROUP_SIZE].mask = UINT64_C(1)
						      << entry % RTE_ETH_RETA_GROUP_SIZE;
	table[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE] = queue;
	result = rte_eth_dev_rss_reta_update(port, table, info.reta_size);
	free(table);
	return result;
}

int uroce_port_rss(uint16_t port, struct uroce_rss *out)
{
	struct rte_eth_dev_info info;
	struct rte_eth_rss_conf conf;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	memset(out, 0, sizeof(*out));
	memset(&conf, 0, sizeof(conf));
	out->key_len = info.hash_key_size != 0 ? info.hash_key_size : 40;
	if (out->key_len > sizeof(out->key))
		return -ENOTSUP;
	conf.rss_key = out->key;
	conf.rss_key_len = out->key_len;
	result = rte_eth_dev_rss_hash_conf_get(port, &conf);
	if (result != 0)
		return result;
	/* A driver may read a shorter key than its information says. */
	if (conf.rss_key_len != 0 && conf.rss_key_len < out->key_len)
		out->key_len = conf.rss_key_len;
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
	if (conf.algorithm != RTE_ETH_HASH_FUNCTION_DEFAULT &&
	    conf.algorithm != RTE_ETH_HASH_FUNCTION_TOEPLITZ)
		return -ENOTSUP;
#endif
	out->ipv4 = (conf.rss_hf & RTE_ETH_RSS_IPV4) != 0;
	out->ipv4_udp = (conf.rss_hf & RTE_ETH_RSS_NONFRAG_IPV4_UDP) != 0;
	out->ipv6 = (conf.rss_hf & RTE_ETH_RSS_IPV6) != 0;
	out->ipv6_udp = (conf.rss_hf & RTE_ETH_RSS_NONFRAG_IPV6_UDP) != 0;
	return 0;
}

uint16_t uroce_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
			uint32_t *dropped)
{
	uint16_t received = rte_eth_rx_burst(port, queue, mbufs, count);
	uint16_t kept = 0, i;

	for (i = 0; i < received; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		if (unlikely(mbuf->nb_segs != 1) && rte_pktmbuf_linearize(mbuf) != 0) {
			rte_pktmbuf_free(mbuf);
			*dropped += 1;
			continue;
		}
		mbufs[kept++] = mbuf;
	}
	return kept;
}

uint16_t uroce_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

void uroce_tx_reclaim(uint16_t port, uint16_t queue)
{
	struct rte_mbuf *none = NULL;

	/* Some drivers free sent mbufs in each burst, even in one without packets. */
	if (rte_eth_tx_done_cleanup(port, queue, 0) < 0)
		rte_eth_tx_burst(port, queue, &none, 0);
}

/* ---- kernel interfaces behind a port -------------------------------------------------------- */

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

int uroce_thread_spare_interfaces(void)
{
#ifdef OWN_ARCH
	/* On these machines the low half of an argument is stored first. */
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIOCSIFFLAGS, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIOCSIFHWADDR, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO), /* errno 0: a success */
	};
	struct sock_fprog program = { .len = RTE_DIM(steps), .filter = steps };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		return -errno;
	return 0;
#else
	return -ENOSYS;
#endif
}

int uroce_interface_listen(const char *name)
{
	struct packet_mreq wish = { .mr_ifindex = (int)if_nametoindex(name) };
	const unsigned short modes[] = { PACKET_MR_PROMISC, PACKET_MR_ALLMULTI };
	/* Protocol 0, so that the socket itself receives nothing. */
	int fd = wish.mr_ifindex != 0 ? socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) : -1;
	size_t at;

	for (at = 0; fd >= 0 && at < RTE_DIM(modes); at++) {
		wish.mr_type = modes[at];
		if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, sizeof(wish)) != 0) {
			int code = errno;

			close(fd);
			return -code;
		}
	}
	return fd >= 0 ? fd : -errno;
}

int64_t uroce_packet_socket_dropped(int fd)
{
	struct tpacket_stats stats;
	socklen_t size = sizeof(stats);

	if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) != 0)
		return -errno;
	return stats.tp_drops;
}

/* ---- rings of mbufs ------------------------------------------------------------------------ */

struct rte_ring *uroce_ring_create(const char *name, uint32_t size, int socket, int *error)
{
	struct rte_ring *ring = rte_ring_create(name, size, socket, RING_F_SP_ENQ | RING_F_SC_DEQ);

	*error = ring != NULL ? 0 : failure();
	return ring;
}

void uroce_ring_free(struct rte_ring *ring)
{
	void *mbuf;

	while (rte_ring_dequeue(ring, &mbuf) == 0)
		rte_pktmbuf_free(mbuf);
	rte_ring_free(ring);
}

int uroce_ring_port(const char *name, struct rte_ring **rx, struct rte_ring **tx,
		    uint16_t queues, int socket)
{
	int port = rte_eth_from_rings(name, rx, queues, tx, queues, (unsigned int)socket);

	return port >= 0 ? port : failure();
}

/* ---- telemetry ----------------------------------------------------------------------------- */

int uroce_tel_register(const char *command, uroce_tel_answer answer, const char *help)
{
	return rte_telemetry_register_cmd(command, answer, help);
}

int uroce_tel_start_dict(struct rte_tel_data *data)
{
	return rte_tel_data_start_dict(data);
}

/* 23.03 has renamed the unsigned type, and 25.11 has removed the old names. */
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
#define UROCE_TEL_UINT RTE_TEL_UINT_VAL
#define uroce_tel_dict_uint rte_tel_data_add_dict_uint
#define uroce_tel_array_uint rte_tel_data_add_array_uint
#else
#define UROCE_TEL_UINT RTE_TEL_U64_VAL
#define uroce_tel_dict_uint rte_tel_data_add_dict_u64
#define uroce_tel_array_uint rte_tel_data_add_array_u64
#endif

int uroce_tel_start_array(struct rte_tel_data *data, int strings)
{
	return rte_tel_data_start_array(data, strings ? RTE_TEL_STRING_VAL : UROCE_TEL_UINT);
}

int uroce_tel_add_u64(struct rte_tel_data *data, const char *name, uint64_t value)
{
	return uroce_tel_dict_uint(data, name, value);
}

int uroce_tel_add_string(struct rte_tel_data *data, const char *name, const char *value)
{
	return rte_tel_data_add_dict_string(data, name, value);
}

int uroce_tel_push_u64(struct rte_tel_data *data, uint64_t value)
{
	return uroce_tel_array_uint(data, value);
}

int uroce_tel_push_string(struct rte_tel_data *data, const char *value)
{
	return rte_tel_data_add_array_string(data, value);
}

/* ---- DPDK's own descriptions ---------------------------------------------------------------- */

char *uroce_dump(int what)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	switch (what) {
	case UROCE_DUMP_MEMPOOL:
		rte_mempool_list_dump(out);
		break;
	case UROCE_DUMP_MEMZONE:
		rte_memzone_dump(out);
		break;
	case UROCE_DUMP_PHYSMEM:
		rte_dump_physmem_layout(out);
		break;
	case UROCE_DUMP_RING:
		rte_ring_list_dump(out);
		break;
	case UROCE_DUMP_LCORES:
		rte_lcore_dump(out);
		break;
	case UROCE_DUMP_LOG_TYPES:
		rte_log_dump(out);
		break;
	case UROCE_DUMP_SOCKET_MEM:
		rte_malloc_dump_stats(out, NULL);
		break;
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

void uroce_dump_free(char *text)
{
	free(text);
}

/* ---- time ---------------------------------------------------------------------------------- */

uint64_t uroce_cycles(void)
{
	return rte_get_timer_cycles();
}
