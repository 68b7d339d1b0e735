/* The C part of the programs that tests/runtimes.rs runs under a language's runtime, which has handlers
 * of SIGSEGV and SIGBUS of its own and lives from them. */

#include "gone.h"

#include <signal.h>
#include <stdatomic.h>

/* What the runtime installed, of SIGSEGV and SIGBUS. */
static struct sigaction runtimes[2];
/* How many signals have come as far as the runtime. */
static atomic_long faults;

static void count(int signal, siginfo_t *info, void *frame)
{
	faults++;
	runtimes[signal == SIGBUS].sa_sigaction(signal, info, frame);
}

/* As a crash reporter does: a handler that counts, and passes everything on to the runtime's. */
static void count_signals(void)
{
	for (int at = 0; at < 2; at++) {
		int signal = at ? SIGBUS : SIGSEGV;
		CHECK(!sigaction(signal, NULL, &runtimes[at]) && runtimes[at].sa_flags & SA_SIGINFO);
		struct sigaction action = runtimes[at];
		action.sa_sigaction = count;
		CHECK(!sigaction(signal, &action, NULL));
	}
}

static void open_device(void)
{
	count_signals();
	make();
}

/* Loses two regions. Nothing is unmapped: the runtime's memory could come to be there. */
static void lose_regions(void)
{
	lose(1);
	lose(2);
}

static long count_of_faults(void)
{
	return faults;
}

static void fault_in_c(void)
{
	*(volatile char *)8 = 1;
}
