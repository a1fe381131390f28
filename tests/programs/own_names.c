/* Functions of the program's own named mpi_barrier and mpi_send, as the interface of R to MPI has
 * them: compilers of Fortran may give these names to MPI's functions. Their arguments are not those
 * of MPI, and the program calls them through pointers. */
#include "ranks.h"

/* Doubles the values. */
SHOWN double *mpi_send(double *values, long number)
{
    for (long i = 0; i < number; i++)
        values[i] *= 2;
    return values;
}

SHOWN long mpi_barrier(long number)
{
    work_ms(parameters.ms);
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? number + 41 : 0;
}

static double *(*volatile send)(double *, long) = mpi_send;
static long (*volatile barrier)(long) = mpi_barrier;

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        double values[] = {i, i + 1};
        const double *twice = send(values, 2);
        checksum += (twice == values) + (long long)(values[0] + values[1]) + barrier(i);
    }
    print_result("own_names", checksum);
    MPI_Finalize();
    return 0;
}
