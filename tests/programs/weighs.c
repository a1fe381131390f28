/* Memory of every rank: works along many call paths, ends iterations together, and prints the
 * resident memory before MPI_Finalize, its maximum, and the duration of MPI_Finalize. The lines
 * differ from run to run. argv: burn|sleep ITERATIONS MILLISECONDS, of each of the BRANCHES calls
 * in an iteration. */
#include "ranks.h"

enum { WAYS = 8, LEVELS = 4, BRANCHES = 10 };

static void branch(int levels, unsigned way);

#define WAY(n)                                                                                     \
    SHOWN void way_##n(int levels, unsigned way)                                                   \
    {                                                                                              \
        branch(levels - 1, way / WAYS + n);                                                        \
        KEEP_FRAME();                                                                              \
    }
WAY(0) WAY(1) WAY(2) WAY(3) WAY(4) WAY(5) WAY(6) WAY(7)

static void (*const ways[WAYS])(int, unsigned) = {way_0, way_1, way_2, way_3,
                                                  way_4, way_5, way_6, way_7};

static void branch(int levels, unsigned way)
{
    if (levels == 0)
        work_ms(parameters.ms);
    else
        ways[way % WAYS](levels, way);
    KEEP_FRAME();
}

/* A line of /proc/self/status, in KiB. */
static long status_kib(const char *key)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %ld", &kib);
    if (file)
        fclose(file);
    return kib;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    unsigned way = 1;
    for (int i = 0; i < parameters.iterations; i++) {
        for (int branches = 0; branches < BRANCHES; branches++) {
            way = way * 1664525u + 1013904223u;
            branch(LEVELS, way >> 12);
        }
        add_up(i);
    }
    long resident_kib = status_kib("VmRSS");
    double start_s = wall_s();
    MPI_Finalize();
    double finalize_s = wall_s() - start_s;
    printf("rank %d resident_kib %ld peak_kib %ld finalize_s %.6f\n", rank, resident_kib,
           status_kib("VmHWM"), finalize_s);
    return 0;
}
