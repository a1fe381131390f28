/* A program without MPI that loads one with MPI: dlopens the shared object in its first argument
 * with RTLD_LOCAL, so that neither the object nor its MPI is in the global scope, and runs its
 * plugin_main with the other arguments. */
#include "subject.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*plugin_main)(int, char **);
    *(void **)&plugin_main = plugin ? dlsym(plugin, "plugin_main") : NULL;
    if (!plugin_main) {
        fprintf(stderr, "local: %s\n", plugin || argc > 1 ? dlerror() : "no plugin is named");
        return 2;
    }
    int status = plugin_main(argc - 1, argv + 1);
    KEEP_FRAME(); /* without it this frame is gone */
    return status;
}
