/* The last quarter of the ranks works `factor` times longer in work_uneven(); the others wait for
 * them at the end of each iteration, in MPI_Allreduce or (HOW = barrier) in MPI_Barrier. HOW = even
 * spreads the same work evenly. HOW = places: the slow ranks call it at another place. HOW = stop:
 * the job ends early, after the iteration in which rank 0 finds a file named stop. */
#include "ranks.h"

#include <unistd.h>

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
    bool barrier = strcmp(parameters.how, "barrier") == 0;
    bool places = strcmp(parameters.how, "places") == 0;
    bool can_stop = strcmp(parameters.how, "stop") == 0;
    volatile int slow_steps = 0;
    bool even = strcmp(parameters.how, "even") == 0;
    double slow = (double)(ranks - first_slow_rank()) / ranks;
    double mean = slow * parameters.factor + (1 - slow);
    double mine = rank >= first_slow_rank() ? parameters.factor : 1;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_even();
        if (places && mine > 1) {
            work_uneven(mine);
            slow_steps++;
        } else {
            work_uneven(even ? mean : mine);
        }
        work_s[i] = wall_s() - start_s;
        if (barrier)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            checksum += add_up(i);
        if (can_stop) {
            int stops = access("stop", F_OK) == 0;
            MPI_Bcast(&stops, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (stops)
                parameters.iterations = i + 1;
        }
    }
    struct claim claim = {"imbalance", even ? NULL : "work_uneven",
                          barrier ? "MPI_Barrier" : "MPI_Allreduce",
                          even ? NULL : range(first_slow_rank(), ranks - 1), parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("imbalance", checksum);
    MPI_Finalize();
    return 0;
}
