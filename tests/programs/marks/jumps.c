/* Stacks that are left, switched, moved and rebuilt: longjmp, coroutines that go on in another
 * thread, stacks that are copied away and back, alloca, realigned frames, tail calls, depth. */
#include "trial.h"

#include <alloca.h>
#include <dlfcn.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

static _Thread_local jmp_buf target;

static FRAME int dive(int depth, uint32_t seed)
{
    toil(seed);
    if (depth == 0)
        longjmp(target, 9);
    int below = dive(depth - 1, seed);
    STAY();
    return below + 1;
}

static FRAME bool jump_out(uint32_t round)
{
    int got = setjmp(target);
    if (got == 0) {
        dive((int)(round % 20), round);
        return false;
    }
    toil(round);
    return got == 9;
}

static sigjmp_buf escape;

static void jump_from_handler(int signal)
{
    (void)signal;
    toil(3);
    siglongjmp(escape, 4);
}

static FRAME bool jump_out_of_a_handler(uint32_t round)
{
    struct sigaction action = {.sa_handler = jump_from_handler}, previous;
    sigaction(SIGUSR2, &action, &previous);
    int got = sigsetjmp(escape, 1);
    if (got == 0) {
        toil(round);
        raise(SIGUSR2);
    }
    sigaction(SIGUSR2, &previous, NULL);
    return got == 4;
}

/* A call that a handler interrupts at any point and leaves by a jump. A thread that unloads a
 * library meanwhile must not wait for it. */
static FRAME bool jump_out_of_calls(uint32_t round)
{
    struct sigaction action = {.sa_handler = jump_from_handler}, previous;
    struct itimerval soon = {.it_value = {0, 100 + round % 97}};
    sigaction(SIGALRM, &action, &previous);
    int got = sigsetjmp(escape, 1);
    if (got == 0) {
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;)
            poll(NULL, 0, 0);
    }
    sigaction(SIGALRM, &previous, NULL);
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    return got == 4 && library && dlclose(library) == 0;
}

static FRAME void work_and_jump(void)
{
    for (int i = 0; i < 1000; i++)
        toil(4);
    siglongjmp(escape, 4);
}

static void jump_after_work(int signal)
{
    (void)signal;
    work_and_jump();
    STAY();
}

/* A call that is left by a jump and made again from the same place, after the last marked frame has
 * disappeared without a return. */
static FRAME bool call_again(uint32_t round)
{
    struct sigaction action = {.sa_handler = jump_after_work}, previous;
    struct itimerval soon = {.it_value = {0, 100 + round % 97}};
    sigaction(SIGALRM, &action, &previous);
    int got = sigsetjmp(escape, 1);
    if (got == 0)
        setitimer(ITIMER_REAL, &soon, NULL);
    int wait_ms = got == 0 ? 10000 : 2;
    poll(NULL, 0, wait_ms);
    sigaction(SIGALRM, &previous, NULL);
    return got == 4;
}

#define STACK_BYTES 65536

/* Two coroutines count in turns, deep in their own stacks. */
static struct fibre {
    ucontext_t here, back;
    char *stack;
    int steps;
} fibres[2];

static FRAME void count_deep(struct fibre *fibre, int depth)
{
    if (depth == 0) {
        for (int i = 0; i < 8; i++) {
            toil((uint32_t)i);
            fibre->steps++;
            swapcontext(&fibre->here, &fibre->back);
        }
        return;
    }
    count_deep(fibre, depth - 1);
    STAY();
}

static void fibre_main(int index)
{
    count_deep(&fibres[index], 5);
    toil(1);
    swapcontext(&fibres[index].here, &fibres[index].back);
}

static void prepare(int index)
{
    struct fibre *fibre = &fibres[index];
    if (!fibre->stack)
        fibre->stack = malloc(STACK_BYTES);
    fibre->steps = 0;
    getcontext(&fibre->here);
    fibre->here.uc_stack.ss_sp = fibre->stack;
    fibre->here.uc_stack.ss_size = STACK_BYTES;
    fibre->here.uc_link = NULL;
    makecontext(&fibre->here, (void (*)(void))fibre_main, 1, index);
}

static FRAME void resume(int index)
{
    swapcontext(&fibres[index].back, &fibres[index].here);
    STAY();
}

static FRAME bool coroutines(uint32_t round)
{
    prepare(0);
    prepare(1);
    for (int i = 0; i < 9; i++) {
        resume((int)(round + (uint32_t)i) % 2);
        resume((int)(round + (uint32_t)i + 1) % 2);
    }
    return fibres[0].steps == 8 && fibres[1].steps == 8;
}

