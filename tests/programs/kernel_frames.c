/* A function in assembly without an unwind table that works itself, with the frame of OpenBLAS's
 * kernels: rbp points at data, and the stack is realigned, so that only rbx knows the frame. Only
 * its epilogue says where the return address is. As in OpenBLAS, its alignment makes the linker put
 * the code into a second executable segment. */
#include "subject.h"

void work_in_kernel(long turns, void *data);
__asm__(".text\n"
        ".p2align 15\n"
        ".type work_in_kernel, @function\n"
        "work_in_kernel:\n"
        "    sub $0x60, %rsp\n"
        "    mov %rbx, (%rsp)\n"
        "    mov %rbp, 8(%rsp)\n"
        "    mov %rsp, %rbx\n"
        "    sub $0x7080, %rsp\n"
        "    and $-4096, %rsp\n"
        "    movq $7, 8(%rsp)\n"
        "    mov %rsi, %rbp\n"
        "1:  addq $1, (%rbp)\n"
        "    dec %rdi\n"
        "    jne 1b\n"
        "    mov %rbx, %rsp\n"
        "    mov (%rsp), %rbx\n"
        "    mov 8(%rsp), %rbp\n"
        "    add $0x60, %rsp\n"
        "    ret\n"
        ".size work_in_kernel, . - work_in_kernel\n");

/* Small numbers, which are no return addresses. */
static long data[8] = {0, 7, 7, 7, 7, 7, 7, 7};

SHOWN void call_kernel(double ms)
{
    double end_s = wall_s() + ms / 1e3;
    do
        work_in_kernel(100000, data);
    while (wall_s() < end_s);
    KEEP_FRAME();
}

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    double begin_s = wall_s();
    for (int i = 0; i < parameters.iterations; i++)
        call_kernel(parameters.ms);
    FILE *file = open_truth("kernel_frames");
    if (file) {
        tell_number(file, "elapsed_s", wall_s() - begin_s);
        tell_text(file, "cause", "work_in_kernel");
        close_truth(file);
    }
    printf("kernel_frames: %ld turns\n", data[0]);
    return 0;
}
