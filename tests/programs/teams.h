/* What subjects with OpenMP share: parallel regions as a right diagnosis shows them, work of known
 * length, and the truth of threads and ranks together. In C and in C++; with -DSUBJECT_NO_MPI
 * without MPI.
 */
#ifndef TEAMS_H
#define TEAMS_H

#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank, ranks = 1;
static double begin_s;
#else
#include "ranks.h"
#endif

#include <omp.h>

enum { MAX_TEAM = 64 };

/* Line of the construct directly below: GCC and clang give a region the line of its pragma. */
#define LINE_BELOW (__LINE__ + 1)

/* Seconds of one thread, on a cache line of its own. */
struct padded_s {
    double s;
    char padding[56];
};

/* One parallel region, over all its instances. */
struct region {
    int line;           /* of its pragma; 0: not entered yet */
    int threads;        /* largest team */
    long instances;
    double elapsed_s;   /* in the thread that meets the region, over all instances */
    double imbalance_s; /* sum over instances: longest work of a thread less the mean */
    double start_s;     /* of the open instance */
    struct padded_s work_s[MAX_TEAM]; /* by thread number, over all closed instances */
    struct padded_s open_s[MAX_TEAM]; /* by thread number, in the open instance */
};

/* Not inlined: GCC would give the call that makes the region a line of this function. */
SHOWN void begin_region(struct region *region, int line)
{
    region->line = line;
    region->start_s = wall_s();
    KEEP_FRAME();
}

/* Ends an instance with `threads` threads. */
static inline void end_region(struct region *region, int threads)
{
    double longest_s = 0, sum_s = 0;
    region->elapsed_s += wall_s() - region->start_s;
    for (int t = 0; t < threads; t++) {
        double mine_s = region->open_s[t].s;
        longest_s = mine_s > longest_s ? mine_s : longest_s;
        sum_s += mine_s;
        region->work_s[t].s += mine_s;
        region->open_s[t].s = 0;
    }
    region->imbalance_s += longest_s - sum_s / threads;
    region->threads = threads > region->threads ? threads : region->threads;
    region->instances++;
}

/* Adds the time since `start_s` to the calling thread's work in the open instance. */
static inline void add_work(struct region *region, double start_s)
{
    region->open_s[omp_get_thread_num()].s += wall_s() - start_s;
}

/* Steps of the loop in busy_us that take a microsecond on this machine. */
static double steps_per_us;

static inline void busy_steps(long steps)
{
    uint64_t value = 1;
    for (long i = 0; i < steps; i++) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(value));
    }
}

/* Measures the speed of busy_us: the fastest of some trials, since others may use the core. */
static inline void calibrate(void)
{
    const long steps = 100000;
    for (int trial = 0; trial < 20; trial++) {
        double start_s = wall_s();
        busy_steps(steps);
        double speed = (double)steps / ((wall_s() - start_s) * 1e6);
        steps_per_us = speed > steps_per_us ? speed : steps_per_us;
    }
}

/* Works for about `us` microseconds without reading a clock. */
SHOWN void busy_us(double us)
{
    busy_steps((long)(us * steps_per_us));
    KEEP_FRAME();
}

#ifdef SUBJECT_NO_MPI
#define begin_hybrid(argc, argv, level) (begin_s = wall_s())
static inline double mean_over_ranks(double value)
{
    return value;
}
static inline long long end_iteration(int iteration)
{
    return iteration + 1;
}
#define finish_hybrid() ((void)0)
#else
static inline void begin_hybrid(int *argc, char ***argv, int level)
{
    int provided;
    MPI_Init_thread(argc, argv, level, &provided);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided < level) {
        fprintf(stderr, "subject: the MPI provides thread level %d, not %d\n", provided, level);
        exit(2);
    }
}
/* Brings the ranks together; the sum depends on every rank's part. */
static inline long long end_iteration(int iteration)
{
    return add_up(iteration);
}
#define finish_hybrid() MPI_Finalize()
#endif

/* What a right diagnosis says of the whole run. */
struct verdict {
    const char *subject;
    const char *file;      /* source file of the region */
    const char *loss;      /* kind of the loss; NULL: there is none to find */
    const char *cause;     /* function that is to blame; NULL: none */
    const char *schedule;  /* of the region's loop; NULL: no loop */
    double loss_s;         /* of this rank: run time that the run would gain */
    double waited_s;       /* of this rank: mean over threads of the time in waits for locks */
    double serial_s;       /* of this rank: work of the one thread outside of regions */
    double pieces;         /* tasks or regions of this rank that are fine-grained */
    double piece_s;        /* work in all of them together */
    const char *holder;    /* function that has a lock while others wait; NULL: not of interest */
    double holder_share;   /* fraction of the waiting in which it has the lock */
};

/* Writes the truth in rank 0: times are means over ranks, work is that of rank 0 by thread. */
static inline void write_hybrid_truth(const struct verdict *verdict, const struct region *region)
{
    double elapsed_s = mean_over_ranks(wall_s() - begin_s);
    double loss_s = mean_over_ranks(verdict->loss_s);
    double waited_s = mean_over_ranks(verdict->waited_s);
    double serial_s = mean_over_ranks(verdict->serial_s);
    double region_s = mean_over_ranks(region->elapsed_s);
    double imbalance_s = mean_over_ranks(region->imbalance_s);
    FILE *file = rank == 0 ? open_truth(verdict->subject) : NULL;
    if (!file)
        return;
    double work_s[MAX_TEAM];
    for (int t = 0; t < region->threads; t++)
        work_s[t] = region->work_s[t].s;
    tell_number(file, "ranks", ranks);
    tell_number(file, "iterations", parameters.iterations);
    tell_number(file, "elapsed_s", elapsed_s);
    tell_text(file, "file", verdict->file);
    tell_number(file, "line", region->line);
    tell_number(file, "threads", region->threads);
    tell_number(file, "instances", (double)region->instances);
    tell_number(file, "region_s", region_s);
    tell_number(file, "imbalance_s", imbalance_s);
    tell_numbers(file, "work_s", work_s, region->threads);
    tell_text(file, "schedule", verdict->schedule);
    tell_text(file, "loss", verdict->loss);
    tell_text(file, "cause", verdict->cause);
    tell_number(file, "expected_loss_s", loss_s);
    tell_number(file, "waited_s", waited_s);
    tell_number(file, "serial_s", serial_s);
    tell_number(file, "pieces", verdict->pieces);
    tell_number(file, "piece_s", verdict->piece_s);
    tell_text(file, "holder", verdict->holder);
    tell_number(file, "holder_share", verdict->holder_share);
    close_truth(file);
}

/* As print_result of ranks.h, and without MPI. */
static inline void print_hybrid_result(const char *subject, long long checksum)
{
    if (rank == 0) {
        printf("%s %s: %d ranks, %d iterations, checksum %lld\n", subject, parameters.how, ranks,
               parameters.iterations, checksum);
        fflush(stdout);
    }
}

#endif
