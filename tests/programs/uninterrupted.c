/* Calls that a signal ends early, with SA_RESTART or without (signal(7), "Interruption of system
 * calls"), each for a time that it must take in full: by its timeout, or because another thread
 * ends the wait no earlier. Prints result and errno of each call, and whether it took that time.
 * Between the calls it works. */
#include "subject.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define WAIT_MS 40
#define WAIT_NS (WAIT_MS * 1000000L)
/* Clocks of timeouts may be as coarse as a kernel tick. */
#define COARSE_S 0.011

static const struct timespec WAIT = {0, WAIT_NS};
static double worked_s, begun_s;

SHOWN void work(void)
{
    double begin_s = wall_s();
    burn_ms(10);
    worked_s += wall_s() - begin_s;
    KEEP_FRAME();
}

static void begin(void)
{
    work();
    begun_s = wall_s();
    errno = 0;
}

/* Prints the outcome of a call that must have taken `ms`. */
static void end(const char *name, long result, double ms)
{
    int error = errno;
    double took_s = wall_s() - begun_s;
    bool whole = took_s >= ms * 1e-3 - COARSE_S;
    printf("%s %ld %s %s\n", name, result, error ? strerrorname_np(error) : "0",
           whole ? "whole" : "too short");
}

#define TIMED(name, ms, call)                                                                      \
    do {                                                                                           \
        begin();                                                                                   \
        long result_ = (long)(call);                                                               \
        end(name, result_, ms);                                                                    \
    } while (0)
#define WHOLE(name, call) TIMED(name, WAIT_MS, call)

static struct timespec until(clockid_t clock)
{
    struct timespec end;
    clock_gettime(clock, &end);
    end.tv_nsec += WAIT_NS;
    if (end.tv_nsec >= 1000000000L) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000L;
    }
    return end;
}

static void sleeping(void)
{
    WHOLE("nanosleep", nanosleep(&WAIT, NULL));
    WHOLE("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &WAIT, NULL));
    begin();
    struct timespec end_at = until(CLOCK_MONOTONIC);
    end("clock_nanosleep until", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end_at, NULL),
        WAIT_MS);
    WHOLE("usleep", usleep(WAIT_MS * 1000));
    WHOLE("thrd_sleep", thrd_sleep(&WAIT, NULL));
    TIMED("sleep", 1000, sleep(1));
}

static void polling(void)
{
    sigset_t none;
    sigemptyset(&none);
    struct timeval left = {0, WAIT_MS * 1000};
    struct epoll_event event;
    int epoll = epoll_create1(0);
    WHOLE("poll", poll(NULL, 0, WAIT_MS));
    WHOLE("ppoll", ppoll(NULL, 0, &WAIT, NULL));
    WHOLE("ppoll with a mask", ppoll(NULL, 0, &WAIT, &none));
    WHOLE("select", select(0, NULL, NULL, NULL, &left));
    WHOLE("pselect", pselect(0, NULL, NULL, NULL, &WAIT, NULL));
    WHOLE("pselect with a mask", pselect(0, NULL, NULL, NULL, &WAIT, &none));
    WHOLE("epoll_wait", epoll_wait(epoll, &event, 1, WAIT_MS));
    WHOLE("epoll_pwait", epoll_pwait(epoll, &event, 1, WAIT_MS, &none));
    close(epoll);
}

static void limit(int socket)
{
    struct timeval wait = {0, WAIT_MS * 1000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

static void with_sockets(void)
{
    int pair[2];
    char data[4096] = {0};
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(2);
    limit(pair[0]);
    WHOLE("recv", recv(pair[0], data, sizeof data, 0));
    WHOLE("recvfrom", recvfrom(pair[0], data, sizeof data, 0, NULL, NULL));
    WHOLE("recvmsg", recvmsg(pair[0], &message, 0));
    WHOLE("recvmmsg", recvmmsg(pair[0], &messages, 1, 0, NULL));
    WHOLE("read", read(pair[0], data, sizeof data));
    WHOLE("readv", readv(pair[0], &part, 1));
    while (send(pair[0], data, sizeof data, MSG_DONTWAIT) > 0) {
    }
    WHOLE("send", send(pair[0], data, sizeof data, 0));
    WHOLE("sendto", sendto(pair[0], data, sizeof data, 0, NULL, 0));
    WHOLE("sendmsg", sendmsg(pair[0], &message, 0));
    WHOLE("sendmmsg", sendmmsg(pair[0], &messages, 1, 0));
    WHOLE("write", write(pair[0], data, sizeof data));
    WHOLE("writev", writev(pair[0], &part, 1));

    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* A name without a file, unique to the process. */
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "uninterrupted %d", getpid());
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 0) != 0)
        exit(2);
    limit(listener);
    limit(client);
    WHOLE("accept", accept(listener, NULL, NULL));
    WHOLE("accept4", accept4(listener, NULL, NULL, 0));
    /* The queue has one place. */
    int first = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(first, (struct sockaddr *)&address, sizeof address) != 0)
        exit(2);
    WHOLE("connect", connect(client, (struct sockaddr *)&address, sizeof address));
    int all[] = {pair[0], pair[1], listener, client, first};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

