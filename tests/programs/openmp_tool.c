/* An OpenMP tool, as a library: counts the parallel regions of the process and, at its end, writes
 * the number to stderr. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

typedef void (*entry_point)(void);
typedef entry_point (*lookup_function)(const char *name);
typedef int (*set_callback_function)(int event, entry_point callback);

enum { PARALLEL_BEGIN = 3 };

static atomic_int regions;

static void parallel_begin(void)
{
    atomic_fetch_add(&regions, 1);
}

static int initialize(lookup_function lookup, int device, uint64_t *data)
{
    (void)device;
    (void)data;
    set_callback_function set = (set_callback_function)lookup("ompt_set_callback");
    set(PARALLEL_BEGIN, parallel_begin);
    return 1;
}

static void finalize(uint64_t *data)
{
    (void)data;
    fprintf(stderr, "openmp_tool: %d regions\n", atomic_load(&regions));
}

static struct {
    int (*initialize)(lookup_function lookup, int device, uint64_t *data);
    void (*finalize)(uint64_t *data);
    uint64_t data;
} result = {initialize, finalize, 0};

void *ompt_start_tool(unsigned version, const char *runtime)
{
    (void)version;
    (void)runtime;
    return &result;
}
