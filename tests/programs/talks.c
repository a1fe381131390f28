/* Messages between ranks in many patterns, counted by the program itself, by sender and receiver:
 * the truth of the communication matrix. HOW chooses the pattern:
 *
 *   ring      MPI_Sendrecv to the next rank, on a communicator with ranks in reverse order
 *   pipeline  each rank receives, works and sends on; the first one works longer
 *   sweep     a 2-D grid of ranks: from north and west, to south and east
 *   farm      rank 0 hands out tasks on request (MPI_ANY_SOURCE)
 *   ignored   farm without statuses
 *   halo      MPI_Irecv, MPI_Isend and MPI_Waitall with both neighbours; one rank works longer
 *   server    rank 0 serves requests from all ranks as they come (MPI_Waitany)
 *   some      server with MPI_Waitsome and MPI_Testsome
 *   again     persistent requests: MPI_Startall, MPI_Wait and MPI_Testall
 *   freed     requests that are freed, and receives that are cancelled
 *   matched   MPI_Mprobe and MPI_Improbe, MPI_Mrecv and MPI_Imrecv
 *   parts     partitioned requests: MPI_Pready for each of three partitions, in MPI 4
 *   handover  MPI_Ssend from even ranks to the next one, which works longer before it receives
 *   wander    halo, and the rank that works longer changes every five steps
 *
 * A barrier ends each step, except those of handover and wander. */
#include "subject.h"

#include <mpi.h>

#define MOST 64
#define LENGTH 12 /* doubles in a message */

static int rank, ranks;
static double sent[MOST], sent_bytes[MOST], received[MOST];

static void note_sent(int to, int bytes)
{
    sent[to] += 1;
    sent_bytes[to] += bytes;
}

static void note_received(int from)
{
    received[from] += 1;
}

/* MPICH's header and gcc report the constant as an array that is too short. */
static MPI_Status *volatile nobody_looks = MPI_STATUSES_IGNORE;

static double buffers[2 * MOST][LENGTH];

SHOWN void work_even(double ms)
{
    work_ms(ms);
    KEEP_FRAME();
}

SHOWN void work_longer(double ms)
{
    work_ms(ms);
    KEEP_FRAME();
}

static void work(int slow)
{
    if (rank == slow)
        work_longer(parameters.ms * parameters.factor);
    else
        work_even(parameters.ms);
}

static void send_to(int to, int count, MPI_Comm comm)
{
    MPI_Send(buffers[0], count, MPI_DOUBLE, to, 3, comm);
    note_sent(to, 8 * count);
}

static int receive_from(int from)
{
    MPI_Status status;
    MPI_Recv(buffers[1], LENGTH, MPI_DOUBLE, from, 3, MPI_COMM_WORLD, &status);
    note_received(status.MPI_SOURCE);
    return status.MPI_SOURCE;
}

static MPI_Comm reversed;

static void ring(void)
{
    /* In `reversed` the next rank is the one before. */
    int mine = ranks - 1 - rank, next = (mine + 1) % ranks, last = (mine + ranks - 1) % ranks;
    work(0);
    MPI_Sendrecv(buffers[0], LENGTH, MPI_DOUBLE, next, 3, buffers[1], LENGTH, MPI_DOUBLE, last, 3,
                 reversed, MPI_STATUS_IGNORE);
    note_sent(ranks - 1 - next, 8 * LENGTH);
    note_received(ranks - 1 - last);
    MPI_Sendrecv_replace(buffers[1], 2, MPI_DOUBLE, next, 4, last, 4, reversed, MPI_STATUS_IGNORE);
    note_sent(ranks - 1 - next, 16);
    note_received(ranks - 1 - last);
}

static void pipeline(void)
{
    if (rank > 0)
        receive_from(rank - 1);
    work(0);
    if (rank < ranks - 1)
        send_to(rank + 1, LENGTH, MPI_COMM_WORLD);
}

static void sweep(void)
{
    int columns = ranks % 2 ? ranks : ranks / 2;
    int west = rank % columns ? rank - 1 : -1, east = (rank + 1) % columns ? rank + 1 : -1;
    int north = rank - columns, south = rank + columns < ranks ? rank + columns : -1;
    if (west >= 0)
        receive_from(west);
    if (north >= 0)
        receive_from(north);
    work(0);
    if (east >= 0)
        send_to(east, LENGTH, MPI_COMM_WORLD);
    if (south >= 0)
        send_to(south, 2, MPI_COMM_WORLD);
}

