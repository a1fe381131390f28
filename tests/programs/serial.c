/* All ranks work in work_parallel(); then rank 0 alone works in work_serial(), `factor` times as
 * long, while the others wait at a barrier. The truth holds the serial part only: the parallel part
 * ends in a barrier of its own and loses nothing. */
#include "ranks.h"

SHOWN void work_parallel(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_serial(void)
{
    work_ms(parameters.ms * parameters.factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    for (int i = 0; i < parameters.iterations; i++) {
        work_parallel();
        MPI_Barrier(MPI_COMM_WORLD);
        double start_s = wall_s();
        if (rank == 0)
            work_serial();
        work_s[i] = wall_s() - start_s;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    struct claim claim = {"serial", "work_serial", "MPI_Barrier", "0", 2 * parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("serial", parameters.iterations);
    MPI_Finalize();
    return 0;
}
