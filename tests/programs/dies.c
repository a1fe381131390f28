/* A job that is cut off: after some seconds of known work, one rank or all of them end in the way
 * of the arguments. Until then all ranks work for 5 ms and meet in MPI_Allreduce, again and again.
 *
 *   dies HOW WHO SECONDS      HOW: kill, fault, abort, terminate; WHO: a rank, or all
 */
#include "ranks.h"

#include <signal.h>
#include <unistd.h>

SHOWN void work_before_death(void)
{
    sleep_ms(5);
    KEEP_FRAME();
}

static void die(const char *how)
{
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "fault") == 0)
        *(volatile int *)0 = 1;
    if (strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    if (strcmp(how, "terminate") == 0)
        kill(getpid(), SIGTERM);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "kill", *who = argc > 2 ? argv[2] : "all";
    double seconds = argc > 3 ? atof(argv[3]) : 3;
    int dies, goes_on = 1;
    begin(&argc, &argv);
    dies = strcmp(who, "all") == 0 || atoi(who) == rank;
    while (goes_on) {
        work_before_death();
        goes_on = wall_s() - begin_s < seconds;
        MPI_Allreduce(MPI_IN_PLACE, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    if (dies)
        die(how);
    for (;;)
        work_before_death();
}
