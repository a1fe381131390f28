/* Calls functions with hooks of Plimsoll, apart from MPI, and prints the results. hooks END:
 * return, quick_exit3, _exit3, terminated, exec, daemon, namespace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void handle(int number)
{
    handled += number;
}

static void signals(void)
{
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    int status = sigaction(SIGUSR1, &action, &before);
    printf("sigaction: %d, default before: %d\n", status, before.sa_handler == SIG_DFL);
    printf("signal: default before: %d\n", signal(SIGUSR2, handle) == SIG_DFL);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    printf("pthread_sigmask: %d\n", pthread_sigmask(SIG_BLOCK, &set, NULL));
    raise(SIGUSR1);
    raise(SIGUSR2);
    printf("handled while one is blocked: %d\n", (int)handled);
    printf("sigprocmask: %d", sigprocmask(SIG_UNBLOCK, &set, &old));
    printf(", blocked before: %d, handled: %d\n", sigismember(&old, SIGUSR1), (int)handled);
    int descriptor = signalfd(-1, &set, SFD_CLOEXEC);
    printf("signalfd: %d\n", close(descriptor));
}

static void *work(void *argument)
{
    pthread_mutex_t *mutex = argument;
    pthread_mutex_lock(mutex);
    usleep(1000);
    pthread_mutex_unlock(mutex);
    return argument;
}

static void threads(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[3];
    int created = 0, right = 0;
    for (int number = 0; number < 3; number++)
        created += pthread_create(&threads[number], NULL, work, &mutex) == 0;
    for (int number = 0; number < created; number++) {
        void *result = NULL;
        pthread_join(threads[number], &result);
        right += result == &mutex;
    }
    printf("threads: %d of %d\n", right, created);
}

static void calls(void)
{
    int ends[2];
    char letters[4] = "";
    long moved = -1;
    if (pipe(ends) == 0)
        moved = write(ends[1], "abc", 3) + read(ends[0], letters, 3);
    printf("write and read: %ld %s\n", moved, letters);
}

static void libraries(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    printf("dlopen: %d", library != NULL);
    printf(", dlclose: %d\n", library ? dlclose(library) : -1);
}

/* Executes itself with the argument "child", after an attempt to execute a missing program. */
static void become_child(char *self)
{
    char *nowhere[] = {"nonexistent", NULL}, *child[] = {self, "child", NULL};
    printf("exec: %d\n", execv("/nonexistent", nowhere));
    fflush(stdout);
    execv(self, child);
}

static void children(char *self)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child\n");
        fflush(stdout);
        become_child(self);
        _exit(9);
    }
    waitpid(child, &status, 0);
    printf("child's status: %d\n", status);
}

/* Enters a user namespace of its own, as programs that start containers do, and computes there. */
static void namespace(void)
{
    int outer = open("/proc/self/ns/user", O_RDONLY);
    int status = unshare(CLONE_NEWUSER);
    printf("unshare: %d", status == 0 ? 0 : errno);
    status = setns(outer, CLONE_NEWUSER);
    printf(", setns: %d\n", status == 0 ? 0 : errno);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 300);
}

int main(int argc, char **argv)
{
    const char *end = argc > 1 ? argv[1] : "return";
    if (strcmp(end, "child") == 0) {
        puts("child's program");
        return 4;
    }
    calls();
    signals();
    threads();
    libraries();
    children(argv[0]);
    fflush(stdout);
    if (strcmp(end, "quick_exit3") == 0)
        quick_exit(3);
    if (strcmp(end, "_exit3") == 0)
        _exit(3);
    if (strcmp(end, "terminated") == 0)
        raise(SIGTERM);
    if (strcmp(end, "daemon") == 0) {
        if (daemon(1, 1) != 0)
            return 5;
        usleep(100000);
        puts("in the daemon");
        return 6;
    }
    if (strcmp(end, "exec") == 0)
        become_child(argv[0]);
    if (strcmp(end, "namespace") == 0)
        namespace();
    return 0;
}
