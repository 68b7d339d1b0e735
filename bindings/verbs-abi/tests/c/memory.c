/* The claims of tests/memory.rs about memory that does not exist or is removed: one function per
 * claim, selected by the only argument. Two queue pairs of one process communicate through the
 * device's own address. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "churn.h"
#include "gone.h"

static void memory_that_is_gone_is_the_requests_fault(void)
{
	static const uint32_t LENGTHS[] = { 1, 8, 24, 64, 200, 1000, 5000, 1 << 19 };
	make();
	for (int way = 0; way < WAY_COUNT; way++) {
		for (unsigned at = 0; at < sizeof LENGTHS / sizeof *LENGTHS; at++) {
			uint32_t len = LENGTHS[at];
			for (int turn = 0; turn < 8; turn++) {
				char *place = some();
				struct ibv_mr *mr = ibv_reg_mr(pd, place, SIZE, RIGHTS);
				CHECK(mr);
				take_away(place, way);
				char *middle = place + SIZE / 2 - 64;
				uint32_t mine = mr->lkey, yours = mr->rkey, key = good_mr->lkey;
				enum ibv_wr_opcode add = IBV_WR_ATOMIC_FETCH_AND_ADD, swap = IBV_WR_ATOMIC_CMP_AND_SWP;
				int got, want = turn < 4 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
				if (turn == 0)
					got = ask(IBV_WR_RDMA_WRITE, good, key, len, middle, yours);
				else if (turn == 1)
					got = ask(IBV_WR_RDMA_READ, good, key, len, middle, yours);
				else if (turn == 2)
					got = ask(add, good, key, 8, middle, yours);
				else if (turn == 3)
					got = ask(swap, good, key, 8, middle, yours);
				else if (turn == 4)
					got = ask(IBV_WR_RDMA_WRITE, middle, mine, len, good, key);
				else if (turn == 5)
					got = ask(IBV_WR_RDMA_READ, middle, mine, len, good, key);
				else if (turn == 6)
					got = ask(add, middle, mine, 8, good, key);
				else {
					struct ibv_sge sge = { (uintptr_t)middle, len, mine };
					struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
					CODE(ibv_post_recv(qps[1], &wr, &bad), 0);
					got = ask(IBV_WR_SEND, good, key, len, NULL, 0);
					want = IBV_WC_REM_OP_ERR;
					CODE(next(cqs[1]), IBV_WC_LOC_PROT_ERR);
				}
				if (got != want)
					printf("%s, %u bytes, turn %d\n", WAYS[way], len, turn);
				CODE(got, want);
				CODE(ibv_dereg_mr(mr), 0);
				if (way != 0)
					munmap(place, SIZE);
				join();
			}
		}
	}
	still_works();
}

/* A region with memory that was found missing stays closed, even if memory is mapped there again.
 * Registering it again opens it. */
static void a_region_that_has_lost_its_memory_stays_closed(void)
{
	make();
	char *place = some();
	struct ibv_mr *mr = ibv_reg_mr(pd, place, SIZE, RIGHTS), *other = ibv_reg_mr(pd, good, PAGE, RIGHTS);
	CHECK(mr && other);
	CHECK(!mprotect(place + PAGE, PAGE, PROT_READ));
	/* Reading is still allowed. */
	CODE(ask(IBV_WR_RDMA_READ, good, good_mr->lkey, 3 * PAGE, place, mr->rkey), IBV_WC_SUCCESS);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 3 * PAGE, place, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	join();
	CHECK(!mprotect(place + PAGE, PAGE, PROT_READ | PROT_WRITE));
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 8, place, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	join();
	CODE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, place, SIZE, 0), 0);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 8, place, mr->rkey), IBV_WC_SUCCESS);
	still_works();
}

