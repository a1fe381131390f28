/* Calls from stacks that are not a thread's own: a coroutine's, and an alternate one that a handler
 * runs on. Prints for each call the maximum number of bytes of the stack in use, and whether a
 * successful call has changed errno. Symbols must be bound at the start (LD_BIND_NOW).
 *
 * With `fatal` as the argument, the program dies of a signal while it has an alternate stack, and
 * its child prints the number of bytes of that stack in use. */
#include "subject.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 18, PAINT = 0x5a, CALLS = 50 };

static int ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void (*volatile chosen)(void);
static volatile int errno_changes;

static void call_nothing(void)
{
}

static void call_send(void)
{
    char byte = 1;
    for (int i = 0; i < CALLS; i++) {
        errno = 1234;
        bool moved = send(ends[1], &byte, 1, 0) == 1 && recv(ends[0], &byte, 1, 0) == 1;
        errno_changes += errno != 1234 || !moved;
    }
}

static void call_poll(void)
{
    struct pollfd one = {.fd = ends[0], .events = POLLIN};
    poll(&one, 1, 0);
}

/* Longer than the sampling period, so that the call is recorded alone. */
static void call_usleep(void)
{
    usleep(250000);
}

static void call_lock(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void call_sigaction(void)
{
    struct sigaction before;
    sigaction(SIGUSR2, NULL, &before);
    sigaction(SIGTERM, NULL, &before);
}

static void call_sigmask(void)
{
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
}

static void call_fork(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, &status, 0);
}

static void *library;

static void call_dlclose(void)
{
    if (dlclose(library) != 0)
        errno_changes++;
}

static void *do_nothing(void *unused)
{
    return unused;
}

static void call_create(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, do_nothing, NULL) != 0)
        errno_changes++;
    else
        pthread_join(thread, NULL);
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {
    {"nothing", call_nothing}, {"send", call_send},           {"poll", call_poll},
    {"usleep", call_usleep},   {"lock", call_lock},           {"sigaction", call_sigaction},
    {"sigmask", call_sigmask}, {"fork", call_fork},           {"dlclose", call_dlclose},
    {"create", call_create},
};

static void run_chosen(void)
{
    chosen();
}

static void handle(int signal)
{
    (void)signal;
    chosen();
}

static size_t used(const unsigned char *stack)
{
    size_t untouched = 0;
    while (untouched < STACK_BYTES && stack[untouched] == PAINT)
        untouched++;
    return STACK_BYTES - untouched;
}

/* A library that is not loaded yet. */
static void *load(void)
{
    void *loaded = dlopen("libBrokenLocale.so.1", RTLD_NOW);
    if (loaded == NULL)
        exit(3);
    return loaded;
}

static void die(unsigned char *stack)
{
    int lives[2];
    memset(stack, PAINT, STACK_BYTES);
    if (pipe(lives) != 0)
        exit(4);
    if (fork() == 0) {
        char byte;
        close(lives[1]);
        if (read(lives[0], &byte, 1) == 0)
            printf("fatal signal %zu\n", used(stack));
        fflush(stdout);
        _exit(0);
    }
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK_BYTES};
    sigaltstack(&alternate, NULL);
    raise(SIGTERM);
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    /* The child that looks at it shares it; children that run on it do not. */
    int sharing = strcmp(parameters.how, "fatal") == 0 ? MAP_SHARED : MAP_PRIVATE;
    unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                sharing | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 2;
    if (sharing == MAP_SHARED)
        die(stack);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        ucontext_t home, coroutine;
        chosen = calls[i].call;
        library = NULL;
        if (chosen == call_dlclose)
            library = load();
        memset(stack, PAINT, STACK_BYTES);
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = stack;
        coroutine.uc_stack.ss_size = STACK_BYTES;
        coroutine.uc_link = &home;
        makecontext(&coroutine, run_chosen, 0);
        swapcontext(&home, &coroutine);
        printf("coroutine %s %zu\n", calls[i].name, used(stack));
        memset(stack, PAINT, STACK_BYTES);
        if (library != NULL)
            library = load();
        stack_t alternate = {.ss_sp = stack, .ss_size = STACK_BYTES},
            none = {.ss_flags = SS_DISABLE};
        sigaltstack(&alternate, NULL);
        raise(SIGUSR1);
        sigaltstack(&none, NULL);
        printf("handler %s %zu\n", calls[i].name, used(stack));
    }
    printf("errno changed %d\n", errno_changes);
    return 0;
}
