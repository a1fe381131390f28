/* A program with 10 MB of debug information, mostly of a type with a million names: a lookup of the
 * lines of its functions must read past that type. Works in a dozen functions with loops of their
 * own for the number of milliseconds in the argument. */
#include "ranks.h"

#define NAME(n) NAME_##n,
#define NAMES4(n)                                                                                  \
    NAME(n##0) NAME(n##1) NAME(n##2) NAME(n##3) NAME(n##4) NAME(n##5) NAME(n##6) NAME(n##7)        \
    NAME(n##8)                                                                                     \
    NAME(n##9)
#define NAMES3(n)                                                                                  \
    NAMES4(n##0) NAMES4(n##1) NAMES4(n##2) NAMES4(n##3) NAMES4(n##4) NAMES4(n##5) NAMES4(n##6)     \
    NAMES4(n##7) NAMES4(n##8) NAMES4(n##9)
#define NAMES2(n)                                                                                  \
    NAMES3(n##0) NAMES3(n##1) NAMES3(n##2) NAMES3(n##3) NAMES3(n##4) NAMES3(n##5) NAMES3(n##6)     \
    NAMES3(n##7) NAMES3(n##8) NAMES3(n##9)
#define NAMES1(n)                                                                                  \
    NAMES2(n##0) NAMES2(n##1) NAMES2(n##2) NAMES2(n##3) NAMES2(n##4) NAMES2(n##5) NAMES2(n##6)     \
    NAMES2(n##7) NAMES2(n##8) NAMES2(n##9)
#define NAMES(n)                                                                                   \
    NAMES1(n##0) NAMES1(n##1) NAMES1(n##2) NAMES1(n##3) NAMES1(n##4) NAMES1(n##5) NAMES1(n##6)     \
    NAMES1(n##7) NAMES1(n##8) NAMES1(n##9)

enum name {
    NAMES(0) NAMES(1) NAMES(2) NAMES(3) NAMES(4) NAMES(5) NAMES(6) NAMES(7) NAMES(8) NAMES(9)
};

volatile enum name named = NAME_012345;
static volatile double sink;

#define WORK(n)                                                                                    \
    SHOWN void work_##n(int rounds)                                                                \
    {                                                                                              \
        double value = n;                                                                          \
        for (int round = 0; round < rounds; round++)                                               \
            value = value * 0.999 + (double)named;                                                 \
        sink = value;                                                                              \
        KEEP_FRAME();                                                                              \
    }
#define EACH(with)                                                                                 \
    with(0) with(1) with(2) with(3) with(4) with(5) with(6) with(7) with(8) with(9) with(10)       \
    with(11)

EACH(WORK)

#define CALL(n) work_##n(2000000);

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    double end_s = wall_s() + (argc > 1 ? atof(argv[1]) : 1000.0) * 1e-3;
    while (wall_s() < end_s) {
        EACH(CALL)
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
