/* Parallel regions of OpenMP of known uneven work, in MPI ranks: argument HOW is one of
 *
 *   static    thread 0 works FACTOR times as long as the others, in a loop with static schedule
 *   dynamic   the last of many iterations of a dynamic loop is FACTOR times as long as the others
 *   barrier   as static, but the threads wait in a barrier inside of the region
 *   end       as barrier, but nothing follows: the compiler lets the region end by a jump to the
 *             barrier
 *   tasks     tasks make tasks and wait for them; one of them works longest
 *   critical  all threads work in a critical section, one after the other
 *   even      all threads work alike
 *   nested    as static, in an inner region that each of two outer threads makes
 *   mpi       thread 0 calls MPI_Barrier inside of the region, for which rank 1 is late
 *
 * Each thread measures its own time. OMP_NUM_THREADS says how many threads there are. */
#include <mpi.h>
#include <omp.h>

#include "subject.h"

#define MAX_THREADS 64

/* Sums over the iterations, of the thread that makes the region. */
static double region_s, work_s, longest_s, mean_s, critical_s;
static double own_s[MAX_THREADS];

static void add_instance(double elapsed_s, const double *work, int threads)
{
    double sum = 0, most = 0;
    for (int i = 0; i < threads; i++) {
        sum += work[i];
        most = work[i] > most ? work[i] : most;
        own_s[i] += work[i];
    }
    region_s += elapsed_s;
    work_s += sum;
    longest_s += most;
    mean_s += sum / threads;
}

SHOWN void uneven_static(double *work)
{
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < omp_get_max_threads(); i++) {
        double begin = wall_s();
        work_ms(parameters.ms * (i == 0 ? parameters.factor : 1));
        work[omp_get_thread_num()] += wall_s() - begin;
    }
    KEEP_FRAME();
}

SHOWN void uneven_dynamic(double *work)
{
    int last = 4 * omp_get_max_threads();
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i <= last; i++) {
        double begin = wall_s();
        work_ms(parameters.ms * (i == last ? parameters.factor : 0.25));
        work[omp_get_thread_num()] += wall_s() - begin;
    }
    KEEP_FRAME();
}

SHOWN void uneven_before_barrier(double *work)
{
#pragma omp parallel
    {
        int self = omp_get_thread_num();
        double begin = wall_s();
        work_ms(parameters.ms * (self == 0 ? parameters.factor : 1));
        work[self] += wall_s() - begin;
#pragma omp barrier
        begin = wall_s();
        work_ms(parameters.ms);
        work[self] += wall_s() - begin;
    }
    KEEP_FRAME();
}

SHOWN void uneven_before_end(double *work)
{
#pragma omp parallel
    {
        int self = omp_get_thread_num();
        double begin = wall_s();
        work_ms(parameters.ms * (self == 0 ? parameters.factor : 1));
        work[self] += wall_s() - begin;
#pragma omp barrier
    }
    KEEP_FRAME();
}

/* A tree of tasks, in which each waits for its two children; the leftmost leaf works longest. */
static void grow(double *work, int depth, bool is_leftmost)
{
    if (depth == 0) {
        double begin = wall_s();
        work_ms(parameters.ms * (is_leftmost ? parameters.factor : 1));
        work[omp_get_thread_num()] += wall_s() - begin;
        return;
    }
#pragma omp task
    grow(work, depth - 1, is_leftmost);
#pragma omp task
    grow(work, depth - 1, false);
#pragma omp taskwait
}

SHOWN void waits_in_tasks(double *work)
{
#pragma omp parallel
#pragma omp single
    grow(work, 3, true);
    KEEP_FRAME();
}

SHOWN void one_after_the_other(double *work)
{
    double inside = 0;
#pragma omp parallel
    {
        int self = omp_get_thread_num();
#pragma omp critical(the_section)
        {
            double begin = wall_s();
            work_ms(parameters.ms);
            work[self] += wall_s() - begin;
            inside += wall_s() - begin;
        }
    }
    critical_s += inside;
    KEEP_FRAME();
}

SHOWN void even(double *work)
{
#pragma omp parallel
    {
        double begin = wall_s();
        work_ms(parameters.ms);
        work[omp_get_thread_num()] += wall_s() - begin;
    }
    KEEP_FRAME();
}

SHOWN void nested(double *work)
{
#pragma omp parallel num_threads(2)
    {
        double begin = wall_s();
#pragma omp parallel num_threads(2)
        work_ms(parameters.ms * (omp_get_thread_num() == 0 ? parameters.factor : 1));
        work[omp_get_thread_num()] += wall_s() - begin;
    }
    KEEP_FRAME();
}

SHOWN void with_mpi(double *work)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#pragma omp parallel
    {
        double begin = wall_s();
        if (omp_get_thread_num() == 0) {
            if (rank == 1)
                work_ms(parameters.ms * parameters.factor);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            work_ms(parameters.ms);
        }
        work[omp_get_thread_num()] += wall_s() - begin;
    }
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    int level, rank;
    read_parameters(argc, argv);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *how = parameters.how;
    void (*region)(double *) = strcmp(how, "dynamic") == 0    ? uneven_dynamic
                               : strcmp(how, "barrier") == 0  ? uneven_before_barrier
                               : strcmp(how, "end") == 0      ? uneven_before_end
                               : strcmp(how, "tasks") == 0    ? waits_in_tasks
                               : strcmp(how, "critical") == 0 ? one_after_the_other
                               : strcmp(how, "even") == 0     ? even
                               : strcmp(how, "nested") == 0   ? nested
                               : strcmp(how, "mpi") == 0      ? with_mpi
                                                              : uneven_static;
    int threads = region == nested ? 2 : omp_get_max_threads();
    for (int i = 0; i < parameters.iterations; i++) {
        double work[MAX_THREADS] = {0};
        double begin = wall_s();
        region(work);
        add_instance(wall_s() - begin, work, threads);
        work_ms(parameters.ms / 4);
    }
    printf("%d iterations\n", parameters.iterations);
    MPI_Finalize();
    if (rank == 0) {
        FILE *truth = open_truth("openmp_regions");
        if (truth) {
            tell_number(truth, "threads", threads);
            tell_number(truth, "instances", parameters.iterations);
            tell_number(truth, "region_s", region_s);
            tell_number(truth, "work_s", work_s);
            tell_number(truth, "imbalance_s", longest_s - mean_s);
            tell_number(truth, "idle_s", region_s * threads - work_s);
            tell_number(truth, "critical_s", critical_s);
            tell_numbers(truth, "work_by_thread_s", own_s, threads);
            close_truth(truth);
        }
    }
    return 0;
}
