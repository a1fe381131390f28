/* Regions of less usual shapes, in teams of OMP_NUM_THREADS threads.
 * HOW =
 * cancel    the loop of each region is cancelled in its middle (with OMP_CANCELLATION=true)
 * changes   the number of threads changes: 1, 2, ... OMP_NUM_THREADS, by turns by
 *           omp_set_num_threads and by a clause
 * in_tasks  explicit tasks open regions of two threads
 * target    target regions, which run on the host: `distribute` and a loop of threads
 * sections  as many sections as threads; the last works `factor` times longer
 * ordered   an ordered part in each iteration, which the threads do one after the other
 * single    one thread works while the others wait at the end of the construct
 * nest_lock a nestable lock, taken twice by its holder
 * stop      the last thread calls exit() in the middle of the last region
 */
#include "teams.h"

static struct region region, others[MAX_TEAM];
static struct padded_s waited_s[MAX_TEAM];
static long long done;

SHOWN void work_item(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

static inline __attribute__((always_inline)) void work_in(struct region *region, double factor)
{
    double start_s = wall_s();
    work_item(factor);
    add_work(region, start_s);
}

SHOWN void loop_cancelled(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    {
#pragma omp for schedule(monotonic : dynamic)
        for (int i = 0; i < 100 * threads; i++) {
            work_in(&region, 1);
#pragma omp atomic
            done++;
            if (i >= 2 * threads) {
#pragma omp cancel for
            }
#pragma omp cancellation point for
        }
    }
    end_region(&region, threads);
}

SHOWN void team_of(int threads, bool clause)
{
    if (clause) {
        begin_region(&others[threads], LINE_BELOW);
#pragma omp parallel num_threads(threads)
        work_in(&others[threads], 1);
        end_region(&others[threads], threads);
    } else {
        omp_set_num_threads(threads);
        begin_region(&region, LINE_BELOW);
#pragma omp parallel
        work_in(&region, 1);
        end_region(&region, threads);
    }
}

SHOWN void open_inside(struct region *mine)
{
    begin_region(mine, LINE_BELOW);
#pragma omp parallel num_threads(2)
    work_in(mine, 1);
    end_region(mine, 2);
}

SHOWN void regions_in_tasks(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < threads; i++) {
#pragma omp task firstprivate(i)
        open_inside(&others[i]);
    }
    end_region(&region, threads);
}

SHOWN void loop_on_target(void)
{
    int threads = omp_get_max_threads();
    double *work_s = calloc(MAX_TEAM, sizeof(double));
    double ms = parameters.ms;
    /* That of the loop, which is the parallel region. */
    region.line = LINE_BELOW + 3;
#pragma omp target map(tofrom : work_s[0 : MAX_TEAM])
    {
        region.start_s = wall_s();
#pragma omp parallel for schedule(static)
        for (int i = 0; i < threads; i++) {
            double start_s = wall_s();
            work_ms(ms);
            work_s[omp_get_thread_num()] += wall_s() - start_s;
        }
    }
    for (int t = 0; t < threads; t++)
        region.open_s[t].s = work_s[t];
    end_region(&region, threads);
    free(work_s);
}

SHOWN void work_in_sections(void)
{
    begin_region(&region, LINE_BELOW);
#pragma omp parallel sections num_threads(3)
    {
#pragma omp section
        work_in(&region, 1);
#pragma omp section
        work_in(&region, 1);
#pragma omp section
        work_in(&region, parameters.factor);
    }
    end_region(&region, 3);
}

SHOWN void one_after_the_other(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel for schedule(static, 1) ordered
    for (int i = 0; i < 2 * threads; i++) {
        double start_s = wall_s(), inside_s = start_s;
#pragma omp ordered
        {
            inside_s = wall_s();
            work_in(&region, 1);
        }
        waited_s[omp_get_thread_num()].s += inside_s - start_s;
    }
    end_region(&region, threads);
}

