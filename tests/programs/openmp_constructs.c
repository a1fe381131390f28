/* Every construct of OpenMP that calls the runtime, with results that depend on nothing but
 * OMP_NUM_THREADS and OMP_CANCELLATION: tasks that make tasks, reductions over tasks, nested teams,
 * teams of every size, cancellation, ordered sections, loops with dependences between iterations,
 * locks of both kinds, and fork in a team of one thread. */
#include <errno.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "subject.h"

static int fib(int n)
{
    int a, b;
    if (n < 2)
        return n;
#pragma omp task shared(a) if (n > 12)
    a = fib(n - 1);
#pragma omp task shared(b) if (n > 12)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static void tasks(void)
{
    int number = 0, sum = 0, reduced = 0, ordered = 0;
#pragma omp parallel
#pragma omp single
    number = fib(20);
#pragma omp parallel
#pragma omp single
#pragma omp taskloop grainsize(10)
    for (int i = 0; i < 1000; i++) {
#pragma omp atomic
        sum += i;
    }
#pragma omp parallel reduction(task, + : reduced)
    {
#pragma omp single
        for (int i = 0; i < 100; i++) {
#pragma omp task in_reduction(+ : reduced)
            reduced += i;
        }
    }
#pragma omp parallel
#pragma omp single
    {
        for (int i = 0; i < 50; i++) {
#pragma omp task depend(inout : ordered)
            ordered = ordered * 3 % 1000 + i;
        }
#pragma omp taskgroup
        {
#pragma omp task
            sum++;
        }
#pragma omp taskwait depend(in : ordered)
    }
    printf("tasks %d %d %d %d\n", number, sum, reduced, ordered);
}

/* Each iteration waits for earlier ones: in two loops, in loops with unsigned counters, and in more
 * loops than there are registers for arguments. */
static void wavefronts(void)
{
    enum { ROWS = 24, COLUMNS = 16, DEPTH = 4, REST = 128 };
    unsigned long long rows = ROWS;
    static int grid[ROWS + 1][COLUMNS + 1], chain[ROWS + 1], deep[DEPTH + 1][REST];
#pragma omp parallel for ordered(2) schedule(static, 1)
    for (int i = 1; i <= ROWS; i++) {
        for (int j = 1; j <= COLUMNS; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
            grid[i][j] = (grid[i - 1][j] * 3 + grid[i][j - 1] + i * j) % 1009;
#pragma omp ordered depend(source)
        }
    }
#pragma omp parallel for ordered(1) schedule(dynamic, 1)
    for (unsigned long long i = 1; i <= rows; i++) {
#pragma omp ordered depend(sink : i - 1)
        chain[i] = chain[i - 1] * 5 % 1013 + (int)i;
#pragma omp ordered depend(source)
    }
#pragma omp parallel for ordered(8) schedule(static, 1)
    for (int a = 1; a <= DEPTH; a++)
        for (int b = 0; b < 2; b++)
            for (int c = 0; c < 2; c++)
                for (int d = 0; d < 2; d++)
                    for (int e = 0; e < 2; e++)
                        for (int f = 0; f < 2; f++)
                            for (int g = 0; g < 2; g++)
                                for (int h = 0; h < 2; h++) {
                                    int at = ((b << 2 | c << 1 | d) << 4) + (e << 3 | f << 2);
                                    at += g << 1 | h;
#pragma omp ordered depend(sink : a - 1, b, c, d, e, f, g, h)
                                    deep[a][at] = (deep[a - 1][at] * 7 + at + a) % 1019;
#pragma omp ordered depend(source)
                                }
    int sum = 0;
    for (int at = 0; at < REST; at++)
        sum += deep[DEPTH][at];
    printf("wavefronts %d %d %d\n", grid[ROWS][COLUMNS], chain[ROWS], sum);
}

static void teams(void)
{
    int count = 0, sizes = 0;
    omp_set_max_active_levels(3);
#pragma omp parallel num_threads(3)
    {
#pragma omp parallel num_threads(2)
#pragma omp critical
        count++;
#pragma omp barrier
    }
    for (int threads = 1; threads <= 9; threads++) {
        int members = 0;
#pragma omp parallel num_threads(threads) reduction(+ : members)
        members += 1 + (omp_get_thread_num() >= threads);
        sizes += members == threads;
    }
    omp_set_max_active_levels(1);
    printf("teams %d %d\n", count, sizes);
}

static void loops(void)
{
    int found = 0, out_of_order = 0, next = 0, dynamic = 0, guided = 0, at_run_time = 0;
#pragma omp parallel
#pragma omp for schedule(dynamic, 1)
    for (int i = 0; i < 1000; i++) {
        if (i == 500) {
#pragma omp atomic write
            found = i;
#pragma omp cancel for
        }
#pragma omp cancellation point for
    }
#pragma omp parallel for ordered schedule(dynamic, 1)
    for (int i = 0; i < 50; i++) {
#pragma omp ordered
        out_of_order += next++ != i;
    }
#pragma omp parallel for schedule(dynamic, 3) reduction(+ : dynamic)
    for (int i = 0; i < 500; i++)
        dynamic += i;
#pragma omp parallel for schedule(guided) reduction(+ : guided)
    for (int i = 0; i < 500; i++)
        guided += i;
#pragma omp parallel for schedule(runtime) reduction(+ : at_run_time)
    for (int i = 0; i < 500; i++)
        at_run_time += i;
    printf("loops %d %d %d %d %d\n", found, out_of_order, dynamic, guided, at_run_time);
}

static void locks(void)
{
    int count = 0, copied = 0, sections = 0;
    omp_lock_t lock;
    omp_nest_lock_t nest;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest);
#pragma omp parallel num_threads(4)
    for (int i = 0; i < 1000; i++) {
        omp_set_lock(&lock);
        count++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nest);
        omp_set_nest_lock(&nest);
        copied++;
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
#pragma omp parallel num_threads(4)
    {
        int mine = 0;
#pragma omp single copyprivate(mine)
        mine = 42;
#pragma omp atomic
        copied += mine;
#pragma omp sections reduction(+ : sections)
        {
#pragma omp section
            sections += 1;
#pragma omp section
            sections += 2;
        }
    }
    printf("locks %d %d %d\n", count, copied, sections);
}

/* A child that goes on in the region that its parent has begun. */
static void forks(void)
{
    int status = -1, child_sum = 0;
#pragma omp parallel num_threads(1) reduction(+ : child_sum)
    {
        pid_t child = fork();
        if (child == 0) {
#pragma omp critical
            child_sum = 5;
        } else {
            waitpid(child, &status, 0);
        }
    }
    if (child_sum == 5) {
#pragma omp parallel num_threads(1)
        child_sum++;
        _exit(child_sum);
    }
    printf("forks %d\n", WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    for (int i = 0; i < parameters.iterations; i++) {
        errno = 77;
        tasks();
        teams();
        wavefronts();
        loops();
        locks();
        forks();
        printf("errno %d\n", errno);
        fflush(stdout);
    }
    return 0;
}
