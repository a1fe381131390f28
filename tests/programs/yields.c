/* Two threads on one core leave it to each other: yields NUMBER, for both together. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static int number;

static void *yield_core(void *unused)
{
    for (int yields = 0; yields < number / 2; yields++)
        sched_yield();
    return unused;
}

int main(int argc, char **argv)
{
    number = argc > 1 ? atoi(argv[1]) : 1000000;
    int core = sched_getcpu();
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    pthread_t thread;
    if (sched_setaffinity(0, sizeof cores, &cores) != 0 ||
        pthread_create(&thread, NULL, yield_core, NULL) != 0)
        return 1;
    yield_core(NULL);
    pthread_join(thread, NULL);
    return 0;
}
