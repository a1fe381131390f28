/* MPI inside of parallel regions. HOW =
 * funneled   in each region the primary thread communicates while the others wait for it at a
 *            barrier: their waiting is MPI's. The last rank comes `factor` times `ms` late
 * serialized every thread communicates, one after the other in a critical section
 * multiple   every thread communicates at the same time, with a communicator of its own
 * uneven     the last rank is slow because its last thread works `factor` times longer
 */
#include "teams.h"

static struct region region;
static struct padded_s in_mpi_s[MAX_TEAM];
static MPI_Comm communicators[MAX_TEAM];

SHOWN void work_item(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

static inline __attribute__((always_inline)) void work_in(struct region *region, double factor)
{
    double start_s = wall_s();
    work_item(factor);
    add_work(region, start_s);
}

SHOWN void communicate(MPI_Comm communicator)
{
    double start_s = wall_s(), value = 1, sum;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, communicator);
    in_mpi_s[omp_get_thread_num()].s += wall_s() - start_s;
}

SHOWN void exchange(void)
{
    double start_s = wall_s(), mine = 1, theirs;
    int other = partner();
    if (other != rank)
        MPI_Sendrecv(&mine, 1, MPI_DOUBLE, other, 0, &theirs, 1, MPI_DOUBLE, other, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    in_mpi_s[omp_get_thread_num()].s += wall_s() - start_s;
}

SHOWN void funneled(void)
{
    bool late = rank == ranks - 1;
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    {
        work_in(&region, late ? 1 + parameters.factor : 1);
#pragma omp master
        communicate(MPI_COMM_WORLD);
#pragma omp barrier
        work_in(&region, 1);
    }
    end_region(&region, omp_get_max_threads());
}

SHOWN void serialized(void)
{
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    {
        work_in(&region, 1);
#pragma omp critical
        exchange();
    }
    end_region(&region, omp_get_max_threads());
}

SHOWN void multiple(void)
{
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    {
        work_in(&region, 1);
        communicate(communicators[omp_get_thread_num()]);
    }
    end_region(&region, omp_get_max_threads());
}

SHOWN void uneven(void)
{
    int threads = omp_get_max_threads();
    double slow = rank == ranks - 1 ? parameters.factor : 1;
    begin_region(&region, LINE_BELOW);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < threads; i++)
        work_in(&region, i == threads - 1 ? slow : 1);
    end_region(&region, threads);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    const char *how = parameters.how;
    bool is_multiple = strcmp(how, "multiple") == 0, is_uneven = strcmp(how, "uneven") == 0;
    begin_hybrid(&argc, &argv, is_multiple ? MPI_THREAD_MULTIPLE
                               : strcmp(how, "serialized") == 0 ? MPI_THREAD_SERIALIZED
                                                                : MPI_THREAD_FUNNELED);
    for (int t = 0; is_multiple && t < omp_get_max_threads(); t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &communicators[t]);
    struct verdict verdict = {.subject = "openmp_ranks", .file = "openmp_ranks.c"};
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        if (strcmp(how, "funneled") == 0)
            funneled();
        else if (strcmp(how, "serialized") == 0)
            serialized();
        else if (is_multiple)
            multiple();
        else if (is_uneven)
            uneven();
        else
            return 2;
        checksum += end_iteration(i);
    }
    double communicated_s = 0;
    for (int t = 0; t < region.threads; t++)
        communicated_s += in_mpi_s[t].s;
    /* Of the last rank alone: the others have even threads. */
    double slowest_s = 0;
    MPI_Allreduce(&region.imbalance_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    /* All threads of the late rank are late, but only one of each other rank waits in MPI. */
    verdict.waited_s = communicated_s;
    verdict.loss_s = is_uneven ? slowest_s : 0;
    verdict.loss = is_uneven || strcmp(how, "funneled") == 0 ? "load_imbalance" : NULL;
    verdict.cause = verdict.loss ? "work_item" : NULL;
    verdict.schedule = is_uneven ? "static" : NULL;
    write_hybrid_truth(&verdict, &region);
    print_hybrid_result("openmp_ranks", checksum);
    for (int t = 0; is_multiple && t < omp_get_max_threads(); t++)
        MPI_Comm_free(&communicators[t]);
    MPI_Finalize();
    return 0;
}
