/* Common to the programs with claims: a failure prints a line to stderr and exits with status 1. */

#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim) check((claim), #claim, __LINE__)
/* For calls that return an error number. */
#define CODE(call, number) same((call), (number), #call, __LINE__)
/* For calls that return NULL or -1 and set errno. */
#define NONE(call, number) \
	(errno = 0, check((call) == NULL, #call, __LINE__), same(errno, (number), #call, __LINE__))
#define MINUS(call, number) \
	(errno = 0, check((call) == -1, #call, __LINE__), same(errno, (number), #call, __LINE__))

static void check(bool is_so, const char *claim, int line)
{
	if (!is_so) {
		fprintf(stderr, "line %d: not so: %s (errno %d, %s)\n", line, claim, errno, strerror(errno));
		exit(1);
	}
}

static void same(int got, int expected, const char *claim, int line)
{
	if (got != expected) {
		fprintf(stderr, "line %d: %d, not %d: %s\n", line, got, expected, claim);
		exit(1);
	}
}

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

/* A claim. A program checks one claim per run, because each process has its own engine. */
struct claim {
	const char *name;
	void (*body)(void);
};

#define CLAIM(name) { #name, name }
#define RUN(claims, argc, argv) run((claims), sizeof(claims) / sizeof *(claims), (argc), (argv))

static inline int run(const struct claim *claims, size_t count, int argc, char **argv)
{
	for (size_t at = 0; argc == 2 && at < count; at++) {
		if (!strcmp(claims[at].name, argv[1])) {
			claims[at].body();
			return 0;
		}
	}
	fprintf(stderr, "one claim\n");
	return 2;
}
