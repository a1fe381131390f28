/* Prints what an application can see of its own process, and what its system calls return while it
 * is busy. Nothing here depends on time or addresses: the output must be the same, byte by byte,
 * whether something watches or not.
 *
 * Arguments choose parts (descriptors, mask, dispositions, stack, environment, limits, errno,
 * interrupts, sleeps, profiling); without any, all of them run in this order. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
#else
#include "ranks.h"
#endif

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;

/* Descriptors that the C library hands out next are below this; a watcher keeps its own above. */
enum { LOW_DESCRIPTORS = 100 };

static void see_descriptors(void)
{
    for (int descriptor = 0; descriptor < LOW_DESCRIPTORS; descriptor++) {
        struct stat status;
        int flags = fcntl(descriptor, F_GETFD);
        if (flags >= 0 && fstat(descriptor, &status) == 0)
            printf("descriptor %d: flags %d, type %o\n", descriptor, flags,
                   status.st_mode & S_IFMT);
    }
    DIR *directory = opendir("/proc/self/fd");
    int listed = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        int descriptor = atoi(entry->d_name);
        listed += entry->d_name[0] != '.' && descriptor < LOW_DESCRIPTORS &&
            descriptor != dirfd(directory);
    }
    if (directory)
        closedir(directory);
    int next = dup(0);
    printf("descriptors listed: %d, next: %d\n", listed, next);
    close(next);
}

static void print_set(const char *name, const sigset_t *set)
{
    printf("%s:", name);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(set, signal) == 1)
            printf(" %d", signal);
    printf("\n");
}

static void *see_mask_in_thread(void *argument)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    print_set("mask of a thread", &set);
    return argument;
}

static void see_mask(void)
{
    sigset_t set;
    pthread_t thread;
    sigprocmask(SIG_SETMASK, NULL, &set);
    print_set("mask", &set);
    if (pthread_create(&thread, NULL, see_mask_in_thread, NULL) == 0)
        pthread_join(thread, NULL);
    sigpending(&set);
    print_set("pending", &set);
}

static void see_dispositions(void)
{
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0)
            continue;
        const char *handler = action.sa_handler == SIG_DFL   ? "default"
                              : action.sa_handler == SIG_IGN ? "ignored"
                                                             : "handled";
        if (action.sa_handler != SIG_DFL)
            printf("signal %d: %s, flags %x\n", signal, handler, (unsigned)action.sa_flags);
    }
}

static void see_stack(void)
{
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("alternate stack: %s\n", stack.ss_flags & SS_DISABLE ? "none" : "set");
}

static void see_environment(void)
{
    int count = 0;
    for (char **entry = environ; *entry; entry++)
        count += strncmp(*entry, "LD_PRELOAD=", 11) != 0 && strncmp(*entry, "PLIMSOLL_", 9) != 0;
    printf("environment: %d entries\n", count);
}

static void see_limits(void)
{
    for (int limit = 0; limit < RLIM_NLIMITS; limit++) {
        struct rlimit values;
        if (getrlimit((enum __rlimit_resource)limit, &values) == 0)
            printf("limit %d: %llx %llx\n", limit, (unsigned long long)values.rlim_cur,
                   (unsigned long long)values.rlim_max);
    }
}

static int errno_at_start;

static void *take_errno(void *place)
{
    *(int *)place = errno;
    return NULL;
}

/* Samples arrive while the thread is busy: errno must survive them, and calls that succeed. */
static void see_errno(void)
{
    int pipe_ends[2], changed = 0, errno_of_thread = -1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_errno, &errno_of_thread) == 0)
        pthread_join(thread, NULL);
    printf("errno at the start: %d, of a thread: %d\n", errno_at_start, errno_of_thread);
    char byte = 1;
    if (pipe(pipe_ends) != 0)
        return;
    for (int i = 0; i < 40; i++) {
        errno = 1234;
        burn_ms(10);
        changed += errno != 1234;
        bool moved = write(pipe_ends[1], &byte, 1) == 1 && read(pipe_ends[0], &byte, 1) == 1;
        changed += errno != 1234 || !moved;
    }
    printf("errno changed: %d\n", changed);
    errno = 0;
    printf("read of no descriptor: %d", (int)read(-1, &byte, 1));
    printf(", errno %d\n", errno);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void *feed(void *argument)
{
    for (int i = 0; i < 100; i++) {
        burn_ms(1);
        if (write(*(int *)argument, "x", 1) != 1)
            break;
    }
    return NULL;
}

