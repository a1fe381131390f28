/* Ranks take turns in pairs. In a loop of MPI_Iprobe, MPI_Testall and MPI_Test they poll for a
 * message, `factor` times as long as their part of the work (`ms` divided by the number of pairs);
 * no message arrives before both send theirs. HOW = blocks exchanges at once, by MPI_Sendrecv. */
#include "ranks.h"

SHOWN void work_even(double part)
{
    work_ms(parameters.ms * part);
    KEEP_FRAME();
}

/* Polls until the partner's message has come; sends its own once `until_s` has passed. */
SHOWN long long exchange_by_polls(int i, double until_s)
{
    long long mine = rank + i, theirs = 0;
    MPI_Request receive, send = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Irecv(&theirs, 1, MPI_LONG_LONG, partner(), 1, MPI_COMM_WORLD, &receive);
    bool sent = false;
    int found = 0, all = 0, done = 0;
    while (!all || !sent || !done) {
        MPI_Iprobe(partner(), 2, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        MPI_Testall(1, &receive, &all, &status);
        MPI_Test(&send, &done, MPI_STATUS_IGNORE);
        if (!sent && wall_s() >= until_s) {
            MPI_Isend(&mine, 1, MPI_LONG_LONG, partner(), 1, MPI_COMM_WORLD, &send);
            sent = true;
            done = 0;
        }
    }
    return theirs + found;
}

SHOWN long long exchange_by_blocking(int i)
{
    long long mine = rank + i, theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_LONG_LONG, partner(), 1, &theirs, 1, MPI_LONG_LONG, partner(), 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    KEEP_FRAME();
    return theirs;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool polls = strcmp(parameters.how, "blocks") != 0;
    double polled_s = 0, poll_s = parameters.ms * parameters.factor * 1e-3 / ((ranks + 1) / 2);
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        work_even(before_turn());
        double start_s = wall_s();
        if (polls)
            checksum += exchange_by_polls(i, start_s + poll_s);
        else
            checksum += exchange_by_blocking(i);
        polled_s += wall_s() - start_s;
        work_even(1 - before_turn());
    }
    double mean_s = mean_over_ranks(polled_s);
    FILE *file = rank == 0 ? open_truth("polls") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", 0);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", polls ? mean_s : 0);
        tell_text(file, "cause", polls ? "exchange_by_polls" : NULL);
        close_truth(file);
    }
    print_result("polls", checksum);
    MPI_Finalize();
    return 0;
}
