/* Each kind of loss that a run with OpenMP has, one at a time, in teams of OMP_NUM_THREADS threads.
 * HOW =
 * static    the last thread's iterations of a loop take `factor` times longer
 * dynamic   the last iteration takes `factor` times longer
 * guided    the iterations of the first chunk take four times `factor` times longer
 * even      all take as long: nothing is lost
 * serial    between two regions the initial thread works alone, `factor` times as long as each
 *           thread in a region
 * critical  the threads' work in a critical section is done by one after the other
 * convoy    the threads pass three locks one after the other and queue at the second, held `factor`
 *           times as long
 * holders   thread 0 holds the lock of a critical section `factor` times longer than the others
 * tasks     `factor` thousand tasks of a microsecond in each iteration, made by one thread
 * regions   `factor` thousand regions of a microsecond in each iteration
 * nested    `static` in the inner of two nested regions; the outer one has two threads
 */
#include "teams.h"

static struct region region, inner[2];
static struct padded_s waited_s[MAX_TEAM];

SHOWN void work_item(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

/* Calls work_item as part of a region. */
static inline __attribute__((always_inline)) void work_in(struct region *region, double factor)
{
    double start_s = wall_s();
    work_item(factor);
    add_work(region, start_s);
}

SHOWN void loop_static(double slow)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < 2 * threads; i++)
        work_in(&region, i >= 2 * threads - 2 ? slow : 1);
    end_region(&region, threads);
}

SHOWN void loop_dynamic(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 2 * threads + 1; i++)
        work_in(&region, i == 2 * threads ? parameters.factor : 1);
    end_region(&region, threads);
}

SHOWN void loop_guided(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel for schedule(guided)
    for (int i = 0; i < 8 * threads; i++)
        work_in(&region, i < 4 ? 4 * parameters.factor : 1);
    end_region(&region, threads);
}

SHOWN double work_alone(void)
{
    double start_s = wall_s();
    work_item(parameters.factor);
    return wall_s() - start_s;
}

SHOWN void work_together(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    work_in(&region, 1);
    end_region(&region, threads);
}

SHOWN void update_one_by_one(void)
{
    work_item(1);
    KEEP_FRAME();
}

/* One instance for all iterations, so that the threads queue all the time. */
SHOWN void enter_critical(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s(), inside_s;
#pragma omp critical
        {
            inside_s = wall_s();
            update_one_by_one();
        }
        waited_s[omp_get_thread_num()].s += inside_s - start_s;
        add_work(&region, inside_s);
        work_in(&region, 0.1);
    }
    end_region(&region, threads);
}

/* One pass through a critical section. */
struct pass {
    double begin_s, inside_s, end_s;
};
enum { MAX_PASSES = 4096 };
static struct pass passes[MAX_TEAM][MAX_PASSES];
static int passes_of[MAX_TEAM];

static void note_pass(double begin_s, double inside_s)
{
    int thread = omp_get_thread_num();
    waited_s[thread].s += inside_s - begin_s;
    add_work(&region, inside_s);
    if (passes_of[thread] < MAX_PASSES)
        passes[thread][passes_of[thread]++] = (struct pass){begin_s, inside_s, wall_s()};
}

SHOWN void hold_long(void)
{
    double begin_s = wall_s(), inside_s;
#pragma omp critical(held)
    {
        inside_s = wall_s();
        work_item(parameters.factor);
        note_pass(begin_s, inside_s);
    }
    KEEP_FRAME();
}

SHOWN void hold_short(void)
{
    double begin_s = wall_s(), inside_s;
#pragma omp critical(held)
    {
        inside_s = wall_s();
        work_item(1);
        note_pass(begin_s, inside_s);
    }
    KEEP_FRAME();
}

SHOWN void hold_in_turns(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    for (int i = 0; i < parameters.iterations; i++) {
        if (omp_get_thread_num() == 0)
            hold_long();
        else
            hold_short();
        work_in(&region, 0.1);
    }
    end_region(&region, threads);
}

/* Fraction of the waiting of all threads during which thread 0 is in the critical section. */
static double long_share(void)
{
    double sum_s = 0, whole_s = 0;
    for (int t = 0; t < region.threads; t++) {
        for (int p = 0; p < passes_of[t]; p++) {
            const struct pass *wait = &passes[t][p];
            whole_s += wait->inside_s - wait->begin_s;
            for (int q = 0; q < passes_of[0]; q++) {
                const struct pass *hold = &passes[0][q];
                double from_s = hold->inside_s > wait->begin_s ? hold->inside_s : wait->begin_s;
                double to_s = hold->end_s < wait->inside_s ? hold->end_s : wait->inside_s;
                sum_s += to_s > from_s ? to_s - from_s : 0;
            }
        }
    }
    return whole_s > 0 ? sum_s / whole_s : 0;
}

SHOWN void hold(omp_lock_t *lock, double factor)
{
    double start_s = wall_s();
    omp_set_lock(lock);
    double inside_s = wall_s();
    waited_s[omp_get_thread_num()].s += inside_s - start_s;
    work_item(factor);
    add_work(&region, inside_s);
    omp_unset_lock(lock);
}

SHOWN void pass_locks(void)
{
    int threads = omp_get_max_threads();
    omp_lock_t locks[3];
    for (int k = 0; k < 3; k++)
        omp_init_lock(&locks[k]);
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    for (int i = 0; i < parameters.iterations; i++)
        for (int k = 0; k < 3; k++)
            hold(&locks[k], k == 1 ? parameters.factor : 1);
    end_region(&region, threads);
    for (int k = 0; k < 3; k++)
        omp_destroy_lock(&locks[k]);
}

