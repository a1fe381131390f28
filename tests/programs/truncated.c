/* Stacks with outer frames that cannot be found, for the reason that the last argument names:
 * deep: more frames than a stack may have; generated: code that no file contains; no_table: a
 * function without an unwind table that knows its frame by rbx alone, which the functions that it
 * calls may have changed. The last two use the frame pointer for something else. */
#include "subject.h"

#include <sys/mman.h>

SHOWN void work_inside(void)
{
    burn_ms(parameters.ms);
    KEEP_FRAME();
}

SHOWN void descend(int levels)
{
    if (levels > 0)
        descend(levels - 1);
    else
        work_inside();
    KEEP_FRAME();
}

/* push rbp; mov ebp, 1; call rdi; pop rbp; ret */
static const unsigned char CALLS_ITS_ARGUMENT[] = {0x55, 0xbd, 1,    0,    0,
                                                   0,    0xff, 0xd7, 0x5d, 0xc3};

static void call_through_generated_code(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        abort();
    memcpy(code, CALLS_ITS_ARGUMENT, sizeof CALLS_ITS_ARGUMENT);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0)
        abort();
    ((void (*)(void (*)(void)))code)(work_inside);
}

void call_without_table(void (*function)(void));
__asm__(".text\n"
        ".type call_without_table, @function\n"
        "call_without_table:\n"
        "    push %rbx\n"
        "    push %rbp\n"
        "    mov %rsp, %rbx\n"
        "    and $-64, %rsp\n"
        "    mov $1, %ebp\n"
        "    call *%rdi\n"
        "    mov %rbx, %rsp\n"
        "    pop %rbp\n"
        "    pop %rbx\n"
        "    ret\n"
        ".size call_without_table, . - call_without_table\n");

int main(int argc, char **argv)
{
    read_parameters(argc, argv);
    const char *reason = parameters.how;
    for (int i = 0; i < parameters.iterations; i++) {
        if (strcmp(reason, "deep") == 0)
            descend(600);
        else if (strcmp(reason, "generated") == 0)
            call_through_generated_code();
        else
            call_without_table(work_inside);
    }
    printf("truncated: %s\n", reason);
    return 0;
}
