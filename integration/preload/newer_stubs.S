/* Stubs for functions that are newer than the tables (newer.c): each counts its calls and jumps through its place in
 * spillway_newer_targets. A place starts at a stub that asks ResolveNewer() where the call goes. The signature is not
 * known. So every register that may carry an argument reaches the function as it was, vector registers in their whole
 * width, and so does the stack. x86-64 only, as trampolines.S. */

#include "integration/preload/newer_stubs.h"

#if !defined(__x86_64__)
#error "newer_stubs.S is written for x86-64; other processors need their own stubs"
#endif

/* clang-format off */
        .hidden spillway_newer_stubs
        .hidden spillway_newer_targets
        .hidden spillway_newer_calls
        .hidden spillway_newer_state
        .globl  spillway_newer_stubs
        .globl  spillway_newer_targets
        .globl  spillway_newer_calls
        .hidden ResolveNewer

        .bss
        .balign 64
spillway_newer_calls:
        .zero   8 * SPILLWAY_NEWER_STUBS

        .data
        .balign 64
spillway_newer_targets:
        .set    place, 0
        .rept   SPILLWAY_NEWER_STUBS
        .quad   .Lnewer_lazy + 16 * place
        .set    place, place + 1
        .endr

        .section .spillway_lazy, "ax", @progbits
        .balign 16
.Lnewer_lazy:
        .set    place, 0
        .rept   SPILLWAY_NEWER_STUBS
        .balign 16
        endbr64
        movl    $place, %r11d
        jmp     .Lnewer_resolve
        .set    place, place + 1
        .endr

        .text
        .balign 64
spillway_newer_stubs:
        .set    place, 0
        .rept   SPILLWAY_NEWER_STUBS
        .balign 32
        endbr64
        lock incq spillway_newer_calls + 8 * place(%rip)
        jmp     *spillway_newer_targets + 8 * place(%rip)
        .set    place, place + 1
        .endr

/* %r11d: the place. Keeps the registers in a frame of this thread's stack, asks, and jumps to the answer. */
        .section .spillway_lazy, "ax", @progbits
        .balign 16
.Lnewer_resolve:
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        pushq   %rcx
        pushq   %r8
        pushq   %r9
        pushq   %rax
        pushq   %r10
        subq    $SPILLWAY_NEWER_STATE_BYTES, %rsp
        andq    $-64, %rsp
        movl    spillway_newer_state(%rip), %eax        /* which registers xsave keeps; 0: there is none */
        testl   %eax, %eax
        jz      .Lnewer_keep_sse
        xorl    %edx, %edx
        movq    %rdx, 512(%rsp)                         /* its header, which it does not write whole */
        movq    %rdx, 520(%rsp)
        movq    %rdx, 528(%rsp)
        movq    %rdx, 536(%rsp)
        movq    %rdx, 544(%rsp)
        movq    %rdx, 552(%rsp)
        movq    %rdx, 560(%rsp)
        movq    %rdx, 568(%rsp)
        xsave64 (%rsp)
        movl    %r11d, %edi
        call    ResolveNewer
        movq    %rax, %r11
        movl    spillway_newer_state(%rip), %eax
        xorl    %edx, %edx
        xrstor64 (%rsp)
        jmp     .Lnewer_go
.Lnewer_keep_sse:
        fxsave64 (%rsp)
        movl    %r11d, %edi
        call    ResolveNewer
        movq    %rax, %r11
        fxrstor64 (%rsp)
.Lnewer_go:
        movq    -8(%rbp), %rdi
        movq    -16(%rbp), %rsi
        movq    -24(%rbp), %rdx
        movq    -32(%rbp), %rcx
        movq    -40(%rbp), %r8
        movq    -48(%rbp), %r9
        movq    -56(%rbp), %rax
        movq    -64(%rbp), %r10
        leave
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc

        .section .note.GNU-stack, "", @progbits
