/* A library with a constructor that waits for threads, which run while the loader's lock is held:
 * they start threads, make calls that are measured and contend for a lock. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int sink;

static void *call(void *unused)
{
    for (int turn = 0; turn < 1000; turn++) {
        pthread_mutex_lock(&lock);
        if (write(sink, "x", 1) != 1)
            exit(1);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void *start_threads(void *unused)
{
    pthread_t threads[4];
    for (int thread = 0; thread < 4; thread++)
        if (pthread_create(&threads[thread], NULL, call, NULL) != 0)
            exit(1);
    for (int thread = 0; thread < 4; thread++)
        pthread_join(threads[thread], NULL);
    return unused;
}

__attribute__((constructor)) static void wait_for_threads(void)
{
    sink = open("/dev/null", O_WRONLY);
    pthread_t starter;
    if (pthread_create(&starter, NULL, start_threads, NULL) != 0)
        exit(1);
    pthread_join(starter, NULL);
    close(sink);
}
