// A template of the language with a function of the user as its argument: debug information has
// the name of the instance without its namespace.
#include <algorithm>

void each(double *from, double *to) {
    std::for_each(from, to, [](double &value) { value = 1 / value; }); // line lambda
}
