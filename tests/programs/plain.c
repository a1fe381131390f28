/* No MPI: two thirds of the time in work_a(), one third in work_b(), in turns. */
#include "subject.h"

SHOWN void work_a(void)
{
    work_ms(parameters.ms * 2);
    KEEP_FRAME();
}

SHOWN void work_b(void)
{
    work_ms(parameters.ms);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    double begin_s = wall_s(), begin_cpu_s = clock_s(CLOCK_THREAD_CPUTIME_ID), a_s = 0, b_s = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        work_a();
        double middle_s = wall_s();
        work_b();
        a_s += middle_s - start_s;
        b_s += wall_s() - middle_s;
    }
    FILE *file = open_truth("plain");
    if (file) {
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_number(file, "work_a_s", a_s);
        tell_number(file, "work_b_s", b_s);
        tell_number(file, "cpu_s", clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_cpu_s);
        close_truth(file);
    }
    printf("plain: %d iterations\n", parameters.iterations);
    return 0;
}
