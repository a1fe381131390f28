/* Lets invalid operations and divisions by zero trap, and rounds upwards, as programs do that look
 * for errors in their numbers; says at the end what has become of it. */
#include "ranks.h"

#include <stdbool.h>
#include <xmmintrin.h>

int main(int argc, char **argv)
{
    const unsigned environment =
        (_mm_getcsr() & ~(unsigned)(_MM_MASK_INVALID | _MM_MASK_DIV_ZERO | _MM_ROUND_MASK)) |
        _MM_ROUND_UP;
    _mm_setcsr(environment);
    begin(&argc, &argv);
    for (int i = 0; i < 10; i++) {
        burn_ms(20);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    _mm_setcsr(environment);
    MPI_Finalize();
    if (rank == 0) {
        bool same = (_mm_getcsr() & ~(unsigned)_MM_EXCEPT_INEXACT) == environment;
        printf("%s\n", same ? "as it was" : "changed");
    }
    return 0;
}
