/* Linked against MPI, asks it the two things that are allowed at any time (MPI-4, 11.2), and never
 * initialises it: the work is all there is. */
#include "ranks.h"

SHOWN void work_alone(void)
{
    work_ms(parameters.ms * parameters.iterations);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    int initialized = -1, finalized = -1;
    MPI_Initialized(&initialized);
    double start_s = wall_s();
    work_alone();
    double work_s = wall_s() - start_s;
    MPI_Finalized(&finalized);
    printf("init_never: %d %d\n", initialized, finalized);
    FILE *file = open_truth("init_never");
    if (file) {
        tell_number(file, "work_s", work_s);
        close_truth(file);
    }
    return 0;
}
