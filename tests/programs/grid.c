/* Ranks on a grid of two rows. In each step one rank of a row works `factor` times longer in
 * work_by_turns(), each time another one, and its row waits for it in an MPI_Allreduce of the row:
 * in the end all ranks have worked equally long. HOW = columns also sums over the columns, after
 * even work. HOW = world: all ranks meet in a barrier after each step. */
#include "ranks.h"

static MPI_Comm row, column;
static int row_rank, row_ranks;

SHOWN void work_by_turns(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

SHOWN void work_alike(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN long long sum_over(MPI_Comm ranks, long long mine)
{
    long long sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, ranks);
    return sum;
}

/* Returns the time saved if the work of each step is spread evenly over the waiting row. */
static double expected_loss_s(const double *work_s)
{
    double loss_s = 0;
    for (int first = 0; first < ranks; first += row_ranks) {
        for (int i = 0; i < parameters.iterations; i++) {
            double longest_s = 0, sum_s = 0;
            for (int r = first; r < first + row_ranks; r++) {
                double one_s = work_s[r * parameters.iterations + i];
                longest_s = one_s > longest_s ? one_s : longest_s;
                sum_s += one_s;
            }
            loss_s += (longest_s - sum_s / row_ranks) * row_ranks / ranks;
        }
    }
    return loss_s;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    row_ranks = ranks / 2;
    MPI_Comm_split(MPI_COMM_WORLD, rank / row_ranks, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % row_ranks, rank, &column);
    MPI_Comm_rank(row, &row_rank);
    bool columns = strcmp(parameters.how, "columns") == 0;
    bool world = strcmp(parameters.how, "world") == 0;
    int iterations = parameters.iterations;
    double *work_s = allocate((size_t)iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < iterations; i++) {
        double start_s = wall_s();
        work_by_turns(row_rank == i % row_ranks ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        checksum += sum_over(row, rank + i);
        if (columns) {
            work_alike();
            checksum += sum_over(column, rank - i);
        }
        if (world)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    double *all_s = allocate((size_t)ranks * (size_t)iterations, sizeof(double));
    MPI_Gather(work_s, iterations, MPI_DOUBLE, all_s, iterations, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("grid") : NULL;
    if (file) {
        bool uneven = parameters.factor != 1;
        tell_number(file, "global_syncs", world ? iterations : 0);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", expected_loss_s(all_s));
        tell_text(file, "cause", uneven ? "work_by_turns" : NULL);
        tell_text(file, "symptom", uneven ? "MPI_Allreduce" : NULL);
        close_truth(file);
    }
    print_result("grid", checksum);
    MPI_Comm_free(&column);
    MPI_Comm_free(&row);
    MPI_Finalize();
    return 0;
}
