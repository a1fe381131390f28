/* A program with an OpenMP tool of its own. Its first call of the runtime is omp_init_lock, in
 * which the runtime initialises the tool: the tool works there for MILLISECONDS, so that samples
 * fall into that call. Afterwards the runtime states the call's return address. The truth tells
 * whether it lies in the program. */
#include "subject.h"

#include <dlfcn.h>
#include <omp.h>

typedef void (*entry_point)(void);
typedef entry_point (*lookup_function)(const char *name);
typedef int (*set_callback_function)(int event, entry_point callback);
typedef void (*lock_callback)(int kind, unsigned hint, unsigned how, uint64_t lock, const void *);

enum { LOCK_INIT = 24 };

static int locks, in_program;

static const void *base_of(const void *address)
{
    Dl_info found;
    return dladdr(address, &found) != 0 ? found.dli_fbase : NULL;
}

static void lock_init(int kind, unsigned hint, unsigned how, uint64_t lock, const void *address)
{
    (void)kind;
    (void)hint;
    (void)how;
    (void)lock;
    locks++;
    in_program += base_of(address) == base_of(&parameters);
}

SHOWN int initialize(lookup_function lookup, int device, uint64_t *data)
{
    (void)device;
    (void)data;
    lock_callback callback = lock_init;
    set_callback_function set = (set_callback_function)lookup("ompt_set_callback");
    set(LOCK_INIT, (entry_point)callback);
    work_ms(parameters.ms);
    return 1;
}

static void finalize(uint64_t *data)
{
    (void)data;
}

static struct {
    int (*initialize)(lookup_function lookup, int device, uint64_t *data);
    void (*finalize)(uint64_t *data);
    uint64_t data;
} tool = {initialize, finalize, 0};

void *ompt_start_tool(unsigned version, const char *runtime);

void *ompt_start_tool(unsigned version, const char *runtime)
{
    (void)version;
    (void)runtime;
    return &tool;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    omp_lock_t lock;
    omp_init_lock(&lock);
    omp_destroy_lock(&lock);
    FILE *file = open_truth("openmp_own_tool");
    if (file) {
        tell_number(file, "locks", locks);
        tell_number(file, "in_program", in_program);
        close_truth(file);
    }
    printf("openmp_own_tool\n");
    return 0;
}
