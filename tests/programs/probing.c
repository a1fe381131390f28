/* Two programs in one: the last tenth of the ranks is the ocean, which polls by MPI_Iprobe for a
 * message that never comes, `factor` times as long as all ranks work. The atmosphere of the others
 * only works; all meet after each step. HOW = blind does not poll. */
#include "ranks.h"

SHOWN void look(double until_s)
{
    int found = 0;
    while (!found && wall_s() < until_s)
        MPI_Iprobe(rank, 3, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

/* Works, and returns how long it has polled afterwards. */
SHOWN double ocean(bool looks)
{
    work_ms(parameters.ms);
    double start_s = wall_s();
    if (looks)
        look(start_s + parameters.ms * parameters.factor * 1e-3);
    return wall_s() - start_s;
}

SHOWN double atmosphere(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
    return 0;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    int first_of_ocean = ranks - (ranks + 9) / 10;
    bool looks = strcmp(parameters.how, "blind") != 0;
    double looked_s = 0;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        looked_s += rank >= first_of_ocean ? ocean(looks) : atmosphere();
        checksum += add_up(i);
    }
    double most_s = 0;
    MPI_Reduce(&looked_s, &most_s, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("probing") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", parameters.iterations);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", looks ? most_s : 0);
        tell_text(file, "cause", looks ? "look" : NULL);
        tell_text(file, "symptom", "MPI_Iprobe");
        tell_text(file, "slow_ranks", NULL);
        close_truth(file);
    }
    print_result("probing", checksum);
    MPI_Finalize();
    return 0;
}
