/* Four threads of each rank work in turns: each holds the one lock while it works, so that three of
 * them wait for it. HOW = pools: three of them are created anew ten times. HOW = free gives each
 * thread a lock of its own. HOW = writers: the lock is a read-write lock, and HOW = readers: they
 * have it for reading, all at once. HOW = alone: each rank has one thread, which waits for a
 * semaphore that only another process could post. */
#include "ranks.h"

#include <pthread.h>
#include <semaphore.h>

#define THREADS 4
#define POOLS 10

static pthread_mutex_t locks[THREADS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                         PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static double waited_s[THREADS];
/* Of each thread. */
static int turns;

SHOWN void work_locked(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void update(int thread, pthread_mutex_t *lock)
{
    const bool writes = strcmp(parameters.how, "writers") == 0;
    const bool reads = strcmp(parameters.how, "readers") == 0;
    double start_s = wall_s();
    if (writes)
        pthread_rwlock_wrlock(&table);
    else if (reads)
        pthread_rwlock_rdlock(&table);
    else
        pthread_mutex_lock(lock);
    waited_s[thread] += wall_s() - start_s;
    work_locked();
    if (writes || reads)
        pthread_rwlock_unlock(&table);
    else
        pthread_mutex_unlock(lock);
    /* Lets the other threads take the lock. */
    sleep_ms(parameters.ms / 10);
    KEEP_FRAME();
}

SHOWN void *run_thread(void *number)
{
    int thread = *(int *)number;
    bool shares = strcmp(parameters.how, "free") != 0;
    for (int i = 0; i < turns; i++)
        update(thread, &locks[shares ? 0 : thread]);
    return NULL;
}

SHOWN void wait_alone(void)
{
    sem_t never;
    sem_init(&never, 1, 0);
    for (int i = 0; i < parameters.iterations; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        const long ns = until.tv_nsec + (long)(parameters.ms * 1e6);
        until.tv_sec += ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        sem_timedwait(&never, &until);
    }
    sem_destroy(&never);
    KEEP_FRAME();
}

SHOWN void run_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS] = {0, 1, 2, 3};
    /* The communicating thread is one of them. */
    for (int t = 1; t < THREADS; t++)
        pthread_create(&threads[t], NULL, run_thread, &numbers[t]);
    run_thread(&numbers[0]);
    for (int t = 1; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(parameters.how, "alone") == 0)
        wait_alone();
    else {
        const int pools = strcmp(parameters.how, "pools") == 0 ? POOLS : 1;
        turns = parameters.iterations / pools;
        for (int pool = 0; pool < pools; pool++)
            run_threads();
    }
    double mine_s = 0;
    for (int t = 0; t < THREADS; t++)
        mine_s += waited_s[t] / THREADS;
    double mean_s = mean_over_ranks(mine_s);
    long long checksum = add_up(parameters.iterations);
    FILE *file = rank == 0 ? open_truth("locks") : NULL;
    if (file) {
        bool shares = strcmp(parameters.how, "free") != 0 &&
                      strcmp(parameters.how, "readers") != 0 &&
                      strcmp(parameters.how, "alone") != 0;
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", 1);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", mean_s);
        tell_text(file, "cause", shares ? "update" : NULL);
        close_truth(file);
    }
    print_result("locks", checksum);
    MPI_Finalize();
    return 0;
}
