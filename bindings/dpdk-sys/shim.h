/* The interface of DPDK for Rust: plain C types, one call per burst, the same for every release.
 *
 * Functions that return `int` return 0 or a count, and a negative errno on failure, unless they
 * say otherwise. Only shim.c depends on the DPDK release.
 */
#ifndef UROCE_SHIM_H
#define UROCE_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* ---- log: DPDK's messages, kept to explain a failure ---------------------------------------- */

/* Redirects DPDK's log to a bounded buffer; with `echo` it is also copied to stderr. */
int uroce_log_open(int echo);
/* Moves the buffered text to `out`, always terminated, and returns its length. */
size_t uroce_log_take(char *out, size_t capacity);

/* ---- EAL ----------------------------------------------------------------------------------- */

/* DPDK's name and version. */
const char *uroce_version(void);
/* Blocks all signals but SIGSEGV and SIGBUS on the calling thread; its threads inherit that. */
int uroce_block_signals(void);
/* Loads the drivers in the directory "pmds" beside DPDK's own libraries, if the directory of drivers
 * that DPDK was built with does not exist: the libraries have been copied to a machine without DPDK.
 * EAL's own option refuses them in a volume, which all users may write to. To be called before
 * uroce_eal_init. */
void uroce_drivers_load(void);
/* Calls rte_eal_init, which permutes argv. */
int uroce_eal_init(int argc, char **argv);
/* Whether EAL runs in this process, started by uroce or by the program. */
int uroce_eal_is_running(void);
/* Gives the calling thread an lcore id and thereby a mempool cache. 1 if it already had one. */
int uroce_thread_register(void);
void uroce_thread_unregister(void);

/* The lcore id and cancellation state of a thread before uroce_thread_bear. */
struct uroce_bearer {
	uint32_t id;
	int cancel;
};

/* The calling thread's lcore id. */
uint32_t uroce_thread_id(void);
/* Gives the calling thread the lcore id `id`, which no other thread uses meanwhile, and disables
 * its cancellation. `before` receives the former state. */
void uroce_thread_bear(uint32_t id, struct uroce_bearer *before);
/* Restores the state that uroce_thread_bear has stored. */
void uroce_thread_restore(const struct uroce_bearer *before);

/* ---- mempools and mbufs -------------------------------------------------------------------- */

/* Creates a mempool. `room` is the data bytes per mbuf without the headroom. With `apart` the mbufs
 * are outside EAL's memory if EAL has no hugepages. NULL on failure, with *error set. */
struct rte_mempool *uroce_pool_create(const char *name, uint32_t count, uint32_t cache,
				      uint16_t room, int socket, int apart, int *error);
/* Number of free mbufs, with those in per-lcore caches. */
uint32_t uroce_pool_available(const struct rte_mempool *pool);
/* Number of free mbufs, without those in per-lcore caches. */
uint32_t uroce_pool_common(const struct rte_mempool *pool);
/* Allocates `count` mbufs, or none. */
int uroce_mbuf_alloc(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count);
/* Allocates `count` mbufs, or none, without initialising their lengths, offsets and flags. */
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
	uint8_t rss;            /* can distribute packets by IP address or UDP port */
	uint8_t rss_ports;      /* by UDP port too */
	uint16_t reta_size;     /* entries of the table by which it does so */
	uint8_t scatter;        /* can receive into several segments */
	uint8_t rx_checksum;    /* verifies IPv4 and UDP checksums */
	uint8_t tx_checksum;    /* computes IPv4 checksums */
	uint8_t vlan_strip;     /* takes 802.1Q tags off received packets */
	uint8_t vlan_insert;    /* puts 802.1Q tags into sent packets */
	uint8_t tx_segments;    /* sends a packet from several mbufs */
	uint8_t link_interrupt; /* reports link changes by an interrupt */
	int socket;             /* NUMA node, -1 if unknown */
};

struct uroce_port_conf {
	uint16_t queue_pairs;
	uint16_t mtu; /* 0: the driver's own choice */
	uint8_t rss;
	uint8_t scatter;
	uint8_t link_interrupt;
	uint8_t rx_interrupt;
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
	uint8_t autoneg;
};

