/* Two losses at once. HOW = same, in one phase: all ranks do a part one after the other, and then
 * the last one works `factor` times longer in work_uneven(). Otherwise in two phases: work_uneven()
 * before one barrier, and before another one work_serial(), which rank 0 does alone. */
#include "ranks.h"

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void work_serial(void)
{
    work_ms(parameters.ms * 3);
    KEEP_FRAME();
}

SHOWN void work_in_turn(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

/* Duration of this rank's turn. */
SHOWN double take_turns(void)
{
    int turn = 0;
    if (rank > 0)
        MPI_Recv(&turn, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double start_s = wall_s();
    work_in_turn();
    double turn_s = wall_s() - start_s;
    if (rank + 1 < ranks)
        MPI_Send(&turn, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    return turn_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool same = strcmp(parameters.how, "same") == 0;
    double *uneven_s = allocate((size_t)parameters.iterations, sizeof(double));
    double *alone_s = allocate((size_t)parameters.iterations, sizeof(double));
    for (int i = 0; i < parameters.iterations; i++) {
        if (same)
            alone_s[i] = take_turns();
        double start_s = wall_s();
        work_uneven(rank == ranks - 1 ? parameters.factor : 1);
        uneven_s[i] = wall_s() - start_s;
        MPI_Barrier(MPI_COMM_WORLD);
        if (same)
            continue;
        start_s = wall_s();
        if (rank == 0)
            work_serial();
        alone_s[i] = wall_s() - start_s;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    size_t count = (size_t)parameters.iterations;
    double *all_s = allocate(2 * count * (size_t)ranks, sizeof(double));
    double elapsed_s = wall_s() - begin_s;
    for (int part = 0; part < 2; part++)
        MPI_Gather(part ? alone_s : uneven_s, parameters.iterations, MPI_DOUBLE,
                   all_s + (size_t)part * count * (size_t)ranks, parameters.iterations, MPI_DOUBLE,
                   0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("two") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "elapsed_s", elapsed_s);
        tell_number(file, "uneven_s", imbalance_s(all_s, parameters.iterations));
        tell_number(file, "serial_s",
                    imbalance_s(all_s + count * (size_t)ranks, parameters.iterations));
        /* The last one waits while all others take their turns. */
        double turns_s = 0;
        for (size_t turn = 0; turn < count * (size_t)(ranks - 1); turn++)
            turns_s += all_s[count * (size_t)ranks + turn];
        tell_number(file, "turns_s", turns_s);
        tell_text(file, "slow_ranks", range(ranks - 1, ranks - 1));
        close_truth(file);
    }
    print_result("two", parameters.iterations);
    MPI_Finalize();
    return 0;
}