/* A window on missing memory gives no access, and its region is closed too. */
static void a_window_onto_memory_that_is_gone_opens_nothing(void)
{
	make();
	char *place = some();
	struct ibv_mr *mr = ibv_reg_mr(pd, place, SIZE, RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mr && window);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	bind.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)place, SIZE, IBV_ACCESS_REMOTE_WRITE };
	CODE(ibv_bind_mw(qps[1], window, &bind), 0);
	CODE(next(cqs[1]), IBV_WC_SUCCESS);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, window->rkey), IBV_WC_SUCCESS);
	take_away(place, 2);
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, window->rkey), IBV_WC_REM_ACCESS_ERR);
	join();
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, window->rkey), IBV_WC_REM_ACCESS_ERR);
	join();
	CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	CODE(ibv_dealloc_mw(window), 0);
	CODE(ibv_dereg_mr(mr), 0);
	still_works();
}

/* A full file system has no page for a hole in a file. */
static void a_page_that_cannot_be_had_is_not_registered(void)
{
	char place[] = "/tmp/uroce-full-XXXXXX", name[64];
	bool is_mounted = mkdtemp(place) && !unshare(CLONE_NEWNS) &&
			  !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
			  !mount("none", place, "tmpfs", 0, "size=64k");
	if (!is_mounted) {
		rmdir(place);
		printf("SKIP: needs root to mount a file system of its own\n");
		return;
	}
	snprintf(name, sizeof name, "%s/file", place);
	int hole = open(name, O_RDWR | O_CREAT, 0600);
	CHECK(hole >= 0 && !ftruncate(hole, 40 * PAGE));
	char *map = mmap(NULL, 40 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, hole, 0);
	CHECK(map != MAP_FAILED);
	pd = ibv_alloc_pd(context = open_first());
	CHECK(pd && ibv_reg_mr(pd, map, 8 * PAGE, RIGHTS));
	NONE(ibv_reg_mr(pd, map, 40 * PAGE, RIGHTS), EFAULT);
	NONE(ibv_reg_mr(pd, map, 40 * PAGE, IBV_ACCESS_REMOTE_READ), EFAULT);
	umount2(place, MNT_DETACH);
	rmdir(place);
}

static void a_registration_changes_no_byte(void)
{
	pd = ibv_alloc_pd(context = open_first());
	char *place = some(), *copy = malloc(SIZE);
	for (int at = 0; at < SIZE; at++)
		place[at] = copy[at] = at * 13 >> 3;
	for (int round = 0; round < 20; round++)
		CHECK(ibv_reg_mr(pd, place + round, SIZE - round, RIGHTS));
	CHECK(!memcmp(place, copy, SIZE));
	CHECK(!ftruncate(file, SIZE - PAGE));
	CHECK(ibv_reg_mr(pd, place, SIZE - PAGE, RIGHTS));
	NONE(ibv_reg_mr(pd, place, SIZE - PAGE + 1, RIGHTS), EFAULT);
	NONE(ibv_reg_mr(pd, place + SIZE - 1, 1, 0), EFAULT);
}

/* State of the program's own handlers. */
static sigjmp_buf back;
static volatile sig_atomic_t calls;
static struct sigaction saved;
static char *nowhere;

static void jump(int signal)
{
	(void)signal;
	calls++;
	siglongjmp(back, 1);
}

static void mend(int signal, siginfo_t *info, void *frame)
{
	(void)signal, (void)frame;
	calls++;
	CHECK(info->si_addr == nowhere);
	CHECK(!mprotect(nowhere, PAGE, PROT_READ | PROT_WRITE));
}

/* A handler that passes every signal on. */
static void pass_on(int signal, siginfo_t *info, void *frame)
{
	calls++;
	if (saved.sa_flags & SA_SIGINFO)
		saved.sa_sigaction(signal, info, frame);
	else
		saved.sa_handler(signal);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags, struct sigaction *old)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };
	CHECK(!sigaction(signal, &action, old));
}

static void lose_a_region(void)
{
	lose(calls % WAY_COUNT);
}

static void fault_and_be_mended(void)
{
	int before = calls;
	nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*(volatile char *)nowhere = 1;
	CHECK(calls == before + 1 && *nowhere == 1);
}

