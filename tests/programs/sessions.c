/* As imbalance.c, over a communicator made from a session (MPI-4, 11.3). HOW = besides also calls
 * MPI_Init; HOW = instead does not, and then MPI_COMM_WORLD does not exist. */
#include "ranks.h"

SHOWN void work_uneven(double factor)
{
    work_ms(parameters.ms * factor);
    KEEP_FRAME();
}

static MPI_Comm world_of(MPI_Session session)
{
    MPI_Group group;
    MPI_Comm world;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "subject", MPI_INFO_NULL, MPI_ERRORS_RETURN, &world);
    MPI_Group_free(&group);
    return world;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    bool besides = strcmp(parameters.how, "besides") == 0;
    MPI_Session session;
    if (besides)
        begin(&argc, &argv);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Comm world = world_of(session);
    if (!besides) {
        begin_s = wall_s();
        MPI_Comm_rank(world, &rank);
        MPI_Comm_size(world, &ranks);
    }
    double *work_s = (double *)allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_uneven(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s[i] = wall_s() - start_s;
        long long part = (long long)(rank + 1) * (i + 1), sum = 0;
        MPI_Allreduce(&part, &sum, 1, MPI_LONG_LONG, MPI_SUM, world);
        checksum += sum;
    }
    double *all_s = (double *)allocate((size_t)ranks * (size_t)parameters.iterations,
                                       sizeof(double));
    MPI_Gather(work_s, parameters.iterations, MPI_DOUBLE, all_s, parameters.iterations, MPI_DOUBLE,
               0, world);
    struct claim claim = {"sessions", "work_uneven", "MPI_Allreduce",
                          range(first_slow_rank(), ranks - 1), parameters.iterations};
    if (rank == 0)
        write_gathered(&claim, all_s, parameters.iterations, wall_s() - begin_s);
    print_result("sessions", checksum);
    MPI_Comm_free(&world);
    MPI_Session_finalize(&session);
    if (besides)
        MPI_Finalize();
    return 0;
}
