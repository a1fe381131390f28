/* Two programs in one: the last quarter of the ranks is the ocean, which works `factor` times longer than
 * the atmosphere of the others; all meet after each step, each at a place of its own. With
 * HOW = turns the atmosphere is the one that works longer in every second step; with HOW = within, only the
 * last rank of each of the two works longer. */
#include "ranks.h"

/* Works, and says for how long. */
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
