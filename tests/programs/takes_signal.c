/* Takes the sampling signal without the C library, as the runtimes of some languages do, while
 * several threads work; its handler ends the program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct disposition {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static void taken(int signal)
{
    (void)signal;
    _exit(9);
}

static void work_ms(long ms)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const double end_s = now.tv_sec + now.tv_nsec * 1e-9 + ms * 1e-3;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec + now.tv_nsec * 1e-9 < end_s);
}

static void *worker(void *unused)
{
    work_ms(200);
    return unused;
}

int main(void)
{
    /* The kernel asks for a restorer, which is never reached: the handler does not return. */
    struct disposition own = {taken, 0x04000000, NULL, 0};
    usleep(100000);
    if (syscall(SYS_rt_sigaction, SIGSTKFLT, &own, NULL, 8) != 0)
        return 1;
    pthread_t threads[3];
    for (int number = 0; number < 3; number++)
        pthread_create(&threads[number], NULL, worker, NULL);
    for (int number = 0; number < 3; number++)
        pthread_join(threads[number], NULL);
    work_ms(50);
    puts("takes_signal: done");
    return 0;
}
