/* Works before MPI_Init, alone; then as imbalance.c; in between it calls MPI_Init once more, which
 * MPI has to refuse: MPI-4, 11.2.1 allows one call. */
#include "ranks.h"

SHOWN void work_before(void)
{
    work_ms(1500);
    KEEP_FRAME();
}

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

static const char *init_again(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return MPI_Init(NULL, NULL) == MPI_SUCCESS ? "accepted" : "refused";
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    work_before();
    begin(&argc, &argv);
    bool again = strcmp(parameters.how, "again") == 0;
    double *work_s = (double *)allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    const char *second = "not tried";
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_uneven(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
        if (again && i == 0)
            second = init_again();
    }
    struct claim claim = {"init_twice", "work_uneven", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("init_twice", checksum);
    if (rank == 0)
        printf("second MPI_Init: %s\n", second);
    MPI_Finalize();
    return 0;
}
