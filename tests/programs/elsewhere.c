/* Works and synchronises in a thread other than the one that called MPI_Init; the last ranks work
 * longer there. With HOW multiple, the thread that called MPI_Init synchronises meanwhile, too, on
 * a communicator of its own. With HOW helper, the thread makes the first of the collectives only,
 * and the one that called MPI_Init the others. */
#include "ranks.h"

#include <pthread.h>

static double *work_s;
static int done; /* iterations that are done */

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_uneven(void)
{
    work_ms(parameters.ms * (rank >= first_slow_rank() ? parameters.factor : 1));
    KEEP_FRAME();
}

static void come_together(int iterations)
{
    for (; done < iterations; done++) {
        double start_s = wall_s();
        work_even();
        work_uneven();
        work_s[done] = wall_s() - start_s;
        add_up(done);
    }
}

static void *in_thread(void *iterations)
{
    come_together(*(int *)iterations);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    read_parameters(argc, argv);
    const bool may_be_many = strcmp(parameters.how, "multiple") == 0;
    const bool only_helps = strcmp(parameters.how, "helper") == 0;
    MPI_Init_thread(&argc, &argv, may_be_many ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED,
                    &provided);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    work_s = allocate((size_t)parameters.iterations, sizeof(double));
    MPI_Comm own;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    int in_the_thread = only_helps ? 1 : parameters.iterations;
    if (provided < MPI_THREAD_SERIALIZED ||
        pthread_create(&thread, NULL, in_thread, &in_the_thread) != 0)
        return 2;
    for (int i = 0; may_be_many && i < parameters.iterations / 2; i++) {
        sleep_ms(parameters.ms);
        MPI_Barrier(own);
    }
    pthread_join(thread, NULL);
    come_together(parameters.iterations);
    /* The run begins at the return of the thread's first collective, and anew at the return of the
     * first one of the thread that called MPI_Init. */
    int syncs = parameters.iterations - (only_helps ? 2 : 1);
    struct claim claim = {"elsewhere", "work_uneven", "MPI_Allreduce", NULL, syncs};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("elsewhere", parameters.iterations);
    MPI_Comm_free(&own);
    MPI_Finalize();
    return 0;
}