static void farm(void)
{
    int tasks = 3 * (ranks - 1);
    if (rank == 0) {
        for (int task = 0; task < tasks; task++) {
            int worker = receive_from(MPI_ANY_SOURCE);
            send_to(worker, 1 + task % LENGTH, MPI_COMM_WORLD);
        }
        return;
    }
    for (int task = 0; task < 3; task++) {
        work(1);
        send_to(0, LENGTH, MPI_COMM_WORLD);
        receive_from(0);
    }
}

static void ignored(void)
{
    for (int other = 1; rank == 0 && other < ranks; other++)
        MPI_Recv(buffers[1], LENGTH, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank > 0)
        send_to(0, LENGTH, MPI_COMM_WORLD);
}

static void exchange(void)
{
    MPI_Request requests[4];
    int count = 0;
    for (int side = -1; side <= 1; side += 2) {
        int other = rank + side;
        if (other < 0 || other >= ranks)
            other = MPI_PROC_NULL;
        MPI_Irecv(buffers[1 + count], LENGTH, MPI_DOUBLE, other, 3, MPI_COMM_WORLD,
                  &requests[count]);
        count++;
        MPI_Isend(buffers[0], LENGTH, MPI_DOUBLE, other, 3, MPI_COMM_WORLD, &requests[count]);
        count++;
        if (other != MPI_PROC_NULL) {
            note_received(other);
            note_sent(other, 8 * LENGTH);
        }
    }
    MPI_Waitall(count, requests, nobody_looks);
}

static void halo(void)
{
    work(ranks / 2);
    exchange();
}

static void wander(void)
{
    static int step;
    work(step++ / 5 % ranks);
    exchange();
}

static void handover(void)
{
    if (rank % 2 == 0) {
        work_even(parameters.ms);
        if (rank + 1 < ranks) {
            MPI_Ssend(buffers[0], LENGTH, MPI_DOUBLE, rank + 1, 3, MPI_COMM_WORLD);
            note_sent(rank + 1, 8 * LENGTH);
        }
    } else {
        work_longer(parameters.ms * parameters.factor);
        receive_from(rank - 1);
    }
}

static void client(void)
{
    for (int task = 0; task < 3; task++) {
        work(ranks - 1);
        send_to(0, LENGTH, MPI_COMM_WORLD);
        receive_from(0);
    }
}

static void server(void)
{
    if (rank > 0) {
        client();
        return;
    }
    MPI_Request requests[MOST];
    int left[MOST];
    for (int other = 1; other < ranks; other++) {
        MPI_Irecv(buffers[other], LENGTH, MPI_DOUBLE, other, 3, MPI_COMM_WORLD,
                  &requests[other - 1]);
        left[other] = 3;
    }
    for (int all = 3 * (ranks - 1); all > 0; all--) {
        int at;
        MPI_Status status;
        MPI_Waitany(ranks - 1, requests, &at, &status);
        int other = at + 1;
        note_received(other);
        send_to(other, 2, MPI_COMM_WORLD);
        if (--left[other] > 0)
            MPI_Irecv(buffers[other], LENGTH, MPI_DOUBLE, other, 3, MPI_COMM_WORLD, &requests[at]);
    }
}

static void some(void)
{
    if (rank > 0) {
        client();
        return;
    }
    MPI_Request requests[MOST];
    int indices[MOST], count, left[MOST];
    MPI_Status statuses[MOST];
    /* From any rank: the statuses name the senders. */
    for (int other = 1; other < ranks; other++) {
        MPI_Irecv(buffers[other], LENGTH, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                  &requests[other - 1]);
        left[other] = 3;
    }
    for (int all = 3 * (ranks - 1), round = 0; all > 0; round++) {
        if (round % 2)
            MPI_Testsome(ranks - 1, requests, &count, indices, statuses);
        else
            MPI_Waitsome(ranks - 1, requests, &count, indices, statuses);
        for (int it = 0; it < count; it++, all--) {
            int at = indices[it];
            note_received(statuses[it].MPI_SOURCE);
            send_to(statuses[it].MPI_SOURCE, 2, MPI_COMM_WORLD);
            if (--left[at + 1] > 0)
                MPI_Irecv(buffers[at + 1], LENGTH, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                          &requests[at]);
        }
    }
}

static MPI_Request kept[2];

static void prepare_again(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    MPI_Recv_init(buffers[1], LENGTH, MPI_DOUBLE, last, 3, MPI_COMM_WORLD, &kept[0]);
    MPI_Send_init(buffers[0], 5, MPI_DOUBLE, next, 3, MPI_COMM_WORLD, &kept[1]);
}

