/* Ten functions of equal work. The version in HOW (before or after) does FACTOR times the work in
 * `part_3`, which a comparison of the two versions must find among nine others. */
#include "ranks.h"

static double slowed;

#define PART(number)                                                                               \
    SHOWN void part_##number(void)                                                                 \
    {                                                                                              \
        work_ms(parameters.ms * (number == 3 ? slowed : 1));                                       \
        KEEP_FRAME();                                                                              \
    }
PART(0)
PART(1)
PART(2)
PART(3)
PART(4)
PART(5)
PART(6)
PART(7)
PART(8)
PART(9)

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    slowed = strcmp(parameters.how, "after") == 0 ? parameters.factor : 1;
    double *work_s = allocate((size_t)parameters.iterations, sizeof(double));
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double start_s = wall_s();
        part_0();
        part_1();
        part_2();
        part_3();
        part_4();
        part_5();
        part_6();
        part_7();
        part_8();
        part_9();
        work_s[i] = wall_s() - start_s;
        checksum += add_up(i);
    }
    struct claim claim = {"versions", NULL, NULL, NULL, parameters.iterations};
    write_truth(&claim, work_s, parameters.iterations);
    print_result("versions", checksum);
    MPI_Finalize();
    return 0;
}
