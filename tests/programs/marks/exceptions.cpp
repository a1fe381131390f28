/* C++ exceptions through marked frames: caught near and far, rethrown, with destructors on the way,
 * in threads, from signal handlers, and kept for later. */
#include "trial.h"

#include <csignal>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

thread_local int destroyed;

struct Guest {
    std::string name = "long enough to live on the heap and not in place";
    ~Guest()
    {
        if (!name.empty())
            destroyed++;
    }
};

FRAME int descend(int depth, uint32_t seed)
{
    Guest guest;
    toil(seed);
    if (depth == 0)
        throw std::runtime_error("bottom");
    int below = descend(depth - 1, seed + 1);
    STAY();
    return below + 1;
}

FRAME int pass_on(int depth, uint32_t seed)
{
    Guest guest;
    try {
        return descend(depth, seed) + 1;
    } catch (const std::runtime_error &) {
        toil(seed);
        throw;
    }
}

FRAME int replace(int depth, uint32_t seed)
{
    try {
        return pass_on(depth, seed) + 1;
    } catch (const std::runtime_error &error) {
        toil(seed);
        throw std::string(error.what());
    }
}

FRAME bool caught_far(uint32_t round)
{
    destroyed = 0;
    int depth = static_cast<int>(round % 12);
    try {
        replace(depth, round);
    } catch (const std::string &text) {
        toil(round);
        return text == "bottom" && destroyed == depth + 2;
    }
    return false;
}

/* Catches at some levels, lets others pass: what arrives is computed in two ways. */
FRAME int maze(uint32_t seed, int depth)
{
    Guest guest;
    seed = toil(seed);
    if (depth == 0) {
        if (seed & 0x10000)
            throw static_cast<int>(seed & 0xff);
        return static_cast<int>(seed & 0xff);
    }
    if (seed & 0x40000) {
        try {
            int below = maze(seed, depth - 1);
            STAY();
            return below;
        } catch (int thrown) {
            if (seed & 0x20000)
                throw;
            return thrown;
        }
    }
    int below = maze(seed, depth - 1);
    STAY();
    return below;
}

int maze_without_exceptions(uint32_t seed, int depth, bool *thrown)
{
    seed = toil(seed);
    if (depth == 0) {
        *thrown = seed & 0x10000;
        return static_cast<int>(seed & 0xff);
    }
    int below = maze_without_exceptions(seed, depth - 1, thrown);
    if (*thrown && (seed & 0x40000) && !(seed & 0x20000))
        *thrown = false;
    return below;
}

FRAME bool caught_here_and_there(uint32_t round)
{
    bool should_throw = false, thrown = false;
    int should = maze_without_exceptions(round, 15, &should_throw), is = -1;
    try {
        is = maze(round, 15);
    } catch (int value) {
        is = value;
        thrown = true;
    }
    return is == should && thrown == should_throw;
}

FRAME bool caught_in_a_thread(uint32_t round)
{
    bool good = false;
    std::thread thread([&] { good = caught_far(round) && caught_here_and_there(round); });
    thread.join();
    return good;
}

FRAME bool kept_for_later(uint32_t round)
{
    std::exception_ptr kept;
    try {
        descend(4, round);
    } catch (...) {
        kept = std::current_exception();
    }
    toil(round);
    try {
        std::rethrow_exception(kept);
    } catch (const std::runtime_error &error) {
        return std::string(error.what()) == "bottom";
    }
}

volatile int *nowhere;

void throw_from_handler(int)
{
    toil(1);
    throw std::runtime_error("handler");
}

FRAME int touch(int depth, uint32_t seed)
{
    Guest guest;
    toil(seed);
    int below = depth == 0 ? *nowhere : touch(depth - 1, seed);
    STAY();
    return below;
}

/* Compiled with -fnon-call-exceptions: the faulting load may throw. */
FRAME bool thrown_by_a_handler(uint32_t round)
{
    struct sigaction action = {}, previous;
    action.sa_handler = throw_from_handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous);
    bool good = false;
    destroyed = 0;
    try {
        touch(5, round);
    } catch (const std::runtime_error &error) {
        good = std::string(error.what()) == "handler" && destroyed == 6;
    }
    sigaction(SIGSEGV, &previous, nullptr);
    return good;
}

FRAME void refuse(uint32_t seed) noexcept(false)
{
    toil(seed);
    throw 7;
}

FRAME bool caught_at_once(uint32_t round)
{
    try {
        refuse(round);
    } catch (int value) {
        return value == 7;
    }
    return false;
}

}  // namespace

int main()
{
    attempt("caught far away, rethrown, replaced", caught_far);
    attempt("caught here and there", caught_here_and_there);
    attempt("caught at once", caught_at_once);
    attempt("caught in a thread", caught_in_a_thread);
    attempt("kept for later", kept_for_later);
    attempt("thrown by a signal handler", thrown_by_a_handler);
    return verdict();
}
