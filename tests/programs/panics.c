/* A few MPI calls, including MPI_Pcontrol: one of each kind in which Plimsoll works. */
#include "ranks.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long long sum = 0;
    for (int i = 0; i < 20; i++) {
        sleep_ms(2);
        sum += add_up(i);
        MPI_Pcontrol(i % 2);
    }
    MPI_Pcontrol(1);
    print_result("panics", sum);
    MPI_Finalize();
    return 0;
}
