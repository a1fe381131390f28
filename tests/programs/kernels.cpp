// Three kernels, all inlined into main at -O3. One of them, smooth, works `factor` times longer on
// the last quarter of the ranks or, with HOW = turns, each time on another rank.
#include "ranks.h"

#include <unistd.h>

#include <vector>

namespace kernels {

/* Works for a while at the place where it is inlined. */
template <class T> inline __attribute__((always_inline)) T work(T value)
{
    if (parameters.sleeps) {
        usleep(1000);
        return value;
    }
    const double end_s = clock_s(CLOCK_THREAD_CPUTIME_ID) + 1e-3;
    do {
        for (int i = 0; i < 500; i++)
            value = value * T(0.999) + T(0.001);
    } while (clock_s(CLOCK_THREAD_CPUTIME_ID) < end_s);
    return value;
}

template <class T> inline void assemble(std::vector<T> &values, int sweeps)
{
    for (int sweep = 0; sweep < sweeps; sweep++)
        values[0] = work(values[0]);
}

template <class T> inline void smooth(std::vector<T> &values, int sweeps)
{
    for (int sweep = 0; sweep < sweeps; sweep++)
        values[1] += work(values[1]);
}

template <class T> inline T residual(const std::vector<T> &values, int sweeps)
{
    T sum = 0;
    for (int sweep = 0; sweep < sweeps; sweep++)
        sum += work(values[0] + values[1]);
    return sum;
}

} // namespace kernels

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    const bool turns = strcmp(parameters.how, "turns") == 0;
    const int sweeps = (int)parameters.ms;
    std::vector<double> values(3, 1.0), work_s;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        const bool slow = turns ? i % ranks == rank : rank >= first_slow_rank();
        const double start_s = wall_s();
        kernels::assemble(values, sweeps);
        kernels::smooth(values, slow ? (int)(sweeps * parameters.factor) : sweeps);
        values[2] += kernels::residual(values, sweeps);
        work_s.push_back(wall_s() - start_s);
        checksum += add_up(i);
    }
    const char *slow_ranks = turns ? NULL : range(first_slow_rank(), ranks - 1);
    const struct claim claim = {"kernels", "kernels::smooth<double>", "MPI_Allreduce", slow_ranks,
                                parameters.iterations};
    write_truth(&claim, work_s.data(), parameters.iterations);
    print_result("kernels", checksum + (values[2] < 0));
    MPI_Finalize();
    return 0;
}
