/* Creates threads that do nothing, one after another: creates NUMBER. */
#include <pthread.h>
#include <stdlib.h>

static void *nothing(void *argument)
{
    return argument;
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 1;
    for (int created = 0; created < number; created++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
