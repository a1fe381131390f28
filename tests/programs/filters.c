/* Sets a filter of its system calls (seccomp(2)) in the way of its first argument (prctl, syscall,
 * or all: for all threads, while others work). The second argument is the filter's answer to other
 * calls (kill, errno), the third the way to end: return, exit_group, fault, become. Without MPI the
 * filter permits only the program's own calls; beside an MPI, all calls but those that no MPI
 * makes. */
#ifdef SUBJECT_NO_MPI
#include "subject.h"
static int rank;
#else
#include "ranks.h"
#endif

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH(list) (sizeof(list) / sizeof *(list))
enum { MOST = 64 };

#ifdef SUBJECT_NO_MPI
static const int NEEDED[] = {SYS_write, SYS_brk, SYS_clock_gettime, SYS_exit_group, SYS_fstat,
                             SYS_newfstatat, SYS_munmap};
static const int NEEDED_BY_THREADS[] = {SYS_futex, SYS_exit, SYS_madvise, SYS_rt_sigprocmask,
                                        SYS_munmap};
#endif
static const int OURS[] = {SYS_perf_event_open, SYS_memfd_create, SYS_futex_waitv, SYS_timer_create,
                           SYS_timer_settime, SYS_clone, SYS_clone3, SYS_rt_sigtimedwait,
                           SYS_rt_sigreturn, SYS_setpriority, SYS_mremap, SYS_rename, SYS_link,
                           SYS_linkat, SYS_tgkill, SYS_sched_getaffinity, SYS_fsync};

static struct sock_filter filter[MOST];
static unsigned short length;

static void add(unsigned short code, unsigned int value, unsigned char jump_else)
{
    filter[length++] = (struct sock_filter){code, 0, jump_else, value};
}

static void add_list(const int *calls, size_t count, unsigned int answer)
{
    for (size_t at = 0; at < count; at++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)calls[at], 1);
        add(BPF_RET | BPF_K, answer, 0);
    }
}

static void set_filter(const char *way, unsigned int answer, int becomes)
{
    int for_all = strcmp(way, "all") == 0;
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0);
#ifdef SUBJECT_NO_MPI
    if (!becomes) {
        add_list(NEEDED, LENGTH(NEEDED), SECCOMP_RET_ALLOW);
        if (for_all)
            add_list(NEEDED_BY_THREADS, LENGTH(NEEDED_BY_THREADS), SECCOMP_RET_ALLOW);
        add(BPF_RET | BPF_K, answer, 0);
    }
#endif
    (void)becomes;
    add_list(OURS, LENGTH(OURS), answer);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0);
    struct sock_fprog program = {length, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    /* As libseccomp does: what does the kernel know? */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == 0)
        exit(90);
    unsigned int flags = for_all ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    long result = strcmp(way, "prctl") == 0
                      ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                      : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (result != 0)
        exit(91);
}

SHOWN void work_before(void)
{
    burn_ms(150);
    KEEP_FRAME();
}

SHOWN void work_after(void)
{
    burn_ms(150);
    KEEP_FRAME();
}

static volatile int is_over;

static void *work_beside(void *unused)
{
    while (!is_over)
        burn_ms(1);
    return unused;
}

int main(int argc, char **argv)
{
    const char *way = argc > 3 ? argv[1] : "", *end = argc > 3 ? argv[3] : "";
    unsigned int answer = SECCOMP_RET_KILL_PROCESS;
    if (argc > 3 && strcmp(argv[2], "errno") == 0)
        answer = SECCOMP_RET_ERRNO | EPERM;
#ifndef SUBJECT_NO_MPI
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    pthread_t others[2];
    int threads = strcmp(way, "all") == 0 ? (int)LENGTH(others) : 0;
    for (int at = 0; at < threads; at++)
        pthread_create(&others[at], NULL, work_beside, NULL);
    work_before();
    int filters = argc > 4 ? rank == atoi(argv[4]) : argc > 3;
    if (filters)
        set_filter(way, answer, strcmp(end, "become") == 0);
    work_after();
    is_over = 1;
    for (int at = 0; at < threads; at++)
        pthread_join(others[at], NULL);
#ifndef SUBJECT_NO_MPI
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
#endif
    if (rank == 0) {
        static const char line[] = "filters: done\n";
        if (write(1, line, sizeof line - 1) < 0)
            return 92;
    }
    if (strcmp(end, "become") == 0) {
        char *arguments[] = {argv[0], NULL};
        execv("/proc/self/exe", arguments);
        return 93;
    }
    if (strcmp(end, "exit_group") == 0)
        syscall(SYS_exit_group, 7);
    if (strcmp(end, "fault") == 0)
        *(volatile int *)NULL = 1;
    return 0;
}
