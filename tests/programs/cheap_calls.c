/* One rank: calls that return at once, many times; the shortest mean of a batch of each is its
 * truth. What a wrapper adds is then no small part of it. argv: burn CALLS, in each batch. */
#include <pthread.h>

#include "ranks.h"

enum { BATCHES = 50 };

SHOWN void probe(void)
{
    int flag;
    MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

SHOWN void give(void)
{
    MPI_Send(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    KEEP_FRAME();
}

SHOWN void lock(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    KEEP_FRAME();
}

SHOWN double shortest_ns(void (*call)(void))
{
    double shortest_s = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < parameters.iterations; i++)
            call();
        double batch_s = clock_s(CLOCK_THREAD_CPUTIME_ID) - start_s;
        shortest_s = batch_s < shortest_s ? batch_s : shortest_s;
    }
    return shortest_s * 1e9 / parameters.iterations;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    double probe_ns = shortest_ns(probe), give_ns = shortest_ns(give), lock_ns = shortest_ns(lock);
    FILE *file = open_truth("cheap_calls");
    if (file) {
        tell_number(file, "MPI_Iprobe_ns", probe_ns);
        tell_number(file, "MPI_Send_ns", give_ns);
        tell_number(file, "pthread_mutex_lock_ns", lock_ns);
        close_truth(file);
    }
    print_result("cheap_calls", 0);
    MPI_Finalize();
    return 0;
}
