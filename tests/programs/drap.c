/* Frames with a CFA that is given by a dereferencing expression: an aligned local array makes GCC
 * realign the stack, alloca makes it keep the old stack pointer in a slot (its "dynamic realign
 * argument pointer"). An unwinder that cannot evaluate the expression loses all outer frames. */
#include "subject.h"

#include <alloca.h>

static volatile double sink;

/* Both arrays must exist and be seen by the call below, or the compiler drops them. */
#define DRAP_LEVEL(name, callee)                                                                   \
    SHOWN void name(int bytes)                                                                     \
    {                                                                                              \
        _Alignas(64) double aligned[8];                                                            \
        char *dynamic = alloca((size_t)bytes);                                                     \
        memset(dynamic, bytes, (size_t)bytes);                                                     \
        for (int i = 0; i < 8; i++)                                                                \
            aligned[i] = dynamic[i % bytes];                                                       \
        __asm__ volatile("" : : "r"(aligned), "r"(dynamic) : "memory");                            \
        callee;                                                                                    \
        sink = aligned[bytes % 8] + dynamic[0];                                                    \
    }

SHOWN void work_below(void)
{
    burn_ms(parameters.ms);
    KEEP_FRAME();
}

DRAP_LEVEL(drap_4, work_below())
DRAP_LEVEL(drap_3, drap_4(bytes + 8))
DRAP_LEVEL(drap_2, drap_3(bytes + 8))
DRAP_LEVEL(drap_1, drap_2(bytes + 8))

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    double begin_s = wall_s();
    for (int i = 0; i < parameters.iterations; i++)
        drap_1(16 + i % 32);
    FILE *file = open_truth("drap");
    if (file) {
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_text(file, "cause", "work_below");
        close_truth(file);
    }
    printf("drap: %d iterations, %.0f\n", parameters.iterations, sink);
    return 0;
}
