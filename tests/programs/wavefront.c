/* A pipeline: in each sweep a rank begins after the previous one is done. All ranks work equally
 * long and most of them wait, at first for the front to come and in the end for it to pass. HOW =
 * free has no dependency and no waiting. */
#include "ranks.h"

SHOWN void work_block(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN int sweep(int front, bool depends)
{
    if (depends && rank > 0)
        MPI_Recv(&front, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    work_block();
    if (depends && rank + 1 < ranks)
        MPI_Send(&front, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    KEEP_FRAME();
    return front;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool depends = strcmp(parameters.how, "free") != 0;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        checksum += sweep(i, depends);
        checksum += add_up(i);
    }
    /* Sum of the ranks' turns one after the other, less the work of each. */
    double all_s = wall_s() - begin_s, lost_s = 0;
    if (depends)
        lost_s = all_s * (ranks - 1) / ranks;
    FILE *file = rank == 0 ? open_truth("wavefront") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", parameters.iterations);
        tell_number(file, "elapsed_s", all_s);
        tell_number(file, "expected_loss_s", lost_s);
        tell_text(file, "cause", depends ? "work_block" : NULL);
        tell_text(file, "symptom", depends ? "MPI_Recv" : NULL);
        tell_text(file, "slow_ranks", NULL);
        close_truth(file);
    }
    print_result("wavefront", checksum);
    MPI_Finalize();
    return 0;
}
