/* Works and synchronises in a thread other than the one that called MPI_Init. */
#include "ranks.h"

#include <pthread.h>

static void *come_together(void *unused)
{
    (void)unused;
    for (int i = 0; i < parameters.iterations; i++) {
        work_ms(parameters.ms);
        add_up(i);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    read_parameters(argc, argv);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided < MPI_THREAD_SERIALIZED || pthread_create(&thread, NULL, come_together, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    print_result("elsewhere", parameters.iterations);
    MPI_Finalize();
    return 0;
}