#define UROCE_XSTAT_NAME 64
struct uroce_xstat {
	char name[UROCE_XSTAT_NAME];
	uint64_t value;
};

/* Creates or probes the device that a devargs string names. */
int uroce_device_probe(const char *devargs);
/* Removes the device that a devargs string names, if it has no port. */
int uroce_device_remove(const char *devargs);
/* Stops and closes the port and removes its device from the bus. */
int uroce_port_remove(uint16_t port);
/* Stops and closes the port, once EAL's interrupt thread has nothing of it left to do. Its device
 * stays on the bus. */
int uroce_port_close(uint16_t port);
/* Whether two ports are of one device of the bus. */
int uroce_port_same_device(uint16_t one, uint16_t other);
/* The number of the port with this port name or device name, or -ENODEV. */
int uroce_port_find(const char *name);

int uroce_port_info(uint16_t port, struct uroce_port_info *info);
int uroce_port_configure(uint16_t port, const struct uroce_port_conf *conf);
/* Adjusts numbers of descriptors to the device's limits and alignment. */
int uroce_port_descriptors(uint16_t port, uint16_t *rx, uint16_t *tx);
int uroce_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket,
			struct rte_mempool *pool);
int uroce_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, int socket);
int uroce_port_start(uint16_t port);
/* Stops and starts the port. No thread may be in a burst of it. */
int uroce_port_restart(uint16_t port);
/* Resets the port, and leaves it stopped; it has to be configured again. No thread may be in a burst
 * of it. */
int uroce_port_reset(uint16_t port);
/* The descriptor of a receive queue's interrupt, or -1. */
int uroce_rx_interrupt_fd(uint16_t port, uint16_t queue);
/* Has a receive queue's interrupt come from now on, or not. */
int uroce_rx_interrupt(uint16_t port, uint16_t queue, int on);
int uroce_port_promiscuous(uint16_t port);
int uroce_port_all_multicast(uint16_t port);
int uroce_port_mac(uint16_t port, uint8_t mac[6]);
int uroce_port_set_mac(uint16_t port, const uint8_t mac[6]);
int uroce_port_mtu(uint16_t port, uint16_t *mtu);
int uroce_port_link(uint16_t port, struct uroce_link *link);
/* The present FEC modes, as RTE_ETH_FEC_MODE_CAPA_MASK has them. */
int uroce_port_fec(uint16_t port, uint32_t *modes);
/* Whether the port obeys PAUSE frames (rx), and sends them (tx). */
int uroce_port_pause(uint16_t port, uint8_t *rx, uint8_t *tx);
int uroce_port_set_pause(uint16_t port, uint8_t rx, uint8_t tx);
/* Makes the port obey and send PFC frames of a priority, 0 to 7. */
int uroce_port_set_pfc(uint16_t port, uint8_t priority);
/* Makes EAL's interrupt thread call `moved` whenever the link goes up or down, until the port is
 * closed. Only for ports configured with `link_interrupt`. */
int uroce_port_watch(uint16_t port, void (*moved)(uint16_t port));
/* Makes EAL's interrupt thread call `gone` when the device is being removed from the machine, until
 * `uroce_port_unwatch_removal`. It may be called several times. */
int uroce_port_watch_removal(uint16_t port, void (*gone)(uint16_t port));
/* Ends the calls, unless one is under way: then they go on, for a port that is not known any more.
 * To be called before the port is closed. */
int uroce_port_unwatch_removal(uint16_t port, void (*gone)(uint16_t port));
int uroce_port_stats(uint16_t port, struct uroce_port_stats *stats);
/* Stores up to `capacity` statistics and returns how many the port has. */
int uroce_port_xstats(uint16_t port, struct uroce_xstat *out, uint32_t capacity);

/* Stores up to `capacity` entries of the table by which the driver spreads received packets over
 * queues (RSS RETA), and returns how many it has. -ENOTSUP if the driver has none, or does not tell
 * it. */
