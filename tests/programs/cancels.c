/* Cancels threads that are blocked in calls which POSIX makes cancellation points, with deferred
 * cancellation. Each must end as cancelled, with its clean-up handler run. A wrapper that is no
 * cancellation point, or that swallows the unwinding, hangs or miscounts here. */
#include "subject.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static int never[2]; /* a pipe that nothing is written to */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static void clean_up(void *cleaned)
{
    *(int *)cleaned = 1;
}

static void unlock(void *mutex)
{
    pthread_mutex_unlock(mutex);
}

static void block_in_read(void)
{
    char byte;
    (void)!read(never[0], &byte, 1);
}

static void block_in_poll(void)
{
    struct pollfd one = {.fd = never[0], .events = POLLIN};
    poll(&one, 1, -1);
}

static void block_in_sleep(void)
{
    sleep(1000);
}

static void block_in_nanosleep(void)
{
    struct timespec long_time = {1000, 0};
    nanosleep(&long_time, NULL);
}

static void block_in_wait(void)
{
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, &lock);
    for (;;)
        pthread_cond_wait(&condition, &lock);
    pthread_cleanup_pop(1);
}

static void block_in_semaphore(void)
{
    while (sem_wait(&semaphore) != 0) {
    }
}

static void block_in_nothing(void)
{
    for (;;) {
        burn_ms(1);
        pthread_testcancel();
    }
}

struct blocked {
    const char *name;
    void (*block)(void);
    int cleaned;
};

static void *blocked_thread(void *argument)
{
    struct blocked *blocked = argument;
    pthread_cleanup_push(clean_up, &blocked->cleaned);
    blocked->block();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    struct blocked all[] = {
        {"read", block_in_read, 0},
        {"poll", block_in_poll, 0},
        {"sleep", block_in_sleep, 0},
        {"nanosleep", block_in_nanosleep, 0},
        {"pthread_cond_wait", block_in_wait, 0},
        {"sem_wait", block_in_semaphore, 0},
        {"pthread_testcancel", block_in_nothing, 0},
    };
    if (pipe(never) != 0 || sem_init(&semaphore, 0, 0) != 0)
        return 2;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, blocked_thread, &all[i]) != 0)
            return 2;
        sleep_ms(20); /* long enough to be inside the call */
        int cancel = pthread_cancel(thread);
        int join = pthread_join(thread, &result);
        printf("cancels: %s: %d %d %s, %s\n", all[i].name, cancel, join,
               result == PTHREAD_CANCELED ? "cancelled" : "returned",
               all[i].cleaned ? "cleaned up" : "not cleaned up");
    }
    printf("cancels: the mutex is %s\n", pthread_mutex_trylock(&lock) == 0 ? "free" : "held");
    return 0;
}
