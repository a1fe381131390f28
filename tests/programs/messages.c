/* Ranks take turns in pairs and exchange messages of `factor` MiB: no rank is late, the messages
 * are long. A turn should take no longer than `ms` divided by the number of pairs. HOW = short
 * sends one number per message. HOW = apart begins messages in one function and completes them in a
 * function of another file. */
#include "completes.h"
#include "ranks.h"

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
    begin(&argc, &argv);
    bool apart = strcmp(parameters.how, "apart") == 0;
    bool large = strcmp(parameters.how, "short") != 0;
    int whole = (int)(parameters.factor * (1 << 20)), bytes = large ? whole : 8;
    char *out = allocate((size_t)whole, 1), *in = allocate((size_t)whole, 1);
    memset(out, rank + 1, (size_t)whole);
    memset(in, 0, (size_t)whole);
    double passing_s = 0;
    long long checksum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        work_even(before_turn());
        double start_s = wall_s();
        if (apart) {
            MPI_Request requests[2];
            start_receiving(in, bytes, &requests[0]);
            start_sending(out, bytes, &requests[1]);
            complete_both(requests);
        } else {
            pass_on(out, in, bytes);
        }
        passing_s += wall_s() - start_s;
        checksum += in[bytes - 1];
        work_even(1 - before_turn());
    }
    double sum_s = 0;
    MPI_Reduce(&passing_s, &sum_s, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("messages") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", 1);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "expected_loss_s", large ? sum_s / ranks : 0);
        tell_number(file, "bytes", (double)bytes * parameters.iterations * ranks);
        tell_text(file, "symptom", large ? (apart ? "MPI_Waitall" : "MPI_Sendrecv") : NULL);
        tell_text(file, "cause", large ? (apart ? "complete_both" : "pass_on") : NULL);
        close_truth(file);
    }
    print_result("messages", checksum);
    MPI_Finalize();
    return 0;
}
