/* As imbalance.c, in two worlds: the ranks that the launcher started spawn an equal number of ranks
 * of the same program (MPI-4, 11.8), which iterate among themselves in work_of_child. Parents and
 * children then meet once over the intercommunicator. */
#include "ranks.h"

SHOWN void work_of_parent(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void work_of_child(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    MPI_Comm other;
    MPI_Comm_get_parent(&other);
    bool child = other != MPI_COMM_NULL;
    if (!child)
        MPI_Comm_spawn(argv[0], argv + 1, ranks, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
                       MPI_ERRCODES_IGNORE);
    double *work_s = (double *)allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double factor = rank >= first_slow_rank() ? parameters.factor : 1;
        double start_s = wall_s();
        if (child)
            work_of_child(factor);
        else
            work_of_parent(factor);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    /* The sum of the other side. */
    long long mine = rank == 0 ? checksum : 0, others = 0;
    MPI_Allreduce(&mine, &others, 1, MPI_LONG_LONG, MPI_SUM, other);
    if (!child) {
        struct claim claim = {"spawns", "work_of_parent", "MPI_Allreduce",
                              range(first_slow_rank(), ranks - 1), parameters.iterations};
        write_truth(&claim, work_s, parameters.iterations);
        print_result("spawns", checksum + others);
    }
    MPI_Comm_disconnect(&other);
    MPI_Finalize();
    return 0;
}