static void fault_and_jump(void)
{
	int before = calls;
	nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!sigsetjmp(back, 1))
		*(volatile char *)nowhere = 1;
	CHECK(calls == before + 1);
}

static void earlier_handlers_get_their_own_faults(void)
{
	handle(SIGSEGV, mend, 0, NULL);
	handle(SIGBUS, mend, SA_NODEFER, NULL);
	make();
	for (int round = 0; round < 5; round++) {
		fault_and_be_mended();
		lose_a_region();
	}
	CHECK(calls == 5);
}

static void later_handlers_get_their_own_faults(void)
{
	make();
	struct sigaction action = { .sa_handler = jump }, ours;
	CHECK(!sigaction(SIGSEGV, &action, &ours));
	CHECK(!sigaction(SIGBUS, &action, NULL));
	for (int round = 0; round < 5; round++) {
		/* The registration installs our handler before the program's. */
		lose_a_region();
		fault_and_jump();
	}
	/* Restores the former handlers: ours, then the default. */
	CHECK(!sigaction(SIGSEGV, &ours, NULL));
	lose_a_region();
	handle(SIGSEGV, mend, SA_NODEFER | SA_ONSTACK, NULL);
	lose_a_region();
	fault_and_be_mended();
	CHECK(calls == 6);
}

static void handlers_that_pass_on_to_each_other_end_somewhere(void)
{
	handle(SIGSEGV, mend, 0, NULL);
	make();
	for (int round = 0; round < 3; round++) {
		/* The program's handler saves ours, and ours is then installed before it again. */
		handle(SIGSEGV, pass_on, 0, &saved);
		lose_a_region();
		nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*(volatile char *)nowhere = 1;
		CHECK(*nowhere == 1);
	}
	printf("%d calls\n", calls);
	CHECK(calls >= 6 && calls < 100);
}

/* The exit status of a child that runs `body`. */
static int end_of(void (*body)(void))
{
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		body();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static void fault(void)
{
	*(volatile char *)8 = 1;
}

static void send_oneself_one(void)
{
	kill(getpid(), SIGSEGV);
	sleep(1);
}

static void fault_of_a_file(void)
{
	char *place = some();
	CHECK(!ftruncate(file, 0));
	*(volatile char *)place = 1;
}

static void mend_once_and_fault(void)
{
	calls = 0;
	nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*(volatile char *)nowhere = 1;
	CHECK(!mprotect(nowhere, PAGE, PROT_NONE));
	*(volatile char *)nowhere = 1;
}

static void a_fault_without_a_handler_ends_the_process_as_ever(void)
{
	make();
	lose_a_region();
	int status = end_of(fault);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = end_of(send_oneself_one);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = end_of(fault_of_a_file);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	/* SIG_IGN applies to signals that were sent, not to faults. */
	signal(SIGSEGV, SIG_IGN);
	lose_a_region();
	CODE(end_of(send_oneself_one), 0);
	status = end_of(fault);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	/* A handler that is reset after one signal. */
	handle(SIGSEGV, mend, SA_RESETHAND, NULL);
	lose_a_region();
	status = end_of(mend_once_and_fault);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* The handler needs an alternate stack, as the thread's own is exhausted. */
static char *lowest;

static void at_the_end_of_the_stack(int signal, siginfo_t *info, void *frame)
{
	(void)signal, (void)info, (void)frame;
	char here;
	calls++;
	CHECK(&here > lowest && &here < lowest + (1 << 16));
	siglongjmp(back, 1);
}

static int deeper(int depth)
{
	volatile char room[1 << 12];
	room[0] = depth;
	return depth > 1 << 20 ? room[0] : deeper(depth + 1) + room[0];
}

static void *overflow(void *ignored)
{
	stack_t stack = { .ss_sp = lowest = malloc(1 << 16), .ss_size = 1 << 16 };
	CHECK(!sigaltstack(&stack, NULL));
	if (!sigsetjmp(back, 1))
		deeper(0);
	return ignored;
}

static void a_stack_at_its_end_is_handled_on_another(void)
{
	make();
	handle(SIGSEGV, at_the_end_of_the_stack, SA_ONSTACK, NULL);
	lose_a_region();
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, overflow, NULL) && !pthread_join(thread, NULL));
	CHECK(calls == 1);
	lose_a_region();
}

