/* What all subjects share: their clocks, their two ways of working, their parameters, and the file
 * that their truth goes to. Needs no MPI.
 *
 * A subject measures itself with CLOCK_MONOTONIC, prints one line that depends on nothing but its
 * parameters, and writes what it measured as one JSON object to the file that SUBJECT_TRUTH names.
 */
#ifndef SUBJECT_H
#define SUBJECT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A function that a profile must show under its own name: never inlined, cloned, or merged with
 * another of the same body. */
#ifdef __clang__
#define SHOWN __attribute__((noinline))
#else
#define SHOWN __attribute__((noipa))
#endif

/* Last statement of a SHOWN function: without it the compiler turns the call before into a jump,
 * and the frame is gone. */
#define KEEP_FRAME() __asm__ volatile("")

static inline double clock_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double wall_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

/* Works until the calling thread has used `ms` of CPU time; a thread that shares its core takes
 * longer, but does not work less. */
SHOWN void burn_ms(double ms)
{
    double end_s = clock_s(CLOCK_THREAD_CPUTIME_ID) + ms * 1e-3;
    uint64_t value = 1;
    do {
        /* Long enough that the system call of the clock is a small part of the time. */
        for (int i = 0; i < 20000; i++) {
            value = value * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(value));
        }
    } while (clock_s(CLOCK_THREAD_CPUTIME_ID) < end_s);
    KEEP_FRAME();
}

SHOWN void sleep_ms(double ms)
{
    struct timespec left = {(time_t)(ms / 1e3), 0};
    left.tv_nsec = (long)((ms - (double)left.tv_sec * 1e3) * 1e6);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    KEEP_FRAME();
}

struct parameters {
    bool sleeps;     /* sleeps to work: more ranks than cores do not disturb each other */
    int iterations;
    double ms;       /* work of one rank in one iteration */
    double factor;   /* how many times longer a slow rank works */
    const char *how; /* further choice, of each subject's own meaning; "" if none */
};

static struct parameters parameters;

/* argv: burn|sleep ITERATIONS MILLISECONDS FACTOR HOW; what is left out keeps its default. */
static inline void read_parameters(int argc, char **argv)
{
    parameters.sleeps = argc > 1 && strcmp(argv[1], "sleep") == 0;
    parameters.iterations = argc > 2 ? atoi(argv[2]) : 20;
    parameters.ms = argc > 3 ? atof(argv[3]) : 10;
    parameters.factor = argc > 4 ? atof(argv[4]) : 3;
    parameters.how = argc > 5 ? argv[5] : "";
    bool known = argc < 2 || parameters.sleeps || strcmp(argv[1], "burn") == 0;
    if (!known || parameters.iterations < 1 || parameters.ms < 0 || parameters.factor < 0) {
        fprintf(stderr, "usage: %s burn|sleep [ITERATIONS [MILLISECONDS [FACTOR [HOW]]]]\n",
                argv[0]);
        exit(2);
    }
}

/* Works in the way of the parameters. Inlined, so that the time counts to the caller. */
static inline __attribute__((always_inline)) void work_ms(double ms)
{
    if (parameters.sleeps)
        sleep_ms(ms);
    else
        burn_ms(ms);
}

/* Opens the file of the truth and its object; NULL if nobody asked. */
static inline FILE *open_truth(const char *subject)
{
    const char *path = getenv("SUBJECT_TRUTH");
    FILE *file = path && *path ? fopen(path, "w") : NULL;
    if (file)
        fprintf(file, "{\"subject\": \"%s\"", subject);
    return file;
}

static inline void tell_number(FILE *file, const char *key, double value)
{
    fprintf(file, ", \"%s\": %.9g", key, value);
}

/* A NULL is written as null: the subject claims nothing. */
static inline void tell_text(FILE *file, const char *key, const char *value)
{
    if (value)
        fprintf(file, ", \"%s\": \"%s\"", key, value);
    else
        fprintf(file, ", \"%s\": null", key);
}

static inline void tell_numbers(FILE *file, const char *key, const double *values, int count)
{
    fprintf(file, ", \"%s\": [", key);
    for (int i = 0; i < count; i++)
        fprintf(file, "%s%.9g", i ? ", " : "", values[i]);
    fprintf(file, "]");
}

static inline void close_truth(FILE *file)
{
    fprintf(file, "}\n");
    fclose(file);
}

#endif
