/* All ranks work equally long in both functions: there is no loss. */
#include "ranks.h"

SHOWN void work_first(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_second(void)
{
    work_ms(parameters.ms * 2);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_first();
        work_second();
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    struct claim claim = {"balanced", NULL, NULL, NULL, parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("balanced", checksum);
    MPI_Finalize();
    return 0;
}
