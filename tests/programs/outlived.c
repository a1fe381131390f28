/* A job with one killed rank, and a launcher that learns of it late: each rank is the child of a
 * shell that lives on. All ranks work for 5 ms and meet in MPI_Allreduce, again and again; then one
 * dies, and all others wait for it in MPI_Barrier, until a signal ends them, too.
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
    /* The shell of the dead rank outlives the others. */
    const char *shell = "\"$0\" \"$@\" ranks || sleep \"$3\"; sleep 2";
    int goes_on = 1;
    char end[64];
    if (argc == 5) {
        execl("/bin/sh", "sh", "-c", shell, argv[0], argv[1], argv[2], argv[3], argv[4],
              (char *)NULL);
        return 1;
    }
    begin(&argc, &argv);
    if (argc < 5)
        return 1;
    while (goes_on) {
        work_before_death();
        goes_on = wall_s() - begin_s < atof(argv[2]);
        MPI_Allreduce(MPI_IN_PLACE, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    if (rank == atoi(argv[1]))
        kill(getpid(), SIGKILL);
    snprintf(end, sizeof end, "{ sleep %s; kill -%s %d; } &", argv[3], argv[4], (int)getpid());
    if (system(end) != 0)
        return 1;
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}
