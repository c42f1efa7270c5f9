// The device code of gpu.h. PTX of the first version for compute capability 7.0: the driver compiles it for whatever
// device is there. ptx_test.py assembles it.

#ifndef SPILLWAY_TESTS_GPU_KERNELS_PTX_H_
#define SPILLWAY_TESTS_GPU_KERNELS_PTX_H_

namespace spillway::gpu {

inline constexpr char kKernels[] = R"(
.version 6.0
.target sm_70
.address_size 64

// (address, words, seed): word[i] = seed * 2654435761 + i, in a loop of all threads of the grid.
.visible .entry spillway_fill(.param .u64 address, .param .u64 words, .param .u32 seed)
{
  .reg .pred %done;
  .reg .u32 %r<8>;
  .reg .u64 %i, %step, %end, %at, %base;
  ld.param.u64 %base, [address];
  ld.param.u64 %end, [words];
  ld.param.u32 %r1, [seed];
  cvta.to.global.u64 %base, %base;
  mul.lo.u32 %r1, %r1, 2654435761;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %i, %r2, %r3;
  cvt.u64.u32 %at, %r4;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r5, %r3;
FILL_NEXT:
  setp.ge.u64 %done, %i, %end;
  @%done bra FILL_END;
  cvt.u32.u64 %r6, %i;
  add.u32 %r6, %r6, %r1;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  st.global.u32 [%at], %r6;
  add.u64 %i, %i, %step;
  bra FILL_NEXT;
FILL_END:
  ret;
}

// (address, words, seed, counter): adds to the counter how many words differ from what spillway_fill writes.
.visible .entry spillway_compare(.param .u64 address, .param .u64 words, .param .u32 seed, .param .u64 counter)
{
  .reg .pred %done, %same;
  .reg .u32 %r<10>;
  .reg .u64 %i, %step, %end, %at, %base, %counter;
  ld.param.u64 %base, [address];
  ld.param.u64 %end, [words];
  ld.param.u32 %r1, [seed];
  ld.param.u64 %counter, [counter];
  cvta.to.global.u64 %base, %base;
  cvta.to.global.u64 %counter, %counter;
  mul.lo.u32 %r1, %r1, 2654435761;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %i, %r2, %r3;
  cvt.u64.u32 %at, %r4;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r5, %r3;
COMPARE_NEXT:
  setp.ge.u64 %done, %i, %end;
  @%done bra COMPARE_END;
  cvt.u32.u64 %r6, %i;
  add.u32 %r6, %r6, %r1;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  ld.global.u32 %r7, [%at];
  setp.eq.u32 %same, %r6, %r7;
  @%same bra COMPARE_SAME;
  red.global.add.u32 [%counter], 1;
COMPARE_SAME:
  add.u64 %i, %i, %step;
  bra COMPARE_NEXT;
COMPARE_END:
  ret;
}

// (to, from, words): to[i] = 5 * to[i] + from[i] + 7.
.visible .entry spillway_mix(.param .u64 to, .param .u64 from, .param .u64 words)
{
  .reg .pred %done;
  .reg .u32 %r<9>;
  .reg .u64 %i, %step, %end, %at, %base, %source;
  ld.param.u64 %base, [to];
  ld.param.u64 %source, [from];
  ld.param.u64 %end, [words];
  cvta.to.global.u64 %base, %base;
  cvta.to.global.u64 %source, %source;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %i, %r2, %r3;
  cvt.u64.u32 %at, %r4;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r5, %r3;
MIX_NEXT:
  setp.ge.u64 %done, %i, %end;
  @%done bra MIX_END;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %source;
  ld.global.u32 %r6, [%at];
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  ld.global.u32 %r7, [%at];
  mul.lo.u32 %r7, %r7, 5;
  add.u32 %r7, %r7, %r6;
  add.u32 %r7, %r7, 7;
  st.global.u32 [%at], %r7;
  add.u64 %i, %i, %step;
  bra MIX_NEXT;
MIX_END:
  ret;
}

// (address, words, slope, offset, counter): adds to the counter how many words are not offset + slope * i.
.visible .entry spillway_check(.param .u64 address, .param .u64 words, .param .u32 slope, .param .u32 offset, .param .u64 counter)
{
  .reg .pred %done, %same;
  .reg .u32 %r<10>;
  .reg .u64 %i, %step, %end, %at, %base, %counter;
  ld.param.u64 %base, [address];
  ld.param.u64 %end, [words];
  ld.param.u32 %r1, [slope];
  ld.param.u32 %r8, [offset];
  ld.param.u64 %counter, [counter];
  cvta.to.global.u64 %base, %base;
  cvta.to.global.u64 %counter, %counter;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %i, %r2, %r3;
  cvt.u64.u32 %at, %r4;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r5, %r3;
CHECK_NEXT:
  setp.ge.u64 %done, %i, %end;
  @%done bra CHECK_END;
  cvt.u32.u64 %r6, %i;
  mul.lo.u32 %r6, %r6, %r1;
  add.u32 %r6, %r6, %r8;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  ld.global.u32 %r7, [%at];
  setp.eq.u32 %same, %r6, %r7;
  @%same bra CHECK_SAME;
  red.global.add.u32 [%counter], 1;
CHECK_SAME:
  add.u64 %i, %i, %step;
  bra CHECK_NEXT;
CHECK_END:
  ret;
}

// (address, words): adds 1 to each word, as a float and by an atomic operation.
.visible .entry spillway_add_ones(.param .u64 address, .param .u64 words)
{
  .reg .pred %done;
  .reg .u32 %r<6>;
  .reg .f32 %one;
  .reg .u64 %i, %step, %end, %at, %base;
  ld.param.u64 %base, [address];
  ld.param.u64 %end, [words];
  cvta.to.global.u64 %base, %base;
  mov.f32 %one, 0f3F800000;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %i, %r2, %r3;
  cvt.u64.u32 %at, %r4;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r5, %r3;
ADD_NEXT:
  setp.ge.u64 %done, %i, %end;
  @%done bra ADD_END;
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %base;
  red.global.add.f32 [%at], %one;
  add.u64 %i, %i, %step;
  bra ADD_NEXT;
ADD_END:
  ret;
}

// (nanoseconds): until that long has passed on the device's clock.
.visible .entry spillway_spin(.param .u64 nanos)
{
  .reg .pred %early;
  .reg .u64 %start, %now, %nanos;
  ld.param.u64 %nanos, [nanos];
  mov.u64 %start, %globaltimer;
SPIN_NEXT:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %early, %now, %nanos;
  @%early bra SPIN_NEXT;
  ret;
}

.visible .entry spillway_nothing(.param .u64 address)
{
  ret;
}
)";

}  // namespace spillway::gpu

#endif  // SPILLWAY_TESTS_GPU_KERNELS_PTX_H_
