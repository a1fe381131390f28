/* Loads and unloads a library, again and again, and works through it. usage: reloads HOW LIBRARY
 * TURNS, HOW being
 *
 *   same      at its former place
 *   moving    at another place each time
 *   threads   in two threads, each with a copy, beside a third that loads and unloads another
 *   churn     in four threads at once, in a thread of its own each time, each with a copy
 *   constructor  for its constructor only
 *   failing   the library cannot be loaded whole
 *   forks     a child is forked during an iteration over the objects, and loads another library
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef double work_function(long);
typedef double through_function(work_function *, long);

static int turns;

__attribute__((noinline)) double work_in_program(long count)
{
    volatile double sum = 0;
    for (long turn = 0; turn < count; turn++)
        sum += turn;
    return sum;
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void *load_and_unload(void *path)
{
    dlclose(load(path));
    return NULL;
}

/* Loads, works, unloads; returns the library's address, or 0. The stack goes through the library
 * into the program. */
static void *visit(const char *path, long count, int pause_us)
{
    void *library = load(path);
    through_function *through = (through_function *)dlsym(library, "work_through_library");
    if (!through) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    /* The map of loaded code follows within milliseconds. */
    if (pause_us)
        usleep(pause_us);
    if (count)
        through(work_in_program, count);
    void *place = (void *)((struct link_map *)library)->l_addr;
    if (dlclose(library) != 0)
        exit(1);
    return place;
}

static void *visitor(void *path)
{
    for (int turn = 0; turn < turns; turn++)
        visit(path, 300000, 0);
    return NULL;
}

/* Each visitor is a thread that does everything for the first time. */
static void *visits_by_threads(void *path)
{
    for (int turn = 0; turn < turns; turn++) {
        pthread_t visitor;
        if (pthread_create(&visitor, NULL, load_and_unload, path) != 0)
            exit(1);
        pthread_join(visitor, NULL);
    }
    return NULL;
}

static char *copy_of(const char *path, const char *name)
{
    char command[4096];
    snprintf(command, sizeof command, "cp '%s' ./%s", path, name);
    if (system(command) != 0)
        exit(1);
    snprintf(command, sizeof command, "./%s", name);
    return strdup(command);
}

/* The child ends by SIGALRM if it cannot load anything. */
static void fork_a_loader(int turn)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        dlclose(load("libm.so.6"));
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        printf("reloads: child %d ends by %#x\n", turn, status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    char *path = argv[2];
    turns = atoi(argv[3]);
    if (strcmp(argv[1], "same") == 0) {
        for (int turn = 0; turn < turns; turn++)
            visit(path, 3000000, 8000);
    } else if (strcmp(argv[1], "moving") == 0) {
        char *other = copy_of(path, "late.so");
        for (int turn = 0; turn < turns; turn++) {
            void *place = visit(path, 0, 0);
            /* Nothing is loaded here any more. */
            mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        }
        visit(other, 300000000, 20000);
        unlink(other);
    } else if (strcmp(argv[1], "constructor") == 0) {
        for (int turn = 0; turn < turns; turn++)
            load_and_unload(path);
        work_in_program(100000000);
    } else if (strcmp(argv[1], "failing") == 0) {
        for (int turn = 0; turn < turns; turn++)
            if (dlopen(path, RTLD_NOW | RTLD_LOCAL))
                return 1;
        work_in_program(100000000);
    } else if (strcmp(argv[1], "forks") == 0) {
        for (int turn = 0; turn < turns; turn++) {
            void *library = load(path);
            /* The map of loaded code is read within about a millisecond. */
            usleep(turn * 7 % 1500);
            fork_a_loader(turn);
            dlclose(library);
        }
        work_in_program(100000000);
    } else if (strcmp(argv[1], "churn") == 0) {
        char *copies[] = {copy_of(path, "first.so"), copy_of(path, "second.so"),
                          copy_of(path, "third.so"), copy_of(path, "fourth.so")};
        pthread_t threads[4];
        for (int thread = 0; thread < 4; thread++)
            pthread_create(&threads[thread], NULL, visits_by_threads, copies[thread]);
        for (int thread = 0; thread < 4; thread++) {
            pthread_join(threads[thread], NULL);
            unlink(copies[thread]);
        }
        work_in_program(100000000);
    } else {
        char *first = copy_of(path, "first.so"), *second = copy_of(path, "second.so");
        pthread_t threads[2];
        pthread_create(&threads[0], NULL, visitor, first);
        pthread_create(&threads[1], NULL, visitor, second);
        for (int turn = 0; turn < turns; turn++) {
            void *other = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
            if (other)
                dlclose(other);
        }
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        unlink(first);
        unlink(second);
    }
    puts("reloads: done");
    return 0;
}
