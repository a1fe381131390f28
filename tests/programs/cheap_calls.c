/* One rank with calls that return at once; the shortest mean of a batch of each call is its truth.
 * The cost of a wrapper is a large part of it. argv: burn CALLS, in each batch. */
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

/* A message to the own rank, sent and received: two calls. */
SHOWN void pass(void)
{
    static int here, there;
    MPI_Send(&here, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Recv(&there, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    KEEP_FRAME();
}

/* The same by requests: three calls. */
SHOWN void request(void)
{
    static int here, there;
    MPI_Request requests[2];
    MPI_Irecv(&there, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&here, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &requests[1]);
    /* gcc reports MPICH's MPI_STATUSES_IGNORE as an array that is too small. */
    MPI_Status statuses[2];
    MPI_Waitall(2, requests, statuses);
    KEEP_FRAME();
}

/* A message to the own rank in one call. */
SHOWN void exchange(void)
{
    static int here, there;
    MPI_Sendrecv(&here, 1, MPI_INT, 0, 0, &there, 1, MPI_INT, 0, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
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
    double exchange_ns = shortest_ns(exchange), request_ns = shortest_ns(request) / 3;
    double pass_ns = shortest_ns(pass) / 2;
    FILE *file = open_truth("cheap_calls");
    if (file) {
        tell_number(file, "MPI_Iprobe_ns", probe_ns);
        tell_number(file, "MPI_Send_ns", give_ns);
        tell_number(file, "MPI_Send and MPI_Recv_ns", pass_ns);
        tell_number(file, "MPI_Sendrecv_ns", exchange_ns);
        tell_number(file, "MPI_Irecv, MPI_Isend and MPI_Waitall_ns", request_ns);
        tell_number(file, "pthread_mutex_lock_ns", lock_ns);
        close_truth(file);
    }
    print_result("cheap_calls", 0);
    MPI_Finalize();
    return 0;
}
