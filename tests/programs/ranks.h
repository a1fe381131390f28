/* What subjects of several ranks share: who they are, and how their measured times come together
 * in rank 0 as one truth.
 */
#ifndef RANKS_H
#define RANKS_H

#include "subject.h"

#include <mpi.h>

static int rank, ranks;
static double begin_s; /* when MPI_Init returned: the run is counted from here */

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    begin_s = wall_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* The last quarter of the ranks, at least one. */
static inline int first_slow_rank(void)
{
    int slow = ranks / 4 > 0 ? ranks / 4 : 1;
    return ranks - slow;
}

/* Two ranks at a time do work that needs a core, although they sleep: each pair has its turn while
 * all others work. */
static inline int partner(void)
{
    int other = rank ^ 1;
    return other < ranks ? other : rank;
}

/* Part of a rank's work before its turn; the rest follows the turn. One pair works first. */
static inline double before_turn(void)
{
    int pairs = (ranks + 1) / 2;
    return (rank / 2 + 1.0) / pairs;
}

static inline const char *range(int first, int last)
{
    static char text[2][32];
    static int next;
    char *range = text[next++ % 2];
    if (first == last)
        snprintf(range, sizeof text[0], "%d", first);
    else
        snprintf(range, sizeof text[0], "%d-%d", first, last);
    return range;
}

static inline void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory) {
        fprintf(stderr, "subject: out of memory\n");
        exit(2);
    }
    return memory;
}

/* Sum over iterations of the longest rank's work less the mean: what a run gains if the work of
 * each iteration is spread evenly. `work_s` holds all iterations of rank 0, then of rank 1, ... */
static inline double imbalance_s(const double *work_s, int iterations)
{
    double loss_s = 0;
    for (int i = 0; i < iterations; i++) {
        double longest_s = 0, sum_s = 0;
        for (int r = 0; r < ranks; r++) {
            double one_s = work_s[r * iterations + i];
            longest_s = one_s > longest_s ? one_s : longest_s;
            sum_s += one_s;
        }
        loss_s += longest_s - sum_s / ranks;
    }
    return loss_s;
}

/* Claims of a subject beyond its measurements. */
struct claim {
    const char *subject;
    const char *cause;      /* function that is to blame; NULL: there is no loss to find */
    const char *symptom;    /* call in which the others wait */
    const char *slow_ranks; /* NULL: no rank is slower than another over the whole run */
    int global_syncs;       /* synchronisations of all ranks between MPI_Init and MPI_Finalize */
};

/* Writes the truth from all ranks' work times, `iterations` numbers of each. */
static inline void write_gathered(const struct claim *claim, const double *all_s, int iterations,
                                  double elapsed_s)
{
    FILE *file = open_truth(claim->subject);
    if (!file)
        return;
    double *totals_s = (double *)allocate((size_t)ranks, sizeof(double));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < iterations; i++)
            totals_s[r] += all_s[r * iterations + i];
    tell_number(file, "ranks", ranks);
    tell_number(file, "iterations", parameters.iterations);
    tell_number(file, "global_syncs", claim->global_syncs);
    tell_number(file, "elapsed_s", elapsed_s);
    tell_number(file, "expected_loss_s", imbalance_s(all_s, iterations));
    tell_text(file, "cause", claim->cause);
    tell_text(file, "symptom", claim->symptom);
    tell_text(file, "slow_ranks", claim->slow_ranks);
    tell_numbers(file, "work_s", totals_s, ranks);
    close_truth(file);
    free(totals_s);
}

/* Gathers every rank's measured work of each iteration and writes the truth in rank 0. Rooted, so
 * that it adds no synchronisation of all ranks to the run. */
static inline void write_truth(const struct claim *claim, const double *work_s, int iterations)
{
    double *all_s = (double *)allocate((size_t)ranks * (size_t)iterations, sizeof(double));
    MPI_Gather(work_s, iterations, MPI_DOUBLE, all_s, iterations, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0)
        write_gathered(claim, all_s, iterations, wall_s() - begin_s);
    free(all_s);
}

/* One line that depends on nothing but the parameters: it must be the same with and without
 * anything that watches. */
static inline void print_result(const char *subject, long long checksum)
{
    if (rank == 0) {
        printf("%s: %d ranks, %d iterations, checksum %lld\n", subject, ranks,
               parameters.iterations, checksum);
        fflush(stdout);
    }
}

/* Mean over all ranks, in rank 0. */
static inline double mean_over_ranks(double value)
{
    double sum = 0;
    MPI_Reduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum / ranks;
}

/* How much earlier than the last rank the ranks came somewhere, on average, in rank 0. */
static inline double mean_earliness(double came_s)
{
    double last_s = 0, mean_s = mean_over_ranks(came_s);
    MPI_Reduce(&came_s, &last_s, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return last_s - mean_s;
}

/* Ends an iteration for all ranks together; the sum depends on every rank's part. */
static inline long long add_up(int iteration)
{
    long long part = (long long)(rank + 1) * (iteration + 1), sum = 0;
    MPI_Allreduce(&part, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

#endif
