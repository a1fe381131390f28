/* Forbids itself almost all system calls, and the time stamp counter with them (seccomp, strict
 * mode). strict alone: in the only thread. strict beside: in one thread, while another
 * continues. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int done;

__attribute__((noinline)) void work_strictly(void)
{
    volatile double sum = 0;
    for (long turn = 0; turn < 100000000; turn++)
        sum += (double)turn;
}

static void *confined(void *unused)
{
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    work_strictly();
    done = 1;
    syscall(SYS_exit, 5);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "alone") == 0)
        confined(NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, confined, NULL) != 0)
        return 1;
    for (int turn = 0; turn < 300 && !done; turn++)
        usleep(100000);
    puts(done ? "strict: done" : "strict: the thread was killed");
    fflush(stdout);
    /* A thread that ends this way cannot be joined. */
    _exit(!done);
}
