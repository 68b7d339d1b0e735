// Becomes another user, as a daemon does, and then makes its first call of the RDMA library.
#include <dirent.h>
#include <grp.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	if (setgroups(0, NULL) || setgid(USER) || setuid(USER))
		return 1;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
	if (context == NULL || ibv_create_cq(context, 1, NULL, NULL, 0) == NULL)
		return 1;
	puts("made a CQ");
	char folder[64];
	snprintf(folder, sizeof folder, "/tmp/uroce-%d", USER);
	DIR *run = opendir(folder);
	if (run != NULL)
		printf("runs in %s\n", folder);
	return run == NULL;
}
