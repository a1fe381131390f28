/* Ranks of three kinds, by HOW: `kinds` has one writer (rank 0), three ranks that work `factor`
 * times longer (ranks 1 to 3), and the rest; in `graded` each rank works a little longer than the
 * previous one, up to `factor` times; in `alike` all do the same. */
#include "ranks.h"

SHOWN void relax(double ms)
{
    work_ms(ms);
    KEEP_FRAME();
}

SHOWN void write_out(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool kinds = strcmp(parameters.how, "kinds") == 0;
    bool graded = strcmp(parameters.how, "graded") == 0;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    double share = ranks > 1 ? (double)rank / (ranks - 1) : 0;
    double factor = kinds && rank >= 1 && rank <= 3 ? parameters.factor
                    : graded                        ? 1 + share * (parameters.factor - 1)
                                                    : 1;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        relax(parameters.ms * factor);
        if (kinds && rank == 0)
            write_out();
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    const char *cause = kinds || graded ? "relax" : NULL;
    struct claim claim = {"behaviours", cause, cause ? "MPI_Allreduce" : NULL, NULL,
                          parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("behaviours", checksum);
    MPI_Finalize();
    return 0;
}
