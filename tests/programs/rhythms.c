/* Loops with planted iterations that sleep: of 60 iterations every tenth also rebuilds its list; 40
 * become longer and longer; 36 alternate between three kinds of work. */
#include "ranks.h"

#define STEPS 60
#define EVERY 10
#define GROWING 40
#define TURNS 36

SHOWN void advance(void)
{
    sleep_ms(10);
    KEEP_FRAME();
}

SHOWN void rebuild_list(void)
{
    sleep_ms(25);
    KEEP_FRAME();
}

SHOWN void every_tenth(void)
{
    for (int step = 0; step < STEPS; step++) {
        if (step % EVERY == EVERY - 1)
            rebuild_list();
        advance();
    }
    KEEP_FRAME();
}

SHOWN void grow(double ms)
{
    sleep_ms(ms);
    KEEP_FRAME();
}

SHOWN void drift(void)
{
    for (int step = 0; step < GROWING; step++)
        grow(8 + 0.5 * step);
    KEEP_FRAME();
}

SHOWN void assemble(void)
{
    sleep_ms(8);
    KEEP_FRAME();
}

SHOWN void solve(void)
{
    sleep_ms(16);
    KEEP_FRAME();
}

SHOWN void exchange(void)
{
    sleep_ms(24);
    KEEP_FRAME();
}

SHOWN void turns(void)
{
    for (int step = 0; step < TURNS; step++) {
        if (step % 3 == 0)
            assemble();
        else if (step % 3 == 1)
            solve();
        else
            exchange();
    }
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    every_tenth();
    drift();
    turns();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