/* What another thread does when the time is over. */
static sem_t semaphore;
static int semaphores, queue;
static pthread_t waiter;
static struct message {
    long type;
    char text[64];
} message = {.type = 1};

static void *post(void *nothing)
{
    sleep_ms(WAIT_MS);
    sem_post(&semaphore);
    return nothing;
}

static void *raise_semaphore(void *nothing)
{
    struct sembuf up = {0, 1, 0};
    sleep_ms(WAIT_MS);
    semop(semaphores, &up, 1);
    return nothing;
}

static void *send_message(void *nothing)
{
    sleep_ms(WAIT_MS);
    msgsnd(queue, &message, sizeof message.text, 0);
    return nothing;
}

static void *take_message(void *nothing)
{
    struct message taken;
    sleep_ms(WAIT_MS);
    if (msgrcv(queue, &taken, sizeof taken.text, 0, 0) < 0)
        exit(2);
    return nothing;
}

static void *signal_waiter(void *nothing)
{
    sleep_ms(WAIT_MS);
    pthread_kill(waiter, SIGUSR1);
    return nothing;
}

static pthread_t started(void *(*routine)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, routine, NULL) != 0)
        exit(2);
    return thread;
}

#define ENDED_BY(routine, name, call)                                                              \
    do {                                                                                           \
        begin();                                                                                   \
        pthread_t thread_ = started(routine);                                                      \
        errno = 0;                                                                                 \
        long result_ = (long)(call);                                                               \
        end(name, result_, WAIT_MS);                                                               \
        pthread_join(thread_, NULL);                                                               \
    } while (0)

static void with_semaphores(void)
{
    struct sembuf down = {0, -1, 0};
    struct timespec end_at;
    sem_init(&semaphore, 0, 0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    if (semaphores < 0 || queue < 0)
        exit(2);
    WHOLE("semtimedop", semtimedop(semaphores, &down, 1, &WAIT));
    ENDED_BY(raise_semaphore, "semop", semop(semaphores, &down, 1));
    ENDED_BY(send_message, "msgrcv", msgrcv(queue, &message, sizeof message.text, 0, 0));
    while (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0) {
    }
    ENDED_BY(take_message, "msgsnd", msgsnd(queue, &message, sizeof message.text, 0));
    semctl(semaphores, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    begin();
    end_at = until(CLOCK_REALTIME);
    end("sem_timedwait", sem_timedwait(&semaphore, &end_at), WAIT_MS);
    begin();
    end_at = until(CLOCK_MONOTONIC);
    end("sem_clockwait", sem_clockwait(&semaphore, CLOCK_MONOTONIC, &end_at), WAIT_MS);
    ENDED_BY(post, "sem_wait", sem_wait(&semaphore));
    int word = 0;
    WHOLE("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &WAIT, NULL, 0));
}

static sigjmp_buf before_wait;
static volatile sig_atomic_t jumps, waits;

static void handle(int signal)
{
    (void)signal;
    int error = errno;
    if (waits)
        usleep(1000);
    errno = error;
    if (jumps)
        siglongjmp(before_wait, 1);
}

/* Waits further in than the call that a jump has left. */
SHOWN void wait_deeper(void)
{
    volatile char room[512] = {0};
    (void)room[0];
    WHOLE("poll after a jump", poll(NULL, 0, WAIT_MS));
    KEEP_FRAME();
}

static void for_signals(void)
{
    sigset_t one, none;
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    waiter = pthread_self();
    ENDED_BY(signal_waiter, "pause", pause());
    /* The call ends with the program's own signal, as it must. */
    struct timespec longer = {1, 0};
    waits = 1;
    ENDED_BY(signal_waiter, "nanosleep with a signal", nanosleep(&longer, NULL));
    waits = 0;
    begin();
    pthread_t thread = started(signal_waiter);
    jumps = 1;
    if (sigsetjmp(before_wait, 1) == 0)
        pause();
    jumps = 0;
    errno = 0;
    end("pause left by a jump", 0, WAIT_MS);
    pthread_join(thread, NULL);
    wait_deeper();

    pthread_sigmask(SIG_BLOCK, &one, NULL);
    WHOLE("sigtimedwait", sigtimedwait(&one, NULL, &WAIT));
    ENDED_BY(signal_waiter, "sigwaitinfo", sigwaitinfo(&one, NULL));
    ENDED_BY(signal_waiter, "sigsuspend", sigsuspend(&none));
}

static void for_a_child(void)
{
    begin();
    pid_t child = fork();
    if (child == 0) {
        bool whole = nanosleep(&WAIT, NULL) == 0 && poll(NULL, 0, WAIT_MS) == 0;
        _exit(whole ? 3 : 4);
    }
    int status = 0;
    end("waitpid", waitpid(child, &status, 0) == child, 2 * WAIT_MS);
    printf("the child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    sleeping();
    polling();
    with_sockets();
    with_semaphores();
    for_signals();
    for_a_child();
    FILE *truth = open_truth("uninterrupted");
    if (truth) {
        tell_number(truth, "worked_s", worked_s);
        close_truth(truth);
    }
    return 0;
}
