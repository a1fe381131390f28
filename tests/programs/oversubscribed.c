/* All ranks burn the same amount of CPU time. With more ranks than cores they wait for a core and,
 * at the end of an iteration, for those that waited longer: the work is even, the cores are few.
 * HOW = bound: all ranks of a node are bound to one of its cores, as by a wrong option of the
 * launcher. */
#include "ranks.h"

#include <sched.h>

SHOWN void work_even(void)
{
    burn_ms(parameters.ms);
    KEEP_FRAME();
}

static void bind_to_first_core(void)
{
    cpu_set_t allowed, one;
    int first = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &allowed))
            first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        perror("subject: cannot bind to a core");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    if (strcmp(parameters.how, "bound") == 0)
        bind_to_first_core();
    /* Wall time and CPU time: their difference is the cost of the missing cores. */
    double mine_s[2] = {0, 0};
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double wall_start_s = wall_s(), cpu_start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
        work_even();
        mine_s[0] += wall_s() - wall_start_s;
        mine_s[1] += clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu_start_s;
        checksum += add_up(i);
    }
    double *all_s = allocate((size_t)ranks * 2, sizeof(double));
    MPI_Gather(mine_s, 2, MPI_DOUBLE, all_s, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("oversubscribed") : NULL;
    if (file) {
        double *walls_s = allocate((size_t)ranks, sizeof(double));
        double *cpus_s = allocate((size_t)ranks, sizeof(double));
        for (int r = 0; r < ranks; r++) {
            walls_s[r] = all_s[2 * r];
            cpus_s[r] = all_s[2 * r + 1];
        }
        cpu_set_t allowed;
        sched_getaffinity(0, sizeof allowed, &allowed);
        tell_number(file, "ranks", ranks);
        tell_number(file, "cores", CPU_COUNT(&allowed));
        tell_number(file, "iterations", parameters.iterations);
        tell_number(file, "global_syncs", parameters.iterations);
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_text(file, "cause", NULL);
        tell_numbers(file, "wall_s", walls_s, ranks);
        tell_numbers(file, "cpu_s", cpus_s, ranks);
        close_truth(file);
    }
    print_result("oversubscribed", checksum);
    MPI_Finalize();
    return 0;
}
