// Inlined functions within loops and loops within inlined functions; exceptions that are caught.
#include <numeric>
#include <stdexcept>
#include <vector>

void work(int what);
int pick(int i);

namespace grid {
template <typename T> struct Field {
    std::vector<T> values;
    void scale(T by) {
        for (auto &value : values) // loop scale
            value *= by; // line scale
    }
    T sum() const { return std::accumulate(values.begin(), values.end(), T()); }
};
} // namespace grid

double steps(grid::Field<double> &field, int n) {
    double total = 0;
    for (int i = 0; i < n; i++) { // loop steps
        field.scale(1.5);         // call scale
        total += field.sum();
        work(i);
    }
    return total;
}

int careful(int n) {
    int caught = 0;
    for (int i = 0; i < n; i++) { // loop careful
        try {
            std::vector<int> some(n);
            work(some[0]);
            if (pick(i)) throw std::runtime_error("no");
            work(2);
        } catch (const std::exception &) {
            caught += pick(-1); // call caught
            continue;
        }
        work(3);
    }
    return caught;
}

template <typename F> static void for_all(int n, F f) {
    for (int i = 0; i < n; i++) // loop for_all
        f(i);
}

void lambdas(int n) {
    for_all(n, [=](int i) { for_all(i, [](int j) { work(j); }); });
}
