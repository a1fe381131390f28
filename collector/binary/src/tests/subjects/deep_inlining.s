# Debug information of two functions: the first has 100000 inlined calls within each other.
    .text
    .globl deep, plain
    .type deep, @function
    .type plain, @function
deep:
.Ldeep:
    nop
    ret
    .size deep, . - deep
plain:
.Lplain:
    nop
    ret
    .size plain, . - plain
.Lend:

    .section .debug_abbrev, "", @progbits
    .byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0            # compile unit: low_pc, high_pc
    .byte 2, 0x2e, 1, 0x11, 0x01, 0x12, 0x07, 0, 0            # subprogram: low_pc, high_pc
    .byte 3, 0x1d, 1, 0, 0                                    # inlined subroutine
    .byte 4, 0x1d, 0, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0 # the same: name, low_pc, high_pc
    .byte 0

    .section .debug_info, "", @progbits
    .4byte .Lunit_end - .Lunit
.Lunit:
    .2byte 4
    .4byte 0
    .byte 8
    .byte 1
    .8byte .Ldeep, .Lend - .Ldeep
    .byte 2
    .8byte .Ldeep, .Lplain - .Ldeep
    .fill 100000, 1, 3
    .fill 100001, 1, 0
    .byte 2
    .8byte .Lplain, .Lend - .Lplain
    .byte 4
    .asciz "inner"
    .8byte .Lplain, .Lend - .Lplain
    .byte 0, 0
.Lunit_end:
    .section .note.GNU-stack, "", @progbits
