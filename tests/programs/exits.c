/* Ends in the way that its argument names, after a little work. With MPI, the orderly ends come
 * after MPI_Finalize; `unfinalized` leaves it out. Every way ends the process in a status that its
 * parent can tell from the others. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank;
#else
#include "ranks.h"
#endif

#include <pthread.h>
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

/* Writes to a pipe that nobody reads: status 4 where SIGPIPE is ignored. */
static int write_to_nobody(void)
{
    int ends[2];
    if (pipe(ends) != 0)
        return 1;
    close(ends[0]);
    return write(ends[1], "", 1) < 0 && errno == EPIPE ? 4 : 5;
}

SHOWN void fault(void)
{
    static int *volatile nowhere;
    *nowhere = 1;
    KEEP_FRAME();
}

static void *read_line(void *stream)
{
    char line[8];
    return fgets(line, sizeof line, stream);
}

/* Returns while a thread waits in a stream for a line that does not come. */
static int leave_a_reader(void)
{
    int ends[2];
    pthread_t reader;
    if (pipe(ends) != 0 || pthread_create(&reader, NULL, read_line, fdopen(ends[0], "r")) != 0)
        return 6;
    usleep(100000);
    return 0;
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
    if (strcmp(how, "reading") == 0)
        return leave_a_reader();
    if (strcmp(how, "unfinalized") == 0)
        exit(0);
    if (strcmp(how, "unfinalized3") == 0)
        exit(3);
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
    if (strcmp(how, "pipe") == 0)
        return write_to_nobody();
    /* A signal by its number: status 0 where it is ignored. */
    if (strncmp(how, "raise", 5) == 0) {
        raise(atoi(how + 5));
        return 0;
    }
    /* Handled for a while, then by default again. */
    if (strncmp(how, "default", 7) == 0) {
        int number = atoi(how + 7);
        if (signal(number, exit_with_7) != SIG_DFL || signal(number, SIG_DFL) != exit_with_7)
            return 6;
        raise(number);
    }
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
    /* The last rank ends like this while the others wait in MPI_Finalize. */
    if (strncmp(how, "late_", 5) == 0) {
        int size;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (rank == size - 1) {
            usleep(300000);
            return end(how + 5);
        }
        return end("return");
    }
    /* A launcher that ends the job after one rank's end may end rank 0 before it has printed, and
     * may drop output that it has not forwarded yet. */
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(100000);
#endif
    return end(how);
}
