/* The face that Rust sees of DPDK: plain C types, one call per burst, the same for every release.
 *
 * All `int` results are 0 (or a count) and a negative errno on failure, unless said otherwise.
 * Which DPDK release is underneath is decided in shim.c and nowhere else.
 */
#ifndef UROCE_SHIM_H
#define UROCE_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* ---- log: DPDK's words, kept to explain a failure ------------------------------------------ */

/* Redirects DPDK's log into a bounded buffer of ours; `echo` also copies it to stderr. */
int uroce_log_open(int echo);
/* Moves the buffered text to `out` (always terminated); returns its length. */
size_t uroce_log_take(char *out, size_t capacity);

/* ---- EAL ----------------------------------------------------------------------------------- */

const char *uroce_version(void);
/* Blocks every signal on the calling thread; threads it creates inherit that. */
int uroce_block_signals(void);
/* rte_eal_init. Permutes argv. */
int uroce_eal_init(int argc, char **argv);
/* Whether EAL runs, whoever has started it. */
int uroce_eal_is_running(void);
/* Gives the calling thread an lcore id, and so a mempool cache; 1 if it already had one. */
int uroce_thread_register(void);
void uroce_thread_unregister(void);

/* What a thread was before it bore another's lcore id. */
struct uroce_bearer {
	uint32_t id;
	int cancel;
};

/* The calling thread's lcore id. */
uint32_t uroce_thread_id(void);
/* The calling thread bears `id`, which nobody else uses meanwhile, and cannot be cancelled. */
void uroce_thread_bear(uint32_t id, struct uroce_bearer *before);
void uroce_thread_restore(const struct uroce_bearer *before);

/* ---- mempools and mbufs -------------------------------------------------------------------- */

/* `room` is data bytes per mbuf without the headroom. With `apart` the mbufs are not in EAL's memory
 * if that is without hugepages. NULL on failure, with *error set. */
struct rte_mempool *uroce_pool_create(const char *name, uint32_t count, uint32_t cache,
				      uint16_t room, int socket, int apart, int *error);
/* Mbufs not handed out, those in per-lcore caches included. */
uint32_t uroce_pool_available(const struct rte_mempool *pool);
/* All `count` or none. */
int uroce_mbuf_alloc(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count);
/* The same without touching the mbufs: their lengths, offsets and flags are of former use. */
int uroce_mbuf_take(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count);
void uroce_mbuf_free(struct rte_mbuf **mbufs, uint16_t count);

/* ---- devices and ports --------------------------------------------------------------------- */

struct uroce_port_info {
	char name[64];
	char driver[64];
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t min_mtu;
	uint16_t max_mtu;
	uint32_t max_rx_packet; /* largest frame, Ethernet header and CRC included */
	uint32_t min_rx_buffer; /* least data room of the receive mempool */
	uint8_t rss;            /* can spread on IP addresses or UDP ports */
	uint8_t scatter;        /* can receive into several segments */
	uint8_t rx_checksum;    /* verifies IPv4 and UDP checksums */
	uint8_t tx_checksum;    /* computes IPv4 checksums */
	uint8_t link_interrupt; /* tells of its link's changes by an interrupt */
	int socket;             /* NUMA node, -1 if unknown */
};

struct uroce_port_conf {
	uint16_t queue_pairs;
	uint16_t mtu; /* 0: the driver's own choice */
	uint8_t rss;
	uint8_t scatter;
	uint8_t link_interrupt;
};

struct uroce_port_stats {
	uint64_t rx_packets, tx_packets;
	uint64_t rx_bytes, tx_bytes;
	uint64_t rx_missed; /* the device had no free descriptor */
	uint64_t rx_errors, tx_errors;
	uint64_t rx_no_mbuf; /* the mempool was empty */
};

struct uroce_link {
	uint32_t speed_mbps; /* UINT32_MAX if unknown */
	uint8_t up;
	uint8_t full_duplex;
};

#define UROCE_XSTAT_NAME 64
struct uroce_xstat {
	char name[UROCE_XSTAT_NAME];
	uint64_t value;
};

/* Creates or scans the device that a devargs string names. */
int uroce_device_probe(const char *devargs);
/* Stops and closes the port and removes its device from the bus. */
int uroce_port_remove(uint16_t port);
/* Stops and closes the port; its device stays. */
int uroce_port_close(uint16_t port);
/* The port of that name or of that device: its number, or -ENODEV. */
int uroce_port_find(const char *name);

int uroce_port_info(uint16_t port, struct uroce_port_info *info);
int uroce_port_configure(uint16_t port, const struct uroce_port_conf *conf);
/* Clamps and aligns numbers of descriptors to what the device takes. */
int uroce_port_descriptors(uint16_t port, uint16_t *rx, uint16_t *tx);
int uroce_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket,
			struct rte_mempool *pool);
int uroce_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket);
int uroce_port_start(uint16_t port);
/* Stops and starts. Nobody may be inside a burst. */
int uroce_port_restart(uint16_t port);
int uroce_port_promiscuous(uint16_t port);
int uroce_port_all_multicast(uint16_t port);
int uroce_port_mac(uint16_t port, uint8_t mac[6]);
int uroce_port_set_mac(uint16_t port, const uint8_t mac[6]);
int uroce_port_mtu(uint16_t port, uint16_t *mtu);
int uroce_port_link(uint16_t port, struct uroce_link *link);
/* Calls `moved` on EAL's interrupt thread each time the link has gone up or down, until the port is
 * closed. Only for a port configured with `link_interrupt`. */
int uroce_port_watch(uint16_t port, void (*moved)(uint16_t port));
int uroce_port_stats(uint16_t port, struct uroce_port_stats *stats);
/* Fills up to `capacity` and returns how many there are. */
int uroce_port_xstats(uint16_t port, struct uroce_xstat *out, uint32_t capacity);

/* Each returned mbuf has one segment; *dropped counts those that could not be made so. */
uint16_t uroce_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
			uint32_t *dropped);
/* The first `n` mbufs, n the result, belong to the driver afterwards. */
uint16_t uroce_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

/* ---- interfaces of the kernel's behind a port ------------------------------------------------ */

/* From now on the calling thread changes no interface's flags or Ethernet address: the calls succeed
 * without effect. -errno where the kernel does not offer that. */
int uroce_thread_spare_interfaces(void);
/* Has an interface receive all frames, whatever their address, as long as the descriptor that this
 * gives is open. Needs no more than CAP_NET_RAW. */
int uroce_interface_listen(const char *name);

/* ---- rings of mbufs ------------------------------------------------------------------------ */

/* Single producer, single consumer, `size` a power of two. NULL on failure, with *error set. */
struct rte_ring *uroce_ring_create(const char *name, uint32_t size, int socket, int *error);
/* Frees the mbufs inside, then the ring. */
void uroce_ring_free(struct rte_ring *ring);
/* A port that receives from rx[i] and sends to tx[i]: its number. */
int uroce_ring_port(const char *name, struct rte_ring **rx, struct rte_ring **tx,
		    uint16_t queues, int socket);

/* ---- time ---------------------------------------------------------------------------------- */

/* The cycle counter, on targets where Rust has no intrinsic for it. */
uint64_t uroce_cycles(void);

#endif
