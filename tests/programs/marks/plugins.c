/* Code of the program that is loaded and unloaded by dlopen and dlclose, also while another thread
 * runs in another copy of it. usage: plugins PLUGIN OTHER_PLUGIN, in the folder of the program */
#include "trial.h"

#include <dlfcn.h>

typedef uint32_t plugin_work_t(int depth, uint32_t seed, uint32_t (*work)(uint32_t));

enum { DEPTH = 12 };

/* The loader puts the folder of its caller, which is this program, in place of $ORIGIN. */
static char paths[2][4096];

/* Longer than loading takes. */
static FRAME uint32_t work(uint32_t seed)
{
    for (int i = 0; i < 3000; i++)
        seed = toil(seed);
    STAY();
    return seed;
}

static FRAME bool load_work_unload(const char *path, uint32_t seed)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    plugin_work_t *plugin_work;
    *(void **)&plugin_work = dlsym(library, "plugin_work");
    uint32_t found = plugin_work(DEPTH, seed, work);
    return dlclose(library) == 0 && found == work(seed) + DEPTH;
}

/* The two are loaded at the same addresses, one after the other. */
static FRAME bool by_turns(uint32_t round)
{
    return load_work_unload(paths[round % 2], round) &&
        load_work_unload(paths[1 - round % 2], round);
}

static FRAME void *in_thread(void *seed)
{
    return load_work_unload(paths[1], *(uint32_t *)seed) ? seed : NULL;
}

static FRAME bool beside_a_thread(uint32_t round)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, &round) != 0)
        return false;
    bool good = load_work_unload(paths[0], round);
    void *result = NULL;
    return pthread_join(thread, &result) == 0 && result == &round && good;
}

/* Samples mark the return from here, and dlopen, which is jumped to, returns to that place. */
static FRAME void *load_by_a_jump(const char *path)
{
    for (uint32_t seed = 0; seed < 1000; seed++)
        toil(seed);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static FRAME bool by_a_jump(uint32_t round)
{
    void *library = load_by_a_jump(paths[round % 2]);
    return library && dlclose(library) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "$ORIGIN%s", strrchr(argv[1 + i], '/'));
    attempt("plugins by turns", by_turns);
    attempt("plugins beside a thread", beside_a_thread);
    attempt("plugins by a jump", by_a_jump);
    return verdict();
}
