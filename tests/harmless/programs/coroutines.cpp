// Boost's coroutines: thousands of small stacks, exceptions that cross them, system calls on them.
#include <boost/coroutine2/all.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <unistd.h>

using Coroutine = boost::coroutines2::coroutine<long>;
constexpr std::size_t STACK_BYTES = 16384;

static long sum_of(long count, int pipe_end) {
    Coroutine::pull_type source(
        boost::context::protected_fixedsize_stack(STACK_BYTES), [=](Coroutine::push_type &sink) {
            for (long i = 0; i < count; i++) {
                char byte = static_cast<char>(i);
                if (write(pipe_end, &byte, 1) != 1)
                    throw std::runtime_error("write");
                volatile long work = 0;
                for (int j = 0; j < 2000; j++)
                    work = work + j;
                sink(i);
            }
        });
    long sum = 0;
    for (long value : source)
        sum += value;
    return sum;
}

int main() {
    int ends[2];
    if (pipe(ends) != 0)
        return 1;
    std::thread reader([&] {
        char bytes[4096];
        while (read(ends[0], bytes, sizeof bytes) > 0) {
        }
    });
    long sum = 0;
    for (int i = 0; i < 2000; i++)
        sum += sum_of(50, ends[1]);
    std::printf("sum: %ld\n", sum);
    int caught = 0;
    for (int i = 0; i < 1000; i++) {
        try {
            Coroutine::pull_type thrower(
                boost::context::protected_fixedsize_stack(STACK_BYTES),
                [](Coroutine::push_type &sink) {
                    sink(1);
                    throw std::runtime_error("thrown in a coroutine");
                });
            thrower();
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    std::printf("caught: %d\n", caught);
    close(ends[1]);
    reader.join();
    return 0;
}
