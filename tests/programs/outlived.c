/* A job with one killed rank, and a launcher that learns of it late: each rank is the child of a
 * shell that lives on. All ranks work for 5 ms and meet in MPI_Allreduce, again and again; then one
 * dies, and all others wait for it in MPI_Barrier, until their shells end them by SIGTERM or
 * SIGKILL.
 *
 *   outlived WHO SECONDS OUTLIVED END      WHO: a rank; END: TERM, KILL
 */
#include "ranks.h"

#include <signal.h>
#include <unistd.h>

SHOWN void work_before_death(void)
{
    sleep_ms(5);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    const char *shell = "\"$0\" \"$1\" \"$2\" & sleep \"$3\"; kill -\"$4\" $! || sleep 2; wait";
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    int goes_on = 1;
    if (argc > 4) {
        char total[32];
        snprintf(total, sizeof total, "%g", seconds + atof(argv[3]));
        execl("/bin/sh", "sh", "-c", shell, argv[0], argv[1], argv[2], total, argv[4],
              (char *)NULL);
        return 1;
    }
    begin(&argc, &argv);
    while (goes_on) {
        work_before_death();
        goes_on = wall_s() - begin_s < seconds;
        MPI_Allreduce(MPI_IN_PLACE, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    if (rank == atoi(argc > 1 ? argv[1] : "0"))
        kill(getpid(), SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}
