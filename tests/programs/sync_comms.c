/* Synchronises on a duplicate of MPI_COMM_WORLD, which is as global as the original, and on a half
 * of the world, which is not. work_uneven() is slow on the last rank of each half and waited for on
 * the half; work_skewed() is slow on the last quarter of all ranks and waited for on the duplicate.
 *
 * The truth holds work_skewed() only: the barrier of the half evens out earlier differences.
 * Creating the two communicators also synchronises all ranks. */
#include "ranks.h"

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void work_skewed(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    MPI_Comm everyone, half;
    MPI_Comm_dup(MPI_COMM_WORLD, &everyone);
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks / 2, rank, &half);
    int half_rank, half_ranks;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_ranks);
    bool last_of_half = half_rank == half_ranks - 1;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    for (int i = 0; i < parameters.iterations; i++) {
        work_uneven(last_of_half ? 2 : 1);
        MPI_Barrier(half);
        double start_s = wall_s();
        work_skewed(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        MPI_Barrier(everyone);
    }
    struct claim claim = {"sync_comms", "work_skewed", "MPI_Barrier",
                          range(first_slow_rank(), ranks - 1), parameters.iterations + 2};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("sync_comms", parameters.iterations);
    MPI_Comm_free(&half);
    MPI_Comm_free(&everyone);
    MPI_Finalize();
    return 0;
}
