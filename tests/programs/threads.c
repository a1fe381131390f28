/* Threads that work while the initial thread waits for them in pthread_join. HOW is their number
 * (3 if left out). Thread k works k+1 times as long as the first. With MPI each rank does the same,
 * and the helper threads of the MPI library must not be taken for the application's. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank, ranks = 1;
#else
#include "ranks.h"
#endif

#include <pthread.h>

enum { MOST_WORKERS = 1024 };

SHOWN void work_in_thread(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void *worker(void *argument)
{
    double *mine_s = argument;
    double factor = *mine_s, start_s = wall_s();
    for (int i = 0; i < parameters.iterations; i++)
        work_in_thread(factor);
    *mine_s = wall_s() - start_s;
    return NULL;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    int workers = *parameters.how ? atoi(parameters.how) : 3;
    if (workers < 1 || workers > MOST_WORKERS)
        workers = MOST_WORKERS;
#ifdef SUBJECT_NO_MPI
    double begin_s = wall_s();
#else
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    pthread_t threads[MOST_WORKERS];
    double works_s[MOST_WORKERS];
    for (int k = 0; k < workers; k++) {
        works_s[k] = k + 1;
        if (pthread_create(&threads[k], NULL, worker, &works_s[k]) != 0)
            return 2;
    }
    double join_start_s = wall_s();
    for (int k = 0; k < workers; k++)
        pthread_join(threads[k], NULL);
    double joined_s = wall_s() - join_start_s;
    FILE *file = rank == 0 ? open_truth("threads") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "threads", ranks * (workers + 1));
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "joined_s", joined_s);
        tell_numbers(file, "work_s", works_s, workers);
        close_truth(file);
    }
    if (rank == 0)
        printf("threads: %d ranks, %d workers each\n", ranks, workers);
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
    return 0;
}
