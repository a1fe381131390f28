/* Ranks take turns in pairs: they write `factor` MiB to files of their own and wait until the data
 * is on disk. HOW = memory writes nothing. HOW = fills writes during most of a turn, which is `ms`
 * divided by the number of pairs, however fast the disk is. */
#include "ranks.h"

#include <fcntl.h>
#include <unistd.h>

SHOWN void work_even(double part)
{
    work_ms(parameters.ms * part);
    KEEP_FRAME();
}

SHOWN void write_checkpoint(int file, const char *data, size_t bytes)
{
    for (size_t written = 0; written < bytes;) {
        ssize_t more = pwrite(file, data + written, bytes - written, (off_t)written);
        if (more <= 0) {
            perror("subject: cannot write");
            exit(2);
        }
        written += (size_t)more;
    }
    fsync(file);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool writes = strcmp(parameters.how, "memory") != 0;
    size_t bytes = (size_t)(parameters.factor * (1 << 20));
    char *data = allocate(bytes, 1), name[64];
    memset(data, rank + 1, bytes);
    snprintf(name, sizeof name, "checkpoint.%d", rank);
    int file = writes ? open(name, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    unlink(name);
    double turn_s = parameters.ms * 1e-3 / ((ranks + 1) / 2), writing_s = 0;
    double filled_s = strcmp(parameters.how, "fills") == 0 ? 0.7 * turn_s : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        work_even(before_turn());
        double start_s = wall_s();
        do {
            if (writes)
                write_checkpoint(file, data, bytes);
        } while (wall_s() - start_s < filled_s);
        writing_s += wall_s() - start_s;
        work_even(1 - before_turn());
    }
    /* Once only: occasional delays of the disk even out until here, mostly. */
    double came_s = wall_s();
    long long checksum = add_up(parameters.iterations);
    double mean_s = mean_over_ranks(writing_s), waits_s = mean_earliness(came_s);
    FILE *truth = rank == 0 ? open_truth("files") : NULL;
    if (truth) {
        tell_number(truth, "ranks", ranks);
        tell_number(truth, "iterations", parameters.iterations);
        tell_number(truth, "global_syncs", 2);
        tell_number(truth, "elapsed_s", wall_s() - begin_s);
        tell_number(truth, "waits_s", waits_s);
        tell_number(truth, "expected_loss_s", mean_s);
        tell_text(truth, "cause", writes ? "write_checkpoint" : NULL);
        close_truth(truth);
    }
    print_result("files", checksum);
    MPI_Finalize();
    return 0;
}
