/* C++ exceptions through marked frames that have nothing to clean up: between the two phases of the
 * unwinder none of the program's own code runs. */
#include "trial.h"

namespace {

FRAME int descend(int depth, uint32_t seed)
{
    toil(seed);
    if (depth == 0)
        throw static_cast<int>(seed);
    int below = descend(depth - 1, seed);
    STAY();
    return below + 1;
}

FRAME bool caught_far(uint32_t round)
{
    try {
        descend(static_cast<int>(round % 12), round);
    } catch (int seed) {
        toil(round);
        return static_cast<uint32_t>(seed) == round;
    }
    return false;
}

FRAME bool caught_further(uint32_t round)
{
    bool good = caught_far(round);
    STAY();
    return good;
}

}  // namespace

int main()
{
    attempt("caught far away", caught_far);
    attempt("caught further away", caught_further);
    return verdict();
}