/* A handler that the program installs when all its memory is registered: within a second or two the
 * library's handler stands before it again. */
static void a_handler_installed_after_the_last_registration_is_stood_before_in_time(void)
{
	make();
	for (int way = 1; way < 3; way++) {
		char *place = some();
		struct ibv_mr *mr = ibv_reg_mr(pd, place, SIZE, RIGHTS);
		CHECK(mr);
		struct sigaction action = { .sa_handler = jump }, segv, bus;
		CHECK(!sigaction(SIGSEGV, &action, NULL) && !sigaction(SIGBUS, &action, NULL));
		time_t begin = time(NULL);
		do {
			usleep(1000);
			CHECK(time(NULL) - begin < 10);
			CHECK(!sigaction(SIGSEGV, NULL, &segv) && !sigaction(SIGBUS, NULL, &bus));
		} while (segv.sa_handler == jump || bus.sa_handler == jump);
		take_away(place, way);
		CODE(ask(IBV_WR_RDMA_WRITE, good, good_mr->lkey, 64, place, mr->rkey), IBV_WC_REM_ACCESS_ERR);
		CHECK(calls == way - 1);
		still_works();
		fault_and_jump();
	}
}

/* The thread's alternate stack, NULL if it has none. */
static _Thread_local char *alternate;
enum { ALTERNATE_SIZE = 1 << 16 };

static void see_the_stack(int signal, siginfo_t *info, void *frame)
{
	char here;
	bool is_there = alternate && &here > alternate && &here < alternate + ALTERNATE_SIZE;
	CHECK(is_there == (alternate != NULL));
	mend(signal, info, frame);
}

/* The thread's own faults and those of the engine on this thread, which drives the lcore as it polls. */
static void *fault_in_both_ways(void *has_alternate)
{
	if (has_alternate) {
		stack_t stack = { .ss_sp = alternate = malloc(ALTERNATE_SIZE), .ss_size = ALTERNATE_SIZE };
		CHECK(alternate && !sigaltstack(&stack, NULL));
	}
	for (int round = 0; round < 8; round++) {
		lose_a_region();
		fault_and_be_mended();
	}
	return NULL;
}

static void in_threads_with_and_without_an_alternate_stack(void)
{
	for (int round = 0; round < 4; round++) {
		pthread_t thread;
		void *has_alternate = round % 2 ? (void *)&saved : NULL;
		CHECK(!pthread_create(&thread, NULL, fault_in_both_ways, has_alternate));
		CHECK(!pthread_join(thread, NULL));
	}
}

/* Handlers of before and of later run where the program has asked for. */
static void handlers_run_on_the_alternate_stack_of_a_thread_that_has_one(void)
{
	handle(SIGSEGV, see_the_stack, SA_ONSTACK, NULL);
	make();
	in_threads_with_and_without_an_alternate_stack();
	handle(SIGSEGV, see_the_stack, SA_ONSTACK | SA_NODEFER, NULL);
	in_threads_with_and_without_an_alternate_stack();
	CHECK(calls == 64);
}

/* For a program under AddressSanitizer, whose handler reports this and ends the process. */
static void a_fault_of_the_programs_own_is_reported(void)
{
	make();
	lose_a_region();
	fault();
}

static void *lose_with_signals_blocked(void *ignored)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, NULL));
	lose_a_region();
	return ignored;
}

/* Threads that poll run turns of the lcore. */
static void threads_that_block_all_signals_may_poll(void)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, NULL));
	make();
	for (int round = 0; round < 4; round++) {
		pthread_t thread;
		CHECK(!pthread_create(&thread, NULL, lose_with_signals_blocked, NULL));
		CHECK(!pthread_join(thread, NULL));
		calls++;
	}
}

