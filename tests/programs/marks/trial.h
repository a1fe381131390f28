/* Trials of what a program may do with its stack. Each trial runs again and again for a while, so
 * that samples, and with them marks, fall everywhere in it, and checks its own result each time. */
#ifndef TRIAL_H
#define TRIAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define TRIAL_LINKAGE extern "C"
#else
#define TRIAL_LINKAGE
#endif

/* Gets a frame of its own from every compiler. */
#define FRAME __attribute__((noinline))
/* After a call: the call is not the function's last act. */
#define STAY() __asm__ volatile("" ::: "memory")

static inline double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Work of a few microseconds: long enough that samples hit the caller. */
static FRAME uint32_t toil(uint32_t seed)
{
    for (int i = 0; i < 2000; i++)
        seed = seed * 1664525u + 1013904223u;
    STAY();
    return seed;
}

#ifdef __GNUC__
/* Recursion that ends only by a jump, an exception or a cancellation is intended here. */
#pragma GCC diagnostic ignored "-Winfinite-recursion"
#endif

static int failures;

/* Runs a trial for TRIAL_S seconds of CPU time (0.3 unless set); returns true if all went well. */
static inline void attempt(const char *name, bool (*trial)(uint32_t round))
{
    const char *wanted = getenv("TRIAL_S");
    double end_s = cpu_s() + (wanted ? atof(wanted) : 0.3);
    bool good = true;
    uint32_t round = 0;
    do
        good = trial(round) && good;
    while (round++ < 3 || cpu_s() < end_s);
    printf("%s: %s\n", name, good ? "right" : "WRONG");
    fflush(stdout);
    failures += !good;
}

static inline int verdict(void)
{
    return failures != 0;
}

#endif
