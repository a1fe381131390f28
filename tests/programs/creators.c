/* Threads that are created in every way: before MPI_Init, by a function of the initial thread, by a
 * thread, detached, and many by one call, one after another. HOW is the number of the latter (100
 * if left out). Each thread works in a function of its own; the times are sums over the threads of
 * a rank. */
#include "ranks.h"

#include <pthread.h>
#include <semaphore.h>

static double early_s, member_s[2], helper_s[2], short_s;
static sem_t begun, helped;
static pthread_t early, members[2];

SHOWN double timed_work(double ms)
{
    double start_s = wall_s();
    work_ms(ms);
    return wall_s() - start_s;
}

SHOWN void *work_early(void *argument)
{
    sem_wait(&begun);
    early_s = timed_work(parameters.ms);
    return argument;
}

SHOWN void *help(void *argument)
{
    *(double *)argument = timed_work(parameters.ms);
    sem_post(&helped);
    return NULL;
}

/* Nobody joins the helpers. */
SHOWN int start_helper(double *time_s)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int result = pthread_create(&thread, &attributes, help, time_s);
    pthread_attr_destroy(&attributes);
    return result;
}

SHOWN void *work_as_member(void *argument)
{
    int number = (int)(intptr_t)argument;
    if (start_helper(&helper_s[number]) != 0)
        exit(3);
    member_s[number] = timed_work(2 * parameters.ms);
    return NULL;
}

SHOWN int start_team(void)
{
    int result = 0;
    for (int number = 0; number < 2; number++)
        result |= pthread_create(&members[number], NULL, work_as_member, (void *)(intptr_t)number);
    return result;
}

SHOWN void *work_shortly(void *argument)
{
    short_s += timed_work(parameters.ms / *(int *)argument);
    return NULL;
}

SHOWN int start_many(int number)
{
    for (int created = 0; created < number; created++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work_shortly, &number) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}

SHOWN int start_early(void)
{
    int result = pthread_create(&early, NULL, work_early, NULL);
    KEEP_FRAME();
    return result;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    int number = *parameters.how ? atoi(parameters.how) : 100;
    sem_init(&begun, 0, 0);
    sem_init(&helped, 0, 0);
    int provided;
    if (start_early() != 0)
        return 3;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    begin_s = wall_s();
    sem_post(&begun);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (start_team() != 0 || start_many(number) != 0)
        return 3;
    pthread_join(early, NULL);
    for (int k = 0; k < 2; k++) {
        sem_wait(&helped);
        pthread_join(members[k], NULL);
    }
    FILE *file = rank == 0 ? open_truth("creators") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "threads", ranks * (1 + 1 + 2 + 2 + number));
        tell_number(file, "early_s", early_s);
        tell_number(file, "member_s", member_s[0] + member_s[1]);
        tell_number(file, "helper_s", helper_s[0] + helper_s[1]);
        tell_number(file, "short_s", short_s);
        close_truth(file);
    }
    if (rank == 0)
        printf("creators: %d ranks, %d short threads\n", ranks, number);
    MPI_Finalize();
    return 0;
}