int uroce_port_reta(uint16_t port, uint16_t *queues, uint16_t capacity);
/* Makes packets of one entry of that table arrive at another queue. */
int uroce_port_reta_set(uint16_t port, uint16_t entry, uint16_t queue);

/* The hash that chooses the entry (Toeplitz). */
struct uroce_rss {
	uint8_t key[128];
	uint8_t key_len;
	uint8_t ipv4;     /* covers the addresses of IPv4 */
	uint8_t ipv4_udp; /* covers the addresses and ports of UDP over IPv4 */
	uint8_t ipv6;
	uint8_t ipv6_udp;
};
/* -ENOTSUP if the hash is another one, or the driver does not tell it. */
int uroce_port_rss(uint16_t port, struct uroce_rss *out);

/* Every returned mbuf has one segment. *dropped counts the packets that could not be linearised. */
uint16_t uroce_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
			uint32_t *dropped);
/* Returns n; the first n mbufs then belong to the driver. */
uint16_t uroce_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
/* Has the driver free the mbufs that were sent, if it can before the queue is nearly full. */
void uroce_tx_reclaim(uint16_t port, uint16_t queue);

/* ---- kernel interfaces behind a port -------------------------------------------------------- */

/* Makes ioctls of the calling thread that change an interface's flags or Ethernet address succeed
 * without effect, from now on. -errno if the kernel does not support this. */
int uroce_thread_spare_interfaces(void);
/* Makes an interface receive all frames, whatever their destination address, while the returned
 * descriptor is open. Needs only CAP_NET_RAW. */
int uroce_interface_listen(const char *name);
/* Number of frames that the kernel has dropped because the ring of a packet socket was full, since
 * the last call: the kernel counts from 0 again. */
int64_t uroce_packet_socket_dropped(int fd);

/* ---- rings of mbufs ------------------------------------------------------------------------ */

/* A ring for one producer and one consumer; `size` is a power of two. NULL on failure, with *error
 * set. */
struct rte_ring *uroce_ring_create(const char *name, uint32_t size, int socket, int *error);
/* Frees the ring and the mbufs in it. */
void uroce_ring_free(struct rte_ring *ring);
/* Makes a port that receives from rx[i] and sends to tx[i], and returns its number. */
int uroce_ring_port(const char *name, struct rte_ring **rx, struct rte_ring **tx,
		    uint16_t queues, int socket);

/* ---- telemetry ----------------------------------------------------------------------------- */

struct rte_tel_data;
typedef int (*uroce_tel_answer)(const char *command, const char *parameters,
				struct rte_tel_data *data);

/* Has `answer` called, on a thread of a client, for each question with this command. */
int uroce_tel_register(const char *command, uroce_tel_answer answer, const char *help);
/* An answer is a dictionary, an array of numbers or, with `strings`, an array of strings. */
int uroce_tel_start_dict(struct rte_tel_data *data);
int uroce_tel_start_array(struct rte_tel_data *data, int strings);
int uroce_tel_add_u64(struct rte_tel_data *data, const char *name, uint64_t value);
int uroce_tel_add_string(struct rte_tel_data *data, const char *name, const char *value);
int uroce_tel_push_u64(struct rte_tel_data *data, uint64_t value);
int uroce_tel_push_string(struct rte_tel_data *data, const char *value);

/* ---- DPDK's own descriptions ---------------------------------------------------------------- */

#define UROCE_DUMP_MEMPOOL 0
#define UROCE_DUMP_MEMZONE 1
#define UROCE_DUMP_PHYSMEM 2
#define UROCE_DUMP_RING 3
#define UROCE_DUMP_LCORES 4
#define UROCE_DUMP_LOG_TYPES 5
#define UROCE_DUMP_SOCKET_MEM 6

/* DPDK's description of one of these, terminated, which uroce_dump_free frees. NULL if memory is
 * short. */
char *uroce_dump(int what);
void uroce_dump_free(char *text);

/* ---- time ---------------------------------------------------------------------------------- */

/* Reads the cycle counter, for targets where Rust has no intrinsic for it. */
uint64_t uroce_cycles(void);

#endif
