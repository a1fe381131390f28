/* Two parts that are uneven in opposite ways (PPoPP20, Figure 8): the last quarter of the ranks
 * works `factor` times longer in work_first(); the others work longer in work_second(), by a
 * smaller factor. */
#include "ranks.h"

SHOWN void work_first(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void work_second(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool is_slow = rank >= first_slow_rank();
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_first(is_slow ? parameters.factor : 1);
        work_second(is_slow ? 1 : (parameters.factor + 1) / 2);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    struct claim claim = {"evened", "work_first", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("evened", checksum);
    MPI_Finalize();
    return 0;
}
