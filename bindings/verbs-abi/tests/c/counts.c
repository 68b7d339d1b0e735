/* The claim of tests/counts.rs, as a program to which `uroce-run` shows the tree. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "circle.h"

#define DEVICE "/sys/class/infiniband/uroce0/"

static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/* The value in a counter's file, or -1 if there is no file. */
static long long count(const char *path)
{
	long long value = -1;
	FILE *file = fopen(path, "r");
	if (file) {
		CHECK(fscanf(file, "%lld\n", &value) == 1);
		fclose(file);
	}
	return value;
}

static void counts_move_while_a_program_runs(void)
{
	static char memory[4096];
	const char *looped = DEVICE "hw_counters/looped_packets";
	struct ibv_context *context = open_first();
	CHECK(count(DEVICE "ports/1/counters/port_xmit_data") == 0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, RIGHTS);
	CHECK(qp && mr);
	close_circle(qp, RIGHTS);
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory + 2048, mr->rkey } };
	struct ibv_send_wr *bad;
	CODE(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	/* The request and its acknowledgement are counted within about a second. */
	for (int tries = 0; count(looped) < 2 && tries < 600; tries++)
		usleep(50000);
	CHECK(count(looped) >= 2);
	/* The counters of a device's only port are those of the device. */
	CHECK(count(DEVICE "ports/1/hw_counters/looped_packets") >= 2);
}

static const struct claim CLAIMS[] = { CLAIM(counts_move_while_a_program_runs) };

int main(int argc, char **argv)
{
	return RUN(CLAIMS, argc, argv);
}
