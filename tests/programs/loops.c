/* Loops with known iterations: 24 steps. In each step assemble() runs 3 times over its elements;
 * every second step also solves. An iteration of the steps lasts many sampling periods, one of the
 * innermost loops far less than one. In the last loop, iterations become shorter and shorter. */
#include "ranks.h"

#define STEPS 24
#define ELEMENTS 3
#define LEVELS 10

static volatile double sink;
static double levels_s[LEVELS];

SHOWN void element(void)
{
    burn_ms(50);
    KEEP_FRAME();
}

SHOWN void assemble(int elements)
{
    for (int i = 0; i < elements; i++)
        element();
    KEEP_FRAME();
}

SHOWN void solve(void)
{
    burn_ms(40);
    KEEP_FRAME();
}

SHOWN void coarsen(int level)
{
    burn_ms(400.0 / (level + 1));
    KEEP_FRAME();
}

SHOWN void wait_a_while(void)
{
    sleep_ms(60);
    KEEP_FRAME();
}

/* No sample hits these loops: only their blocking calls show their iterations. */
SHOWN void sleeps(void)
{
    for (int i = 0; i < 12; i++)
        wait_a_while();
    KEEP_FRAME();
}

SHOWN void last_half(void)
{
    burn_ms(25);
    KEEP_FRAME();
}

/* Jumps to last_half() instead of calling it. */
SHOWN void first_half(void)
{
    burn_ms(25);
    last_half();
}

SHOWN void halves(void)
{
    for (int i = 0; i < 10; i++)
        first_half();
    KEEP_FRAME();
}

SHOWN void short_ones(void)
{
    double end_s = wall_s() + 0.3;
    while (wall_s() < end_s)
        sink += 1;
    KEEP_FRAME();
}

SHOWN void steps(void)
{
    for (int step = 0; step < STEPS; step++) {
        assemble(ELEMENTS);
        if (step % 2)
            solve();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    KEEP_FRAME();
}

SHOWN void levels(void)
{
    for (int level = 0; level < LEVELS; level++) {
        double start_s = wall_s();
        coarsen(level);
        levels_s[level] = wall_s() - start_s;
    }
    KEEP_FRAME();
}

/* Mean duration of each level over the ranks. */
static void write_levels(void)
{
    double sums_s[LEVELS];
    MPI_Reduce(levels_s, sums_s, LEVELS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("loops") : NULL;
    if (!file)
        return;
    for (int level = 0; level < LEVELS; level++)
        sums_s[level] /= ranks;
    tell_numbers(file, "levels_s", sums_s, LEVELS);
    close_truth(file);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    steps();
    levels();
    sleeps();
    halves();
    short_ones();
    write_levels();
    MPI_Finalize();
    return 0;
}