static void again(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, done = 0;
    work(0);
    MPI_Startall(2, kept);
    while (!done)
        MPI_Testall(2, kept, &done, nobody_looks);
    MPI_Start(&kept[1]);
    MPI_Start(&kept[0]);
    MPI_Wait(&kept[0], MPI_STATUS_IGNORE);
    MPI_Wait(&kept[1], MPI_STATUS_IGNORE);
    note_sent(next, 40);
    note_sent(next, 40);
    note_received(last);
    note_received(last);
}

#if MPI_VERSION >= 4
#define PARTITIONS 3

static void prepare_parts(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    MPI_Precv_init(buffers[1], PARTITIONS, 2, MPI_DOUBLE, last, 5, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &kept[0]);
    MPI_Psend_init(buffers[0], PARTITIONS, 2, MPI_DOUBLE, next, 5, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &kept[1]);
}

static void parts(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    work(0);
    MPI_Startall(2, kept);
    for (int part = 0; part < PARTITIONS; part++)
        MPI_Pready(part, kept[1]);
    MPI_Waitall(2, kept, nobody_looks);
    note_sent(next, PARTITIONS * 16);
    note_received(last);
}
#endif

static void freed(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    MPI_Request request, never;
    /* No rank sends with this tag. */
    MPI_Irecv(buffers[2], LENGTH, MPI_DOUBLE, last, 99, MPI_COMM_WORLD, &never);
    MPI_Cancel(&never);
    MPI_Wait(&never, MPI_STATUS_IGNORE);
    MPI_Isend(buffers[0], 3, MPI_DOUBLE, next, 3, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    note_sent(next, 24);
    receive_from(last);
}

static void matched(void)
{
    int next = (rank + 1) % ranks;
    MPI_Message message;
    MPI_Status status;
    MPI_Request requests[2];
    for (int it = 0; it < 2; it++) {
        MPI_Isend(buffers[0], 4, MPI_DOUBLE, next, 3, MPI_COMM_WORLD, &requests[it]);
        note_sent(next, 32);
    }
    MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(buffers[1], LENGTH, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
    note_received(status.MPI_SOURCE);
    int found = 0;
    while (!found)
        MPI_Improbe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &found, &message, &status);
    MPI_Request request;
    MPI_Imrecv(buffers[2], LENGTH, MPI_DOUBLE, &message, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    note_received(status.MPI_SOURCE);
    MPI_Waitall(2, requests, nobody_looks);
}

static const struct {
    const char *name;
    void (*step)(void);
    int slow; /* -1: no rank works longer; -2: the one in the middle; -3: the last one */
    void (*prepare)(void); /* makes the persistent requests `kept`, unless NULL */
} patterns[] = {
    {"ring", ring, 0, NULL},
    {"pipeline", pipeline, 0, NULL},
    {"sweep", sweep, 0, NULL},
    {"farm", farm, 1, NULL},
    {"ignored", ignored, -1, NULL},
    {"halo", halo, -2, NULL},
    {"server", server, -3, NULL},
    {"some", some, -3, NULL},
    {"again", again, 0, prepare_again},
#if MPI_VERSION >= 4
    {"parts", parts, 0, prepare_parts},
#endif
    {"freed", freed, -1, NULL},
    {"matched", matched, -1, NULL},
    {"handover", handover, -1, NULL},
    {"wander", wander, -1, NULL},
};

static void tell_of_all(FILE *truth, const char *key, const double *values)
{
    static double all[MOST * MOST];
    MPI_Gather(values, ranks, MPI_DOUBLE, all, ranks, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (truth)
        tell_numbers(truth, key, all, ranks * ranks);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    size_t chosen = 0, count = sizeof patterns / sizeof *patterns;
    while (chosen < count && strcmp(patterns[chosen].name, parameters.how) != 0)
        chosen++;
    if (ranks > MOST || chosen == count)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (patterns[chosen].prepare)
        patterns[chosen].prepare();
    for (int iteration = 0; iteration < parameters.iterations; iteration++) {
        patterns[chosen].step();
        if (patterns[chosen].step != handover && patterns[chosen].step != wander)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    if (patterns[chosen].prepare) {
        MPI_Request_free(&kept[0]);
        MPI_Request_free(&kept[1]);
    }
    FILE *truth = rank == 0 ? open_truth("talks") : NULL;
    int slow = patterns[chosen].slow;
    slow = slow == -2 ? ranks / 2 : slow == -3 ? ranks - 1 : slow;
    if (truth) {
        tell_number(truth, "ranks", ranks);
        tell_number(truth, "slow", slow);
    }
    tell_of_all(truth, "sent", sent);
    tell_of_all(truth, "sent_bytes", sent_bytes);
    tell_of_all(truth, "received", received);
    if (truth)
        close_truth(truth);
    if (rank == 0)
        printf("talks %s done\n", parameters.how);
    MPI_Finalize();
    return 0;
}
