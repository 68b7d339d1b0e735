// Uses DPDK itself, and makes a CQ. The argument says whether it starts DPDK's EAL `first`, or
// `last` and then makes another CQ.
#include <infiniband/verbs.h>
#include <rte_eal.h>
#include <stdio.h>
#include <string.h>

static void start_eal(void)
{
	char *words[] = {"eal", "--no-huge", "-m", "64", "--no-pci", "--no-shconf", "-l", "0", NULL};
	puts(rte_eal_init(8, words) < 0 ? "EAL is refused" : "EAL runs");
}

static int make_cq(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	puts(cq == NULL ? "no CQ" : "made a CQ");
	return cq == NULL;
}

int main(int argc, char **words)
{
	int is_first = argc > 1 && strcmp(words[1], "first") == 0;
	if (is_first)
		start_eal();
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
	if (context == NULL || make_cq(context))
		return 1;
	if (is_first)
		return 0;
	start_eal();
	return make_cq(context);
}
