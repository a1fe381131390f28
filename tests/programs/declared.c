/* One rank is slow in each iteration, another one in the next, and the ranks come together in a
 * function of their own that exchanges messages (a dissemination barrier): no call of MPI
 * synchronises them. HOW selects the messages: sendrecv (default), requests (one MPI_Waitall in
 * each round), tail (the same for two ranks, which need one round; the MPI_Waitall is the last
 * instruction of its function) or rows (two groups of ranks, each on its own communicator). */
#include "ranks.h"

static MPI_Comm everyone = MPI_COMM_WORLD;

static bool is_how(const char *how)
{
    return strcmp(parameters.how, how) == 0;
}

/* Exchanges an empty message with the ranks at this distance. */
static int exchange(int me, int size, int distance)
{
    int to = (me + distance) % size, from = (me - distance + size) % size;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    if (is_how("sendrecv") || is_how("rows"))
        return MPI_Sendrecv(NULL, 0, MPI_INT, to, 0, NULL, 0, MPI_INT, from, 0, everyone,
                            MPI_STATUS_IGNORE);
    MPI_Irecv(NULL, 0, MPI_INT, from, 0, everyone, &requests[0]);
    MPI_Isend(NULL, 0, MPI_INT, to, 0, everyone, &requests[1]);
    return MPI_Waitall(2, requests, statuses);
}

SHOWN int meet(int me, int size)
{
    int last = 1;
    for (int distance = 1; distance < size; distance *= 2)
        last = exchange(me, size, distance);
    KEEP_FRAME();
    return last;
}

SHOWN int meet_by_tail_call(int me)
{
    static MPI_Request requests[2]; /* on the stack they would need the function's frame */
    static MPI_Status statuses[2];
    MPI_Irecv(NULL, 0, MPI_INT, 1 - me, 0, everyone, &requests[0]);
    MPI_Isend(NULL, 0, MPI_INT, 1 - me, 0, everyone, &requests[1]);
    return MPI_Waitall(2, requests, statuses);
}

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    /* Every rank is slow equally often: otherwise the totals would show the loss. */
    parameters.iterations = (parameters.iterations + ranks - 1) / ranks * ranks;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    int me = rank, size = ranks, created = 0;
    if (strcmp(parameters.how, "") == 0)
        parameters.how = "sendrecv";
    if (is_how("rows")) {
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &everyone);
        MPI_Comm_rank(everyone, &me);
        MPI_Comm_size(everyone, &size);
        created = 1;
    }
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_even();
        work_uneven(i % ranks == rank ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        if (is_how("tail"))
            meet_by_tail_call(me);
        else
            meet(me, size);
    }
    struct claim claim = {"declared", "work_uneven", "meet", NULL,
                          is_how("rows") ? created : parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("declared", parameters.iterations);
    if (is_how("rows"))
        MPI_Comm_free(&everyone);
    MPI_Finalize();
    return 0;
}
