/* Ranks take turns in pairs and exchange messages of `factor` MiB: no rank is late, the messages
 * are long. A turn should take no longer than `ms` divided by the number of pairs. Each message
 * begins with the time of its sending: waiting for the partner is no transfer. HOW = short sends
 * three numbers per message. HOW = fills sends messages during most of a turn, however fast they
 * are. HOW = apart begins messages in one function and completes them in a function of another
 * file. */
#include "completes.h"
#include "ranks.h"

struct header {
    double came_s, is_last;
};

SHOWN void work_even(double part)
{
    work_ms(parameters.ms * part);
    KEEP_FRAME();
}

SHOWN void pass_on(char *out, char *in, int bytes)
{
    MPI_Sendrecv(out, bytes, MPI_BYTE, partner(), 1, in, bytes, MPI_BYTE, partner(), 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

SHOWN void start_sending(char *out, int bytes, MPI_Request *request)
{
    MPI_Isend(out, bytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD, request);
    KEEP_FRAME();
}

SHOWN void start_receiving(char *in, int bytes, MPI_Request *request)
{
    MPI_Irecv(in, bytes, MPI_BYTE, partner(), 1, MPI_COMM_WORLD, request);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    bool apart = strcmp(parameters.how, "apart") == 0;
    bool large = strcmp(parameters.how, "short") != 0;
    int whole = (int)(parameters.factor * (1 << 20)), bytes = large ? whole : 24;
    char *out = allocate((size_t)whole, 1), *in = allocate((size_t)whole, 1);
    /* Before the run: ranks that share cores get their pages one after the other. */
    memset(out, 1, (size_t)whole);
    memset(in, 1, (size_t)whole);
    begin(&argc, &argv);
    out[bytes - 1] = (char)(rank + 1);
    double turn_s = parameters.ms * 1e-3 / ((ranks + 1) / 2);
    double filled_s = strcmp(parameters.how, "fills") == 0 ? 0.7 * turn_s : 0;
    double passing_s = 0, late_s = 0;
    long long checksum = 0, messages = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        work_even(before_turn());
        double turn_begin_s = wall_s();
        bool is_last = false;
        while (!is_last) {
            double start_s = wall_s();
            is_last = start_s - turn_begin_s >= filled_s;
            struct header mine = {start_s, is_last}, theirs;
            memcpy(out, &mine, sizeof mine);
            if (apart) {
                MPI_Request requests[2];
                start_receiving(in, bytes, &requests[0]);
                start_sending(out, bytes, &requests[1]);
                complete_both(requests);
            } else {
                pass_on(out, in, bytes);
            }
            passing_s += wall_s() - start_s;
            memcpy(&theirs, in, sizeof theirs);
            late_s += theirs.came_s > start_s ? theirs.came_s - start_s : 0;
            is_last = rank < partner() ? is_last : theirs.is_last != 0;
            messages++;
        }
        checksum += in[bytes - 1];
        work_even(1 - before_turn());
    }
    double came_s = wall_s(), transfer_s = mean_over_ranks(passing_s - late_s);
    double waits_s = mean_over_ranks(late_s) + mean_earliness(came_s);
    double mean_messages = mean_over_ranks((double)messages);
    FILE *file = rank == 0 ? open_truth("messages") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", 1);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", large ? transfer_s : 0);
        tell_number(file, "waits_s", waits_s);
        tell_number(file, "bytes", bytes * mean_messages * ranks);
        tell_text(file, "symptom", large ? (apart ? "MPI_Waitall" : "MPI_Sendrecv") : NULL);
        tell_text(file, "cause", large ? (apart ? "complete_both" : "pass_on") : NULL);
        close_truth(file);
    }
    print_result("messages", checksum);
    MPI_Finalize();
    return 0;
}
