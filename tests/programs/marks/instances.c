/* One function, called many times or called once: the same time in it, and the same stacks. usage:
 * instances calls|stay COUNT CPU_MS_EACH
 * instances alone          computes in one call that calls nothing, for a minute or until killed */
#include "trial.h"

/* Consumes CPU time. */
static FRAME uint32_t f(double seconds, uint32_t seed)
{
    double end_s = cpu_s() + seconds;
    do
        seed = toil(seed);
    while (cpu_s() < end_s);
    STAY();
    return seed;
}

/* Consumes CPU time without a call: a mark stays where a sample has set it. */
static FRAME uint32_t alone(uint32_t seed)
{
    volatile bool goes_on = true;
    while (goes_on)
        seed = seed * 1664525u + 1013904223u;
    STAY();
    return seed;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "alone") == 0) {
        alarm(60);
        return alone(1) == 0;
    }
    if (argc != 4)
        return 2;
    int count = atoi(argv[2]);
    double each_s = 1e-3 * atof(argv[3]);
    uint32_t seed = 1;
    if (strcmp(argv[1], "calls") == 0)
        for (int i = 0; i < count; i++)
            seed = f(each_s, seed);
    else
        seed = f(count * each_s, seed);
    return seed == 0;
}
