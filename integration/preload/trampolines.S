/* The exported functions of the preload, generated from driver_functions.def, and the hooks of dlopen
 * and dlmopen.
 * Each driver symbol is a 16-byte trampoline that jumps through its row of the function table. So pointers that were
 * handed out earlier reach a wrapper that is installed later. A row starts at its lazy stub, which asks ResolveRow()
 * for the function. Registers and stack pass through untouched: no prototype is known here, none is needed. */

#if !defined(__x86_64__)
#error "trampolines.S is written for x86-64; other processors need their own trampolines"
#endif

/* clang-format off */
        .hidden spillway_targets
        .hidden spillway_trampolines
        .globl  spillway_targets
        .globl  spillway_trampolines
        .hidden ResolveRow
        .hidden DlopenName
        .hidden DlopenTarget
        .hidden DlmopenTarget

        .section .spillway_lazy, "ax", @progbits
        .balign 16
        .data
        .balign 64
spillway_targets:
        .text
        .balign 64
spillway_trampolines:

        .macro  ENTRY symbol
        .data
.Lrow_\symbol:
        .quad   .Llazy_\symbol
        .section .spillway_lazy, "ax", @progbits
        .balign 16
.Llazy_\symbol:
        endbr64
        leaq    .Lrow_\symbol(%rip), %r11
        jmp     .Lresolve
        .text
        .balign 16
        .globl  \symbol
        .type   \symbol, @function
\symbol:
        endbr64
        jmp     *.Lrow_\symbol(%rip)
        .size   \symbol, . - \symbol
        .endm

#define DRIVER_FUNCTION(symbol, name, version, form) ENTRY symbol
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION

/* Saves every register that may carry an argument around a call of `function` with %rdi = %r11. The result is left
 * in %r11. On entry the stack is 8 bytes off 16, as after a call. */
        .macro  CALL_KEEPING_ARGUMENTS function
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        subq    $192, %rsp
        movq    %rdi, 0(%rsp)
        movq    %rsi, 8(%rsp)
        movq    %rdx, 16(%rsp)
        movq    %rcx, 24(%rsp)
        movq    %r8, 32(%rsp)
        movq    %r9, 40(%rsp)
        movq    %rax, 48(%rsp)
        movups  %xmm0, 64(%rsp)
        movups  %xmm1, 80(%rsp)
        movups  %xmm2, 96(%rsp)
        movups  %xmm3, 112(%rsp)
        movups  %xmm4, 128(%rsp)
        movups  %xmm5, 144(%rsp)
        movups  %xmm6, 160(%rsp)
        movups  %xmm7, 176(%rsp)
        movq    %r11, %rdi
        call    \function
        movq    %rax, %r11
        movq    0(%rsp), %rdi
        movq    8(%rsp), %rsi
        movq    16(%rsp), %rdx
        movq    24(%rsp), %rcx
        movq    32(%rsp), %r8
        movq    40(%rsp), %r9
        movq    48(%rsp), %rax
        movups  64(%rsp), %xmm0
        movups  80(%rsp), %xmm1
        movups  96(%rsp), %xmm2
        movups  112(%rsp), %xmm3
        movups  128(%rsp), %xmm4
        movups  144(%rsp), %xmm5
        movups  160(%rsp), %xmm6
        movups  176(%rsp), %xmm7
        leave
        .cfi_def_cfa %rsp, 8
        .cfi_endproc
        .endm

        .section .spillway_lazy, "ax", @progbits
        .balign 16
.Lresolve:
        CALL_KEEPING_ARGUMENTS ResolveRow
        jmp     *%r11

/* dlopen(path, mode): the filter may give another path, then the real dlopen is jumped to with the caller's return
 * address on the stack. glibc takes the caller from there; a wrapper in C would put our RUNPATH and $ORIGIN in place
 * of the caller's. */
        .text
        .balign 16
        .globl  dlopen
        .type   dlopen, @function
dlopen:
        endbr64
        movq    %rdi, %r11
        CALL_KEEPING_ARGUMENTS DlopenName
        movq    %r11, %rdi
        CALL_KEEPING_ARGUMENTS DlopenTarget
        jmp     *%r11
        .size   dlopen, . - dlopen

/* dlmopen(namespace, path, mode): the path is looked at, no more. */
        .balign 16
        .globl  dlmopen
        .type   dlmopen, @function
dlmopen:
        endbr64
        movq    %rsi, %r11
        CALL_KEEPING_ARGUMENTS DlmopenTarget
        jmp     *%r11
        .size   dlmopen, . - dlmopen

        .section .note.GNU-stack, "", @progbits
