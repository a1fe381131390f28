/* A part of a program that is loaded and unloaded again: it calls back into the program, so that
 * marks stand in its frames when samples fall there. */
#include <stdint.h>

uint32_t plugin_work(int depth, uint32_t seed, uint32_t (*work)(uint32_t));

__attribute__((noinline)) uint32_t
plugin_work(int depth, uint32_t seed, uint32_t (*work)(uint32_t))
{
    uint32_t result = depth == 0 ? work(seed) : plugin_work(depth - 1, seed, work) + 1;
    __asm__ volatile("" ::: "memory");
    return result;
}
