/* Four even kernels and a slow machine: on the node in SUBJECT_SLOW_HOST, each sleep of a kernel
 * lasts `factor` times as long. HOW = kernel: only deposit() does, so that the program is uneven
 * and the nodes are equal. Without SUBJECT_SLOW_HOST all nodes are equal. */
#include "ranks.h"

#include <unistd.h>

static double slowness = 1;
static double slowness_of_deposit = 1;

static void read_slowness(void)
{
    const char *slow = getenv("SUBJECT_SLOW_HOST");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (slow && strcmp(slow, host) == 0)
        slowness_of_deposit = parameters.factor;
    if (strcmp(parameters.how, "kernel") != 0)
        slowness = slowness_of_deposit;
}

SHOWN void push(void)
{
    work_ms(parameters.ms * slowness);
    KEEP_FRAME();
}

SHOWN void deposit(void)
{
    work_ms(parameters.ms * 0.75 * slowness_of_deposit);
    KEEP_FRAME();
}

SHOWN void solve(void)
{
    work_ms(parameters.ms * 0.5 * slowness);
    KEEP_FRAME();
}

SHOWN void smooth(void)
{
    work_ms(parameters.ms * 0.25 * slowness);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    read_slowness();
    begin(&argc, &argv);
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        push();
        deposit();
        solve();
        smooth();
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    bool uneven = strcmp(parameters.how, "kernel") == 0;
    struct claim claim = {"machines", uneven ? "deposit" : NULL, "MPI_Allreduce", NULL,
                          parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("machines", checksum);
    MPI_Finalize();
    return 0;
}
