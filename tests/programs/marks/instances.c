/* One function, called many times or called once: the same time in it, and the same stacks. usage:
 * instances calls|stay COUNT CPU_MS_EACH */
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

int main(int argc, char **argv)
{
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
