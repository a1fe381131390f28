/* Waits for all signals while it works: by sigwaitinfo, sigtimedwait and sigwait in a thread that
 * works between its waits, and by a signalfd. Each gets 20 signals from main; the subject prints
 * how many others come, and takes SIGTERM as the end. */
#include "subject.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { SENT = 20 };

static sigset_t all;
static volatile int taken;

static int by_info(void)
{
    siginfo_t info;
    return sigwaitinfo(&all, &info);
}

static int by_time(void)
{
    const struct timespec limit = {10, 0};
    return sigtimedwait(&all, NULL, &limit);
}

static int by_wait(void)
{
    int signal = -1;
    return sigwait(&all, &signal) == 0 ? signal : -1;
}

static int by_descriptor(void)
{
    static int descriptor = -1;
    struct signalfd_siginfo info;
    if (descriptor < 0)
        descriptor = signalfd(-1, &all, SFD_CLOEXEC);
    return read(descriptor, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : -1;
}

static const struct {
    const char *name;
    int (*wait)(void);
} WAYS[] = {{"sigwaitinfo", by_info},
            {"sigtimedwait", by_time},
            {"sigwait", by_wait},
            {"signalfd", by_descriptor}};

static void *take(void *way)
{
    int others = 0, at = *(int *)way;
    for (int signal = 0; signal != SIGTERM;) {
        signal = WAYS[at].wait();
        if (signal == SIGUSR1)
            taken++;
        else if (signal > 0 && signal != SIGTERM)
            others++;
        burn_ms(3);
    }
    printf("awaits_signals: %s: %d taken, %d others\n", WAYS[at].name, taken, others);
    return NULL;
}

int main(void)
{
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int way = 0; way < 4; way++) {
        pthread_t thread;
        taken = 0;
        if (pthread_create(&thread, NULL, take, &way) != 0)
            return 1;
        for (int sent = 0; sent < SENT; sent++) {
            kill(getpid(), SIGUSR1);
            while (taken <= sent)
                usleep(1000);
            usleep(20000);
        }
        kill(getpid(), SIGTERM);
        pthread_join(thread, NULL);
    }
    return 0;
}
