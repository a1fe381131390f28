/* One rank is slow in each iteration, another one in the next: over the whole run all ranks work
 * and wait equally long, and only a view of single iterations shows the loss. */
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

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    /* Every rank is slow equally often, or the totals would tell. */
    parameters.iterations = (parameters.iterations + ranks - 1) / ranks * ranks;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_even();
        work_uneven(i % ranks == rank ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    struct claim claim = {"alternating", "work_uneven", "MPI_Allreduce", NULL, parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("alternating", checksum);
    MPI_Finalize();
    return 0;
}
