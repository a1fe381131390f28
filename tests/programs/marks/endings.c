/* Threads and processes that end, or begin, deep in a marked stack. */
#include "trial.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/wait.h>

static _Atomic int cleaned;

static void clean(void *unused)
{
    (void)unused;
    toil(1);
    cleaned++;
}

enum way { CANCELLED, CANCELLED_AT_ONCE, EXITS };

static FRAME void linger(int depth, enum way way)
{
    pthread_cleanup_push(clean, NULL);
    toil((uint32_t)depth);
    if (depth > 0) {
        linger(depth - 1, way);
        STAY();
    } else if (way == EXITS) {
        pthread_exit((void *)6);
    } else if (way == CANCELLED) {
        for (;;)
            usleep(1000000);
    } else {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        for (volatile uint32_t i = 0;; i++)
            ;
    }
    pthread_cleanup_pop(1);
}

static void *linger_in_thread(void *way)
{
    linger(7, (enum way)(intptr_t)way);
    return NULL;
}

static bool end_thread(enum way way)
{
    pthread_t thread;
    void *result;
    cleaned = 0;
    if (pthread_create(&thread, NULL, linger_in_thread, (void *)(intptr_t)way) != 0)
        return false;
    if (way != EXITS) {
        usleep(3000);
        pthread_cancel(thread);
    }
    pthread_join(thread, &result);
    return cleaned == 8 && result == (way == EXITS ? (void *)6 : PTHREAD_CANCELED);
}

static FRAME bool cancelled(uint32_t round)
{
    (void)round;
    return end_thread(CANCELLED);
}

static FRAME bool cancelled_at_once(uint32_t round)
{
    (void)round;
    return end_thread(CANCELLED_AT_ONCE);
}

static FRAME bool exits(uint32_t round)
{
    (void)round;
    return end_thread(EXITS);
}

/* The child returns through frames that the parent's samples have marked. */
static FRAME pid_t fork_deep(int depth, uint32_t seed)
{
    toil(seed);
    pid_t child = depth ? fork_deep(depth - 1, seed) : fork();
    STAY();
    return child;
}

static bool ends_well(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0)
        ;
    return status == 0;
}

static FRAME bool forks(uint32_t round)
{
    pid_t child = fork_deep(10, round);
    if (child == 0) {
        toil(round);
        _exit(0);
    }
    return ends_well(child);
}

static FRAME bool vforks(uint32_t round)
{
    toil(round);
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return ends_well(child);
}

/* A process that replaces itself, from deep in its stack, a few times in a row. */
static FRAME void exec_deep(int depth, int left)
{
    char rest[16];
    toil((uint32_t)depth);
    if (depth > 0) {
        exec_deep(depth - 1, left);
        STAY();
        return;
    }
    snprintf(rest, sizeof rest, "%d", left - 1);
    execl("/proc/self/exe", "endings", rest, (char *)NULL);
}

static FRAME bool exec_chain(uint32_t round)
{
    (void)round;
    pid_t child = fork();
    if (child == 0) {
        exec_deep(6, 3);
        _exit(1);
    }
    return ends_well(child);
}

/* backtrace() steps through marks with libgcc's unwinder. */
static FRAME int frames_from(int depth, uint32_t seed, void **frames, int room)
{
    toil(seed);
    int count = depth ? frames_from(depth - 1, seed, frames, room) : backtrace(frames, room);
    STAY();
    return count;
}

static FRAME bool backtraces(uint32_t round)
{
    void *frames[64];
    Dl_info info;
    int count = frames_from(10, round, frames, 64), own = 0;
    for (int i = 0; i < count; i++)
        own += dladdr(frames[i], &info) != 0 && strstr(info.dli_fname, "endings") != NULL;
    /* Eleven times itself, this function, attempt, main and _start; inlining may take some away. */
    return count >= 13 && own >= 13;
}

/* Code that is loaded, runs long enough to be sampled, and goes away again. */
static FRAME bool loads_and_unloads(uint32_t round)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    double (*function)(double) = NULL;
    if (library)
        *(void **)&function = dlsym(library, "lgamma");
    double sum = 0;
    for (int i = 1; function && i < 200; i++)
        sum += function((double)(i + (int)(round % 7)));
    bool good = function && sum > 100;
    if (library)
        dlclose(library);
    return good;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        int left = atoi(argv[1]);
        if (left > 0)
            exec_deep(6, left);
        return left != 0;
    }
    attempt("cancelled where it waits", cancelled);
    attempt("cancelled at once", cancelled_at_once);
    attempt("pthread_exit", exits);
    attempt("fork", forks);
    attempt("vfork and exec", vforks);
    attempt("exec chains", exec_chain);
    attempt("backtrace", backtraces);
    attempt("dlopen and dlclose", loads_and_unloads);
    return verdict();
}