SHOWN void make_tasks(long tasks)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
#pragma omp single
    for (long i = 0; i < tasks; i++) {
#pragma omp task
        busy_us(1);
    }
    end_region(&region, threads);
}

SHOWN void open_regions(long regions)
{
    int threads = omp_get_max_threads();
    for (long i = 0; i < regions; i++) {
        begin_region(&region, LINE_BELOW);
#pragma omp parallel
        busy_us(1);
        end_region(&region, threads);
    }
}

SHOWN void loop_inside(struct region *region, int threads)
{
    begin_region(region, LINE_BELOW);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < 2 * threads; i++)
        work_in(region, i >= 2 * threads - 2 ? parameters.factor : 1);
    end_region(region, threads);
}

SHOWN void nest(void)
{
    int threads = omp_get_max_threads();
#pragma omp parallel num_threads(2)
    loop_inside(&inner[omp_get_thread_num()], threads);
    KEEP_FRAME();
}

static double mean_waited_s(void)
{
    double sum_s = 0;
    for (int t = 0; t < region.threads; t++)
        sum_s += waited_s[t].s;
    return sum_s / region.threads;
}

/* Returns the duration of a region in which no thread waits for another one's lock. */
static double longest_work_s(const struct region *region)
{
    double longest_s = 0;
    for (int t = 0; t < region->threads; t++)
        longest_s = region->work_s[t].s > longest_s ? region->work_s[t].s : longest_s;
    return longest_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    calibrate();
    begin_hybrid(&argc, &argv, MPI_THREAD_FUNNELED);
    const char *how = parameters.how;
    struct verdict verdict = {.subject = "openmp_kinds", .file = "openmp_kinds.c",
                              .loss = "thread_imbalance", .cause = "work_item"};
    bool locks = strcmp(how, "critical") == 0 || strcmp(how, "convoy") == 0 ||
                 strcmp(how, "holders") == 0;
    long pieces = (long)(1000 * parameters.factor);
    long long checksum = 0;
    omp_set_max_active_levels(strcmp(how, "nested") == 0 ? 2 : 1);
    for (int i = 0; i < (locks ? 1 : parameters.iterations); i++) {
        if (strcmp(how, "static") == 0) {
            loop_static(parameters.factor);
            verdict.schedule = "static";
        } else if (strcmp(how, "even") == 0) {
            loop_static(1);
            verdict.schedule = "static";
            verdict.loss = verdict.cause = NULL;
        } else if (strcmp(how, "dynamic") == 0) {
            loop_dynamic();
            verdict.schedule = "dynamic";
        } else if (strcmp(how, "guided") == 0) {
            loop_guided();
            verdict.schedule = "guided";
        } else if (strcmp(how, "serial") == 0) {
            work_together();
            verdict.serial_s += work_alone();
            verdict.loss = "serial_section";
            verdict.cause = "work_alone";
        } else if (strcmp(how, "critical") == 0) {
            enter_critical();
            verdict.loss = "lock_contention";
            verdict.cause = "update_one_by_one";
        } else if (strcmp(how, "convoy") == 0) {
            pass_locks();
            verdict.loss = "lock_contention";
            verdict.cause = "hold";
        } else if (strcmp(how, "holders") == 0) {
            hold_in_turns();
            verdict.loss = "lock_contention";
            verdict.cause = "hold_short";
            verdict.holder = "hold_long";
            verdict.holder_share = long_share();
        } else if (strcmp(how, "tasks") == 0) {
            make_tasks(pieces);
            verdict.loss = "fine_grained_tasks";
            verdict.cause = "make_tasks";
        } else if (strcmp(how, "regions") == 0) {
            open_regions(pieces);
            verdict.loss = "fine_grained_regions";
            verdict.cause = "open_regions";
        } else if (strcmp(how, "nested") == 0) {
            nest();
            verdict.schedule = "static";
        } else {
            fprintf(stderr, "openmp_kinds: no kind %s\n", how);
            return 2;
        }
        checksum += end_iteration(i);
    }
    const struct region *shown = &region;
    if (inner[0].line) {
        inner[0].instances += inner[1].instances;
        inner[0].imbalance_s = (inner[0].imbalance_s + inner[1].imbalance_s) / 2;
        shown = &inner[0];
    }
    verdict.loss_s = shown->imbalance_s;
    if (verdict.serial_s > 0)
        verdict.loss_s = verdict.serial_s * (region.threads - 1) / region.threads;
    if (locks) {
        verdict.waited_s = mean_waited_s();
        double gain_s = region.elapsed_s - longest_work_s(&region);
        verdict.loss_s = gain_s < verdict.waited_s ? gain_s : verdict.waited_s;
    }
    if (strcmp(how, "tasks") == 0 || strcmp(how, "regions") == 0) {
        bool tasks = strcmp(how, "tasks") == 0;
        verdict.pieces = (double)pieces * parameters.iterations;
        verdict.piece_s = verdict.pieces * 1e-6;
        /* Every thread does the work of a region, but only one that of a task. */
        verdict.loss_s = region.elapsed_s - verdict.piece_s / (tasks ? region.threads : 1);
    }
    write_hybrid_truth(&verdict, shown);
    print_hybrid_result("openmp_kinds", checksum);
    finish_hybrid();
    return 0;
}
