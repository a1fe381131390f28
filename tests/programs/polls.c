/* After its work, each rank looks in a loop of MPI_Iprobe, MPI_Testall and MPI_Test whether a message
 * has come, `factor` times as long as it works: all find nothing until a rank lets its message go,
 * which all do at the same time. HOW = blocks exchanges at once, by MPI_Sendrecv. */
#include "ranks.h"

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

/* Looks until the message from the left has come; sends to the right once `until_s` has passed. */
SHOWN long long exchange_by_polls(int i, double until_s)
{
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    long long mine = rank + i, theirs = 0;
    MPI_Request receive, send = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Irecv(&theirs, 1, MPI_LONG_LONG, left, 1, MPI_COMM_WORLD, &receive);
    bool sent = false;
    int found = 0, all = 0, done = 0;
    while (!all || !sent || !done) {
        MPI_Iprobe(left, 2, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        MPI_Testall(1, &receive, &all, &status);
        MPI_Test(&send, &done, MPI_STATUS_IGNORE);
        if (!sent && wall_s() >= until_s) {
            MPI_Isend(&mine, 1, MPI_LONG_LONG, right, 1, MPI_COMM_WORLD, &send);
            sent = true;
            done = 0;
        }
    }
    return theirs + found;
}

SHOWN long long exchange_by_blocking(int i)
{
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    long long mine = rank + i, theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_LONG_LONG, right, 1, &theirs, 1, MPI_LONG_LONG, left, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    KEEP_FRAME();
    return theirs;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool polls = strcmp(parameters.how, "blocks") != 0;
    double polled_s = 0;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        work_even();
        double start_s = wall_s();
        if (polls)
            checksum += exchange_by_polls(i, start_s + parameters.ms * parameters.factor * 1e-3);
        else
            checksum += exchange_by_blocking(i);
        polled_s += wall_s() - start_s;
    }
    double sum_s = 0;
    MPI_Reduce(&polled_s, &sum_s, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("polls") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", 0);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", polls ? sum_s / ranks : 0);
        tell_text(file, "cause", polls ? "exchange_by_polls" : NULL);
        close_truth(file);
    }
    print_result("polls", checksum);
    MPI_Finalize();
    return 0;
}
