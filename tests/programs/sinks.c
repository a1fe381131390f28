/* One rank or all ranks end in some way at some place.
 *
 *   sinks WAY PLACE WHO [MILLISECONDS [ENDING]]
 *
 * WAY: exit0, exit3, _exit3, abort, mpi_abort, fault, fpe, bus, terminated, usr1, xcpu, kill, or
 * stop, which continues after 0.3 s. PLACE: computing, collective, init, finalize, reduction,
 * thread. WHO: a rank, or all. MILLISECONDS of work come before the end (1300). Until then, and
 * afterwards if the job survives, the job works in iterations with a slower last rank. With an
 * ENDING, each rank writes the times of its work to the file RANK + ENDING. */
#include "ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *way = "kill", *place = "computing", *who = "all";
static double work_ms_before = 1300;

/* A stretch of work, outside of MPI, in seconds since MPI_Init; its end is 0 while it continues. */
struct stretch {
    double begin_s, end_s;
};

enum { MAX_STRETCHES = 1 << 14 };

/* Mapped from a file, which survives SIGKILL; NULL if not requested, or if full. */
static struct stretch *stretch, *stretches_end;

static void map_stretches(const char *ending)
{
    const size_t bytes = MAX_STRETCHES * sizeof *stretch;
    char path[64];
    snprintf(path, sizeof path, "%d%s", rank, ending);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    void *mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror(path);
        exit(97);
    }
    close(file);
    stretch = mapped;
    stretches_end = stretch + MAX_STRETCHES;
}

static void leave_mpi(void)
{
    if (stretch)
        stretch->begin_s = wall_s() - begin_s;
}

static void enter_mpi(void)
{
    if (!stretch)
        return;
    stretch->end_s = wall_s() - begin_s;
    if (++stretch == stretches_end)
        stretch = NULL;
}

/* What the launcher says, since MPI_Init may be where it ends. */
static int told_rank(void)
{
    const char *names[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    for (int at = 0; at < 3; at++)
        if (getenv(names[at]))
            return atoi(getenv(names[at]));
    return 0;
}

static bool is_at(const char *other)
{
    return strcmp(place, other) == 0;
}

static void stop(void)
{
    pid_t itself = getpid(), child = fork();
    if (child == 0) {
        usleep(300000);
        kill(itself, SIGCONT);
        _exit(0);
    }
    kill(itself, SIGSTOP);
    waitpid(child, NULL, 0);
}

static void touch_beyond_end(void)
{
    FILE *file = tmpfile();
    volatile char *byte = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    (void)*byte;
}

static void sink(void)
{
    static volatile int zero;
    static int *volatile nowhere;
    if (strcmp(way, "exit0") == 0)
        exit(0);
    if (strcmp(way, "exit3") == 0)
        exit(3);
    if (strcmp(way, "_exit3") == 0)
        _exit(3);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "mpi_abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    if (strcmp(way, "fault") == 0)
        *nowhere = 1;
    if (strcmp(way, "fpe") == 0)
        zero = 1 / zero;
    if (strcmp(way, "bus") == 0)
        touch_beyond_end();
    if (strcmp(way, "terminated") == 0)
        kill(getpid(), SIGTERM);
    if (strcmp(way, "usr1") == 0)
        kill(getpid(), SIGUSR1);
    if (strcmp(way, "xcpu") == 0)
        kill(getpid(), SIGXCPU);
    if (strcmp(way, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(way, "stop") == 0)
        stop();
}

/* Ends the process from an additional thread. */
static void *sink_later(void *delay_ms)
{
    usleep((useconds_t)(*(double *)delay_ms * 1000));
    sink();
    return NULL;
}

static void begin_to_sink(double delay_ms)
{
    static double delay;
    pthread_t thread;
    delay = delay_ms;
    if (pthread_create(&thread, NULL, sink_later, &delay) != 0)
        exit(98);
    pthread_detach(thread);
}

SHOWN void work_even(void)
{
    sleep_ms(10);
    KEEP_FRAME();
}

SHOWN void work_slow(void)
{
    sleep_ms(15);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        way = argv[1];
    if (argc > 2)
        place = argv[2];
    if (argc > 3)
        who = argv[3];
    if (argc > 4)
        work_ms_before = atof(argv[4]);
    const bool sinks = strcmp(who, "all") == 0 || atoi(who) == told_rank();
    if (sinks && is_at("init"))
        begin_to_sink(30);
    begin(&argc, &argv);
    if (argc > 5)
        map_stretches(argv[5]);
    if (sinks && is_at("thread"))
        begin_to_sink(work_ms_before);
    const bool comes_late = !sinks;
    long long sum = 0;
    int goes_on = 1;
    leave_mpi();
    for (int i = 0; goes_on; i++) {
        if (rank == ranks - 1)
            work_slow();
        else
            work_even();
        enter_mpi();
        sum += add_up(i % 7);
        leave_mpi();
        const double done_ms = (wall_s() - begin_s) * 1e3;
        if (sinks && is_at("computing") && done_ms >= work_ms_before)
            sink();
        goes_on = done_ms < work_ms_before + 200;
        enter_mpi();
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        leave_mpi();
    }
    if (is_at("collective")) {
        if (sinks)
            begin_to_sink(200);
        if (comes_late)
            sleep_ms(600);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        puts(sum > 0 ? "sinks: done" : "sinks: nothing done");
        fflush(stdout);
    }
    if (is_at("finalize")) {
        if (sinks)
            begin_to_sink(200);
        if (comes_late)
            sleep_ms(600);
    }
    if (sinks && is_at("reduction"))
        begin_to_sink(10);
    MPI_Finalize();
    /* Without Plimsoll, MPI_Finalize may return before the rank's end. */
    if (sinks && is_at("reduction"))
        sleep_ms(100);
    return 0;
}
