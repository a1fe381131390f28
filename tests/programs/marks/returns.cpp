/* Functions with results in every kind of register, and arguments in every kind of location. */
#include "trial.h"

#include <cstdarg>

namespace {

FRAME double real(double x, uint32_t seed)
{
    toil(seed);
    return x * 1.5;
}

FRAME long double extended(long double x, uint32_t seed)
{
    toil(seed);
    return x * 3;
}

FRAME _Complex double complex_number(double x, uint32_t seed)
{
    toil(seed);
    _Complex double value;
    __real__ value = x;
    __imag__ value = -2 * x;
    return value;
}

FRAME _Complex long double complex_extended(long double x, uint32_t seed)
{
    toil(seed);
    _Complex long double value;
    __real__ value = x;
    __imag__ value = 7 * x;
    return value;
}

FRAME unsigned __int128 wide(uint64_t x, uint32_t seed)
{
    toil(seed);
    return ((unsigned __int128)x << 64) | ~x;
}

struct Mixed {
    double real;
    long whole;
};

FRAME Mixed mixed(double x, uint32_t seed)
{
    toil(seed);
    return {x + 0.5, (long)x};
}

struct Large {
    long words[12];
};

FRAME Large large(long x, uint32_t seed)
{
    Large value;
    for (int i = 0; i < 12; i++)
        value.words[i] = x * i;
    toil(seed);
    return value;
}

FRAME long sum(int count, ...)
{
    va_list list;
    va_start(list, count);
    long total = 0;
    for (int i = 0; i < count; i++) {
        total += i % 2 ? (long)va_arg(list, double) : va_arg(list, long);
        toil((uint32_t)total);
    }
    va_end(list);
    return total;
}

bool in_registers(uint32_t round)
{
    double x = round % 1000;
    bool good = real(x, round) == x * 1.5;
    good = good && extended(x, round) == (long double)x * 3;
    _Complex double c = complex_number(x, round);
    good = good && __real__ c == x && __imag__ c == -2 * x;
    _Complex long double e = complex_extended(x, round);
    good = good && __real__ e == x && __imag__ e == 7 * (long double)x;
    unsigned __int128 w = wide(round, round);
    good = good && (uint64_t)(w >> 64) == round && (uint64_t)w == ~(uint64_t)round;
    Mixed m = mixed(x, round);
    return good && m.real == x + 0.5 && m.whole == (long)x;
}

bool in_memory(uint32_t round)
{
    Large l = large(round, round);
    bool good = true;
    for (int i = 0; i < 12; i++)
        good = good && l.words[i] == (long)round * i;
    return good;
}

bool variadic(uint32_t)
{
    return sum(9, 1L, 2.0, 3L, 4.0, 5L, 6.0, 7L, 8.0, 9L) == 45;
}

typedef double Eight __attribute__((vector_size(64)));

__attribute__((target("avx512f"))) FRAME void eight(double x, uint32_t seed, Eight *result)
{
    Eight value = {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7};
    __asm__ volatile("" : "+v"(value));
    *result = value;
    toil(seed);
}

__attribute__((target("avx512f"))) FRAME Eight vector(double x, uint32_t seed)
{
    Eight value = {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7};
    toil(seed);
    __asm__ volatile("" : "+v"(value));
    return value;
}

__attribute__((target("avx512f"))) bool in_vector_registers(uint32_t round)
{
    Eight value = vector(round, round), other;
    eight(round, round, &other);
    bool good = true;
    for (int i = 0; i < 8; i++)
        good = good && value[i] == (double)round + i && other[i] == value[i];
    return good;
}

/* With -fipa-ra the compiler keeps values in registers that the callee is known not to change. */
__attribute__((optimize("O3"))) FRAME uint64_t sparing(uint64_t x)
{
    for (int i = 0; i < 3000; i++)
        x = (x << 7) ^ (x >> 9) ^ 0x9e3779b97f4a7c15u;
    return x;
}

FRAME bool registers_survive(uint32_t round)
{
    uint64_t before[6], after[6], x = round;
    for (int i = 0; i < 6; i++)
        before[i] = x = x * 6364136223846793005u + 1;
    uint64_t a = before[0], b = before[1], c = before[2], d = before[3], e = before[4];
    uint64_t result = sparing(before[5]);
    after[0] = a, after[1] = b, after[2] = c, after[3] = d, after[4] = e;
    after[5] = result == sparing(before[5]) ? before[5] : 0;
    return memcmp(before, after, sizeof before) == 0;
}

}  // namespace

int main()
{
    attempt("results in registers", in_registers);
    attempt("results in memory", in_memory);
    attempt("variadic arguments", variadic);
    if (__builtin_cpu_supports("avx512f"))
        attempt("results in vector registers", in_vector_registers);
    attempt("registers that callees leave alone", registers_survive);
    return verdict();
}
