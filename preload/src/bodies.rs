//! Assembly that several bodies share: registers on the stack, the frame that unwinders can pass,
//! the argument words of the call, and the body of measured calls.

/// First instructions of a body: a stack frame that unwinders can pass, with `{room}` bytes.
macro_rules! open_frame {
    () => {
        "push rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov rbp, rsp
        .cfi_def_cfa_register rbp
        sub rsp, {room}"
    };
}

/// Pushes registers, in a way that unwinders can follow.
macro_rules! push {
    ($($register:ident)*) => {
        concat!($("push ", stringify!($register), "\n.cfi_adjust_cfa_offset 8\n"),*)
    };
}

/// Pops registers, in a way that unwinders can follow.
macro_rules! pop {
    ($($register:ident)*) => {
        concat!($("pop ", stringify!($register), "\n.cfi_adjust_cfa_offset -8\n"),*)
    };
}

/// Saves the words of a call that are passed in registers, `{words}` bytes above the stack pointer.
macro_rules! save_words {
    () => {
        "mov [rsp + {words}], rdi
        mov [rsp + {words} + 8], rsi
        mov [rsp + {words} + 16], rdx
        mov [rsp + {words} + 24], rcx
        mov [rsp + {words} + 32], r8
        mov [rsp + {words} + 40], r9"
    };
}

/// Saves the stub's code, which `r11d` holds, and passes frame and code on as arguments. No other
/// register that the call uses is changed.
macro_rules! save_code {
    () => {
        "mov [rsp + {words} + {code}], r11d
        mov rdi, rsp
        mov esi, r11d"
    };
}

/// Defines the body of measured calls `$body`. Its stack frame has `$room` bytes, with a
/// [`Frame`](crate::stubs::Frame) from `$words` on. `$enter` is called before the real call, and
/// may change the words; `$leave` after it, with its result. Arguments beyond the sixth are pushed
/// again for the real call.
macro_rules! measured_body {
    (
        $(#[$meta:meta])*
        $visibility:vis $body:ident, $enter:ident, $leave:ident,
        room: $room:expr, words: $words:expr
    ) => {
        $(#[$meta])*
        #[unsafe(naked)]
        $visibility unsafe extern "C-unwind" fn $body() {
            naked_asm!(
                ".cfi_startproc",
                open_frame!(),
                save_words!(),
                save_code!(),
                "call {enter}",
                "mov r11, rax",
                "mov r10, rdx",
                "mov rdi, [rsp + {words}]",
                "mov rsi, [rsp + {words} + 8]",
                "mov rdx, [rsp + {words} + 16]",
                "mov rcx, [rsp + {words} + 24]",
                "mov r8, [rsp + {words} + 32]",
                "mov r9, [rsp + {words} + 40]",
                "sub r10, 1",
                "jb 4f",
                "jz 3f",
                // The stack must be aligned to 16 at the call: one more word if the number of words
                // is odd.
                "test r10d, 1",
                "jz 2f",
                "sub rsp, 8",
                "2:",
                "push qword ptr [rbp + 8 + 8 * r10]",
                "sub r10, 1",
                "jnz 2b",
                "3:",
                "call r11",
                "lea rsp, [rbp - {room}]",
                "mov [rsp + {words} + {result}], rax",
                "mov rdi, rsp",
                "mov rsi, rax",
                "call {leave}",
                "mov rax, [rsp + {words} + {result}]",
                ".cfi_remember_state",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_restore_state",
                "4:",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "jmp r11",
                ".cfi_endproc",
                room = const $room,
                words = const $words,
                code = const $crate::stubs::Frame::CODE,
                result = const $crate::stubs::Frame::RESULT,
                enter = sym $enter,
                leave = sym $leave,
            )
        }
    };
}

pub(crate) use {measured_body, open_frame, pop, push, save_code, save_words};
