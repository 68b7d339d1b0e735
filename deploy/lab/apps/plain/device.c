// Opens the first device, prints the interface of each GID, and makes a CQ. The argument is the path
// of an RDMA library to open; without one the program uses the one that it is linked with.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>

#define OF(library, name) ((__typeof__(&name))find(library, #name))

static void *find(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (found == NULL) {
		printf("no %s: %s\n", name, dlerror());
		exit(1);
	}
	return found;
}

int main(int argc, char **words)
{
	void *library = argc > 1 ? dlopen(words[1], RTLD_NOW) : RTLD_DEFAULT;
	if (argc > 1 && library == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	int count = 0;
	struct ibv_device **list = OF(library, ibv_get_device_list)(&count);
	struct ibv_context *context = count > 0 ? OF(library, ibv_open_device)(list[0]) : NULL;
	if (context == NULL) {
		printf("no device of %d\n", count);
		return 1;
	}
	struct ibv_gid_entry entries[64];
	ssize_t gids = ibv_query_gid_table(context, entries, 64, 0);
	for (ssize_t at = 0; at < gids; at++) {
		char name[IF_NAMESIZE] = "of no name";
		if_indextoname(entries[at].ndev_ifindex, name);
		printf("interface %s\n", name);
	}
	struct ibv_cq *cq = OF(library, ibv_create_cq)(context, 1, NULL, NULL, 0);
	if (cq == NULL)
		return 1;
	puts("made a CQ");
	OF(library, ibv_destroy_cq)(cq);
	OF(library, ibv_close_device)(context);
	OF(library, ibv_free_device_list)(list);
	return gids < 1;
}
