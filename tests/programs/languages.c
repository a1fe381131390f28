/* The same calls in C, with large counts where the MPI has them, or through its Fortran interface:
 * each must be counted once, through any number of layers of the library. HOW is c or fortran. */
#include "ranks.h"

#include <dlfcn.h>

typedef MPI_Fint integer;

/* Arguments are references; the length of a text is an additional word at the end. */
static void (*f_init)(integer *error);
static void (*f_barrier)(integer *comm, integer *error);
static void (*f_allreduce)(void *out, void *in, integer *count, integer *type, integer *op,
                           integer *comm, integer *error);
static void (*f_reduce)(void *out, void *in, integer *count, integer *type, integer *op,
                        integer *root, integer *comm, integer *error);
static void (*f_bcast)(void *both, integer *count, integer *type, integer *root, integer *comm,
                       integer *error);
static void (*f_win_create)(void *base, MPI_Aint *size, integer *unit, integer *info, integer *comm,
                            integer *window, integer *error);
static void (*f_win_fence)(integer *assertion, integer *window, integer *error);
static void (*f_win_free)(integer *window, integer *error);
static void (*f_sendrecv)(void *out, integer *count, integer *type, integer *to, integer *tag,
                          void *in, integer *in_count, integer *in_type, integer *from,
                          integer *in_tag, integer *comm, integer *status, integer *error);
static void (*f_iprobe)(integer *from, integer *tag, integer *comm, integer *flag, integer *status,
                        integer *error);
static void (*f_file_open)(integer *comm, const char *name, integer *mode, integer *info,
                           integer *file, integer *error, size_t length);
static void (*f_file_close)(integer *file, integer *error);
static void (*f_finalize)(integer *error);

static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "subject: this MPI has no %s\n", name);
        exit(2);
    }
    memcpy(function, &found, sizeof found);
}

static void load_fortran(void)
{
    const char *names[] = {"libmpichfort.so.12", "libmpi_mpifh.so.40"};
    int ours = 0;
#ifdef OPEN_MPI
    ours = 1;
#endif
    if (!dlopen(names[ours], RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "subject: %s\n", dlerror());
        exit(2);
    }
    find(&f_init, "mpi_init_");
    find(&f_barrier, "mpi_barrier_");
    find(&f_allreduce, "mpi_allreduce__");
    find(&f_reduce, "mpi_reduce_");
    find(&f_bcast, "mpi_bcast_");
    find(&f_win_create, "mpi_win_create_");
    find(&f_win_fence, "mpi_win_fence_");
    find(&f_win_free, "mpi_win_free_");
    find(&f_sendrecv, "mpi_sendrecv__");
    find(&f_iprobe, "MPI_IPROBE");
    find(&f_file_open, "mpi_file_open_");
    find(&f_file_close, "mpi_file_close_");
    find(&f_finalize, "mpi_finalize_");
}

static integer window;

/* A window of nothing, on all ranks. */
static void create_window(void)
{
    integer world = MPI_Comm_c2f(MPI_COMM_WORLD), info = MPI_Info_c2f(MPI_INFO_NULL), unit = 1;
    integer error;
    MPI_Aint size = 0;
    f_win_create(&error, &size, &unit, &info, &world, &window, &error);
}

SHOWN long long in_fortran(int iteration)
{
    integer world = MPI_Comm_c2f(MPI_COMM_WORLD), number = MPI_Type_c2f(MPI_LONG_LONG), error = 0;
    integer sum_op = MPI_Op_c2f(MPI_SUM), count = 1, peer = rank ^ 1, tag = 7, flag, status[64];
    integer mode = MPI_MODE_CREATE | MPI_MODE_RDWR, info = MPI_Info_c2f(MPI_INFO_NULL), file;
    long long part = (long long)(rank + 1) * (iteration + 1), sum = 0, other = 0;
    f_barrier(&world, &error);
    f_allreduce(&part, &sum, &count, &number, &sum_op, &world, &error);
    integer root = 1, none = 0;
    f_reduce(&part, &sum, &count, &number, &sum_op, &root, &world, &error);
    f_bcast(&sum, &count, &number, &root, &world, &error);
    f_win_fence(&none, &window, &error);
    f_sendrecv(&part, &count, &number, &peer, &tag, &other, &count, &number, &peer, &tag, &world,
               status, &error);
    f_iprobe(&peer, &tag, &world, &flag, status, &error);
    if (iteration == 0) {
        const char *name = "languages.out   ";
        f_file_open(&world, name, &mode, &info, &file, &error, strlen(name));
        f_file_close(&file, &error);
    }
    KEEP_FRAME();
    return sum + other + flag + error;
}

SHOWN long long in_c(int iteration)
{
    long long part = (long long)(rank + 1) * (iteration + 1), sum = 0, other = 0;
    int peer = rank ^ 1, flag;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&part, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&part, 1, MPI_LONG_LONG, peer, 7, &other, 1, MPI_LONG_LONG, peer, 7,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iprobe(peer, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
    long long again = 0;
    MPI_Allreduce_c(&part, &again, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    sum += again - sum;
    MPI_Sendrecv_c(&part, 1, MPI_LONG_LONG, peer, 7, &other, 1, MPI_LONG_LONG, peer, 7,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#endif
    /* MPI_IN_PLACE: count and type are ignored and may be invalid. */
    long long all[2] = {part, part};
    MPI_Allgather(MPI_IN_PLACE, 3, MPI_DATATYPE_NULL, all, 1, MPI_LONG_LONG, MPI_COMM_WORLD);
    MPI_Gather(rank ? &part : MPI_IN_PLACE, 1, rank ? MPI_LONG_LONG : MPI_DATATYPE_NULL, all, 1,
               MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (iteration == 0) {
        MPI_File file;
        MPI_File_open(MPI_COMM_WORLD, "languages.out", MPI_MODE_CREATE | MPI_MODE_RDWR,
                      MPI_INFO_NULL, &file);
        MPI_File_close(&file);
    }
    KEEP_FRAME();
    return sum + other + flag;
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    bool fortran = strcmp(parameters.how, "fortran") == 0;
    integer error = 0;
    if (fortran) {
        load_fortran();
        f_init(&error);
    } else {
        MPI_Init(&argc, &argv);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long long checksum = error;
    if (fortran)
        create_window();
    for (int i = 0; i < parameters.iterations; i++)
        checksum += fortran ? in_fortran(i) : in_c(i);
    FILE *file = rank == 0 ? open_truth("languages") : NULL;
    if (file) {
        tell_number(file, "large_counts", !fortran && MPI_VERSION >= 4);
        close_truth(file);
    }
    print_result("languages", checksum);
    if (fortran) {
        f_win_free(&window, &error);
        f_finalize(&error);
    } else {
        MPI_Finalize();
    }
    return 0;
}
