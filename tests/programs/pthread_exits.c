/* The initial thread ends by pthread_exit() before others do: the process ends with the last
 * thread, with status 0, and runs its exit handlers. The argument is the number of threads; each
 * ends 50 ms after the one before; the last but one is cancelled. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void work_in_worker(long ms)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const double end_s = now.tv_sec + now.tv_nsec * 1e-9 + ms * 1e-3;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec + now.tv_nsec * 1e-9 < end_s);
    __asm__ volatile("" ::: "memory");
}

static long workers;

static void *worker(void *number)
{
    const long own = (long)number;
    work_in_worker(50 + 50 * own);
    if (own == workers - 2) {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    }
    if (own == workers - 1)
        puts("pthread_exits: the last worker ends");
    return NULL;
}

static void at_exit(void)
{
    puts("pthread_exits: exit handlers run");
}

int main(int argc, char **argv)
{
    workers = argc > 1 ? atol(argv[1]) : 0;
    atexit(at_exit);
    for (long number = 0; number < workers; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, (void *)number) != 0)
            return 1;
        pthread_detach(thread);
    }
    work_in_worker(20);
    pthread_exit(NULL);
}
