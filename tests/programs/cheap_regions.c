/* Calls of the OpenMP runtime that return at once, many times; the shortest mean of a batch of each
 * is its truth. A team of one thread waits for nobody, so that a batch shows the cost of the calls
 * alone. Regions of about 10 us and two threads show what threads on two cores cost each other.
 * argv: burn CALLS, in each batch. */
#include "subject.h"

#include <omp.h>

enum { BATCHES = 50, SHORT_BATCHES = 1000, SHORT_REGIONS = 50 };

static omp_lock_t the_lock;

/* An assembly statement that the compiler does not remove. */
#define NOTHING() __asm__ volatile("")

static double shortest_ns(double batch_s(int))
{
    double shortest_s = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        double s = batch_s(parameters.iterations);
        shortest_s = s < shortest_s ? s : shortest_s;
    }
    return shortest_s * 1e9 / parameters.iterations;
}

static void *volatile hole, *volatile behind_hole;

/* Leaves a free block between used ones, as in the heap of a program that has run for a while.
 * GCC's runtime allocates the team of each region, and how long that takes depends on whether the
 * C library finds a free block or takes the end of the heap, thus on what was allocated before. */
static void leave_hole(void)
{
    hole = malloc(4096);
    behind_hole = malloc(64);
    free(hole);
}

SHOWN double regions_s(int calls)
{
    double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; i++) {
#pragma omp parallel num_threads(1)
        NOTHING();
    }
    return clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
}

/* About 10 us at 3 GHz: one multiplication waits for the other. */
static void work_10_us(void)
{
    uint64_t value = 1;
    for (int i = 0; i < 7500; i++) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(value));
    }
}

/* In run time: the threads wait for each other. Batches are short, so that the shortest is one that
 * no other program disturbed. */
SHOWN double short_region_ns(void)
{
    double shortest_s = 1e9;
    for (int batch = 0; batch < SHORT_BATCHES; batch++) {
        double start_s = wall_s();
        for (int i = 0; i < SHORT_REGIONS; i++) {
#pragma omp parallel num_threads(2)
            work_10_us();
        }
        double s = wall_s() - start_s;
        shortest_s = s < shortest_s ? s : shortest_s;
    }
    return shortest_s * 1e9 / SHORT_REGIONS;
}

SHOWN double barriers_s(int calls)
{
    double took_s = 0;
#pragma omp parallel num_threads(1)
    {
        double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < calls; i++) {
#pragma omp barrier
        }
        took_s = clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
    }
    return took_s;
}

SHOWN double locks_s(int calls)
{
    double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; i++) {
        omp_set_lock(&the_lock);
        omp_unset_lock(&the_lock);
    }
    return clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
}

SHOWN double critical_s(int calls)
{
    double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; i++) {
#pragma omp critical(the_section)
        NOTHING();
    }
    return clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    leave_hole();
    omp_init_lock(&the_lock);
    double region_ns = shortest_ns(regions_s), barrier_ns = shortest_ns(barriers_s);
    double lock_ns = shortest_ns(locks_s), critical_ns = shortest_ns(critical_s);
    double short_ns = short_region_ns();
    FILE *file = open_truth("cheap_regions");
    if (file) {
        tell_number(file, "parallel region_ns", region_ns);
        tell_number(file, "GOMP_barrier_ns", barrier_ns);
        tell_number(file, "omp_set_lock_ns", lock_ns);
        tell_number(file, "GOMP_critical_name_start_ns", critical_ns);
        tell_number(file, "region of two threads_ns", short_ns);
        close_truth(file);
    }
    printf("cheap_regions\n");
    return 0;
}
