/* Two programs in one: the last quarter of the ranks is the ocean, which works `factor` times
 * longer than the atmosphere of the others; all synchronise after each step, each program at a
 * place of its own. HOW = turns: in every second step the atmosphere works longer. HOW = within:
 * only the last rank of each program works longer. */
#include "ranks.h"

/* Works, and returns the duration. */
SHOWN double flow(double ms)
{
    double start_s = wall_s();
    work_ms(ms);
    return wall_s() - start_s;
}

static double factor_in(int i, bool is_ocean)
{
    if (strcmp(parameters.how, "within") == 0)
        return rank == ranks - 1 || rank == first_slow_rank() - 1 ? parameters.factor : 1;
    bool turned = i % 2 == 1 && strcmp(parameters.how, "turns") == 0;
    return is_ocean != turned ? parameters.factor : 1;
}

SHOWN long long ocean(int i, double *work_s)
{
    work_s[i] = flow(parameters.ms * factor_in(i, true));
    return add_up(i);
}

SHOWN long long atmosphere(int i, double *work_s)
{
    work_s[i] = flow(parameters.ms * factor_in(i, false));
    return add_up(i);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool is_ocean = rank >= first_slow_rank();
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++)
        checksum += is_ocean ? ocean(i, work_s) : atmosphere(i, work_s);
    struct claim claim = {"coupled", "ocean", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("coupled", checksum);
    MPI_Finalize();
    return 0;
}
