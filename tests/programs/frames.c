/* Functions in which the benchmark takes samples: the benchmark's own code is the agent's, and its
 * frames are never marked. All functions call back. */
#include <stdint.h>

#define FRAME __attribute__((noinline))
/* After a call: the call is not the function's last act. */
#define STAY() __asm__ volatile("" ::: "memory")

typedef void work_t(void *argument);

void inside(uint64_t calls, work_t *work, void *argument);
void leaf_one(work_t *work, void *argument);
void leaf_two(work_t *work, void *argument);
void burn(void *watched);

/* Calls `work` inside this many calls. */
FRAME void inside(uint64_t calls, work_t *work, void *argument)
{
    if (calls == 0)
        work(argument);
    else
        inside(calls - 1, work, argument);
    STAY();
}

FRAME void leaf_one(work_t *work, void *argument)
{
    work(argument);
    STAY();
}

FRAME void leaf_two(work_t *work, void *argument)
{
    work(argument);
    STAY();
}

static FRAME uint64_t multiply(uint64_t value)
{
    for (int i = 0; i < 50; i++) {
        value = value * 6364136223846793005u + 1;
        STAY();
    }
    return value;
}

static FRAME uint64_t shift(uint64_t value)
{
    for (int i = 0; i < 50; i++) {
        value = (value ^ value << 13 ^ value >> 7) + 1;
        STAY();
    }
    return value;
}

/* A counter read while working, and its increments. */
struct watched {
    uint64_t rounds;
    const volatile uint64_t *counter;
    uint64_t *rises;
    uint64_t room;
    uint64_t count;
    uint64_t result;
};

/* Works for a number of rounds, in two functions by turns. */
FRAME void burn(void *argument)
{
    struct watched *watched = argument;
    uint64_t value = 1;
    uint64_t before = *watched->counter;
    for (uint64_t round = 0; round < watched->rounds; round++) {
        value = round & 64 ? shift(value) : multiply(value);
        uint64_t now = *watched->counter;
        if (now != before && watched->count < watched->room)
            watched->rises[watched->count++] = now - before;
        before = now;
    }
    watched->result = value;
}