static void memory_comes_and_goes_at_random_under_traffic(void)
{
	static const enum ibv_wr_opcode OPCODES[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	take_seed();
	make();
	begin_to_disturb();
	unsigned long long state = seed;
	time_t end = time(NULL) + seconds_to_run();
	long done = 0, failed = 0, refused = 0;
	while (time(NULL) < end) {
		struct ibv_mr *mr = ibv_reg_mr(pd, target, SIZE, RIGHTS);
		if (!mr) {
			CHECK(errno == EFAULT);
			refused++;
		}
		for (int round = 0; round < 20; round++) {
			/* Verified traffic between memory that stays. */
			size_t at = draw(&state, SIZE / 4);
			uint32_t len = 1 + draw(&state, 1 << draw(&state, 17));
			for (uint32_t byte = 0; byte < len; byte++)
				good[at + byte] = state >> byte % 48;
			memset(good + SIZE / 2 + at, 0, len);
			CODE(ask(IBV_WR_RDMA_WRITE, good + at, good_mr->lkey, len, good + SIZE / 2 + at,
				 good_mr->rkey), IBV_WC_SUCCESS);
			CHECK(!memcmp(good + at, good + SIZE / 2 + at, len));
			if (!mr)
				break;
			/* Traffic with memory that may be removed. */
			enum ibv_wr_opcode opcode = OPCODES[draw(&state, 4)];
			bool is_mine = opcode == IBV_WR_SEND ? false : draw(&state, 2);
			len = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : len;
			char *there = target + (draw(&state, SIZE - len) & ~7ULL);
			enum ibv_wc_status status;
			if (opcode == IBV_WR_SEND) {
				struct ibv_sge sge = { (uintptr_t)there, len, mr->lkey };
				struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
				CODE(ibv_post_recv(qps[1], &wr, &bad), 0);
				status = ask(opcode, good, good_mr->lkey, len, NULL, 0);
				enum ibv_wc_status other = next(cqs[1]);
				CHECK(status == IBV_WC_SUCCESS ? other == IBV_WC_SUCCESS :
				      status == IBV_WC_REM_OP_ERR && other == IBV_WC_LOC_PROT_ERR);
			} else if (is_mine) {
				status = ask(opcode, there, mr->lkey, len, good, good_mr->rkey);
				CHECK(status == IBV_WC_SUCCESS || status == IBV_WC_LOC_PROT_ERR);
			} else {
				status = ask(opcode, good, good_mr->lkey, len, there, mr->rkey);
				CHECK(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR);
			}
			done++;
			if (status) {
				failed++;
				join();
				break;
			}
		}
		if (mr)
			CODE(ibv_dereg_mr(mr), 0);
	}
	end_of_disturbance();
	printf("%ld done, %ld of them failed, %ld registrations refused\n", done, failed, refused);
	CHECK(done > 0);
	still_works();
}

static const struct claim claims[] = {
	CLAIM(memory_that_is_gone_is_the_requests_fault),
	CLAIM(a_region_that_has_lost_its_memory_stays_closed),
	CLAIM(a_window_onto_memory_that_is_gone_opens_nothing),
	CLAIM(a_page_that_cannot_be_had_is_not_registered),
	CLAIM(a_registration_changes_no_byte),
	CLAIM(earlier_handlers_get_their_own_faults),
	CLAIM(later_handlers_get_their_own_faults),
	CLAIM(handlers_that_pass_on_to_each_other_end_somewhere),
	CLAIM(a_fault_without_a_handler_ends_the_process_as_ever),
	CLAIM(a_stack_at_its_end_is_handled_on_another),
	CLAIM(a_handler_installed_after_the_last_registration_is_stood_before_in_time),
	CLAIM(handlers_run_on_the_alternate_stack_of_a_thread_that_has_one),
	CLAIM(a_fault_of_the_programs_own_is_reported),
	CLAIM(threads_that_block_all_signals_may_poll),
	CLAIM(memory_comes_and_goes_at_random_under_traffic),
};

int main(int argc, char **argv)
{
	return RUN(claims, argc, argv);
}
