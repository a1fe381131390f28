/* Page faults and context switches of known functions, in the initial thread and in another thread
 * of each rank: the kernel's own counts (getrusage) are the truth. HOW is the number of new pages
 * that an iteration touches. A nap of a millisecond comes before and after the touching, so that
 * events are read between the two. */
#include "ranks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { NAPS = 20, PAGE_BYTES = 4096, WORK_PER_PAGE = 2000 };

struct counts {
    double faults;   /* in the functions that touch pages */
    double switches; /* in the naps themselves: each gives up its core once */
};

static int pages;

static struct rusage usage(void)
{
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    return now;
}

static void work_on(volatile char *page)
{
    uint64_t value = 1;
    for (int i = 0; i < WORK_PER_PAGE; i++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    *page = (char)value;
}

static inline __attribute__((always_inline)) void touch(void)
{
    size_t bytes = (size_t)pages * PAGE_BYTES;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(2);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (int page = 0; page < pages; page++)
        work_on(memory + (size_t)page * PAGE_BYTES);
    munmap(memory, bytes);
}

SHOWN void touch_pages(void)
{
    touch();
    KEEP_FRAME();
}

SHOWN void touch_pages_in_thread(void)
{
    touch();
    KEEP_FRAME();
}

SHOWN void take_naps(void)
{
    for (int i = 0; i < NAPS; i++)
        sleep_ms(1);
    KEEP_FRAME();
}

static void iterate(void (*toucher)(void), struct counts *counts)
{
    for (int i = 0; i < parameters.iterations; i++) {
        struct rusage begin = usage();
        take_naps();
        struct rusage napped = usage();
        toucher();
        struct rusage end = usage();
        counts->switches += (double)(napped.ru_nvcsw - begin.ru_nvcsw);
        counts->faults += (double)(end.ru_minflt - napped.ru_minflt);
    }
    take_naps();
}

SHOWN void *second_thread(void *argument)
{
    iterate(touch_pages_in_thread, argument);
    KEEP_FRAME();
    return NULL;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    pages = *parameters.how ? atoi(parameters.how) : 8000;
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct counts mine = {0}, other = {0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, second_thread, &other) != 0)
        return 2;
    iterate(touch_pages, &mine);
    pthread_join(thread, NULL);
    double local[3] = {mine.faults, other.faults, mine.switches}, sums[3];
    MPI_Reduce(local, sums, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    FILE *file = rank == 0 ? open_truth("faults") : NULL;
    if (file) {
        tell_number(file, "ranks", ranks);
        tell_number(file, "faults", sums[0]);
        tell_number(file, "faults_in_thread", sums[1]);
        tell_number(file, "switches", sums[2]);
        close_truth(file);
    }
    if (rank == 0)
        printf("faults: %d ranks, %d pages\n", ranks, pages);
    MPI_Finalize();
    return 0;
}
