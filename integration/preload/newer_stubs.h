/* The number of functions newer than the tables that are handed out behind a stub, and the bytes of registers
 * that a stub keeps. Both newer.c and newer_stubs.S include this, so it has nothing but numbers. A runtime
 * asks for some 460 names, of which a driver that is years ahead may bring a third in two forms. A function
 * for which no place is left is handed out without a stub, which is reported (routing.c). */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_
#define SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_

#define SPILLWAY_NEWER_STUBS 512
/* The most bytes of vector registers that are kept on the caller's stack while the engine is asked about a
 * call. A state of the processor that does not fit is not kept. */
#define SPILLWAY_NEWER_STATE_BYTES 4096

#endif /* SPILLWAY_INTEGRATION_PRELOAD_NEWER_STUBS_H_ */