/* None of these may fail with EINTR: the program has no signal handlers of its own. */
static void see_interrupts(void)
{
    int pipe_ends[2], epoll = epoll_create1(0), interrupts = 0, wrong = 0;
    char byte;
    sem_t semaphore;
    pthread_t feeder;
    if (pipe(pipe_ends) != 0 || sem_init(&semaphore, 0, 0) != 0)
        return;
    if (pthread_create(&feeder, NULL, feed, &pipe_ends[1]) != 0)
        return;
    for (int i = 0; i < 100; i++) {
        ssize_t got = read(pipe_ends[0], &byte, 1);
        interrupts += got < 0 && errno == EINTR;
        wrong += got != 1;
    }
    pthread_join(feeder, NULL);
    for (int i = 0; i < 100; i++) {
        struct pollfd one = {.fd = pipe_ends[0], .events = POLLIN};
        struct timeval one_ms = {0, 1000};
        struct timespec short_time = {0, 1000000}, until;
        struct epoll_event event;
        burn_ms(2);
        int result = poll(&one, 1, 1);
        interrupts += result < 0 && errno == EINTR;
        wrong += result != 0;
        result = select(0, NULL, NULL, NULL, &one_ms);
        interrupts += result < 0 && errno == EINTR;
        wrong += result != 0;
        result = epoll_wait(epoll, &event, 1, 1);
        interrupts += result < 0 && errno == EINTR;
        wrong += result != 0;
        result = nanosleep(&short_time, NULL);
        interrupts += result < 0 && errno == EINTR;
        wrong += result != 0;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += until.tv_nsec >= 999000000;
        until.tv_nsec = (until.tv_nsec + 1000000) % 1000000000;
        result = sem_timedwait(&semaphore, &until);
        interrupts += result < 0 && errno == EINTR;
        wrong += result == 0 || errno != ETIMEDOUT;
    }
    printf("interrupted: %d, wrong results: %d\n", interrupts, wrong);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(epoll);
}

static void see_sleeps(void)
{
    int early = 0, rest = 0;
    for (int i = 0; i < 20; i++) {
        burn_ms(5);
        double start_s = wall_s();
        struct timespec short_time = {0, 5000000};
        rest += clock_nanosleep(CLOCK_MONOTONIC, 0, &short_time, NULL) != 0;
        rest += usleep(5000) != 0;
        early += wall_s() - start_s < 0.010;
    }
    double start_s = wall_s();
    rest += sleep(1) != 0;
    early += wall_s() - start_s < 1;
    printf("sleeps cut short: %d, woke early: %d\n", rest, early);
}

static volatile sig_atomic_t profiling_signals, foreign_signals;

static void count_signal(int signal, siginfo_t *about, void *context)
{
    (void)signal;
    (void)context;
    if (about->si_code == SI_KERNEL) /* an interval timer's */
        profiling_signals++;
    else
        foreign_signals++;
}

/* The program profiles itself, as gprof would. Last, for a watcher may have to step aside. How many
 * signals come in a time depends on the load: the kernel charges this timer tick by tick. */
static void see_profiling(void)
{
    struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct sigaction seen, before;
    struct itimerval every_10_ms = {{0, 10000}, {0, 10000}}, off = {{0, 0}, {0, 0}}, left;
    sigaction(SIGPROF, &action, &before);
    sigaction(SIGPROF, NULL, &seen);
    setitimer(ITIMER_PROF, &every_10_ms, NULL);
    for (int i = 0; i < 200 && profiling_signals < 20; i++)
        burn_ms(100);
    getitimer(ITIMER_PROF, &left);
    setitimer(ITIMER_PROF, &off, NULL);
    int signals = profiling_signals;
    burn_ms(200);
    printf("profiling: before %s, own handler %s, interval %ld, signals %s, after the end %s, "
           "signals of others: %d\n",
           before.sa_handler == SIG_DFL ? "default" : "taken",
           seen.sa_sigaction == count_signal ? "seen" : "lost", (long)left.it_interval.tv_usec,
           signals >= 20 ? "arrive" : "stay away", 
           profiling_signals <= signals + 1 ? "none" : "more", (int)foreign_signals);
}

static const struct {
    const char *name;
    void (*see)(void);
} parts[] = {
    {"descriptors", see_descriptors}, {"mask", see_mask},
    {"dispositions", see_dispositions}, {"stack", see_stack},
    {"environment", see_environment}, {"limits", see_limits},
    {"errno", see_errno}, {"interrupts", see_interrupts},
    {"sleeps", see_sleeps}, {"profiling", see_profiling},
};

static bool chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    errno_at_start = errno;
#ifndef SUBJECT_NO_MPI
    begin(&argc, &argv);
    if (rank > 0) {
        MPI_Finalize();
        return 0;
    }
#endif
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (chosen(parts[i].name, argc, argv))
            parts[i].see();
    fflush(stdout);
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
    return 0;
}
