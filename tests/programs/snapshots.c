/* Writes a snapshot of all ranks' data after each step, as PFLOTRAN does (ICS18, Algorithm 4 and
 * Figure 13). All ranks compute in advance(). Then rank 0 receives the block of one rank after
 * another and writes each, which takes MILLISECONDS x FACTOR per block, while the other ranks wait
 * at the closing barrier. HOW = collective: each rank writes its own block by one collective call,
 * which takes every rank the time of one block on rank 0. HOW = alone: the same by a call that is
 * not collective, so that nothing else is added to the run.
 *
 * The time of a block is slept, so that it does not depend on a disk; the data is written
 * nevertheless, and the checksum is computed from the bytes read back. */
#include "ranks.h"

#define VALUES 64 /* per block: few enough that MPI_Send does not wait for its receiver */

static MPI_File file;
static double block[VALUES];

SHOWN void advance(int step)
{
    work_ms(parameters.ms);
    for (int i = 0; i < VALUES; i++)
        block[i] = (double)(rank + 1) * (step + 1) + i;
    KEEP_FRAME();
}

static MPI_Offset offset_of(int step, int owner)
{
    return ((MPI_Offset)step * ranks + owner) * (MPI_Offset)sizeof block;
}

SHOWN void write_block(int step, int owner, const double *values)
{
    work_ms(parameters.ms * parameters.factor);
    MPI_File_write_at(file, offset_of(step, owner), values, VALUES, MPI_DOUBLE, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

SHOWN void write_serially(int step)
{
    if (rank != 0) {
        MPI_Send(block, VALUES, MPI_DOUBLE, 0, step, MPI_COMM_WORLD);
    } else {
        write_block(step, 0, block);
        for (int owner = 1; owner < ranks; owner++) {
            double received[VALUES];
            MPI_Recv(received, VALUES, MPI_DOUBLE, owner, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            write_block(step, owner, received);
        }
    }
    KEEP_FRAME();
}

SHOWN void write_collectively(int step)
{
    work_ms(parameters.ms * parameters.factor);
    MPI_File_write_at_all(file, offset_of(step, rank), block, VALUES, MPI_DOUBLE,
                          MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

SHOWN void write_alone(int step)
{
    write_block(step, rank, block);
    KEEP_FRAME();
}

/* Returns the rounded sum of all values in the file, equal for both ways of writing. */
static long long checksum(void)
{
    double sum = 0;
    for (int step = 0; rank == 0 && step < parameters.iterations; step++) {
        for (int owner = 0; owner < ranks; owner++) {
            double values[VALUES];
            MPI_File_read_at(file, offset_of(step, owner), values, VALUES, MPI_DOUBLE,
                             MPI_STATUS_IGNORE);
            for (int i = 0; i < VALUES; i++)
                sum += values[i];
        }
    }
    return (long long)sum;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    bool collective = strcmp(parameters.how, "collective") == 0;
    bool together = collective || strcmp(parameters.how, "alone") == 0;
    MPI_File_open(MPI_COMM_WORLD, "snapshots.dat",
                  MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    double *writing_s = allocate((size_t)parameters.iterations, sizeof(double));
    for (int step = 0; step < parameters.iterations; step++) {
        advance(step);
        MPI_Barrier(MPI_COMM_WORLD);
        double start_s = wall_s();
        if (collective)
            write_collectively(step);
        else if (together)
            write_alone(step);
        else
            write_serially(step);
        /* Other ranks than 0 only send, and hardly wait for that. */
        writing_s[step] = rank == 0 || together ? wall_s() - start_s : 0;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    struct claim claim = {"snapshots", together ? NULL : "write_block", "MPI_Barrier",
                          together ? NULL : "0", 2 * parameters.iterations};
    write_truth(&claim, writing_s, parameters.iterations);
    print_result("snapshots", checksum());
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
