/* An MPI program that verifies every byte: a ring, collectives, and one-sided access. Two ranks
 * also measure latency and bandwidth, and more ranks the time of an alltoall. Prints a line per step,
 * such as "ring ok", and per figure, such as "figure latency_us 3.1".
 *
 * Usage: mpi_check ROUNDS */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes per message: below and above what engines send eagerly, and not a multiple of a packet. */
static const int SIZES[] = {8, 4097, 300001};
enum { KINDS = sizeof SIZES / sizeof SIZES[0], LONGEST = 300001, LATENCY_BYTES = 8 };
enum { BANDWIDTH_BYTES = 65536, WINDOW = 16, ROUNDS_BEFORE = 20 };

static int rank, ranks;

/* The byte at a place of a message between two ranks in a round. */
static unsigned char pattern(int from, int to, int round, int at) {
    unsigned value = (unsigned)from * 131 + (unsigned)to * 31 + (unsigned)round * 17 + (unsigned)at;
    return (unsigned char)(value * 2654435761u >> 24);
}

static void fill(unsigned char *bytes, int length, int from, int to, int round) {
    for (int at = 0; at < length; at++) bytes[at] = pattern(from, to, round, at);
}

static void verify(const char *step, const unsigned char *bytes, int length, int from, int to,
                   int round) {
    for (int at = 0; at < length; at++) {
        if (bytes[at] != pattern(from, to, round, at)) {
            printf("%s: rank %d: wrong byte %d of %d from rank %d in round %d\n", step, rank, at,
                   length, from, round);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void *memory(size_t bytes) {
    void *place = malloc(bytes);
    if (!place) MPI_Abort(MPI_COMM_WORLD, 2);
    return place;
}

/* Each rank sends to the next one. */
static void ring(int rounds) {
    unsigned char *out = memory(LONGEST), *in = memory(LONGEST);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int round = 0; round < rounds; round++) {
        int length = SIZES[round % KINDS];
        fill(out, length, rank, next, round);
        MPI_Sendrecv(out, length, MPI_BYTE, next, 0, in, length, MPI_BYTE, before, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify("ring", in, length, before, rank, round);
    }
    free(out);
    free(in);
}

/* The sum over all ranks of vectors of several lengths. */
static void allreduce(int rounds) {
    enum { NUMBERS = LONGEST / 4 };
    int *numbers = memory(NUMBERS * sizeof *numbers), *sums = memory(NUMBERS * sizeof *sums);
    int of_ranks = ranks * (ranks - 1) / 2;
    for (int round = 0; round < rounds; round++) {
        int count = SIZES[round % KINDS] / 4;
        for (int at = 0; at < count; at++) numbers[at] = rank + at + round;
        MPI_Allreduce(numbers, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < count; at++) {
            if (sums[at] != of_ranks + ranks * (at + round)) MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    free(numbers);
    free(sums);
}

/* Each rank has a message for every rank. */
static void alltoall(int rounds) {
    size_t room = (size_t)LONGEST * (size_t)ranks;
    unsigned char *out = memory(room), *in = memory(room);
    for (int round = 0; round < rounds; round++) {
        int length = SIZES[round % KINDS];
        for (int to = 0; to < ranks; to++) fill(out + (size_t)to * length, length, rank, to, round);
        MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++)
            verify("alltoall", in + (size_t)from * length, length, from, rank, round);
    }
    free(out);
    free(in);
}

/* Each rank puts to the next rank's window, then gets from the window of the rank before. */
static void one_sided(int rounds) {
    unsigned char *shown, *mine = memory(LONGEST);
    MPI_Win window;
    MPI_Win_allocate(LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shown, &window);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int round = 0; round < rounds; round++) {
        int length = SIZES[round % KINDS];
        fill(mine, length, rank, next, round);
        MPI_Win_fence(0, window);
        MPI_Put(mine, length, MPI_BYTE, next, 0, length, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        verify("put", shown, length, before, rank, round);
        fill(shown, length, rank, rank, round);
        MPI_Win_fence(0, window);
        MPI_Get(mine, length, MPI_BYTE, before, 0, length, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        verify("get", mine, length, before, before, round);
    }
    /* A counter at rank 0, to which all ranks add. */
    long one = 1, total = 0, *counter;
    MPI_Win counting;
    MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter,
                     &counting);
    *counter = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counting);
        MPI_Fetch_and_op(&one, &total, MPI_LONG, 0, 0, MPI_SUM, counting);
        MPI_Win_unlock(0, counting);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counting);
    MPI_Get(&total, 1, MPI_LONG, 0, 0, 1, MPI_LONG, counting);
    MPI_Win_unlock(0, counting);
    if (total != (long)ranks * rounds) MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Win_free(&counting);
    MPI_Win_free(&window);
    free(mine);
}

/* Half a round trip of a short message, in microseconds. */
static double latency(int rounds) {
    char bytes[LATENCY_BYTES] = {0};
    double start = 0;
    for (int round = -ROUNDS_BEFORE; round < rounds; round++) {
        if (round == 0) start = MPI_Wtime();
        for (int turn = 0; turn < 2; turn++) {
            if (turn == rank)
                MPI_Send(bytes, LATENCY_BYTES, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
            else
                MPI_Recv(bytes, LATENCY_BYTES, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
    }
    return (MPI_Wtime() - start) * 1e6 / rounds / 2;
}

/* Gigabits per second from rank 0 to rank 1, with several messages under way. */
static double bandwidth(int rounds) {
    char *bytes = memory((size_t)BANDWIDTH_BYTES * WINDOW), done = 0;
    MPI_Request under_way[WINDOW];
    MPI_Status ended[WINDOW];
    double start = 0;
    for (int round = -2; round < rounds; round++) {
        if (round == 0) start = MPI_Wtime();
        for (int at = 0; at < WINDOW; at++) {
            char *place = bytes + (size_t)at * BANDWIDTH_BYTES;
            if (rank == 0)
                MPI_Isend(place, BANDWIDTH_BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &under_way[at]);
            else
                MPI_Irecv(place, BANDWIDTH_BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &under_way[at]);
        }
        MPI_Waitall(WINDOW, under_way, ended);
        if (rank == 0)
            MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    double seconds = MPI_Wtime() - start;
    free(bytes);
    return 8e-9 * BANDWIDTH_BYTES * WINDOW * rounds / seconds;
}

static void say(const char *line) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts(line);
        fflush(stdout);
    }
}

int main(int count, char **words) {
    int rounds = count > 1 ? atoi(words[1]) : 0;
    if (rounds < 1) {
        fprintf(stderr, "usage: mpi_check ROUNDS\n");
        return 2;
    }
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ring(rounds);
    say("ring ok");
    allreduce(rounds);
    say("allreduce ok");
    double start = MPI_Wtime();
    alltoall(rounds);
    double seconds = MPI_Wtime() - start;
    say("alltoall ok");
    one_sided(rounds);
    say("one-sided ok");
    if (ranks == 2) {
        double us = latency(rounds * 50), gbps = bandwidth(rounds * 5);
        if (rank == 0) printf("figure latency_us %.2f\nfigure bandwidth_gbps %.2f\n", us, gbps);
    } else if (rank == 0) {
        printf("figure alltoall_ms %.2f\n", seconds * 1e3 / rounds);
    }
    MPI_Finalize();
    return 0;
}
