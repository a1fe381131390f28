// The last quarter of the ranks works `factor` times longer in a member function; the others wait
// for them in MPI_Allreduce. As imbalance.c, for the names and frames of C++.
#include "ranks.h"

#include <vector>

namespace subject {

class Load {
public:
    explicit Load(double ms) : ms_(ms) {}
    SHOWN void work_even() const
    {
        work_ms(ms_);
        KEEP_FRAME();
    }
    SHOWN void work_uneven(double factor) const
    {
        work_ms(ms_ * factor);
        KEEP_FRAME();
    }

private:
    double ms_;
};

} // namespace subject

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    begin(&argc, &argv);
    const subject::Load load(parameters.ms);
    std::vector<double> work_s;
    long long checksum = 0;
    for (int i = 0; i < parameters.iterations; i++) {
        const double start_s = wall_s();
        load.work_even();
        load.work_uneven(rank >= first_slow_rank() ? parameters.factor : 1);
        work_s.push_back(wall_s() - start_s);
        checksum += add_up(i);
    }
    const struct claim claim = {"imbalance", "subject::Load::work_uneven", "MPI_Allreduce",
                                range(first_slow_rank(), ranks - 1), parameters.iterations};
    write_truth(&claim, work_s.data(), parameters.iterations);
    print_result("imbalance", checksum);
    MPI_Finalize();
    return 0;
}
