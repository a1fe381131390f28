/* Four functions of known growth with the number of ranks, for comparisons of runs. HOW says which
 * series a run belongs to.
 *
 * strong: the problem is fixed. `perfect` shares its work among the ranks, `replicated` repeats the
 *         same work in each, `reduction` takes one step for each doubling of the ranks, `serial` is
 *         work of rank 0 alone.
 * weak:   the problem grows with the ranks. `perfect` has constant work in each rank, `replicated`
 *         handles the data of all ranks in each, `reduction` is as above, `serial` handles the data
 *         of all ranks in rank 0.
 */
#include "ranks.h"

/* Work of one iteration in parts of MILLISECONDS. */
static double perfect_parts, replicated_parts, reduction_parts, serial_parts;

static void plan(void)
{
    bool weak = strcmp(parameters.how, "weak") == 0;
    int steps = 0;
    while (1 << (steps + 1) <= ranks)
        steps++;
    perfect_parts = weak ? 8 : 32.0 / ranks;
    replicated_parts = weak ? 0.5 * ranks : 2;
    reduction_parts = 0.8 * steps;
    serial_parts = weak ? 0.25 * ranks : 1.2;
}

SHOWN void perfect(void)
{
    work_ms(parameters.ms * perfect_parts);
    KEEP_FRAME();
}

SHOWN void replicated(void)
{
    work_ms(parameters.ms * replicated_parts);
    KEEP_FRAME();
}

SHOWN void reduction(void)
{
    work_ms(parameters.ms * reduction_parts);
    KEEP_FRAME();
}

SHOWN void serial(void)
{
    work_ms(parameters.ms * serial_parts);
    KEEP_FRAME();
}

SHOWN void hand_out(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    KEEP_FRAME();
}

/* Seconds of each function in this rank. */
enum { PERFECT, REPLICATED, REDUCTION, SERIAL, HAND_OUT, FUNCTIONS };
static double spent_s[FUNCTIONS];

static void timed(int function, void (*call)(void))
{
    double start_s = wall_s();
    call();
    spent_s[function] += wall_s() - start_s;
}

/* Writes the sums over ranks. */
static void write_sums(double elapsed_s)
{
    double sums_s[FUNCTIONS];
    MPI_Reduce(spent_s, sums_s, FUNCTIONS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("growth") : NULL;
    if (!file)
        return;
    tell_number(file, "ranks", ranks);
    tell_number(file, "elapsed_s", elapsed_s);
    tell_number(file, "perfect_s", sums_s[PERFECT]);
    tell_number(file, "replicated_s", sums_s[REPLICATED]);
    tell_number(file, "reduction_s", sums_s[REDUCTION]);
    tell_number(file, "serial_s", sums_s[SERIAL]);
    tell_number(file, "hand_out_s", sums_s[HAND_OUT]);
    close_truth(file);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    plan();
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        timed(PERFECT, perfect);
        timed(REPLICATED, replicated);
        if (reduction_parts > 0)
            timed(REDUCTION, reduction);
        checksum += add_up(i);
        if (rank == 0)
            timed(SERIAL, serial);
        timed(HAND_OUT, hand_out);
    }
    write_sums(wall_s() - begin_s);
    print_result("growth", checksum);
    MPI_Finalize();
    return 0;
}
