/* Ends in the way that its argument names, after a little work. With MPI, the orderly ends come
 * after MPI_Finalize; `unfinalized` leaves it out. Every way ends the process in a status that its
 * parent can tell from the others. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank;
#else
#include "ranks.h"
#endif

#include <signal.h>
#include <unistd.h>

SHOWN void work_before_the_end(void)
{
    burn_ms(100);
    KEEP_FRAME();
}

static void finalize(void)
{
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
}

static void exit_with_7(int signal)
{
    (void)signal;
    _exit(7);
}

SHOWN void fault(void)
{
    static int *volatile nowhere;
    *nowhere = 1;
    KEEP_FRAME();
}

static int end(const char *how)
{
    if (strcmp(how, "return") == 0) {
        finalize();
        return 0;
    }
    if (strcmp(how, "return3") == 0) {
        finalize();
        return 3;
    }
    if (strcmp(how, "exit0") == 0) {
        finalize();
        exit(0);
    }
    if (strcmp(how, "exit3") == 0) {
        finalize();
        exit(3);
    }
    if (strcmp(how, "_exit3") == 0) {
        finalize();
        _exit(3);
    }
    if (strcmp(how, "quick_exit3") == 0) {
        finalize();
        quick_exit(3);
    }
    if (strcmp(how, "unfinalized") == 0)
        exit(0);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "fault") == 0)
        fault();
    if (strcmp(how, "caught") == 0) {
        signal(SIGSEGV, exit_with_7);
        fault();
    }
    if (strcmp(how, "terminated") == 0)
        raise(SIGTERM);
#ifndef SUBJECT_NO_MPI
    if (strcmp(how, "mpi_abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
#endif
    fprintf(stderr, "exits: no way to end is called %s\n", how);
    return 2;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
#ifndef SUBJECT_NO_MPI
    begin(&argc, &argv);
#endif
    work_before_the_end();
    if (rank == 0) {
        printf("exits: %s\n", how);
        fflush(stdout);
    }
#ifndef SUBJECT_NO_MPI
    /* A launcher that ends a job, since a rank has ended it, would end rank 0 as well, which may have had no
     * core and printed nothing; and it may drop what it has not passed on yet. */
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(100000);
#endif
    return end(how);
}
