/* Memory that comes and goes at random: a thread unmaps, maps, protects, moves and cuts off pages of a
 * mapping, as a seed has it. UROCE_SEED repeats a run as far as threads allow, UROCE_SECONDS sets how
 * long it takes. */

#pragma once

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

enum { TARGET_PAGE = 4096, TARGET_SIZE = 1 << 20 };
/* Far below everything that the kernel places itself, so that nothing else comes to be in the holes. */
static char *const target = (char *)(1ULL << 41);

static unsigned long long seed;
static int target_file;
static volatile bool is_over;
static pthread_t disturber;

static unsigned long long draw(unsigned long long *state, unsigned long long below)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*state >> 33) % below;
}

/* Draws the seed, unless it is given, and prints it. */
static void take_seed(void)
{
	const char *given = getenv("UROCE_SEED");
	seed = given ? strtoull(given, NULL, 0) : (unsigned long long)time(NULL) << 20 ^ getpid();
	printf("UROCE_SEED=%llu\n", seed);
	fflush(stdout);
}

static int seconds_to_run(void)
{
	const char *given = getenv("UROCE_SECONDS");
	return given ? atoi(given) : 3;
}

static void map_target(int flags)
{
	CHECK(!ftruncate(target_file, TARGET_SIZE));
	int rights = PROT_READ | PROT_WRITE;
	CHECK(mmap(target, TARGET_SIZE, rights, MAP_SHARED | flags, target_file, 0) == target);
}

static void *disturb(void *ignored)
{
	static const int PROTECTIONS[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };
	static const int FRESH = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	unsigned long long state = seed ^ 0x5555;
	while (!is_over) {
		size_t pages = TARGET_SIZE / TARGET_PAGE, from = draw(&state, pages);
		size_t len = (1 + draw(&state, pages - from)) * TARGET_PAGE;
		char *place = target + from * TARGET_PAGE;
		switch (draw(&state, 12)) {
		case 0:
			/* There may be holes. */
			mprotect(place, len, PROTECTIONS[draw(&state, 3)]);
			break;
		case 1:
			CHECK(mmap(place, len, PROTECTIONS[draw(&state, 3)], FRESH, -1, 0) == place);
			break;
		case 2:
			CHECK(!munmap(place, len));
			break;
		case 3:
			CHECK(!ftruncate(target_file, from * TARGET_PAGE));
			break;
		case 4:
			madvise(place, len, MADV_DONTNEED);
			break;
		case 5: {
			/* Of one mapping only, and what is moved comes to an end elsewhere. */
			char *moved = mremap(place, TARGET_PAGE, TARGET_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
					     target + 4 * TARGET_SIZE);
			CHECK(moved == MAP_FAILED || !munmap(moved, TARGET_PAGE));
			break;
		}
		default:
			map_target(MAP_FIXED);
		}
		usleep(draw(&state, 600));
	}
	return ignored;
}

static void begin_to_disturb(void)
{
	target_file = memfd_create("target", 0);
	CHECK(target_file >= 0);
	map_target(MAP_FIXED_NOREPLACE);
	CHECK(!pthread_create(&disturber, NULL, disturb, NULL));
}

/* All of it is there again afterwards. */
static void end_of_disturbance(void)
{
	is_over = true;
	CHECK(!pthread_join(disturber, NULL));
	map_target(MAP_FIXED);
}
