/* All ranks exchange blocks of about `factor` MiB by the collective in HOW; the blocks differ in
 * size if the collective takes a list of sizes. In `scatter_alltoallv` and
 * `scatter_alltoallw`, only rank 0 sends. */
#include "ranks.h"

static char *out, *in;
static int *counts, *sent, *displacements;
static MPI_Datatype *types;

/* Returns the bytes that the rank receives from all ranks, or sends if these are more. */
SHOWN double exchange(const char *how, int block)
{
    double all = 0, all_sent = 0;
    for (int i = 0; i < ranks; i++) {
        all += counts[i];
        all_sent += sent[i];
    }
    all = all > all_sent ? all : all_sent;
    if (strcmp(how, "alltoall") == 0) {
        MPI_Alltoall(out, block, MPI_BYTE, in, block, MPI_BYTE, MPI_COMM_WORLD);
        all = (double)block * ranks;
    } else if (strstr(how, "alltoallv")) {
        MPI_Alltoallv(out, sent, displacements, MPI_BYTE, in, counts, displacements, MPI_BYTE,
                      MPI_COMM_WORLD);
    } else if (strstr(how, "alltoallw")) {
        MPI_Alltoallw(out, sent, displacements, types, in, counts, displacements, types,
                      MPI_COMM_WORLD);
    } else if (strcmp(how, "allgather") == 0) {
        MPI_Allgather(out, block, MPI_BYTE, in, block, MPI_BYTE, MPI_COMM_WORLD);
        all = (double)block * ranks;
    } else if (strcmp(how, "allgatherv") == 0) {
        MPI_Allgatherv(out, counts[rank], MPI_BYTE, in, counts, displacements, MPI_BYTE,
                       MPI_COMM_WORLD);
    } else {
        MPI_Reduce_scatter(out, in, counts, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
    }
    KEEP_FRAME();
    return all;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    int block = (int)(parameters.factor * (1 << 20));
    out = allocate((size_t)(block + 1024) * ranks, 1);
    in = allocate((size_t)(block + 1024) * ranks, 1);
    counts = allocate(ranks, sizeof *counts);
    sent = allocate(ranks, sizeof *sent);
    displacements = allocate(ranks, sizeof *displacements);
    types = allocate(ranks, sizeof(MPI_Datatype));
    for (int i = 0; i < ranks; i++) {
        /* The same between two ranks in both directions. */
        bool is_both_ways =
            strstr(parameters.how, "alltoallv") || strstr(parameters.how, "alltoallw");
        counts[i] = sent[i] = is_both_ways ? block + i + rank : block + i;
        if (strstr(parameters.how, "scatter_alltoall")) {
            counts[i] = i == 0 ? counts[i] : 0;
            sent[i] = rank == 0 ? sent[i] : 0;
        }
        displacements[i] = i * (block + 1024);
        types[i] = MPI_BYTE;
    }
    double bytes = 0, sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < parameters.iterations; i++) {
        work_ms(parameters.ms);
        bytes += exchange(parameters.how, block);
    }
    MPI_Reduce(&bytes, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("collectives") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "bytes", sum);
        tell_number(file, "calls", (double)parameters.iterations * ranks);
        close_truth(file);
    }
    print_result("collectives", in[0]);
    MPI_Finalize();
    return 0;
}
