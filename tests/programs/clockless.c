/* Forbids itself the time stamp counter (prctl(2), PR_SET_TSC), which also times the C library's
 * clocks: any read of a clock is a fault from then on. Then creates a thread, which inherits that,
 * calls what Plimsoll measures in both, and ends in the way of its argument: return, or exit (at
 * once, by _exit). Another thread is older than the restriction, and ends while main continues. */
#include "subject.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

static int pipes[2];

static void call(void)
{
    char byte = 'a';
    for (int turn = 0; turn < 100; turn++)
        if (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1)
            abort();
    usleep(1000);
}

SHOWN void work_blindly(void)
{
    volatile double sum = 0;
    for (long turn = 0; turn < 50000000; turn++)
        sum += (double)turn;
    KEEP_FRAME();
}

static void *younger(void *unused)
{
    call();
    work_blindly();
    return unused;
}

static void *older(void *unused)
{
    burn_ms(100);
    return unused;
}

SHOWN void work_before(void)
{
    burn_ms(300);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    if (pipe(pipes) != 0)
        return 1;
    work_before();
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, older, NULL) != 0)
        return 1;
    printf("clockless: %d\n", prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    call();
    work_blindly();
    pthread_join(threads[0], NULL);
    if (pthread_create(&threads[1], NULL, younger, NULL) != 0)
        return 1;
    pthread_join(threads[1], NULL);
    puts("clockless: done");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        _exit(3);
    return 4;
}