SHOWN void one_for_all(void)
{
    int threads = omp_get_max_threads();
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    {
#pragma omp single
        work_in(&region, parameters.factor);
        work_in(&region, 1);
    }
    end_region(&region, threads);
}

SHOWN void hold_twice(omp_nest_lock_t *lock)
{
    double start_s = wall_s();
    omp_set_nest_lock(lock);
    double inside_s = wall_s();
    omp_set_nest_lock(lock);
    waited_s[omp_get_thread_num()].s += inside_s - start_s;
    work_in(&region, 1);
    omp_unset_nest_lock(lock);
    omp_unset_nest_lock(lock);
}

SHOWN void pass_nest_lock(void)
{
    int threads = omp_get_max_threads();
    omp_nest_lock_t lock;
    omp_init_nest_lock(&lock);
    begin_region(&region, LINE_BELOW);
#pragma omp parallel
    hold_twice(&lock);
    end_region(&region, threads);
    omp_destroy_nest_lock(&lock);
}

static void claim(struct verdict *verdict, const char *loss, const char *cause, double loss_s)
{
    verdict->loss = loss;
    verdict->cause = cause;
    verdict->loss_s = loss_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin_hybrid(&argc, &argv, MPI_THREAD_FUNNELED);
    const char *how = parameters.how;
    const int threads = omp_get_max_threads();
    struct verdict verdict = {.subject = "openmp_shapes", .file = "openmp_shapes.c"};
    long long checksum = 0;
    omp_set_max_active_levels(strcmp(how, "in_tasks") == 0 ? 2 : 1);
    for (int i = 0; i < parameters.iterations; i++) {
        if (strcmp(how, "cancel") == 0)
            loop_cancelled();
        else if (strcmp(how, "changes") == 0)
            team_of(i % threads + 1, i / threads % 2 == 1);
        else if (strcmp(how, "in_tasks") == 0)
            regions_in_tasks();
        else if (strcmp(how, "target") == 0)
            loop_on_target();
        else if (strcmp(how, "sections") == 0)
            work_in_sections();
        else if (strcmp(how, "ordered") == 0)
            one_after_the_other();
        else if (strcmp(how, "single") == 0)
            one_for_all();
        else if (strcmp(how, "nest_lock") == 0)
            pass_nest_lock();
        else if (strcmp(how, "stop") == 0) {
            team_of(threads, false);
            if (i + 1 == parameters.iterations) {
#pragma omp parallel
                if (omp_get_thread_num() == omp_get_num_threads() - 1)
                    exit(0);
                else
                    sleep_ms(1000);
            }
        } else {
            fprintf(stderr, "openmp_shapes: no shape %s\n", how);
            return 2;
        }
        checksum += end_iteration(i);
    }
    double sum_waited_s = 0;
    for (int t = 0; t < region.threads; t++)
        sum_waited_s += waited_s[t].s;
    verdict.waited_s = sum_waited_s / (region.threads ? region.threads : 1);
    if (strcmp(how, "sections") == 0)
        claim(&verdict, "thread_imbalance", "work_item", region.imbalance_s);
    else if (strcmp(how, "single") == 0)
        claim(&verdict, "thread_imbalance", "work_item", region.imbalance_s);
    else if (strcmp(how, "ordered") == 0)
        claim(&verdict, "lock_contention", "work_item", verdict.waited_s);
    else if (strcmp(how, "nest_lock") == 0)
        claim(&verdict, "lock_contention", "hold_twice", verdict.waited_s);
    const struct region *shown = &region;
    if (strcmp(how, "in_tasks") == 0) {
        for (int t = 1; t < threads; t++) {
            others[0].instances += others[t].instances;
            others[0].elapsed_s += others[t].elapsed_s;
        }
        shown = &others[0];
    }
    write_hybrid_truth(&verdict, shown);
    print_hybrid_result("openmp_shapes", strcmp(how, "cancel") == 0 ? (done > 0) : checksum);
    finish_hybrid();
    return 0;
}
