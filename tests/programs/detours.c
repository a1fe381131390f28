/* Two loops. In the first, rank 0 alternates between two places of its synchronisations, at steps
 * unknown to the others: phases do not begin and end equally on all ranks. In the second loop all
 * ranks do the same, but the last quarter works `factor` times as long. */
#include "ranks.h"

SHOWN long long straight(int i)
{
    long long sum = add_up(i);
    KEEP_FRAME();
    return sum;
}

SHOWN long long detour(int i)
{
    long long sum = add_up(i);
    KEEP_FRAME();
    return sum;
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
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    unsigned chance = 1;
    for (int i = 0; i < parameters.iterations; i++) {
        work_even();
        chance = chance * 1103515245u + 12345u;
        checksum += rank == 0 && chance >> 16 & 1 ? detour(i) : straight(i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_uneven(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    struct claim claim = {"detours", "work_uneven", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), 2 * parameters.iterations + 1};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("detours", checksum);
    MPI_Finalize();
    return 0;
}
