/* MPI by sessions, without MPI_Init (HOW = alone), or with MPI_Init after the session (HOW = init).
 * The world is a group of the session's. */
#include "ranks.h"

SHOWN void work_even(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

#if MPI_VERSION >= 4
static void fail(const char *what)
{
    fprintf(stderr, "subject: %s\n", what);
    exit(2);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    bool init = strcmp(parameters.how, "init") == 0;
    MPI_Session session;
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session))
        fail("no session");
    if (init)
        MPI_Init(&argc, &argv);
    MPI_Group world;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Comm_create_from_group(world, "subject", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&world);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        long long part = (long long)(rank + 1) * (i + 1), sum = 0;
        work_even();
        MPI_Allreduce(&part, &sum, 1, MPI_LONG_LONG, MPI_SUM, comm);
        checksum += sum;
    }
    print_result("session_calls", checksum);
    MPI_Comm_free(&comm);
    if (init)
        MPI_Finalize();
    MPI_Session_finalize(&session);
    return 0;
}
#else
int main(void)
{
    fprintf(stderr, "subject: this MPI has no sessions\n");
    return 2;
}
#endif
