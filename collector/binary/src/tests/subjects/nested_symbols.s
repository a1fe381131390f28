# Functions with sizes within each other, as in assembly with several entries.
    .text
    .globl outer, inner
    .type outer, @function
    .type inner, @function
outer:
    nop
inner:
    nop
    nop
    .size inner, . - inner
    nop
    ret
    .size outer, . - outer
    .section .note.GNU-stack, "", @progbits
