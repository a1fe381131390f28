/* A run of known structure: start-up, a loop with two synchronisations per step, output, end. In
 * assemble() the last quarter of the ranks works `factor` times as long, and the others wait in
 * MPI_Allreduce; rank 0 takes a little longer in start_up() and solve(), and is alone in
 * write_output(): some ranks wait in each. */
#include "ranks.h"

SHOWN void start_up(void)
{
    work_ms(parameters.ms * (rank == 0 ? 5 : 3));
    KEEP_FRAME();
}

SHOWN void assemble(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void solve(void)
{
    work_ms(parameters.ms * (rank == 0 ? 1.5 : 1));
    KEEP_FRAME();
}

SHOWN void write_output(void)
{
    work_ms(parameters.ms * 5);
    KEEP_FRAME();
}

SHOWN void tidy_up(void)
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
    start_up();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        assemble(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
        solve();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        write_output();
    MPI_Barrier(MPI_COMM_WORLD);
    tidy_up();
    struct claim claim = {"stages", "assemble", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), 2 * parameters.iterations + 2};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("stages", checksum);
    MPI_Finalize();
    return 0;
}
