/* Ranks exchange with their neighbours in a ring and never all synchronise: the last rank works
 * `factor` times longer in work_uneven(), so that the others wait for it where they receive, step
 * after step. HOW = waitall exchanges by nonblocking calls, otherwise by MPI_Sendrecv. */
#include "ranks.h"

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

SHOWN long long exchange(int i, bool waitall)
{
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    long long mine[2] = {rank + i, rank - i}, theirs[2] = {0, 0};
    if (waitall) {
        MPI_Request requests[4];
        MPI_Status statuses[4];
        MPI_Irecv(&theirs[0], 1, MPI_LONG_LONG, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&theirs[1], 1, MPI_LONG_LONG, right, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&mine[0], 1, MPI_LONG_LONG, right, 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(&mine[1], 1, MPI_LONG_LONG, left, 2, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, statuses);
    } else {
        MPI_Sendrecv(&mine[0], 1, MPI_LONG_LONG, right, 1, &theirs[0], 1, MPI_LONG_LONG, left, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&mine[1], 1, MPI_LONG_LONG, left, 2, &theirs[1], 1, MPI_LONG_LONG, right, 2,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return theirs[0] + theirs[1];
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool waitall = strcmp(parameters.how, "waitall") == 0;
    double work_s = 0;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_even();
        work_uneven(rank == ranks - 1 ? parameters.factor : 1);
        work_s += wall_s() - start_s;
        checksum += exchange(i, waitall);
    }
    bool uneven = parameters.factor != 1;
    struct claim claim = {"neighbours", uneven ? "work_uneven" : NULL,
                          waitall ? "MPI_Waitall" : "MPI_Sendrecv",
                          uneven ? range(ranks - 1, ranks - 1) : NULL, 0};
    /* The same rank is always slow: the loss of the whole run is the sum over steps. */
    write_truth(&claim, &work_s, 1);
    print_result("neighbours", checksum);
    MPI_Finalize();
    return 0;
}