static void *resume_there(void *index)
{
    for (int i = 0; i < 4; i++)
        resume((int)(intptr_t)index);
    toil(2);
    return NULL;
}

static FRAME bool coroutines_in_another_thread(uint32_t round)
{
    (void)round;
    pthread_t thread;
    prepare(0);
    for (int i = 0; i < 5; i++)
        resume(0);
    if (pthread_create(&thread, NULL, resume_there, (void *)0) != 0)
        return false;
    pthread_join(thread, NULL);
    return fibres[0].steps == 8;
}

/* Green threads as in interpreters: the stack's content is copied away, other code runs in its
 * place, and the content is copied back. */
static FRAME bool copied_stacks(uint32_t round)
{
    static char copy[STACK_BYTES];
    prepare(0);
    for (int i = 0; i < 4; i++)
        resume(0);
    ucontext_t saved = fibres[0].here;
    int steps = fibres[0].steps;
    memcpy(copy, fibres[0].stack, STACK_BYTES);
    prepare(0);
    for (uint32_t i = 0; i < round % 9; i++)
        resume(0);
    memcpy(fibres[0].stack, copy, STACK_BYTES);
    fibres[0].here = saved;
    fibres[0].here.uc_mcontext.fpregs = &fibres[0].here.__fpregs_mem;
    fibres[0].steps = steps;
    for (int i = 0; i < 5; i++)
        resume(0);
    return fibres[0].steps == 8;
}

static FRAME uint32_t with_room(uint32_t seed, int depth)
{
    size_t bytes = 16 + seed % 600;
    volatile char *room = alloca(bytes);
    room[bytes - 1] = (char)seed;
    seed = toil(seed);
    uint32_t below = depth ? with_room(seed, depth - 1) : seed;
    STAY();
    return below + (uint32_t)room[bytes - 1] * 0;
}

/* An aligned array beside an alloca makes GCC realign the stack through r10. */
static FRAME uint32_t realigned(uint32_t seed, int depth)
{
    _Alignas(64) volatile uint32_t lanes[16];
    volatile char *room = alloca(1 + seed % 100);
    room[0] = 1;
    for (int i = 0; i < 16; i++)
        lanes[i] = seed;
    uint32_t below = depth ? realigned(toil(lanes[3]), depth - 1) : toil(lanes[5]);
    STAY();
    return below + lanes[7] * 0;
}

static uint32_t plainly(uint32_t seed, int depth)
{
    for (int i = 0; i <= depth; i++)
        seed = toil(seed);
    return seed;
}

static FRAME bool frames_of_odd_sizes(uint32_t round)
{
    return with_room(round, 9) == plainly(round, 9) && realigned(round, 9) == plainly(round, 9);
}

static FRAME uint32_t even(uint32_t left, uint32_t seed);

static FRAME uint32_t odd(uint32_t left, uint32_t seed)
{
    seed = toil(seed);
    return left == 0 ? seed : even(left - 1, seed);
}

static FRAME uint32_t even(uint32_t left, uint32_t seed)
{
    seed = toil(seed);
    return left == 0 ? seed : odd(left - 1, seed);
}

static FRAME bool tail_calls(uint32_t round)
{
    uint32_t seed = even(15, round);
    STAY();
    return seed == plainly(round, 15);
}

static FRAME uint64_t deep(uint32_t depth)
{
    if (depth % 1000 == 0)
        toil(depth);
    uint64_t below = depth == 0 ? 0 : deep(depth - 1);
    STAY();
    return below + depth;
}

static FRAME bool deep_recursion(uint32_t round)
{
    (void)round;
    return deep(100000) == 5000050000u;
}

static FRAME uint32_t fibonacci(uint32_t n)
{
    uint32_t sum = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    STAY();
    return sum;
}

static FRAME bool many_returns(uint32_t round)
{
    (void)round;
    return fibonacci(19) == 4181;
}

int main(void)
{
    attempt("longjmp", jump_out);
    attempt("longjmp out of a handler", jump_out_of_a_handler);
    attempt("longjmp out of calls", jump_out_of_calls);
    attempt("calls made again", call_again);
    attempt("coroutines", coroutines);
    attempt("coroutines in another thread", coroutines_in_another_thread);
    attempt("copied stacks", copied_stacks);
    attempt("alloca and realigned frames", frames_of_odd_sizes);
    attempt("tail calls", tail_calls);
    attempt("deep recursion", deep_recursion);
    attempt("many returns", many_returns);
    return verdict();
}
