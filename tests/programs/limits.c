/* Changes its surroundings as its first argument says, works, and checks the result:
 *
 *   size KIB        limits the size of files before it begins, and runs many threads at a time
 *   space KIB       limits the address space before it begins
 *   late BYTES      limits the size of files while it runs
 *   processes N     limits the threads of a user without others before it begins; runs 3 at a time
 *   memory KIB      limits the address space while it runs, to its size and KIB more
 *   disk MS         has a disk on which the first sync takes MS milliseconds
 *   unread          has a pipe without a reader as stderr
 *   stderr          closes descriptor 2 and opens a file, which gets that number
 *   descriptors     closes all unknown descriptors, and opens a file under each number
 *   arenas          works in the C library, and prints the number of heaps that this has made for
 *                   threads
 *
 * Limits from the start hold for the program that it executes. Status 0 if none of its own files
 * and descriptors has changed. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
#define FIRST_UNKNOWN 3
#else
#include "ranks.h"
/* Lower numbers may be the MPI's. */
#define FIRST_UNKNOWN 200
#endif

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int rank;
static char name[64];

static void begin_ranks(int *argc, char ***argv)
{
#ifndef SUBJECT_NO_MPI
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#else
    (void)argc;
    (void)argv;
#endif
    snprintf(name, sizeof name, "data.%d", rank);
}

static void end_ranks(void)
{
#ifndef SUBJECT_NO_MPI
    MPI_Finalize();
#endif
}

static double sync_ms;

int fsync(int file)
{
    usleep((useconds_t)(sync_ms * 1000));
    sync_ms = 0;
    return (int)syscall(SYS_fsync, file);
}

static void limit_size(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void become(char **argv, const char *way)
{
    argv[1] = (char *)way;
    execv("/proc/self/exe", argv);
    exit(99);
}

enum { THREADS = 24 };
static pthread_barrier_t all;

SHOWN void work_of_many(void)
{
    burn_ms(20);
    KEEP_FRAME();
}

static void *one_of_many(void *unused)
{
    pthread_barrier_wait(&all);
    work_of_many();
    pthread_barrier_wait(&all);
    return unused;
}

static void run_many(int count)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, (unsigned)count);
    for (int number = 0; number < count; number++)
        if (pthread_create(&threads[number], NULL, one_of_many, NULL) != 0)
            exit(95);
    for (int number = 0; number < count; number++)
        pthread_join(threads[number], NULL);
}

/* The superuser may have any number of threads, and other users run programs of their own. */
static void become_new_user(int processes)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length < 0 ? 0 : length] = 0;
    uid_t user = 0x10000u + (uid_t)getpid();
    if (geteuid() != 0 || chown(".", user, user) != 0 || setresuid(user, user, user) != 0 ||
        access(program, X_OK) != 0) {
        puts("limits: no user is to be had for this");
        exit(0);
    }
    struct rlimit limit = {(rlim_t)processes, (rlim_t)processes};
    setrlimit(RLIMIT_NPROC, &limit);
}

/* Limits the address space to what is in use and `more` bytes. */
static void limit_memory(double more)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld", &pages) != 1)
        exit(94);
    fclose(file);
    struct rlimit limit = {(rlim_t)(pages * 4096.0 + more), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
}

/* Returns the number of arenas of glibc's malloc other than the first. Each begins with usable
 * memory at a multiple of its size; the rest of its address space is reserved. */
static int arenas(void)
{
    enum { ARENA = 64 << 20 };
    FILE *file = fopen("/proc/self/maps", "r");
    unsigned long start = 0, end = 0, used = 0, used_end = 0;
    char may[5] = "", line[600];
    int count = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx %4s", &start, &end, may) != 3)
            continue;
        count += strcmp(may, "---p") == 0 && start == used_end && end == used + ARENA;
        used = strcmp(may, "rw-p") == 0 && start % ARENA == 0 ? start : 1;
        used_end = end;
    }
    if (file)
        fclose(file);
    return count;
}

static int compare(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

/* Lets the C library work until `seconds` of CPU time have passed. */
static void sort_for(double seconds)
{
    static int numbers[100000];
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end) {
        for (int at = 0; at < 100000; at++)
            numbers[at] = at * 7919 % 100003;
        qsort(numbers, 100000, sizeof numbers[0], compare);
    }
}

static void have_no_reader(void)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(98);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    signal(SIGPIPE, SIG_DFL);
}

static const char DATA[] = "data of the program";

static void replace_stderr(void)
{
    close(2);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file != 2 || write(file, DATA, strlen(DATA)) < 0)
        exit(96);
}

