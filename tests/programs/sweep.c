/* A transport sweep as a wavefront over a grid of ranks, six columns wide: a rank waits for its
 * neighbours to the west and the north, sweeps its cells, and lets its neighbours to the east and
 * the south begin. The ranks of the first and the last column also compute the leakage out of the
 * domain, in four loops, and work four times as long. All work by sleeping. */
#include "ranks.h"

#define COLUMNS 6
#define SWEEPS 12
#define GROUPS 3
#define INNER_MS 1.0
#define LEAKING_MS 4.0

static double leakage_ms;

SHOWN void sweep_cells(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(3);
    KEEP_FRAME();
}

SHOWN void add_sources(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(2);
    KEEP_FRAME();
}

SHOWN void leak_west(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(leakage_ms);
    KEEP_FRAME();
}

SHOWN void leak_east(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(leakage_ms);
    KEEP_FRAME();
}

SHOWN void reflect(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(leakage_ms);
    KEEP_FRAME();
}

SHOWN void tally_currents(void)
{
    for (int group = 0; group < GROUPS; group++)
        sleep_ms(leakage_ms);
    KEEP_FRAME();
}

SHOWN void exchange(int from, int to, int sends)
{
    double flux = rank;
    if (sends && to < ranks)
        MPI_Send(&flux, 1, MPI_DOUBLE, to, 0, MPI_COMM_WORLD);
    if (!sends && from >= 0)
        MPI_Recv(&flux, 1, MPI_DOUBLE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

SHOWN void sweep(void)
{
    int column = rank % COLUMNS;
    int west = column > 0 ? rank - 1 : -1;
    int east = column < COLUMNS - 1 ? rank + 1 : ranks;
    exchange(west, 0, 0);
    exchange(rank - COLUMNS, 0, 0);
    sweep_cells();
    leak_west();
    leak_east();
    reflect();
    tally_currents();
    add_sources();
    exchange(0, east, 1);
    exchange(0, rank + COLUMNS, 1);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int column = rank % COLUMNS;
    leakage_ms = column == 0 || column == COLUMNS - 1 ? LEAKING_MS : INNER_MS;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = 0; step < SWEEPS; step++)
        sweep();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
