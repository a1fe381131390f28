/* One rank is slow in each iteration, another one in the next: over the whole run all ranks work
 * and wait equally long, and only a view of single iterations shows the loss. HOW selects the
 * synchronisation after each iteration: allreduce (default), reduce (to the first rank, which
 * spreads the sum), reordered (on a communicator of all ranks in another order), fence, dup, split,
 * wait (for a nonblocking collective), waitall (for two), test (until one is complete), persistent
 * and startall (for one or two persistent collectives, where the MPI has them), write (to
 * one file, collectively), ordered (the same, rank after rank), view (of a file), file (opened and
 * closed), window (created and freed) or cart (a topology of all ranks). */
#include "ranks.h"

static MPI_Comm reordered = MPI_COMM_NULL;
static MPI_Win window = MPI_WIN_NULL;
static int *exposed;
static MPI_File file = MPI_FILE_NULL;

static bool is_how(const char *how)
{
    return strcmp(parameters.how, how) == 0;
}

static void open_file(void)
{
    const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    MPI_File_open(MPI_COMM_WORLD, "alternating.out", mode, MPI_INFO_NULL, &file);
}

/* Creates the objects of the synchronisation. Returns how often their creation and their end
 * synchronise all ranks. */
static int prepare(void)
{
    if (is_how("reordered")) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &reordered);
        return 1;
    }
    if (is_how("fence")) {
        MPI_Win_allocate(sizeof *exposed, sizeof *exposed, MPI_INFO_NULL, MPI_COMM_WORLD, &exposed,
                         &window);
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
        return 2;
    }
    if (is_how("write") || is_how("ordered") || is_how("view")) {
        open_file();
        return 2;
    }
    return 0;
}

#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
/* Starts and completes persistent collectives: all of them together, or only the second one, which
 * is not the first of the list. Returns the name of the completing call. */
static const char *restart(int iteration)
{
    static MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    static int values[2], sums[2];
    MPI_Status statuses[2];
    int index = -1;
    if (iteration == 0) {
        for (int i = 0; i < 2; i++)
            MPI_Allreduce_init(&values[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                               MPI_INFO_NULL, &requests[i]);
    }
    values[0] = values[1] = iteration;
    if (is_how("startall")) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
    } else {
        MPI_Start(&requests[1]);
        MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    }
    if (iteration == parameters.iterations - 1) {
        for (int i = 0; i < 2; i++)
            MPI_Request_free(&requests[i]);
    }
    return is_how("startall") ? "MPI_Waitall" : "MPI_Waitany";
}
#endif

/* Starts and completes a nonblocking collective. Returns the name of the completing call; NULL for
 * a loop. */
static const char *complete(int iteration)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int sums[2], complete = 0;
    MPI_Iallreduce(&iteration, &sums[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    if (is_how("wait")) {
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        return "MPI_Wait";
    }
    if (is_how("waitall")) {
        MPI_Iallreduce(&iteration, &sums[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, statuses);
        return "MPI_Waitall";
    }
    while (!complete)
        MPI_Test(&requests[0], &complete, MPI_STATUS_IGNORE);
    return NULL;
}

/* Returns the name of the call in which the ranks wait for each other; NULL for several calls or a
 * loop. */
static const char *come_together(int iteration)
{
    MPI_Comm other;
    int sum = 0;
    if (is_how("reduce")) {
        MPI_Reduce(&iteration, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            /* Has no effect on the other ranks. */
            MPI_Comm_dup(MPI_COMM_SELF, &other);
            MPI_Comm_free(&other);
        }
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
        /* No synchronisation has happened since. */
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
        return NULL;
    }
    if (is_how("reordered")) {
        MPI_Barrier(reordered);
        return "MPI_Barrier";
    }
    if (is_how("fence")) {
        MPI_Put(&iteration, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, window);
        MPI_Win_fence(0, window);
        return "MPI_Win_fence";
    }
    if (is_how("dup") || is_how("split")) {
        if (is_how("dup"))
            MPI_Comm_dup(MPI_COMM_WORLD, &other);
        else
            MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &other);
        MPI_Comm_free(&other);
        return is_how("dup") ? "MPI_Comm_dup" : "MPI_Comm_split";
    }
    if (is_how("wait") || is_how("waitall") || is_how("test"))
        return complete(iteration);
#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
    if (is_how("persistent") || is_how("startall"))
        return restart(iteration);
#endif
    if (is_how("write")) {
        MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof rank, &rank, 1, MPI_INT,
                              MPI_STATUS_IGNORE);
        return "MPI_File_write_at_all";
    }
    if (is_how("ordered")) {
        MPI_File_write_ordered(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
        return "MPI_File_write_ordered";
    }
    if (is_how("view")) {
        MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
        return "MPI_File_set_view";
    }
    if (is_how("file")) {
        open_file();
        MPI_File_close(&file);
        return "MPI_File_open";
    }
    if (is_how("window")) {
        MPI_Win_create(&sum, sizeof sum, sizeof sum, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_free(&window);
        return "MPI_Win_create";
    }
    if (is_how("cart")) {
        const int of_all[] = {1, ranks}, of_one[] = {1, 1}, periods[] = {0, 0};
        MPI_Cart_create(MPI_COMM_WORLD, 2, of_all, periods, 1, &other);
        MPI_Comm_free(&other);
        /* Most ranks have no part in it, and may leave early. */
        MPI_Cart_create(MPI_COMM_WORLD, 2, of_one, periods, 0, &other);
        if (other != MPI_COMM_NULL)
            MPI_Comm_free(&other);
        return "MPI_Cart_create";
    }
    add_up(iteration);
    return "MPI_Allreduce";
}

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    /* Every rank is slow equally often: otherwise the totals would show the loss. */
    parameters.iterations = (parameters.iterations + ranks - 1) / ranks * ranks;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    const int objects = prepare();
    const char *call = NULL;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_even();
        work_uneven(i % ranks == rank ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        call = come_together(i);
    }
    const int times = is_how("file") || is_how("window") ? 2 : 1;
    const int syncs = objects + times * parameters.iterations;
    struct claim claim = {"alternating", "work_uneven", call, NULL, syncs};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("alternating", parameters.iterations);
    if (reordered != MPI_COMM_NULL)
        MPI_Comm_free(&reordered);
    if (window != MPI_WIN_NULL)
        MPI_Win_free(&window);
    if (file != MPI_FILE_NULL)
        MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