static int stderr_is_changed(void)
{
    char text[4096];
    ssize_t length = pread(2, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    if (strcmp(text, DATA) == 0)
        return 0;
    printf("limits: the file holds: %s\n", text);
    return 1;
}

/* Offset of the first thread areas of a segment, and the content of a program's file there. */
enum { FROM = 12 << 20, BYTES = 4 << 20, SIZE = 256 << 20, MOST = 4300 };
static char pattern[BYTES], found[BYTES];
static int opened[MOST];
static int opened_count;
static volatile int resumed;

SHOWN void work_of_waiter(void)
{
    burn_ms(30);
    KEEP_FRAME();
}

SHOWN void work_of_late(void)
{
    burn_ms(60);
    KEEP_FRAME();
}

SHOWN void work_later(void)
{
    burn_ms(200);
    KEEP_FRAME();
}

static void *waiter(void *unused)
{
    while (!resumed)
        usleep(1000);
    work_of_waiter();
    return unused;
}

static void *latecomer(void *unused)
{
    work_of_late();
    return unused;
}

static void take_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int most = limit.rlim_cur < MOST + 100 ? (int)limit.rlim_cur - 100 : MOST;
    for (int number = FIRST_UNKNOWN; number < most + 50; number++)
        close(number);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    memset(pattern, 'x', sizeof pattern);
    if (pwrite(file, pattern, sizeof pattern, FROM) != BYTES || ftruncate(file, SIZE) != 0)
        exit(97);
    for (int number; (number = fcntl(file, F_DUPFD, FIRST_UNKNOWN)) >= 0 && number < most;)
        opened[opened_count++] = number;
}

static int descriptors_are_changed(void)
{
    int closed = 0, changed = 0;
    for (int at = 0; at < opened_count; at++) {
        closed += fcntl(opened[at], F_GETFD) < 0;
        changed += fcntl(opened[at], F_GETSIG) != 0 || (fcntl(opened[at], F_GETFL) & O_ASYNC) != 0;
    }
    struct stat stat;
    fstat(opened[0], &stat);
    off_t place = lseek(opened[0], 0, SEEK_CUR);
    ssize_t length = pread(opened[0], found, sizeof found, FROM);
    int intact = length == BYTES && memcmp(found, pattern, BYTES) == 0 && stat.st_size == SIZE;
    if (closed == 0 && changed == 0 && place == 0 && intact)
        return 0;
    printf("limits: %d closed, %d changed, at %ld, %s\n", closed, changed, (long)place,
           intact ? "intact" : "corrupted");
    return 1;
}

static void lose_descriptors(void)
{
    pthread_t early, late;
    pthread_create(&early, NULL, waiter, NULL);
    usleep(100000);
    take_descriptors();
    pthread_create(&late, NULL, latecomer, NULL);
    /* Longer than the intervals of all background work in the program. */
    for (int part = 0; part < 15; part++)
        usleep(100000);
    work_later();
    resumed = 1;
    pthread_join(early, NULL);
    pthread_join(late, NULL);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    double number = argc > 2 ? atof(argv[2]) : 0;
    if (strcmp(way, "size") == 0) {
        limit_size((rlim_t)(number * 1024));
        become(argv, "many");
    }
    if (strcmp(way, "space") == 0) {
        struct rlimit limit = {(rlim_t)(number * 1024), (rlim_t)(number * 1024)};
        setrlimit(RLIMIT_AS, &limit);
        become(argv, "work");
    }
    if (strcmp(way, "processes") == 0) {
        become_new_user((int)number);
        become(argv, "few");
    }
    if (strcmp(way, "unread") == 0) {
        have_no_reader();
        become(argv, "work");
    }
    begin_ranks(&argc, &argv);
    burn_ms(50);
    if (strcmp(way, "many") == 0)
        run_many(THREADS);
    if (strcmp(way, "few") == 0) {
        run_many(3);
        /* Longer than the time for lookups. */
        burn_ms(500);
    }
    if (strcmp(way, "memory") == 0) {
        limit_memory(number * 1024);
        /* Several polls of the collector. */
        burn_ms(1500);
    }
    if (strcmp(way, "arenas") == 0) {
        /* Long enough for the names of its functions to be looked up. */
        sort_for(2);
        printf("limits: %d arenas\n", arenas());
    }
    if (strcmp(way, "disk") == 0)
        sync_ms = number;
    if (strcmp(way, "late") == 0)
        limit_size((rlim_t)number);
    if (strcmp(way, "stderr") == 0)
        replace_stderr();
    if (strcmp(way, "descriptors") == 0)
        lose_descriptors();
    burn_ms(50);
    end_ranks();
    int wrong = 0;
    if (strcmp(way, "stderr") == 0)
        wrong = stderr_is_changed();
    if (strcmp(way, "descriptors") == 0)
        wrong = descriptors_are_changed();
    if (rank == 0 && !wrong)
        puts("limits: done");
    return wrong;
}
